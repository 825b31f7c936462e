#!/usr/bin/env python3
"""Copies a few small inputs per fuzz target from Go's cache, where `go test -fuzz` keeps what it found, to fuzz/corpus.

Each of them reached code that others did not. Of those below a size it takes up to 16, from small to large.
"""

import pathlib
import shutil
import subprocess

FAMILIES = {
    "ring": "shmring/FuzzRing",
    "pool": "shmring/FuzzPool",
    "store": "objstore/FuzzPool",
    "lru": "internal/lru/FuzzLRU",
    "pair": "lrusync/FuzzPair",
    "chunk": "shmring/FuzzReadChunk",
    "metadata": "serde/FuzzParseMetadata",
    "item": "serde/FuzzDecodeItem",
    "outputs": "serde/enginecore/FuzzDecodeOutputs",
    "start": "serde/enginecore/FuzzDecodeStart",
    "ndarray": "serde/enginecore/FuzzDecodeNDArray",
    "request": "engine/enginetest/wire/FuzzDecodeRequest",
    "feature": "engine/enginetest/wire/FuzzDecodeFeature",
    "messages": "engine/enginetest/wire/FuzzDecodeMessages",
    "sidecar": "internal/sidecar/FuzzFile",
    "check": "objstore/check/FuzzCheck",
    "agent": "agent/FuzzAgent",
    "msgpack": "internal/codec/FuzzDecode",
}
CHOICES = ("ring", "pool", "store", "lru", "pair", "sidecar")
COUNT = 16


def main() -> None:
    cache = pathlib.Path(subprocess.check_output(["go", "env", "GOCACHE"],
                                                 text=True).strip()) / "fuzz/github.com/ringcache/ringcache"
    corpus = pathlib.Path(__file__).parent.parent / "fuzz/corpus/testdata"
    for family, target in FAMILIES.items():
        limit = 3000 if family in CHOICES else 700
        found = sorted((f.stat().st_size, f) for f in (cache / target).glob("*") if f.stat().st_size <= limit)
        if not found:
            print(f"{family}: nothing found; run go test -fuzz for {target}")
            continue
        shutil.rmtree(corpus / family, ignore_errors=True)
        (corpus / family).mkdir(parents=True)
        count = min(COUNT, len(found))
        picked = [found[i * len(found) // count] for i in range(count)]
        for _, path in picked:
            shutil.copyfile(path, corpus / family / path.name)
        print(f"{family}: {count} of {len(found)}, {sum(size for size, _ in picked)} bytes")


if __name__ == "__main__":
    main()

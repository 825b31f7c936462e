"""Packages kv and kv/flow beside the real LMCache, 0.5.6 or 0.5.7: random token lists, masks, keys and flows of requests, in
one process each.

Needs an environment of setup.sh, a release of lmcache of e2e/lmcache.sh, which is not in the lock, and xxhash:

    uv pip install --python "$env/bin/python" --no-deps --target XXHASH xxhash
    PYTHONPATH=$lmcache:XXHASH "$env/bin/python" -m pytest interop/test_kv.py -q -s
"""

import json
import os
import pathlib
import random
import shutil
import subprocess
import sys

import pytest
from lmcache_release import installed

HERE = pathlib.Path(__file__).resolve().parent
CASES = int(200_000 * float(os.environ.get("RINGCACHE_INTEROP_SCALE", "1")))


def test_random_cases(tmp_path):
    if not installed():
        pytest.skip("no lmcache on PYTHONPATH; the top of this file has the commands")
    if shutil.which("go") is None:
        pytest.skip("no go on PATH to build the program with")
    program = tmp_path / "kv"
    subprocess.run(["go", "build", "-o", program, "./interop/kv"], cwd=HERE.parent, check=True)
    cases = tmp_path / "cases.json"
    env = {**os.environ, "PYTHONHASHSEED": "0", "LMCACHE_LOG_LEVEL": "ERROR", "LMCACHE_TRACK_USAGE": "false", "VLLM_LOGGING_LEVEL": "ERROR"}
    subprocess.run([sys.executable, __file__, cases, str(CASES)], env=env, check=True)
    with open(cases) as f:
        done = subprocess.run([program], stdin=f, capture_output=True, text=True)
    print(done.stdout, done.stderr)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr
    assert done.stdout.rstrip().endswith("different 0")


def attempt(fn, *a, **k):
    try:
        return fn(*a, **k)
    except (ValueError, KeyError):
        return None


def mostly(r, choices):
    return choices[0] if r.random() < 0.8 else r.choice(choices)


def text(r, letters="abcdefghijk/-SEP@%. \u00e9\\0"):
    return "".join(r.choice(letters) for _ in range(r.randrange(0, 10)))


def chains(r):
    try:
        from lmcache.inprocess.v1 import token_database
    except ImportError:  # before 0.5.7
        from lmcache.v1 import token_database
    from lmcache.v1.config import LMCacheEngineConfig
    from lmcache.v1.metadata import LMCacheMetadata
    from lmcache.v1.multiprocess.token_hasher import TokenHasher
    import torch
    hashers = [(a, c, TokenHasher(c, a)) for a in ("blake3", "sha256_cbor", "xxhash_cbor") for c in (1, 3, 8)]
    databases = []
    for algorithm in ("sha256_cbor", "xxhash_cbor", "builtin"):
        for tail in (False, True):
            config = LMCacheEngineConfig.from_defaults(chunk_size=3, pre_caching_hash_algorithm=algorithm, save_unfull_chunk=tail)
            database = token_database.ChunkedTokenDatabase(config, LMCacheMetadata("m", 1, 1, 0, 0, torch.bfloat16, (1, 2, 3, 1, 8)))
            databases.append((algorithm, tail, database, token_database.NONE_HASH))
    while True:
        tokens = [r.randrange(1 << r.choice((1, 5, 8, 16, 17, 31, 32))) for _ in range(r.randrange(0, 40))]
        case = {"kind": "chain", "tokens": tokens, "cut": r.randrange(len(tokens) + 1)}
        if r.random() < 0.5:
            algorithm, chunk, hasher = r.choice(hashers)
            yield {**case, "algorithm": algorithm, "chunk": chunk, "hashes": [h.hex() for h in hasher.compute_chunk_hashes(tokens)]}
        else:
            algorithm, tail, database, token_database.NONE_HASH = r.choice(databases)
            yield {**case, "algorithm": algorithm, "chunk": 3, "legacy": True, "tail": tail,
                   "hashes": ["%x" % h for _, _, h in database.process_tokens(tokens, make_key=False)]}


def databases(r):
    sys.path.insert(0, str(HERE.parent / "kv" / "testdata"))
    import token_database as golden
    made = {}
    tags = [("lmcache.tag." + n, v) for n in ("a", "b", "\u00e9") for v in ("x", 7, True, None, 0.1)] + [("lmcache.skip_save", True)]
    while True:
        algorithm, chunk, tail, mla = r.choice(("sha256_cbor", "xxhash_cbor", "builtin")), r.choice((1, 3, 4)), r.random() < 0.5, r.random() < 0.1
        separator = r.choice(((), (), (2,), (1, 2), (0, 0, 1)))
        tokens = [r.randrange(3 if separator else 1 << 32) for _ in range(r.randrange(0, 30))]
        skip = mostly(r, (r.randrange(len(tokens) // chunk + 1) * chunk, r.randrange(len(tokens) + 1)))
        options = dict(r.sample(tags, r.randrange(4))) if r.random() < 0.3 else None
        key = algorithm, chunk, tail, separator, mla
        if key not in made:
            made[key] = golden.database(*key)
        found, failed = golden.process(made[key], tokens, skip, options)
        if failed and len(tokens) < len(separator):
            failed = skip >= len(tokens)  # what LMCache does behind the one segment
        yield {"kind": "database", "algorithm": algorithm, "chunk": chunk, "tail": tail, "mla": mla, "separator": separator, "tokens": tokens, "skip": skip,
               "options": json.dumps(options) if options else "", "hashes": None if failed else ["%d %d %s" % tuple(c) for c in found]}


def flows(r):
    sys.path.insert(0, str(HERE.parent / "kv" / "flow" / "testdata"))
    import flows as golden
    while True:
        yield {"kind": "flow", "flow": golden.flow(r, steps=r.choice((3, 10, 20)), most=r.choice((10, 40)))}


def objects(r):
    from lmcache.v1.distributed.api import ObjectKey
    from lmcache.v1.distributed.l2_adapters import fs_l2_adapter as fs, native_connector_l2_adapter as native
    while True:
        case = {"kind": "object", "hash": r.randbytes(r.choice((1, 8, 16, 32, 64))).hex(), "model": text(r) or "m", "rank": r.getrandbits(32), "group": r.getrandbits(r.choice((1, 4, 32))),
                "salt": text(r) if r.random() < 0.5 else "a" * r.randrange(0, 140)}
        key = attempt(ObjectKey, bytes.fromhex(case["hash"]), case["model"], case["rank"], case["group"], case["salt"])
        if key is None:
            yield case
            continue
        name = fs._object_key_to_filename(key)
        # No file system takes longer names, and LMCache reads some names as those of other models.
        yield {**case, "text": native._object_key_to_string(key),
               "file": name if fs._filename_to_object_key(name) == key and len(name.encode()) <= 255 else ""}


def files(r):
    from lmcache.v1.distributed.l2_adapters import fs_l2_adapter as fs
    fields = [("a", "a-SEP-b", "a/b", ""), ("0x01000100", "01000100", "0x1", "0x0100010A"), ("0", "a", "00", "A", "-1"), ("ff", "FF", "f", "00", "f f"), ("s", "s t", "", "a/b")]
    while True:
        name = "@".join(mostly(r, f) for f in fields[:r.choice((3, 4, 4, 4, 5, 5, 5))]) + mostly(r, (".data", ".tmp"))
        key = fs._filename_to_object_key(name)
        again = fs._object_key_to_filename(key) if key is not None and key.model_name else ""
        yield {"kind": "parse_file", "input": name, "text": again if again == name else ""}


def engines(r):
    from lmcache.utils import CacheEngineKey, LayerCacheEngineKey, STR_DTYPE_TO_TORCH_DTYPE, parse_cache_key
    while True:
        tags = [(text(r), text(r)) for _ in range(r.choice((0, 0, 1, 2)))]
        dtype = r.choice(list(STR_DTYPE_TO_TORCH_DTYPE.values()))
        number = r.getrandbits(r.choice((1, 8, 63, 64, 128))) * r.choice((1, 1, -1))
        world = r.randrange(1, 300)
        case = {"kind": "engine", "model": text(r) or "m", "world": world, "worker": r.randrange(world), "hash": "%x" % number, "dtype": str(dtype).removeprefix("torch."),
                "tags": [{"name": n, "value": v} for n, v in tags]}
        a = (case["model"], world, case["worker"], number, dtype, {"lmcache.tag." + n: v for n, v in tags})
        if r.random() < 0.5:
            case["layer"] = r.randrange(200)
            key = LayerCacheEngineKey(*a, case["layer"])
        else:
            key = CacheEngineKey(*a)
        # A dict has each name once.
        same = len({n for n, _ in tags}) == len(tags) and attempt(parse_cache_key, key.to_string()) == key
        yield {**case, "text": key.to_string() if same else ""}


def engine_texts(r):
    from lmcache.utils import parse_cache_key
    fields = [("m", "a/b"), ("1", "01", "x", "16"), ("0", "-0", "3"), ("ff", "FF", "0xff", "-f", "0f", "0", "g", ""), ("half", "bfloat16", "float16", "HALF")]
    rest = ("0", "7", "07", "a%b", "%", "c%d%e", "x", "", "-1", "\u0663")
    while True:
        text_ = "@".join([mostly(r, f) for f in fields] + [r.choice(rest) for _ in range(r.choice((0, 0, 1, 2, 3)))])
        key = attempt(parse_cache_key, text_)
        yield {"kind": "parse_engine", "input": text_, "text": text_ if key is not None and key.to_string() == text_ else ""}


def main(path, count):
    r = random.Random(5)
    kinds = [chains(r), databases(r), flows(r), objects(r), files(r), engines(r), engine_texts(r)]
    with open(path, "w") as f:
        for i in range(count):
            json.dump(next(kinds[i % len(kinds)]), f)
            f.write("\n")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))

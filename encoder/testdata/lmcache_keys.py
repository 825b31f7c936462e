"""Writes lmcache_keys.json: keys of encoder outputs as LMCache 0.5.6 makes them.

    python encoder/testdata/lmcache_keys.py > encoder/testdata/lmcache_keys.json
"""

import importlib.metadata
import json
import os
import platform

os.environ.setdefault("LMCACHE_LOG_LEVEL", "ERROR")
os.environ.setdefault("LMCACHE_TRACK_USAGE", "false")
import torch  # noqa: E402
from lmcache.utils import TORCH_DTYPE_TO_STR_DTYPE, CacheEngineKey  # noqa: E402
from lmcache.v1 import ec_engine  # noqa: E402

MODEL = "Qwen/Qwen2-VL-2B-Instruct"
keys, refused = [], []
for name in ("img0", "", "a", "0" * 64, "9f86d081884c7d659a2feaa0c55ad015", "img-\u00e9", "a" * 1000, "deadbeef"):
    number = ec_engine._stable_u64_from_str(name)
    keys.append({"mm_hash": name, "u64": str(number), "hex": "%x" % number,
                 "key_text_bf16": CacheEngineKey(MODEL, 1, 0, number, torch.bfloat16).to_string()})
for dtype in (torch.complex64, torch.uint16, torch.uint32, torch.float8_e8m0fnu, None):
    try:
        result = CacheEngineKey(MODEL, 1, 0, 1, dtype).to_string()
    except ValueError as e:
        result = "ValueError: %s" % e
    refused.append({"torch_dtype": str(dtype), "result": result})
sections = {"ec_key": keys, "dtype_names": [{"torch": str(d), "name": n} for d, n in TORCH_DTYPE_TO_STR_DTYPE.items()], "unsupported_dtype": refused}
print('{\n"versions": %s,' % json.dumps({"python": platform.python_version(), "lmcache": importlib.metadata.version("lmcache")}))
print(",\n".join('"%s": [\n%s\n]' % (s, ",\n".join(json.dumps(r, separators=(",", ":")) for r in rows)) for s, rows in sections.items()))
print("}")

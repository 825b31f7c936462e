"""Writes how one release of vLLM hashes blocks, for a release that is first on the path:

    PYTHONPATH=$env/releases/0.31.0:XXHASH "$env/bin/python" kv/testdata/vllm_blocks.py

with the environment of interop/setup.sh, and a folder that has xxhash. All releases of the environment, for the file beside this one:

    PYTHONPATH=XXHASH "$env/bin/python" kv/testdata/vllm_blocks.py all "$env" > kv/testdata/vllm_blocks.json
"""

import importlib.machinery
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import types


class Stub(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


class Stubs:
    """Packages that old releases import and the environment lacks."""

    def __init__(self):
        self.missing = [n for n in ("gguf", "diskcache", "outlines_core", "xgrammar", "llguidance", "lark", "depyf", "compressed_tensors", "torchvision")
                        if importlib.util.find_spec(n) is None]

    def find_spec(self, name, path=None, target=None):
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if name.split(".")[0] in self.missing else None

    def create_module(self, spec):
        return Stub(spec.name)

    def exec_module(self, module):
        module.__path__ = []


def value(v):
    if isinstance(v, bytes):
        return {"bytes": v.hex()}
    return [value(x) for x in v] if isinstance(v, tuple) else v


def request(**kw):
    import torch
    position = types.SimpleNamespace
    media = [types.SimpleNamespace(identifier=i, mm_position=position(offset=o, length=n)) for i, o, n in kw.get("media", ())]
    lora = types.SimpleNamespace(lora_int_id=7, lora_name="sql", lora_path="/adapters/sql") if kw.get("lora") else None
    embeds = torch.arange(12 * 2, dtype=torch.float32).reshape(12, 2) if kw.get("embeds") else None
    return types.SimpleNamespace(mm_features=media, mm_hashes=[m.identifier for m in media], mm_positions=[m.mm_position for m in media], lora_request=lora,
                                 cache_salt=kw.get("salt"), prompt_embeds=embeds, _prompt_embeds_per_block_hashes={})


REQUESTS = {
    "plain": {}, "salt": {"salt": "alice"}, "lora": {"lora": True}, "embeds": {"embeds": True},
    "media": {"media": [("img0", 1, 2), ("img1", 3, 6)]}, "all": {"lora": True, "salt": "\u00e9", "media": [("img0", 6, 5)]},
}


def chains(K, f, head):
    for name, kw in REQUESTS.items():
        if kw.get("embeds") and not hasattr(K, "_gen_prompt_embeds_extra_hash_keys"):
            continue
        r, previous, blocks, at = request(**kw), None, [], 0
        for start in (0, 4, 8):
            extra, at = K.generate_block_hash_extra_keys(r, start, start + 4, at)
            previous = K.hash_block_tokens(f, previous, list(range(start, start + 4)), extra)
            blocks.append({"extra": value(extra), "hash": previous.hex()})
        yield {**head, "request": name, "none": K.NONE_HASH.hex(), "blocks": blocks}


def child():
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    sys.meta_path.append(Stubs())
    import vllm
    from vllm.v1.core import kv_cache_utils as K
    try:
        from vllm.utils import hashing as H
    except ImportError:
        import vllm.utils as H
    rows = []
    for seed in ("0", "42", ""):
        os.environ.pop("PYTHONHASHSEED", None)
        if seed:
            os.environ["PYTHONHASHSEED"] = seed  # which init_none_hash reads
        for algorithm in ("sha256_cbor", "xxhash_cbor"):
            f = getattr(H, algorithm, None)
            if f is None or not seed and (algorithm != "sha256_cbor" or not hasattr(K, "resolve_none_hash_seed")):
                continue  # what is random in each process is no vector
            K.init_none_hash(f)
            rows += chains(K, f, {"release": vllm.__version__.split("+")[0], "algorithm": algorithm, "seed": seed})
    print("@@" + json.dumps(rows))


def main(env):
    env = pathlib.Path(env)
    rows = []
    for release in [p.name for p in (env / "releases").iterdir()] + [""]:
        path = [str(env / "releases" / release)] if release else []
        e = {**os.environ, "PYTHONPATH": os.pathsep.join(path + [os.environ.get("PYTHONPATH", "")])}
        done = subprocess.run([str(env / "bin" / "python"), __file__], env=e, capture_output=True, text=True)
        if done.returncode:
            sys.exit(release + done.stderr)
        rows += json.loads([line for line in done.stdout.splitlines() if line.startswith("@@")][0][2:])
    rows.sort(key=lambda r: list(map(int, r["release"].split("."))))
    print("[\n%s\n]" % ",\n".join(json.dumps(r, separators=(",", ":")) for r in rows))


if __name__ == "__main__":
    main(sys.argv[2]) if sys.argv[1:2] == ["all"] else child()

"""Writes keys.json: the cache keys that real releases of vLLM give to media items, their first 96 bits.

    python keys.py RELEASE_DIR... > keys.json

Each RELEASE_DIR holds an unpacked vLLM; the interpreter is that of the interop environment (interop/setup.sh). Every
release runs in a process of its own. No vLLM code is replaced, only third-party packages are stubbed that old releases
import and the environment does not hold.
"""

import importlib.machinery
import importlib.util
import itertools
import json
import os
import subprocess
import sys
import types

STUBS = ("gguf", "diskcache", "outlines_core", "xgrammar", "llguidance", "lark", "depyf", "compressed_tensors", "torchvision")

PROCESSOR = [{}, {"num_crops": 4}, {"zeta": 1.5, "images_kwargs": {"size": None}, "videos_kwargs": {"fps": 2.0}},
             {"videos_kwargs": {"fps": [1, 2]}}]
TOKENIZER = {"truncation": True, "a": "b"}
OTHERS = [({}, {}), (TOKENIZER, {}), ({}, {"image": {"image_mode": "RGB"}}), (TOKENIZER, {"video": {"num_frames": 8}, "image": {}})]
ITEMS = {"image": ["file", "image"], "video": ["frames"], "audio": ["wave"], "vision_chunk": ["chunk"]}
CLASHES = [("image", {"model_id": 1}, {}), ("image", {"image": 1}, {}), ("image", {"a": 1}, {"a": 2})]


def cases():
    for modality, items in ITEMS.items():
        for uuids in (None, [None] * len(items), ["client"] * len(items)):
            for p, (t, m) in itertools.product(PROCESSOR, OTHERS):
                yield {"modality": modality, "items": items, "uuids": uuids, "processor": p, "tokenizer": t, "media_io": m}
    for modality, p, t in CLASHES:
        yield {"modality": modality, "items": ["image"], "uuids": None, "processor": p, "tokenizer": t, "media_io": {}}


class _Stub(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


class _Finder:
    def __init__(self, missing):
        self.missing = missing

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in self.missing:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        return _Stub(spec.name)

    def exec_module(self, module):
        module.__path__ = []


def run(path):
    os.environ["VLLM_LOGGING_LEVEL"] = "ERROR"
    sys.meta_path.append(_Finder([n for n in STUBS if importlib.util.find_spec(n) is None]))
    sys.path.insert(0, path)
    import numpy
    from PIL import Image
    import vllm
    import vllm.multimodal.hasher as hasher
    import vllm.multimodal.parse as parse
    import vllm.multimodal.processing as processing
    assert os.path.realpath(vllm.__file__).startswith(os.path.realpath(path)), vllm.__file__

    gray = Image.frombytes("L", (1, 1), b"\x05")
    wrap = getattr(hasher, "MediaWithBytes", lambda media, data: media)
    build = {
        "image": lambda: gray, "file": lambda: wrap(gray, b"JPEG"), "chunk": lambda: {"type": "image", "n": 1},
        "frames": lambda: (numpy.arange(24, dtype=numpy.uint8).reshape(2, 2, 2, 3), {"fps": 2.0}),
        "wave": lambda: numpy.array([0.5, -1.0], dtype=numpy.float32),
    }
    holders = {"image": parse.ImageProcessorItems, "video": parse.VideoProcessorItems, "audio": parse.AudioProcessorItems}

    class Chunks(parse.ProcessorBatchItems):
        def __init__(self, data):
            super().__init__(data, "vision_chunk")

    def keys(c):
        data = parse.MultiModalDataItems({c["modality"]: holders.get(c["modality"], Chunks)([build[i]() for i in c["items"]])})
        uuids = None if c["uuids"] is None else {c["modality"]: c["uuids"]}
        inputs = getattr(processing, "ProcessorInputs", None)
        if inputs is None or not hasattr(inputs, "get_mm_hashes"):
            fake = types.SimpleNamespace(info=types.SimpleNamespace(model_id="org/model"))
            return processing.BaseMultiModalProcessor._hash_mm_items(fake, data, c["processor"], c["tokenizer"], mm_uuids=uuids)
        names = inputs.__dataclass_fields__
        more = {"media_io_kwargs": c["media_io"]} if "media_io_kwargs" in names else {}
        if "tokenization_kwargs" in names:
            more["tokenization_kwargs"] = c["tokenizer"]
        made = inputs([], data, uuids, hf_processor_mm_kwargs=c["processor"], **more)
        positional = "hash_algorithm" in made.get_mm_hashes.__code__.co_varnames
        return made.get_mm_hashes("org/model", *(["blake3"] if positional else []))

    out = []
    for c in cases():
        try:
            out.append([k[:24] for k in keys(c)[c["modality"]]])
        except TypeError as e:
            out.append(str(e).split("got ")[-1][:20])
    print("KEYS " + json.dumps([vllm.__version__.split("+")[0], out]))


def main(paths):
    if paths[0] == "--run":
        return run(paths[1])
    groups = {}
    for path in paths:
        done = subprocess.run([sys.executable, __file__, "--run", path], stdout=subprocess.PIPE, text=True, check=True)
        version, out = json.loads(next(s for s in done.stdout.splitlines() if s.startswith("KEYS "))[5:])
        print(version, file=sys.stderr, flush=True)
        groups.setdefault(json.dumps(out), []).append(version)
    print('{"cases": [')
    print(",\n".join(json.dumps(c) for c in cases()))
    print('], "groups": [')
    print(",\n".join('{"releases": %s, "keys": %s}' % (json.dumps(v), k) for k, v in groups.items()))
    print("]}")


if __name__ == "__main__":
    main(sys.argv[1:])

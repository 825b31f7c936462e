"""Real vLLM, whichever release is asked for, behind one small set of calls.

No code of vLLM is replaced; the environment is adapted in `load`, and nowhere else. At import only the standard library is used.
"""

import gc
import hashlib
import importlib
import importlib.machinery
import importlib.util
import inspect
import math
import os
import pickle
import sys
import types
import weakref

GIB = 1 << 30

# Third-party packages that old releases import at the top of some file and an environment need not hold. Nothing of
# them is used on the way of a cached item.
STUBS = ("gguf", "diskcache", "outlines_core", "xgrammar", "llguidance", "lark", "depyf", "compressed_tensors", "torchvision")

# Every dtype that models use, and a few that they hardly do. Name: bytes per element.
DTYPES = {
    "float32": 4, "bfloat16": 2, "float16": 2, "int64": 8, "uint8": 1, "bool": 1, "float8_e4m3fn": 1, "float8_e5m2": 1,
    "int32": 4, "int16": 2, "int8": 1, "float64": 8, "uint16": 2, "uint32": 4, "uint64": 8, "complex64": 8,
}


class _Stub(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


class _StubFinder:
    def __init__(self, missing):
        self.missing = missing

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in self.missing:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        return _Stub(spec.name)

    def exec_module(self, module):
        module.__path__ = []


def content(t):
    """The bytes of a described tensor."""
    if "hex" in t:
        return bytes.fromhex(t["hex"])
    from blake3 import blake3  # vLLM requires it
    n = math.prod(t["shape"]) * DTYPES[t["dtype"]]
    raw = blake3(t["xof"].encode()).digest(length=n) if n else b""
    if t["dtype"] == "bool":
        # As one big integer: a byte loop in Python would dominate the run.
        raw = (int.from_bytes(raw, "little") & int.from_bytes(b"\x01" * n, "little")).to_bytes(n, "little")
    return raw


class Classes:
    """The modules and classes of one release, with what differs between releases looked up once."""

    def __init__(self, torch, version, storage, inputs, serial):
        self.torch, self.version, self.inputs = torch, version, inputs
        self.Ring, self.Storage = storage.SingleWriterShmRingBuffer, storage.SingleWriterShmObjectStorage
        self.Encoder, self.Decoder = serial.MsgpackEncoder, serial.MsgpackDecoder
        self._Handle, self._Serde = storage.ShmObjectStorageHandle, storage.MsgpackSerde
        self.signed = hasattr(self.Storage, "verify_signature")
        self.touches = hasattr(self.Storage, "touch")
        self.keyed = "key" in inspect.signature(inputs.MultiModalFieldElem).parameters
        self.keeps = "keep_on_cpu" in {
            f for c in inputs.MultiModalBatchedField.__mro__ for f in getattr(c, "__annotations__", {})}
        self.hashed = "mm_hash" in inputs.MultiModalFeatureSpec.__dataclass_fields__

    # -- objects -------------------------------------------------------------------------------------------------

    def tensor(self, t):
        torch, raw = self.torch, content(t)
        dtype = getattr(torch, t["dtype"])
        if not raw:
            return torch.empty(t["shape"], dtype=dtype)
        return torch.frombuffer(bytearray(raw), dtype=torch.uint8).view(dtype).view(t["shape"])

    def data(self, d):
        if isinstance(d, dict):
            return float(d["float"]) if "float" in d else self.tensor(d)
        return [self.data(x) for x in d] if isinstance(d, list) else d

    def field(self, f):
        kind, inputs = f["kind"], self.inputs
        more = {"keep_on_cpu": f.get("keep_on_cpu", False)} if self.keeps else {}
        if kind == "batched":
            return inputs.MultiModalBatchedField(**more)
        if kind == "shared":
            return inputs.MultiModalSharedField(batch_size=f["batch_size"], **more)
        nested = bool(f["slices"]) and isinstance(f["slices"][0][0], list)
        cut = [[slice(*s) for s in group] for group in f["slices"]] if nested else [slice(*s) for s in f["slices"]]
        return inputs.MultiModalFlatField(slices=cut, dim=f["dim"], **more)

    def item(self, fields, modality="image"):
        inputs = self.inputs
        if self.keyed:
            return inputs.MultiModalKwargsItem.from_elems([
                inputs.MultiModalFieldElem(modality=modality, key=f["name"], data=self.data(f["data"]), field=self.field(f["field"]))
                for f in fields])
        return inputs.MultiModalKwargsItem({
            f["name"]: inputs.MultiModalFieldElem(data=self.data(f["data"]), field=self.field(f["field"])) for f in fields})

    def build(self, value):
        """An object from the agent's form."""
        if value["type"] == "pickle":
            return pickle.loads(bytes.fromhex(value["hex"]))
        return self.tensor(value["data"]) if value["type"] == "tensor" else self.item(value["fields"], value.get("modality", "image"))

    def raw(self, t):
        """The bytes of a tensor, as an array."""
        return t.detach().flatten().contiguous().view(self.torch.uint8).numpy() if t.numel() else b""

    def describe_field(self, f):
        out = {"kind": type(f).__name__.removeprefix("MultiModal").removesuffix("Field").lower()}
        if getattr(f, "keep_on_cpu", False):
            out["keep_on_cpu"] = True
        for name in ("dim", "batch_size"):
            if hasattr(f, name):
                out[name] = getattr(f, name)
        if hasattr(f, "slices"):
            cut = lambda s: [s.start, s.stop, s.step] if isinstance(s, slice) else [cut(x) for x in s]
            out["slices"] = [cut(s) for s in f.slices]
        return out

    def describe_data(self, d):
        if isinstance(d, self.torch.Tensor):
            raw = bytes(self.raw(d))
            out = {"dtype": str(d.dtype).removeprefix("torch."), "shape": list(d.shape), "sha256": hashlib.sha256(raw).hexdigest()}
            if len(raw) <= 256:
                out["hex"] = raw.hex()
            return out
        if isinstance(d, float) and not math.isfinite(d):
            return {"float": str(d)}
        return [self.describe_data(x) for x in d] if isinstance(d, (list, tuple)) else d

    def describe(self, got):
        """An object in the agent's form of a reply."""
        if isinstance(got, self.torch.Tensor):
            return {"type": "tensor", "data": self.describe_data(got)}
        if isinstance(got, self.inputs.MultiModalKwargsItem):
            out = {"type": "item", "fields": [
                {"name": k, "data": self.describe_data(e.data), "field": self.describe_field(e.field)} for k, e in got.items()]}
            if self.keyed:
                out["modality"] = next(iter(got.values())).modality
            return out
        return {"type": "pickle", "hex": pickle.dumps(got, protocol=pickle.HIGHEST_PROTOCOL).hex()}

    # -- storages ------------------------------------------------------------------------------------------------

    def create(self, name, size, max_object, readers, lock=None, secret=None):
        ring = self.Ring(size, name=name, create=True)
        if secret is not None and self.signed:
            # Only where segments are compared byte by byte: the writer's own secret is random.
            ring.shared_memory.buf[:len(secret)] = secret
        return self.Storage(max_object, readers, ring, reader_lock=lock)

    def open(self, name, size, max_object, readers, lock):
        """A reader, as a worker makes it: from a handle whose lock came by inheritance."""
        handle = self._Handle(max_object_size=max_object, n_readers=readers, ring_buffer_handle=(size, name),
                              serde_class=self._Serde, reader_lock=lock)
        return self.Storage.create_from_handle(handle)

    def signature(self, storage, key):
        return storage.get_signature(key) if self.signed else None

    def get(self, storage, key, address, number, signature):
        if self.signed:
            return storage.get(address, number, signature, key)
        return storage.get(address, number)

    def touch(self, storage, key, address, number, signature):
        if self.signed:
            storage.touch(key, address, number, signature)
        elif self.touches:
            storage.touch(key, address, number)

    def ring_state(self, ring):
        return {"start": ring.data_buffer_start, "end": ring.data_buffer_end, "id_start": ring.monotonic_id_start,
                "id_end": ring.monotonic_id_end, "metadata": dict(ring.metadata)}

    def state(self, storage):
        ring, counts = storage.ring_buffer, {}
        for address, number in storage.key_index.values():
            with ring.access_buf(address) as (view, _):
                counts[number] = int.from_bytes(view[:4], "little", signed=True)
        return {
            "key_index": {k: list(v) for k, v in storage.key_index.items()}, "writer_flag": dict(storage.writer_flag),
            "reader_flag": counts, "touched": sorted(getattr(storage, "_touched", ())), "ring": self.ring_state(ring),
        }

    @staticmethod
    def close_ring(holders, attribute):
        """Lets go of the ring that the only element of a list has, by the release's own means: close() where there is
        one, else its destructor."""
        ring = getattr(holders[0], attribute) if attribute else holders[0]
        if hasattr(ring, "close"):
            ring.close()
        gone = weakref.ref(ring)
        del ring
        holders.clear()
        if gone() is not None:  # part of a cycle, or of the traceback of an error
            gc.collect()

    # -- caches --------------------------------------------------------------------------------------------------

    @staticmethod
    def cache_names():
        """What the cache module holds, which is a package from 0.31 on."""
        names = {}
        for module in ("cache.base", "cache.lru", "cache"):
            try:
                names.update(vars(importlib.import_module("vllm.multimodal." + module)))
            except ModuleNotFoundError:
                continue
        return names

    @staticmethod
    def cache_config(capacity):
        multimodal = types.SimpleNamespace(mm_processor_cache_gb=capacity / GIB)  # exact: a power of two
        return types.SimpleNamespace(get_multimodal_config=lambda: multimodal)

    def feature(self, key, item, identifier=None, modality="image", position=0):
        more = {"mm_hash": key} if self.hashed else {}
        return self.inputs.MultiModalFeatureSpec(data=item, modality=modality, identifier=key if identifier is None else identifier, **more,
                                                 mm_position=self.inputs.PlaceholderRange(offset=position, length=1))


def load(path, make=Classes):
    """Imports the vLLM under path (None: the environment's own)."""
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    if path:
        sys.path.insert(0, path)
    sys.meta_path.append(_StubFinder([n for n in STUBS if importlib.util.find_spec(n) is None]))
    import torch
    torch.set_num_threads(1)
    import vllm
    import vllm.v1.serial_utils as serial
    import vllm.multimodal.inputs as inputs
    import vllm.distributed.device_communicators.shm_object_storage as storage
    if path and not os.path.realpath(vllm.__file__).startswith(os.path.realpath(path) + os.sep):
        raise RuntimeError("imported %s, wanted the one in %s" % (vllm.__file__, path))
    # This torch may be built for CUDA where there is no GPU: a pinned copy would raise. Only the kind of memory that a
    # decoded tensor lies in changes, no byte of it.
    if hasattr(serial, "PIN_MEMORY"):
        serial.PIN_MEMORY = False
    if hasattr(serial, "is_pin_memory_available"):
        serial.is_pin_memory_available = lambda: False
    return make(torch, vllm.__version__, storage, inputs, serial)

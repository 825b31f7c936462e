"""Real vLLM, whichever release is asked for, behind one small set of calls.

Loaded only in worker processes (see peer.py). No vLLM code is replaced; the environment is adapted in `load`, and
nowhere else.
"""

import gc
import importlib.machinery
import importlib.util
import inspect
import os
import pickle
import sys
import types

import objects

# Third-party packages that old releases import at the top of some file and the environment does not hold. Nothing of
# them is used on the way of a cached item.
STUBS = ("gguf", "diskcache", "outlines_core", "xgrammar", "llguidance", "lark", "depyf", "compressed_tensors", "torchvision")


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


class Upstream:
    """The modules and classes of one release, with what differs between releases looked up once."""

    def __init__(self, torch, version, storage, inputs, serial):
        self.torch, self.version, self.inputs = torch, version, inputs
        self.Ring, self.Storage = storage.SingleWriterShmRingBuffer, storage.SingleWriterShmObjectStorage
        self.Encoder, self.Decoder = serial.MsgpackEncoder, serial.MsgpackDecoder
        self.signed = hasattr(self.Storage, "verify_signature")
        self.touches = hasattr(self.Storage, "touch")
        self.keyed = "key" in inspect.signature(inputs.MultiModalFieldElem).parameters
        self.keeps = "keep_on_cpu" in {
            f for c in inputs.MultiModalBatchedField.__mro__ for f in getattr(c, "__annotations__", {})}

    # -- objects -------------------------------------------------------------------------------------------------

    def tensor(self, t):
        torch, raw = self.torch, objects.content(t)
        dtype = getattr(torch, t["dtype"])
        if not raw:
            return torch.empty(t["shape"], dtype=dtype)
        return torch.frombuffer(bytearray(raw), dtype=torch.uint8).view(dtype).view(t["shape"])

    def data(self, d):
        if isinstance(d, dict):
            return self.tensor(d)
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

    def item(self, fields):
        inputs = self.inputs
        if self.keyed:
            return inputs.MultiModalKwargsItem.from_elems([
                inputs.MultiModalFieldElem(modality="image", key=f["name"], data=self.data(f["data"]), field=self.field(f["field"]))
                for f in fields])
        return inputs.MultiModalKwargsItem({
            f["name"]: inputs.MultiModalFieldElem(data=self.data(f["data"]), field=self.field(f["field"])) for f in fields})

    def build(self, value):
        if value["type"] == "pickle":
            return pickle.loads(bytes.fromhex(value["hex"]))
        return self.tensor(value["data"]) if value["type"] == "tensor" else self.item(value["fields"])

    # -- checking ------------------------------------------------------------------------------------------------

    def _raw(self, t):
        return t.detach().flatten().contiguous().view(self.torch.uint8).numpy() if t.numel() else b""

    def _data_differs(self, want, got, at):
        if isinstance(want, dict):
            if not isinstance(got, self.torch.Tensor):
                return "%s: want a tensor, got %s" % (at, type(got).__name__)
            if str(got.dtype) != "torch." + want["dtype"] or list(got.shape) != want["shape"]:
                return "%s: want %s %s, got %s %s" % (at, want["dtype"], want["shape"], got.dtype, list(got.shape))
            import numpy
            raw = numpy.frombuffer(objects.content(want), dtype=numpy.uint8)
            have = numpy.frombuffer(self._raw(got), dtype=numpy.uint8)
            if not numpy.array_equal(raw, have):
                return "%s: bytes differ, first at %d of %d" % (at, int((raw != have).argmax()), len(raw))
            return None
        if isinstance(want, list):
            if not isinstance(got, (list, tuple)) or len(got) != len(want):
                return "%s: want a list of %d, got %.100r" % (at, len(want), got)
            for i, (w, g) in enumerate(zip(want, got)):
                if text := self._data_differs(w, g, "%s[%d]" % (at, i)):
                    return text
            return None
        # type() as well: True == 1 == 1.0
        return None if type(want) is type(got) and want == got else "%s: want %r, got %r" % (at, want, got)

    def describe_field(self, f):
        out = {"kind": type(f).__name__.removeprefix("MultiModal").removesuffix("Field").lower()}
        for name in ("keep_on_cpu", "dim", "batch_size"):
            if hasattr(f, name):
                out[name] = getattr(f, name)
        if hasattr(f, "slices"):
            cut = lambda s: [s.start, s.stop, s.step] if isinstance(s, slice) else [cut(x) for x in s]
            out["slices"] = [cut(s) for s in f.slices]
        return out

    def differs(self, value, got):
        """None if got is the described object, else where it first differs."""
        if value["type"] == "pickle":
            want = pickle.loads(bytes.fromhex(value["hex"]))
            return None if type(want) is type(got) and want == got else "object: want %.100r, got %.100r" % (want, got)
        if value["type"] == "tensor":
            return self._data_differs(value["data"], got, "tensor")
        if type(got) is not self.inputs.MultiModalKwargsItem:
            return "want an item, got %s" % type(got).__name__
        if (names := [f["name"] for f in value["fields"]]) != list(got):
            return "keys: want %s, got %s" % (names, list(got))
        for f in value["fields"]:
            elem = got[f["name"]]
            want, have = objects.canonical_field(f["field"]), objects.canonical_field(self.describe_field(elem.field))
            if want != have:
                return "field of %s: want %s, got %s" % (f["name"], want, have)
            if text := self._data_differs(f["data"], elem.data, f["name"]):
                return text
        return None

    def describe(self, got):
        """An object in the agent's form of a reply, bytes as hex."""
        def data(d):
            if isinstance(d, self.torch.Tensor):
                return {"dtype": str(d.dtype).removeprefix("torch."), "shape": list(d.shape), "hex": bytes(self._raw(d)).hex()}
            return [data(x) for x in d] if isinstance(d, (list, tuple)) else d
        if isinstance(got, self.torch.Tensor):
            return {"type": "tensor", "data": data(got)}
        if isinstance(got, self.inputs.MultiModalKwargsItem):
            return {"type": "item", "fields": [{"name": k, "data": data(e.data), "field": self.describe_field(e.field)} for k, e in got.items()]}
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
        import vllm.distributed.device_communicators.shm_object_storage as storage
        handle = storage.ShmObjectStorageHandle(max_object_size=max_object, n_readers=readers, ring_buffer_handle=(size, name),
                                                serde_class=storage.MsgpackSerde, reader_lock=lock)
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

    def state(self, storage):
        ring = storage.ring_buffer
        counts = {}
        for key, (address, number) in storage.key_index.items():
            with ring.access_buf(address) as (view, _):
                counts[number] = int.from_bytes(view[:4], "little", signed=True)
        return {
            "key_index": {k: list(v) for k, v in storage.key_index.items()}, "writer_flag": dict(storage.writer_flag),
            "reader_flag": counts, "touched": sorted(getattr(storage, "_touched", ())),
            "ring": {"start": ring.data_buffer_start, "end": ring.data_buffer_end, "id_start": ring.monotonic_id_start,
                     "id_end": ring.monotonic_id_end, "metadata": dict(ring.metadata)},
        }

    def close(self, holder):
        """Lets go of a storage or cache by the release's own means: close() where there is one, else its destructor."""
        storage = getattr(holder, "_shm_cache", holder)
        if hasattr(storage.ring_buffer, "close"):
            storage.ring_buffer.close()
        del storage, holder
        gc.collect()

    # -- the real caches of a server and its workers -----------------------------------------------------------------

    def _config(self, name, size, max_mib, readers):
        # Releases read the name at import, at first use, or each time.
        import vllm.multimodal.cache as cache
        os.environ["VLLM_OBJECT_STORAGE_SHM_BUFFER_NAME"] = name
        module = sys.modules[cache.ShmObjectStoreSenderCache.__module__]
        if hasattr(module, "VLLM_OBJECT_STORAGE_SHM_BUFFER_NAME"):
            module.VLLM_OBJECT_STORAGE_SHM_BUFFER_NAME = name
        multimodal = types.SimpleNamespace(mm_processor_cache_gb=size / (1 << 30), mm_shm_cache_max_object_size_mb=max_mib,
                                           mm_processor_cache_type="shm")
        model = types.SimpleNamespace(get_multimodal_config=lambda: multimodal)
        return cache, types.SimpleNamespace(parallel_config=types.SimpleNamespace(world_size=readers), model_config=model)

    def sender_cache(self, name, size, max_mib, readers):
        cache, config = self._config(name, size, max_mib, readers)
        return cache.ShmObjectStoreSenderCache(config)

    def receiver_cache(self, name, size, max_mib, readers, lock):
        cache, config = self._config(name, size, max_mib, readers)
        return cache.ShmObjectStoreReceiverCache(config, lock)

    def feature(self, key, item):
        spec = self.inputs.MultiModalFeatureSpec
        more = {"mm_hash": key} if "mm_hash" in spec.__dataclass_fields__ else {}
        return spec(data=item, modality="image", identifier=key, mm_position=self.inputs.PlaceholderRange(offset=0, length=1), **more)


def load(path):
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
    # This torch is built for CUDA and there is no GPU: a pinned copy would raise. Only the kind of memory that a
    # decoded tensor lies in changes, no byte of it.
    if hasattr(serial, "PIN_MEMORY"):
        serial.PIN_MEMORY = False
    if hasattr(serial, "is_pin_memory_available"):
        serial.is_pin_memory_available = lambda: False
    return Upstream(torch, vllm.__version__, storage, inputs, serial)

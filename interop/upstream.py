"""Real vLLM, whichever release is asked for, with what only this suite does with it.

Loaded only in worker processes (see peer.py). The classes come from fuzz/system/vllm, which `ringcache fuzz` runs as well.
"""

import os
import pickle
import sys
import types

import objects
import vllm_classes


class Upstream(vllm_classes.Classes):
    # -- checking ------------------------------------------------------------------------------------------------

    def _data_differs(self, want, got, at):
        if isinstance(want, dict):
            if not isinstance(got, self.torch.Tensor):
                return "%s: want a tensor, got %s" % (at, type(got).__name__)
            if str(got.dtype) != "torch." + want["dtype"] or list(got.shape) != want["shape"]:
                return "%s: want %s %s, got %s %s" % (at, want["dtype"], want["shape"], got.dtype, list(got.shape))
            import numpy
            raw = numpy.frombuffer(objects.content(want), dtype=numpy.uint8)
            have = numpy.frombuffer(self.raw(got), dtype=numpy.uint8)
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

    def close(self, holder):
        """Lets go of a storage or cache by the release's own means: close() where there is one, else its destructor."""
        storage = getattr(holder, "_shm_cache", holder)
        del holder
        storages = [storage]
        del storage
        self.close_ring(storages, "ring_buffer")

    # -- the real caches of a server and its workers -----------------------------------------------------------------

    def _config(self, name, size, max_mib, readers):
        # Releases read the name at import, at first use, or each time.
        import vllm.multimodal.cache as cache
        os.environ["VLLM_OBJECT_STORAGE_SHM_BUFFER_NAME"] = name
        module = sys.modules[cache.ShmObjectStoreSenderCache.__module__]
        if hasattr(module, "VLLM_OBJECT_STORAGE_SHM_BUFFER_NAME"):
            module.VLLM_OBJECT_STORAGE_SHM_BUFFER_NAME = name
        multimodal = types.SimpleNamespace(mm_processor_cache_gb=size / (1 << 30),
                                           mm_shm_cache_max_object_size_mb=max_mib,
                                           mm_processor_cache_type="shm")
        model = types.SimpleNamespace(get_multimodal_config=lambda: multimodal)
        return cache, types.SimpleNamespace(parallel_config=types.SimpleNamespace(world_size=readers),
                                            model_config=model)

    def sender_cache(self, name, size, max_mib, readers):
        cache, config = self._config(name, size, max_mib, readers)
        return cache.ShmObjectStoreSenderCache(config)

    def receiver_cache(self, name, size, max_mib, readers, lock):
        cache, config = self._config(name, size, max_mib, readers)
        return cache.ShmObjectStoreReceiverCache(config, lock)


def load(path):
    """Imports the vLLM under path (None: the environment's own)."""
    return vllm_classes.load(path, Upstream)

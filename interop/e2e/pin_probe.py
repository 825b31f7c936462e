"""What TestPinned sees of an engine's workers: a general plugin of vLLM, beside that of ringcache.

With PIN_PROBE=FOLDER each worker writes FOLDER/PID.json at its end: how many objects the receiver gave in place and how
many as private copies, and where the tensors lay that fields joined to batches. With PIN_PROBE_DEVICE=fake the plugin of
ringcache is given a device whose memory is that of the fake driver, and every copy is compared with what it is a copy of.
"""

import ctypes
import json
import multiprocessing.util
import os
import pathlib
import weakref

LARGE = 256  # vLLM sends smaller tensors within the message, from which they are always copied
POISON = 0xEE  # what the fake driver's new memory holds

counts = dict.fromkeys(("in_place", "copied", "from_device", "from_ring", "from_private", "compared", "wrong", "late"),
                       0)


class FakeDevice:
    """Stands for ringcache.vllm.pinned.Device: tensors on the CPU whose memory the fake driver made."""

    def __init__(self):
        self.library = ctypes.CDLL(os.environ["RINGCACHE_CUDA_LIBRARY"])
        self._context = ctypes.c_void_p()
        self._call("cuInit", 0)
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), self.index())
        self._sources = {}  # what copies that were not compared are of, by address

    def _call(self, name, *arguments):
        code = getattr(self.library, name)(*arguments)
        if code:
            raise RuntimeError("%s returned %d" % (name, code))

    def _within(self, name, *arguments):
        self._call("cuCtxPushCurrent_v2", self._context)
        try:
            self._call(name, *arguments)
        finally:
            self._call("cuCtxPopCurrent_v2", None)

    def index(self):
        return 0

    def expected(self):
        return True

    def takes(self, device, index):
        return True

    def stream(self, device):
        return 0

    def empty(self, like, device):
        import torch
        address, size = ctypes.c_void_p(), like.nbytes
        self._within("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        root = (ctypes.c_ubyte * size).from_address(address.value)
        weakref.finalize(root, self._within, "cuMemFree_v2", ctypes.c_void_p(address.value)).atexit = False
        # A copy, so that it counts as wrong if the source changed before the device read it.
        self._sources[address.value] = like.clone()
        made = torch.frombuffer(root, dtype=torch.uint8).untyped_storage()
        return torch.empty(0, dtype=like.dtype).set_(made, 0, like.shape)

    def holds(self, address):
        """Whether the memory at the address is of this device, and was not looked at before."""
        return address in self._sources

    def compare(self, tensor):
        """Waits for the copy to the tensor as a kernel would, and compares."""
        source = self._sources.pop(tensor.data_ptr())
        counts["late"] += bool((raw(tensor) == POISON).all())  # the copy comes later than the call
        self._within("cuStreamSynchronize", None)
        counts["compared"] += 1
        counts["wrong"] += not raw(tensor).equal(raw(source))

    def close(self):
        self._call("cuDevicePrimaryCtxRelease_v2", self.index())


device = None


def raw(tensor):
    import torch
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def leaves(data):
    if isinstance(data, (list, tuple)):
        for inner in data:
            yield from leaves(inner)
    elif getattr(data, "nbytes", 0) >= LARGE:
        yield data


def ring():
    """Begin and end of the mappings of the segment in this process."""
    name = "/dev/shm/" + os.environ["VLLM_OBJECT_STORAGE_SHM_BUFFER_NAME"]
    with open("/proc/self/maps") as file:
        lines = [line.split() for line in file]
    return [[int(end, 16) for end in parts[0].split("-")] for parts in lines if len(parts) > 5 and parts[5] == name]


def in_ring(tensor, mappings):
    return any(begin <= tensor.data_ptr() < end for begin, end in mappings)


def register():
    if "PIN_PROBE" not in os.environ or getattr(register, "done", False):
        return
    register.done = True
    from vllm.multimodal import inputs
    from vllm.multimodal.cache import shm
    receiver = shm.ShmObjectStoreReceiverCache
    construct, get = receiver.__init__, receiver.get_and_update_item

    def constructed(self, *arguments):
        construct(self, *arguments)
        # After ringcache's own, which has a higher priority.
        multiprocessing.util.Finalize(None, report, exitpriority=1)

    def got(self, item, key):
        found = get(self, item, key)
        if "address" in item:
            mappings = ring()
            places = {in_ring(t, mappings) for element in found.values() for t in leaves(element.data)}
            assert len(places) == 1, places
            counts["in_place" if places.pop() else "copied"] += 1
        return found

    receiver.__init__, receiver.get_and_update_item = constructed, got
    for field in inputs.BaseMultiModalField.__subclasses__():
        field._reduce_data = joined(field._reduce_data)
    if os.environ.get("PIN_PROBE_DEVICE") == "fake":
        from ringcache.vllm import pinned
        pinned.device_type = fake_device


def fake_device():
    global device
    device = FakeDevice()
    return device


def joined(join):
    def reduced(self, batch, **keywords):
        for tensor in leaves(batch):
            if device and device.holds(tensor.data_ptr()):
                counts["from_device"] += 1
                device.compare(tensor)
            else:
                counts["from_ring" if in_ring(tensor, ring()) else "from_private"] += 1
        return join(self, batch, **keywords)

    return reduced


def report():
    found = dict(counts)
    if device:
        device.close()
        for name in ("live", "contexts", "violations", "events"):
            found[name] = getattr(device.library, "fake_" + name)()
    if os.environ.get("RINGCACHE_VLLM_PIN") == "1":
        import dataclasses
        import ringcache.vllm
        found["statistics"] = dataclasses.asdict(ringcache.vllm.statistics())
    (pathlib.Path(os.environ["PIN_PROBE"]) / ("%d.json" % os.getpid())).write_text(json.dumps(found))

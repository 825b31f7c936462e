"""Copies through ringcache.pin to the memory of the fake driver: registered.py PEER LIBRARY. There is no GPU for the arm to run on
in tests, so this takes the place of PyTorch's device memory."""

import ctypes
import runpy
import sys
import tempfile
import types

import torch
from ringcache import cuda

SIZE, STRIDE, SLOTS = 65536, 65536 + 4096, 8


def main():
    peer = types.SimpleNamespace(**runpy.run_path(sys.argv[1], run_name="peer"))
    library, address = ctypes.CDLL(sys.argv[2]), ctypes.c_uint64()
    library.cuCtxPushCurrent_v2.argtypes = library.cuMemFree_v2.argtypes = (ctypes.c_uint64,)
    driver = cuda.Driver(0, library=sys.argv[2])
    context = ctypes.c_uint64()
    assert library.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert library.cuCtxPushCurrent_v2(context) == 0
    assert library.cuMemAlloc_v2(ctypes.byref(address), SIZE) == 0
    destination = torch.frombuffer((ctypes.c_ubyte * SIZE).from_address(address.value), dtype=torch.uint8)
    tested = peer.Peer(torch, "cpu")
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as file:
        file.write(torch.randint(256, (SLOTS * STRIDE,), dtype=torch.uint8).numpy().tobytes())
        file.flush()
        source = tested.map(file.name, SLOTS * STRIDE)
    driver.register(source.data_ptr(), len(source))
    tested.driver = driver
    tested.arms["ring registered, torch"] = peer.Registered(torch, tested.device, source, destination, driver)
    answer = tested.measure("ring registered, torch", SIZE, 12, STRIDE, 4, 3)
    assert len(answer["total_ns"]) == len(answer["submit_ns"]) == 3, answer
    assert torch.equal(destination, tested.arms["ring registered, torch"].copied)
    assert library.cuMemFree_v2(address) == 0
    tested.close()
    assert library.cuCtxPopCurrent_v2(None) == 0
    assert library.cuDevicePrimaryCtxRelease_v2(0) == 0
    for left in "live", "contexts", "memories", "events", "violations":
        assert getattr(library, f"fake_{left}")() == 0, left
    print("ok")


main()

"""The controls of the fake driver, pin/cuda/testdata/driver/driver.c, in this process."""

from __future__ import annotations

import contextlib
import ctypes
import re
from collections.abc import Iterator

from ringcache.cuda import Driver


class Memory:
    """Memory of the fake device."""

    def __init__(self, address: int, size: int) -> None:
        self.address = address
        self.size = size

    def read(self) -> bytes:
        return ctypes.string_at(self.address, self.size)


class Fake:
    def __init__(self, library: str) -> None:
        self.library = library
        self.lib = ctypes.CDLL(library)
        self.lib.cuMemAlloc_v2.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
        self.lib.cuMemFree_v2.argtypes = (ctypes.c_uint64,)
        self.lib.cuMemHostUnregister.argtypes = (ctypes.c_void_p,)
        self.lib.fake_fail.argtypes = (ctypes.c_char_p,)
        self.lib.fake_set_delay.argtypes = (ctypes.c_long,)
        self.lib.fake_log.argtypes = (ctypes.c_char_p, ctypes.c_size_t)
        self.lib.fake_log.restype = ctypes.c_size_t

    def reset(self) -> None:
        self.lib.fake_reset()

    def check(self) -> None:
        """Fail if anything is left."""
        left = {
            what: getattr(self.lib, f"fake_{what}")()
            for what in ("live", "contexts", "memories", "events", "violations")
        }
        assert not any(left.values()), f"{left}\n" + "\n".join(self.log())

    def fail(self, text: str) -> None:
        """``OP:K:CODE``: the K-th call of OP fails with CODE, every one if K is 0."""
        self.lib.fake_fail(text.encode())

    def hold(self, on: bool = True) -> None:
        """Keep copies from registered memory in flight."""
        self.lib.fake_hold(int(on))

    def delay(self, microseconds: int) -> None:
        self.lib.fake_set_delay(microseconds)

    def attribute(self, number: int, value: int) -> None:
        self.lib.fake_set_attribute(number, value)

    def devices(self, number: int) -> None:
        self.lib.fake_set_devices(number)

    def log(self) -> list[str]:
        """The calls, without process and thread."""
        size = 0
        while True:
            text = ctypes.create_string_buffer(size + 1)
            if (size := self.lib.fake_log(text, len(text))) < len(text):
                break
        return [line.split(" ", 2)[2] for line in text.value.decode().splitlines()]

    def calls(self, op: str) -> list[str]:
        """Those of one function, addresses replaced."""
        return [re.sub("0x[0-9a-f]+", "P", line) for line in self.log() if line.split()[0] == op]

    @property
    def live(self) -> int:
        """Registrations."""
        count: int = self.lib.fake_live()
        return count

    def current(self) -> int | None:
        """The context that is current in this thread."""
        context = ctypes.c_void_p()
        assert self.lib.cuCtxGetCurrent(ctypes.byref(context)) == 0
        return context.value

    @contextlib.contextmanager
    def memory(self, driver: Driver, size: int) -> Iterator[Memory]:
        address = ctypes.c_uint64()
        with driver._entered():
            assert self.lib.cuMemAlloc_v2(ctypes.byref(address), size) == 0
        try:
            yield Memory(address.value, size)
        finally:
            self.hold(False)  # to free it waits for its copies
            with driver._entered():
                assert self.lib.cuMemFree_v2(address) == 0

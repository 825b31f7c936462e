"""The CUDA driver, by ctypes: what :mod:`ringcache.pin` needs of it.

It calls the driver API, never the runtime's ``cudaHostRegister`` (``torch.cuda.cudart()``):
``libcuda.so.1`` exists wherever torch's CUDA works, and a failure of the runtime's call leaves
a pending error that an unrelated later call reports.

A copy from the ring must not be captured into a CUDA graph, which would keep its address.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
import time
from collections.abc import Iterator
from typing import Any, Final

from ._arguments import integer
from .errors import ClosedError, DriverError, PinUnavailableError, SegmentBusyError
from .segment import Closing

#: The environment variable that names another driver library.
LIBRARY_VARIABLE: Final = "RINGCACHE_CUDA_LIBRARY"

# Never libcuda.so: that is the toolkit's stub, for linking. Where a container or a
# distribution puts the real one without telling the loader comes last.
_LIBRARY: Final = "libcuda.so.1"
_FOLDERS: Final = (
    "/usr/local/nvidia/lib64",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib/wsl/lib",
    "/run/opengl-driver/lib",
)

_pointer, _int, _unsigned, _size = ctypes.c_void_p, ctypes.c_int, ctypes.c_uint, ctypes.c_size_t
_device_pointer = ctypes.c_uint64
_FUNCTIONS: Final[dict[str, tuple[Any, ...]]] = {
    "cuInit": (_unsigned,),
    "cuGetErrorName": (_int, ctypes.POINTER(ctypes.c_char_p)),
    "cuDeviceGetCount": (ctypes.POINTER(_int),),
    "cuDeviceGet": (ctypes.POINTER(_int), _int),
    "cuDeviceGetName": (ctypes.c_char_p, _int, _int),
    "cuDeviceGetAttribute": (ctypes.POINTER(_int), _int, _int),
    "cuDevicePrimaryCtxRetain": (ctypes.POINTER(_pointer), _int),
    "cuDevicePrimaryCtxRelease_v2": (_int,),
    "cuCtxPushCurrent_v2": (_pointer,),
    "cuCtxPopCurrent_v2": (ctypes.POINTER(_pointer),),
    "cuMemHostRegister_v2": (_pointer, _size, _unsigned),
    "cuMemHostUnregister": (_pointer,),
    "cuMemcpyHtoDAsync_v2": (_device_pointer, _pointer, _size, _pointer),
    "cuStreamSynchronize": (_pointer,),
    "cuEventCreate": (ctypes.POINTER(_pointer), _unsigned),
    "cuEventRecord": (_pointer, _pointer),
    "cuEventQuery": (_pointer,),
    "cuEventSynchronize": (_pointer,),
    "cuEventDestroy_v2": (_pointer,),
}

_PORTABLE: Final = 1  # pinned for all contexts of the process
_READ_ONLY: Final = 8
_EVENT_FLAGS: Final = 1 | 2  # a wait sleeps; no time is taken

_HOST_REGISTER_SUPPORTED: Final = 99
_READ_ONLY_HOST_REGISTER_SUPPORTED: Final = 113

_INVALID_VALUE, _OUT_OF_MEMORY, _DEINITIALIZED, _NOT_READY, _NOT_REGISTERED = 1, 2, 4, 600, 713

_CAUSES: Final = {
    34: "the library is the toolkit's stub, not the driver; put the driver's libcuda.so.1 first",
    100: "there is no GPU, or none that this process may use (CUDA_VISIBLE_DEVICES, or a container "
    "that was given none)",
    201: "the context of the device is gone: something reset the device or destroyed its context",
    700: "an earlier kernel or copy of this process failed; its context can't be used any more",
    712: "some of the memory is registered already, by another part of this process",
    713: "the memory is not registered",
    800: "the container or the system does not permit it",
    801: "this system does not support it; a virtual machine with confidential computing refuses "
    "every registration",
    803: "the driver library does not fit the kernel's driver; after an update restart the host, in a "
    "container take the host's library",
    900: "a CUDA graph is being captured, which a copy from a ring can't be part of",
    906: "a CUDA graph is being captured by another thread; give the copy a stream of its own",
    907: "the copy was captured into a CUDA graph, where it can't be: the ring is reused",
    999: "the driver does not know why; the kernel's log may",
}

# The driver returns 1 for whatever the kernel refused, so no text may blame the pointer.
_REGISTER_CAUSES: Final = {
    **_CAUSES,
    _INVALID_VALUE: "the pages can't be pinned: the segment may lie on no tmpfs, /dev/shm may be full, "
    "another process may pin the same pages, the range may be too large for one call, or it is "
    "a confidential-computing VM",
    _OUT_OF_MEMORY: "there is not enough memory for the driver's tables (24 bytes for every 4096), or "
    "the range is too large for one call; under WSL2 Windows bounds what can be pinned",
}

_COPY_CAUSES: Final = {
    **_CAUSES,
    _INVALID_VALUE: "the destination is no memory of the device, or the source is registered only in "
    "part",
}

# Codes of an event's query while a thread captures a CUDA graph. The copy goes on.
_CAPTURING: Final = (900, 901, 905, 906, 908)

_RETRY_SECONDS: Final = 0.05
_CAPTURE_SECONDS: Final = 0.001


def _load(library: str | None) -> ctypes.CDLL:
    """The driver's library, with the functions that are called here."""
    named = library or os.environ.get(LIBRARY_VARIABLE)
    tries = [named] if named else [_LIBRARY, *(f"{folder}/{_LIBRARY}" for folder in _FOLDERS)]
    causes = []
    for path in tries:
        try:
            loaded = ctypes.CDLL(path)
            break
        except OSError as e:
            causes.append(str(e))
    else:
        raise PinUnavailableError(
            f"no CUDA driver library can be loaded ({causes[0]}); install NVIDIA's driver, start the "
            f"container with access to the GPU, or name the library in {LIBRARY_VARIABLE}"
        )
    for name, arguments in _FUNCTIONS.items():
        try:
            function = getattr(loaded, name)
        except AttributeError:
            raise PinUnavailableError(
                f"{path} has no function {name}: it is no CUDA driver, or one older than CUDA 7.0; "
                f"update the driver, or name its library in {LIBRARY_VARIABLE}"
            ) from None
        function.argtypes, function.restype = arguments, ctypes.c_int
    return loaded


class Event:
    """The end of a copy, from :meth:`Driver.copy`. Ask until it is done: then it is destroyed."""

    def __init__(self, driver: Driver, handle: ctypes.c_void_p) -> None:
        self._driver = driver
        self._handle: ctypes.c_void_p | None = handle
        self._asking = threading.Lock()

    def done(self) -> bool:
        """Whether the copy is done; it never waits. Raises :class:`DriverError`, and then there
        is nothing more to wait for: the context of the device has failed."""
        return self._ask(wait=False)

    def wait(self) -> None:
        """Wait until :meth:`done`."""
        self._ask(wait=True)

    def _ask(self, wait: bool) -> bool:
        if self._handle is None:
            return True
        if not self._asking.acquire(blocking=wait):
            return False  # another thread waits, or asks
        try:
            with self._driver._entered() as api:
                handle = self._handle
                if handle is None:  # another thread was faster
                    return True
                code = api.cuEventSynchronize(handle) if wait else api.cuEventQuery(handle)
                while wait and code in _CAPTURING:
                    time.sleep(_CAPTURE_SECONDS)
                    code = api.cuEventSynchronize(handle)
                if code == _NOT_READY or code in _CAPTURING:
                    return False
                self._handle = None
                self._driver._destroy(handle)
        finally:
            self._asking.release()
        self._driver._check("cuEventSynchronize" if wait else "cuEventQuery", code)
        return True


class Driver(Closing):
    """The CUDA driver with one device, whose primary context it keeps.

    ``device`` is the number that CUDA, and so torch, gives it in this process. The
    library is ``libcuda.so.1``, or what ``library`` or the environment variable
    ``RINGCACHE_CUDA_LIBRARY`` names.

    Raises :class:`PinUnavailableError` where there is no driver or no such device.

    Threads may share a driver. It belongs to the process that made it.
    """

    def __init__(self, device: int, *, library: str | None = None) -> None:
        self.device: Final = integer(device, "device")
        self._pid = os.getpid()
        self._api = _load(library)
        self._using = threading.Lock()  # for what follows
        self._closed = False
        self._calls = 0  # that are running
        self._events = 0
        self._registered: set[int] = set()
        try:
            self._context = self._retain()
        except DriverError as e:
            raise PinUnavailableError(f"CUDA device {device} cannot be used: {e}") from e

    def _retain(self) -> ctypes.c_void_p:
        api, value = self._api, ctypes.c_int()
        self._check("cuInit", api.cuInit(0))
        self._check("cuDeviceGetCount", api.cuDeviceGetCount(ctypes.byref(value)))
        if not 0 <= self.device < value.value:
            raise PinUnavailableError(
                f"there is no CUDA device {self.device}, this process has {value.value} (see "
                "CUDA_VISIBLE_DEVICES); devices count from 0"
            )
        device = ctypes.c_int()
        self._check("cuDeviceGet", api.cuDeviceGet(ctypes.byref(device), self.device))
        self._handle = device.value
        name = ctypes.create_string_buffer(256)
        self._check("cuDeviceGetName", api.cuDeviceGetName(name, len(name), device))
        self.name: str = name.value.decode(errors="replace")
        if not self._attribute(_HOST_REGISTER_SUPPORTED):
            raise PinUnavailableError(
                f"CUDA device {self.device} ({self.name}) can't register host memory; "
                "copy through memory that torch pins"
            )
        context = ctypes.c_void_p()
        code = api.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
        self._check("cuDevicePrimaryCtxRetain", code)
        return context

    def register(self, address: int, size: int, *, read_only: bool = False) -> None:
        """Register memory, which must stay mapped until :meth:`unregister`.

        ``read_only`` is for memory that is mapped to read only, which must be registered so.
        """
        flags = _PORTABLE | (_READ_ONLY if read_only else 0)
        with self._entered() as api:
            if read_only and not self._attribute(_READ_ONLY_HOST_REGISTER_SUPPORTED):
                raise PinUnavailableError(
                    f"CUDA device {self.device} ({self.name}) can't register memory that is mapped "
                    "to read only; open the reader with a lock, which maps the segment for writing"
                )
            code = api.cuMemHostRegister_v2(address, size, flags)
            if code in (_INVALID_VALUE, _OUT_OF_MEMORY):
                # Pages that move, or that another process pins, are refused for a moment.
                time.sleep(_RETRY_SECONDS)
                code = api.cuMemHostRegister_v2(address, size, flags)
            if code == 0:
                self._registered.add(address)
        self._check("cuMemHostRegister", code, _REGISTER_CAUSES)

    def unregister(self, address: int) -> None:
        """End a registration, by the address that was registered.

        After an error the driver may go on using the pages: keep them mapped. That the
        driver has shut down, or does not know the memory, is none.
        """
        with self._entered() as api:
            code = api.cuMemHostUnregister(address)
            if code in (_DEINITIALIZED, _NOT_REGISTERED):
                code = 0
            if code == 0:
                self._registered.discard(address)
        self._check("cuMemHostUnregister", code)

    def copy(self, destination: int, source: int, size: int, *, stream: int = 0) -> Event:
        """Copy host memory to the device, by a stream (0 is the default one). The source must
        not change before the event is done."""
        event = ctypes.c_void_p()
        with self._entered() as api:
            # The event comes first: a copy that is submitted must have one.
            self._check("cuEventCreate", api.cuEventCreate(ctypes.byref(event), _EVENT_FLAGS))
            with self._using:
                self._events += 1
            submitted = True
            try:
                code = api.cuMemcpyHtoDAsync_v2(destination, source, size, stream)
                submitted = code == 0
                self._check("cuMemcpyHtoDAsync", code, _COPY_CAUSES)
                self._check("cuEventRecord", api.cuEventRecord(event, stream))
            except BaseException:
                if submitted:
                    api.cuStreamSynchronize(stream)  # nobody will ask whether it is done
                self._destroy(event)
                raise
        return Event(self, event)

    def close(self) -> None:
        """Give the context back. May be called again.

        Raises :class:`SegmentBusyError`, and can be called again, while memory is
        registered or the event of a copy is not done.
        """
        if self._pid != os.getpid():
            return  # it is the parent's
        with self._using:
            if self._closed:
                return
            if self._registered or self._events or self._calls:
                raise SegmentBusyError(
                    f"CUDA device {self.device} is in use: {len(self._registered)} registrations, "
                    f"{self._events} events and {self._calls} calls; close what stages on it first"
                )
            self._closed = True
        code = self._api.cuDevicePrimaryCtxRelease_v2(self._handle)
        if code != _DEINITIALIZED:
            self._check("cuDevicePrimaryCtxRelease", code)

    @contextlib.contextmanager
    def _entered(self) -> Iterator[ctypes.CDLL]:
        """Calls in the context of the device, which need not be this thread's."""
        if self._pid != os.getpid():
            raise ClosedError(
                "the driver was opened before a fork: CUDA can't be used in the child"
            )
        with self._using:
            if self._closed:
                raise ClosedError(f"driver of CUDA device {self.device} is closed")
            self._calls += 1
        try:
            self._check("cuCtxPushCurrent", self._api.cuCtxPushCurrent_v2(self._context))
            try:
                yield self._api
            finally:
                self._api.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p()))
        finally:
            with self._using:
                self._calls -= 1

    def _destroy(self, event: ctypes.c_void_p) -> None:
        self._api.cuEventDestroy_v2(event)
        with self._using:
            self._events -= 1

    def _attribute(self, number: int) -> int:
        value = ctypes.c_int()
        code = self._api.cuDeviceGetAttribute(ctypes.byref(value), number, self._handle)
        # A driver that has not heard of an attribute has not what it is about.
        if code == _INVALID_VALUE:
            return 0
        self._check("cuDeviceGetAttribute", code)
        return value.value

    def _check(self, op: str, code: int, causes: dict[int, str] = _CAUSES) -> None:
        if code:
            raise self._error(op, code, causes)

    def _error(self, op: str, code: int, causes: dict[int, str] = _CAUSES) -> DriverError:
        name = ctypes.c_char_p()
        self._api.cuGetErrorName(code, ctypes.byref(name))
        text = name.value.decode(errors="replace") if name.value else "unknown error"
        return DriverError(op, code, text, causes.get(code, ""))

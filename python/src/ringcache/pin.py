"""Copying objects from a segment straight to a CUDA device.

A worker registers its own mapping of the segment with the CUDA driver, which pins the
pages. Then the device reads an object where it lies in the ring, and the worker keeps the
object until the copy is done::

    driver = Driver(0)
    staging = Staging(reader, driver)
    with staging.get(handle.address, handle.id, key, handle.signature) as lease:
        pixels = lease.view.item["pixel_values"].data
        source = lease.tensor(pixels)  # views the ring
        destination = torch.empty_like(source, device="cuda:0")
        lease.copy(source, destination)  # returns at once
    staging.poll()  # now and then: releases what is copied
    ...
    staging.close(); reader.close(); driver.close()

Registration is per process and per mapping: what another process registered does not help
this one. It creates a CUDA context where the process has none, and pins all of the segment's
memory. Register after the process was started and its device chosen; a forked child can use
neither a :class:`Driver` nor what was made with it (:class:`ClosedError`).

It calls the driver API, never the runtime's ``cudaHostRegister`` (``torch.cuda.cudart()``):
``libcuda.so.1`` exists wherever torch's CUDA works, and a failure of the runtime's call leaves
a pending error that an unrelated later call reports.

A copy from the ring must not be captured into a CUDA graph, which would keep its address.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import logging
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from ._arguments import integer, kind
from .errors import (
    ArgumentError,
    ClosedError,
    DriverError,
    LockTimeoutError,
    PinUnavailableError,
    RingcacheError,
    SegmentBusyError,
    SegmentError,
)
from .reader import Reader, View, caller
from .segment import Closing, Segment, open_file
from .signature import Signature
from .tensor import Tensor

if TYPE_CHECKING:
    import torch

_log: Final = logging.getLogger(__name__)

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
    800: "the system does not permit it; in confidential computing memory can't be registered",
    801: "this system does not support it; in confidential computing and under WSL2 registering "
    "memory is limited",
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
    "the range is too large for one call",
}

_COPY_CAUSES: Final = {
    **_CAUSES,
    _INVALID_VALUE: "the destination is no memory of the device, or the source is registered only in "
    "part",
}

_RETRY_SECONDS: Final = 0.05

_MADV_POPULATE_READ, _MADV_POPULATE_WRITE = 22, 23  # Linux 5.14; `mmap` has no names for them


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
        """Whether the copy is done. Raises :class:`DriverError`, and then there is nothing more
        to wait for: the context of the device has failed."""
        return self._ask(wait=False)

    def wait(self) -> None:
        """Wait until :meth:`done`."""
        self._ask(wait=True)

    def _ask(self, wait: bool) -> bool:
        if self._handle is None:
            return True
        with self._driver._entered() as api, self._asking:
            handle = self._handle
            if handle is None:  # another thread was faster
                return True
            code = api.cuEventSynchronize(handle) if wait else api.cuEventQuery(handle)
            if code == _NOT_READY:
                return False
            self._handle = None
            self._driver._destroy(handle)
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
        self.name = name.value.decode(errors="replace")
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


class _LeasedView(View):
    """A view whose lease releases it. What is true of both is kept here, since copies outlive
    a lease that is dropped."""

    staging: Staging | None = None  # None once the view is its own

    def lease(self, staging: Staging) -> None:
        self.staging = staging
        self.ended = False
        self.dropped = False  # without an end
        self.released = False
        self.error: RingcacheError | None = None
        self.copying = threading.Lock()
        # The event of each copy that was not seen to be done, and what it is to keep.
        self.copies: list[tuple[Event, object]] = []

    def end(self, dropped: bool = False) -> None:
        # A finaliser may call it: no lock, and nothing but an append.
        staging = self.staging
        if staging is None or staging._pid != os.getpid():
            return
        self.dropped = dropped and (self.dropped or not self.ended)
        if self.ended:
            return
        self.ended = True
        staging._due.append(self)

    def release(self) -> None:
        """End the lease, which releases the view once its copies are done."""
        if self.staging is None:
            super().release()
        else:
            self.end()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.staging is None:
            super().__exit__(kind, error, trace)
            return
        try:
            if error is None and (self.dropped or not self.ended):
                self.check()
        finally:
            self.end()

    def finish(self) -> None:
        """Check and release the view, now that nothing copies from it."""
        self.staging = None
        View.__exit__(self, None, None, None)


class _Writable:
    """Bytes that pass for writable, as torch warns of others. It keeps what they belong to."""

    def __init__(self, data: memoryview) -> None:
        self.kept = np.frombuffer(data, np.uint8)
        self.__array_interface__ = {
            "version": 3,
            "typestr": "|u1",
            "shape": self.kept.shape,
            "data": (_address(self.kept), False),
        }


def _address(array: npt.NDArray[Any]) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


class Lease:
    """An object read in place and copied to the device, from :meth:`Staging.get`.

    :meth:`end` it, or use ``with``, once its copies are submitted: it is released when they
    are done. Nothing taken from it may be used after the end. If the object was overwritten
    before its release, the copies may be wrong: then :attr:`error` is a
    :class:`StaleError`, which is logged too. That can't be where the reader is
    :attr:`~ringcache.Reader.protected`, nor as long as the writer has the request.

    A lease that is dropped without end is a mistake of the program: once its copies are done
    the view is dropped, with a ``ResourceWarning``, and released as such views are.
    """

    def __init__(self, staging: Staging, view: _LeasedView) -> None:
        self._staging = staging
        self._view = view

    def __del__(self) -> None:
        if not sys.is_finalizing():
            self._view.end(dropped=True)

    @property
    def view(self) -> View:
        """The object. To release it is to end the lease."""
        if self._view.ended:
            raise ClosedError("lease is ended")
        return self._view

    @property
    def released(self) -> bool:
        """Whether the copies are done and the view is released."""
        return self._view.released

    @property
    def error(self) -> RingcacheError | None:
        """What was wrong with the object or with a copy when it was released."""
        return self._view.error

    def tensor(self, tensor: Tensor) -> torch.Tensor:
        """The tensor as torch's, over the same bytes. Never write to it: they are the
        segment's, and may be mapped to read only."""
        import torch

        _ = self.view
        if not isinstance(tensor, Tensor):
            raise ArgumentError(f"tensor must be a ringcache.Tensor, got {kind(tensor)}")
        dtype = getattr(torch, tensor.dtype, None)
        if not isinstance(dtype, torch.dtype):
            raise ArgumentError(f"torch {torch.__version__} has no dtype {tensor.dtype!r}")
        if tensor.nbytes == 0:
            return torch.empty(tensor.shape, dtype=dtype)
        raw = torch.from_numpy(np.asarray(_Writable(tensor.data)))
        return raw.view(dtype).view(tensor.shape)

    def copy(
        self, source: torch.Tensor, destination: torch.Tensor, *, stream: int | None = None
    ) -> None:
        """Copy the bytes of a tensor of this object to a tensor on the device.

        Both are contiguous and of the same number of bytes. It returns once the copy is
        submitted to ``stream`` (a ``cudaStream_t`` as an int; torch's current one
        if None). The destination is kept until it is done, the source need not be. Where the
        staging is not :attr:`~Staging.pinned` torch copies, and it returns when that is done.
        """
        import torch

        size = source.nbytes
        if source.device.type != "cpu" or not source.is_contiguous():
            raise ArgumentError("the source of a copy must be a contiguous tensor of the CPU")
        if not destination.is_contiguous() or destination.nbytes != size:
            raise ArgumentError(
                f"the destination of a copy must be contiguous and of {size} bytes, it has "
                f"{destination.nbytes}"
            )
        cuda, driver = destination.is_cuda, self._staging._driver
        if cuda and driver is not None and destination.device.index != driver.device:
            raise ArgumentError(
                f"the destination is on {destination.device}, the driver's device is {driver.device}"
            )
        if not size:
            _ = self.view
        elif self._staging.pinned:
            if stream is None:
                stream = torch.cuda.current_stream(destination.device).cuda_stream if cuda else 0
            self._submit(
                source, source.data_ptr(), destination, destination.data_ptr(), size, stream
            )
        else:
            with self._copying(source.data_ptr(), size):
                self._staging._fell_back()
                if source.dtype != destination.dtype:  # bytes, not values
                    source = source.reshape(-1).view(torch.uint8)
                    destination = destination.reshape(-1).view(torch.uint8)
                with (
                    torch.cuda.stream(torch.cuda.ExternalStream(stream, destination.device))
                    if cuda and stream is not None
                    else contextlib.nullcontext()
                ):
                    destination.copy_(source.reshape(destination.shape))

    def copy_raw(
        self, source: memoryview | npt.NDArray[Any], destination: int, stream: int = 0
    ) -> None:
        """Like :meth:`copy`, without torch: of contiguous bytes, to an address on the device.

        Where the staging is not :attr:`~Staging.pinned` the driver copies the bytes to memory of
        its own first. Without a driver it raises :class:`PinUnavailableError`.
        """
        destination = integer(destination, "destination")
        data = source.data if isinstance(source, np.ndarray) else memoryview(source)
        if not data.c_contiguous:
            raise ArgumentError("the source of a copy must be contiguous")
        if self._staging._driver is None:
            raise PinUnavailableError(f"there is no driver to copy with: {self._staging.reason}")
        if not data.nbytes:
            _ = self.view
            return
        array = np.frombuffer(data, np.uint8)
        self._submit(array, _address(array), None, destination, data.nbytes, stream)

    def end(self) -> None:
        """End the use. May be called again, also by a finaliser: :meth:`Staging.poll` does the
        work."""
        self._view.end()

    def _submit(
        self, source: object, start: int, destination: object, to: int, size: int, stream: int
    ) -> None:
        driver, view = self._staging._driver, self._view
        assert driver is not None
        with self._copying(start, size) as held:
            event = driver.copy(to, start, size, stream=stream)
            if not self._staging.pinned:
                self._staging._fell_back()
            if not view.copies:
                self._staging._due.append(view)
            # The lease itself keeps what is the object's. To keep the tensor would be to keep
            # the lease, where a tensor's finaliser ends it.
            view.copies.append((event, destination if held else (source, destination)))

    @contextlib.contextmanager
    def _copying(self, start: int, size: int) -> Iterator[bool]:
        """Keep the view from being released meanwhile. Whether the source is of its object;
        else it is memory outside the mapping."""
        staging, view = self._staging, self._view
        staging._check_process()
        at, (begin, end) = start - staging._segment.address, view._keeper.use.span
        held = begin <= at and at + size <= end
        if not held and at < staging._length and at + size > 0:
            raise ArgumentError(
                f"the source is not of object {view.address}:{view.id}, which this lease keeps"
            )
        with view.copying:
            _ = self.view  # ended meanwhile, it may be released as soon as this is over
            yield held

    def __enter__(self) -> Lease:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()


class Staging(Closing):
    """A reader whose mapping is registered with the driver of a device.

    All of the mapping is registered, in one call. Where that is impossible, or ``driver`` is
    None, a warning is logged, :attr:`pinned` is False, and :attr:`reason` a text:
    everything works, but a copy blocks, and is counted in :attr:`fallbacks`. With
    ``require`` an error is raised instead and nothing is left behind.

    An object is kept until its copies are done, by :meth:`poll`, which every
    :meth:`get` begins with. Call it now and then where no :meth:`get` comes: an ended lease keeps
    its object until then. It takes the reader's lock to count, as the release of a view
    does.

    :meth:`close` it before the reader, which can't be closed earlier. One that is dropped
    without stays registered, and its mapping stays, until the process ends.

    Threads may share it; :meth:`close` must be the last call.
    """

    def __init__(self, reader: Reader, driver: Driver | None, *, require: bool = False) -> None:
        self._reader = reader
        self._driver = driver
        self._pid = os.getpid()
        self._segment: Final[Segment] = reader._segment
        self._length: Final = len(self._segment.buffer())
        self._closed = False
        # Leases that are not released, and those of them that are ended or have copies.
        self._open: set[_LeasedView] = set()
        self._due: deque[_LeasedView] = deque()
        self._polling = threading.Lock()
        self._counting = threading.Lock()
        self._memory: npt.NDArray[np.uint8] | None = None  # that is registered
        #: Copies that were made although the mapping is not registered.
        self.fallbacks = 0
        #: Leases with an error when they were released.
        self.errors = 0
        #: Why the mapping is not registered.
        self.reason: str | None = None
        try:
            if driver is None:
                raise PinUnavailableError("no driver was given")
            self._memory = self._register(driver)
        except (PinUnavailableError, DriverError, SegmentError) as e:
            if require:
                raise
            self.reason = str(e)
            _log.warning(
                "segment %r is not pinned, so copies from it to the device block: %s",
                reader.name,
                self.reason,
            )

    @property
    def pinned(self) -> bool:
        """Whether the mapping is registered."""
        return self._memory is not None

    def get(
        self, address: int, id: int, key: str | None = None, signature: Signature | None = None
    ) -> Lease:
        """:meth:`Reader.get <ringcache.Reader.get>`, under a lease."""
        self.poll()
        view = self._reader._get(_LeasedView, caller(), address, id, key, signature)
        view.lease(self)
        self._open.add(view)
        return Lease(self, view)

    def poll(self) -> None:
        """Release the ended leases whose copies are done. It never waits for a copy.

        What was wrong with one is no error of the caller's: it is logged, counted in
        :attr:`errors`, and the lease's :attr:`~Lease.error`.
        """
        self._check_open()
        # Another thread that polls does this one's work.
        if self._due and self._polling.acquire(blocking=False):
            try:
                # Nobody may wait for that lock again and again: the next poll tries again.
                with contextlib.suppress(LockTimeoutError):
                    self._release_due(wait=False)
            finally:
                self._polling.release()

    def drain(self) -> None:
        """Wait for the copies of the ended leases, and release those."""
        self._check_open()
        with self._polling:
            self._release_due(wait=True)

    def close(self) -> None:
        """Wait for the copies and unregister. May be called again; the reader stays open.

        Raises :class:`SegmentBusyError`, and can be called again, while a lease is not ended.
        It raises :class:`DriverError` if the driver does not unregister: then it may go on using
        the pages, so they stay mapped, and the reader can't be closed.
        """
        if self._closed:
            return
        if self._pid == os.getpid():
            self.drain()
            if views := list(self._open):
                places = ", ".join(sorted({view._keeper.use.where for view in views})[:3])
                raise SegmentBusyError(
                    f"{len(views)} leases of segment {self._reader.name!r} are not ended; end them, "
                    f"then close again (got at {places})"
                )
            if self._memory is not None:
                assert self._driver is not None
                self._driver.unregister(self._segment.address)
                self._segment.end_registration()
        self._memory = None
        self._closed = True

    def _register(self, driver: Driver) -> npt.NDArray[np.uint8]:
        segment = self._segment
        memory = segment.array()
        segment.begin_registration(self)
        with contextlib.ExitStack() as undo:
            undo.callback(segment.end_registration)
            _populate(segment, memory)
            with _alone(segment):
                driver.register(segment.address, len(memory), read_only=not segment.writable)
                undo.callback(driver.unregister, segment.address)
            undo.pop_all()
        return memory

    def _release_due(self, wait: bool) -> None:
        for _ in range(len(self._due)):
            # Others only append, so the first one stays the first.
            if self._release(self._due[0], wait):
                self._due.popleft()
            else:
                self._due.rotate(-1)

    def _release(self, view: _LeasedView, wait: bool) -> bool:
        """Release a lease if it is ended and its copies are done. Whether there is nothing to
        do for it, until it is due again."""
        if view not in self._open:
            return True
        if not view.copying.acquire(blocking=wait):  # a copy is being submitted
            return False
        try:
            while view.copies:
                event, _ = view.copies[-1]  # in most cases the last to be done
                try:
                    if wait and view.ended:
                        event.wait()
                    elif not event.done():
                        return False
                except DriverError as e:
                    view.error = e.with_traceback(None)
                view.copies.pop()
            if not view.ended:
                return True
            if view.dropped:
                view.staging = None  # whoever has it yet can release it; else its finaliser does
            else:
                try:
                    view.finish()
                except LockTimeoutError:
                    raise
                except RingcacheError as e:
                    view.error = view.error or e.with_traceback(None)
                view.released = True
        finally:
            view.copying.release()
        self._open.discard(view)
        if view.error is not None:
            self.errors += 1
            _log.error(
                "copies of object %d:%d of segment %r, got at %s, may be wrong: %s",
                view.address,
                view.id,
                self._reader.name,
                view._keeper.use.where,
                view.error,
            )
        return True

    def _fell_back(self) -> None:
        with self._counting:
            self.fallbacks += 1

    def _check_process(self) -> None:
        if self._pid != os.getpid():
            raise ClosedError(
                f"segment {self._reader.name!r} was staged before a fork: open a reader, a driver and "
                "a staging in the process that uses them"
            )

    def _check_open(self) -> None:
        self._check_process()
        if self._closed:
            raise ClosedError(f"staging of segment {self._reader.name!r} is closed")


def _populate(segment: Segment, memory: npt.NDArray[np.uint8]) -> None:
    """Fault the pages in. While the driver does that itself, it keeps all processes waiting."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.madvise.argtypes = (_pointer, _size, _int)
    advice = _MADV_POPULATE_WRITE if segment.writable else _MADV_POPULATE_READ
    if libc.madvise(segment.address, len(memory), advice):
        number = ctypes.get_errno()
        if number != errno.EINVAL:  # a kernel that can't
            raise PinUnavailableError(
                f"segment {segment.name!r} can't be populated ({os.strerror(number)}): /dev/shm or the "
                "memory limit of its control group may be full"
            )


@contextlib.contextmanager
def _alone(segment: Segment) -> Iterator[None]:
    """Keep other processes that register the segment waiting: pages that two pin at once can be
    refused to one of them."""
    with contextlib.ExitStack() as stack:
        # If it was removed, or another one has its name, nobody new can attach it: then those
        # who did do without.
        with contextlib.suppress(SegmentError):
            fd, info = open_file(segment.name, writable=False)
            stack.callback(os.close, fd)
            if (info.st_dev, info.st_ino) == segment.identity:
                fcntl.flock(fd, fcntl.LOCK_EX)
        yield

"""Copying objects from a segment straight to a CUDA device.

A worker registers its own mapping of the segment with the CUDA driver, which pins the
pages. Then the device reads an object where it lies in the ring, and the worker keeps the
object until the copy is done::

    driver = Driver(0)  # of ringcache.cuda: device 0
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
neither a :class:`~ringcache.cuda.Driver` nor what was made with it (:class:`ClosedError`).
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import sys
import threading
from collections import deque
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from ._arguments import integer, kind
from ._torch import address
from .cuda import Driver, Event
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


class _LeasedView(View):
    """A view whose lease releases it. What is true of both is kept here, since copies outlive
    a lease that is dropped."""

    staging: Staging | None = None  # None once the view is its own

    def lease(self, staging: Staging) -> None:
        self.staging = staging
        self.ended: bool = False
        self.dropped: bool = False  # without an end
        self.released: bool = False
        self.error: RingcacheError | None = None
        self.copying: threading.Lock = threading.Lock()
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
        _ = self.view
        if not isinstance(tensor, Tensor):
            raise ArgumentError(f"tensor must be a ringcache.Tensor, got {kind(tensor)}")
        return tensor.torch()

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
        self._submit(array, address(array), None, destination, data.nbytes, stream)

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
        self.fallbacks: int = 0
        #: Leases with an error when they were released.
        self.errors: int = 0
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
        """Release the ended leases whose copies are done. It never waits for a copy. Call it
        while no CUDA graph is captured: asking for an event would end the capture.

        What was wrong with one is no error of the caller's: it is logged, counted in
        :attr:`errors`, and the lease's :attr:`~Lease.error`.
        """
        self._check_open()
        # Another thread that polls does this one's work.
        if self._due and self._polling.acquire(blocking=False):
            try:
                # A poll must not wait for that lock: the next poll tries again.
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
            segment.populate()
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
                view.staging = None  # its caller can still release it; else its finaliser does
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


@contextlib.contextmanager
def _alone(segment: Segment) -> Iterator[None]:
    """Keep other processes that register the segment waiting: pages that two pin at once can be
    refused to one of them."""
    with contextlib.ExitStack() as stack:
        # If the file was removed, or another file has its name, no process can attach the segment
        # any more: then those that have it attached need no lock.
        with contextlib.suppress(SegmentError):
            fd, info = open_file(segment.name, writable=False)
            stack.callback(os.close, fd)
            if (info.st_dev, info.st_ino) == segment.identity:
                try:
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    _log.info("segment %r: waiting for another process that registers it", segment.name)
                    fcntl.flock(fd, fcntl.LOCK_EX)
        yield

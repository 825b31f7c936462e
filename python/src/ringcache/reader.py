"""Reading objects in place.

A chunk is ``id`` i32, ``size`` i32 (its own 8 bytes included), then the reader
count i32, the metadata pickle and the data, which is the last ``nbytes`` of the
chunk. All numbers are little-endian and may lie at any alignment.
"""

from __future__ import annotations

import contextlib
import os
import struct
import sys
import threading
import warnings
from collections import deque
from types import CodeType, TracebackType
from typing import Any, Final, Protocol, TypeAlias, TypeVar

import numpy as np

from . import metadata, sidecar, signature
from ._arguments import integer, kind
from ._layout import Layouts
from .errors import (
    ArgumentError,
    ClosedError,
    CorruptError,
    CounterError,
    HandleError,
    LockTimeoutError,
    RingcacheError,
    SegmentBusyError,
    SegmentError,
    SegmentNotFoundError,
    StaleError,
)
from .generation import CountRule, Generation, resolve
from .items import Item, decode_item, decode_tensor
from .segment import Closing, Segment
from .signature import Signature
from .tensor import Tensor

_HEADER: Final = 8  # id and size
_COUNTER: Final = metadata.COUNTER
# Each number is read by one load where that is the system's order, so none is read torn.
_I32: Final = struct.Struct("<i")
_IDENTITY: Final = struct.Struct("<ii")  # id and size
_COUNTED: Final = struct.Struct("<i4xi")  # id and count
_COUNTER_MAX: Final = (1 << 31) - 1
_ID_MAX: Final = (1 << 31) - 1
_DEAD: Final = -1  # in the place of the id of a chunk that handles must not match


class Lock(Protocol):
    """The lock that all readers of a segment share.

    For vLLM's workers it is one ``multiprocessing`` lock, handed to every
    process when it is started.
    """

    def __enter__(self) -> object: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> object: ...


#: Code, and a place in it. A text is made of it only where one is shown.
Place: TypeAlias = tuple[CodeType, int]

_pid = os.getpid()


def _after_fork() -> None:
    global _pid
    _pid = os.getpid()


os.register_at_fork(after_in_child=_after_fork)


class _Use:
    """What a view has to end. Its reader keeps it until then."""

    __slots__ = ("address", "hold", "id", "pid", "place", "span")

    def __init__(self, address: int, id: int, hold: int | None, place: Place) -> None:
        self.address: int = address
        self.id: int = id
        self.span: tuple[int, int] = (0, 0)  # of its chunk in the mapping
        self.hold: int | None = hold  # its place in the reader's slot
        self.place: Place = place  # that got it
        self.pid: int = _pid  # a forked child's copy is not a use of its own

    @property
    def where(self) -> str:
        """The line that got it."""
        code, at = self.place
        line: int | None = code.co_firstlineno
        for begin, end, of in code.co_lines():
            if begin <= at < end:
                line = of
        return f"{code.co_filename}:{line}"


class _Keeper:
    """Is alive as long as the view, or anything that views its object's bytes."""

    __slots__ = ("reader", "use")

    def __init__(self, reader: Reader, use: _Use) -> None:
        self.reader: Reader = reader
        self.use: _Use = use

    def __del__(self) -> None:
        if not sys.is_finalizing():
            self.reader._dropped(self)


class _Bytes(np.ndarray[Any, np.dtype[np.uint8]]):
    """Bytes of an object. Every memoryview of it, and so every array over one, keeps
    this, and this keeps the keeper."""

    __slots__ = ("keeper",)

    keeper: _Keeper


class View:
    """An object read in place, from :meth:`Reader.get`.

    Exactly one of :attr:`item`, :attr:`tensor` and :attr:`pickle` is there;
    asking for another raises :class:`ClosedError` after release and ``TypeError``
    before.

    Lifetime: what it gives views the segment. Use it, then :meth:`check`, which
    says whether the bytes were still the object's, then :meth:`release`, which
    counts the use if it was not counted yet; or use ``with``, which does both at
    its end. From then on the writer may free the chunk, so nothing taken from the
    view may be used any more; arrays that are still alive keep the segment from
    being closed.

    A view that is dropped without release is a mistake of the program: once nothing
    refers to it, nor to any array or memoryview of its object, there is a
    ``ResourceWarning`` with the line that got it, and the reader's next call, or its
    :meth:`~Reader.close`, releases and counts it. A view that is never released nor
    dropped keeps its chunk: where the reader is :attr:`~Reader.protected` as long
    as the process lives, else, since it is never counted, for ever.
    """

    def __init__(self, keeper: _Keeper, value: Item | Tensor | bytes) -> None:
        self._keeper = keeper
        self._reader = keeper.reader
        self.address: int = keeper.use.address
        self.id: int = keeper.use.id
        self._hold = keeper.use.hold
        self._value: Item | Tensor | bytes | None = value
        self._ending = threading.Lock()

    @property
    def value(self) -> Item | Tensor | bytes:
        """The object: an item, a tensor, or the raw bytes of a pickle."""
        if self._value is None:
            raise ClosedError("view is released")
        return self._value

    @property
    def item(self) -> Item:
        value = self.value
        if not isinstance(value, Item):
            raise TypeError(f"the object is not an item but {_kind(value)}")
        return value

    @property
    def tensor(self) -> Tensor:
        value = self.value
        if not isinstance(value, Tensor):
            raise TypeError(f"the object is not a tensor but {_kind(value)}")
        return value

    @property
    def pickle(self) -> bytes:
        """A copy of the pickle of any other kind of object, never unpickled here.

        Unpickling runs code that the writer of the segment chose: do it only if you
        trust the writer as yourself.
        """
        value = self.value
        if not isinstance(value, bytes):
            raise TypeError(f"the object is not a pickle but {_kind(value)}")
        return value

    def check(self) -> None:
        """Raise :class:`StaleError` if the object was overwritten since."""
        if self._value is None:
            raise ClosedError("view is released")
        reader, address, id = self._reader, self.address, self.id
        reader._check_id(reader._locate(address, id), address, id, self._hold is not None)

    def release(self) -> None:
        """End the use, and count it if the reader counts. May be called again.

        A reader with a slot has counted already, and nothing is raised. Else it
        raises :class:`StaleError`, and counts nothing, if the chunk is not this
        object's any more. After a :class:`LockTimeoutError` the use goes on: release
        again.
        """
        with self._ending:  # two threads must not count twice
            if self._value is None:
                return
            try:
                if self._hold is None:
                    self._reader._count_use(self.address, self.id)
            except LockTimeoutError:
                raise
            except RingcacheError:
                self._end()
                raise
            # Not before: an interrupted release must be possible again.
            self._end()

    def _end(self) -> None:
        self._value = None
        self._reader._end(self._keeper.use)

    def __enter__(self) -> View:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            with contextlib.suppress(RingcacheError):  # do not hide the error
                self.release()
            return
        if self._value is not None:
            try:
                self.check()
            except StaleError:
                self._end()  # there is nothing to count
                raise
        self.release()


_AnyView = TypeVar("_AnyView", bound=View)


def caller() -> Place:
    """The place that called the caller of this."""
    frame = sys._getframe(2)
    return frame.f_code, frame.f_lasti


def _handle(address: int, id: int) -> tuple[int, int]:
    return (
        integer(address, "address of a handle", HandleError),
        integer(id, "id of a handle", HandleError),
    )


def _kind(value: Item | Tensor | bytes) -> str:
    if isinstance(value, Item):
        return "an item"
    return "a tensor" if isinstance(value, Tensor) else "a pickle"


class Reader(Closing):
    """Reads objects of a segment by handle.

    ``size`` is the writer's ring size N in bytes; it may be left out where the
    segment has a sidecar, as every one has that the Go library made, since that
    names it. ``generation`` is the writer's vLLM version (the newest known one if empty). ``n_readers`` is the number of
    readers that the writer waits for. ``max_object_size`` is the writer's; a
    larger object is refused as corrupt.

    With ``lock``, this is one of the readers: a view counts, which lets the
    writer free the chunk once every reader has counted every use. Count each
    handle that was delivered, once, in each reader; a handle that is not counted
    keeps its chunk for ever, one counted twice frees another's too early. Without
    ``lock`` this only observes: it maps the segment read-only and changes nothing
    in it.

    A segment that the Go library writes with the policy ``pool`` has a sidecar
    with slots for readers, and the reader takes one if it can: then it is
    :attr:`protected`. ``sidecar_lock`` counts under a lock in the sidecar instead
    of ``lock``, which is free again when its holder dies; all readers that count
    must use the same one.

    A slot and the sidecar's lock belong to the process that opened the reader. Open
    it where it is used: after a fork the child's copy can get nothing
    (:class:`ClosedError`).

    Threads may share a reader; :meth:`close` must be the last call.
    """

    def __init__(
        self,
        name: str,
        size: int | None = None,
        *,
        generation: str | Generation = "",
        max_object_size: int | None = None,
        n_readers: int = 1,
        lock: Lock | None = None,
        sidecar_lock: bool = False,
    ) -> None:
        """Open the segment ``name``, whose writer must be running or have left it.

        :param name: of the segment in /dev/shm.
        :param size: the writer's ring size in bytes; without it, that of the sidecar.
        :param generation: the writer's vLLM version, the newest known one if empty.
        :param max_object_size: the writer's, in bytes; larger objects are refused.
        :param n_readers: the readers that the writer waits for, the engine's world size.
        :param lock: shared by all readers that count; without it this one only observes.
        :param sidecar_lock: count under the sidecar's lock instead of ``lock``.

        Raises :class:`ArgumentError`, also for a missing ``size`` where there is no sidecar,
        :class:`UnknownVersionError`, and :class:`SegmentError` or one of its kinds:
        :class:`SegmentNotFoundError`, :class:`SegmentSizeError`, :class:`SegmentAccessError`.
        """
        n_readers = integer(n_readers, "n_readers")
        if n_readers < 1:
            raise ArgumentError(f"n_readers must be at least 1, got {n_readers}")
        if max_object_size is not None:
            max_object_size = integer(max_object_size, "max_object_size")
            if max_object_size < 1:
                raise ArgumentError(f"max_object_size must be positive, got {max_object_size}")
        if lock is not None and not (hasattr(lock, "__enter__") and hasattr(lock, "__exit__")):
            raise ArgumentError(
                f"lock must be a lock that `with` takes, such as multiprocessing's, got {kind(lock)}"
            )
        if sidecar_lock and lock is not None:
            raise ArgumentError("lock and sidecar_lock are both set; a reader counts under one lock")
        self.generation: Generation = resolve(generation)
        self.max_object_size = max_object_size
        self.n_readers = n_readers
        self._lock = lock
        self._offset = self.generation.data_offset
        writable = lock is not None or sidecar_lock
        if size is None:
            size = self._ring_size(name)
        self._segment = Segment(name, size, data_offset=self._offset, writable=writable)
        self._slot: sidecar.Sidecar | None = None
        self._sidecar: sidecar.Sidecar | None = None
        try:
            self._open_sidecar(sidecar_lock)
        except BaseException:
            self._segment.close()
            raise
        self._bytes: memoryview | None = self._segment.buffer()
        # The same, read-only, of which every view cuts its object.
        self._array: _Bytes | None = np.frombuffer(self._bytes.toreadonly(), np.uint8).view(_Bytes)
        self._signer = signature.Signer(b"")
        self._layouts = Layouts(self.generation.item_form, max_object_size)
        # Views that were not released, and those of them that were dropped. Both are
        # changed by single calls, so that threads need no lock.
        self._open: set[_Use] = set()
        self._lost: deque[_Use] = deque()

    def _ring_size(self, name: str) -> int:
        """The size by the sidecar, if the ring is of this reader's format."""
        ring = sidecar.ring(name)
        if ring is None:
            raise ArgumentError(
                f"segment {name!r} has no sidecar {name + sidecar.SUFFIX!r} that names its ring size: "
                "give size, the writer's ring size in bytes (it is `Options.RingSize` in Go, or "
                "`ring_buffer.data_buffer_size` in vLLM)"
            )
        if ring.data_offset != self._offset:
            advice = "Give the writer's generation"
            if ring.generation.startswith("tier/"):
                advice = "It is a store with levels, such as that of `ringcache serve`"
            raise SegmentError(
                f"segment {name!r} has no ring of vLLM {self.generation.version}: its sidecar says that it is of "
                f"{ring.generation!r}, with {ring.data_offset} bytes in front of the ring, not {self._offset}. {advice}"
            )
        return ring.size

    def _open_sidecar(self, lock: bool) -> None:
        """Take of the sidecar what there is to take; without that it is not kept."""
        found = sidecar.attach(self._segment)
        if found is None:
            if lock:
                raise SegmentNotFoundError(
                    f"segment {self.name!r} has no sidecar {self.name + sidecar.SUFFIX!r} that can be "
                    "written to; count under a lock that all its readers share"
                )
            return
        try:
            if found.pool and found.take_slot():
                self._slot = found
        except BaseException:
            found.close()
            raise
        if lock:
            self._lock = sidecar.ReadersLock(found)
        if lock or self._slot:
            self._sidecar = found
        else:
            found.close()

    @property
    def name(self) -> str:
        return self._segment.name

    @property
    def size(self) -> int:
        """The ring size N in bytes, without what lies in front of it."""
        return self._segment.size

    @property
    def counts(self) -> bool:
        """Whether this reader counts its uses, or only observes."""
        return self._lock is not None

    @property
    def protected(self) -> bool:
        """Whether the writer keeps what this reader looks at.

        Then an object stays until its view is released or this process ends. Else
        it stays as long as the writer knows of a request that needs it. It is false
        if the segment has no slots, or all were taken.
        """
        return self._slot is not None

    def get(
        self, address: int, id: int, key: str | None = None, signature: Signature | None = None
    ) -> View:
        """View the object at a handle. Its release counts the use.

        A :attr:`protected` reader counts here, as vLLM's does: it has no need of
        the count to keep the object, and when the request has ended the counts are
        complete.

        Where handles are signed, a counting reader must give ``key`` (the cache
        key that the handle was issued for) and ``signature``; an observing one
        may leave out both. The signature may be what :func:`~ringcache.sign` returns,
        or the list of an address item.

        Raises :class:`HandleError` for a bad signature, or an address, id or key that
        is none, :class:`StaleError` if
        the chunk is not the handle's any more, :class:`CorruptError` if it
        cannot be decoded, :class:`SegmentBusyError` if a protected reader has too
        many views. Nothing is counted then.
        """
        return self._get(View, caller(), address, id, key, signature)

    def _get(
        self,
        cls: type[_AnyView],
        place: Place,
        address: int,
        id: int,
        key: str | None,
        signature: Signature | None,
    ) -> _AnyView:
        if self._lost:
            self._recover()
        if type(address) is not int or type(id) is not int:
            address, id = _handle(address, id)
        self._verify(key, address, id, signature)
        at = self._locate(address, id)
        # Held first, then compared: see sidecar.py.
        hold = None if self._slot is None else self._slot.hold(id)
        held = hold is not None
        keeper = _Keeper(self, _Use(address, id, hold, place))
        value = None
        try:
            start, end = keeper.use.span = self._chunk(at, address, id)
            try:
                value = self._decode(start, end, keeper)
            except CorruptError:
                # Bytes that change under the decoder look corrupt: say what it was.
                self._check_id(at, address, id, held)
                raise
            self._check_id(at, address, id, held)
            if held and self._lock is not None:
                with self._lock:
                    self._count(at, address, id, held=True)
        except BaseException:
            value = None  # a caller that keeps the exception must not keep the segment open
            self._release(hold)
            raise
        self._open.add(keeper.use)
        return cls(keeper, value)

    def touch(
        self, address: int, id: int, key: str | None = None, signature: Signature | None = None
    ) -> None:
        """Announce a :meth:`get` of the handle, by the rule of the generation.

        vLLM's workers touch every handle of a batch before they get the first.
        0.11 has no touch: nothing is done. 0.12 to 0.31 count here too, if every
        reader has read the chunk before. 0.32 on only checks the handle.

        Raises as :meth:`get`.
        """
        if self.generation.counting is CountRule.PER_USE:
            return
        self._recover()
        address, id = _handle(address, id)
        self._verify(key, address, id, signature)
        at = self._locate(address, id)
        self._chunk(at, address, id)
        if self.generation.counting is CountRule.TOUCH and self._lock is not None:
            with self._lock:
                self._count(at, address, id, at_least=self.n_readers)

    def reader_count(self, address: int, id: int) -> int:
        """The count of a chunk at this moment. Raises as :meth:`get`."""
        address, id = _handle(address, id)
        at = self._locate(address, id)
        self._chunk(at, address, id)
        count: int = _I32.unpack_from(self._view(), at + _HEADER)[0]
        return count

    def secret(self) -> bytes:
        """A copy of the signing secret, empty where handles are not signed."""
        return bytes(self._view()[: self._offset])

    def populate(self) -> None:
        """Map all pages of the segment now, so that no first look at an object meets page
        faults. Pages that the writer has not touched yet are made. Before Linux 5.14 it
        does nothing.

        Raises :class:`SegmentError` where the kernel has no memory for them, and
        :class:`ClosedError`.
        """
        self._segment.populate()

    def close(self) -> None:
        """Unmap the segment, and give the slot back. May be called again; the
        segment itself stays.

        Raises :class:`SegmentBusyError`, and can be called again, while a view is
        not released or an array of one is alive, or the mapping is registered with a
        device's driver (see :mod:`ringcache.pin`).
        """
        self._segment.check_unregistered()
        self._recover()
        if views := list(self._open):
            places = ", ".join(sorted({use.where for use in views})[:3])
            raise SegmentBusyError(
                f"{len(views)} views of segment {self.name!r} are not released; release them, "
                f"which also counts them, then close again (got at {places})"
            )
        if self._bytes is not None:
            self._array = None
            self._bytes.release()
            self._bytes = None
        self._segment.close()
        if self._sidecar is not None:
            self._sidecar.close()

    def _dropped(self, keeper: _Keeper) -> None:
        """Note that nothing can reach a view any more; it may have been released.

        A finaliser runs anywhere, also where its thread has a lock of this reader,
        so it takes none: :meth:`_recover` does the work later.
        """
        use = keeper.use
        if use not in self._open or use.pid != _pid:
            return
        self._lost.append(use)
        warnings.warn(
            f"view of {use.address}:{use.id} in segment {self.name!r} was dropped without release; "
            f"it was got at {use.where}",
            ResourceWarning,
            stacklevel=3,
            source=keeper,
        )

    def _recover(self) -> None:
        """Release what was dropped, and count it."""
        while self._lost:
            try:
                use = self._lost.popleft()
            except IndexError:  # another thread was faster
                return
            if use.pid != _pid:
                continue
            try:
                if use.hold is None:
                    self._count_use(use.address, use.id)
            except LockTimeoutError:
                self._lost.appendleft(use)
                return
            except RingcacheError:
                pass  # there is nothing to count any more
            except BaseException:
                self._lost.appendleft(use)
                raise
            self._end(use)

    def _end(self, use: _Use) -> None:
        self._open.discard(use)
        self._release(use.hold)

    def _release(self, hold: int | None) -> None:
        if self._slot is not None and hold is not None:
            self._slot.release(hold)

    def _view(self) -> memoryview:
        if self._bytes is None:
            raise ClosedError(f"reader of {self._segment.name!r} is closed")
        return self._bytes

    def _verify(self, key: str | None, address: int, id: int, sig: Signature | None) -> None:
        if key is not None and not isinstance(key, str):
            raise HandleError(f"key of a handle must be a str, got {kind(key)}")
        if not self.generation.signed or (self._lock is None and key is None and sig is None):
            return
        secret, signer = self.secret(), self._signer
        if secret != signer.secret:
            signer = self._signer = signature.Signer(secret)
        signer.verify(key, address, id, sig)

    def _locate(self, address: int, id: int) -> int:
        """Where the chunk's header is, without looking at it."""
        ring = self._segment.size
        at = address % ring  # addresses are logical: they go on counting past the end of the ring
        if (
            address < 0
            or at + _HEADER + _COUNTER > ring
            or not 0 <= id <= _ID_MAX  # a dead chunk has none
        ):
            raise StaleError(address, id)
        return self._offset + at

    def _check_id(self, at: int, address: int, id: int, held: bool = False) -> None:
        """Compare the id in the header; ``held`` if it was compared since the hold.

        A writer that needs room takes ids away, looks who holds them, and gives
        those their ids back. So no id is as good as the right one under a hold.
        """
        found = _I32.unpack_from(self._view(), at)[0]
        if found != id and not (held and found == _DEAD):
            raise StaleError(address, id)

    def _chunk(self, at: int, address: int, id: int) -> tuple[int, int]:
        """Begin and end of the chunk behind its header, within the ring."""
        found, size = _IDENTITY.unpack_from(self._view(), at)
        if found != id:
            raise StaleError(address, id)
        room = self._offset + self._segment.size - at
        if not _HEADER + _COUNTER <= size <= room:
            self._check_id(at, address, id)
            raise CorruptError(
                f"chunk at {address} says it is {size} bytes, possible are "
                f"{_HEADER + _COUNTER} to {room}"
            )
        return at + _HEADER, at + size

    def _count_use(self, address: int, id: int) -> None:
        if self._lock is not None:
            with self._lock:
                self._count(self._locate(address, id), address, id)

    def _decode(self, start: int, end: int, keeper: _Keeper) -> Item | Tensor | bytes:
        start += _COUNTER
        memory = self._view()
        for layout in self._layouts.known.get(end - start, ()):
            at = end - layout.nbytes
            if (
                memory[start : start + len(layout.metadata)].tobytes() == layout.metadata
                and memory[at : at + len(layout.document)].tobytes() == layout.document
            ):
                return layout.value(self._kept(at, end, keeper))
        # Views of the mapping, read-only; nothing below sees more than this.
        body = memory.toreadonly()[start:end]
        learned = self._layouts.learn(body)
        if learned is not None:
            return learned.value(self._kept(end - learned.nbytes, end, keeper))
        head = metadata.parse(body)
        used = metadata.used(head)
        if self.max_object_size is not None and used > self.max_object_size:
            raise CorruptError(
                f"object is {used} bytes, the writer's limit is {self.max_object_size}"
            )
        at = len(body) - head.nbytes
        if head.lengths is None:
            return bytes(body[at:])
        frames, data = [], self._kept(end - head.nbytes, end, keeper)
        at = 0
        for length in head.lengths:
            frames.append(data[at : at + length])
            at += length
        if head.kind == metadata.TENSOR:
            return decode_tensor(frames)
        return decode_item(frames, self.generation.item_form)

    def _kept(self, begin: int, end: int, keeper: _Keeper) -> memoryview:
        """Bytes of the mapping; what views them keeps the keeper."""
        if self._array is None:
            raise ClosedError(f"reader of {self._segment.name!r} is closed")
        array: Any = self._array[begin:end]  # of the same class
        array.keeper = keeper
        data: memoryview = array.data
        return data

    def _count(
        self, at: int, address: int, id: int, *, at_least: int = 0, held: bool = False
    ) -> None:
        """Raise the count by one if it is ``at_least``; the lock is taken."""
        found, count = _COUNTED.unpack_from(self._view(), at)
        # Never count in a chunk that took the place of this one.
        if found != id and not (held and found == _DEAD):
            raise StaleError(address, id)
        if count < at_least:
            return
        if count >= _COUNTER_MAX:
            raise CounterError(f"reader count of the chunk at {address} is at its limit")
        at += _HEADER
        self._view()[at : at + 4] = (count + 1).to_bytes(4, "little", signed=True)

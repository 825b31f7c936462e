"""Objects of the daemon under a lease: found and read, or written, in place.

::

    with Client(client="example", space="photos") as client, client.lease(seconds=60) as lease:
        lease.put("cat", pixels)  # a numpy array, copied into the daemon's memory once
        found = lease.pin("cat")  # in any process of this user
        if found is not None:
            use(found.tensor().numpy())  # nothing is copied

Lifetime. What a lease pins stays where it is until the end of the lease, and not longer. So the end
of a lease raises :class:`SegmentBusyError`, and the lease goes on, while an array, tensor or
memoryview of its objects is alive; and it raises :class:`ExpiredError` if the time of the lease had
passed before, or the daemon lost the pins: what was read since may have been another object's bytes.

A lease that is dropped without an end is a mistake of the program: once nothing refers to it, nor to
anything that views its objects, there is a :class:`ResourceWarning`, and the next call of another
lease of the client ends it.

Threads may share a client, but a lease and what came from it is of one thread at a time.
:mod:`ringcache.aio` has the same for asyncio.
"""

# See docs/decisions.md, "A lease in Python does not end under what views it".

from __future__ import annotations

import contextlib
import os
import sys
import time
import warnings
import weakref
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from . import _torch
from ._arguments import integer, kind
from .daemon import Client, Items, Object, Segment
from .errors import (
    ArgumentError,
    ClosedError,
    CorruptError,
    DaemonError,
    ExpiredError,
    RingcacheError,
    SegmentBusyError,
)
from .segment import Closing
from .tensor import _DTYPES, Tensor

if TYPE_CHECKING:
    import torch

__all__ = ["Data", "Lease", "Pinned", "Reservation"]

#: What :meth:`Lease.put` stores: a numpy array, a :class:`Tensor`, or anything that has bytes.
Data: TypeAlias = "npt.NDArray[Any] | Tensor | bytes | bytearray | memoryview"

SECONDS: Final = 300  # of a lease, as the daemon has them if nothing is said

_PIECE: Final = 16 << 20  # bytes that are written between two looks at the clock
_ASK_AGAIN: Final = 0.002  # seconds, the first time; then twice as long each time, up to
_LONGEST_PAUSE: Final = 0.1

# Answers after which there is nothing to read, or to write; the caller goes on without.
_NOTHING: Final = ("miss", "pending", "exists", "full", "too large", "unavailable")


class _Keeper:
    """Is alive as long as the lease, or anything that views its objects."""

    __slots__ = ("asked", "client", "ended", "name", "pid", "quiet")

    def __init__(self, client: Client, name: str) -> None:
        self.client: Client = client
        self.name: str = name
        self.pid: int = os.getpid()
        self.asked: bool = False  # the daemon may know the lease
        self.ended: bool = False
        self.quiet: bool = False

    def __del__(self) -> None:
        # A finaliser runs anywhere, also where its thread is in a call of the client: no call.
        if self.ended or not self.asked or self.pid != os.getpid() or sys.is_finalizing():
            return
        self.client._dropped.append(self.name)
        if not self.quiet:
            warnings.warn(
                f"lease {self.name!r} was dropped without release: use `with`, or call release",
                ResourceWarning,
                stacklevel=2,
                source=self,
            )


class _Bytes(np.ndarray[Any, np.dtype[np.uint8]]):
    """Bytes of an object. Every memoryview of it, and so every array over one, keeps this, and
    this keeps the keeper."""

    __slots__ = ("keeper",)

    keeper: _Keeper


class _Held:
    """A place in the segment that a lease has, and what views it."""

    __slots__ = ("_array", "_keeper", "_mapping", "at", "ended", "name")

    def __init__(
        self, keeper: _Keeper, name: str, at: tuple[Segment, int, int], writable: bool
    ) -> None:
        self._keeper = keeper
        self._mapping = keeper.client.mapping(at[0], writable=writable)
        self._mapping.view(at[1], at[2])  # raises if it is outside
        self._array: weakref.ref[_Bytes] | None = None
        self.name: str = name
        self.at: tuple[Segment, int, int] = at
        self.ended: bool = False

    def view(self) -> memoryview:
        if self.ended or self._keeper.pid != os.getpid():
            raise ClosedError(f"{self.name!r} is not the lease's any more")
        array: Any = self._array() if self._array is not None else None
        if array is None:
            view = self._mapping.view(self.at[1], self.at[2])
            array = (np.frombuffer(view, np.uint8) if view.nbytes else np.empty(0, np.uint8)).view(
                _Bytes
            )
            array.keeper = self._keeper
            self._array = weakref.ref(array)
        made: memoryview = array.data
        return made

    def viewed(self) -> bool:
        """Whether anything views it."""
        return self._array is not None and self._array() is not None


class Pinned:
    """An object that a lease keeps in place, to be read. Nothing of it may be used after the end
    of the lease; see :mod:`ringcache.lease`."""

    def __init__(self, lease: Lease, held: _Held, note: bytes) -> None:
        self._lease = lease  # which lasts as long as this
        self._held = held
        #: Of the object, in its space.
        self.name: str = held.name
        #: In bytes.
        self.size: int = held.at[2]
        #: What its writer said of it, such as its dtype and shape.
        self.note = note

    @property
    def view(self) -> memoryview:
        """The bytes, in place and read-only. Raises :class:`ClosedError` after the end of the lease."""
        return self._held.view()

    def tensor(self, dtype: str | None = None, shape: Sequence[int] | None = None) -> Tensor:
        """The object as a tensor, which gives arrays of numpy and tensors of torch and takes part in
        DLPack, all over the same bytes.

        ``dtype``, by torch's name, and ``shape`` are what the note says, unless given.

        Raises :class:`ArgumentError` if the bytes are none such, :class:`CorruptError` if the note
        says nothing that fits, :class:`ClosedError` after the end of the lease.
        """
        if (dtype is None) != (shape is None):
            raise ArgumentError("give dtype and shape both, or none of them")
        if dtype is not None and shape is not None:
            return _tensor(dtype, shape, self.view)
        words = self.note.decode("ascii", "replace").split(" ")
        if words[0] not in _DTYPES or not all(
            word.isdigit() and len(word) < 20 for word in words[1:]
        ):
            raise CorruptError(
                f"the note of {self.name!r} is {self.note[:80]!r}, no dtype and shape: give them"
            )
        return Tensor(words[0], tuple(map(int, words[1:])), self.view)


class Reservation:
    """Room for an object, which nobody sees before :meth:`commit`. With ``with`` it is committed at
    the end, and given up if there is an error.

    Write only while the lease lasts: ten minutes after its time the room is another object's.
    :meth:`write` looks at the clock, and who writes to :meth:`numpy`, :meth:`torch` or :attr:`view`
    makes the lease long enough.
    """

    def __init__(self, lease: Lease, held: _Held) -> None:
        self._lease = lease
        self._held = held
        self.name: str = held.name
        #: In bytes.
        self.size: int = held.at[2]

    @property
    def view(self) -> memoryview:
        """The room, to be written to. Raises :class:`ClosedError` when it was committed or given up."""
        return self._held.view()

    def numpy(self, dtype: str = "uint8", shape: Sequence[int] | None = None) -> npt.NDArray[Any]:
        """The room as an array that can be written to. ``dtype`` is by torch's name; a type that
        numpy has not comes as unsigned integers, as in :meth:`Tensor.numpy`."""
        return self._as(dtype, shape)._array()

    def torch(self, dtype: str = "uint8", shape: Sequence[int] | None = None) -> torch.Tensor:
        """The room as torch's tensor, which can be written to."""
        made = self._as(dtype, shape)
        return _torch.tensor(made.dtype, made.shape, made.data)

    def _as(self, dtype: str, shape: Sequence[int] | None) -> Tensor:
        return _tensor(dtype, (self.size,) if shape is None else shape, self.view)

    def write(self, data: bytes | bytearray | memoryview, at: int = 0) -> None:
        """Copy bytes into the room, beginning at its byte ``at``.

        Raises :class:`ExpiredError` when the time of the lease has passed; the room is incomplete
        then, and to be given up.
        """
        source = _flat(memoryview(data))
        with self.view as target:  # which an error's frame does not keep
            if at < 0 or at + len(source) > self.size:
                raise ArgumentError(
                    f"{len(source)} bytes at {at} do not fit into the {self.size} of {self.name!r}"
                )
            for piece in range(0, len(source), _PIECE):
                self._lease._check_time()
                end = min(piece + _PIECE, len(source))
                target[at + piece : at + end] = source[piece:end]

    def commit(self) -> None:
        """Publish the object: the last byte is written.

        Raises :class:`SegmentBusyError`, and may be called again, while an array, tensor or memoryview
        of the room is alive: who has one could still write. Raises :class:`ExpiredError` if the room
        is not the lease's any more, and :class:`DaemonError`, after which it may be called again.
        """
        self._lease._commit(self._held)

    def abort(self) -> None:
        """Give the room up. Does nothing after :meth:`commit`. Raises as that does."""
        self._lease._abort(self._held)

    def __enter__(self) -> Reservation:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.commit()
        else:
            with contextlib.suppress(RingcacheError):  # it ends with the lease
                self.abort()


class Lease(Closing):
    """What one user of a client pins and reserves; see :mod:`ringcache.lease`. Made by
    :meth:`Client.lease`. Use ``with``, or :meth:`release` it."""

    def __init__(self, client: Client, name: str, seconds: int) -> None:
        seconds = integer(seconds, "seconds of a lease")
        if seconds < 1:
            raise ArgumentError(f"a lease lasts for seconds, at least 1, got {seconds}")
        self._client = client
        self._keeper = _Keeper(client, name)
        #: What the daemon and its commands call it.
        self.name = name
        #: For which each call makes it last, at least, within the daemon's limit.
        self.seconds = seconds
        self._until = 0.0  # of time.monotonic: when it ends, as far as is sure
        self._epoch = 0  # of the client, when the pins were seen last
        self._lost = False  # the daemon lost pins of it
        # Not what the caller has, which refers to this.
        self._pinned: dict[str, _Held] = {}
        self._rooms: dict[str, _Held] = {}

    def pin(self, name: str, *, wait: float = 0) -> Pinned | None:
        """The object of that name, kept in place for the lease. None if it can't be had now, for
        whatever reason: go on without, and make it anew.

        An object on a disk or another machine is on its way from the first call on. ``wait``
        is for how many seconds to wait for it.
        """
        return self.pin_all([name], wait=wait)[0]

    def pin_all(
        self, names: Sequence[str], *, prefix: bool = False, wait: float = 0
    ) -> list[Pinned | None]:
        """:meth:`pin`, of many at once. With ``prefix`` the names are a chain, parents first, and the
        answer ends before the first that can't be had."""
        again = pauses(wait)
        while True:
            found, pending = self._look(names, prefix)
            pause = next(again, None)
            if not pending or pause is None:
                return found
            time.sleep(pause)

    def reserve(
        self,
        name: str,
        size: int,
        *,
        note: bytes = b"",
        parent: str = "",
        tenant: str = "",
        cost: int = 0,
    ) -> Reservation | None:
        """Room of ``size`` bytes for an object. None if there is nothing to write: it is there already,
        somebody else is writing it, or there is no room for it.

        Readers get ``note`` with it; by convention that is the dtype by torch's name and the shape,
        ``b"bfloat16 256 5376"``. ``parent`` is the object without which this one is worthless,
        ``tenant`` who is charged by quotas, and ``cost`` how many nanoseconds it takes to make it anew.
        """
        if name in self._rooms:
            raise ArgumentError(f"{name!r} is reserved by this lease already")
        size = integer(size, "size of an object")
        if size < 0:
            raise ArgumentError(f"size of an object must not be negative, got {size}")
        thing = Object(name, size, note, parent, tenant, cost)
        began = self._begin()
        items = self._client.reserve(self.name, [thing], seconds=self.seconds)
        place = self._answered(items, began)
        (item,) = items
        if item.status != "reserved" or place is None:
            _refused(name, item.status)
            return None
        if item.size != size:
            raise CorruptError(f"the daemon reserved {item.size} bytes for {name!r}, not {size}")
        held = _Held(self._keeper, name, (place, item.offset, size), writable=True)
        self._rooms[name] = held
        return Reservation(self, held)

    def put(
        self,
        name: str,
        data: Data,
        *,
        note: bytes | None = None,
        parent: str = "",
        tenant: str = "",
        cost: int = 0,
    ) -> bool:
        """Store an object by one copy. Whether it was stored; if not, see :meth:`reserve`, which has
        the other arguments. The note of arrays and tensors is their dtype and shape, unless given."""
        raw, said = _bytes(data)
        room = self.reserve(
            name,
            raw.nbytes,
            note=said if note is None else note,
            parent=parent,
            tenant=tenant,
            cost=cost,
        )
        if room is None:
            return False
        with room:
            room.write(raw)
        return True

    def check(self) -> None:
        """Raise :class:`ExpiredError` if the lease has not had all that it pinned, all the time. Call it
        after the use of what must be right before the end of the lease, which checks, too.

        It makes no call, unless the connection was lost since the last pin. Then it raises
        :class:`DaemonError` if the daemon can't tell.
        """
        self._check_open()
        if not self._pinned:
            return
        self._check_time()
        if not self._lost and self._client.current() != self._epoch:
            items = self._client.get(self.name, list(self._pinned))
            assert items.hello is not None
            place = items.hello.segment
            for item, held in zip(items, self._pinned.values(), strict=True):
                if item.status != "hit" or (place, item.offset, item.size) != held.at:
                    self._lost = True
            self._epoch = items.hello.epoch
        self._check_pins()

    def release(self) -> None:
        """End the lease, with what it has pinned and reserved. May be called again.

        Raises :class:`SegmentBusyError`, and ends nothing, while an array, tensor or memoryview of its
        objects is alive. Raises :class:`DaemonError` if the daemon does not answer; the lease is
        ended all the same, for the daemon with the next call of another lease, or by its time.
        """
        if self._keeper.ended or self._keeper.pid != os.getpid():
            return
        held = [*self._pinned.values(), *self._rooms.values()]
        if viewed := sorted(one.name for one in held if one.viewed()):
            raise SegmentBusyError(
                f"{_some(viewed)} of lease {self.name!r} are still viewed: an array, tensor or memoryview "
                "is alive. Delete what was taken from them (copy first what must outlive the lease), then "
                "release again"
            )
        for one in held:
            one.ended = True
        self._keeper.ended = True
        self._pinned.clear()
        self._rooms.clear()
        if self._keeper.asked:
            try:
                self._client.release(self.name)
            except DaemonError:
                self._client._dropped.append(self.name)
                raise

    close = release

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # If the lease can't end here, this raises, or the frames of an error have views. When those are gone,
        # the keeper is, too, and the lease ends then.
        self._keeper.quiet = True
        if error is None and not self._keeper.ended:
            try:
                self.check()
            except RingcacheError:
                with contextlib.suppress(RingcacheError):
                    self.release()
                raise
            # What was read was right, and the pins end later.
            with contextlib.suppress(DaemonError):
                self.release()
        else:
            with contextlib.suppress(RingcacheError):
                self.release()

    def _check_open(self) -> None:
        if self._keeper.pid != os.getpid():
            raise ClosedError(
                "the lease was made before a fork: make one in the process that uses it"
            )
        if self._keeper.ended:
            raise ClosedError(f"lease {self.name!r} is released")

    def _check_pins(self) -> None:
        if self._lost:
            raise ExpiredError(
                f"the daemon lost what lease {self.name!r} had pinned: what was read since may be wrong"
            )

    def _check_time(self) -> None:
        self._check_open()
        if time.monotonic() >= self._until:
            raise ExpiredError(
                f"the time of lease {self.name!r} has passed: make it longer (seconds), up to the daemon's limit"
            )

    def _begin(self) -> float:
        """Before a call. The time from which on the lease lasts by it."""
        self._check_open()
        if self._pinned:
            self.check()
        dropped = self._client._dropped
        while dropped:
            try:
                name = dropped.popleft()
            except IndexError:  # another thread was faster
                break
            try:
                self._client.release(name)
            except DaemonError as e:
                if e.kind == "away":
                    dropped.append(name)
                    break
        self._keeper.asked = True
        return time.monotonic()

    def _answered(self, items: Items, began: float) -> Segment | None:
        """After a call: where the answers are, and until when."""
        if items.hello is None:
            return None
        hello = items.hello
        until = began + min(self.seconds, hello.limits.seconds or self.seconds)
        self._until = max(self._until, until)
        if self._pinned and hello.epoch != self._epoch:
            self._lost = True  # maybe: the connection was lost since they were seen last
        self._epoch = hello.epoch
        return hello.segment

    def _look(self, names: Sequence[str], prefix: bool) -> tuple[list[Pinned | None], bool]:
        """Ask once. What is there, and whether something is on its way."""
        began = self._begin()
        items = self._client.pin(self.name, names, seconds=self.seconds, prefix=prefix)
        place = self._answered(items, began)
        self._check_pins()
        found: list[Pinned | None] = []
        pending = False
        for name, item in zip(names, items, strict=False):
            pinned = None
            pending = pending or item.status == "pending"
            if item.status != "hit" or place is None:
                _refused(name, item.status)
            else:
                at = (place, item.offset, item.size)
                held = self._pinned.get(name)
                if held is None:
                    held = self._pinned[name] = _Held(self._keeper, name, at, writable=False)
                elif held.at != at:
                    raise CorruptError(f"the daemon moved {name!r}, which is pinned")
                pinned = Pinned(self, held, item.note)
            if pinned is None and prefix:
                break
            found.append(pinned)
        return found, pending

    def _commit(self, room: _Held) -> None:
        self._end_room(room)
        (item,) = self._client.commit(self.name, [room.name])
        del self._rooms[room.name]
        if item.status != "ok":
            raise ExpiredError(
                f"lease {self.name!r} has lost the room of {room.name!r} ({item.status}), so it is not stored: make "
                "the lease longer (seconds)"
            )

    def _abort(self, room: _Held) -> None:
        if self._rooms.get(room.name) is not room:
            return
        self._end_room(room)
        self._client.abort(self.name, [room.name])
        del self._rooms[room.name]

    def _end_room(self, room: _Held) -> None:
        self._check_open()
        if self._rooms.get(room.name) is not room:
            raise ClosedError(f"the room of {room.name!r} was committed or given up already")
        if room.viewed():
            raise SegmentBusyError(
                f"the room of {room.name!r} is still viewed: an array, tensor or memoryview of it is alive, by which "
                "it could be written to. Delete it, then commit or abort again"
            )
        room.ended = True


def pauses(wait: float) -> Iterator[float]:
    """How long to wait before each further question, for so many seconds in all."""
    end, pause = time.monotonic() + wait, _ASK_AGAIN
    while (rest := end - time.monotonic()) > 0:
        yield min(pause, rest)
        pause = min(pause * 2, _LONGEST_PAUSE)


def _refused(name: str, status: str) -> None:
    if status not in _NOTHING:
        raise ArgumentError(f"the daemon answers {status!r} about {name[:100]!r}")


def _some(names: list[str]) -> str:
    return ", ".join(map(repr, names[:3])) + (
        f" and {len(names) - 3} more" if len(names) > 3 else ""
    )


def _tensor(dtype: str, shape: Sequence[int], data: memoryview) -> Tensor:
    """A tensor of what the caller says."""
    try:
        return Tensor(dtype, tuple(shape), data)
    except CorruptError as e:
        raise ArgumentError(str(e)) from None


def _bytes(data: Data) -> tuple[memoryview, bytes]:
    """The bytes of what is to be stored, and the note that says what they are."""
    if isinstance(data, Tensor):
        return _flat(data.data), _note(data.dtype, data.shape)
    if isinstance(data, np.ndarray):
        name = data.dtype.name
        if _DTYPES.get(name) != data.dtype:
            raise ArgumentError(
                f"a numpy array of {data.dtype!r} can't be stored: convert it first"
            )
        flat = np.ascontiguousarray(data).reshape(-1)
        return flat.view(np.uint8).data, _note(name, data.shape)
    try:
        view = memoryview(data)
    except TypeError:
        raise ArgumentError(f"data must be an array, a tensor or bytes, got {kind(data)}") from None
    if not view.c_contiguous:
        raise ArgumentError("the bytes to store must be contiguous")
    return _flat(view), b""


def _flat(view: memoryview) -> memoryview:
    return view.cast("B") if view.nbytes else memoryview(b"")


def _note(dtype: str, shape: tuple[int, ...]) -> bytes:
    return " ".join([dtype, *map(str, shape)]).encode()

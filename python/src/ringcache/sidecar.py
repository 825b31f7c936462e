"""The sidecar of a segment: the file NAME.ctl beside it, made by the Go library.

docs/format.md has its bytes. A reader uses two things of it:

- a slot, where it writes the ids of the chunks that it looks at, so that the
  writer does not free them; only where the writer's policy is ``pool``;
- a lock among the readers, in the place of a ``multiprocessing`` lock.

Who has them is known to the kernel alone, by locks on bytes of the file, so
both are free again when their process ends, however it ends.
"""

from __future__ import annotations

import errno
import fcntl
import io
import mmap
import os
import struct
import sys
import threading
import time
import weakref
from types import TracebackType
from typing import Final, NamedTuple

from .errors import (
    ClosedError,
    CorruptError,
    LockTimeoutError,
    SegmentBusyError,
    SegmentError,
    SegmentNotFoundError,
    SegmentSizeError,
)
from .segment import NAME_MAX, Segment, open_file, path

SUFFIX: Final = ".ctl"

_MAGIC: Final = b"RINGCTL\0"
_VERSION: Final = 1
# magic, version, policy, ring size, bytes in front of the ring, slots, objects,
# inode, device, uid, generation, owner, checksum of what comes before it
_HEADER: Final = struct.Struct("<8sIIQIII4xQQI4x24s64sI")
_SUM_AT: Final = 152
_FIFO, _POOL = 1, 2

_READERS_LOCK: Final = 512  # this byte is never read or written, only locked
_PAGE: Final = 4096  # of the header and the states
_MARKS_AT: Final = _PAGE  # a byte for each slot
_SLOTS_AT: Final = 2 * _PAGE
_SLOT: Final = 2048
_ENTRY: Final = 64
_MAX_SLOTS: Final = 1 << 12
_MAX_OBJECTS: Final = 1 << 24

# Words of a slot.
_TOP, _PID, _HOLDS = 1, 2, 4
MAX_HOLDS: Final = _SLOT // 4 - _HOLDS

#: Seconds to wait for the readers' lock. Its holder lives, else it were free.
LOCK_SECONDS: Final = 10.0

_POLYNOMIAL: Final = 0x82F63B78  # Castagnoli, reflected


def _half_byte(value: int) -> int:
    for _ in range(4):
        value = value >> 1 ^ _POLYNOMIAL * (value & 1)
    return value


_CRC: Final = tuple(_half_byte(i) for i in range(16))


def crc32c(data: bytes) -> int:
    """For short data: 16 entries of a table instead of 256."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        crc = crc >> 4 ^ _CRC[crc & 15]
        crc = crc >> 4 ^ _CRC[crc & 15]
    return crc ^ 0xFFFFFFFF


def attach(segment: Segment) -> Sidecar | None:
    """The sidecar of an attached segment, None if there is none, or one that was
    left by another segment of this name.

    Raises :class:`CorruptError` for a file that can't be this segment's sidecar,
    and what attaching a segment raises. On a file system that is mounted
    read-only no reader can lock a sidecar: there the result is as without one.
    """
    name = segment.name + SUFFIX
    if len(os.fsencode(name)) > NAME_MAX:
        return None
    try:
        fd, info = open_file(name, writable=True)
    except SegmentNotFoundError:
        return None
    except SegmentError as e:
        if isinstance(e.__cause__, OSError) and e.__cause__.errno == errno.EROFS:
            return None
        raise
    file = io.FileIO(fd, "r+")  # closes it, whatever happens
    try:
        found = _parse(path(name), os.pread(fd, _PAGE, 0), info.st_size, segment)
        if found is None:
            file.close()
            return None
        return Sidecar(path(name), file, *found)
    except BaseException:
        file.close()
        raise


class Ring(NamedTuple):
    """What a sidecar says of its segment."""

    size: int
    data_offset: int  # bytes in front of the ring
    generation: str  # the release of vLLM, or another format such as "tier/1"


def ring(name: str) -> Ring | None:
    """What the sidecar of the segment ``name`` says of its ring, None if it has no sidecar.

    Raises :class:`CorruptError` for a file that is no sidecar, :class:`SegmentNotFoundError`
    if there is no such segment, and what opening one raises.
    """
    fd, segment = open_file(name, writable=False)
    os.close(fd)
    control = name + SUFFIX
    if len(os.fsencode(control)) > NAME_MAX:
        return None
    try:
        fd, _ = open_file(control, writable=False)
    except SegmentNotFoundError:
        return None
    try:
        head = os.pread(fd, _PAGE, 0)
    finally:
        os.close(fd)
    if len(head) < _PAGE or not head.startswith(_MAGIC):
        raise CorruptError(f"{path(control)} is not a usable sidecar: it does not begin as one")
    fields = _HEADER.unpack_from(head)
    if fields[-1] != crc32c(head[:_SUM_AT]):
        raise CorruptError(f"{path(control)} is not a usable sidecar: its header's checksum is wrong")
    if (fields[8], fields[7]) != (segment.st_dev, segment.st_ino):
        return None  # another segment of this name left it
    return Ring(fields[3], fields[4], fields[10].rstrip(b"\0").decode(errors="replace"))


def _parse(file: str, head: bytes, size: int, segment: Segment) -> tuple[int, int] | None:
    """Policy and number of slots of a sidecar, None if it is another segment's.

    It believes nothing.
    """

    def bad(what: str) -> CorruptError:
        return CorruptError(f"{file} is not a usable sidecar: {what}")

    if len(head) < _PAGE or not head.startswith(_MAGIC):
        raise bad("it does not begin as one")
    _, version, policy, ring, offset, slots, objects, inode, device, _, _, _, checksum = (
        _HEADER.unpack_from(head)
    )
    if version != _VERSION:
        raise bad(f"layout version {version}, this package knows {_VERSION}")
    if checksum != crc32c(head[:_SUM_AT]):
        raise bad("its header's checksum is wrong")
    if policy not in (_FIFO, _POOL):
        raise bad(f"policy {policy}, this package knows {_FIFO} and {_POOL}")
    if slots > _MAX_SLOTS or objects > _MAX_OBJECTS:
        raise bad(f"{slots} slots and {objects} objects, at most {_MAX_SLOTS} and {_MAX_OBJECTS}")
    if size != _SLOTS_AT + slots * _SLOT + objects * _ENTRY:
        raise bad(f"{size} bytes for {slots} slots and {objects} objects")
    if (device, inode) != segment.identity:
        return None
    if (ring, offset) != (segment.size, segment.data_offset):
        raise SegmentSizeError(
            f"segment {segment.name!r} has a ring of {ring} bytes behind {offset}, expected "
            f"{segment.size} behind {segment.data_offset}; size and vLLM version must be the writer's"
        )
    if sys.byteorder != "little":
        raise SegmentError(f"sidecars need a little-endian system, this is {sys.byteorder}")
    return policy, slots


def _flock(kind: int, at: int) -> bytes:
    """A ``struct flock`` for one byte; locks of a file description have pid 0."""
    return struct.pack("hhqqi0q", kind, os.SEEK_SET, at, 1, 0)


class Sidecar:
    """An open sidecar, with a slot in it once :meth:`take_slot` was successful.

    Its locks belong to this opening of the file, which nothing else shares: not
    even a forked child, where it is closed at once.
    """

    def __init__(self, file_path: str, file: io.FileIO, policy: int, slots: int) -> None:
        self.path = file_path
        self.pool: bool = policy == _POOL
        self._slots = slots
        self._file = file
        try:
            self._map = mmap.mmap(file.fileno(), _SLOTS_AT + slots * _SLOT)
        except (OSError, ValueError) as e:
            raise SegmentError(f"sidecar {file_path} cannot be mapped: {e}") from e
        # An item of it is stored by one instruction of four bytes.
        self._words: memoryview | None = memoryview(self._map).cast("I")
        self._why = "is closed"
        self._slot: int | None = None  # where it begins
        self._holding = threading.Lock()
        self._top = 0
        self._free: list[int] = []  # places below top
        _open.add(self)

    def take_slot(self) -> bool:
        """Take a free slot; False if there is none. That of a dead reader is free."""
        for i in range(self._slots):
            at = _SLOTS_AT + i * _SLOT
            if not self.try_byte(at):
                continue
            words = self._use()
            self._map[at + 4 * _TOP : at + _SLOT] = bytes(_SLOT - 4 * _TOP)
            words[at // 4 + _PID] = os.getpid()
            self._mark(at, 1)
            self._slot = at
            return True
        return False

    def _mark(self, at: int, value: int) -> None:
        """Set or clear the mark of the slot that begins there: without one, the
        writer does not look at it. It is stored before the first hold, so that the
        barrier of each hold is behind it, and cleared after the last one. One byte,
        by one store, since readers store those beside it at the same time.
        """
        self._map[_MARKS_AT + (at - _SLOTS_AT) // _SLOT] = value

    def hold(self, id: int) -> int:
        """Say that the chunk is looked at; its place in the slot.

        The caller compares the chunk's header after this and not before.
        """
        words = self._use()
        assert self._slot is not None
        with self._holding:
            if self._free:
                place = self._free.pop()
            elif self._top < MAX_HOLDS:
                place = self._top
                self._top += 1
                words[self._slot // 4 + _TOP] = self._top
            else:
                raise SegmentBusyError(
                    f"{MAX_HOLDS} views are open, a reader with a slot in {self.path} can have no "
                    "more; release some"
                )
            words[self._slot // 4 + _HOLDS + place] = id + 1
        self._barrier()
        return place

    def release(self, place: int) -> None:
        """End a hold. In a forked child nothing is done: it is the parent's."""
        if self._words is None:
            return
        assert self._slot is not None
        self._barrier()  # what was read of the chunk comes before
        with self._holding:
            self._words[self._slot // 4 + _HOLDS + place] = 0
            self._free.append(place)

    # See docs/decisions.md, "The barrier of a Python reader is a lock, released and acquired".
    def _barrier(self) -> None:
        """Keep memory accesses before it from moving behind those after it.

        The writer takes a chunk's id away, then looks at the holds; a reader
        stores a hold, then looks at the id. One of them sees what the other did,
        but only if no load overtakes the store before it, as every processor lets
        it. Python has no fence, but locks, which are given back and taken by atomic
        operations. On x86 each of these is a full barrier; on arm64 nothing moves
        behind a release, nothing in front of an acquire, and no acquire passes an
        earlier release. So what comes before a lock is given back stays in front of
        what comes behind its being taken again: the callers store a hold while they
        have the lock, before or after this.
        """
        with self._holding:
            pass

    def try_byte(self, at: int) -> bool:
        """Take the lock of one byte without waiting; of one that is ours it is true."""
        self._use()
        try:
            fcntl.fcntl(self._file, fcntl.F_OFD_SETLK, _flock(fcntl.F_WRLCK, at))
        except OSError as e:
            if e.errno in (errno.EAGAIN, errno.EACCES):
                return False
            raise SegmentError(f"byte {at} of {self.path} cannot be locked: {e}") from e
        return True

    def unlock_byte(self, at: int) -> None:
        if self._words is not None:
            fcntl.fcntl(self._file, fcntl.F_OFD_SETLK, _flock(fcntl.F_UNLCK, at))

    def close(self) -> None:
        """Give back the slot. May be called again."""
        if self._words is None:
            return
        if self._slot is not None:
            self._map[self._slot + 4 * _TOP : self._slot + _SLOT] = bytes(_SLOT - 4 * _TOP)
            self._mark(self._slot, 0)
            self.unlock_byte(self._slot)
        self._end("is closed")

    def _end(self, why: str) -> None:
        if self._words is not None:
            self._why = why
            self._words.release()
            self._words = None
            self._map.close()  # it has a descriptor of its own
            self._file.close()

    def _use(self) -> memoryview:
        if self._words is None:
            raise ClosedError(f"reader with the sidecar {self.path} {self._why}")
        return self._words


# The locks belong to an opening of the file, and a forked child has the same one.
# It must not change the holds of its parent, and not keep them when that dies.
_open: Final[weakref.WeakSet[Sidecar]] = weakref.WeakSet()


def _after_fork() -> None:
    for sidecar in list(_open):
        sidecar._end("was opened before a fork: open a reader in the process that uses it")


os.register_at_fork(after_in_child=_after_fork)


class ReadersLock:
    """The lock among the readers that use the sidecar.

    Unlike a ``multiprocessing`` lock it is free again when its holder dies.
    """

    def __init__(self, sidecar: Sidecar) -> None:
        self._sidecar = sidecar
        self._threads = threading.Lock()  # for the kernel they are all one

    def __enter__(self) -> None:
        deadline = time.monotonic() + LOCK_SECONDS
        if not self._threads.acquire(timeout=LOCK_SECONDS):
            raise self._late()
        try:
            wait = 20e-6
            while not self._sidecar.try_byte(_READERS_LOCK):
                if time.monotonic() > deadline:
                    raise self._late()
                time.sleep(wait)
                wait = min(2 * wait, 2e-3)
        except BaseException:
            self._threads.release()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._sidecar.unlock_byte(_READERS_LOCK)
        finally:
            self._threads.release()

    def _late(self) -> LockTimeoutError:
        return LockTimeoutError(
            f"the readers' lock in {self._sidecar.path} was not free within {LOCK_SECONDS} s; a "
            "living process holds it, stopped or hung"
        )

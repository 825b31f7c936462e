"""Attaching to an existing segment in /dev/shm.

A segment is attached by opening its file. Python's ``SharedMemory`` is not
used: up to Python 3.12 it registers what it attaches with the resource
tracker, which removes the segment when this process ends.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import stat
import sys
from types import TracebackType
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt

from ._arguments import integer, kind
from .errors import (
    ArgumentError,
    ClosedError,
    SegmentAccessError,
    SegmentBusyError,
    SegmentError,
    SegmentNotFoundError,
    SegmentSizeError,
)

_DIR: Final = "/dev/shm"
NAME_MAX: Final = 255
_MADV_POPULATE_READ, _MADV_POPULATE_WRITE = 22, 23  # Linux 5.14; `mmap` has no names for them

# The mappings that a device's driver uses, by their address, and what is to unregister each. It
# keeps the mapping, which so stays where nothing else refers to the segment any more. A
# forked child's mapping is not registered.
_registered: Final[dict[int, object]] = {}
os.register_at_fork(after_in_child=_registered.clear)


def path(name: str) -> str:
    """The file of the segment ``name`` (a leading slash is allowed)."""
    if not isinstance(name, str):
        raise SegmentError(f"segment name must be a str, got {kind(name)}")
    plain = name.removeprefix("/")
    try:
        length = len(os.fsencode(plain))
    except UnicodeEncodeError:
        length = 0  # no file can have it
    if plain in (".", "..") or "/" in plain or "\0" in plain or not 0 < length <= NAME_MAX:
        raise SegmentError(
            f"segment name {name!r} is not the name of a shared-memory object: "
            f"give 1 to {NAME_MAX} bytes without a slash, not a path"
        )
    return f"{_DIR}/{plain}"


_Self = TypeVar("_Self", bound="Closing")


class Closing:
    """What ``with`` closes. That something of it is in use does not hide the error which left
    that behind."""

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.close()
        except SegmentBusyError:
            if error is None:
                raise


class Segment(Closing):
    """A mapped segment: ``data_offset`` bytes, then a ring of ``size`` bytes.

    The file must be a regular file of the calling user, not writable by
    everyone, and at least ``size + data_offset`` bytes long; that many are
    mapped. It is never created, resized or removed.

    ``writable`` maps it for writing, which only counting needs. A mapping that
    is not writable cannot be changed by accident.

    Lifetime: everything that views :attr:`buffer` must be gone before
    :meth:`close`, which otherwise raises :class:`SegmentBusyError` and leaves
    the segment open. If another process truncates the file while it is mapped,
    touching the lost pages ends this process with SIGBUS; the owner of a
    segment never does that.
    """

    def __init__(
        self, name: str, size: int, *, data_offset: int = 0, writable: bool = False
    ) -> None:
        path(name)
        size = integer(size, f"segment {name!r}: the ring size", SegmentSizeError)
        data_offset = integer(data_offset, "data_offset")
        if data_offset < 0:
            raise ArgumentError(f"data_offset must not be negative, got {data_offset}")
        if size <= 0:
            raise SegmentSizeError(
                f"segment {name!r}: the ring size must be positive, got {size}; "
                "give the writer's size in bytes"
            )
        if not sys.platform.startswith("linux"):
            raise SegmentError(f"segments need Linux's {_DIR}; this is {sys.platform}")
        self.name: str = name.removeprefix("/")
        self.size = size
        self.data_offset = data_offset
        self.writable = writable
        self._map: mmap.mmap | None
        self._map, info = _map(name, size + data_offset, size, data_offset, writable)
        #: Device and inode, by which the system knows the segment.
        self.identity: tuple[int, int] = (info.st_dev, info.st_ino)
        #: Where the first mapped byte is in this process.
        self.address: Final[int] = self.array().__array_interface__["data"][0]

    @property
    def closed(self) -> bool:
        return self._map is None

    def buffer(self) -> memoryview:
        """A new view of the mapped bytes, ``data_offset`` first."""
        if self._map is None:
            raise ClosedError(f"segment {self.name!r} is closed")
        return memoryview(self._map)

    def array(self) -> npt.NDArray[np.uint8]:
        """The same as an array, which has an address. It keeps the mapping."""
        return np.frombuffer(self.buffer(), np.uint8)

    def populate(self) -> None:
        """Map all pages, so that no first use is a page fault.

        Raises :class:`SegmentError` where the kernel has no memory for them.
        """
        self._check_room()
        libc = ctypes.CDLL(None, use_errno=True)
        libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        advice = _MADV_POPULATE_WRITE if self.writable else _MADV_POPULATE_READ
        memory = self.array()  # which stays mapped meanwhile
        if libc.madvise(self.address, len(memory), advice):
            number = ctypes.get_errno()
            if number != errno.EINVAL:  # a kernel that can't
                raise SegmentError(
                    f"segment {self.name!r} can't be populated ({os.strerror(number)}): /dev/shm or the "
                    "memory limit of its control group may be full"
                )

    def _check_room(self) -> None:
        """Refuse to make the pages of a file with holes (vLLM's own frontend makes such) where
        they would take all that others need, and not even suffice."""
        try:
            file, room = os.stat(path(self.name)), os.statvfs(path(self.name))
        except OSError:
            return  # it was removed
        if (file.st_dev, file.st_ino) != self.identity or not room.f_blocks:  # or is another, or has no limit
            return
        need, left = file.st_size - file.st_blocks * 512, room.f_bavail * room.f_frsize
        if need > left:
            raise SegmentError(
                f"segment {self.name!r} can't be populated: it has holes of {need} bytes, and {left} are left in "
                f"{_DIR}; make {_DIR} larger (docker --shm-size)"
            )

    def begin_registration(self, owner: object) -> None:
        """Refuse :meth:`close` until :meth:`end_registration`, for ``owner``, which keeps
        :meth:`array`. A mapping has one registration, whatever the device."""
        if _registered.setdefault(self.address, owner) is not owner:
            raise SegmentBusyError(
                f"this mapping of segment {self.name!r} is registered with a device's driver "
                "already; open another reader for a second registration"
            )

    def end_registration(self) -> None:
        _registered.pop(self.address, None)

    def check_unregistered(self) -> None:
        """Raise :class:`SegmentBusyError` while a device's driver uses the mapping."""
        if self._map is not None and self.address in _registered:
            raise SegmentBusyError(
                f"segment {self.name!r} is registered with a device's driver, which goes on using "
                "its pages: unregister first (Staging.close), then close again"
            )

    def close(self) -> None:
        """Unmap. May be called again at any time; the file stays."""
        if self._map is None:
            return
        self.check_unregistered()
        try:
            self._map.close()
        except BufferError as e:
            raise SegmentBusyError(
                f"segment {self.name!r} is still viewed: an array, tensor or memoryview of it is "
                "alive. Release every view, delete the arrays taken from it (copy first what must "
                "outlive it), then close again"
            ) from e
        self._map = None


def _map(
    name: str, total: int, size: int, data_offset: int, writable: bool
) -> tuple[mmap.mmap, os.stat_result]:
    fd, info = open_file(name, writable)
    try:
        # Exactly: the size is all that tells a wrong ring or a wrong vLLM version.
        if info.st_size != total:
            raise SegmentSizeError(
                f"segment {name!r} is {info.st_size} bytes, expected {total} (ring "
                f"{size} + {data_offset} in front of it); size and vLLM version must be the writer's"
            )
        try:
            prot = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
            return mmap.mmap(fd, total, mmap.MAP_SHARED, prot), info
        except (OSError, ValueError, OverflowError) as e:
            raise SegmentError(f"segment {name!r} cannot be mapped: {e}") from e
    finally:
        os.close(fd)


def open_file(name: str, writable: bool) -> tuple[int, os.stat_result]:
    """Open what has the name, a regular file of this user that not everyone may write."""
    file = path(name)
    # O_NONBLOCK: opening a FIFO of that name must not wait for its other end.
    flags = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        fd = os.open(file, flags | (os.O_RDWR if writable else os.O_RDONLY))
    except FileNotFoundError:
        raise SegmentNotFoundError(
            errno.ENOENT,
            f"no segment {name!r}: its writer must be running first, on this host and with the "
            f"same {_DIR} (containers: --ipc=host or a shared volume)",
            file,
        ) from None
    except OSError as e:
        if e.errno == errno.ELOOP:
            raise SegmentAccessError(
                errno.EPERM, f"segment {name!r} is a symbolic link; it is not followed", file
            ) from None
        if e.errno in (errno.EACCES, errno.EPERM):
            raise SegmentAccessError(
                e.errno, f"segment {name!r} may not be opened; run as its owner", file
            ) from None
        if e.errno in (errno.EISDIR, errno.ENXIO):
            raise _not_regular(name, file) from None
        raise SegmentError(f"segment {name!r} cannot be opened: {e}") from e
    try:
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode):
            raise _not_regular(name, file)
        if info.st_uid != os.geteuid():
            raise SegmentAccessError(
                errno.EPERM,
                f"segment {name!r} belongs to user {info.st_uid}, this process runs as "
                f"{os.geteuid()}; run as its owner",
                file,
            )
        if info.st_mode & stat.S_IWOTH:
            raise SegmentAccessError(
                errno.EPERM,
                f"segment {name!r} is writable by every user (mode "
                f"{stat.S_IMODE(info.st_mode):04o}); its bytes cannot be trusted, make it 0600",
                file,
            )
        return fd, info
    except BaseException:
        os.close(fd)
        raise


def _not_regular(name: str, file: str) -> SegmentAccessError:
    return SegmentAccessError(errno.EPERM, f"segment {name!r} is not a regular file", file)

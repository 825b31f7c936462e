"""The errors of this package.

Every error is a :class:`RingcacheError`, and also the built-in that fits, so
that ``except ValueError`` written for vLLM's own classes keeps working. Texts
that vLLM's callers match on are vLLM's.
"""

from __future__ import annotations


class RingcacheError(Exception):
    """Base of all errors raised by this package."""


class ArgumentError(RingcacheError, TypeError, ValueError):
    """An argument of the wrong type, or out of its range."""


class UnknownVersionError(RingcacheError, ValueError):
    """A vLLM version that is not in the generation table."""


class SegmentError(RingcacheError):
    """A shared-memory segment cannot be attached or closed."""


class SegmentNotFoundError(SegmentError, FileNotFoundError):
    """There is no segment of that name."""


class SegmentAccessError(SegmentError, PermissionError):
    """The segment is not ours to trust: its kind, owner or mode is wrong."""


class SegmentSizeError(SegmentError, ValueError):
    """The segment is smaller than the ring it should hold."""


class SegmentBusyError(SegmentError, BufferError):
    """The segment cannot be closed yet, or viewed more: something views its memory, or a
    device's driver uses it."""


class ClosedError(RingcacheError, ValueError):
    """The segment, reader or view was closed or released before this use."""


class HandleError(RingcacheError, ValueError):
    """An address item, or a part of a handle (address, id, key, signature), is missing or
    wrong, its type included."""


class StaleError(RingcacheError, ValueError):
    """The handle's object is no longer where the handle says.

    Its memory was reused, or the handle belongs to another segment.
    """

    def __init__(self, address: int, id: int) -> None:
        super().__init__(f"Data for address:id '{address}:{id}' has been modified or is invalid.")
        self.address = address
        self.id = id

    def __reduce__(self) -> tuple[type[StaleError], tuple[int, int]]:
        return type(self), (self.address, self.id)


class CorruptError(RingcacheError, ValueError):
    """Bytes that no writer of the segment's generation produces."""


class CounterError(RingcacheError, OverflowError):
    """A reader count is at its largest value and cannot be raised."""


class LockTimeoutError(RingcacheError, TimeoutError):
    """The readers' lock of the sidecar was not free in time; nothing was counted."""


class ExpiredError(RingcacheError, TimeoutError):
    """What a lease of the daemon had has ended before its release: the lease's time passed, or the
    daemon lost it."""


class PinUnavailableError(RingcacheError, RuntimeError):
    """Memory cannot be registered with a device here: the driver, the device or what they need
    is missing."""


class DriverError(RingcacheError, RuntimeError):
    """A call of the device's driver failed."""

    def __init__(self, op: str, code: int, name: str, cause: str = "") -> None:
        super().__init__(f"{op} failed: {name} ({code})" + (f": {cause}" if cause else ""))
        #: The function, such as ``cuMemHostRegister``.
        self.op = op
        #: What it returned, and the driver's name of that.
        self.code = code
        self.name = name
        self.cause = cause

    def __reduce__(self) -> tuple[type[DriverError], tuple[str, int, str, str]]:
        return type(self), (self.op, self.code, self.name, self.cause)


class DaemonError(RingcacheError, RuntimeError):
    """The daemon refused a request, or is away."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        #: ``away`` if it can't be reached or does not answer, else what docs/daemon.md lists.
        self.kind = kind
        #: Whether there is no connection now, whatever the kind: a Hello may be refused, too.
        self.away: bool = kind == "away"

    def __reduce__(self) -> tuple[type[DaemonError], tuple[str, str]]:
        return type(self), (self.kind, str(self))

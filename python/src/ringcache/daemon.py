"""A client of ``ringcache serve``, the daemon that keeps objects, such as encoder outputs, for the
processes of one machine.

It speaks the protocol of docs/daemon.md over a unix socket; the bytes of objects are in a segment
of shared memory. A program reads and writes them by :meth:`Client.lease`, which
:mod:`ringcache.lease` describes. The other methods are the operations of the protocol, one by one, for
connectors of engines, which keep leases of their own::

    with Client("/run/ringcache/ringcache.sock", client="example", space="photos") as client:
        (found,) = client.pin("lease", ["name"], seconds=60)
        if found.status == "hit":
            with Mapping(client.segment) as mapping:
                use(mapping.view(found.offset, found.size))
        client.release("lease")

Threads that share a client take the segment from the answer instead (:attr:`Items.hello`): by the
time that they look at the client, another thread may have connected it to a daemon with another one.

No call takes longer than the client's time-out. Whatever goes wrong is a :class:`DaemonError`:
one of kind ``"away"`` if the daemon can't be reached or does not answer. The next call connects
again, with the same session, so that what its leases have is still there; but calls fail at once,
without a try, for a while after a failure, and longer each time.
"""

# See docs/decisions.md, "A client may repeat every request, and maps a new segment first".

from __future__ import annotations

import contextlib
import itertools
import mmap
import os
import secrets
import socket as sockets
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from ._connection import check_owner, ended, left, receive
from .errors import ArgumentError, ClosedError, DaemonError, RingcacheError, SegmentError, SegmentSizeError
from .segment import open_file

if TYPE_CHECKING:
    from .lease import Lease

__all__ = [
    "Client",
    "Fingerprint",
    "Hello",
    "Item",
    "Items",
    "Level",
    "Limits",
    "Mapping",
    "Object",
    "Recent",
    "Segment",
    "State",
    "default_socket",
]

#: Of the protocol.
VERSION: Final = 1

#: What this client can do beyond the first version of the protocol, by the names of docs/daemon.md.
FEATURES: Final[tuple[str, ...]] = ()

_MAX_REQUEST: Final = 1 << 20
_MAX_REPLY: Final = 8 << 20
_MAX_NAMES: Final = 1024

#: The environment variable that names the daemon's socket.
SOCKET_VARIABLE: Final = "RINGCACHE_SOCKET"
_SOCKET: Final = "/run/ringcache/ringcache.sock"

# Seconds without a try after a failure, the least and the most; after a time-out they are so many
# times longer than it, so that a daemon that hangs takes at most a small part of the time.
_LEAST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 2.0
_PAUSE_OF_TIMEOUT: Final = 10


def default_socket() -> str:
    """Where the daemon listens if nothing else is said."""
    return os.environ.get(SOCKET_VARIABLE) or _SOCKET


# Fields are in the order in which docs/daemon.md has them; what is zero is left out. A key of an
# answer that has no field here is skipped: it is of a later daemon.
class Fingerprint(msgspec.Struct, omit_defaults=True, frozen=True):
    """What two engines must share for the one to use the other's outputs: ``encoder.Fingerprint`` of
    the Go library. The daemon makes a space of it."""

    model: str = ""
    revision: str = ""
    dtype: str = ""
    layout: str = ""
    engine: str = ""
    ranks: int = 0
    rank: int = 0


class Object(msgspec.Struct, omit_defaults=True, frozen=True):
    """An object that is to be stored."""

    name: str = ""
    size: int = 0  # bytes
    note: bytes = b""  # of an encoder's output: dtype and shape, b"bfloat16 256 5376"
    parent: str = ""
    tenant: str = ""
    cost: int = 0  # nanoseconds that it takes to make it anew; 0 is unknown


class Segment(msgspec.Struct, frozen=True):
    """Where objects are. Another generation or inode is another segment: all offsets and leases of
    before are void, and a mapping of the old one stays readable."""

    name: str = ""
    size: int = 0  # bytes to map
    generation: int = 0
    inode: int = 0


class Item(msgspec.Struct, frozen=True):
    """The answer about one name: ``hit``, ``miss``, ``pending``, ``reserved``, ``exists``, ``full``,
    ``too large``, ``ok``, ``ended``, ``unavailable`` or ``invalid``."""

    status: str = ""
    name: str = ""
    offset: int = 0
    size: int = 0
    note: bytes = b""
    levels: tuple[str, ...] = ()


class Limits(msgspec.Struct, frozen=True):
    """The daemon's limits."""

    names: int = 0
    seconds: int = 0
    held: int = 0
    leases: int = 0


_NO_LIMITS: Final = Limits(_MAX_NAMES, 0, 0, 0)  # before the daemon has told its own


class Hello(msgspec.Struct, frozen=True):
    """What the daemon said at the beginning of a connection."""

    segment: Segment
    space: str
    limits: Limits
    server: str
    features: tuple[str, ...]  # that both sides have, see FEATURES
    epoch: int  # counts the Hellos of a client: what an earlier one has is to be asked for again


class Level(msgspec.Struct, frozen=True):
    """One place of objects. -1 is unknown."""

    name: str = ""
    away: bool = False
    objects: int = 0
    bytes: int = 0
    capacity: int = 0
    held: int = 0  # bytes that are pinned or reserved
    backlog: int = 0  # objects that wait to be written to it


class Recent(msgspec.Struct, frozen=True):
    """Counts of the last minutes."""

    seconds: int = 0
    hits: int = 0
    misses: int = 0
    stored: int = 0


class State(msgspec.Struct, frozen=True):
    """What the daemon has and does; the counts are since its start."""

    levels: tuple[Level, ...] = ()  # fastest first
    sessions: int = 0
    leases: int = 0
    fetches: int = 0  # objects on their way into memory
    backlog: int = 0  # objects that wait to be written to lower levels
    clearing: bool = False
    seconds: int = 0  # since the start
    hits: int = 0
    misses: int = 0
    stored: int = 0
    recent: Recent = Recent()


class Items(list[Item]):
    """Answers, in the order of what was asked for. ``hello`` is that of the connection on which they
    came: their offsets are of its segment. It is None if nothing was asked for."""

    def __init__(self, items: Iterable[Item] = (), hello: Hello | None = None) -> None:
        super().__init__(items)
        self.hello = hello


# A struct of at most 15 fields is a map with a header of one byte, as the page has them.
class _HelloRequest(msgspec.Struct, omit_defaults=True):
    id: int = 0
    op: str = ""
    version: int = 0
    session: str = ""
    client: str = ""
    fingerprint: Fingerprint | None = None
    features: Sequence[str] = ()


class _Request(msgspec.Struct, omit_defaults=True):
    id: int = 0
    op: str = ""
    lease: str = ""
    space: str = ""
    names: Sequence[str] = ()
    seconds: int = 0
    prefix: bool = False
    keep: bool = False
    objects: Sequence[Object] = ()
    leases: Sequence[str] = ()
    list: bool = False


class _Error(msgspec.Struct):
    kind: str = ""
    text: str = ""


class _Reply(msgspec.Struct):
    id: int = 0
    error: _Error | None = None
    version: int = 0
    server: str = ""
    segment: Segment | None = None
    space: str = ""
    limits: Limits | None = None
    features: tuple[str, ...] = ()
    items: tuple[Item, ...] = ()
    state: State | None = None


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(_Reply).decode

_Self = TypeVar("_Self", bound="Client")


class Client:
    """A session with the daemon, and its connection. Threads may share it.

    Nothing is connected before the first call. ``socket`` is the daemon's, ``$RINGCACHE_SOCKET`` or
    ``/run/ringcache/ringcache.sock`` if not given. ``client`` is what people see of it in lists and logs.
    ``space`` is that of the names: objects of different spaces never meet. Without it the daemon makes one
    of ``fingerprint``. ``timeout`` is the longest that a call takes, in seconds.

    The session ends with the process; :meth:`close` closes the connection only, so release what
    is not needed before.
    """

    def __init__(
        self,
        socket: str | None = None,
        *,
        client: str,
        fingerprint: Fingerprint | None = None,
        space: str = "",
        timeout: float = 5.0,
    ) -> None:
        self.socket: str = socket or default_socket()
        self.timeout = timeout
        self._client = client
        self._fingerprint = fingerprint
        self._own_space = space
        self._session = secrets.token_hex(16)
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._connection: sockets.socket | None = None
        self._id = 0
        self._closed = False
        self._retry_at = 0.0  # of time.monotonic
        self._pause = _LEAST_PAUSE
        self._hello: Hello | None = None  # the latest
        self._count = itertools.count(1)  # of leases
        self._dropped: deque[str] = deque()  # leases that nobody has any more, to be released
        self._mappings: dict[bool, Mapping] = {}  # by whether they are writable
        self._mapping_lock = threading.Lock()
        #: Whether a call has failed and left no connection, and none was answered since.
        self.away: bool = False

    @property
    def space(self) -> str:
        """The space of names; empty before the first Hello, if the daemon makes it."""
        return self._own_space or (self._hello.space if self._hello else "")

    @property
    def segment(self) -> Segment | None:
        """Where objects are, by the latest Hello."""
        return self._hello.segment if self._hello else None

    @property
    def limits(self) -> Limits:
        return self._hello.limits if self._hello else _NO_LIMITS

    @property
    def server(self) -> str:
        return self._hello.server if self._hello else ""

    @property
    def epoch(self) -> int:
        """How many Hellos there were."""
        return self._hello.epoch if self._hello else 0

    def lease(self, name: str = "lease", *, seconds: int = 300) -> Lease:
        """A lease, by which objects are read and written; :mod:`ringcache.lease` describes it. Needs numpy.

        People see ``name`` in lists, with a number that makes it unique. Each call of the lease makes it last
        for at least ``seconds``, within the daemon's limit. No call is made here.
        """
        from .lease import Lease

        return Lease(self, f"{name}-{next(self._count)}", seconds)

    def stat(self) -> State:
        """What the daemon has and does."""
        reply, _ = self._call("stat")
        if reply.state is None:
            raise DaemonError("away", "the answer to stat has no state")
        return reply.state

    def find(self, names: Sequence[str]) -> Items:
        """Which levels have objects: :attr:`Item.levels` of those that are hits. Nothing is pinned or
        brought to memory, and it counts as no use."""
        return self._batches("stat", names, lease="")

    def mapping(self, segment: Segment, *, writable: bool = False) -> Mapping:
        """This client's mapping of the segment, which is made once, and is not to be closed: it ends when nothing
        refers to it. Raises as :class:`Mapping`."""
        with self._mapping_lock:
            made = self._mappings.get(writable)
            if made is None or made.segment != segment:
                made = self._mappings[writable] = Mapping(segment, writable=writable)
            return made

    def pin(
        self, lease: str, names: Sequence[str], *, seconds: int = 0, prefix: bool = False
    ) -> Items:
        """Look names up and keep those that are hits in place, for the lease. What is pending is
        on its way: ask again, with the same lease, within 10 seconds. With ``prefix`` the names are
        a chain, parents first: the items end with the first that is neither hit nor pending."""
        return self._batches("pin", names, lease=lease, seconds=seconds, prefix=prefix)

    def get(self, lease: str, names: Sequence[str] = ()) -> Items:
        """Where the objects are that the lease has: those of names, or all of them."""
        if not names:
            reply, hello = self._call("get", lease=lease)
            return Items(reply.items, hello)
        return self._batches("get", names, lease=lease)

    def reserve(self, lease: str, objects: Sequence[Object], *, seconds: int = 0) -> Items:
        """Reserve room. A reservation ends by commit, abort or release, with the process, or ten
        minutes after the time of the lease.

        Write only while the time of the lease lasts by ``time.monotonic()``, counted from before
        this call, in pieces, and look at the clock before each: bytes that are written after the
        end of the reservation go into another object. Reserving the same again extends it.
        ``seconds`` is limited by :attr:`limits`.
        """
        items, most = Items(), self._most()
        for at in range(0, len(objects), most):
            part = objects[at : at + most]
            answer = self._call("reserve", lease=lease, objects=part, seconds=seconds)
            self._add(items, *answer, len(part))
        return items

    def commit(self, lease: str, names: Sequence[str]) -> Items:
        """Publish what the lease has reserved and whose bytes are written."""
        return self._batches("commit", names, lease=lease)

    def abort(self, lease: str, names: Sequence[str]) -> Items:
        """End reservations of the lease. Their room must not be written to any more."""
        return self._batches("abort", names, lease=lease)

    def release(self, lease: str, names: Sequence[str] = ()) -> None:
        """End a lease, or give up what it pins of names."""
        if not names:
            self._call("release", leases=[lease])
        most = self._most()
        for at in range(0, len(names), most):
            self._call("release", lease=lease, names=names[at : at + most])

    def hello(self) -> Hello:
        """Connect, if there is no connection or it has ended, so that the segment is known."""
        with self._locked():
            if self._connection is not None and ended(self._connection):
                self._disconnect()
            self._connected(time.monotonic() + self.timeout)
            assert self._hello is not None
            return self._hello

    def check(self) -> Hello:
        """Make a small call, for who wants to know whether the daemon answers, and nothing else. So
        if it fails, calls that are for something are not kept from trying."""
        with self._locked():
            before = self._retry_at, self._pause
            try:
                return self._ask(_Request(op="stat"))[1]
            except DaemonError:
                self._retry_at, self._pause = before
                raise

    def current(self) -> int:
        """The :attr:`epoch` of the connection that is up, as far as is known without a call; 0 if
        there is none."""
        with self._lock:
            up = self._connection is not None and not ended(self._connection)
            return self.epoch if up else 0

    def alive(self) -> bool:
        """Whether the connection of the latest Hello is up, as far as is known without a call."""
        return self.current() != 0

    def close(self) -> None:
        """Close the connection. May be called again. It releases nothing."""
        with self._lock:
            self._closed = True
            self._disconnect()
        with self._mapping_lock:
            self._mappings.clear()

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _most(self) -> int:
        return max(1, min(self.limits.names or _MAX_NAMES, _MAX_NAMES))

    def _batches(
        self, op: str, names: Sequence[str], *, lease: str, seconds: int = 0, prefix: bool = False
    ) -> Items:
        items, most = Items(), self._most()
        for at in range(0, len(names), most):
            part = names[at : at + most]
            reply, hello = self._call(op, lease=lease, names=part, seconds=seconds, prefix=prefix)
            # A chain may end early, but not without an answer.
            count = min(len(part), max(1, len(reply.items))) if prefix else len(part)
            self._add(items, reply, hello, count)
            if prefix and (count < len(part) or items[-1].status not in ("hit", "pending")):
                break
        return items

    def _add(self, items: Items, reply: _Reply, hello: Hello, count: int) -> None:
        """Add the answer about the next names. All are of one segment."""
        if len(reply.items) != count:
            with self._locked():
                self._failed(timed_out=False)
                raise DaemonError("away", f"the daemon answered {len(reply.items)} items of {count}")
        if items.hello is None:
            items.hello = hello
        elif items.hello.segment != hello.segment:
            raise DaemonError("away", "the daemon has a new segment, so its first answers are void")
        items += reply.items

    def _call(
        self,
        op: str,
        *,
        lease: str = "",
        names: Sequence[str] = (),
        seconds: int = 0,
        prefix: bool = False,
        objects: Sequence[Object] = (),
        leases: Sequence[str] = (),
    ) -> tuple[_Reply, Hello]:
        if (lease or names) and not self._own_space and self._fingerprint is None:
            raise ArgumentError("names are of a space: give the client one, or a fingerprint")
        request = _Request(
            op=op,
            lease=lease,
            names=names,
            seconds=seconds,
            prefix=prefix,
            objects=objects,
            leases=leases,
        )
        with self._locked():
            return self._ask(request)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Guards a call, and notes whether it leaves the client without the daemon."""
        with self._lock:
            try:
                yield
            except DaemonError as e:
                if self._connection is None:
                    e.away = self.away = True
                raise

    def _ask(self, request: _Request) -> tuple[_Reply, Hello]:
        """The answer, and the Hello of the connection on which it came."""
        deadline = time.monotonic() + self.timeout
        for again in (True, False):
            connection, old = self._connected(deadline)
            assert self._hello is not None
            request.space = self.space if request.lease or request.op == "stat" and request.names else ""
            try:
                reply = self._exchange(connection, request, deadline)
                self.away = False
                return reply, self._hello
            except TimeoutError:
                self._failed(timed_out=True)
                raise self._away(f"no answer within {self.timeout} s") from None
            except (OSError, EOFError, msgspec.MsgspecError, ValueError) as e:
                # A connection of before may be one to a daemon that was restarted. What is
                # asked once more is nothing that a second time changes, but reserve, whose
                # first answer says that it is reserved already.
                self._disconnect()
                if old and again:
                    continue
                self._failed(timed_out=False)
                raise self._away(str(e) or type(e).__name__) from None
            except DaemonError:
                raise
            except BaseException:  # its answer would be taken for that of the next request
                self._disconnect()
                raise
        raise AssertionError

    def _connected(self, deadline: float) -> tuple[sockets.socket, bool]:
        """The connection, and whether it was there already."""
        if self._closed:
            raise ClosedError("the client is closed")
        if self._pid != os.getpid():
            # The parent goes on using the connection: a session belongs to a process.
            raise ClosedError("the client was made before a fork: make one in the process that uses it")
        if self._connection is not None:
            return self._connection, True
        rest = self._retry_at - time.monotonic()
        if rest > 0:
            raise self._away(f"it failed lately, the next try is in {rest:.2f} s")
        connection = sockets.socket(sockets.AF_UNIX, sockets.SOCK_STREAM)
        try:
            connection.settimeout(left(deadline))
            connection.connect(self.socket)
            check_owner(connection, self.socket)
            reply = self._exchange(
                connection,
                _HelloRequest(
                    op="hello",
                    version=VERSION,
                    session=self._session,
                    client=self._client,
                    fingerprint=self._fingerprint,
                    features=FEATURES,
                ),
                deadline,
            )
            if reply.version != VERSION:
                raise ValueError(
                    f"the daemon answers in version {reply.version} of the protocol, and this client "
                    f"speaks version {VERSION}: upgrade the older one"
                )
            segment = reply.segment
            if segment is None or not segment.name or segment.size <= 0:
                raise ValueError("the answer to hello has no segment")
            space = self._own_space or reply.space
            if not space and self._fingerprint is not None:
                raise ValueError("the answer to hello has no space")
        except DaemonError:
            connection.close()
            self._failed(timed_out=False)
            raise
        except (OSError, EOFError, msgspec.MsgspecError, ValueError) as e:
            connection.close()
            # A socket whose server does not accept answers EAGAIN when its queue is full.
            slow = isinstance(e, (TimeoutError, BlockingIOError))
            self._failed(timed_out=slow)
            raise self._away(f"no answer within {self.timeout} s" if slow else str(e)) from None
        limits = reply.limits or _NO_LIMITS
        features = tuple(name for name in FEATURES if name in reply.features)
        self._hello = Hello(segment, space, limits, reply.server, features, self.epoch + 1)
        self._connection = connection
        self._pause = _LEAST_PAUSE
        return connection, False

    def _exchange(
        self, connection: sockets.socket, request: _HelloRequest | _Request, deadline: float
    ) -> _Reply:
        self._id += 1
        request.id = self._id
        try:
            body = _encode(request)
        except (UnicodeEncodeError, OverflowError, msgspec.MsgspecError) as e:
            raise DaemonError("invalid", f"a {request.op} that can't be sent: {e}") from None
        if len(body) > _MAX_REQUEST:
            raise DaemonError("invalid", f"a request of {len(body)} bytes, the most is {_MAX_REQUEST}")
        connection.settimeout(left(deadline))
        connection.sendall(len(body).to_bytes(4, "little") + body)
        length = int.from_bytes(receive(connection, 4, deadline), "little")
        if length > _MAX_REPLY:
            raise ValueError(f"the daemon's answer has {length} bytes, the most is {_MAX_REPLY}")
        reply = _decode(receive(connection, length, deadline))
        if reply.error is not None:
            if reply.error.kind in ("version", "permission", "closing") or reply.id != request.id:
                self._disconnect()
            raise DaemonError(reply.error.kind, reply.error.text)
        if reply.id != request.id:
            raise ValueError(f"the daemon answered request {reply.id}, not {request.id}")
        return reply

    def _away(self, text: str) -> DaemonError:
        return DaemonError("away", f"the daemon at {self.socket} is away: {text}")

    def _failed(self, timed_out: bool) -> None:
        self._disconnect()
        most = _LONGEST_PAUSE
        if timed_out:
            most = max(most, self.timeout * _PAUSE_OF_TIMEOUT * 2)
            self._pause = max(self._pause, self.timeout * _PAUSE_OF_TIMEOUT)
        self._retry_at = time.monotonic() + self._pause
        self._pause = min(self._pause * 2, most)

    def _disconnect(self) -> None:
        if self._connection is not None:
            if self._pid == os.getpid():
                self._connection.close()
            self._connection = None


class Mapping:
    """A mapping of the daemon's segment, for reading, or with ``writable`` for writing too.

    The file must be the one that the daemon named, by its inode and generation, a regular file of this user.
    Raises :class:`~ringcache.SegmentError` otherwise. The mapping stays readable when the daemon
    is gone, or has another segment.
    """

    def __init__(self, segment: Segment, *, writable: bool = False) -> None:
        self.segment = segment
        self.writable = writable
        fd, info = open_file(segment.name, writable)
        try:
            if segment.inode and info.st_ino != segment.inode:
                raise SegmentError(
                    f"segment {segment.name!r} is another file than the daemon's (inode {info.st_ino}, "
                    f"not {segment.inode}); this process and the daemon must share one /dev/shm"
                )
            if info.st_size < segment.size:
                raise SegmentSizeError(
                    f"segment {segment.name!r} is {info.st_size} bytes, the daemon said {segment.size}"
                )
            prot = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
            # On two hosts, files of one name may have one inode, too. The first bytes, which never
            # change, tell them apart.
            first = int.from_bytes(os.pread(fd, 8, 0), "little")
            if segment.generation and segment.generation != (first or 1):
                raise SegmentError(
                    f"segment {segment.name!r} is of another daemon than the one that named it; this process "
                    "and the daemon must be on one host and share one /dev/shm"
                )
            self._map = mmap.mmap(fd, segment.size, mmap.MAP_SHARED, prot)
        except (OSError, ValueError, OverflowError) as e:
            if isinstance(e, RingcacheError):
                raise
            raise SegmentError(f"segment {segment.name!r} cannot be mapped: {e}") from e
        finally:
            os.close(fd)

    def view(self, offset: int, size: int) -> memoryview:
        """The bytes of an object, valid only as long as the lease."""
        if offset < 0 or size < 0 or offset + size > self.segment.size:
            raise SegmentSizeError(
                f"{size} bytes at {offset} are not in segment {self.segment.name!r}, "
                f"which has {self.segment.size}"
            )
        return memoryview(self._map)[offset : offset + size]

    def close(self) -> None:
        """Unmap. While something views it, the mapping stays until that is gone."""
        with contextlib.suppress(BufferError):
            self._map.close()

    def __enter__(self) -> Mapping:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

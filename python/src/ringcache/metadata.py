"""The pickle in front of an object's data, read without ``pickle``.

Upstream stores ``(type name, number of data bytes, frame lengths or None)`` as
a pickle. Unpickling bytes of a shared segment would run whatever its owner
put there, so only the opcodes that the two writers produce are accepted, in
the order in which they produce them:

=========  ================================  ===========================
part       Python (protocol 5)               Rust (protocol 2)
=========  ================================  ===========================
start      ``80 05``, ``95`` u64 length      ``80 02 28``
name       ``8c`` u8 length, UTF-8, ``94``   ``8c`` u8 length, UTF-8
integer    ``4b`` u8, ``4d`` u16, ``4a`` i32, ``8a`` u8 length + bytes
lengths    ``5d 94`` then ``28 .. 65`` or one ``.. 61``; or ``4e``
end        ``87 94 2e``                      ``74 2e``
=========  ================================  ===========================

A Python pickle beyond 64 KiB starts a new ``95`` frame in the middle.
"""

# See docs/decisions.md, "The Python package uses no pickle and no resource tracker".

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from .errors import CorruptError
from .items import MAX_DOCUMENT

TENSOR: Final = "Tensor"
ITEM: Final = "MultiModalKwargsItem"
PICKLE: Final = "bytes"  # any other value, as one pickle

_MARK, _STOP, _NONE, _EMPTY_LIST = 0x28, 0x2E, 0x4E, 0x5D
_APPEND, _APPENDS, _TUPLE, _TUPLE3 = 0x61, 0x65, 0x74, 0x87
_BININT, _BININT1, _BININT2, _LONG1 = 0x4A, 0x4B, 0x4D, 0x8A
_PROTO, _STR8, _MEMOIZE, _FRAME = 0x80, 0x8C, 0x94, 0x95
_INT_WIDTH: Final = {_BININT1: 1, _BININT2: 2, _BININT: 4}
_LONG_MAX: Final = 8  # bytes; sizes are far below 2**63

#: Bytes of the document that name one frame, at least: the header of an array,
#: a type of three letters behind theirs, an empty shape, the frame's number. Every
#: frame is named once, so a longer list is a way to make a reader work for bytes
#: that need not be there, as frames may be empty.
_NAMING: Final = 1 + 1 + 3 + 1 + 1


@dataclass(frozen=True)
class Metadata:
    """What the front of an object says about its data."""

    #: :data:`TENSOR`, :data:`ITEM` or :data:`PICKLE`.
    kind: str
    #: Bytes of data; they are the last ones of the chunk.
    nbytes: int
    #: Length of every frame, or None for :data:`PICKLE`.
    lengths: tuple[int, ...] | None
    #: Where the pickle ends.
    end: int


#: Bytes of the reader count in front of the metadata.
COUNTER: Final = 4


def used(head: Metadata) -> int:
    """The size of an object, as its writer's limit counts it."""
    return COUNTER + head.end + head.nbytes


def parse(buffer: memoryview, length: int | None = None) -> Metadata:
    """Read the metadata at the front of ``buffer``; what follows is ignored.

    ``length`` is that of the object, of which ``buffer`` may be the first bytes only.

    Everything is checked against the buffer: lengths add up to ``nbytes``, and
    ``nbytes`` fits behind the metadata. A list of more lengths than the document,
    which is the first frame, can name is refused before it is read; so is one whose
    document is larger than what is decoded. Raises :class:`CorruptError`. Every
    byte is read once, so a writer that changes them meanwhile can make this
    fail or lie, but not read out of bounds.
    """
    if length is None:
        length = len(buffer)
    scan = _Scan(buffer)
    python = scan.start()
    name = scan.name()
    if python:
        scan.expect(_MEMOIZE)
    nbytes = scan.integer(scan.opcode())
    if nbytes > length - scan.pos:
        raise CorruptError(f"metadata says {nbytes} bytes, {length - scan.pos} are there")
    lengths = scan.lengths(python)
    scan.expect(_TUPLE3 if python else _TUPLE)
    if python:
        scan.expect(_MEMOIZE)
    scan.expect(_STOP)
    scan.finish()

    if name not in (TENSOR, ITEM, PICKLE):
        raise CorruptError(f"Unsupported object type '{name}' in metadata")
    if (lengths is None) != (name == PICKLE):
        raise CorruptError(f"metadata of a {name} {'lacks' if lengths is None else 'has'} lengths")
    if lengths is not None and sum(lengths) != nbytes:
        raise CorruptError(f"metadata says {nbytes} bytes in frames of {sum(lengths)}")
    if nbytes > length - scan.pos:
        raise CorruptError(f"metadata says {nbytes} bytes, {length - scan.pos} are there")
    return Metadata(name, nbytes, lengths, scan.pos)


class _Scan:
    """A position in the pickle and the end of the current frame, if any."""

    def __init__(self, buffer: memoryview) -> None:
        self.buffer = buffer
        self.pos = 0
        self.frame_end: int | None = None

    def take(self, n: int) -> bytes:
        end = self.pos + n
        if end > len(self.buffer):
            raise CorruptError(f"metadata ends early, at byte {len(self.buffer)}")
        if self.frame_end is not None and end > self.frame_end:
            raise CorruptError(f"metadata leaves its frame at byte {self.frame_end}")
        out = bytes(self.buffer[self.pos : end])
        self.pos = end
        return out

    def opcode(self) -> int:
        """The next opcode; a frame that starts in front of it is entered."""
        if self.pos == self.frame_end:
            self.frame_end = None
            if self.pos < len(self.buffer) and self.buffer[self.pos] == _FRAME:
                self.frame()
        return self.take(1)[0]

    def frame(self) -> None:
        self.expect(_FRAME)
        length = int.from_bytes(self.take(8), "little")
        if length > len(self.buffer) - self.pos:
            raise CorruptError(f"metadata frame of {length} bytes does not fit")
        self.frame_end = self.pos + length

    def expect(self, want: int) -> None:
        at = self.pos
        got = self.opcode()
        if got != want:
            raise self.unexpected(got, at)

    def unexpected(self, opcode: int, at: int) -> CorruptError:
        return CorruptError(f"metadata has opcode {opcode:#04x} at byte {at}; refused")

    def start(self) -> bool:
        """Read the start; True for Python's form."""
        self.expect(_PROTO)
        protocol = self.take(1)[0]
        if protocol == 5:
            self.frame()
            return True
        if protocol == 2:
            self.expect(_MARK)
            return False
        raise CorruptError(f"metadata is pickle protocol {protocol}, expected 5 or 2")

    def name(self) -> str:
        self.expect(_STR8)
        raw = self.take(self.take(1)[0])
        try:
            return raw.decode()
        except UnicodeDecodeError as e:
            raise CorruptError(f"metadata type name is not UTF-8: {raw[:64]!r}") from e

    def integer(self, opcode: int) -> int:
        at = self.pos - 1
        width = _INT_WIDTH.get(opcode)
        if width is not None:
            value = int.from_bytes(self.take(width), "little", signed=opcode == _BININT)
        elif opcode == _LONG1:
            width = self.take(1)[0]
            if width > _LONG_MAX:
                raise CorruptError(f"metadata has an integer of {width} bytes at byte {at}")
            value = int.from_bytes(self.take(width), "little", signed=True)
        else:
            raise self.unexpected(opcode, at)
        if value < 0:
            raise CorruptError(f"metadata has the negative size {value} at byte {at}")
        return value

    def lengths(self, python: bool) -> tuple[int, ...] | None:
        """The list of lengths. It stops in front of the opcode that ends the tuple."""
        opcode = self.opcode()
        if opcode == _NONE:
            return None
        if opcode != _EMPTY_LIST:
            raise self.unexpected(opcode, self.pos - 1)
        if python:
            self.expect(_MEMOIZE)
        out: list[int] = []
        end = _TUPLE3 if python else _TUPLE
        while (opcode := self.opcode()) != end:
            if opcode == _MARK:
                self.length(self.opcode(), out)  # no batch is empty
                while (opcode := self.opcode()) != _APPENDS:
                    self.length(opcode, out)
            else:
                self.length(opcode, out)
                self.expect(_APPEND)
        self.pos -= 1
        return tuple(out)

    def length(self, opcode: int, out: list[int]) -> None:
        if out and len(out) > out[0] // _NAMING:
            raise CorruptError(
                f"metadata tells of more than {len(out) - 1} frames, more than the document can name"
            )
        value = self.integer(opcode)
        if not out and value > MAX_DOCUMENT:
            raise CorruptError(f"document is {value} bytes, at most {MAX_DOCUMENT} are read")
        out.append(value)

    def finish(self) -> None:
        if self.frame_end is not None and self.pos != self.frame_end:
            raise CorruptError(f"metadata stops {self.frame_end - self.pos} bytes before its frame")

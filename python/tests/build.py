"""Builds objects, chunks and segments by hand, independently of the reader."""

from __future__ import annotations

import pickle
import struct
from collections.abc import Sequence
from typing import Any

import msgspec

from ringcache import sign

SECRET = bytes(range(32))
ITEM = "MultiModalKwargsItem"
BATCHED = ["batched", {"keep_on_cpu": False}]


def raw(data: bytes) -> msgspec.msgpack.Ext:
    return msgspec.msgpack.Ext(3, data)


def elem(data: Any, field: Any = BATCHED) -> dict[str, Any]:
    return {"data": data, "field": field}


def u8(n: int, data: Any) -> list[Any]:
    """The triple of a uint8 vector; data is an Ext or a frame number."""
    return ["uint8", [n], data]


def frames(document: Any, *aux: bytes) -> list[bytes]:
    return [msgspec.msgpack.encode(document), *aux]


def address_frames(key: str, address: int, id: int, secret: bytes = SECRET) -> list[bytes]:
    return frames(
        {
            "address": elem(address),
            "monotonic_id": elem(id),
            "signature": elem(list(sign(secret, key, address, id))),
        }
    )


def body(kind: str, parts: Sequence[bytes], count: int = 0, pad: int = 0) -> bytes:
    """The payload of a chunk: count, metadata, padding, data."""
    data = b"".join(parts)
    lengths = None if kind == "bytes" else [len(p) for p in parts]
    head = pickle.dumps((kind, len(data), lengths), 5)
    return struct.pack("<i", count) + head + bytes(pad) + data


def rust_metadata(kind: str, lengths: Sequence[int]) -> bytes:
    def integer(n: int) -> bytes:
        return struct.pack("<BB", 0x4B, n) if n < 256 else struct.pack("<Bi", 0x4A, n)

    name = kind.encode()
    return b"".join(
        [
            b"\x80\x02\x28\x8c",
            bytes([len(name)]),
            name,
            integer(sum(lengths)),
            b"\x5d\x28",
            *map(integer, lengths),
            b"\x65\x74\x2e",
        ]
    )


def chunk(id: int, payload: bytes) -> bytes:
    return struct.pack("<ii", id, 8 + len(payload)) + payload


def segment(size: int, chunks: dict[int, bytes], secret: bytes = SECRET) -> bytes:
    """Chunks at their addresses in a ring behind its secret."""
    ring = bytearray(size)
    for address, data in chunks.items():
        assert address + len(data) <= size
        ring[address : address + len(data)] = data
    return secret + bytes(ring)


POOL, FIFO = 2, 1
MARKS_AT, SLOTS_AT, SLOT, ENTRY = 4096, 8192, 2048, 64


def crc32c(data: bytes) -> int:
    """Bit by bit."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def payload_sum(payload: bytes, front: int) -> int:
    """What the table has of a payload whose description ends at front, by samples."""
    head = min(max(4096, front), len(payload))
    distance = 4096
    while 64 * distance < len(payload):
        distance += 4096
    covered = payload[4:head]
    for at in range(0, len(payload), distance):
        if at >= head:
            covered += payload[at : at + 64]
    if head < len(payload):
        covered += payload[max(head, len(payload) - 64) :]
    return crc32c(covered)


def sidecar(
    identity: tuple[int, int],
    ring: int,
    *,
    data_offset: int = 32,
    magic: bytes = b"RINGCTL\0",
    version: int = 1,
    policy: int = POOL,
    slots: int = 3,
    objects: int = 5,
    uid: int = 0,
    generation: bytes = b"0.33.0",
    owner: bytes = b"",
    size: int | None = None,
) -> bytes:
    """A new sidecar of the segment with that device and inode."""
    device, inode = identity
    head = b"".join(
        [
            magic,
            struct.pack("<IIQII", version, policy, ring, data_offset, slots),
            struct.pack("<IIQQII", objects, 0, inode, device, uid, 0),
            generation.ljust(24, b"\0"),
            owner.ljust(64, b"\0"),
        ]
    )
    head += struct.pack("<I", crc32c(head))
    data = head.ljust(1024, b"\0")
    for sequence in (2, 1):
        state = struct.pack("<QQIIB3xI", sequence, 1, 0, 1, 0, 4711).ljust(60, b"\0")
        data += state + struct.pack("<I", crc32c(state))
    if size is None:
        size = SLOTS_AT + slots * SLOT + objects * ENTRY
        data = data.ljust(SLOTS_AT + slots * SLOT, b"\0")
        data += b"FREEFREE".ljust(ENTRY, b"\0") * objects
    return data[:size].ljust(size, b"\0")


def note(key: str, tenant: str = "", more: bytes = b"", cost: float = 3e6) -> bytes:
    """What the writer of a pool notes of an object."""
    parts = [struct.pack("<d", cost)]
    for part in (key.encode(), tenant.encode(), more):
        parts += [struct.pack("<I", len(part)), part]
    return b"".join(parts)


def pool_body(kind: str, parts: Sequence[bytes], key: str, largest: int, count: int = 0) -> bytes:
    """The payload of a pool's chunk, whose part number ``largest`` begins at a
    multiple of 64 bytes of the chunk."""
    packed = body(kind, parts, count)
    data = b"".join(parts)
    front = packed[: len(packed) - len(data)] + note(key)
    at = 8 + len(front) + sum(len(p) for p in parts[:largest])
    return front + bytes(-at % 64) + data

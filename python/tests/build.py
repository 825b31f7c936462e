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

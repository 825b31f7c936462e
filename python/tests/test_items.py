from __future__ import annotations

import hashlib
import math
import pickle
import random
import resource
import struct
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import build
import msgspec
import numpy as np
import pytest
from conftest import MakeSegment, golden_data, golden_files, golden_release

from ringcache import (
    CorruptError,
    Flat,
    Item,
    ItemForm,
    Reader,
    RingcacheError,
    Tensor,
    decode_item,
    decode_tensor,
    lookup,
)
from ringcache.items import MAX_DOCUMENT, Batched, Shared
from ringcache.metadata import parse

Checked = Callable[[str], None]
SERDE = golden_files("serde")


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def seqbytes(n: int, mul: int, add: int = 0) -> bytes:
    return bytes((i * mul + add) & 255 for i in range(n))


# Frames that the golden files give only as a hash.
BLOBS = {
    sha(blob): blob
    for blob in (
        seqbytes(70000, 3, 1),
        seqbytes(70000, 7),
        np.arange(400, dtype="<i4").reshape(20, 20).T.tobytes(),
        msgspec.msgpack.encode(  # many_keys of 0.13 to 0.15
            [
                {
                    "modality": "image",
                    "key": f"k{i:02}",
                    "data": build.u8(1, build.raw(bytes([i]))),
                    "field": build.BATCHED,
                }
                for i in range(18)
            ]
        ),
    )
}


def frame(row: Any) -> bytes:
    return bytes.fromhex(row) if isinstance(row, str) else BLOBS[row["sha256"]]


def describe_data(data: Any) -> Any:
    if isinstance(data, Tensor):
        raw = data.tobytes()
        shown = raw.hex() if len(raw) <= 600 else {"len": len(raw), "sha256": sha(raw)}
        return {"tensor": data.dtype, "shape": list(data.shape), "bytes": shown, "contig": True}
    if isinstance(data, float):
        return {"float": struct.pack(">d", data).hex()}
    if isinstance(data, list):
        return [describe_data(inner) for inner in data]
    return data


def describe_slices(value: Any) -> Any:
    if isinstance(value, slice):
        return {"slice": [value.start, value.stop, value.step]}
    return [describe_slices(inner) for inner in value]


def describe(item: Item, form: ItemForm) -> list[dict[str, Any]]:
    """An item in the words of the golden files."""
    out = []
    for key, elem in item.items():
        field: dict[str, Any] = {"kind": type(elem.field).__name__.lower()}
        if form is not ItemForm.POSITIONAL:
            field["keep_on_cpu"] = elem.field.keep_on_cpu
        if isinstance(elem.field, Flat):
            field["dim"] = elem.field.dim
            field["slices"] = describe_slices(elem.field.slices)
        elif isinstance(elem.field, Shared):
            field["batch_size"] = elem.field.batch_size
        out.append({"key": key, "data": describe_data(elem.data), "field": field})
    return out


@pytest.mark.parametrize("path", SERDE, ids=lambda p: p.name)
def test_items(path: Path, checked: Checked, make_segment: MakeSegment) -> None:
    generation = lookup(golden_release(path))
    for row in golden_data(path)["items"]:
        if "frames" not in row:
            assert row["err"]  # an object that the encoder refused
            continue
        parts = [frame(part) for part in row["frames"]]
        want = row["item"] if row["decoded"] == "same" else row["decoded"]
        got = describe(decode_item(parts, generation.item_form), generation.item_form)
        assert got == want, row["name"]

        # And as a whole object in a segment.
        payload = bytes(4) + bytes.fromhex(row["metadata"]) + b"".join(parts)
        assert (len(payload), sha(payload)) == (
            row["chunk_payload_len"],
            row["chunk_payload_sha256"],
        )
        ring = build.chunk(9, payload)
        name = make_segment(bytes(generation.data_offset) + ring)
        with Reader(name, len(ring), generation=generation) as reader, reader.get(0, 9) as view:
            assert describe(view.item, generation.item_form) == want, row["name"]
        checked("serde: items")


@pytest.mark.parametrize("path", SERDE, ids=lambda p: p.name)
def test_dtypes(path: Path, checked: Checked) -> None:
    for row in golden_data(path)["dtypes"]:
        assert "err" not in row
        tensor = decode_tensor([frame(part) for part in row["frames"]])
        assert tensor.dtype == row["dtype"]
        assert tensor.itemsize == row["itemsize"]
        assert tensor.nbytes == math.prod(tensor.shape) * row["itemsize"]
        raw = bytes([1, 0] * row["itemsize"])[: 2 * row["itemsize"]]
        if row["dtype"] != "bool":
            raw = seqbytes(2 * row["itemsize"], 5, 1)
        assert tensor.tobytes() == raw
        array = tensor.numpy()
        assert array.shape == tensor.shape
        assert array.tobytes() == raw
        assert not array.flags.writeable
        if tensor.is_native:
            assert array.dtype.name == row["dtype"]
        else:
            assert array.dtype.kind == "u"
        checked("serde: dtypes")


@pytest.mark.parametrize("path", SERDE, ids=lambda p: p.name)
def test_tensors_and_objects(path: Path, checked: Checked, make_segment: MakeSegment) -> None:
    generation = lookup(golden_release(path))
    data = golden_data(path)

    def stored(row: Any, parts: list[bytes]) -> Reader:
        payload = bytes(4) + bytes.fromhex(row["metadata"]) + b"".join(parts)
        assert sha(payload) == row["chunk_payload_sha256"]
        ring = build.chunk(9, payload)
        return Reader(
            make_segment(bytes(generation.data_offset) + ring), len(ring), generation=generation
        )

    for row in data["tensors"]:
        if "frames" not in row:
            assert row["err"]
            continue
        parts = [frame(part) for part in row["frames"]]
        with stored(row, parts) as reader, reader.get(0, 9) as view:
            if isinstance(row["tensor"], dict):
                assert describe_data(view.tensor) == row["tensor"]
            else:
                assert view.tensor.numpy().tolist() == [1.0, 1.0]  # requires_grad
        checked("serde: tensors")
    for row in data["objects"]:
        with stored(row, [bytes.fromhex(row["frames"])]) as reader, reader.get(0, 9) as view:
            value = pickle.loads(view.pickle)
            if isinstance(value, bytes):
                value = {"bytes": value.hex()}
            assert value == (tuple(row["value"]) if row["name"] == "tuple" else row["value"])
            with pytest.raises(TypeError, match="not an item but a pickle"):
                _ = view.item
        checked("serde: objects")


@pytest.mark.parametrize("path", SERDE, ids=lambda p: p.name)
def test_long_metadata(path: Path, checked: Checked) -> None:
    for row in golden_data(path)["misc"]:
        n = row["frames"] - 1
        lengths = [row["nbytes"] - 256 * n] + [256] * n
        md = pickle.dumps(("MultiModalKwargsItem", row["nbytes"], lengths), 5)
        if isinstance(row["metadata"], str):
            assert md.hex() == row["metadata"]
        else:
            assert (len(md), sha(md)) == (row["metadata"]["len"], row["metadata"]["sha256"])
        assert parse(memoryview(md + bytes(row["nbytes"]))).lengths == tuple(lengths)
        checked("serde: long metadata")


def test_item_is_a_mapping() -> None:
    item = decode_item(
        build.frames(
            {
                "x": build.elem([build.u8(2, build.raw(b"ab")), [build.u8(300, 1)], 5]),
                "y": build.elem(None, ["shared", {"keep_on_cpu": True, "batch_size": 4}]),
            },
            b"c" * 300,
        )
    )
    assert list(item) == ["x", "y"]
    assert len(item) == 2
    assert item["y"] == (None, Shared(4, True))
    assert item["x"].field == Batched()
    assert [(place, t.tobytes()[:2]) for place, t in item.tensors()] == [
        ("x.0", b"ab"),
        ("x.1.0", b"cc"),
    ]
    assert item.modality == ""


def test_modality_of_old_forms() -> None:
    def document(*modalities: str) -> list[bytes]:
        return build.frames(
            [
                {"modality": m, "key": f"k{i}", "data": 1, "field": ["batched", {}]}
                for i, m in enumerate(modalities)
            ]
        )

    assert decode_item(document("image", "image"), ItemForm.KEYED).modality == "image"
    with pytest.raises(CorruptError, match="2 modalities"):
        decode_item(document("image", "audio"), ItemForm.KEYED)


def test_numpy_shares_memory() -> None:
    tensor = Tensor("float32", (2, 3), memoryview(np.arange(6, dtype="<f4").tobytes()))
    array = tensor.numpy()
    assert array.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert np.shares_memory(array, np.frombuffer(tensor.data, np.uint8))
    with pytest.raises(ValueError, match="read-only"):
        array[0, 0] = 1


T = ["uint8", [1], build.raw(b"a")]


@pytest.mark.parametrize(
    "document",
    [
        1,
        None,
        "x",
        [],
        {1: build.elem(1)},
        {"x": 1},
        {"x": {}},
        {"x": {"data": 1}},
        {"x": {"field": build.BATCHED}},
        {"x": build.elem("text")},
        {"x": build.elem(b"bytes")},
        {"x": build.elem([None])},
        {"x": build.elem({"sender_id": "00000000", "message_id": 1, "tensor_id": 0})},
        {"x": build.elem(build.raw(b"a"))},
        {"x": build.elem(msgspec.msgpack.Ext(1, b"\x80\x05N."))},
        {"x": build.elem(msgspec.msgpack.Ext(2, b"\x80\x05N."))},
        {"x": build.elem(msgspec.msgpack.Ext(-1, b"\0\0\0\0"))},
        {"x": build.elem(T[:2])},
        {"x": build.elem([*T, 1])},
        {"x": build.elem(["nonesuch", [1], build.raw(b"a")])},
        {"x": build.elem(["<f4", [1], build.raw(b"aaaa")])},
        {"x": build.elem(["uint8", 1, build.raw(b"a")])},
        {"x": build.elem(["uint8", [1.0], build.raw(b"a")])},
        {"x": build.elem(["uint8", [True], build.raw(b"a")])},
        {"x": build.elem(["uint8", [-1], build.raw(b"a")])},
        {"x": build.elem(["uint8", [2], build.raw(b"a")])},
        {"x": build.elem(["uint8", [2**63, 2**63], build.raw(b"a")])},
        {"x": build.elem(["uint8", [2**63, 0], build.raw(b"")])},
        {"x": build.elem(["uint8", [1] * 65, build.raw(b"a")])},
        {"x": build.elem(["uint16", [1], build.raw(b"a")])},
        {"x": build.elem(["uint8", [1], b"a"])},
        {"x": build.elem(["uint8", [1], None])},
        {"x": build.elem(["uint8", [1], 0])},
        {"x": build.elem(["uint8", [1], 1])},
        {"x": build.elem(["uint8", [1], -1])},
        {"x": build.elem(["uint8", [1], True])},
        {"x": build.elem(1, [])},
        {"x": build.elem(1, "batched")},
        {"x": build.elem(1, ["batched"])},
        {"x": build.elem(1, ["batched", {}, 1])},
        {"x": build.elem(1, ["other", {}])},
        {"x": build.elem(1, ["batched", {"dim": 0}])},
        {"x": build.elem(1, ["batched", {"keep_on_cpu": 1}])},
        {"x": build.elem(1, ["shared", {}])},
        {"x": build.elem(1, ["shared", {"batch_size": "1"}])},
        {"x": build.elem(1, ["flat", {"dim": 0}])},
        {"x": build.elem(1, ["flat", {"slices": 1}])},
        {"x": build.elem(1, ["flat", {"slices": [1]}])},
        {"x": build.elem(1, ["flat", {"slices": [[1, 2]]}])},
        {"x": build.elem(1, ["flat", {"slices": [[1, 2, 3.0]]}])},
        {"x": build.elem(1, ["flat", {"slices": [[[1, 2, 3], 4]]}])},
        {"x": build.elem(1, ["flat", {"slices": [], "dim": None}])},
        {"x": build.elem(1, ["flat", {"slices": [], 5: 0}])},
    ],
)
def test_refuses(document: Any) -> None:
    with pytest.raises(CorruptError):
        decode_item(build.frames(document))


def test_nesting_is_bounded() -> None:
    for depth, fine in ((64, True), (65, False), (500, False)):
        data: Any = 1
        for _ in range(depth):
            data = [data]
        parts = build.frames({"x": build.elem(data)})
        if fine:
            decode_item(parts)
        else:
            with pytest.raises(CorruptError, match="nested deeper"):
                decode_item(parts)


BOMBS = {
    "array": b"\xdd\xff\xff\xff\xff",
    "array with some": b"\xdd\x7f\xff\xff\xff" + b"\xc0" * 10,
    "map": b"\xdf\xff\xff\xff\xff",
    "bin": b"\xc6\xff\xff\xff\xff",
    "str": b"\xdb\xff\xff\xff\xff",
    "ext": b"\xc9\xff\xff\xff\xff\x03",
    "nested arrays": b"\x91" * 1_000_000,
    "nested maps": b"\x81\x01" * 1_000_000,
    "nested long arrays": b"\xdd\x7f\xff\xff\xff" * 100,
    "in an elem": b"\x81\xa1x\x82\xa4data\xdd\xff\xff\xff\xff",
}


@pytest.mark.parametrize("name", BOMBS)
def test_bombs(name: str) -> None:
    """msgspec itself does not trust a declared length or depth: shown here, so
    that no guard of our own is needed in front of it."""
    tracemalloc.start()
    try:
        with pytest.raises((msgspec.DecodeError, RecursionError)):
            msgspec.msgpack.decode(BOMBS[name])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2 << 20
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 2 << 20  # KiB
    with pytest.raises(CorruptError):
        decode_item([BOMBS[name]])


def test_document_is_bounded() -> None:
    """Even the worst byte costs a bounded amount, and there is a limit on bytes."""
    n = 100_000
    tracemalloc.start()
    try:
        msgspec.msgpack.decode(b"\xdd" + struct.pack(">I", n) + b"\x80" * n)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 120 * n
    with pytest.raises(CorruptError, match="at most"):
        decode_item([bytes(MAX_DOCUMENT + 1)])


def test_no_frames() -> None:
    with pytest.raises(CorruptError, match="no frames"):
        decode_item([])


def walk(item: Item) -> None:
    for _, tensor in item.tensors():
        tensor.numpy()


@pytest.mark.parametrize("path", SERDE, ids=lambda p: p.name)
def test_damaged_items(path: Path, checked: Checked) -> None:
    """Truncated, flipped and mutated documents decode or fail in one way."""
    form = lookup(golden_release(path)).item_form
    rnd = random.Random(7)
    for row in golden_data(path)["items"]:
        if "frames" not in row:
            continue
        parts = [frame(part) for part in row["frames"]]
        main = parts[0]
        step = max(1, len(main) // 64)
        damaged = [main[:end] for end in range(0, len(main), step)]
        for _ in range(100):
            mutant = bytearray(main)
            for _ in range(rnd.choice((1, 1, 2, 4))):
                if mutant:
                    mutant[rnd.randrange(len(mutant))] = rnd.randrange(256)
            damaged.append(bytes(mutant))
        for document in damaged:
            try:
                walk(decode_item([document, *parts[1:]], form))
            except RingcacheError:
                pass
        checked("serde: items damaged")


def test_host_is_little_endian() -> None:
    """Foreign types come as bit patterns of the host; the wire is little-endian."""
    assert sys.byteorder == "little"


def test_every_frame_is_named_once() -> None:
    """Or a short document could stand for any amount of memory and of work."""
    same = build.elem([build.u8(4, 1), build.u8(4, 1)])
    with pytest.raises(CorruptError, match="frame 1 twice"):
        decode_item(build.frames({"x": same}, b"abcd"))
    with pytest.raises(CorruptError, match="nothing names frame 2"):
        decode_item(build.frames({"x": build.elem(build.u8(4, 1))}, b"abcd", b""))
    with pytest.raises(CorruptError, match="nothing names frame 1"):
        decode_tensor(build.frames(build.u8(1, build.raw(b"a")), b""))
    # Empty frames are real: vLLM's with a threshold of 0.
    item = decode_item(build.frames({"x": build.elem([build.u8(0, 1), build.u8(0, 2)])}, b"", b""))
    assert [tensor.shape for _, tensor in item.tensors()] == [(0,), (0,)]

"""What a reader remembers: it gives what a reader gives that remembers nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import build
import pytest
from conftest import MakeSegment

from ringcache import Item, Reader, RingcacheError, Tensor, metadata
from ringcache._layout import MAX_SIZES, PER_SIZE

RING = 1 << 16
AT = 64
DOCUMENT = {
    "x": build.elem([build.u8(300, 1), [build.u8(3, build.raw(b"abc")), 7], []]),
    "y": build.elem(build.u8(3, build.raw(b"def")), ["shared", {"batch_size": 3}]),
    "z": build.elem(build.u8(0, 2), ["flat", {"slices": [[0, 1, None]], "dim": 0}]),
    "n": build.elem(None),
}
PARTS = build.frames(DOCUMENT, bytes(range(100)) * 3, b"")


def ring(payload: bytes, id: int = 5) -> bytes:
    return build.segment(RING, {AT: build.chunk(id, payload)})


def shown(value: Any) -> Any:
    """What a value is, to compare."""
    if isinstance(value, Tensor):
        array = value.numpy()
        assert value.data.readonly and not array.flags.writeable and array.shape == value.shape
        return value.dtype, value.shape, value.tobytes()
    if isinstance(value, Item):
        return [(k, shown(e.data), e.field) for k, e in value.items()], value.modality
    if isinstance(value, list):
        return [shown(inner) for inner in value]
    return value


def look(reader: Reader) -> Any:
    try:
        with reader.get(AT, 5) as view:
            return shown(view.value)
    except RingcacheError as e:
        return type(e), str(e)


def write(name: str, at: int, data: bytes) -> None:
    with open(f"/dev/shm/{name}", "r+b", buffering=0) as f:
        f.seek(32 + AT + at)
        f.write(data)


@pytest.mark.parametrize(
    "payload",
    [
        build.body(build.ITEM, PARTS),
        build.pool_body(build.ITEM, PARTS, "k", 1),
        build.body("Tensor", build.frames(build.u8(300, 1), bytes(300))),
        build.body("Tensor", build.frames(build.u8(3, build.raw(b"abc")))),
        build.body("bytes", [b"pickle"]),
        bytes(4) + build.rust_metadata("Tensor", [len(p) for p in PARTS]) + b"".join(PARTS),
    ],
)
def test_same_id_with_other_bytes(make_segment: MakeSegment, payload: bytes) -> None:
    """Each bit of a chunk is changed, and changed back."""
    name = make_segment(ring(payload))
    chunk = build.chunk(5, payload)
    with Reader(name, RING) as reader, Reader(name, RING) as other:
        before = look(reader)
        for i in range(len(chunk)):
            for bit in (1, 64):
                write(name, i, bytes([chunk[i] ^ bit]))
                other._layouts.known.clear()
                assert look(reader) == look(other), f"byte {i}"
            write(name, i, chunk[i : i + 1])
            assert look(reader) == before


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """The number of times that metadata were parsed."""
    calls: list[None] = []
    parse = metadata.parse

    def counting(*a: Any) -> Any:
        calls.append(None)
        return parse(*a)

    monkeypatch.setattr(metadata, "parse", counting)
    return lambda: len(calls)


def test_decodes_once(make_segment: MakeSegment, parsed: Callable[[], int]) -> None:
    with Reader(make_segment(ring(build.body(build.ITEM, PARTS))), RING) as reader:
        first = look(reader)
        before = parsed()
        for _ in range(10):
            assert look(reader) == first
        assert parsed() == before


def test_views_share_nothing_that_changes(make_segment: MakeSegment) -> None:
    with Reader(make_segment(ring(build.body(build.ITEM, PARTS))), RING) as reader:
        before = look(reader)
        with reader.get(AT, 5) as view, reader.get(AT, 5) as other:
            data: Any = view.item["x"].data
            data[2].append(1)
            data[1].clear()
            data.pop()
            small: Any = view.item["y"].data
            small.data.release()
            view.item._elems.clear()
            assert shown(other.item) == before
            del data, small
        assert look(reader) == before


def test_two_layouts_of_one_size(make_segment: MakeSegment, parsed: Callable[[], int]) -> None:
    dtypes = ("uint1", "uint2", "uint3")
    payloads = [build.body("Tensor", build.frames([d, [300], 1], bytes(300))) for d in dtypes]
    name = make_segment(ring(payloads[0]))
    with Reader(name, RING) as reader:
        for dtype, payload in list(zip(dtypes, payloads, strict=True))[:PER_SIZE] * 2:
            write(name, 8, payload)
            assert look(reader)[0] == dtype
        assert parsed() == PER_SIZE
        write(name, 8, payloads[2])
        assert look(reader)[0] == dtypes[2]
        assert [len(layouts) for layouts in reader._layouts.known.values()] == [PER_SIZE]


def test_memory_is_bounded(make_segment: MakeSegment, parsed: Callable[[], int]) -> None:
    name = make_segment(bytes(32 + RING))
    large = build.body(build.ITEM, build.frames({f"k{i}": build.elem(i) for i in range(100)}))
    many = build.body("Tensor", build.frames(build.u8(5000, build.raw(bytes(5000)))))
    with Reader(name, RING) as reader:
        for n in range(2 * MAX_SIZES):
            payload = build.body("Tensor", build.frames(build.u8(300 + n, 1), bytes(300 + n)))
            write(name, 0, build.chunk(5, payload))
            assert look(reader)[1] == (300 + n,)
            assert len(reader._layouts.known) <= MAX_SIZES
        reader._layouts.known.clear()
        for payload in (large, many):
            write(name, 0, build.chunk(5, payload))
            assert look(reader)
        assert not reader._layouts.known


def test_limit_of_the_writer(make_segment: MakeSegment) -> None:
    payload = build.body(build.ITEM, PARTS, pad=16)
    used = len(payload) - 16
    name = make_segment(ring(payload))
    for limit, good in ((used, True), (used - 1, False)):
        with Reader(name, RING, max_object_size=limit) as reader:
            for _ in range(2):
                assert isinstance(look(reader)[0], list) == good


def test_threads_share_a_memory(make_segment: MakeSegment) -> None:
    payloads = [
        build.body("Tensor", build.frames(build.u8(300 + n, 1), bytes([n % 256]) * (300 + n)))
        for n in range(MAX_SIZES + 20)
    ]
    step = 1024
    chunks = {i * step: build.chunk(i, payload) for i, payload in enumerate(payloads)}
    name = make_segment(build.segment(len(payloads) * step, chunks))
    wrong: list[object] = []

    def read(seed: int) -> None:
        for i in range(1000):
            n = (i * 7 + seed) % len(payloads)
            with reader.get(n * step, n) as view:
                if view.tensor.tobytes() != bytes([n % 256]) * (300 + n):
                    wrong.append(n)

    with Reader(name, len(payloads) * step) as reader:
        threads = [threading.Thread(target=read, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong

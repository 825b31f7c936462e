"""Arguments of odd types: a clear error of this package, never one from inside."""

from __future__ import annotations

import array
import math
import threading
from collections import UserList
from collections.abc import Callable
from typing import Any

import build
import numpy as np
import pytest
from conftest import MakeSegment

import ringcache
from ringcache import (
    ArgumentError,
    Batched,
    CorruptError,
    HandleError,
    Item,
    Reader,
    RingcacheError,
    Segment,
    SegmentError,
    SegmentSizeError,
    StaleError,
    Tensor,
    UnknownVersionError,
    decode_address,
    decode_item,
    decode_tensor,
    lookup,
    parse_address,
    sign,
    treat_as,
    verify,
)

ODD: list[Any] = [
    None, True, 1.5, math.nan, "x", "\ud800", b"x", [], {}, set(), object(), int, 1j, [[1]], (1, 2),
    np.float32(1), np.bool_(True), np.zeros(3), np.zeros((2, 2)), print, range(3), -1, 0, 1 << 80,
]
GOOD = list(sign(build.SECRET, "k", 0, 0))


@pytest.fixture
def reader(make_segment: MakeSegment) -> Any:
    body = build.body("bytes", [b"\x80\x05N."])
    name = make_segment(build.segment(256, {0: build.chunk(0, body)}))
    with Reader(name, 256, generation="0.33.0", lock=threading.Lock()) as reader:
        yield reader


@pytest.mark.parametrize(
    "signature",
    [
        GOOD,
        tuple(GOOD),
        bytes(GOOD),
        bytearray(GOOD),
        memoryview(bytes(GOOD)),
        memoryview(bytes(GOOD)).cast("c"),
        memoryview(bytes(sum(([b, 0] for b in GOOD), [])))[::2],
        np.array(GOOD, np.uint8),
        np.array([*GOOD, 0], np.uint8)[:-1],
        array.array("B", GOOD),
        UserList(GOOD),
    ],
    ids=lambda s: type(s).__name__,
)
def test_signatures_of_every_kind(reader: Reader, signature: Any) -> None:
    """What sign() returns, what travels, and what one gets in between."""
    reader.get(0, 0, "k", signature).release()
    reader.touch(0, 0, "k", signature)
    verify(build.SECRET, "k", 0, 0, signature)
    for damaged in (signature[:31], signature[1:]):
        with pytest.raises(HandleError, match="SHM handle signature"):
            reader.get(0, 0, "k", damaged)


@pytest.mark.parametrize(
    "signature",
    [
        *ODD[1:],
        [*GOOD[:31], True],
        [*GOOD[:31], 256],
        [*GOOD[:31], float(GOOD[31])],
        [*GOOD[:31], None],
        [*GOOD[:31], np.float64(1)],
        dict.fromkeys(range(32)),
        "x" * 32,
        np.array(GOOD),
        np.array(GOOD, np.uint8).reshape(4, 8),
        np.array([float(b) for b in GOOD]),
    ],
    ids=lambda s: type(s).__name__,
)
def test_odd_signatures(reader: Reader, signature: Any) -> None:
    for call in (
        lambda: reader.get(0, 0, "k", signature),
        lambda: reader.touch(0, 0, "k", signature),
        lambda: verify(build.SECRET, "k", 0, 0, signature),
    ):
        with pytest.raises(HandleError, match="^Invalid SHM handle signature for cache key"):
            call()
    assert reader.reader_count(0, 0) == 0


@pytest.mark.parametrize("odd", ODD, ids=lambda s: type(s).__name__)
def test_odd_handles(reader: Reader, odd: Any) -> None:
    """An address, an id or a key that is none, whether or not handles are signed."""
    calls: tuple[Callable[..., object], ...] = (reader.get, reader.touch)
    for call in calls:
        for args in ((odd, 0, "k", GOOD), (0, odd, "k", GOOD), (0, 0, odd, GOOD)):
            if type(odd) is int and odd == 0 and args[2] is not odd:
                continue
            with pytest.raises((HandleError, StaleError)) as caught:
                call(*args)
            if type(odd) is not int and args[2] is not odd:
                assert f"must be an int, got {type(odd).__name__}" in str(caught.value)
    if type(odd) is not int:
        for at in ((odd, 0), (0, odd)):
            with pytest.raises(HandleError, match="must be an int"):
                reader.reader_count(*at)
    assert reader.reader_count(0, 0) == 0


def test_numpy_integers_are_integers(reader: Reader) -> None:
    for kind in (np.int64, np.uint8, np.uint64):
        reader.get(kind(0), kind(0), "k", GOOD).release()  # type: ignore[arg-type]
        assert sign(build.SECRET, "k", kind(0), kind(0)) == bytes(GOOD)  # type: ignore[arg-type]
        with reader.get(kind(0), kind(0), "k", GOOD) as view:  # type: ignore[arg-type]
            assert type(view.address) is type(view.id) is int


def odd_but(*kinds: type) -> list[Any]:
    return [odd for odd in ODD if type(odd) not in kinds]


CALLS: dict[str, tuple[Callable[..., Any], list[Any], type[RingcacheError]]] = {
    "Reader name": (lambda x: Reader(x, 256), odd_but(str), SegmentError),
    "Reader name text": (lambda x: Reader(x, 256), ["", "/", "a/b", "a\0b", "\ud800", "x" * 300], SegmentError),
    "Reader size": (lambda x: Reader("none", x), odd_but(int, type(None)), SegmentSizeError),
    "Reader size range": (lambda x: Reader("none", x), [0, -1], SegmentSizeError),
    "Reader generation": (lambda x: Reader("none", 256, generation=x), ODD, UnknownVersionError),
    "Reader n_readers": (lambda x: Reader("none", 256, n_readers=x), odd_but(int), ArgumentError),
    "Reader n_readers range": (lambda x: Reader("none", 256, n_readers=x), [0, -1], ArgumentError),
    "Reader max_object_size": (
        lambda x: Reader("none", 256, max_object_size=x), odd_but(int, type(None)), ArgumentError,
    ),
    "Reader max_object_size range": (lambda x: Reader("none", 256, max_object_size=x), [0, -1], ArgumentError),
    "Reader lock": (lambda x: Reader("none", 256, lock=x), odd_but(type(None)), ArgumentError),
    "Reader locks": (
        lambda x: Reader("none", 256, lock=x, sidecar_lock=True), [threading.Lock()], ArgumentError,
    ),
    "Segment name": (lambda x: Segment(x, 256), odd_but(str), SegmentError),
    "Segment size": (lambda x: Segment("none", x), odd_but(int), SegmentSizeError),
    "Segment data_offset": (lambda x: Segment("none", 256, data_offset=x), odd_but(int), ArgumentError),
    "Segment data_offset range": (lambda x: Segment("none", 256, data_offset=x), [-1], ArgumentError),
    "lookup": (lookup, ODD, UnknownVersionError),
    "treat_as known": (lambda x: treat_as("9.9", x), ODD, UnknownVersionError),
    "treat_as version": (lambda x: treat_as(x, "0.33.0"), odd_but(str), UnknownVersionError),
    "sign secret": (lambda x: sign(x, "k", 0, 0), odd_but(bytes), ArgumentError),
    "sign key": (lambda x: sign(build.SECRET, x, 0, 0), odd_but(str), HandleError),
    "sign address": (lambda x: sign(build.SECRET, "k", x, 0), odd_but(int), HandleError),
    "sign id": (lambda x: sign(build.SECRET, "k", 0, x), odd_but(int), HandleError),
    "verify secret": (lambda x: verify(x, "k", 0, 0, GOOD), odd_but(bytes), ArgumentError),
    "verify key": (lambda x: verify(build.SECRET, x, 0, 0, GOOD), ODD, HandleError),
    "verify address": (lambda x: verify(build.SECRET, "k", x, 0, GOOD), odd_but(int), HandleError),
    "verify id": (lambda x: verify(build.SECRET, "k", 0, x, GOOD), odd_but(int), HandleError),
    "decode_item frames": (decode_item, ODD, RingcacheError),
    "decode_item frame": (lambda x: decode_item([x]), ODD, RingcacheError),
    "decode_item frame 1": (
        lambda x: decode_item(build.frames({"x": build.elem(build.u8(9, 1))}) + [x]), ODD, RingcacheError,
    ),
    "decode_item form": (lambda x: decode_item([b"\x80"], x), ODD, ArgumentError),
    "decode_tensor frames": (decode_tensor, ODD, RingcacheError),
    "decode_tensor frame": (lambda x: decode_tensor([x]), ODD, RingcacheError),
    "decode_address frames": (decode_address, ODD, RingcacheError),
    "decode_address frame": (lambda x: decode_address([x]), ODD, RingcacheError),
    "decode_address form": (lambda x: decode_address([b"\x80"], x), ODD, ArgumentError),
    "parse_address": (parse_address, ODD, ArgumentError),
    "Item": (Item, odd_but(dict), ArgumentError),
    "Tensor dtype": (lambda x: Tensor(x, (1,), memoryview(b"a")), ODD, CorruptError),
    "Tensor shape": (lambda x: Tensor("uint8", x, memoryview(b"abcde")), ODD, CorruptError),
    "Tensor dimension": (lambda x: Tensor("uint8", (x,), memoryview(b"abcde")), ODD, CorruptError),
    "Tensor data": (lambda x: Tensor("uint8", (1,), x), ODD, CorruptError),
}


@pytest.mark.parametrize("name", CALLS)
def test_odd_arguments(name: str) -> None:
    call, values, want = CALLS[name]
    for odd in values:
        with pytest.raises(want) as caught:
            call(odd)
        assert len(str(caught.value)) > 15, f"{odd!r}: {caught.value}"


def test_every_public_function_is_here() -> None:
    tested = {name.split()[0] for name in CALLS}
    plain = {"newest", "releases"}  # without arguments
    for name in ringcache.__all__:
        thing = getattr(ringcache, name)
        if callable(thing) and not isinstance(thing, type):
            assert name in tested | plain, name


def test_address_items_of_odd_values() -> None:
    """As they may stand in an item that was made by hand, and not decoded."""
    for odd in ODD:
        for key in ("address", "monotonic_id", "signature"):
            values = {"address": 1, "monotonic_id": 2, "signature": GOOD, key: odd}
            item = Item({k: ringcache.Elem(v, Batched()) for k, v in values.items()})
            if type(odd) is list if key == "signature" else type(odd) is int and odd == 0:
                parse_address(item)
                continue
            with pytest.raises(HandleError, match="SHM handle signature"):
                parse_address(item)
    with pytest.raises(ArgumentError):
        parse_address(Item({"address": 5}))  # type: ignore[dict-item]

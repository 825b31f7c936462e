"""Handles from address items: the short way gives what the long one gives."""

from __future__ import annotations

import itertools
import random
import tracemalloc
from typing import Any

import build
import msgspec
import pytest

from ringcache import (
    ArgumentError,
    CorruptError,
    Handle,
    HandleError,
    ItemForm,
    RingcacheError,
    decode_address,
    decode_item,
    parse_address,
)

GOOD = build.address_frames("k" * 64, 123456789, 42)[0]


def outcome(decode: Any, *args: Any, **more: Any) -> Any:
    try:
        found = decode(*args, **more)
    except RingcacheError as e:
        return type(e), str(e)
    # The kinds too: True is 1, and 1.0 is.
    return found and (found, [type(x) for x in (*found[:2], *(found[2] or ()))])


def both(frames: Any, form: ItemForm = ItemForm.MAP, signed: bool = True) -> Any:
    short = outcome(decode_address, frames, form, signed=signed)
    assert short == outcome(lambda: parse_address(decode_item(frames, form), signed=signed))
    return short


def test_good(monkeypatch: pytest.MonkeyPatch) -> None:
    both([GOOD])
    for frame in (GOOD, bytearray(GOOD), memoryview(GOOD)):
        with monkeypatch.context() as m:
            m.setattr("ringcache.items.decode_item", None)
            handle = decode_address([frame])
        assert handle == parse_address(decode_item([frame]))
        assert isinstance(handle, Handle) and handle[:2] == (123456789, 42)


def test_views_that_are_not_bytes_in_a_row() -> None:
    twice = bytes(itertools.chain.from_iterable((byte, 0) for byte in GOOD))
    assert both([memoryview(twice)[::2]])[0] is ArgumentError
    assert both([memoryview(GOOD[::-1])[::-1]])[0] is ArgumentError


def test_large_frame_is_not_copied() -> None:
    large = bytearray(64 << 20)
    tracemalloc.start()
    try:
        assert both([large])[0] is CorruptError
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_other_values() -> None:
    """Each value of the document, in the place of each other."""
    values: list[Any] = [
        None, True, False, 0, 1, -1, 255, 256, 2**32 - 1, 2**32, 2**63, 2**64 - 1, 1.0, 42.0, "", "x", b"x", [], [1],
        [None], [True], [1.0], [-1], [2**40], [[1]], {}, {"keep_on_cpu": True}, {"keep_on_cpu": 0}, {"x": 1},
        ["batched", {}], ["batched", {"keep_on_cpu": True}], ["batched", {"keep_on_cpu": None}], ["batched"],
        ["batched", {"keep_on_cpu": False}, 1], ["shared", {"batch_size": 1}], ["flat", {"slices": []}],
        {"data": 5, "field": build.BATCHED}, {"data": 5, "field": build.BATCHED, "more": 1}, {"data": 5},
        ["uint8", [1], build.raw(b"x")], msgspec.msgpack.Ext(1, b"x"),
    ]  # fmt: skip
    seen = set()
    for key, part, value in itertools.product(
        ("address", "monotonic_id", "signature", "more"), (None, "data", "field", "more"), values
    ):
        document = msgspec.msgpack.decode(GOOD)
        if part is None:
            document[key] = value
        else:
            document.setdefault(key, build.elem(1))[part] = value
        seen.add(str(both([msgspec.msgpack.encode(document)])))
    assert len(seen) > 20
    for key in ("address", "monotonic_id", "signature"):
        document = msgspec.msgpack.decode(GOOD)
        del document[key]
        both([msgspec.msgpack.encode(document)])


def test_damage() -> None:
    rnd = random.Random(7)
    for i in range(len(GOOD)):
        for byte in {*rnd.randbytes(12), GOOD[i] ^ 1, GOOD[i] ^ 128}:
            both([GOOD[:i] + bytes([byte]) + GOOD[i + 1 :]])
        both([GOOD[:i]])
        both([GOOD[:i] + rnd.randbytes(1) + GOOD[i:]])


def test_a_key_that_comes_twice() -> None:
    """The last one counts, in both."""
    parts = [msgspec.msgpack.encode({k: v}) for k, v in msgspec.msgpack.decode(GOOD).items()]
    other = msgspec.msgpack.encode({"address": build.elem(9)})
    document = b"\x84" + b"".join(part[1:] for part in (*parts, other))
    handle = both([document])[0]
    assert handle.address == 9


def test_other_frames_and_forms() -> None:
    for frames in ([], [GOOD, b""], [GOOD, GOOD], [b""], [GOOD + b"\0"], (GOOD,), [bytes(2000)]):
        for signed in (True, False):
            for form in ItemForm:
                both(frames, form, signed)
    both([GOOD], signed=False)
    assert decode_address(build.frames({"x": build.elem(1)})) is None
    with pytest.raises(HandleError):
        decode_address(build.frames({"address": build.elem(1)}))
    with pytest.raises(CorruptError):
        decode_address([GOOD[:9]])
    for odd in (None, 5, "x", GOOD, [5], [None], ["x"]):
        with pytest.raises(ArgumentError):
            decode_address(odd)  # type: ignore[arg-type]
        both(odd)
    with pytest.raises(ArgumentError):
        decode_address([GOOD], "map")  # type: ignore[arg-type]

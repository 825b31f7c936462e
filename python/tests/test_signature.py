from __future__ import annotations

from collections.abc import Callable
from typing import Any

import build
import pytest
from conftest import MakeSegment, golden_data, golden_files

from ringcache import HandleError, Item, Reader, Tensor, parse_address, sign, verify
from ringcache.items import Batched, Elem
from ringcache.signature import payload

Checked = Callable[[str], None]


def data() -> Any:
    (path,) = golden_files("signatures")
    return golden_data(path)


def test_sign(checked: Checked) -> None:
    for row in data()["sign"]:
        if "signature" in row:
            args = row["key"], row["address"], row["id"]
            assert payload(*args).hex() == row["payload"]
            got = sign(bytes.fromhex(row["secret"]), *args)
            assert got.hex() == row["signature"]
            verify(bytes.fromhex(row["secret"]), *args, list(got))
        else:
            key = "\ud800" if row["key"] == "00d8" else row["key"]
            args = key, int(row["address"]), int(row["id"])
            with pytest.raises((OverflowError, UnicodeEncodeError)) as caught:
                sign(build.SECRET, *args)
            assert type(caught.value).__name__ == row["result"]["err"]
            with pytest.raises(HandleError):
                verify(build.SECRET, *args, [0] * 32)
        checked("signatures: sign")


def forms(good: list[int]) -> dict[str, Any]:
    """The signatures that the golden rows name."""
    return {
        "good": good,
        "none": None,
        "flip0": [good[0] ^ 1, *good[1:]],
        "flip31": [*good[:31], good[31] ^ 128],
        "nested": [good],
        "short": good[:31],
        "long": [*good, 0],
        "256": [256] * 32,
        "neg": [-1, *good[1:]],
        "float": [float(x) for x in good],
        "bool": [True, *good[1:]],
        "tuple": tuple(good),
        "bytes": bytes(good),
        "empty": [],
    }


def test_reader_verify(checked: Checked, make_segment: MakeSegment) -> None:
    body = build.body("bytes", [b"\x80\x05N."])
    name = make_segment(build.segment(256, {0: build.chunk(0, body)}))
    good = list(sign(build.SECRET, "k", 0, 0))
    args: dict[str, tuple[Any, ...]] = {
        form: (0, 0, "k", signature) for form, signature in forms(good).items()
    }
    args["other_key"] = (0, 0, "j", good)
    args["addr+1"] = (1, 0, "k", good)
    args["id+1"] = (0, 1, "k", good)
    args["key_none"] = (0, 0, None, good)

    # With and without a lock: a signature that is given is always checked.
    for lock in (None, _NoLock()):
        with Reader(name, 256, generation="0.32.0", lock=lock) as reader:
            for row in data()["reader_verify"]:
                for op in ("get", "touch"):
                    if op not in row:
                        continue
                    call = getattr(reader, op)
                    # They can't travel, so here they come from the caller alone.
                    if row[op] == "ok" or row["form"] in ("tuple", "bytes"):
                        view = call(*args[row["form"]])
                        if view is not None:
                            view.release()
                    else:
                        with pytest.raises(HandleError) as caught:
                            call(*args[row["form"]])
                        assert str(caught.value) == row[op]["msg"]
                    checked("signatures: reader_verify")


def test_counting_reader_needs_signature(make_segment: MakeSegment) -> None:
    body = build.body("bytes", [b"\x80\x05N."])
    name = make_segment(build.segment(256, {0: build.chunk(0, body)}))
    with Reader(name, 256, generation="0.32.0") as reader:
        reader.get(0, 0).release()
    with Reader(name, 256, generation="0.32.0", lock=_NoLock()) as reader:
        with pytest.raises(HandleError, match="Missing"):
            reader.get(0, 0)


class _NoLock:
    def __enter__(self) -> None: ...
    def __exit__(self, *_: object) -> None: ...


def test_handle_parse(checked: Checked) -> None:
    tensor = Tensor("int64", (), memoryview(bytes(8)))
    zeros = Tensor("float32", (32,), memoryview(bytes(128)))
    items: dict[str, dict[str, Any]] = {
        "none": {"x": 1},
        "no_id": {"address": 1},
        "no_sig": {"address": 1, "monotonic_id": 1},
        "ok": {"address": 1, "monotonic_id": 2, "signature": [3]},
        "float_addr": {"address": 1.0, "monotonic_id": 2, "signature": [3]},
        "bool_addr": {"address": True, "monotonic_id": 2, "signature": [3]},
        "neg": {"address": -1, "monotonic_id": 2, "signature": [3]},
        "2^64": {"address": 1 << 64, "monotonic_id": 2, "signature": [3]},
        "id2^32": {"address": 0, "monotonic_id": 1 << 32, "signature": [3]},
        "tensor_addr": {"address": tensor, "monotonic_id": 2, "signature": [3]},
        "sig_tensor": {"address": 1, "monotonic_id": 2, "signature": zeros},
    }
    for row in data()["handle_parse"]:
        item = Item({k: Elem(v, Batched()) for k, v in items[row["form"]].items()})
        if isinstance(row["r"], dict):
            with pytest.raises(HandleError) as caught:
                parse_address(item)
            assert str(caught.value) == row["r"]["msg"]
        else:
            got = parse_address(item)
            assert (None if got is None else list(got)) == row["r"]
        checked("signatures: handle_parse")


def test_unsigned_handle() -> None:
    item = Item({"address": Elem(5, Batched()), "monotonic_id": Elem(2, Batched())})
    assert parse_address(item, signed=False) == (5, 2, None)
    with pytest.raises(HandleError):
        parse_address(item)
    with pytest.raises(HandleError):
        parse_address(Item({"address": Elem(5, Batched())}), signed=False)

from __future__ import annotations

import gc
import os
import pathlib
import pickle
import random
import resource
import struct
import threading
from collections.abc import Callable
from typing import Any

import build
import numpy as np
import pytest
from conftest import MakeSegment, golden_data, golden_files, golden_release

from ringcache import (
    ClosedError,
    CorruptError,
    CounterError,
    Reader,
    RingcacheError,
    SegmentBusyError,
    StaleError,
    lookup,
    sign,
)

Checked = Callable[[str], None]
IMAGES = golden_files("ring_images")
PIXELS = bytes(range(256)) * 4


def image_item() -> list[bytes]:
    return build.frames(
        {
            "pixel_values": build.elem(build.u8(len(PIXELS), 1)),
            "grid": build.elem(["int64", [3], build.raw(struct.pack("<3q", 1, 2, 3))]),
        },
        PIXELS,
    )


def ring(size: int = 4096, at: int = 0, id: int = 5, **kw: Any) -> bytes:
    return build.segment(size, {at: build.chunk(id, build.body(build.ITEM, image_item(), **kw))})


def file(name: str) -> pathlib.Path:
    return pathlib.Path("/dev/shm", name)


def described(value: Any) -> dict[str, Any]:
    """A value in the words of the golden files."""
    if isinstance(value, bytes):
        value = pickle.loads(value)
        return {"t": "bytes", "n": len(value), "b": value[0] if value else None}
    array = value.numpy()
    return {"t": "u8", "n": array.size, "b": int(array[0])}


@pytest.mark.parametrize("path", IMAGES, ids=lambda p: p.name)
def test_ring_images(path: pathlib.Path, checked: Checked, make_segment: MakeSegment) -> None:
    """Every live object of every image is read back, and a reader's steps,
    repeated here on the image before, make the image after, to the byte."""
    generation = lookup(golden_release(path))
    for scenario in golden_data(path):
        before: str | None = None
        values: dict[str, Any] = {}
        for step in scenario["steps"]:
            op = step["op"]
            if op[0] == "put" and isinstance(step["r"], list):
                values[op[1]] = op[2]
            name = make_segment(bytes.fromhex(step["segment"]))
            with Reader(name, scenario["N"], generation=generation) as reader:
                for key, address, id in step["keys"]:
                    with reader.get(address, id) as view:
                        assert described(view.value) == values[key], (scenario["name"], op)
                    checked("ring_images: objects")
            assert file(name).read_bytes().hex() == step["segment"]

            if op[0] in ("rget", "rtouch") and step["r"] != "unsupported":
                assert before is not None
                name = make_segment(bytes.fromhex(before))
                with Reader(
                    name,
                    scenario["N"],
                    generation=generation,
                    max_object_size=scenario["max_object_size"],
                    n_readers=scenario["n_readers"],
                    lock=threading.Lock(),
                ) as reader:
                    _, _, key, address, id = op
                    signature = None
                    if generation.signed:
                        signature = list(sign(reader.secret(), key, address, id))
                    got: Any = None
                    try:
                        if op[0] == "rget":
                            with reader.get(address, id, key, signature) as view:
                                got = described(view.value)
                        else:
                            reader.touch(address, id, key, signature)
                    except RingcacheError as e:
                        got = {"err": "ValueError", "msg": str(e)}
                        assert isinstance(e, ValueError)
                if op[0] == "rtouch" and [key, address, id] not in step["keys"]:
                    # Up to 0.31 upstream touches whatever is there now; here a
                    # stale handle is refused in every generation.
                    assert "has been modified or is invalid" in got["msg"]
                    assert file(name).read_bytes().hex() == before
                else:
                    assert got == step["r"]
                    assert file(name).read_bytes().hex() == step["segment"]
                checked("ring_images: reader steps")
            before = step["segment"]


def test_signatures_of_images(checked: Checked) -> None:
    for path in IMAGES:
        for scenario in golden_data(path):
            for step in scenario["steps"]:
                if step["op"][0] == "sig" and step["r"] != "unsupported":
                    key = step["op"][1]
                    ((address, id),) = [(a, i) for k, a, i in step["keys"] if k == key]
                    got = sign(bytes.fromhex(scenario["secret"]), key, address, id)
                    assert got.hex() == step["r"]
                    checked("ring_images: signatures")


@pytest.mark.parametrize("pad", [0, 1, 63])
@pytest.mark.parametrize("at", [0, 1, 777])
def test_views_the_segment(make_segment: MakeSegment, at: int, pad: int) -> None:
    """Padding between metadata and data is legal, so is any alignment."""
    name = make_segment(ring(at=at, pad=pad))
    with Reader(name, 4096) as reader:
        view = reader.get(at + 4096, 5)  # addresses count on past the end
        array = view.item["pixel_values"].data.numpy()  # type: ignore[union-attr]
        assert array.tobytes() == PIXELS
        assert view.item["grid"].data.numpy().tolist() == [1, 2, 3]  # type: ignore[union-attr]
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
        # In place: a change of the file shows.
        with open(file(name), "r+b") as f:
            where = file(name).read_bytes().index(PIXELS)
            f.seek(where)
            f.write(b"\xee")
        assert array[0] == 0xEE
        view.check()
        view.release()
        view.release()
        for use in (lambda: view.item, lambda: view.value, view.check):
            with pytest.raises(ClosedError, match="released"):
                use()
        del array


def test_rust_metadata(make_segment: MakeSegment) -> None:
    parts = image_item()
    payload = bytes(4) + build.rust_metadata(build.ITEM, [len(p) for p in parts]) + b"".join(parts)
    name = make_segment(build.segment(4096, {0: build.chunk(1, payload)}))
    with Reader(name, 4096) as reader, reader.get(0, 1) as view:
        assert view.item["pixel_values"].data.tobytes() == PIXELS  # type: ignore[union-attr]


def test_overwritten_while_used(make_segment: MakeSegment) -> None:
    name = make_segment(ring())
    with Reader(name, 4096) as reader:
        text = "Data for address:id '0:5' has been modified or is invalid."
        with pytest.raises(StaleError) as caught:
            with reader.get(0, 5) as view:
                with open(file(name), "r+b") as f:
                    f.seek(32)
                    f.write(struct.pack("<i", 6))
        assert str(caught.value) == text
        assert (caught.value.address, caught.value.id) == (0, 5)
        again = pickle.loads(pickle.dumps(caught.value))  # crosses process borders
        assert str(again) == text
        with pytest.raises(ClosedError):
            view.check()
        # An error inside is not replaced by the check.
        with pytest.raises(KeyError), reader.get(0, 6) as view:
            view.item["nonesuch"]


def test_close_while_viewed(make_segment: MakeSegment) -> None:
    reader = Reader(make_segment(ring()), 4096)
    view = reader.get(0, 5)
    array = view.item["pixel_values"].data.numpy()  # type: ignore[union-attr]
    view.release()
    with pytest.raises(SegmentBusyError, match="delete the arrays"):
        reader.close()
    assert array.tobytes() == PIXELS
    del array
    gc.collect()
    reader.close()
    reader.close()
    with pytest.raises(ClosedError):
        reader.get(0, 5)
    with pytest.raises(ClosedError):
        view.check()


@pytest.mark.parametrize(
    ("address", "id"),
    [(0, 6), (1, 5), (4095, 5), (4085, 5), (4084, 5), (-1, 5), ((1 << 80) + 1, 5), (0, -1), (0, 1 << 40)],
)
def test_bad_handles(make_segment: MakeSegment, address: int, id: int) -> None:
    unsigned = ring()[32:]
    with Reader(make_segment(unsigned), 4096, lock=threading.Lock(), generation="0.31.0") as reader:
        for call in (reader.get, reader.touch, reader.reader_count):
            with pytest.raises(StaleError, match="has been modified or is invalid"):
                call(address, id)


@pytest.mark.parametrize("size", [-(2**31), -1, 0, 8, 11, 12, 13, 4097, 2**31 - 1])
def test_bad_chunk_size(make_segment: MakeSegment, size: int) -> None:
    data = bytearray(ring())
    struct.pack_into("<i", data, 32 + 4, size)
    name = make_segment(bytes(data))
    with Reader(name, 4096) as reader, pytest.raises(CorruptError):
        reader.get(0, 5)


def test_chunk_ends_with_the_ring(make_segment: MakeSegment) -> None:
    chunk = build.chunk(5, build.body(build.ITEM, image_item()))
    name = make_segment(build.segment(len(chunk), {0: chunk}))
    with Reader(name, len(chunk)) as reader, reader.get(0, 5) as view:
        assert view.item["pixel_values"].data.tobytes() == PIXELS  # type: ignore[union-attr]


def test_max_object_size(make_segment: MakeSegment) -> None:
    size = len(build.body(build.ITEM, image_item()))
    name = make_segment(ring(pad=16))  # padding is not part of the object
    with Reader(name, 4096, max_object_size=size) as reader:
        reader.get(0, 5).release()
    with Reader(name, 4096, max_object_size=size - 1) as reader:
        with pytest.raises(CorruptError, match=f"object is {size} bytes"):
            reader.get(0, 5)


def test_damage(make_segment: MakeSegment) -> None:
    """Every flipped bit in front of the pixels, every shortened chunk, and
    random damage: an object or a typed error, and no count without an object."""
    good = ring(2048)
    name = make_segment(good)
    end = good.index(PIXELS)
    rnd = random.Random(3)
    outcomes = {"read": 0, "refused": 0}

    def attempt(data: bytes) -> None:
        with open(file(name), "r+b") as f:
            f.write(data)
        count = data[32 + 8 : 32 + 12]
        with Reader(name, 2048, generation="0.32.0", lock=threading.Lock()) as reader:
            try:
                with reader.get(0, 5, "k", list(sign(reader.secret(), "k", 0, 5))) as view:
                    for _, tensor in view.item.tensors():
                        tensor.numpy()
                outcomes["read"] += 1
            except (RingcacheError, TypeError) as e:
                # TypeError only says that a flip made it another kind of object.
                assert isinstance(e, RingcacheError) or "not an item" in str(e)
                outcomes["refused"] += 1
                if isinstance(e, RingcacheError):
                    assert file(name).read_bytes()[32 + 8 : 32 + 12] == count

    for at in range(32 * 8, end * 8):
        data = bytearray(good)
        data[at // 8] ^= 1 << at % 8
        attempt(bytes(data))
    for size in range(0, len(good) - 32, 7):
        data = bytearray(good)
        struct.pack_into("<i", data, 32 + 4, size)
        attempt(bytes(data))
    for _ in range(1500):
        data = bytearray(good)
        for _ in range(rnd.randint(1, 6)):
            data[rnd.randrange(32, end)] = rnd.randrange(256)
        attempt(bytes(data))
    assert outcomes["refused"] > 1000
    assert outcomes["read"] > 100  # flips in the count and in names do no harm


def test_truncated_segment(make_segment: MakeSegment) -> None:
    data = ring(2048)
    for size in (0, 1, 31, 32, 33, 1000, 2079):
        with pytest.raises(RingcacheError):
            Reader(make_segment(data[:size]), 2048)


def test_observing_changes_nothing(make_segment: MakeSegment) -> None:
    name = make_segment(ring())
    before = file(name).read_bytes()
    with Reader(name, 4096) as reader:
        assert not reader.counts
        reader.touch(0, 5)
        for _ in range(3):
            with reader.get(0, 5):
                pass
        assert reader.reader_count(0, 5) == 0
    assert file(name).read_bytes() == before


@pytest.mark.parametrize("lock", [None, threading.Lock()])
def test_populate(make_segment: MakeSegment, lock: Any) -> None:
    """No page is mapped by a look any more."""
    size = 1 << 24
    name = make_segment(bytes(32 + size))

    def faults() -> int:
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

    with Reader(name, size, lock=lock) as reader:
        reader.populate()
        before = faults()
        reader._view()[::4096].tobytes()
        assert faults() - before < 64  # without it, at least one for each 16 pages
    with pytest.raises(ClosedError):
        reader.populate()


def test_touch_rules(make_segment: MakeSegment) -> None:
    """0.12 to 0.31 count a touch once every reader has read; 0.11 never, 0.32 never."""
    for version, counted in (("0.11.2", 0), ("0.12.0", 1), ("0.31.0", 1), ("0.32.0", 0)):
        generation = lookup(version)
        for count in (0, 1, 2, 3):
            offset = generation.data_offset
            payload = build.body("bytes", [b"\x80\x05N."], count=count)
            data = build.segment(256, {0: build.chunk(5, payload)})[32 - offset :]
            name = make_segment(data)
            with Reader(
                name, 256, generation=generation, n_readers=2, lock=threading.Lock()
            ) as reader:
                handle = None
                if generation.signed:
                    handle = list(sign(reader.secret(), "k", 0, 5))
                reader.touch(0, 5, "k", handle)
                want = count + (counted if count >= 2 else 0)
                assert reader.reader_count(0, 5) == want
                reader.get(0, 5, "k", handle).release()
                assert reader.reader_count(0, 5) == want + 1


def test_failed_decode_is_not_counted(make_segment: MakeSegment) -> None:
    payload = build.body(build.ITEM, [b"\xc1"])
    name = make_segment(build.segment(256, {0: build.chunk(5, payload)}, b""))
    with Reader(name, 256, generation="0.31.0", lock=threading.Lock()) as reader:
        with pytest.raises(CorruptError):
            reader.get(0, 5)
        assert reader.reader_count(0, 5) == 0


def test_close_refuses_while_a_view_is_open(make_segment: MakeSegment) -> None:
    """Or its use would never be counted, and the chunk stay for ever."""
    name = make_segment(ring())
    reader = Reader(name, 4096, lock=threading.Lock())
    view = reader.get(0, 5, "k", list(sign(reader.secret(), "k", 0, 5)))
    with pytest.raises(SegmentBusyError, match="not released"):
        reader.close()
    view.release()
    assert reader.reader_count(0, 5) == 1
    reader.close()


def test_interrupted_release_counts_later(make_segment: MakeSegment) -> None:
    class Interrupting:
        def __init__(self) -> None:
            self.interrupt = True

        def __enter__(self) -> None:
            if self.interrupt:
                raise KeyboardInterrupt

        def __exit__(self, *_: object) -> None:
            pass

    lock = Interrupting()
    with Reader(make_segment(ring()), 4096, lock=lock) as reader:
        view = reader.get(0, 5, "k", list(sign(reader.secret(), "k", 0, 5)))
        with pytest.raises(KeyboardInterrupt):
            view.release()
        lock.interrupt = False
        view.release()
        assert reader.reader_count(0, 5) == 1


def test_more_frames_than_the_document_can_name(make_segment: MakeSegment) -> None:
    lengths = [1] + [0] * 500
    payload = bytes(4) + pickle.dumps((build.ITEM, 1, lengths), 5) + b"\x80"
    name = make_segment(build.segment(4096, {0: build.chunk(5, payload)}, b""))
    with Reader(name, 4096, generation="0.31.0") as reader:
        with pytest.raises(CorruptError, match="more than the document"):
            reader.get(0, 5)


def test_counts_when_the_view_is_released(make_segment: MakeSegment) -> None:
    """Before that the writer must not free what is still looked at."""
    name = make_segment(ring())
    with Reader(name, 4096, lock=threading.Lock()) as reader:
        signature = list(sign(reader.secret(), "k", 0, 5))
        view = reader.get(0, 5, "k", signature)
        assert reader.reader_count(0, 5) == 0
        view.release()
        view.release()
        assert reader.reader_count(0, 5) == 1
        with pytest.raises(KeyError), reader.get(0, 5, "k", signature):
            raise KeyError("the user's own")
        assert reader.reader_count(0, 5) == 2


def test_count_at_its_limit(make_segment: MakeSegment) -> None:
    payload = build.body("bytes", [b"\x80\x05N."], count=2**31 - 1)
    name = make_segment(build.segment(256, {0: build.chunk(5, payload)}, b""))
    lock = threading.Lock()
    with Reader(name, 256, generation="0.31.0", lock=lock) as reader:
        with pytest.raises(CounterError):
            reader.get(0, 5).release()
        assert lock.acquire(blocking=False)  # the lock is free again


def test_options(make_segment: MakeSegment) -> None:
    name = make_segment(ring())
    with Reader(name, 4096) as reader:
        assert (reader.name, reader.size, reader.secret()) == (name, 4096, build.SECRET)
        assert reader.generation.version == "0.33.0"
    for kw in ({"n_readers": 0}, {"max_object_size": 0}, {"generation": "9.9.9"}):
        with pytest.raises(ValueError, match=r"n_readers|max_object_size|9\.9\.9"):
            Reader(name, 4096, **kw)


def test_pickles_are_never_loaded(make_segment: MakeSegment) -> None:
    class Evil:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.abort, ()  # type: ignore[return-value]

    raw = pickle.dumps(Evil(), 5)
    name = make_segment(build.segment(256, {0: build.chunk(5, build.body("bytes", [raw]))}))
    with Reader(name, 256) as reader, reader.get(0, 5) as view:
        assert view.pickle == view.value == raw


def test_single_tensor(make_segment: MakeSegment) -> None:
    parts = build.frames(["bfloat16", [2, 100], 1], bytes(400))
    name = make_segment(build.segment(1024, {0: build.chunk(5, build.body("Tensor", parts))}))
    with Reader(name, 1024) as reader, reader.get(0, 5) as view:
        assert (view.tensor.dtype, view.tensor.shape) == ("bfloat16", (2, 100))
        assert view.tensor.numpy().dtype == np.uint16
        with pytest.raises(TypeError, match="not a pickle but a tensor"):
            _ = view.pickle

from __future__ import annotations

import contextlib
import errno
import fcntl
import gc
import os
import pathlib
import random
import resource
import signal
import struct
import threading
import warnings
from collections.abc import Callable
from typing import Any

import build
import numpy as np
import pytest
import sidecarproc
from conftest import MakeSegment, make_sidecar

from ringcache import (
    ClosedError,
    CorruptError,
    LockTimeoutError,
    Reader,
    RingcacheError,
    SegmentAccessError,
    SegmentBusyError,
    SegmentError,
    SegmentNotFoundError,
    SegmentSizeError,
    StaleError,
    sidecar,
    sign,
)

RING = 4096
AT = 32  # the first place of a pool behind a secret: 64 in the segment
ID = 7
PIXELS = bytes(range(256)) * 4
SIGNATURE = list(sign(build.SECRET, "k", AT, ID))
HANDLE = (AT, ID, "k", SIGNATURE)


def parts() -> list[bytes]:
    return build.frames(
        {
            "grid": build.elem(["int64", [3], build.raw(struct.pack("<3q", 1, 2, 3))]),
            "mask": build.elem(build.u8(300, 1)),
            "pixel_values": build.elem(build.u8(len(PIXELS), 2)),
        },
        bytes(300),
        PIXELS,
    )


def chunk(id: int = ID, **kw: Any) -> bytes:
    return build.chunk(id, build.pool_body(build.ITEM, parts(), "k", 2, **kw))


def ring(id: int = ID, **kw: Any) -> bytes:
    return build.segment(RING, {AT: chunk(id, **kw)})


@pytest.fixture
def pool(make_segment: MakeSegment) -> str:
    """A segment with one object, and its sidecar with three slots."""
    name = make_segment(ring())
    make_sidecar(name, RING)
    return name


def slot(name: str, i: int = 0) -> tuple[int, ...]:
    """The mark of a slot and its words behind the first one, as the file has them."""
    data = pathlib.Path("/dev/shm", name + ".ctl").read_bytes()
    at = build.SLOTS_AT + i * build.SLOT
    _, *words = struct.unpack("<512I", data[at : at + build.SLOT])
    return (data[build.MARKS_AT + i], *words)


def store_id(name: str, id: int) -> None:
    with open(f"/dev/shm/{name}", "r+b") as f:
        f.seek(32 + AT)
        f.write(struct.pack("<I", id))


def locked(name: str, at: int) -> bool:
    """Whether someone has the lock of a byte of the sidecar."""
    with open(f"/dev/shm/{name}.ctl", "r+b") as f:
        asked = struct.pack("hhqqi0q", fcntl.F_WRLCK, 0, at, 1, 0)
        kind, *_ = struct.unpack("hhqqi0q", fcntl.fcntl(f, fcntl.F_OFD_GETLK, asked))
    return bool(kind != fcntl.F_UNLCK)


def test_crc() -> None:
    assert sidecar.crc32c(b"123456789") == 0xE3069283
    for n in range(200):
        data = random.Random(n).randbytes(n)
        assert sidecar.crc32c(data) == build.crc32c(data)


def test_slot(pool: str) -> None:
    """Every step of a reader in its slot."""
    before = pathlib.Path("/dev/shm", pool + ".ctl").read_bytes()
    with Reader(pool, RING) as reader:
        assert reader.protected and not reader.counts
        assert slot(pool) == (1, 0, os.getpid(), 0, *[0] * 508)
        assert [locked(pool, build.SLOTS_AT + i * build.SLOT) for i in range(3)] == [
            True,
            False,
            False,
        ]
        with reader.get(*HANDLE) as first, reader.get(AT + RING, ID) as second:
            assert slot(pool) == (1, 2, os.getpid(), 0, ID + 1, ID + 1, *[0] * 506)
            first.release()
            assert slot(pool)[4:7] == (0, ID + 1, 0)
            first.release()
            second.check()
            assert slot(pool)[4:7] == (0, ID + 1, 0)
            third = reader.get(*HANDLE)  # a place that is free comes first
            assert slot(pool)[:7] == (1, 2, os.getpid(), 0, ID + 1, ID + 1, 0)
            third.release()
        assert slot(pool)[4:] == (0,) * 508
    assert not locked(pool, build.SLOTS_AT)
    assert pathlib.Path("/dev/shm", pool + ".ctl").read_bytes() == before
    with pytest.raises(ClosedError):
        reader.get(*HANDLE)


def test_nothing_but_the_slot_changes(pool: str) -> None:
    before = pathlib.Path("/dev/shm", pool).read_bytes()
    control = pathlib.Path("/dev/shm", pool + ".ctl").read_bytes()
    with Reader(pool, RING) as reader, reader.get(*HANDLE):
        now = pathlib.Path("/dev/shm", pool + ".ctl").read_bytes()
        begin = build.SLOTS_AT
        mark, end = build.MARKS_AT + 1, begin + build.SLOT
        assert now[: mark - 1] + now[mark:begin] + now[end:] == (
            control[: mark - 1] + control[mark:begin] + control[end:]
        )
    assert pathlib.Path("/dev/shm", pool).read_bytes() == before


class SpyLock:
    """Notes each step with the slot's first hold as it is then."""

    def __init__(self, note: Callable[[str], None]) -> None:
        self.lock, self.note = threading.Lock(), note

    def __enter__(self) -> None:
        self.lock.acquire()
        self.note("take")

    def __exit__(self, *_: object) -> None:
        self.note("give")
        self.lock.release()


def test_held_before_the_header_is_compared(pool: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Store, barrier, load; and at the end load, barrier, store. A barrier is a lock that is
    given back and taken again."""
    steps: list[tuple[str, int]] = []

    def note(step: str) -> None:
        steps.append((step, slot(pool)[4]))

    compare, chunk = Reader._check_id, Reader._chunk

    def spy_compare(*a: Any, **kw: Any) -> None:
        note("compare")
        compare(*a, **kw)

    def spy_chunk(*a: Any) -> tuple[int, int]:
        note("compare")
        return chunk(*a)

    held = ID + 1
    with Reader(pool, RING) as reader:
        assert reader._slot
        monkeypatch.setattr(reader._slot, "_holding", SpyLock(note))
        monkeypatch.setattr(Reader, "_check_id", spy_compare)
        monkeypatch.setattr(Reader, "_chunk", spy_chunk)
        view = reader.get(*HANDLE)
        assert steps[:5] == [
            ("take", 0),
            ("give", held),
            ("take", held),
            ("give", held),
            ("compare", held),
        ]
        assert {step for step, _ in steps[4:]} == {"compare"}
        steps.clear()
        view.check()
        view.release()
        assert steps == [
            ("compare", held),
            ("take", held),
            ("give", held),
            ("take", held),
            ("give", 0),
        ]
        monkeypatch.undo()
    assert slot(pool)[4] == 0


def test_failed_get_holds_nothing(pool: str) -> None:
    with Reader(pool, RING) as reader:
        for handle in (
            (AT, ID + 1),
            (AT + 64, ID),
            (AT, -1),
            (AT, 1 << 31),
            (AT, 1 << 32),
            (-1, ID),
        ):
            with pytest.raises(StaleError):
                reader.get(*handle)
            assert slot(pool)[4:] == (0,) * 508
        with open(f"/dev/shm/{pool}", "r+b") as f:
            f.seek(32 + AT + 12)
            f.write(b"\xff")
        with pytest.raises(CorruptError):
            reader.get(*HANDLE)
        assert slot(pool)[4:] == (0,) * 508


def test_as_many_views_as_places(pool: str) -> None:
    with Reader(pool, RING) as reader:
        views = [reader.get(*HANDLE) for _ in range(sidecar.MAX_HOLDS)]
        assert slot(pool)[4:] == (ID + 1,) * 508
        with pytest.raises(SegmentBusyError, match="508 views are open"):
            reader.get(*HANDLE)
        views.pop().release()
        views.append(reader.get(*HANDLE))
        for view in views:
            view.release()
        assert slot(pool)[4:] == (0,) * 508


def test_slots_run_out(pool: str) -> None:
    """Then a reader reads as from a segment without slots."""
    with contextlib.ExitStack() as stack:
        readers = [stack.enter_context(Reader(pool, RING)) for _ in range(4)]
        assert [r.protected for r in readers] == [True, True, True, False]
        files = len(os.listdir("/proc/self/fd"))
        late = stack.enter_context(Reader(pool, RING, lock=threading.Lock()))
        assert not late.protected
        assert len(os.listdir("/proc/self/fd")) == files + 1  # of the mapping
        view = late.get(*HANDLE)
        assert view.item["pixel_values"].data.tobytes() == PIXELS  # type: ignore[union-attr]
        assert late.reader_count(AT, ID) == 0
        view.release()
        assert late.reader_count(AT, ID) == 1
        readers[1].close()
        assert stack.enter_context(Reader(pool, RING)).protected
        assert slot(pool, 1)[0] == 1


def test_slot_of_a_dropped_reader(pool: str) -> None:
    reader = Reader(pool, RING)
    assert locked(pool, build.SLOTS_AT)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        del reader
        gc.collect()
    assert not locked(pool, build.SLOTS_AT)


def test_slot_of_a_dead_reader(pool: str) -> None:
    with sidecarproc.child(sidecarproc.view, pool, RING, *HANDLE) as (kill, told):
        pid, protected, id = told
        assert (protected, id) == (True, ID)
        assert slot(pool)[:5] == (1, 1, pid, 0, ID + 1)
        with Reader(pool, RING):
            assert slot(pool, 1)[2] == os.getpid()
        kill()
        assert slot(pool)[:5] == (1, 1, pid, 0, ID + 1)  # nobody tidied up
        with Reader(pool, RING) as reader:
            assert reader.protected
            assert slot(pool) == (1, 0, os.getpid(), *[0] * 509)


def test_counts_when_it_gets(pool: str) -> None:
    for kw in ({"lock": threading.Lock()}, {"sidecar_lock": True}):
        with Reader(pool, RING, **kw) as reader:
            assert reader.protected and reader.counts
            before = reader.reader_count(AT, ID)
            view = reader.get(*HANDLE)
            assert reader.reader_count(AT, ID) == before + 1
            view.release()
            assert reader.reader_count(AT, ID) == before + 1
            assert not locked(pool, 512)


def test_counts_at_release_without_a_slot(make_segment: MakeSegment) -> None:
    for kw in ({"policy": build.FIFO}, {"slots": 0}):
        name = make_segment(ring())
        make_sidecar(name, RING, **kw)
        with Reader(name, RING, sidecar_lock=True) as reader:
            assert not reader.protected
            view = reader.get(*HANDLE)
            assert reader.reader_count(AT, ID) == 0
            view.release()
            assert reader.reader_count(AT, ID) == 1
            reader.touch(*HANDLE)


def test_a_get_that_cannot_count(make_segment: MakeSegment) -> None:
    name = make_segment(ring(count=2**31 - 1))
    make_sidecar(name, RING)
    with Reader(name, RING, sidecar_lock=True) as reader:
        with pytest.raises(RingcacheError, match="at its limit"):
            reader.get(*HANDLE)
        assert slot(name)[4:] == (0,) * 508
        assert not locked(name, 512)


def test_no_count_is_lost(pool: str) -> None:
    rounds, processes = 300, 3
    with contextlib.ExitStack() as stack:
        for _ in range(processes):
            stack.enter_context(sidecarproc.child(sidecarproc.count, pool, RING, rounds, *HANDLE))
        with Reader(pool, RING) as reader:
            assert reader.reader_count(AT, ID) == processes * 2 * rounds


def test_lock_of_a_dead_reader(pool: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sidecar, "LOCK_SECONDS", 0.1)
    with sidecarproc.child(sidecarproc.lock, pool, RING) as (kill, _):
        with Reader(pool, RING, sidecar_lock=True) as reader:
            with pytest.raises(LockTimeoutError, match=r"not free within 0.1 s") as caught:
                reader.get(*HANDLE)
            assert isinstance(caught.value, TimeoutError)
            assert reader.reader_count(AT, ID) == 0
            kill()
            reader.get(*HANDLE).release()
            assert reader.reader_count(AT, ID) == 1


def test_lock_among_threads(pool: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """For the kernel all threads of a reader are one."""
    monkeypatch.setattr(sidecar, "LOCK_SECONDS", 0.1)
    with Reader(pool, RING, sidecar_lock=True) as reader:
        assert reader._lock
        errors: list[BaseException] = []

        def get() -> None:
            try:
                reader.get(*HANDLE)
            except RingcacheError as e:
                errors.append(e)

        with reader._lock:
            thread = threading.Thread(target=get)
            thread.start()
            thread.join()
        assert [type(e) for e in errors] == [LockTimeoutError]
        reader.get(*HANDLE).release()


def test_fork(pool: str) -> None:
    """A forked child can't use the reader, can't change its holds, and does not
    keep its slot."""
    with sidecarproc.child(sidecarproc.fork, pool, RING, *HANDLE) as (kill, told):
        grandchild, (get, enter, check, release, close) = told
        try:
            assert get.startswith("ClosedError: reader with the sidecar")
            assert "opened before a fork" in get and "opened before a fork" in enter
            assert (check, release, close) == ("", "", "")
            assert slot(pool)[4] == ID + 1  # the parent's
            assert locked(pool, build.SLOTS_AT)
            kill()
            os.kill(grandchild, 0)  # lives
            assert not locked(pool, build.SLOTS_AT)
        finally:
            os.kill(grandchild, signal.SIGKILL)


def test_id_that_is_away(pool: str) -> None:
    """The writer takes ids away, looks at the holds, and gives some back."""
    with Reader(pool, RING) as reader:
        view = reader.get(*HANDLE)
        store_id(pool, 0xFFFFFFFF)
        with pytest.raises(StaleError):  # for others it is gone
            reader.get(*HANDLE)
        view.check()
        store_id(pool, ID + 1)
        with pytest.raises(StaleError):
            view.check()
        view.release()
    assert slot(pool)[4] == 0


def test_dead_id_is_no_id(make_segment: MakeSegment) -> None:
    """Read as an int32 it is -1."""
    name = make_segment(ring(id=-1))
    with Reader(name, RING) as reader:
        for id in (-1, 0xFFFFFFFF, ID):
            with pytest.raises(StaleError):
                reader.get(AT, id)


def test_note_and_padding(pool: str) -> None:
    """What stands between metadata and data is nobody else's business."""
    with Reader(pool, RING) as reader, reader.get(*HANDLE) as view:
        pixels = view.item["pixel_values"].data.numpy()  # type: ignore[union-attr]
        assert pixels.tobytes() == PIXELS
        assert pixels.ctypes.data % 64 == 0
        assert view.item["grid"].data.numpy().tolist() == [1, 2, 3]  # type: ignore[union-attr]
        assert view.item["mask"].data.numpy().tolist() == [0] * 300  # type: ignore[union-attr]
        del pixels


def test_note_in_a_pickle_and_a_tensor(make_segment: MakeSegment) -> None:
    pickled = build.chunk(1, build.pool_body("bytes", [b"\x80\x05N."], "p", 0))
    array = np.arange(100, dtype="<i8")
    tensor = build.frames(["int64", [100], 1], array.tobytes())
    at = AT + (len(pickled) + 63) // 64 * 64
    single = build.chunk(2, build.pool_body("Tensor", tensor, "t" * 500, 1))
    name = make_segment(build.segment(RING, {AT: pickled, at: single}))
    make_sidecar(name, RING)
    with Reader(name, RING) as reader:
        with reader.get(AT, 1) as view:
            assert view.pickle == b"\x80\x05N."
        with reader.get(at, 2) as view:
            assert view.tensor.numpy().tolist() == array.tolist()


def test_no_sidecar(make_segment: MakeSegment) -> None:
    name = make_segment(ring())
    with Reader(name, RING) as reader:
        assert not reader.protected
        reader.get(*HANDLE).release()
    with pytest.raises(SegmentNotFoundError, match=r"no sidecar"):
        Reader(name, RING, sidecar_lock=True)
    with pytest.raises(ValueError, match="both set"):
        Reader(name, RING, sidecar_lock=True, lock=threading.Lock())


def test_name_too_long_for_a_sidecar() -> None:
    name = "r" * 252
    file = pathlib.Path("/dev/shm", name)
    with open(os.open(file, os.O_CREAT | os.O_WRONLY, 0o600), "wb") as f:
        f.write(ring())
    try:
        with Reader(name, RING) as reader:
            assert not reader.protected
            reader.get(*HANDLE).release()
    finally:
        file.unlink()


def test_read_only_mount(pool: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.open

    def refuse(file: Any, flags: int, *a: Any) -> int:
        if flags & os.O_ACCMODE != os.O_RDONLY:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), file)
        return real(file, flags, *a)

    monkeypatch.setattr(os, "open", refuse)
    with Reader(pool, RING) as reader:
        assert not reader.protected
        reader.get(*HANDLE).release()
    with pytest.raises(SegmentError, match="Read-only"):
        Reader(pool, RING, sidecar_lock=True)


BAD: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "magic": ({"magic": b"RINGCTL1"}, CorruptError, "begin as one"),
    "version 0": ({"version": 0}, CorruptError, "layout version 0, this package knows 1"),
    "version 2": ({"version": 2}, CorruptError, "layout version 2"),
    "policy 0": ({"policy": 0}, CorruptError, "policy 0"),
    "policy 3": ({"policy": 3}, CorruptError, "policy 3"),
    "ring": ({"ring": RING + 32}, SegmentSizeError, "ring of 4128 bytes behind 32, expected 4096"),
    "data offset": ({"data_offset": 0}, SegmentSizeError, "behind 0"),
    "slots": ({"slots": 4097}, CorruptError, "4097 slots"),
    "all slots": ({"slots": 2**32 - 1, "size": 1 << 20}, CorruptError, "slots"),
    "slots that are not there": (
        {"slots": 4096, "size": 8192},
        CorruptError,
        "8192 bytes for 4096",
    ),
    "objects": ({"objects": 2**24 + 1, "size": 1 << 20}, CorruptError, "16777217 objects"),
    "fewer objects": ({"size": 8192 + 3 * 2048 + 4 * 64}, CorruptError, "bytes for 3 slots and 5"),
    "more objects": ({"size": 8192 + 3 * 2048 + 6 * 64}, CorruptError, "bytes for 3 slots and 5"),
    "empty": ({"size": 0}, CorruptError, "begin as one"),
    "a header only": ({"size": 156}, CorruptError, "begin as one"),
    "short": ({"size": 4095}, CorruptError, "begin as one"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_sidecar(make_segment: MakeSegment, what: str) -> None:
    fields, error, text = BAD[what]
    fields = dict(fields)
    name = make_segment(ring())
    if "slots" in fields:
        fields.setdefault("size", 8192 + 64 * 5 + 2048 * fields["slots"])
    make_sidecar(name, fields.pop("ring", RING), **fields)
    gc.collect()
    files = os.listdir("/proc/self/fd")
    for _ in range(3):
        with pytest.raises(error, match=text):
            Reader(name, RING)
    gc.collect()
    assert os.listdir("/proc/self/fd") == files


def test_sidecar_of_another_segment(make_segment: MakeSegment) -> None:
    """Left by one of this name that is gone."""
    name = make_segment(ring())
    info = os.stat(f"/dev/shm/{name}")
    for identity in ((1, info.st_ino), (info.st_dev, 1)):
        sidecar = make_sidecar(name, RING, identity=identity)
        with Reader(name, RING) as reader:
            assert not reader.protected
        with pytest.raises(SegmentError, match="sidecar"):
            Reader(name, RING, sidecar_lock=True)
        sidecar.unlink()


def test_bad_checksum(pool: str) -> None:
    file = pathlib.Path("/dev/shm", pool + ".ctl")
    good = file.read_bytes()
    for at in range(156):
        for bit in (0, 7):
            data = bytearray(good)
            data[at] ^= 1 << bit
            file.write_bytes(data)
            with pytest.raises(CorruptError, match="not a usable sidecar"):
                Reader(pool, RING)
    file.write_bytes(good)
    with Reader(pool, RING) as reader:
        assert reader.protected


def test_what_a_reader_does_not_need(pool: str) -> None:
    """Damage outside the header and the own slot does no harm."""
    file = pathlib.Path("/dev/shm", pool + ".ctl")
    good = file.read_bytes()
    rnd = random.Random(5)
    for _ in range(20):
        file.write_bytes(good[:160] + rnd.randbytes(len(good) - 160))
        with Reader(pool, RING, sidecar_lock=True) as reader:
            assert reader.protected
            with reader.get(*HANDLE):
                assert slot(pool) == (1, 1, os.getpid(), 0, ID + 1, *[0] * 507)


def test_damage_takes_no_work_and_no_memory(
    make_segment: MakeSegment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any header with a right checksum: a reader or a typed error, at once."""
    tried: list[int] = []
    try_byte = sidecar.Sidecar.try_byte

    def counting(self: sidecar.Sidecar, at: int) -> bool:
        tried.append(at)
        return try_byte(self, at)

    monkeypatch.setattr(sidecar.Sidecar, "try_byte", counting)
    name = make_segment(ring())
    file = make_sidecar(name, RING)
    good = file.read_bytes()
    rnd = random.Random(7)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(1000):
        head = bytearray(good[:152])
        for _ in range(rnd.randint(1, 4)):
            at = rnd.randrange(8, 88) // 4 * 4
            value = rnd.choice([0, 1, 2, 3, 64, 4096, 2**31, 2**32 - 1, rnd.getrandbits(32)])
            struct.pack_into("<I", head, at, value)
        file.write_bytes(head + struct.pack("<I", build.crc32c(bytes(head))) + good[156:])
        os.truncate(file, rnd.choice([len(good), len(good), 1 << 33]))  # sparse
        with contextlib.suppress(RingcacheError), Reader(name, RING) as reader:
            reader.get(*HANDLE).release()
    assert 0 < len(tried) < 4 * 1000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak < 50 << 10  # KiB


def test_unsafe_sidecar(pool: str) -> None:
    """What holds for the file of a segment holds for this one."""
    file = pathlib.Path("/dev/shm", pool + ".ctl")
    good = file.read_bytes()
    file.chmod(0o602)
    with pytest.raises(SegmentAccessError, match="writable by every user"):
        Reader(pool, RING)
    file.unlink()
    file.symlink_to(pool)
    with pytest.raises(SegmentAccessError, match="symbolic link"):
        Reader(pool, RING)
    file.unlink()
    os.mkfifo(file, 0o600)
    with pytest.raises(SegmentAccessError, match="not a regular file"):
        Reader(pool, RING)
    file.unlink()
    if os.geteuid() == 0:
        file.write_bytes(good)
        file.chmod(0o600)
        os.chown(file, 12345, -1)
        with pytest.raises(SegmentAccessError, match="belongs to user 12345"):
            Reader(pool, RING)

"""Segments that the Go library's writer makes, with its program ``ringcache``."""

from __future__ import annotations

import os
import pathlib
import struct
import threading
import time
import uuid
from typing import Any

import build
import pytest
import sidecarproc
from conftest import OBJECT as SIZE
from conftest import RING, Agent
from test_daemon import Daemon, eventually, real  # noqa: F401

from ringcache import (
    ArgumentError,
    CorruptError,
    Reader,
    SegmentError,
    SegmentNotFoundError,
    StaleError,
)
from ringcache.daemon import Client


def test_layout(agent: Agent, pool: str) -> None:
    """What the other tests build is what the writer makes."""
    info, file = os.stat(f"/dev/shm/{pool}"), pathlib.Path("/dev/shm", pool + ".ctl")
    data = file.read_bytes()
    slots, objects = struct.unpack_from("<II", data, 28)
    want = build.sidecar(
        (info.st_dev, info.st_ino),
        RING,
        slots=slots,
        objects=objects,
        uid=os.geteuid(),
        generation=b"0.33.0",
        owner=b"o",
    )
    assert data[:1024] == want[:1024]
    assert len(data) == len(want)
    assert data[4096:] == want[4096:]
    address, id, key, _ = agent.put("k", 7)
    chunk = build.chunk(
        id, build.pool_body("Tensor", build.frames(build.u8(SIZE, 1), bytes([7]) * SIZE), key, 1)
    )
    got = bytearray(pathlib.Path("/dev/shm", pool).read_bytes()[32 + address :][: len(chunk)])
    note = build.note(key)
    cost = got.index(note[8:], 12) - 8  # its first field depends on the size
    got[cost : cost + 8] = note[:8]
    assert got == chunk
    # The entry of the table.
    entry = file.read_bytes()[build.SLOTS_AT + slots * 2048 :][:64]
    body = build.crc32c(entry[8:40])
    assert struct.unpack_from("<IIQIIII", entry) == (
        body,
        body ^ 0xFFFFFFFF,
        address,
        id,
        len(chunk),
        cost - 8,
        len(note),
    )
    (use,) = struct.unpack_from("<Q", entry, 40)
    check = build.crc32c(struct.pack("<QI", use & ~(0x3FFFFFFF << 32), 0))
    assert use >> 32 & 0x3FFFFFFF == check & 0x3FFFFFFF
    chunk_now = pathlib.Path("/dev/shm", pool).read_bytes()[32 + address :][: len(chunk)]
    assert struct.unpack_from("<I", entry, 32)[0] == build.payload_sum(
        chunk_now[8:], cost - 8 + len(note)
    )


def test_evict_waits_for_the_view(agent: Agent, pool: str) -> None:
    handle = agent.put("k", 7)
    with Reader(pool, RING, sidecar_lock=True) as reader:
        assert reader.protected
        view = reader.get(*handle)
        assert reader.reader_count(*handle[:2]) == 1
        array = view.tensor.numpy()
        assert not agent.evict("k")
        view.check()
        assert array.tobytes() == bytes([7]) * SIZE
        del array
        view.release()
        assert agent.evict("k")
        with pytest.raises(StaleError):
            reader.get(*handle)


def test_evict_does_not_wait_for_the_dead(agent: Agent, pool: str) -> None:
    handle = agent.put("k", 7)
    with sidecarproc.child(sidecarproc.view, pool, RING, *handle) as (kill, told):
        assert told[1:] == (True, handle[1])
        assert not agent.evict("k")
        kill()
        assert agent.evict("k")


def test_slots_are_shared_with_go(agent: Agent, pool: str) -> None:
    """A Go reader takes one, a Python reader the next."""
    agent("store.open", store="r", name=pool, size=RING, max_object=RING, readers=2)
    with Reader(pool, RING) as reader:
        assert reader.protected
        data = pathlib.Path("/dev/shm", pool + ".ctl").read_bytes()
        taken = [
            (data[build.MARKS_AT + i], *struct.unpack_from("<8xI", data, build.SLOTS_AT + i * 2048))
            for i in range(3)
        ]
        assert taken == [(1, agent.process.pid), (1, os.getpid()), (0, 0)]
    agent("store.close", store="r")


def test_only_its_own_bytes(agent: Agent, pool: str) -> None:
    """A reader that comes late for objects which nobody keeps: they are stale, or
    right until the release, however hard the writer looks for room."""
    size = 60_000  # few fit
    newest: list[tuple[int, tuple[int, int, str, list[int]]]] = []
    stop = threading.Event()
    outcomes = {"right": 0, "stale": 0}
    wrong: list[str] = []

    def read(seed: int) -> None:
        with Reader(pool, RING) as reader:
            n = seed
            while not stop.is_set():
                n += 1
                if not newest:
                    continue
                fill, handle = newest[-1 - n % min(len(newest), 20)]
                try:
                    view = reader.get(*handle)
                except StaleError:
                    outcomes["stale"] += 1
                    continue
                array = view.tensor.numpy()
                for _ in range(3):
                    if array.min() != fill or array.max() != fill:
                        wrong.append(f"object {handle[1]}: {array.min()} to {array.max()}")
                    time.sleep(0)
                del array
                try:
                    view.check()
                except StaleError:
                    wrong.append(f"object {handle[1]} was evicted while it was held")
                view.release()
                outcomes["right"] += 1

    threads = [threading.Thread(target=read, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    try:
        end = time.monotonic() + 2
        late = end + 300  # of a machine that has other things to do
        n = 0
        while (now := time.monotonic()) < end or (
            now < late and (n <= 50 or min(outcomes.values()) <= 10)
        ):
            fill = n % 251
            newest.append((fill, agent.put(f"k{n}", fill, size)))
            n += 1
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not wrong, wrong[:3]
    assert n > 50 and min(outcomes.values()) > 10, (n, outcomes)


def test_writer_killed(agent: Agent, program: str) -> None:
    """Readers go on while another writer takes the segment over."""
    other = Agent(program)
    name = f"ringcache-test-{uuid.uuid4()}"
    options: dict[str, Any] = {"name": name, "size": RING, "max_object": RING, "readers": 2}
    try:
        other("store.create", policy="pool", **options)
        handle = other.put("k", 7)
        with Reader(name, RING) as reader:
            view = reader.get(*handle)
            other.process.kill()
            other.process.wait(300)
            assert agent("store.adopt", **options)["kept"] == 1
            view.check()
            assert not agent.evict("k")
            view.release()
            assert agent.evict("k")
        agent("store.close")
    finally:
        other.process.kill()
        other.process.wait(300)
        for file in (name, name + ".ctl"):
            pathlib.Path("/dev/shm", file).unlink(missing_ok=True)


def test_the_sidecar_knows_the_size(agent: Agent, pool: str) -> None:
    handle = agent.put("k", 7)
    with Reader(pool) as reader:
        assert reader.size == RING
        with reader.get(*handle) as view:
            assert bytes(view.tensor.numpy()) == bytes([7]) * SIZE


def test_help_says_what_the_reader_takes() -> None:
    text = Reader.__init__.__doc__ or ""
    for name in ("name", "size", "generation", "max_object_size", "n_readers", "lock", "sidecar_lock"):
        assert f":param {name}:" in text


def test_no_sidecar_no_size(make_segment: Any) -> None:
    name = make_segment(bytes(4096))
    with pytest.raises(ArgumentError, match="no sidecar .* give size") as caught:
        Reader(name)
    # Names that there are.
    assert "`Options.RingSize` in Go" in str(caught.value)
    assert "`ring_buffer.data_buffer_size` in vLLM" in str(caught.value)
    with pytest.raises(SegmentNotFoundError):
        Reader("ringcache-test-none")


def test_the_ring_of_another_format(agent: Agent, pool: str, real: Daemon) -> None:  # noqa: F811
    """No size was given, so none is wrong."""
    with Client(real.socket, client="test", space="s", timeout=30) as c:
        eventually(c.hello)
    with pytest.raises(SegmentError) as caught:
        Reader(real.name)
    assert str(caught.value) == (
        f"segment {real.name!r} has no ring of vLLM 0.33.0: its sidecar says that it is of 'tier/1', with 64 bytes "
        "in front of the ring, not 32. It is a store with levels, such as that of `ringcache serve`"
    )
    with pytest.raises(SegmentError) as caught:
        Reader(pool, generation="0.31.0")
    assert str(caught.value) == (
        f"segment {pool!r} has no ring of vLLM 0.31.0: its sidecar says that it is of '0.33.0', with 32 bytes "
        "in front of the ring, not 0. Give the writer's generation"
    )


def test_the_sidecar_of_another_segment(agent: Agent, pool: str, make_segment: Any) -> None:
    """One that is left over, or damaged, is not believed."""
    data = pathlib.Path("/dev/shm", pool + ".ctl").read_bytes()
    name = make_segment(bytes(4096))
    control = pathlib.Path("/dev/shm", name + ".ctl")
    try:
        control.write_bytes(data)
        control.chmod(0o600)
        with pytest.raises(ArgumentError, match="give size"):
            Reader(name)
        control.write_bytes(data[:16] + b"\xff" + data[17:])
        with pytest.raises(CorruptError, match="checksum"):
            Reader(name)
        control.write_bytes(b"")
        with pytest.raises(CorruptError, match="does not begin as one"):
            Reader(name)
    finally:
        control.unlink()

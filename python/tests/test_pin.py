"""Copies from the ring to a device, whose driver is the fake one.

Tests with torch's tensors are in test_pin_torch.py.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import logging
import os
import pathlib
import pickle
import random
import shutil
import subprocess
import sys
import threading
import time
import traceback
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import build
import numpy as np
import pytest
from conftest import RING, Agent, MakeSegment, make_sidecar
from fakecuda import Fake, Memory

from ringcache import (
    ArgumentError,
    ClosedError,
    DriverError,
    LockTimeoutError,
    PinUnavailableError,
    Reader,
    RingcacheError,
    Segment,
    SegmentBusyError,
    SegmentError,
    StaleError,
    sidecar,
    sign,
)
from ringcache.cuda import Driver
from ringcache.pin import Lease, Staging

SRC = pathlib.Path(__file__).resolve().parents[1] / "src"
SIZE = 1 << 16
OBJECTS = 8
BYTES = 4000  # of an object's tensor
FOREVER = 300.0  # seconds, for what ends at once


def content(id: int) -> bytes:
    return random.Random(id).randbytes(BYTES)


def payload(id: int, data: bytes | None = None) -> bytes:
    parts = build.frames(build.u8(BYTES, 1), data or content(id))
    return build.chunk(id, build.body("Tensor", parts))


def address_of(id: int) -> int:
    return (id - 1) * SIZE // OBJECTS + 64


@pytest.fixture
def name(make_segment: MakeSegment) -> str:
    """A segment with the objects 1 to OBJECTS."""
    ids = range(1, OBJECTS + 1)
    return make_segment(build.segment(SIZE, {address_of(id): payload(id) for id in ids}))


def get(staging: Staging, id: int = 1) -> Lease:
    signature = list(sign(staging._reader.secret(), "k", address_of(id), id))
    return staging.get(address_of(id), id, "k", signature)


def copy(lease: Lease, to: Memory) -> None:
    lease.copy_raw(lease.view.tensor.data, to.address)


def overwrite(name: str, at: int, data: bytes) -> None:
    """What a writer does that reuses a chunk."""
    with open(f"/dev/shm/{name}", "r+b") as f:
        f.seek(len(build.SECRET) + at)
        f.write(data)


def wait_until(what: Callable[[], bool]) -> None:
    end = time.monotonic() + FOREVER
    while not what():
        assert time.monotonic() < end
        time.sleep(1e-3)


# The driver


def test_driver(cuda: Fake) -> None:
    with Driver(1) as driver:
        assert (driver.device, driver.name) == (1, "Fake GPU 1")
        assert cuda.current() is None
    driver.close()
    with pytest.raises(ClosedError, match="driver of CUDA device 1 is closed"):
        driver.register(0x1000, 4096)
    assert cuda.log() == [
        "cuInit = 0",
        "cuDevicePrimaryCtxRetain 1 = 0",
        "cuDevicePrimaryCtxRelease 1 = 0",
    ]


def test_drivers_share_the_context(cuda: Fake) -> None:
    with Driver(0), Driver(0), Driver(1):
        assert cuda.lib.fake_contexts() == 3


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (34, r"CUDA_ERROR_STUB_LIBRARY \(34\): the library is the toolkit's stub"),
        (100, r"CUDA_ERROR_NO_DEVICE \(100\): there is no GPU"),
        (803, r"CUDA_ERROR_SYSTEM_DRIVER_MISMATCH \(803\): .*restart the host"),
        (999, r"unknown error \(999\)"),
    ],
)
def test_driver_does_not_start(cuda: Fake, code: int, text: str) -> None:
    cuda.fail(f"cuInit:1:{code}")
    with pytest.raises(PinUnavailableError, match=text) as caught:
        Driver(0)
    cause = caught.value.__cause__
    assert isinstance(cause, DriverError)
    assert (cause.op, cause.code) == ("cuInit", code)
    Driver(0).close()  # nothing was kept of it


@pytest.mark.parametrize(
    ("op", "code"),
    [
        ("cuDeviceGetCount", 3),
        ("cuDeviceGet", 101),
        ("cuDeviceGetName", 1),
        ("cuDeviceGetAttribute", 101),
        ("cuDevicePrimaryCtxRetain", 2),
    ],
)
def test_device_does_not_start(cuda: Fake, op: str, code: int) -> None:
    cuda.fail(f"{op}:1:{code}")
    with pytest.raises(PinUnavailableError, match=rf"CUDA device 0 .*{op} failed: .*\({code}\)"):
        Driver(0)


def test_missing_device(cuda: Fake) -> None:
    for number in (-1, 2):
        with pytest.raises(PinUnavailableError, match=f"no CUDA device {number}, .* has 2 "):
            Driver(number)
    cuda.devices(0)
    with pytest.raises(PinUnavailableError, match="no CUDA device 0, this process has 0"):
        Driver(0)
    device: Any
    for device in (True, "0", None, 0.0):
        with pytest.raises(ArgumentError, match="device must be an int"):
            Driver(device)


def test_device_that_registers_nothing(cuda: Fake) -> None:
    cuda.attribute(99, 0)
    with pytest.raises(PinUnavailableError, match=r"device 0 \(Fake GPU 0\) can't register host"):
        Driver(0)


def test_missing_library(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = str(tmp_path / "libcuda.so.1")
    with pytest.raises(PinUnavailableError, match=f"{missing}.*install.*RINGCACHE_CUDA_LIBRARY"):
        Driver(0, library=missing)
    monkeypatch.setenv("RINGCACHE_CUDA_LIBRARY", missing)
    with pytest.raises(PinUnavailableError, match=missing):
        Driver(0)


def test_library_that_is_none(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "libcuda.so.1"
    file.write_bytes(b"no library")
    with pytest.raises(PinUnavailableError, match="no CUDA driver library can be loaded"):
        Driver(0, library=str(file))


def test_library_without_the_functions() -> None:
    with pytest.raises(PinUnavailableError, match=r"libm\.so\.6 has no function cuInit"):
        Driver(0, library="libm.so.6")


def test_library_in_a_folder_that_the_loader_does_not_know(
    cuda: Fake, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the toolkit's stub, libcuda.so, is not taken."""
    monkeypatch.delenv("RINGCACHE_CUDA_LIBRARY")
    monkeypatch.setattr("ringcache.cuda._LIBRARY", "libringcache-fake-cuda.so.1")
    monkeypatch.setattr("ringcache.cuda._FOLDERS", (str(tmp_path / "missing"), str(tmp_path)))
    for stub in ("libcuda.so", "libringcache-fake-cuda.so"):
        shutil.copy(cuda.library, tmp_path / stub)
    with pytest.raises(PinUnavailableError, match="libringcache-fake-cuda"):
        Driver(0)
    # A link, so that the loader takes it for the library that it has already.
    (tmp_path / "libringcache-fake-cuda.so.1").symlink_to(cuda.library)
    with Driver(0):
        assert cuda.lib.fake_contexts() == 1


def test_errors_can_be_sent() -> None:
    error = DriverError("cuInit", 100, "CUDA_ERROR_NO_DEVICE", "there is no GPU")
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == "cuInit failed: CUDA_ERROR_NO_DEVICE (100): there is no GPU"
    assert (again.op, again.code, again.name) == (error.op, error.code, error.name)
    assert issubclass(PinUnavailableError, RingcacheError)


@pytest.fixture
def driver(cuda: Fake) -> Iterator[Driver]:
    with Driver(0) as driver:
        yield driver
        assert cuda.current() is None  # each call leaves the thread as it was


@pytest.fixture
def reader(name: str) -> Iterator[Reader]:
    """One that counts, and is not protected."""
    with Reader(name, SIZE, lock=threading.Lock()) as reader:
        yield reader


@pytest.mark.parametrize(
    ("code", "calls", "text"),
    [
        (1, 2, "INVALID_VALUE .*can't be pinned: .*no tmpfs.*full.*another process.*too large.*VM"),
        (2, 2, "OUT_OF_MEMORY .*tables"),
        (712, 1, "HOST_MEMORY_ALREADY_REGISTERED .*another part of this process"),
        (800, 1, "NOT_PERMITTED .*container"),
        (801, 1, "NOT_SUPPORTED .*confidential"),
    ],
)
def test_register_fails(
    cuda: Fake, driver: Driver, reader: Reader, code: int, calls: int, text: str
) -> None:
    cuda.fail(f"cuMemHostRegister:0:{code}")
    with pytest.raises(DriverError, match=text) as caught:
        driver.register(reader._segment.address, SIZE)
    assert (caught.value.op, caught.value.code) == ("cuMemHostRegister", code)
    assert len(cuda.calls("cuMemHostRegister")) == calls


@pytest.mark.parametrize("code", [1, 2])
def test_register_is_tried_twice(cuda: Fake, driver: Driver, reader: Reader, code: int) -> None:
    cuda.fail(f"cuMemHostRegister:1:{code}")
    driver.register(reader._segment.address, SIZE)
    assert cuda.calls("cuMemHostRegister") == [
        f"cuMemHostRegister P+{SIZE} flags=1 = {code}",
        f"cuMemHostRegister P+{SIZE} flags=1 = 0",
    ]
    driver.unregister(reader._segment.address)


def test_context_that_cannot_be_entered(cuda: Fake, driver: Driver, reader: Reader) -> None:
    cuda.fail("cuCtxPushCurrent:1:201")
    with pytest.raises(DriverError, match="cuCtxPushCurrent .*its context") as caught:
        driver.register(reader._segment.address, SIZE)
    assert caught.value.code == 201
    assert cuda.calls("cuMemHostRegister") == []


@pytest.mark.parametrize("op", ["cuEventCreate", "cuMemcpyHtoDAsync", "cuEventRecord"])
def test_copy_fails(cuda: Fake, driver: Driver, reader: Reader, op: str) -> None:
    """Then nothing of it is in flight."""
    start = reader._segment.address
    driver.register(start, SIZE)
    with cuda.memory(driver, BYTES) as memory:
        cuda.delay(20_000)
        cuda.fail(f"{op}:1:999")
        with pytest.raises(DriverError, match=rf"{op} failed: .*\(999\)"):
            driver.copy(memory.address, start, BYTES)
        assert cuda.lib.fake_events() == 0
        driver.unregister(start)  # else it is a violation
        source = bytes(reader._segment.buffer()[:BYTES])
        assert (memory.read() == source) == (op == "cuEventRecord")


def test_copy_to_no_device(cuda: Fake, driver: Driver) -> None:
    data = np.zeros(100, np.uint8)
    with pytest.raises(DriverError, match="destination is no memory of the device"):
        driver.copy(data.ctypes.data, data.ctypes.data, 100)


def test_driver_is_not_closed_in_use(cuda: Fake, driver: Driver, reader: Reader) -> None:
    start = reader._segment.address
    driver.register(start, SIZE)
    with pytest.raises(SegmentBusyError, match="1 registrations, 0 events"):
        driver.close()
    with cuda.memory(driver, BYTES) as memory:
        cuda.hold()
        event = driver.copy(memory.address, start, BYTES)
        assert not event.done()
        with pytest.raises(SegmentBusyError, match="1 registrations, 1 events"):
            driver.close()
        cuda.hold(False)
        event.wait()
        assert event.done()
        event.wait()
    driver.unregister(start)


def test_with_does_not_hide_errors(cuda: Fake, name: str) -> None:
    with (
        pytest.raises(KeyError),
        Reader(name, SIZE) as reader,
        Driver(0) as driver,
        Staging(reader, driver) as staging,
    ):
        lease = staging.get(address_of(1), 1)
        raise KeyError
    lease.end()
    staging.close()
    reader.close()
    driver.close()


# Registration of a mapping


def test_staging(cuda: Fake, driver: Driver, reader: Reader) -> None:
    with Staging(reader, driver, require=True) as staging:
        assert (staging.pinned, staging.reason) == (True, None)
        with cuda.memory(driver, BYTES) as memory:
            with get(staging) as lease:
                copy(lease, memory)
            staging.drain()
            assert memory.read() == content(1)
        assert (staging.fallbacks, staging.errors) == (0, 0)
        assert lease.released and lease.error is None
    staging.close()
    with pytest.raises(ClosedError, match="is closed"):
        get(staging)
    total = SIZE + len(build.SECRET)
    assert [line for line in cuda.log() if "Mem" in line] == [
        f"cuMemHostRegister {reader._segment.address:#x}+{total} flags=1 = 0",
        next(line for line in cuda.log() if line.endswith(f"+{BYTES} registered = 0")),
        f"cuMemHostUnregister {reader._segment.address:#x} = 0",
    ]
    assert reader.reader_count(address_of(1), 1) == 1


def test_read_only(cuda: Fake, driver: Driver, name: str) -> None:
    with Reader(name, SIZE) as reader:
        with Staging(reader, driver) as staging, cuda.memory(driver, BYTES) as memory:
            assert staging.pinned
            with staging.get(address_of(1), 1) as lease:
                copy(lease, memory)
            staging.drain()
            assert memory.read() == content(1)
        assert cuda.calls("cuMemHostRegister")[0].endswith("flags=9 = 0")


@pytest.mark.parametrize("unknown", [False, True])
def test_read_only_is_unsupported(
    cuda: Fake, driver: Driver, name: str, reader: Reader, unknown: bool
) -> None:
    if unknown:  # by the driver
        cuda.fail("cuDeviceGetAttribute:2:1")
    else:
        cuda.attribute(113, 0)
    with Reader(name, SIZE) as observing:
        with pytest.raises(PinUnavailableError, match="mapped to read only; open the reader with"):
            Staging(observing, driver, require=True)
        assert cuda.calls("cuMemHostRegister") == []
    with Staging(reader, driver, require=True):  # which counts
        pass


@pytest.mark.parametrize("code", [1, 2, 712, 800, 801])
def test_failure_is_an_error_where_pinning_is_required(
    cuda: Fake, driver: Driver, name: str, caplog: pytest.LogCaptureFixture, code: int
) -> None:
    cuda.fail(f"cuMemHostRegister:0:{code}")
    reader = Reader(name, SIZE)
    with pytest.raises(DriverError, match=rf"\({code}\)"):
        Staging(reader, driver, require=True)
    with pytest.raises(PinUnavailableError, match="no driver was given"):
        Staging(reader, None, require=True)
    reader.close()
    driver.close()
    assert (cuda.live, caplog.records) == (0, [])


@pytest.mark.parametrize("code", [1, 2, 712, 800, 801, None])
def test_failure_is_reported_once(
    cuda: Fake,
    driver: Driver,
    reader: Reader,
    caplog: pytest.LogCaptureFixture,
    code: int | None,
) -> None:
    """And everything works without, more slowly."""
    if code:
        cuda.fail(f"cuMemHostRegister:0:{code}")
    staging = Staging(reader, driver if code else None)
    assert not staging.pinned
    assert staging.reason and (f"({code})" if code else "no driver was given") in staging.reason
    with cuda.memory(driver, BYTES) as memory:
        for id in range(1, OBJECTS + 1):
            with get(staging, id) as lease:
                if code:
                    copy(lease, memory)
                    assert memory.read() == content(id)  # the driver took them at the call
                else:
                    with pytest.raises(PinUnavailableError, match="no driver to copy with"):
                        copy(lease, memory)
        staging.drain()
        assert lease.released and lease.error is None
    assert staging.fallbacks == (OBJECTS if code else 0)
    assert all(reader.reader_count(address_of(id), id) == 1 for id in range(1, OBJECTS + 1))
    assert [(r.levelno, r.name) for r in caplog.records] == [(logging.WARNING, "ringcache.pin")]
    assert "is not pinned, so copies from it to the device block" in caplog.text
    staging.close()
    assert cuda.live == 0


def test_staging_of_what_is_closed(cuda: Fake, driver: Driver, name: str) -> None:
    """No fallback hides that mistake."""
    reader = Reader(name, SIZE)
    reader.close()
    with pytest.raises(ClosedError, match="segment .* is closed"):
        Staging(reader, driver)
    with Reader(name, SIZE) as reader:
        driver.close()
        with pytest.raises(ClosedError, match="driver of CUDA device 0 is closed"):
            Staging(reader, driver)


def test_second_staging(cuda: Fake, driver: Driver, reader: Reader, name: str) -> None:
    """A mapping has one registration, a segment as many as it has mappings."""
    with Staging(reader, driver, require=True), Driver(1) as other:
        for again in (driver, other):
            with pytest.raises(SegmentBusyError, match="registered with a device's driver already"):
                Staging(reader, again, require=True)
            with Staging(reader, again) as unpinned:
                assert not unpinned.pinned
        with Reader(name, SIZE) as second, Staging(second, other, require=True):
            assert cuda.live == 2
    assert cuda.live == 0
    with Staging(reader, driver, require=True):
        assert cuda.live == 1


@pytest.mark.parametrize("counting", [False, True])
def test_pages_are_populated_first(
    cuda: Fake, driver: Driver, make_segment: MakeSegment, counting: bool
) -> None:
    name, size = make_segment(b""), 1 << 20
    os.truncate(f"/dev/shm/{name}", size + len(build.SECRET))
    assert os.stat(f"/dev/shm/{name}").st_blocks == 0
    lock = threading.Lock() if counting else None
    with Reader(name, size, lock=lock) as reader:
        with Staging(reader, driver, require=True):
            assert os.stat(f"/dev/shm/{name}").st_blocks * 512 > size


def test_kernel_that_cannot_populate(
    driver: Driver, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ringcache.segment._MADV_POPULATE_WRITE", 9999)
    with Staging(reader, driver, require=True) as staging:
        assert staging.pinned


def test_pages_that_cannot_be_populated(
    cuda: Fake, driver: Driver, make_segment: MakeSegment
) -> None:
    name = make_segment(bytes(SIZE + len(build.SECRET)))
    with Reader(name, SIZE, lock=threading.Lock()) as reader:
        os.truncate(f"/dev/shm/{name}", 0)
        with pytest.raises(SegmentError, match=r"populated \(.*\): /dev/shm or the memory"):
            Staging(reader, driver, require=True)
    assert cuda.calls("cuMemHostRegister") == []


def test_holes_that_cannot_be_filled(
    cuda: Fake, driver: Driver, make_segment: MakeSegment
) -> None:
    """Nothing is taken of what others need."""
    size, room = 1 << 40, os.statvfs("/dev/shm")
    if not room.f_blocks or room.f_bavail * room.f_frsize >= size:
        pytest.skip("/dev/shm has room for a TiB")
    name = make_segment(b"")
    os.truncate(f"/dev/shm/{name}", size + len(build.SECRET))
    with Reader(name, size, lock=threading.Lock()) as reader, Staging(reader, driver) as staging:
        assert not staging.pinned
        assert staging.reason is not None and "has holes of" in staging.reason
        assert os.stat(f"/dev/shm/{name}").st_blocks == 0
    assert cuda.calls("cuMemHostRegister") == []


def waits_for_flock(file: str) -> bool:
    inode = os.stat(file).st_ino
    lines = pathlib.Path("/proc/locks").read_text().splitlines()
    return any("-> FLOCK" in line and f":{inode} " in line for line in lines)


def test_processes_register_one_after_another(
    cuda: Fake, driver: Driver, reader: Reader, name: str
) -> None:
    staged: list[Staging] = []
    file = f"/dev/shm/{name}"
    with open(file) as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        thread = threading.Thread(target=lambda: staged.append(Staging(reader, driver)))
        thread.start()
        wait_until(lambda: waits_for_flock(file))
        assert cuda.calls("cuMemHostRegister") == []
    thread.join()
    assert staged[0].pinned
    with open(file) as other:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)  # it is free again
    staged[0].close()


@pytest.mark.parametrize("replaced", [False, True])
def test_segment_that_was_removed(
    driver: Driver, reader: Reader, name: str, replaced: bool
) -> None:
    file = pathlib.Path("/dev/shm", name)
    file.unlink()
    if replaced:
        file.write_bytes(b"")
        os.chmod(file, 0o600)
    with open(file if replaced else os.devnull) as other:
        fcntl.flock(other, fcntl.LOCK_EX)  # nobody waits for that one
        with Staging(reader, driver, require=True) as staging:
            assert staging.pinned


def test_registering_is_interrupted(
    cuda: Fake, driver: Driver, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the last moment. Nothing stays registered that nobody would unregister."""

    @contextlib.contextmanager
    def interrupted(segment: Segment) -> Iterator[None]:
        yield
        raise KeyboardInterrupt

    monkeypatch.setattr("ringcache.pin._alone", interrupted)
    reader = Reader(name, SIZE)
    with pytest.raises(KeyboardInterrupt):
        Staging(reader, driver)
    assert len(cuda.calls("cuMemHostRegister")) == 1
    assert cuda.live == 0
    reader.close()


# The order of the end


def test_unmapping_waits_for_unregistering(
    cuda: Fake, driver: Driver, reader: Reader, name: str
) -> None:
    staging = Staging(reader, driver, require=True)
    for close in (reader.close, reader._segment.close):
        with pytest.raises(SegmentBusyError, match=r"unregister first \(Staging\.close\)"):
            close()
    with pytest.raises(SegmentBusyError, match="1 registrations"):
        driver.close()
    assert get(staging).view.tensor.tobytes() == content(1)  # a refusal changes nothing
    with pytest.raises(SegmentBusyError, match=r"1 leases .*not ended.*test_pin\.py:\d+"):
        lease = get(staging, 2)
        staging.close()
    assert staging.pinned
    lease.end()
    staging.close()
    staging.close()
    assert cuda.live == 0
    reader.close()
    with Segment(name, SIZE, data_offset=32) as segment:
        assert segment.address


def test_close_waits_for_copies(cuda: Fake, driver: Driver, reader: Reader) -> None:
    cuda.delay(50_000)
    with cuda.memory(driver, BYTES) as memory:
        with Staging(reader, driver) as staging, get(staging) as lease:
            copy(lease, memory)
        assert memory.read() == content(1)
    assert lease.released


@pytest.mark.parametrize("code", [4, 713])
def test_unregistering_what_is_gone(cuda: Fake, driver: Driver, name: str, code: int) -> None:
    reader = Reader(name, SIZE)
    staging = Staging(reader, driver, require=True)
    cuda.fail(f"cuMemHostUnregister:1:{code}")
    staging.close()
    # The fake has it yet.
    assert cuda.lib.cuMemHostUnregister(reader._segment.address) == 0
    reader.close()


def test_unregistering_fails(cuda: Fake, driver: Driver, name: str) -> None:
    """The mapping stays, until it is successful."""
    reader = Reader(name, SIZE)
    staging = Staging(reader, driver, require=True)
    cuda.fail("cuMemHostUnregister:1:1,cuMemHostUnregister:2:201")
    for code in (1, 201):
        with pytest.raises(DriverError, match=rf"cuMemHostUnregister failed: .*\({code}\)"):
            staging.close()
        with pytest.raises(SegmentBusyError, match="unregister first"):
            reader.close()
        assert staging.pinned
    with pytest.raises(SegmentBusyError, match="1 registrations"):
        driver.close()
    staging.close()
    reader.close()


def test_mapping_stays_if_it_is_dropped_registered(cuda: Fake, driver: Driver, name: str) -> None:
    reader = Reader(name, SIZE)
    staging = Staging(reader, driver, require=True)
    start, segment = reader._segment.address, reader._segment
    del staging, reader
    gc.collect()
    assert (cuda.live, cuda.lib.fake_violations()) == (1, 0)
    driver.unregister(start)
    segment.end_registration()
    segment.close()


# Leases


def test_count_rises_after_the_copy(cuda: Fake, driver: Driver, reader: Reader) -> None:
    at = address_of(1)
    assert reader.counts and not reader.protected
    with Staging(reader, driver) as staging, cuda.memory(driver, BYTES) as memory:
        cuda.hold()
        with get(staging) as lease:
            copy(lease, memory)
            copy(lease, memory)
        get(staging, 2).end()
        for _ in range(3):
            staging.poll()
            assert (lease.released, reader.reader_count(at, 1)) == (False, 0)
        assert reader.reader_count(address_of(2), 2) == 1  # which waits for nobody
        cuda.hold(False)
        staging.drain()
        assert (lease.released, reader.reader_count(at, 1)) == (True, 1)
        staging.poll()
        staging.drain()
        assert reader.reader_count(at, 1) == 1


def test_get_polls(cuda: Fake, driver: Driver, reader: Reader) -> None:
    with Staging(reader, driver) as staging, cuda.memory(driver, BYTES) as memory:
        with get(staging) as first:
            copy(first, memory)

        def released() -> bool:
            get(staging, 2).end()
            return first.released

        wait_until(released)
        assert reader.reader_count(address_of(1), 1) == 1


def test_end(cuda: Fake, driver: Driver, reader: Reader) -> None:
    with Staging(reader, driver) as staging, cuda.memory(driver, BYTES) as memory:
        lease = get(staging)
        data = lease.view.tensor.data
        lease.end()
        lease.end()
        use: Callable[[], object]
        for use in (lambda: lease.view, lambda: lease.copy_raw(data, memory.address)):
            with pytest.raises(ClosedError, match="lease is ended"):
                use()
        assert not lease.released
        staging.poll()
        assert lease.released
        lease.end()
        staging.poll()
        assert reader.reader_count(address_of(1), 1) == 1
        assert cuda.calls("cuMemcpyHtoDAsync") == []


def test_release_of_the_view_ends_the_lease(cuda: Fake, driver: Driver, reader: Reader) -> None:
    at = address_of(1)
    with Staging(reader, driver) as staging, cuda.memory(driver, BYTES) as memory:
        cuda.hold()
        lease = get(staging)
        view = lease.view
        copy(lease, memory)
        view.release()
        second = get(staging)
        with second.view as view:
            copy(second, memory)
        with pytest.raises(KeyError), get(staging).view:
            raise KeyError
        staging.poll()
        assert not lease.released and not second.released
        assert reader.reader_count(at, 1) == 1  # the third
        cuda.hold(False)
        staging.drain()
        assert reader.reader_count(at, 1) == 3
        for v in (view, second._view):
            v.release()  # now it is a view as any other
            with pytest.raises(ClosedError, match="view is released"):
                _ = v.tensor
        assert reader.reader_count(at, 1) == 3


def test_only_bytes_of_its_object(cuda: Fake, driver: Driver, reader: Reader) -> None:
    """Nothing would keep those of another."""
    with Staging(reader, driver) as staging, cuda.memory(driver, 2 * BYTES) as memory:
        with get(staging, 1) as lease, get(staging, 2) as other:
            with pytest.raises(ArgumentError, match=f"not of object {address_of(1)}:1, which this"):
                lease.copy_raw(other.view.tensor.data, memory.address)
            ring = reader._segment.buffer()
            start = len(build.SECRET) + address_of(1)
            for begin, end in ((start, start + 100), (start + 100, start + BYTES + 1000)):
                with pytest.raises(ArgumentError, match="not of object"):
                    lease.copy_raw(ring[begin:end], memory.address)
            with pytest.raises(ArgumentError, match="must be contiguous"):
                lease.copy_raw(lease.view.tensor.data[::2], memory.address)
            with pytest.raises(ArgumentError, match="destination must be an int"):
                lease.copy_raw(lease.view.tensor.data, None)  # type: ignore[arg-type]
            # Nor is memory of this process alone another's.
            lease.copy_raw(np.arange(BYTES, dtype=np.uint16), memory.address)
            lease.copy_raw(memoryview(b""), memory.address)
            del ring
        staging.drain()
        assert memory.read() == np.arange(BYTES, dtype=np.uint16).tobytes()


def test_source_is_kept(cuda: Fake, driver: Driver, reader: Reader) -> None:
    """A small tensor is a copy, which nothing else may refer to."""

    class Source(np.ndarray[Any, np.dtype[np.uint8]]):
        pass

    freed: list[bool] = []
    with Staging(reader, driver) as staging, cuda.memory(driver, BYTES) as memory:
        cuda.hold()
        lease = get(staging)
        copy(lease, memory)
        source = Source(BYTES, np.uint8)
        weakref.finalize(source, freed.append, True)
        lease.copy_raw(source, memory.address)
        lease.end()
        del source
        gc.collect()
        staging.poll()
        assert not freed
        cuda.hold(False)
        staging.drain()
        assert freed and not lease.error


def test_copy_that_is_refused_waits_for_nothing(cuda: Fake, driver: Driver, reader: Reader) -> None:
    with Staging(reader, driver) as staging, cuda.memory(driver, BYTES) as memory:
        cuda.hold()
        with get(staging) as lease:
            copy(lease, memory)
            with pytest.raises(DriverError, match="no memory of the device"):
                lease.copy_raw(lease.view.tensor.data, memory.address + 1)
        assert len(lease._view.copies) == 1
        cuda.hold(False)
        staging.drain()


# An object that is overwritten


def test_slot_reused_before_the_event(
    cuda: Fake, driver: Driver, reader: Reader, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The negative control of what the next test shows: the copy is wrong. It is reported, to the
    lease and the log, and disturbs no other object."""
    at = address_of(1)
    with Staging(reader, driver) as staging, cuda.memory(driver, 2 * BYTES) as memory:
        cuda.hold()
        first, second = get(staging, 1), get(staging, 2)
        copy(first, memory)
        second.copy_raw(second.view.tensor.data, memory.address + BYTES)
        first.end()
        second.end()
        overwrite(name, at, payload(1000))
        cuda.hold(False)
        staging.drain()
        assert memory.read() == content(1000) + content(2)
    assert first.released and second.released
    error = first.error
    assert isinstance(error, StaleError)
    assert (error.address, error.id, second.error) == (at, 1, None)
    assert (staging.errors, staging.fallbacks) == (1, 0)
    assert [r.levelno for r in caplog.records] == [logging.ERROR]
    assert f"object {at}:1 of segment" in caplog.text and "test_pin.py:" in caplog.text
    assert (reader.reader_count(at, 1000), reader.reader_count(address_of(2), 2)) == (0, 1)


def test_slot_reused_after_the_event(cuda: Fake, driver: Driver, name: str) -> None:
    """Whatever the delay of the copies: what is released is copied."""
    rng = random.Random(14)
    ids = dict.fromkeys(range(1, OBJECTS + 1), 0)  # object by its place, once it is released
    with contextlib.ExitStack() as stack:
        reader = stack.enter_context(Reader(name, SIZE))
        memories = [stack.enter_context(cuda.memory(driver, BYTES)) for _ in ids]
        staging = stack.enter_context(Staging(reader, driver, require=True))
        leases: dict[int, Lease] = {}
        copies = reused = 0
        while reused < 400:
            cuda.delay(rng.randrange(2000))
            place = rng.randrange(OBJECTS) + 1
            at = address_of(place)
            if place not in leases:
                id = 10_000 * place + reused
                overwrite(name, at, payload(id))
                ids[place] = id
                with staging.get(at, id) as lease:
                    copy(lease, memories[place - 1])
                leases[place] = lease
                copies += 1
            staging.poll()
            for place, lease in list(leases.items()):
                if lease.released:
                    overwrite(name, address_of(place), payload(1))  # at once
                    assert lease.error is None
                    assert memories[place - 1].read() == content(ids[place])
                    del leases[place]
                    reused += 1
        for lease in leases.values():
            lease.end()
    assert copies >= reused


def test_overwritten_without_a_copy(driver: Driver, name: str) -> None:
    """An observing reader notices it too."""
    with Reader(name, SIZE) as reader, Staging(reader, driver) as staging:
        with staging.get(address_of(1), 1) as lease:
            overwrite(name, address_of(1), payload(1000))
        staging.poll()
        assert isinstance(lease.error, StaleError)
        with pytest.raises(StaleError), staging.get(address_of(2), 2).view:
            overwrite(name, address_of(2), payload(1000))


def test_device_that_fails(
    cuda: Fake, driver: Driver, reader: Reader, caplog: pytest.LogCaptureFixture
) -> None:
    """A copy whose end cannot be known any more holds nothing."""
    with cuda.memory(driver, BYTES) as memory:
        for op, wait in ("cuEventQuery", False), ("cuEventSynchronize", True):
            with Staging(reader, driver) as staging:
                caplog.clear()
                cuda.fail(f"{op}:1:700")
                with get(staging) as lease:
                    copy(lease, memory)
                with driver._entered() as api:
                    assert api.cuStreamSynchronize(None) == 0  # the fake's has not failed
                staging.drain() if wait else staging.poll()
                assert lease.released and isinstance(lease.error, DriverError)
                assert (lease.error.op, lease.error.code, staging.errors) == (op, 700, 1)
                assert "may be wrong: " + op in caplog.text
    assert reader.reader_count(address_of(1), 1) == 2


def test_graph_that_is_captured_meanwhile(cuda: Fake, driver: Driver, reader: Reader) -> None:
    """The driver does not look at events then. The copy goes on, and so does the lease."""
    with cuda.memory(driver, BYTES) as memory, Staging(reader, driver) as staging:
        with get(staging) as lease:
            copy(lease, memory)
        for code in (900, 906):
            cuda.reset()
            cuda.fail(f"cuEventQuery:0:{code}")
            staging.poll()
            assert not lease.released
        cuda.fail("cuEventSynchronize:1:900")
        staging.drain()
        assert cuda.lib.fake_violations() == 0
        assert lease.released and lease.error is None
        assert memory.read() == content(1)


def test_lock_that_is_not_free(driver: Driver, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The use is counted later; meanwhile nobody else's call fails."""
    monkeypatch.setattr(sidecar, "LOCK_SECONDS", 0.05)
    make_sidecar(name, SIZE, policy=build.FIFO)
    with Reader(name, SIZE, sidecar_lock=True) as reader, Staging(reader, driver) as staging:
        assert not reader.protected and reader._lock
        get(staging).end()
        at = address_of(1)
        locked, done = threading.Event(), threading.Event()

        def keep() -> None:
            with reader._lock or contextlib.nullcontext():
                locked.set()
                done.wait(FOREVER)

        thread = threading.Thread(target=keep)
        thread.start()
        locked.wait(FOREVER)
        try:
            staging.poll()
            lease = get(staging, 2)
            with pytest.raises(LockTimeoutError):
                staging.drain()
            assert reader.reader_count(at, 1) == 0
        finally:
            done.set()
            thread.join()
        staging.poll()
        assert reader.reader_count(at, 1) == 1
        lease.end()


def test_release_after_a_timeout(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A view is not lost by it, either."""
    monkeypatch.setattr(sidecar, "LOCK_SECONDS", 0.05)
    make_sidecar(name, SIZE, policy=build.FIFO)
    with Reader(name, SIZE, sidecar_lock=True) as reader:
        signature = list(sign(reader.secret(), "k", address_of(1), 1))
        view = reader.get(address_of(1), 1, "k", signature)
        failed: list[BaseException] = []

        def release() -> None:
            try:
                view.release()
            except RingcacheError as e:
                failed.append(e)

        with reader._lock or contextlib.nullcontext():
            thread = threading.Thread(target=release)
            thread.start()
            thread.join()
        assert [type(e) for e in failed] == [LockTimeoutError]
        assert reader.reader_count(address_of(1), 1) == 0
        view.release()
        assert reader.reader_count(address_of(1), 1) == 1


# The Go library's writer


def test_writer_waits_for_the_copy(cuda: Fake, driver: Driver, agent: Agent, pool: str) -> None:
    """Of a reader with a slot, long after it was counted."""
    size = 10_000
    with Reader(pool, RING, sidecar_lock=True) as reader:
        assert reader.protected
        with Staging(reader, driver, require=True) as staging, cuda.memory(driver, size) as memory:
            for fill in range(10):
                handle = agent.put(f"k{fill}", fill, size)
                cuda.hold()
                with staging.get(*handle) as lease:
                    copy(lease, memory)
                assert reader.reader_count(*handle[:2]) == 1
                staging.poll()
                assert not agent.evict(f"k{fill}")
                cuda.hold(False)
                staging.drain()
                assert agent.evict(f"k{fill}")
                assert memory.read() == bytes([fill]) * size
                assert lease.error is None


def test_writer_that_reuses_slots(cuda: Fake, driver: Driver, agent: Agent, pool: str) -> None:
    """Objects that nobody keeps but the copies from them, while the writer looks for room."""
    size = 60_000  # few fit
    with contextlib.ExitStack() as stack:
        reader = stack.enter_context(Reader(pool, RING))
        memories = [stack.enter_context(cuda.memory(driver, size)) for _ in range(4)]
        staging = stack.enter_context(Staging(reader, driver, require=True))
        flying: list[tuple[Lease, int, Memory]] = []
        copied = 0
        for n in range(300):
            fill = n % 251
            handle = agent.put(f"k{n}", fill, size)
            cuda.delay(n % 7 * 1000)
            if memories:
                memory = memories.pop()
                with staging.get(*handle) as lease:
                    copy(lease, memory)
                flying.append((lease, fill, memory))
            staging.poll()
            for entry in [e for e in flying if e[0].released]:
                lease, fill, memory = entry
                assert lease.error is None
                assert memory.read() == bytes([fill]) * size
                memories.append(memory)
                flying.remove(entry)
                copied += 1
        assert copied > 0


# Threads, forks, and what is forgotten


def test_threads(cuda: Fake, driver: Driver, name: str) -> None:
    """They share one staging, and poll each other's leases."""
    threads, rounds = 8, 60
    lock = threading.Lock()
    wrong: list[object] = []

    def use(seed: int) -> None:
        rng = random.Random(seed)
        try:
            with cuda.memory(driver, BYTES) as memory:
                for _ in range(rounds):
                    id = rng.randrange(OBJECTS) + 1
                    with get(staging, id) as lease:
                        copy(lease, memory)
                    while not lease.released:
                        if rng.random() < 0.1:
                            staging.drain()
                        staging.poll()
                    if lease.error or memory.read() != content(id):
                        wrong.append((id, lease.error))
        except BaseException as e:
            wrong.append(e)
            raise

    cuda.delay(200)
    with Reader(name, SIZE, lock=lock) as reader:
        with Staging(reader, driver, require=True) as staging:
            running = [threading.Thread(target=use, args=(i,)) for i in range(threads)]
            for thread in running:
                thread.start()
            for thread in running:
                thread.join()
            assert wrong == []
        counts = [reader.reader_count(address_of(id), id) for id in range(1, OBJECTS + 1)]
        assert sum(counts) == threads * rounds


def test_threads_that_register(cuda: Fake, name: str) -> None:
    """Each its own mapping, with a device that they share."""
    wrong: list[BaseException] = []

    def use() -> None:
        try:
            for _ in range(10):
                with Reader(name, SIZE) as reader, Staging(reader, shared, require=True) as staging:
                    with staging.get(address_of(1), 1) as lease:
                        pass
                assert lease.released
        except BaseException as e:
            wrong.append(e)

    with Driver(0) as shared:
        running = [threading.Thread(target=use) for _ in range(8)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
    assert wrong == []
    assert len(cuda.calls("cuMemHostRegister")) == 80


def test_end_while_a_copy_is_submitted(cuda: Fake, driver: Driver, reader: Reader) -> None:
    """By another thread: a copy is refused, or waited for."""
    with Staging(reader, driver) as staging, cuda.memory(driver, BYTES) as memory:
        for _ in range(200):
            lease = get(staging)
            data = lease.view.tensor.data
            start = threading.Barrier(2)

            def end(lease: Lease = lease, start: threading.Barrier = start) -> None:
                start.wait()
                lease.end()
                staging.poll()

            thread = threading.Thread(target=end)
            thread.start()
            start.wait()
            with contextlib.suppress(ClosedError):
                lease.copy_raw(data, memory.address)
            thread.join()
            staging.drain()
            assert lease.released and not lease._view.copies
        assert reader.reader_count(address_of(1), 1) == 200


def test_fork(cuda: Fake, driver: Driver, name: str) -> None:
    """The child can use nothing, changes nothing, and can end in peace."""
    reader = Reader(name, SIZE, lock=threading.Lock())
    staging = Staging(reader, driver, require=True)
    with cuda.memory(driver, BYTES) as memory:
        cuda.hold()
        lease = get(staging)
        data = lease.view.tensor.data
        copy(lease, memory)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                driver._api = None  # type: ignore[assignment]  # who calls it fails
                for use in (
                    lambda: get(staging),
                    lambda: lease.copy_raw(data, memory.address),
                    staging.poll,
                    staging.drain,
                    lambda: driver.register(reader._segment.address, SIZE),
                    lambda: driver.unregister(reader._segment.address),
                    lambda: driver.copy(memory.address, reader._segment.address, 1),
                    lambda: lease._view.copies[0][0].done(),
                    lambda: lease._view.copies[0][0].wait(),
                ):
                    with pytest.raises(ClosedError, match="before a fork"):
                        use()
                lease.end()
                staging.close()
                driver.close()
                reader._segment.check_unregistered()
                del lease
                gc.collect()
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        cuda.hold(False)
        lease.end()
        staging.drain()
        assert memory.read() == content(1)
        del data
    assert reader.reader_count(address_of(1), 1) == 1
    staging.close()
    reader.close()


def test_dropped_lease(cuda: Fake, driver: Driver, reader: Reader) -> None:
    """Once its copies are done it is released and counted as a dropped view is."""
    at = address_of(1)
    with Staging(reader, driver) as staging, cuda.memory(driver, BYTES) as memory:
        cuda.hold()
        lease = get(staging)
        copy(lease, memory)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            del lease
            gc.collect()
            staging.poll()
            get(staging, 2).end()
        assert reader.reader_count(at, 1) == 0
        cuda.hold(False)
        with pytest.warns(ResourceWarning, match=r"dropped without release.*test_pin\.py:\d+"):
            staging.drain()
        assert staging.errors == 0
        get(staging, 2).end()
        assert reader.reader_count(at, 1) == 1


def test_array_outlives_a_dropped_lease(driver: Driver, reader: Reader) -> None:
    """Its chunk is not free while an array of it is alive."""
    at = address_of(1)
    with Staging(reader, driver) as staging:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            array = get(staging).view.tensor.numpy()
            gc.collect()
            staging.drain()
            get(staging, 2).end()
        assert array.tobytes() == content(1)
        assert reader.reader_count(at, 1) == 0
        with pytest.warns(ResourceWarning, match="dropped without release"):
            del array
        get(staging, 2).end()
        assert reader.reader_count(at, 1) == 1


def test_end_by_a_finaliser(cuda: Fake, driver: Driver, name: str) -> None:
    """Which runs where its thread has all the locks there are."""
    lock = threading.Lock()
    with Reader(name, SIZE, lock=lock) as reader:
        with Staging(reader, driver) as staging, cuda.memory(driver, BYTES) as memory:
            lease = get(staging)
            array = np.frombuffer(lease.view.tensor.data, np.uint8)
            copy(lease, memory)
            before = len(cuda.log())
            weakref.finalize(array, lease.end)
            with lock, staging._polling, lease._view.copying, driver._using, lease._view._ending:
                del array
                gc.collect()
            assert len(cuda.log()) == before
            with pytest.raises(ClosedError, match="lease is ended"):
                _ = lease.view
            staging.drain()
            assert lease.released
        assert reader.reader_count(address_of(1), 1) == 1


SHUTDOWN = """
import sys
from ringcache import Reader
from ringcache.cuda import Driver
from ringcache.pin import Staging
reader = Reader(sys.argv[1], int(sys.argv[2]))
staging = Staging(reader, Driver(0), require=True)
lease = staging.get(int(sys.argv[3]), 1)
array = lease.view.tensor.numpy()
class Late:
    def __del__(self, lease=lease): lease.end()
late = [Late()]
late.append(late)
print(array[3])
"""


def test_end_of_the_interpreter(cuda: Fake, name: str) -> None:
    """With everything open: no traceback, no wait, no memory unmapped under a copy."""
    done = subprocess.run(
        [sys.executable, "-c", SHUTDOWN, name, str(SIZE), str(address_of(1))],
        capture_output=True,
        text=True,
        timeout=FOREVER,
        env={**os.environ, "PYTHONPATH": str(SRC)},
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{content(1)[3]}\n", "")

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
import struct
import subprocess
import sys
import threading
import time
import warnings
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
    StaleError,
    pin,
    sidecar,
    sign,
)
from ringcache.pin import Driver, Lease, Staging

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
    monkeypatch.setattr(pin, "_LIBRARY", "libringcache-fake-cuda.so.1")
    monkeypatch.setattr(pin, "_FOLDERS", (str(tmp_path / "missing"), str(tmp_path)))
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
        (800, 1, "NOT_PERMITTED .*confidential"),
        (801, 1, "NOT_SUPPORTED .*WSL2"),
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
    monkeypatch.setattr(pin, "_MADV_POPULATE_WRITE", 9999)
    with Staging(reader, driver, require=True) as staging:
        assert staging.pinned


def test_pages_that_cannot_be_populated(
    cuda: Fake, driver: Driver, make_segment: MakeSegment
) -> None:
    name = make_segment(bytes(SIZE + len(build.SECRET)))
    with Reader(name, SIZE, lock=threading.Lock()) as reader:
        os.truncate(f"/dev/shm/{name}", 0)
        with pytest.raises(PinUnavailableError, match=r"populated \(.*\): /dev/shm or the memory"):
            Staging(reader, driver, require=True)
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

    freed: list[int] = []
    with Staging(reader, driver) as staging, cuda.memory(driver, BYTES) as memory:
        lease = get(staging)
        copy(lease, memory)
        cuda.hold()
        source = np.frombuffer(lease.view.tensor.data, np.uint8).view(Source)
        import weakref

        weakref.finalize(source, freed.append, 1)
        lease.copy_raw(source, memory.address)
        lease.end()
        del source
        gc.collect()
        staging.poll()
        assert freed == []
        cuda.hold(False)
        staging.drain()
        assert freed == [1]

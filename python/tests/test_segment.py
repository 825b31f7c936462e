from __future__ import annotations

import gc
import multiprocessing
import os
import pathlib
import uuid
from multiprocessing import shared_memory

import numpy as np
import pytest
from conftest import MakeSegment

from ringcache import (
    ClosedError,
    RingcacheError,
    Segment,
    SegmentAccessError,
    SegmentBusyError,
    SegmentError,
    SegmentNotFoundError,
    SegmentSizeError,
)


def test_attach(make_segment: MakeSegment) -> None:
    name = make_segment(b"s" * 32 + b"r" * 100)
    for spelled in (name, "/" + name):
        with Segment(spelled, 100, data_offset=32) as segment:
            assert (segment.name, segment.size, segment.closed) == (name, 100, False)
            assert bytes(segment.buffer()) == b"s" * 32 + b"r" * 100
            assert segment.buffer().readonly
    with Segment(name, 100, data_offset=32, writable=True) as segment:
        segment.buffer()[0:1] = b"S"
    assert pathlib.Path("/dev/shm", name).read_bytes()[:2] == b"Ss"


def test_larger_is_refused(make_segment: MakeSegment) -> None:
    """A reader of vLLM 0.31 would look 32 bytes beside every chunk of 0.32."""
    with pytest.raises(SegmentSizeError, match="132 bytes, expected 100"):
        Segment(make_segment(bytes(132)), 100, data_offset=0)


def test_close(make_segment: MakeSegment) -> None:
    segment = Segment(make_segment(bytes(100)), 100)
    segment.close()
    segment.close()
    assert segment.closed
    with pytest.raises(ClosedError):
        segment.buffer()


def test_close_while_viewed(make_segment: MakeSegment) -> None:
    segment = Segment(make_segment(bytes(100)), 100)
    array = np.frombuffer(segment.buffer(), np.uint8)
    with pytest.raises(BufferError, match=r"still viewed.*Release every view") as caught:
        segment.close()
    assert isinstance(caught.value, SegmentBusyError)
    assert not segment.closed
    assert array.sum() == 0  # and the array is intact
    del array, caught
    gc.collect()
    segment.close()
    assert segment.closed


def test_with_does_not_hide_errors(make_segment: MakeSegment) -> None:
    keep = []
    with pytest.raises(KeyError), Segment(make_segment(bytes(100)), 100) as segment:
        keep.append(segment.buffer())
        raise KeyError
    with pytest.raises(SegmentBusyError), Segment(make_segment(bytes(100)), 100) as segment:
        keep.append(segment.buffer())


def test_missing() -> None:
    with pytest.raises(SegmentNotFoundError, match="writer must be running") as caught:
        Segment(f"ringcache-test-{uuid.uuid4()}", 100)
    assert isinstance(caught.value, FileNotFoundError)


def test_too_small(make_segment: MakeSegment) -> None:
    with pytest.raises(SegmentSizeError, match="100 bytes, expected 132"):
        Segment(make_segment(bytes(100)), 100, data_offset=32)


@pytest.mark.parametrize("size", [0, -1, 1 << 62, 1 << 70])
def test_impossible_size(make_segment: MakeSegment, size: int) -> None:
    with pytest.raises(SegmentSizeError):
        Segment(make_segment(bytes(100)), size)


def test_symlink(make_segment: MakeSegment) -> None:
    name = make_segment(bytes(100))
    link = pathlib.Path("/dev/shm", name + "-link")
    link.symlink_to(name)
    try:
        with pytest.raises(SegmentAccessError, match="symbolic link"):
            Segment(link.name, 100)
    finally:
        link.unlink()


@pytest.mark.parametrize("mode", [0o602, 0o666, 0o777])
def test_world_writable(make_segment: MakeSegment, mode: int) -> None:
    name = make_segment(bytes(100))
    os.chmod(f"/dev/shm/{name}", mode)
    with pytest.raises(SegmentAccessError, match=f"mode {mode:04o}") as caught:
        Segment(name, 100)
    assert isinstance(caught.value, PermissionError)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_other_owner(make_segment: MakeSegment) -> None:
    name = make_segment(bytes(100))
    os.chown(f"/dev/shm/{name}", 12345, -1)
    with pytest.raises(SegmentAccessError, match="belongs to user 12345"):
        Segment(name, 100)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may open everything")
def test_not_permitted(make_segment: MakeSegment) -> None:
    name = make_segment(bytes(100))
    os.chmod(f"/dev/shm/{name}", 0)
    with pytest.raises(SegmentAccessError, match="may not be opened"):
        Segment(name, 100)


@pytest.mark.parametrize("writable", [False, True])
def test_not_a_file(make_segment: MakeSegment, writable: bool) -> None:
    name = make_segment(b"")
    file = pathlib.Path("/dev/shm", name)
    file.unlink()
    os.mkfifo(file, 0o600)
    with pytest.raises(SegmentAccessError, match="not a regular file"):
        Segment(name, 100, writable=writable)  # must not wait for the other end
    file.unlink()
    file.mkdir()
    try:
        with pytest.raises(SegmentAccessError, match="not a regular file"):
            Segment(name, 100, writable=writable)
    finally:
        file.rmdir()


@pytest.mark.parametrize(
    "name", ["", "/", ".", "..", "a/b", "//a", "../etc/passwd", "a\0b", "x" * 256]
)
def test_bad_name(name: str) -> None:
    with pytest.raises(SegmentError, match="not the name"):
        Segment(name, 100)


def _attach(name: str) -> None:
    with Segment(name, 100):
        pass


def test_survives_a_reader_process() -> None:
    """Up to Python 3.12 SharedMemory would remove the segment at its end."""
    name = f"ringcache-test-{uuid.uuid4()}"
    memory = shared_memory.SharedMemory(name, create=True, size=100)
    try:
        process = multiprocessing.get_context("spawn").Process(target=_attach, args=(name,))
        process.start()
        process.join()
        assert process.exitcode == 0
        assert pathlib.Path("/dev/shm", name).exists()
    finally:
        memory.close()
        memory.unlink()


def test_errors_have_one_base() -> None:
    for error in (SegmentNotFoundError, SegmentAccessError, SegmentSizeError, SegmentBusyError):
        assert issubclass(error, SegmentError)
        assert issubclass(error, RingcacheError)

"""Tensors in other libraries, over the same bytes."""

from __future__ import annotations

import gc
import mmap
import pathlib
from typing import Any

import numpy as np
import pytest
from standin import Standin

from ringcache import ArgumentError, Client, SegmentBusyError, Tensor

NEW = np.lib.NumpyVersion(np.__version__) >= "2.1.0"
new = pytest.mark.skipif(
    not NEW, reason=f"numpy {np.__version__} can't say by DLPack that an array is read-only"
)


def address(array: Any) -> int:
    at: int = array.__array_interface__["data"][0]
    return at


@new
@pytest.mark.parametrize("dtype", ["bool", "uint8", "int16", "float16", "float64", "complex64"])
def test_numpy_takes_it_without_a_copy(dtype: str) -> None:
    data = bytes(range(2)) * 24
    tensor = Tensor(dtype, (2, 24 // np.dtype(dtype).itemsize), memoryview(data))
    array = np.from_dlpack(tensor)
    assert array.dtype == dtype
    assert array.shape == tensor.shape
    assert address(array) == address(np.frombuffer(data, np.uint8))
    assert array.tobytes() == data
    assert not array.flags.writeable
    assert tensor.__dlpack_device__() == (1, 0)
    copied = np.from_dlpack(tensor, copy=True)
    assert address(copied) != address(array)
    assert copied.tobytes() == data


@new
def test_it_is_kept_as_long_as_somebody_has_it() -> None:
    memory = mmap.mmap(-1, 4096)
    array = np.from_dlpack(Tensor("uint8", (8,), memoryview(memory)[8:16]))
    unused: Any = Tensor("uint8", (8,), memoryview(memory)[8:16]).__dlpack__(max_version=(1, 1))
    gc.collect()
    with pytest.raises(BufferError):
        memory.close()
    memory[8] = 7
    assert array[0] == 7
    del array
    with pytest.raises(BufferError):
        memory.close()
    del unused
    gc.collect()
    memory.close()


@new
def test_what_dlpack_cannot_say() -> None:
    tensor = Tensor("uint8", (1,), memoryview(b"x"))
    for case in (
        {},
        {"max_version": (0, 8)},
        {"max_version": (1, 0), "stream": 1},
        {"max_version": (1, 0), "dl_device": (2, 0)},
    ):
        with pytest.raises(BufferError):
            tensor.__dlpack__(**case)
    with pytest.raises(BufferError, match="no type 'bits8'"):
        Tensor("bits8", (1,), memoryview(b"x")).__dlpack__(max_version=(1, 0))


@pytest.mark.skipif(NEW, reason="this numpy can")
def test_old_numpy() -> None:
    with pytest.raises(BufferError, match=r"needs numpy 2\.1"):
        Tensor("uint8", (1,), memoryview(b"x")).__dlpack__(max_version=(1, 0))


@new
@pytest.mark.parametrize(
    "dtype",
    [
        "bfloat16",
        "float8_e4m3fn",
        "float8_e4m3fnuz",
        "float8_e5m2",
        "float8_e5m2fnuz",
        "float8_e8m0fnu",
    ],
)
def test_types_that_numpy_has_not(dtype: str) -> None:
    """numpy is told the true type, and refuses it; torch takes it."""
    size = 2 if dtype == "bfloat16" else 1
    tensor = Tensor(dtype, (4,), memoryview(bytes(range(4 * size))))
    with pytest.raises((BufferError, RuntimeError), match="Unsupported dtype"):
        np.from_dlpack(tensor)
    torch = pytest.importorskip("torch")
    taken = torch.from_dlpack(tensor)
    assert taken.dtype == getattr(torch, dtype)
    assert taken.data_ptr() == address(tensor.numpy())
    assert taken.view(torch.uint8).tolist() == list(range(4 * size))


@pytest.mark.parametrize(
    "dtype", ["bfloat16", "float8_e4m3fn", "float32", "bool", "int64", "complex64"]
)
def test_torch(dtype: str) -> None:
    torch = pytest.importorskip("torch")
    tensor = Tensor(
        dtype, (2, 1), memoryview(bytes(2 * Tensor(dtype, (0,), memoryview(b"")).itemsize))
    )
    taken = tensor.torch()
    assert taken.dtype == getattr(torch, dtype)
    assert tuple(taken.shape) == (2, 1)
    assert taken.data_ptr() == address(tensor.numpy())
    assert tuple(Tensor(dtype, (0, 3), memoryview(b"")).torch().shape) == (0, 3)


def test_torch_without_such_a_type(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.delattr(torch, "bfloat16")
    with pytest.raises(ArgumentError, match="no dtype 'bfloat16'"):
        Tensor("bfloat16", (1,), memoryview(b"xx")).torch()


def test_torch_keeps_the_bytes() -> None:
    pytest.importorskip("torch")
    memory = mmap.mmap(-1, 4096)
    part = Tensor("uint8", (8,), memoryview(memory)[8:16]).torch()[2:4]
    gc.collect()
    with pytest.raises(BufferError):
        memory.close()
    del part
    gc.collect()
    memory.close()


def test_leases_know_torchs_tensors(tmp_path: pathlib.Path) -> None:
    torch = pytest.importorskip("torch")
    standin = Standin(str(tmp_path / "s"))
    try:
        with (
            Client(standin.path, client="test", space="s", timeout=30) as client,
            client.lease() as lease,
        ):
            room = lease.reserve("a", 8, note=b"bfloat16 2 2")
            assert room is not None
            tensor = room.torch("bfloat16", (2, 2))
            tensor.copy_(torch.ones(2, 2))
            with pytest.raises(SegmentBusyError):
                room.commit()
            del tensor
            room.commit()
            found = lease.pin("a")
            assert found is not None
            for take in (lambda found: found.torch(), torch.from_dlpack):
                tensor = take(found.tensor())[1:]
                assert tensor.tolist() == [[1, 1]]
                with pytest.raises(SegmentBusyError):
                    lease.release()
                del tensor
    finally:
        standin.close()

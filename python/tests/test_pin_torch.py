"""Torch's tensors that view the ring, and copies from them. Skipped without torch."""

from __future__ import annotations

import ctypes
import gc
import random
import struct
import threading
import types
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import build
import numpy as np
import pytest
from conftest import MakeSegment
from fakecuda import Fake, Memory

from ringcache import ArgumentError, ClosedError, Reader, SegmentBusyError, Tensor, sign
from ringcache.cuda import Driver
from ringcache.pin import Lease, Staging
from ringcache.tensor import _DTYPES

torch = pytest.importorskip("torch", reason="torch is not installed")

SIZE = 1 << 16
AT, ID = 64, 5
BYTES = 4096
DATA = random.Random(3).randbytes(BYTES)

# Those of the table that this torch has.
NAMES = [name for name in _DTYPES if isinstance(getattr(torch, name, None), torch.dtype)]


@pytest.fixture(autouse=True)
def no_warning() -> Iterator[None]:
    """Torch warns of a buffer that is read-only."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for other in ("ComplexHalf", "TypedStorage", "torch.quantize"):
            warnings.filterwarnings("ignore", f".*{other}")
        yield


@pytest.fixture(params=[0, 1], ids=["", "unaligned"])
def name(make_segment: MakeSegment, request: pytest.FixtureRequest) -> str:
    """A segment with an item of several tensors."""
    fields = {
        "pixels": build.elem(["bfloat16", [4, 2, BYTES // 16], 1]),
        "scalar": build.elem(["float64", [], build.raw(struct.pack("<d", 2.5))]),
        "grid": build.elem(["int64", [1, 3], build.raw(struct.pack("<3q", 1, 2, 3))]),
        "none": build.elem(["float32", [3, 0, 2], 2]),
    }
    parts = build.frames(fields, DATA, b"")
    chunk = build.chunk(ID, build.body(build.ITEM, parts, pad=request.param))
    return make_segment(build.segment(SIZE, {AT: chunk}))


@pytest.fixture
def driver(cuda: Fake) -> Iterator[Driver]:
    with Driver(0) as driver:
        yield driver


@pytest.fixture(params=[False, True], ids=["observing", "counting"])
def reader(name: str, request: pytest.FixtureRequest) -> Iterator[Reader]:
    lock = threading.Lock() if request.param else None
    with Reader(name, SIZE, lock=lock) as reader:
        yield reader


@pytest.fixture
def staging(reader: Reader, driver: Driver) -> Iterator[Staging]:
    with Staging(reader, driver, require=True) as staging:
        yield staging


def get(staging: Staging) -> Lease:
    signature = list(sign(staging._reader.secret(), "k", AT, ID))
    return staging.get(AT, ID, "k", signature)


def field(lease: Lease, name: str) -> Tensor:
    data = lease.view.item[name].data
    assert isinstance(data, Tensor)
    return data


def device(memory: Memory, dtype: Any = torch.uint8) -> Any:
    """The fake device's memory as a tensor."""
    array = (ctypes.c_uint8 * memory.size).from_address(memory.address)
    return torch.frombuffer(array, dtype=dtype)


def raw(tensor: Any) -> bytes:
    data: bytes = tensor.reshape(-1).view(torch.uint8).numpy().tobytes()
    return data


def test_tensors_view_the_ring(staging: Staging) -> None:
    with get(staging) as lease:
        pixels = lease.tensor(field(lease, "pixels"))
        assert (pixels.dtype, tuple(pixels.shape)) == (torch.bfloat16, (4, 2, BYTES // 16))
        assert pixels.is_contiguous() and pixels.device.type == "cpu"
        assert raw(pixels) == DATA
        start = pixels.data_ptr() - staging._segment.address
        mapped = staging._segment.buffer()
        assert mapped[start : start + BYTES] == DATA
        scalar = lease.tensor(field(lease, "scalar"))
        assert (scalar.dtype, tuple(scalar.shape), scalar.item()) == (torch.float64, (), 2.5)
        grid = lease.tensor(field(lease, "grid"))
        assert (grid.dtype, grid.tolist()) == (torch.int64, [[1, 2, 3]])
        none = lease.tensor(field(lease, "none"))
        assert (none.dtype, tuple(none.shape)) == (torch.float32, (3, 0, 2))
        del pixels, mapped


@pytest.mark.parametrize("dtype", NAMES)
def test_dtypes(staging: Staging, cuda: Fake, driver: Driver, dtype: str) -> None:
    """Each type, by the bits."""
    with get(staging) as lease, cuda.memory(driver, BYTES) as memory:
        data = field(lease, "pixels").data
        shape = (2, BYTES // 2 // _DTYPES[dtype].itemsize)
        tensor = lease.tensor(Tensor(dtype, shape, data))
        assert (tensor.dtype, tuple(tensor.shape)) == (getattr(torch, dtype), shape)
        assert tensor.data_ptr() == np.frombuffer(data, np.uint8).ctypes.data
        lease.copy(tensor, device(memory))
        lease.end()
        staging.drain()
        assert memory.read() == DATA and lease.error is None
        one = Tensor(dtype, (), data[: _DTYPES[dtype].itemsize])
        with get(staging) as lease:
            assert tuple(lease.tensor(one).shape) == ()
            assert tuple(lease.tensor(Tensor(dtype, (0, 3), data[:0])).shape) == (0, 3)
        del tensor, data, one


def test_dtypes_are_nearly_all() -> None:
    """Else the test above shows nothing."""
    assert {"bfloat16", "float8_e4m3fn", "float8_e5m2", "uint16", "bool"} <= set(NAMES)
    assert len(NAMES) >= len(_DTYPES) - 5


def test_dtype_that_torch_has_not(staging: Staging, monkeypatch: pytest.MonkeyPatch) -> None:
    with get(staging) as lease:
        pixels = field(lease, "pixels")
        monkeypatch.delattr(torch, "bfloat16")
        with pytest.raises(ArgumentError, match="torch .* has no dtype 'bfloat16'"):
            lease.tensor(pixels)
        with pytest.raises(ArgumentError, match="must be a ringcache.Tensor, got memoryview"):
            lease.tensor(pixels.data)  # type: ignore[arg-type]
        del pixels


def test_copy(staging: Staging, cuda: Fake, driver: Driver) -> None:
    """All tensors of an item: of the ring, and the private copies of small ones."""
    names = ("pixels", "scalar", "grid", "none")
    with cuda.memory(driver, BYTES) as big, cuda.memory(driver, 64) as small:
        cuda.hold()
        with get(staging) as lease:
            sources = [lease.tensor(field(lease, name)) for name in names]
            scalar, grid = device(small)[:8], device(small)[8:32]
            for source, to in zip(
                sources,
                (
                    device(big, torch.bfloat16).view(4, 2, -1),
                    scalar.view(torch.float64),
                    grid.view(torch.int64),
                    torch.empty(0),
                ),
                strict=True,
            ):
                lease.copy(source, to)
            del sources, source
        staging.poll()
        assert not lease.released
        cuda.hold(False)
        staging.drain()
        assert lease.released and lease.error is None
        assert big.read() == DATA
        assert small.read()[:32] == struct.pack("<d3q", 2.5, 1, 2, 3)
    assert staging.fallbacks == 0
    assert [line.split()[-3] for line in cuda.calls("cuMemcpyHtoDAsync")] == [
        "registered",
        "pageable",
        "pageable",
    ]


@pytest.mark.parametrize("ended", [False, True])
def test_destination_is_kept(staging: Staging, cuda: Fake, driver: Driver, ended: bool) -> None:
    """Until the copy is done: or its memory would be given to another tensor. No longer, also if
    the lease goes on."""
    with cuda.memory(driver, BYTES) as memory:
        cuda.hold()
        freed: list[bool] = []
        with get(staging) as lease:
            array = (ctypes.c_uint8 * BYTES).from_address(memory.address)
            array.kept = Freed(freed)  # type: ignore[attr-defined]
            lease.copy(
                lease.tensor(field(lease, "pixels")), torch.frombuffer(array, dtype=torch.uint8)
            )
            del array
            if ended:
                lease.end()
            gc.collect()
            staging.poll()
            assert not freed
            cuda.hold(False)
            with driver._entered() as api:
                assert api.cuStreamSynchronize(None) == 0
            staging.poll()
            gc.collect()
            assert freed and lease.released == ended


class Freed:
    def __init__(self, note: list[bool]) -> None:
        self.note = note

    def __del__(self) -> None:
        self.note.append(True)


def test_copies_that_do_not_fit(staging: Staging, cuda: Fake, driver: Driver) -> None:
    with get(staging) as lease, cuda.memory(driver, BYTES) as memory:
        source, to = lease.tensor(field(lease, "pixels")), device(memory)
        wrong: Callable[[], object]
        for wrong, text in (
            (lambda: lease.copy(source, to[:-1]), f"contiguous and of {BYTES} bytes, it has 4095"),
            (lambda: lease.copy(source, to.repeat(2)[::2]), "destination of a copy must be contig"),
            (lambda: lease.copy(source.transpose(0, 1), to), "source of a copy must be a contig"),
            (lambda: lease.copy(source.to("meta"), to), "source .* contiguous tensor of the CPU"),
        ):
            with pytest.raises(ArgumentError, match=text):
                wrong()
        assert cuda.calls("cuMemcpyHtoDAsync") == []
        lease.end()
        use: Callable[[], object]
        for use in (lambda: lease.copy(source, to), lambda: lease.copy(source[:0], to[:0])):
            with pytest.raises(ClosedError, match="lease is ended"):
                use()
        del source


class OnDevice:
    """As much of a tensor of a CUDA device as a copy looks at."""

    def __init__(self, memory: Memory, index: int) -> None:
        self.memory = memory
        self.nbytes = memory.size
        self.is_cuda = True
        self.device = torch.device("cuda", index)

    def is_contiguous(self) -> bool:
        return True

    def data_ptr(self) -> int:
        return self.memory.address


def test_stream_and_device(
    staging: Staging, cuda: Fake, driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Torch's current stream of the destination's device, or the given one."""
    created = []
    for _ in range(2):
        stream = ctypes.c_void_p()
        with driver._entered():
            assert cuda.lib.cuStreamCreate(ctypes.byref(stream), 0) == 0
        assert stream.value
        created.append(stream.value)
    used: list[int] = []
    copy = driver.copy

    def note(*args: int, stream: int = 0) -> Any:
        used.append(stream)
        return copy(*args, stream=stream)

    def current(device: Any) -> Any:
        assert device == torch.device("cuda", 0)
        return types.SimpleNamespace(cuda_stream=created[0])

    monkeypatch.setattr(driver, "copy", note)
    monkeypatch.setattr(torch.cuda, "current_stream", current)
    with cuda.memory(driver, BYTES) as memory:
        with get(staging) as lease:
            source = lease.tensor(field(lease, "pixels"))
            lease.copy(source, OnDevice(memory, 0))
            lease.copy(source, OnDevice(memory, 0), stream=created[1])
            lease.copy(source, device(memory))
            with pytest.raises(ArgumentError, match="on cuda:1, the driver's device is 0"):
                lease.copy(source, OnDevice(memory, 1))
            del source
        staging.drain()
        assert memory.read() == DATA
    assert used == [*created, 0]
    for value in created:
        with driver._entered():
            assert cuda.lib.cuStreamDestroy_v2(ctypes.c_void_p(value)) == 0


@pytest.mark.parametrize("failed", [False, True])
def test_fallback(reader: Reader, driver: Driver, cuda: Fake, failed: bool) -> None:
    """Torch copies, by the bits; to the lease it makes no difference."""
    cuda.fail("cuMemHostRegister:0:801")
    with Staging(reader, driver if failed else None) as staging:
        assert not staging.pinned
        with get(staging) as lease:
            source = lease.tensor(field(lease, "pixels"))
            for to in (
                torch.zeros(BYTES, dtype=torch.uint8),
                torch.zeros(4, 2, BYTES // 16, dtype=torch.bfloat16),
                torch.zeros(BYTES // 2, dtype=torch.bfloat16),
                torch.zeros(BYTES // 4, dtype=torch.float32),
                torch.zeros(BYTES, dtype=torch.bool),
            ):
                lease.copy(source, to)
                assert raw(to) == DATA
            assert staging.fallbacks == 5
            scalar = torch.zeros(8, dtype=torch.uint8)
            lease.copy(lease.tensor(field(lease, "scalar")), scalar)
            assert scalar.view(torch.float64).item() == 2.5
            lease.copy(source[:0], to[:0])
            del source
        staging.poll()
        assert lease.released and lease.error is None
        assert staging.fallbacks == 6
        with pytest.raises(ClosedError, match="lease is ended"):
            lease.copy(to, to)
    assert cuda.calls("cuMemcpyHtoDAsync") == []


def test_tensor_keeps_a_dropped_object(staging: Staging) -> None:
    """And the mapping, whatever becomes of the rest."""
    lease = get(staging)
    tensor = lease.tensor(field(lease, "pixels"))[1:].view(-1)
    del lease
    gc.collect()
    staging.drain()
    assert raw(tensor[-8:]) == DATA[-16:]
    staging.close()
    with pytest.raises(SegmentBusyError, match="not released"):
        staging._reader.close()
    with pytest.warns(ResourceWarning, match="dropped without release"):
        tensor = None


def test_end_by_the_last_tensor(staging: Staging, cuda: Fake, driver: Driver) -> None:
    """How a program ends a lease that has tensors in many hands."""
    with cuda.memory(driver, BYTES) as memory:
        lease = get(staging)
        tensor = lease.tensor(field(lease, "pixels"))
        lease.copy(tensor, device(memory))
        weakref.finalize(tensor, lease.end)
        staging.drain()
        assert not lease.released
        cuda.hold()
        lease.copy(tensor, device(memory))
        del tensor  # with a copy in flight
        with pytest.raises(ClosedError, match="lease is ended"):
            _ = lease.view
        staging.poll()
        assert not lease.released
        cuda.hold(False)
        staging.drain()
        assert lease.released
        assert memory.read() == DATA

"""What a worker's receiver of vLLM becomes: tensors in place, copies by the driver.

vLLM's ``ShmObjectStoreReceiverCache`` takes handles out of features and asks its storage
for the objects. Only that storage is replaced, behind the constructor of the receiver:
the storage's arguments are then those that vLLM itself computed, and everything that
vLLM does with features stays its own. The factory, or the receiver's methods, would be
larger patches of code that changes from release to release.

An object is held, by a lease, until every tensor of it is gone and every copy from it is
done. Features live in the worker until their request ends, since a preempted request
runs the encoder again.
"""

# See docs/decisions.md, "The plugin reads in place only what it copies to a device".

from __future__ import annotations

import inspect
import logging
import multiprocessing.util
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
from vllm.distributed.device_communicators import shm_object_storage
from vllm.multimodal import inputs
from vllm.multimodal.cache import shm
from vllm.platforms import current_platform
from vllm.v1 import serial_utils

from .. import pin
from .._torch import TorchBytes
from ..cuda import Driver
from ..errors import SegmentBusyError, SegmentError
from ..generation import CountRule, lookup
from ..items import Batched, Field, Flat, Item, Nested
from ..reader import Reader
from ..tensor import Tensor
from . import _statistics as counts

_logger: Final = logging.getLogger("vllm.ringcache")

# Prompts that are embeddings: the model runner copies them to the device by itself, without an event.
_COPIED_BY_VLLM: Final = "embedding"

_IDS: Final = 1 << 31  # ids start again at 0 after that many

# Priority of the end of a process: before vLLM's and torch's own, which have none.
_AT_EXIT: Final = 100

_storages: Final[list[Storage]] = []  # of this process; a worker has one
_installed = False


class Device:
    """All that is asked of the accelerator, but for the driver's calls."""

    def expected(self) -> bool:
        """Whether the worker will have one. It has not yet when its receiver is made."""
        return bool(current_platform.is_cuda())

    def index(self) -> int:
        """The device that the worker has chosen."""
        return int(torch.cuda.current_device())

    def takes(self, device: Any, index: int) -> bool:
        """Whether ``device`` is the device of that number, so that the driver can copy to it."""
        target = torch.device(device)
        return target.type == "cuda" and (self.index() if target.index is None else target.index) == index

    def empty(self, like: Any, device: Any) -> Any:
        return torch.empty(like.shape, dtype=like.dtype, device=device)

    def stream(self, device: Any) -> int:
        """torch's current stream: kernels that use the copy come after it there."""
        return int(torch.cuda.current_stream(device).cuda_stream)


#: Makes the device of a storage. A test on a machine without one puts its own here.
device_type: Callable[[], Any] = Device


def install(release: str) -> str:
    """Replace the receiver's storage from now on. Returns why not, or nothing."""
    global _installed
    if _installed:
        return ""
    if problem := _changed(release):
        return problem
    receiver = shm.ShmObjectStoreReceiverCache
    construct = receiver.__init__

    def constructed(self: Any, vllm_config: Any, shared_worker_lock: Any) -> None:
        construct(self, vllm_config, shared_worker_lock)
        try:
            self._shm_cache = Storage(self._shm_cache, release)
        except Exception as e:  # vLLM's own storage stays, and is as good as ever
            _logger.error("The plugin of ringcache is off in this worker, which reads as without it: %s", e)

    receiver.__init__ = constructed
    reduce = inputs.BaseMultiModalField.reduce_data

    def reduced(self: Any, elems: Any, *, device: Any = None, pin_memory: bool = False) -> Any:
        if isinstance(self, inputs.MultiModalSharedField):
            elems = elems[:1]  # all that it takes
        for storage in _storages:
            elems = storage.moved(elems, None if self.keep_on_cpu else device)
        return reduce(self, elems, device=device, pin_memory=pin_memory)

    inputs.BaseMultiModalField.reduce_data = reduced
    _installed = True
    return ""


def _changed(release: str) -> str:
    """How vLLM's classes differ from what this module was written for, or nothing."""
    signed = lookup(release).signed
    handle = ["address", "monotonic_id", *(["signature"] if signed else [])]
    storage = shm_object_storage.SingleWriterShmObjectStorage
    expected: list[tuple[Any, str, list[str]]] = [
        (shm.ShmObjectStoreReceiverCache, "__init__", ["self", "vllm_config", "shared_worker_lock"]),
        (shm.ShmObjectStoreReceiverCache, "get_and_update_item", ["self", "mm_item", "mm_hash"]),
        (shm.ShmObjectStoreReceiverCache, "touch_receiver_cache_item", ["self", "mm_hash", "mm_item"]),
        (shm.ShmObjectStoreReceiverCache, "clear_cache", ["self"]),
        (storage, "get", ["self", *handle, *(["key"] if signed else [])]),
        (storage, "touch", ["self", "key", *handle]),
        (storage, "clear", ["self"]),
        (storage, "close", ["self"]),
        (inputs.BaseMultiModalField, "reduce_data", ["self", "elems", "device", "pin_memory"]),
        (inputs.MultiModalFieldElem, "__init__", ["self", "data", "field"]),
        (inputs.MultiModalBatchedField, "__init__", ["self", "keep_on_cpu"]),
        (inputs.MultiModalFlatField, "__init__", ["self", "keep_on_cpu", "slices", "dim"]),
        (inputs.MultiModalSharedField, "__init__", ["self", "keep_on_cpu", "batch_size"]),
    ]
    for owner, name, parameters in expected:
        method = getattr(owner, name, None)
        if method is None:
            return f"{owner.__name__} has no {name}"
        if list(inspect.signature(method).parameters) != parameters:
            return f"{owner.__name__}.{name} has other parameters than {', '.join(parameters)}"
    if not hasattr(serial_utils, "PIN_MEMORY"):
        return "vllm.v1.serial_utils has no PIN_MEMORY"
    for field in inputs.BaseMultiModalField.__subclasses__():
        if "reduce_data" in vars(field):
            return f"{field.__name__} has a reduce_data of its own"
    return ""


class _Held:
    """An object in place: its lease, and what of it is alive."""

    __slots__ = ("address", "id", "lease", "memory", "tensors")

    def __init__(self, address: int, id: int, lease: pin.Lease) -> None:
        self.address, self.id, self.lease = address, id, lease
        # The bytes of each tensor, by the number that torch has for their storage.
        self.memory: dict[int, npt.NDArray[np.uint8]] = {}
        self.tensors: list[weakref.ref[Any]] = []

    def spill(self) -> None:
        """Give its tensors private memory. The lease ends when nothing views the ring."""
        # A tensor that was made outside of inference mode takes no data made inside of it.
        with torch.inference_mode(False):
            for reference in self.tensors:
                if (tensor := reference()) is not None:
                    tensor.data = _copy(tensor)
        self.tensors.clear()


class Storage:
    """Takes the place of vLLM's ``SingleWriterShmObjectStorage`` in a worker's receiver."""

    def __init__(self, stock: Any, release: str) -> None:
        ring = stock.ring_buffer
        self._reader = Reader(
            ring.shared_memory.name,
            ring.data_buffer_size,
            generation=release,
            max_object_size=stock.max_object_size,
            n_readers=stock.n_readers,
            lock=stock._reader_lock,
        )
        segment = self._reader._segment
        self._mapping = range(segment.address, segment.address + segment.data_offset + segment.size)
        self._device = device_type()
        self._driver: Driver | None = None
        self._staging: pin.Staging | None = None
        self._decided = False  # whether to pin; at the first get, when there is a device
        # Tensors by the number that torch has for their memory, which views share.
        self._held: dict[int, _Held] = {}
        self._newest: tuple[int, int] | None = None  # address and id
        self._ending = threading.Lock()
        self._closed = False
        if self._device.expected():
            try:
                segment.populate()  # now, and not while the first request waits
            except SegmentError as e:
                self._decided = True
                self._fall_back(str(e))
        stock.close()
        _storages.append(self)
        # Also runs in processes that multiprocessing started, where atexit does not.
        multiprocessing.util.Finalize(None, self.close, exitpriority=_AT_EXIT)

    def touch(
        self, key: str, address: int = 0, monotonic_id: int = 0, signature: list[int] | None = None
    ) -> None:
        self._poll()
        self._reader.touch(address, monotonic_id, key, signature)

    def get(
        self,
        address: int,
        monotonic_id: int,
        signature: list[int] | None = None,
        key: str | None = None,
    ) -> Any:
        if not self._decided:
            self._decide()
        if self._staging is None:
            with self._reader.get(address, monotonic_id, key, signature) as view:
                item = self._build(view.item, None)
            counts.copied += 1
            return item
        self._poll()
        lease = self._lease(self._staging, address, monotonic_id, key, signature)
        held = _Held(address, monotonic_id, lease)
        try:
            item = self._build(lease.view.item, held)
        except BaseException:
            if not held.memory:  # else the tensors' end is the lease's
                lease.end()
            raise
        if held.memory:
            counts.in_place += 1
        else:  # small tensors only, which are private
            lease.end()
            counts.copied += 1
        self._make_room(address, monotonic_id)
        return item

    def clear(self) -> None:
        self._poll()

    def moved(self, elems: list[Any], device: Any) -> list[Any]:
        """Elements for ``reduce_data``, whose tensors of the ring went to the device.

        With one of them all go there, since vLLM joins them to one tensor. Where the
        target is no device they get private memory: a model may change what it is given.
        """
        self._poll()  # also for what came without the ring: the writer may have had no room in it
        if not self._held or not any(self._find(t) for elem in elems for t in _leaves(elem.data)):
            return elems
        takes = device is not None and self._driver is not None and self._device.takes(device, self._driver.device)

        def move(leaf: Any) -> Any:
            if takes:
                return self._to_device(leaf, device)
            return _copy(leaf) if self._find(leaf) else leaf

        return [type(elem)(data=_map(move, elem.data), field=elem.field) for elem in elems]

    def close(self) -> None:
        """Wait for copies, give the registration back, and log what was done."""
        with self._ending:
            if self._closed:
                return
            self._closed = True
        if self in _storages:
            _storages.remove(self)
        try:
            if self._staging is not None:
                for held in list(self._held.values()):  # of requests that have not ended
                    held.lease.end()
                self._staging.close()
            if self._driver is not None:
                self._driver.close()
        finally:
            _logger.info(
                "ringcache: segment %s: %d registrations of %d bytes, objects: %d read in place, %d copied, "
                "%d spilled; %d copies to the device",
                self._reader.name,
                counts.registrations,
                counts.registered_bytes,
                counts.in_place,
                counts.copied,
                counts.spilled,
                counts.device_copies,
            )
        try:
            self._reader.close()
        except SegmentBusyError:
            pass  # tensors of those requests view it; it is unmapped when the process ends

    def _decide(self) -> None:
        """Register the mapping, or say why not and copy from then on."""
        self._decided = True
        if self._reader.generation.counting is CountRule.TOUCH and not self._reader.protected:
            # There a touch counts only if all readers have counted before. A reader that
            # counts late would miss it, and the writer would wait for ever.
            self._fall_back("readers of this release must count at once, but where the writer keeps what they hold")
            return
        try:
            self._driver = Driver(self._device.index())
            self._staging = pin.Staging(self._reader, self._driver, require=True)
        except Exception as e:
            self._staging = None
            if self._driver is not None:
                self._driver.close()
                self._driver = None
            self._fall_back(f"{type(e).__name__}: {e}")
            return
        counts.registrations += 1
        counts.registered_bytes += self._reader.size + self._reader.generation.data_offset

    def _fall_back(self, reason: str) -> None:
        _logger.warning(
            "ringcache cannot pin segment %s, so this worker copies objects as without the plugin: %s",
            self._reader.name,
            reason,
        )

    def _lease(
        self, staging: pin.Staging, address: int, id: int, key: str | None, signature: list[int] | None
    ) -> pin.Lease:
        try:
            return staging.get(address, id, key, signature)
        except SegmentBusyError:
            # The reader's slot has no more places. Private copies free them.
            for held in list(self._held.values()):
                self._spill(held)
            staging.drain()
            return staging.get(address, id, key, signature)

    def _build(self, item: Item, held: _Held | None) -> Any:
        """vLLM's item. Its large tensors view the ring, if it is held."""
        return inputs.MultiModalKwargsItem(
            {
                key: inputs.MultiModalFieldElem(
                    data=self._data(elem.data, None if elem.field.keep_on_cpu or key == _COPIED_BY_VLLM else held),
                    field=_field(elem.field),
                )
                for key, elem in item.items()
            }
        )

    def _data(self, data: Nested, held: _Held | None) -> Any:
        if isinstance(data, Tensor):
            return self._tensor(data, held)
        if isinstance(data, list):
            return [self._data(inner, held) for inner in data]
        return data

    def _tensor(self, tensor: Tensor, held: _Held | None) -> Any:
        if not tensor.nbytes:
            return torch.empty(tensor.shape, dtype=getattr(torch, tensor.dtype))
        data = TorchBytes(tensor.data)
        raw = torch.from_numpy(np.asarray(data))
        # Not view(): torch keeps what a view was made of, even when the view gets other memory.
        found = torch.empty(0, dtype=getattr(torch, tensor.dtype)).set_(raw.untyped_storage(), 0, tensor.shape)
        if data.address not in self._mapping:  # a small tensor
            return found.clone()
        if held is None:
            return _copy(found)
        number = _number(found)
        held.memory[number] = data.array
        held.tensors.append(weakref.ref(found))
        self._held[number] = held
        weakref.finalize(data, self._gone, number).atexit = False
        return found

    def _gone(self, number: int) -> None:
        """Nothing views a tensor's memory any more. Runs in finalisers, in any thread."""
        held = self._held.pop(number, None)
        if held is not None:
            held.memory.pop(number, None)
            if not held.memory:
                held.lease.end()

    def _find(self, tensor: Any) -> _Held | None:
        return self._held.get(_number(tensor)) if isinstance(tensor, torch.Tensor) and tensor.is_cpu else None

    def _to_device(self, tensor: Any, device: Any) -> Any:
        if not isinstance(tensor, torch.Tensor) or not tensor.is_cpu:
            return tensor
        held, copied = self._find(tensor), self._device.empty(tensor, device)
        if held is None:
            # From pinned memory of torch's own, which torch keeps until the copy is done: a copy that blocks
            # would wait for all of the stream.
            return copied.copy_(tensor if tensor.is_pinned() else _copy(tensor), non_blocking=True)
        if not tensor.is_contiguous():
            return copied.copy_(tensor)
        # Not Lease.copy, which keeps the device's tensor until the next poll, and that may be far: torch
        # itself lets nothing of the stream use its memory before the copy is done.
        memory = held.memory[_number(tensor)]
        start = tensor.data_ptr() - memory.__array_interface__["data"][0]
        source = memory[start : start + tensor.nbytes]
        held.lease.copy_raw(source, copied.data_ptr(), self._device.stream(device))
        counts.device_copies += 1
        return copied

    def _make_room(self, address: int, id: int) -> None:
        """Spill what a writer without slots would soon wait for.

        Such a writer frees in the order in which it wrote, so one object that is kept
        keeps all behind it. What the newest object is half a ring ahead of is in the way.
        """
        if self._reader.protected:
            return
        if self._newest is None or (id - self._newest[1]) % _IDS < _IDS // 2:
            self._newest = address, id
        ring = self._reader.size
        for held in set(self._held.values()):
            if (self._newest[0] - held.address) % ring >= ring // 2:
                self._spill(held)

    def _spill(self, held: _Held) -> None:
        if held.tensors:
            held.spill()
            counts.spilled += 1

    def _poll(self) -> None:
        if self._staging is not None:
            self._staging.poll()


def _field(field: Field) -> Any:
    keep = field.keep_on_cpu
    if isinstance(field, Batched):
        return inputs.MultiModalBatchedField(keep_on_cpu=keep)
    if isinstance(field, Flat):
        slices = [s if isinstance(s, slice) else list(s) for s in field.slices]
        return inputs.MultiModalFlatField(slices=slices, dim=field.dim, keep_on_cpu=keep)
    return inputs.MultiModalSharedField(batch_size=field.batch_size, keep_on_cpu=keep)


def _number(tensor: Any) -> int:
    return int(tensor.untyped_storage()._cdata)


def _copy(tensor: Any) -> Any:
    """A private copy, in pinned memory where a stock worker would take that."""
    return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=serial_utils.PIN_MEMORY).copy_(tensor)


def _leaves(data: Any) -> Iterator[Any]:
    if isinstance(data, (list, tuple)):
        for inner in data:
            yield from _leaves(inner)
    else:
        yield data


def _map(change: Callable[[Any], Any], data: Any) -> Any:
    if isinstance(data, (list, tuple)):
        return type(data)(_map(change, inner) for inner in data)
    return change(data)

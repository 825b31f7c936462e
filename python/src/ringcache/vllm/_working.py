"""A worker's half of the encoder connector: it copies outputs out of its own mapping of the
daemon's segment, and into it."""

# See docs/decisions.md, "Outputs are stored beside the engine's work".

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Iterable, MutableMapping
from typing import Any, Final

import numpy as np
import torch

from .._torch import TorchBytes
from ..daemon import Client, Item, Mapping, Object, Segment
from ..errors import DaemonError, RingcacheError
from ._link import Link
from ._mappings import Mappings
from ._scheduling import Load, parse_note
from ._stats import Stats

_logger: Final = logging.getLogger("vllm.ringcache")

_SAVING: Final = "save"  # the lease of what is being saved
_SAVE_SECONDS: Final = 300  # that an output may take to be written, from the question for room on
_PIECE: Final = 16 << 20  # bytes that are written between two looks at the clock
_WITHOUT: Final = "outputs are not stored"  # is done while the daemon is away
_AGAIN: Final = "again"  # the lease of hits that are gone and are asked for by name

# Of a device's outputs that wait to be saved; beyond, one is not saved. They hold the device's memory.
_QUEUE: Final = 64

_QUEUE_BYTES: Final = 512 << 20  # of them, but for a single one

_ASK_AGAIN: Final = 0.005  # seconds
_CLOSING: Final = 5.0  # seconds that the end of a worker waits for what is being saved


class Worker:
    """See the module. ``first`` is whether this worker is the one that saves and counts for all that have the same
    outputs, ``saves`` whether anything is saved. ``device`` is where outputs are to be."""

    def __init__(
        self,
        client: Client,
        *,
        first: bool,
        saves: bool,
        wait: float,
        tenant: str,
        pin: bool,
        device: torch.device,
    ) -> None:
        self._client = client
        self._first = first
        self._saves = saves and first
        self._writable = saves
        self._wait = wait
        self._tenant = tenant
        self._device = device
        self._mappings = Mappings(writable=saves, pin=pin, device=device)
        self._to_abort: dict[str, None] = {}
        self._link = Link(client, "worker")
        self._queue: queue.Queue[tuple[str, torch.Tensor, Any] | None] = queue.Queue(_QUEUE)
        self._queued = 0  # bytes
        self._queued_lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self.stats = Stats()

    def start(self) -> None:
        """Map the segment, and register it with the driver, before there are requests."""
        try:
            self._mappings.of(self._client.hello().segment)
            self._link.worked()
        except DaemonError as e:
            if self._saves:  # of what is loaded the scheduler speaks
                self._link.failed(e, _WITHOUT)
        except RingcacheError as e:
            _logger.error("The daemon's segment can't be mapped by this worker: %s", e)
        if self._saves:
            # The worker's own mapping is made by who uses it, since it may be pinned for a device.
            writable = self._writable
            self._link.watch(_WITHOUT, lambda hello: Mapping(hello.segment, writable=writable).close())

    def load(self, loads: Iterable[Load], cache: MutableMapping[str, torch.Tensor]) -> None:
        """Put outputs into the engine's cache. They were hits, and the engine ends
        with the :class:`RuntimeError` if one can't be had any more."""
        for load in loads:
            if load.identifier in cache:
                continue
            try:
                cache[load.identifier] = self._copy_out(load)
            except (RingcacheError, ValueError, TypeError) as e:
                _logger.error("The pinned output of %s is gone: %s", load.identifier, e)
                cache[load.identifier] = self._again(load, e)
            if self._first:
                self.stats.add(loaded_bytes=load.size)

    def save(self, identifier: str, tensor: torch.Tensor) -> None:
        """Store an output. It never raises because of the daemon."""
        if not self._saves:
            return
        if not isinstance(tensor, torch.Tensor):
            self._refuse(identifier, f"it is a {type(tensor).__name__}")
            return
        tensor = tensor.detach()
        if tensor.device.type != "cuda":
            self._store_safely(identifier, tensor)
            return
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._run, name="ringcache-save", args=(tensor.device,), daemon=True
            )
            self._thread.start()
        size = tensor.nbytes
        with self._queued_lock:
            full = bool(self._queued) and self._queued + size > _QUEUE_BYTES
            if not full:
                self._queued += size
        if full:
            self.stats.add(skipped=1)
            return
        ready = torch.cuda.Event()
        ready.record(torch.cuda.current_stream(tensor.device))
        try:
            self._queue.put_nowait((identifier, tensor, ready))
        except queue.Full:
            self._unqueued(size)
            self.stats.add(skipped=1)

    def _unqueued(self, size: int) -> None:
        with self._queued_lock:
            self._queued -= size

    def close(self) -> None:
        """End saving, and unmap."""
        self._link.close()
        if self._thread is not None:
            try:
                self._queue.put(None, timeout=_CLOSING)
                self._thread.join(_CLOSING)
            except queue.Full:
                pass
            if self._thread.is_alive():
                return  # it uses the mapping; the process is about to end
        try:
            if self._to_abort and self._client.alive():
                self._abort()
        except DaemonError:
            pass
        self._client.close()
        self._mappings.close()

    def _copy_out(self, load: Load) -> torch.Tensor:
        dtype = getattr(torch, load.dtype)
        view = self._mappings.of(load.segment).view(load.offset, load.size)
        source = torch.from_numpy(np.asarray(TorchBytes(view))).view(dtype).view(load.shape)
        if self._device.type == "cpu":
            return source.clone()
        target = torch.empty(load.shape, dtype=dtype, device=self._device)
        # Out of pages that are registered the device copies by itself. The pin is kept until
        # the step's output is there, which is after the copy, by the order of the stream.
        target.copy_(source, non_blocking=self._mappings.pinned(load.segment))
        return target

    def _again(self, load: Load, cause: Exception) -> torch.Tensor:
        """Ask for a pinned output that is gone. A lower level may have it."""
        deadline = time.monotonic() + self._wait
        item, hello = Item("unavailable"), None
        while True:
            try:
                items = self._client.pin(_AGAIN, [load.identifier], seconds=60)
                (item,), hello = items, items.hello
                if item.status != "pending":
                    break
            except DaemonError as e:
                cause = e
            if time.monotonic() >= deadline:
                break
            time.sleep(_ASK_AGAIN)
        try:
            if item.status == "hit" and hello is not None:
                dtype, shape = parse_note(item.note, item.size)
                found = Load(load.identifier, hello.segment, item.offset, item.size, dtype, shape)
                tensor = self._copy_out(found)
                if tensor.is_cuda:
                    torch.cuda.current_stream(tensor.device).synchronize()
                return tensor
        except (RingcacheError, ValueError) as e:
            cause = e
        finally:
            try:
                self._client.release(_AGAIN)
            except DaemonError:
                pass  # the lease ends after a minute by itself
        raise RuntimeError(
            f"the encoder output {load.identifier} was pinned and is gone, and so is every copy of it "
            f"({item.status}: {cause}). vLLM can't encode it in this step any more. Keep the daemon's "
            "shared memory while engines run, and give the daemon a disk or a Redis"
        ) from cause

    def _store(self, identifier: str, tensor: torch.Tensor) -> None:
        dtype = str(tensor.dtype).removeprefix("torch.")
        note = " ".join([dtype, *(str(n) for n in tensor.shape)])
        size = tensor.nbytes
        try:
            parse_note(note.encode(), size)
        except ValueError as e:
            self._refuse(identifier, str(e))
            return
        try:
            self._client.hello()  # if that fails, nothing was asked for
            self._abort()
            thing = Object(name=identifier, size=size, note=note.encode(), tenant=self._tenant)
            self._to_abort[identifier] = None
            began = time.monotonic()
            try:
                items = self._client.reserve(_SAVING, [thing], seconds=_SAVE_SECONDS)
            except DaemonError as e:
                if e.kind != "away":  # it was refused, so nothing is reserved
                    del self._to_abort[identifier]
                raise
            (item,), hello = items, items.hello
            assert hello is not None
            self._mappings.of(hello.segment)
            self._link.worked()
            if item.status != "reserved":
                # Pending may mean that this worker reserved it before, and the answer was lost.
                if item.status != "pending":
                    del self._to_abort[identifier]
                if item.status in ("exists", "pending", "full"):
                    self.stats.add(skipped=1)
                else:
                    self._refuse(identifier, f"the daemon answers {item.status}")
                return
            if item.size != size:
                raise ValueError(f"{item.size} bytes are reserved for it, not {size}")
            seconds = min(_SAVE_SECONDS, hello.limits.seconds or _SAVE_SECONDS)
            self._copy_in(hello.segment, item.offset, tensor, began + seconds)
            (done,) = self._client.commit(_SAVING, [identifier])
            del self._to_abort[identifier]
        except RingcacheError as e:
            self.stats.add(failures=1)
            self._link.failed(e, _WITHOUT)
            return
        except ValueError as e:
            self.stats.add(failures=1)
            self._link.refused(f"An encoder output is not stored: {e}")
            return
        if done.status == "ok":
            self.stats.add(saves=1, saved_bytes=size)
        else:
            self.stats.add(skipped=1)

    def _store_safely(self, identifier: str, tensor: torch.Tensor) -> None:
        try:
            self._store(identifier, tensor)
        except Exception as e:  # of torch, such as one about memory
            self._refuse(identifier, f"{type(e).__name__}: {e}")

    def _refuse(self, identifier: str, reason: str) -> None:
        self.stats.add(skipped=1)
        self._link.refused(f"An encoder output is not stored: {reason}")
        _logger.debug("It is that of %s", identifier)

    def _abort(self) -> None:
        """Give up reservations whose answer did not come, or that were not written."""
        if self._to_abort:
            names = list(self._to_abort)
            self._client.abort(_SAVING, names)
            for name in names:
                self._to_abort.pop(name, None)

    def _copy_in(self, segment: Segment, offset: int, tensor: torch.Tensor, deadline: float) -> None:
        """Write an output. Nothing is written that begins after the deadline, of time.monotonic: the
        room may be another object's some minutes later, when this process was stopped meanwhile."""
        view = self._mappings.of(segment).view(offset, tensor.nbytes)
        target = torch.from_numpy(np.frombuffer(view, np.uint8)).view(tensor.dtype).view(tensor.shape)
        rows = max(1, _PIECE // max(1, tensor[:1].nbytes))
        for at in range(0, len(tensor), rows):
            if time.monotonic() >= deadline:
                raise ValueError("writing an output took longer than its room is kept")
            target[at : at + rows].copy_(tensor[at : at + rows])

    def _run(self, device: torch.device) -> None:
        """Saves outputs of a device, one after the other, beside the engine's work."""
        torch.cuda.set_device(device)
        stream = torch.cuda.Stream(device)
        while (job := self._queue.get()) is not None:
            identifier, tensor, ready = job
            try:
                with torch.cuda.stream(stream):
                    stream.wait_event(ready)
                    ready.synchronize()
                    self._store_safely(identifier, tensor)
            except Exception as e:  # the device is lost, which the engine says, too
                self._refuse(identifier, f"{type(e).__name__}: {e}")
            size = tensor.nbytes
            del job, tensor, ready
            self._unqueued(size)

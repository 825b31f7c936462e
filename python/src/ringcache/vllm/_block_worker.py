"""A worker's half of offloading: it copies KV blocks out of its own mapping of the daemon's segment,
and into it."""

# See docs/decisions.md, "KV blocks are one object for each worker, stored by the worker".

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch

from ..daemon import Client, Mapping, Object
from ..errors import DaemonError, RingcacheError
from ._blocks import WHAT, Place
from ._link import Link
from ._mappings import Mappings

_logger: Final = logging.getLogger("vllm.ringcache")

_STORING: Final = "kv-store"  # the lease of what is being stored
_STORE_SECONDS: Final = 300  # that a batch may take to be written, from the question for room on
_BATCH: Final = 128  # blocks that are reserved, written and published at a time
_WITHOUT: Final = "blocks are not stored"  # is done while the daemon is away
_REFUSED: Final = 4096  # names that are remembered


@dataclass(frozen=True)
class Done:
    """What became of a job."""

    job: int
    size: int  # bytes
    seconds: float


class BlockWorker:
    """See the module. ``tensors`` have a row for each block, of so many bytes; ``rank`` is this
    worker's."""

    def __init__(
        self,
        client: Client,
        *,
        tensors: Sequence[tuple[torch.Tensor, int]],
        rank: int,
        tenant: str,
        pin: bool,
    ) -> None:
        self._client = client
        self._tensors = tensors
        self.size = sum(size for _, size in tensors)
        self._rank = rank
        self._tenant = tenant
        self._device = tensors[0][0].device
        self._mappings = Mappings(writable=True, pin=pin, device=self._device)
        self._link = Link(client, f"worker {rank}", what=WHAT)
        self._to_abort: dict[str, None] = {}
        self._refused: dict[str, None] = {}  # names of blocks that found no room
        self._done: list[Done] = []
        # Of a device, whose copies are made beside its work. Loads do not wait behind stores.
        self._jobs: dict[int, Future[Done]] = {}
        self._loads = ThreadPoolExecutor(1, "ringcache-load") if self._device.type == "cuda" else None
        self._stores = ThreadPoolExecutor(1, "ringcache-store") if self._device.type == "cuda" else None

    def start(self) -> None:
        """Map the segment before there are requests. Raises :class:`ValueError` if this process can't,
        since it could not load what the scheduler has a lease of."""
        try:
            self._mappings.of(self._client.hello().segment)
            self._link.worked()
        except DaemonError as e:
            self._link.failed(e, _WITHOUT)
        except RingcacheError as e:
            raise ValueError(f"KVOffloadingSpec: worker {self._rank} can't map the daemon's segment: {e}") from e
        self._link.watch(_WITHOUT, lambda hello: Mapping(hello.segment, writable=True).close())

    def load(self, job: int, places: Sequence[tuple[Place, ...]], rows: Sequence[int]) -> None:
        """Copy blocks into rows of the tensors. The scheduler's lease pins them, and the engine ends
        with the :class:`RuntimeError` if one can't be had any more."""
        self._submit(self._loads, job, lambda: self._load([place[self._rank] for place in places], rows))

    def store(self, job: int, names: Sequence[str], parents: Sequence[str], rows: Sequence[int]) -> None:
        """Store rows of the tensors as blocks. What the daemon does not take is no error."""
        self._submit(self._stores, job, lambda: self._store_safely(names, parents, rows))

    def finished(self) -> list[Done]:
        """The jobs that have ended since the last call."""
        for job, future in list(self._jobs.items()):
            if future.done():
                del self._jobs[job]
                self._done.append(future.result())
        done, self._done = self._done, []
        return done

    def wait(self, jobs: set[int]) -> None:
        """Wait for the end of jobs; :meth:`finished` tells of them all the same."""
        for job in jobs:
            if (future := self._jobs.get(job)) is not None:
                future.result()

    def close(self) -> None:
        self._link.close()
        for pool in (self._loads, self._stores):
            if pool is not None:
                pool.shutdown()
        try:
            if self._to_abort and self._client.alive():
                self._abort()
        except DaemonError:
            pass
        self._client.close()
        self._mappings.close()

    def _submit(self, pool: ThreadPoolExecutor | None, job: int, copy: Callable[[], int]) -> None:
        began = time.monotonic()
        if pool is None:
            self._done.append(Done(job, copy(), time.monotonic() - began))
            return
        ready = torch.cuda.Event()
        ready.record(torch.cuda.current_stream(self._device))

        def beside() -> Done:
            torch.cuda.set_device(self._device)
            stream = torch.cuda.Stream(self._device)
            with torch.cuda.stream(stream):
                stream.wait_event(ready)
                size = copy()
                stream.synchronize()
            return Done(job, size, time.monotonic() - began)

        self._jobs[job] = pool.submit(beside)

    def _load(self, places: Sequence[Place], rows: Sequence[int]) -> int:
        for place, row in zip(places, rows, strict=True):
            try:
                for part, tensor in self._parts(place, row):
                    tensor.copy_(part, non_blocking=self._mappings.pinned(place.segment))
            except RingcacheError as e:
                raise RuntimeError(
                    f"KV blocks are leased, and this worker can't map the segment that has them ({e}). vLLM "
                    "can't compute them in this step any more. Keep the daemon's shared memory while engines run"
                ) from e
        return len(rows) * self.size

    def _store_safely(self, names: Sequence[str], parents: Sequence[str], rows: Sequence[int]) -> int:
        stored = at = 0
        try:
            for at in range(0, len(names), _BATCH):
                part = slice(at, at + _BATCH)
                stored += self._store(names[part], parents[part], rows[part])
            return stored * self.size
        except RingcacheError as e:
            self._link.failed(e, _WITHOUT)
        except Exception as e:  # of torch, or of time
            self._link.refused(f"KV blocks are not stored: {type(e).__name__}: {e}")
        for name in names[at:]:
            self._refuse(name)
        return stored * self.size

    def _store(self, names: Sequence[str], parents: Sequence[str], rows: Sequence[int]) -> int:
        """Store a batch; the result is how many blocks of it."""
        # What comes behind a block that is not there is of no use to anybody.
        wanted = []
        for name, parent, row in zip(names, parents, rows, strict=True):
            if parent in self._refused:
                self._refuse(name)
            else:
                self._refused.pop(name, None)  # it is tried anew
                wanted.append((name, parent, row))
        if not wanted:
            return 0
        self._client.hello()  # if that fails, nothing was asked for
        began = time.monotonic()
        objects = {
            self._object(name): Object(
                name=self._object(name),
                size=self.size,
                parent=self._object(parent) if parent else "",
                tenant=self._tenant,
            )
            for name, parent, _ in wanted
        }
        self._to_abort.update(dict.fromkeys(objects))
        try:
            items = self._client.reserve(_STORING, list(objects.values()), seconds=_STORE_SECONDS)
        except DaemonError as e:
            if e.kind != "away":  # it was refused, so nothing is reserved
                self._keep(objects)
            raise
        hello = items.hello
        assert hello is not None
        self._mappings.of(hello.segment)
        self._link.worked()
        deadline = began + min(_STORE_SECONDS, hello.limits.seconds or _STORE_SECONDS)
        written = []
        for (name, parent, row), item in zip(wanted, items, strict=True):
            if item.status == "exists":
                self._keep([self._object(name)])
            elif item.status == "pending":
                continue  # maybe this worker reserved it before, and the answer was lost
            elif item.status != "reserved" or parent in self._refused:
                self._refuse(name)
            else:
                # The room may be another object's some minutes later, when this process was stopped.
                if item.size != self.size or time.monotonic() >= deadline:
                    raise ValueError(f"{item.size} bytes for a block of {self.size}, or no time to write them")
                for part, tensor in self._parts(Place(hello.segment, item.offset), row):
                    part.copy_(tensor, non_blocking=self._mappings.pinned(hello.segment))
                written.append(name)
        if self._device.type == "cuda":
            torch.cuda.current_stream(self._device).synchronize()
        done = self._client.commit(_STORING, [self._object(name) for name in written]) if written else []
        self._keep(self._object(name) for name in written)
        self._abort()
        return sum(item.status == "ok" for item in done)

    def _object(self, name: str) -> str:
        return f"{name}.{self._rank}"

    def _parts(self, place: Place, row: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """The bytes of a block in the mapping beside those of each tensor."""
        view = self._mappings.of(place.segment).view(place.offset, self.size)
        whole = torch.from_numpy(np.frombuffer(view, np.int8))
        return list(zip(whole.split([size for _, size in self._tensors]), [t[row] for t, _ in self._tensors]))

    def _refuse(self, name: str) -> None:
        self._refused[name] = None
        if len(self._refused) > _REFUSED:
            del self._refused[next(iter(self._refused))]

    def _keep(self, names: Iterable[str]) -> None:
        for name in names:
            self._to_abort.pop(name, None)

    def _abort(self) -> None:
        """Give up reservations whose answer did not come, or that were not written."""
        if self._to_abort:
            names = list(self._to_abort)
            self._client.abort(_STORING, names)
            self._keep(names)

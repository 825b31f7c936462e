"""The scheduler's half of offloading: which KV blocks the daemon has, and where.

vLLM can't take back that a block can be loaded, so a block is pinned before it is said to be
there. It stays pinned until no request may load it any more and each load of it is complete.

A block of an engine with several workers is one object for each of them. Nothing here needs torch
or vLLM.
"""

# See docs/decisions.md, "KV blocks are one object for each worker, stored by the worker".

from __future__ import annotations

import hashlib
import json
import logging
import pathlib
import re
import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ..daemon import Client, Item, Mapping, Segment
from ._link import Link
from ._options import Options, weights_digest
from ._pins import Pins
from ._stats import Stats

_logger: Final = logging.getLogger("vllm.ringcache")

#: The lease of what may be loaded. It is one for all, whose time every pin extends.
LEASE: Final = "kv-load"

WHAT: Final = "KV blocks"  # are shared
_WITHOUT: Final = "blocks are computed"  # is done while the daemon is away

_ASK_AGAIN: Final = 0.002  # seconds between questions about what is pending
_LOOK: Final = 0.001  # seconds between looks at the connection
_MISS: Final = 1.0  # seconds that a miss is believed, for a request
_NAMES: Final = 128  # in a question, so that it waits for none of the daemon's room for large ones

#: Of ``kv_connector_extra_config``, what vLLM reads itself and what can be right here.
_THEIRS: Final = (
    "spec_name",
    "spec_module_path",
    "offload_prompt_only",
    "self_describing_kv_events",
    "sync_load_budget_bytes",
)

_OPTIONS: Final = "kv_connector_extra_config"

#: The name of the spec in it.
SPEC: Final = "KVOffloadingSpec"


def of_transfer(transfer: dict[str, Any]) -> Options:
    """The options of ``--kv-transfer-config``, as JSON has it. Raises :class:`ValueError` also for what
    vLLM would find itself, or would not: another connector's configuration."""
    for name, value in (("kv_connector", "OffloadingConnector"), ("kv_role", "kv_both")):
        if transfer.get(name) != value:
            raise ValueError(f"{name} must be {value!r}, got {transfer.get(name)!r}")
    extra = transfer.get(_OPTIONS)
    if not isinstance(extra, dict):
        raise ValueError(f"{_OPTIONS} must be an object, in braces, got {extra!r}")
    for name, value in (("spec_name", SPEC), ("spec_module_path", "ringcache.vllm")):
        if extra.get(name) != value:
            raise ValueError(f"{_OPTIONS}: {name} must be {value!r}, got {extra.get(name)!r}")
    return options_of(extra)


def options_of(extra: Any) -> Options:
    """Our options. Raises :class:`ValueError` for what is unknown, and for what can't work."""
    for name in ("blocks_per_chunk", "block_size"):
        if name in extra and (name, extra[name]) != ("blocks_per_chunk", 1):
            raise ValueError(f"{_OPTIONS}: {name} can't be set here, an object is one block: leave it out")
    if extra.get("canonical_layout"):
        raise ValueError(f"{_OPTIONS}: canonical_layout is not supported here: leave it out")
    known = (*_THEIRS, "blocks_per_chunk", "canonical_layout")
    try:
        return Options.of({k: v for k, v in extra.items() if k not in known}, _OPTIONS)
    except ValueError as e:
        more = f", and vLLM's own {', '.join(_THEIRS)}" if "has no option" in str(e) else ""
        raise ValueError(f"{e}{more}") from None


def check(config: Any) -> None:
    """Raise :class:`ValueError` for an engine whose blocks can't be shared. ``config`` is vLLM's
    OffloadingConfig."""
    if len(config.groups) != 1:
        raise ValueError(
            f"the model's KV cache has {len(config.groups)} groups, as hybrid models have, and only one is "
            "supported; start vLLM without --kv-transfer-config"
        )


def space_of(config: Any, options: Options, version: str, device: str) -> str:
    """The space of an engine's blocks: the same in all its processes, and in each engine whose
    blocks have the same bytes for the same hash. ``config`` is vLLM's OffloadingConfig."""
    if options.space:
        return options.space
    model, parallel, (group,) = config.model, config.parallel, config.groups
    fields = {
        "model": model.name,
        "revision": options.revision or _revision(model.name),
        "dtype": model.dtype,
        "engine": version,
        "device": device,
        "layout": config.kv_cache_layout,
        "tokens": [group.tokens_per_block, config.cache.tokens_per_hash],
        "parallel": [
            parallel.world_size,
            parallel.tp_size,
            parallel.pp_size,
            parallel.pcp_size,
            parallel.dcp_size,
        ],
    }
    text = "ringcache kv offloading 1\0" + json.dumps(fields, sort_keys=True)
    last = model.name.rstrip("/").rpartition("/")[2]
    words = [re.sub(r"[^A-Za-z0-9.-]", "_", word)[:64] for word in (last, version)]
    return ".".join(["kv", *words, hashlib.sha256(text.encode()).hexdigest()[:32]])


def _revision(name: str) -> str:
    folder = pathlib.Path(name)
    if not folder.exists():
        # vLLM's --revision is not known here, so the hub's cache can't tell which weights are used.
        raise ValueError(
            f"{name} is no folder, and vLLM does not tell offloading which of its revisions is loaded; give "
            f'{_OPTIONS} a "revision", such as the commit, and another one for other weights'
        )
    try:
        return "weights " + weights_digest(folder)
    except OSError as e:
        raise ValueError(f"the weights of {name} can't be read ({e}); give {_OPTIONS} a revision") from e


@dataclass(frozen=True)
class Place:
    """Where a worker's part of a block is."""

    segment: Segment
    offset: int


@dataclass
class _Block:
    """What is pinned of a block."""

    places: tuple[Place, ...]  # by rank
    epoch: int  # of the client, when the daemon said hit
    users: set[str] = field(default_factory=set)  # requests


@dataclass
class _Request:
    held: set[str] = field(default_factory=set)  # names of blocks that are pinned for it
    loading: set[str] = field(default_factory=set)  # of these, what a worker may be copying
    pending: set[str] = field(default_factory=set)  # names of blocks on their way
    answers: dict[str, tuple[str, float]] = field(default_factory=dict)  # but hits, and since when
    deadline: float | None = None  # of what is pending
    late: bool = False  # it has passed, and was counted
    finished: bool = False


class Blocks:
    """See the module. ``size`` is that of a worker's part of a block, in bytes."""

    def __init__(
        self,
        client: Client,
        *,
        size: int,
        ranks: int,
        wait: float,
        seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._size = size
        self._ranks = ranks
        self._wait = wait
        self._clock = clock
        self._prefix = ""  # of names
        self._looked = 0, 0.0  # the epoch of the connection that was up, and when
        self._blocks: dict[str, _Block] = {}
        self._requests: dict[str, _Request] = {}
        self.stats = Stats()
        self._link = Link(client, "scheduler", clock, WHAT)
        self._pins = Pins(
            client, self._link, LEASE, seconds=seconds, without=_WITHOUT, known=self._used, clock=clock
        )

    def watch(self) -> None:
        """Tell the log when the daemon goes and comes, also without requests."""
        self._link.watch(_WITHOUT, lambda hello: Mapping(hello.segment).close())

    def name(self, key: bytes) -> str:
        """Of a block; its objects have ``.RANK`` behind it."""
        return self._prefix + key.hex()

    def lookup(self, key: bytes, request_id: str, rest: Callable[[], Iterable[bytes]]) -> str:
        """Whether a block can be loaded: ``hit``, when the lease pins it, ``miss``, or ``pending``, to ask
        again. ``rest`` are the keys of the request's blocks behind this one, asked for in one call."""
        name = self.name(key)
        state = self._requests.setdefault(request_id, _Request())
        if not self._sure(name):
            status, since = state.answers.get(name, ("", 0.0))
            now = self._clock()
            if status == "pending" and state.deadline is not None and now >= state.deadline:
                if not state.late:
                    state.late = True
                    self.stats.add(late=len(state.pending))
                return "miss"  # the daemon goes on fetching it, for a later request
            if not status or now - since >= (_MISS if status == "miss" else _ASK_AGAIN):
                self._ask(request_id, state, name, [self.name(k) for k in rest()])
            if not self._sure(name):  # a hit of a connection that has ended is none
                return state.answers.get(name, ("miss", now))[0]
        self._hold(request_id, state, name)
        return "hit"

    def load(self, keys: Iterable[bytes], request_id: str) -> list[tuple[Place, ...]]:
        """Where blocks are that the lease pins, and that are about to be loaded."""
        state = self._requests[request_id]
        names = [self.name(key) for key in keys]
        places = [self._blocks[name].places for name in names]
        state.loading.update(names)
        self.stats.add(hits=len(names))
        self._leave(request_id, state)
        return places

    def loaded(self, keys: Iterable[bytes], request_id: str) -> None:
        """All workers have loaded the blocks. It may come after the end of the request."""
        state = self._requests.get(request_id)
        if state is None:
            return
        state.loading.difference_update(self.name(key) for key in keys)
        self._leave(request_id, state)
        self._end(request_id, state)

    def finished(self, request_id: str) -> None:
        """The request asks for nothing any more."""
        state = self._requests.get(request_id)
        if state is not None:
            state.finished = True
            self._leave(request_id, state)
            self._end(request_id, state)

    def step(self) -> None:
        """The end of scheduling a step."""
        # A lease that has nothing would stay for its time, if something of it was pending lately.
        last = not self._blocks and not any(state.pending for state in self._requests.values())
        self._pins.release(self._used, last=last)

    def reset(self) -> None:
        """Nothing that is stored is to be found any more by this engine, whose weights may be others
        now. Other engines keep what they share."""
        busy = any(state.loading for state in self._requests.values())
        token = secrets.token_hex(8)
        self._prefix = f"{token}-"
        self._blocks.clear()
        self._requests.clear()
        self._pins.leave(f"{LEASE}-{token}", busy=busy)  # workers may still be copying

    def close(self) -> None:
        """Give up all pins."""
        self._link.close()
        self._blocks.clear()
        self._requests.clear()
        self._pins.leave()
        self._client.close()

    def _sure(self, name: str) -> bool:
        block = self._blocks.get(name)
        if block is None:
            return False
        # vLLM asks about all blocks of a prompt at every turn, and to look at the connection is a system call.
        now = self._clock()
        if block.epoch != self._looked[0] or now - self._looked[1] >= _LOOK:
            if not self._pins.sure(block.epoch):
                return False
            self._looked = block.epoch, now
        return True

    def _used(self, name: str) -> bool:
        return name.rpartition(".")[0] in self._blocks

    def _ask(self, request_id: str, state: _Request, name: str, rest: Sequence[str]) -> None:
        """Pin a block and those behind it, as far as they are not known. They are a chain: what is
        behind a miss is not asked for."""
        names = [name]
        for other in rest[: max(1, _NAMES // self._ranks) - 1]:
            if self._sure(other):
                break
            names.append(other)
        items = self._pins.ask([o for n in names for o in self._objects(n)], prefix=True)
        now = self._clock()
        if items is None:
            self.stats.add(failures=1)
            state.answers[name] = ("miss", now)
            return
        assert items.hello is not None
        for at, block in enumerate(names):
            part = items[at * self._ranks : (at + 1) * self._ranks]
            status = self._status(part)
            if status == "hit":
                places = tuple(Place(items.hello.segment, item.offset) for item in part)
                known = self._blocks.get(block)
                users = known.users if known else set()
                self._blocks[block] = _Block(places, items.hello.epoch, users)
                self._pins.keep(self._objects(block))
                state.pending.discard(block)
                state.answers.pop(block, None)
                self._hold(request_id, state, block)  # also if it is not asked for: it is pinned
            else:
                self._unanswered(state, block, status, part, now)
            if status == "miss":
                break

    def _status(self, part: Sequence[Item]) -> str:
        """Of a block, by the answers about its objects."""
        if len(part) < self._ranks or any(item.status not in ("hit", "pending") for item in part):
            return "miss"
        if any(item.status == "pending" for item in part):
            return "pending"
        if not self._pins.mappable:
            return "miss"
        if any(item.size != self._size for item in part):
            sizes = sorted({item.size for item in part})
            self._link.refused(f"Stored KV blocks can't be used, since they have {sizes} bytes, not {self._size}")
            return "miss"
        return "hit"

    def _unanswered(
        self, state: _Request, name: str, status: str, part: Sequence[Item], now: float
    ) -> None:
        state.answers[name] = (status, now)
        if status == "pending":
            state.pending.add(name)
            if state.deadline is None:
                state.deadline = now + self._wait
        else:
            state.pending.discard(name)
            objects = zip(self._objects(name), part)
            self._pins.drop(o for o, item in objects if item.status in ("hit", "pending"))

    def _objects(self, name: str) -> list[str]:
        return [f"{name}.{rank}" for rank in range(self._ranks)]

    def _hold(self, request_id: str, state: _Request, name: str) -> None:
        state.held.add(name)
        self._blocks[name].users.add(request_id)

    def _leave(self, request_id: str, state: _Request) -> None:
        """Let go what the request holds and does not load."""
        for name in state.held - state.loading:
            block = self._blocks.get(name)
            if block is None:
                continue
            block.users.discard(request_id)
            if not block.users:
                del self._blocks[name]
                self._pins.drop(self._objects(name))
        state.held &= state.loading
        pending, state.pending = state.pending, set()
        for name in pending:
            if not any(name in other.pending for other in self._requests.values()):
                self._pins.drop(self._objects(name))
        state.answers.clear()
        state.deadline, state.late = None, False

    def _end(self, request_id: str, state: _Request) -> None:
        """Forget a request that has finished and loads nothing. No step may follow, so what it held is
        released at once."""
        if state.finished and not state.loading:
            del self._requests[request_id]
            self.step()

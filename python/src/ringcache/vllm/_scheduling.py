"""The scheduler's half of the encoder connector: what the daemon has, and what is pinned of it.

An item is pinned before the scheduler is told that it can be loaded, and stays pinned until no request
needs it any more and each step that loads it has come back from the workers. If the engine dies
or idles, pins end with the process or with the time of the lease.

Nothing here needs torch or vLLM.
"""

# See docs/decisions.md, "The encoder connector answers only with what it has pinned".

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ..daemon import Client, Item, Items, Mapping, Segment
from ..tensor import _DTYPES
from ._link import Link
from ._pins import Pins
from ._stats import Stats

_logger: Final = logging.getLogger("vllm.ringcache")

#: The lease of what can be loaded. It is one for all, whose time every pin extends.
LEASE: Final = "load"

_WITHOUT: Final = "items are encoded"  # is done while the daemon is away

_ASK_AGAIN: Final = 0.002  # seconds between questions about what is pending
_MISS: Final = 1.0  # seconds that a miss is believed
_LOOSE: Final = 4096  # items that no request is known for


@dataclass(frozen=True)
class Load:
    """An item that the workers are to load: where it is, and what."""

    identifier: str
    segment: Segment
    offset: int
    size: int  # bytes
    dtype: str  # torch's name
    shape: tuple[int, ...]


@dataclass
class _Entry:
    """What is known of an item."""

    status: str  # hit, pending or miss
    asked: float  # when it was asked for last
    load: Load | None = None  # of a hit
    rows: int = 0  # of the output, the least; 0 is unknown
    epoch: int = 0  # of the client, when the daemon said hit
    requests: set[str] = field(default_factory=set)
    loading: int = 0  # steps that load it and have not come back


@dataclass
class _Want:
    """An item of a request."""

    identifier: str
    begin: int  # of its place in the prompt, in tokens
    end: int
    rows: int  # of the output, the least; 0 is unknown


@dataclass
class _Request:
    wants: list[_Want]  # in the order of their ends
    passed: int = 0  # of them, which need no output any more
    pending: list[str] = field(default_factory=list)
    deadline: float = 0.0  # of what is pending


class Scheduling:
    """See the module. ``depth`` is the most steps that can be under way at a time."""

    def __init__(
        self,
        client: Client,
        *,
        wait: float,
        seconds: float,
        depth: int,
        loads: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._wait = wait
        self._depth = depth
        self._loads = loads  # else it only says what need not be encoded
        self._clock = clock
        self._requests: dict[str, _Request] = {}
        self._entries: dict[str, _Entry] = {}
        self._loose: dict[str, None] = {}  # entries without a request, the oldest first
        self._link = Link(client, "scheduler", clock)
        self._pins = Pins(
            client, self._link, LEASE, seconds=seconds, without=_WITHOUT, known=self._known, clock=clock
        )
        self._hits: set[str] = set()  # answered, and not scheduled yet
        self._confirmed: dict[str, Load] = {}
        self._step = 0
        self._under_way: deque[tuple[int, list[str]]] = deque()
        self.stats = Stats()

    def watch(self) -> None:
        """Tell the log when the daemon goes and comes, also without requests."""
        self._link.watch(_WITHOUT, lambda hello: Mapping(hello.segment).close())

    def available(self, request: Any, computed: int) -> bool:
        """Whether the request can be scheduled: nothing of it is on its way. Called at every step."""
        state = self._requests.get(request.request_id)
        if state is None:
            state = self._admit(request, computed)
        if state.wants:
            self._pass(request.request_id, state, computed)
        if not state.pending:
            return True
        return self._poll(state)

    def has(self, identifier: str) -> bool:
        """Whether the item is pinned, and can be loaded."""
        entry = self._entries.get(identifier)
        if not self._fresh(entry):
            self._pin([(identifier, 0)])
            entry = self._entries[identifier]
            if not entry.requests and identifier not in self._loose:
                self._add_loose(identifier)
        assert entry is not None
        hit = entry.status == "hit"
        if hit:
            self._hits.add(identifier)
        else:
            self._hits.discard(identifier)
        return hit

    def has_all(self, request: Any) -> list[bool]:
        """The same for all items of a request, of releases that ask so."""
        self.available(request, request.num_computed_tokens)
        state = self._requests[request.request_id]
        needed = {want.identifier for want in state.wants[state.passed :]}
        identifiers = [feature.identifier for feature in request.mm_features or ()]
        # One answer for an item that is there twice: they load the first for both.
        hits = {name: name in needed and self.has(name) for name in dict.fromkeys(identifiers)}
        return [hits[identifier] for identifier in identifiers]

    def allocated(self, request: Any, index: int) -> None:
        """An item of a request was scheduled: to be loaded if it was a hit, else to be encoded."""
        identifier = request.mm_features[index].identifier
        entry = self._entries.get(identifier)
        if identifier not in self._hits or entry is None or entry.load is None:
            self.stats.add(misses=1)
            return
        self._hits.discard(identifier)
        self.stats.add(hits=1)
        if self._loads:
            self._confirmed[identifier] = entry.load

    def step(self, finished: Iterable[str] = ()) -> tuple[int, list[Load]]:
        """The end of scheduling a step: its number, and what it loads. What was a hit and
        not scheduled is released, unless a request is going to ask again."""
        self._step += 1
        for request_id in finished:
            self.finished(request_id)
        loads = list(self._confirmed.values())
        self._confirmed.clear()
        hits, self._hits = self._hits, set()
        if loads:
            for load in loads:
                self._entries[load.identifier].loading += 1
            self._under_way.append((self._step, [load.identifier for load in loads]))
        for identifier in hits:
            self._settle(identifier)
        for identifier in list(self._loose):
            del self._loose[identifier]
            if (entry := self._entries.get(identifier)) and entry.status == "pending":
                entry.status = "miss"  # the daemon goes on fetching it, for a later request
            self._settle(identifier)
        # No more than so many are under way, so those before have come back.
        self._returned(self._step - self._depth)
        self._release()
        return self._step, loads

    def returned(self, step: int) -> None:
        """A step's output came back, so all workers have loaded what it and those before it load."""
        self._returned(step)
        self._release()

    def finished(self, request_id: str) -> None:
        """A request is over, or aborted."""
        state = self._requests.pop(request_id, None)
        if state is not None:
            for want in state.wants:
                self._leave(want.identifier, request_id)

    def close(self) -> None:
        """Give up all pins."""
        self._link.close()
        self._requests.clear()
        self._entries.clear()
        self._loose.clear()
        self._under_way.clear()
        self._pins.leave()
        self._client.close()

    def _admit(self, request: Any, computed: int) -> _Request:
        wants = []
        for index, feature in enumerate(request.mm_features or ()):
            begin = feature.mm_position.offset
            rows = 0
            if (count := getattr(request, "get_num_encoder_embeds", None)) is not None:
                rows = int(count(index))
            wants.append(_Want(feature.identifier, begin, begin + feature.mm_position.length, rows))
        wants.sort(key=lambda want: want.end)
        state = _Request(wants)
        self._requests[request.request_id] = state
        self._want(request.request_id, state, computed)
        return state

    def _want(self, request_id: str, state: _Request, computed: int) -> None:
        """Pin what the request needs yet."""
        state.passed = 0
        while state.passed < len(state.wants) and state.wants[state.passed].end <= computed:
            state.passed += 1
        asked: dict[str, int] = {}
        for want in state.wants[state.passed :]:
            entry = self._entries.get(want.identifier)
            if entry is not None and entry.status == "pending":
                asked[want.identifier] = max(asked.get(want.identifier, 0), want.rows)
            elif not self._fresh(entry) or (entry and entry.status == "miss"):
                asked[want.identifier] = max(asked.get(want.identifier, 0), want.rows)
        self._pin(list(asked.items()))
        for want in state.wants[state.passed :]:
            self._entries[want.identifier].requests.add(request_id)
            self._loose.pop(want.identifier, None)
        self._await(state)

    def _await(self, state: _Request) -> None:
        state.pending = [
            identifier
            for identifier in dict.fromkeys(want.identifier for want in state.wants[state.passed :])
            if self._entries[identifier].status == "pending"
        ]
        state.deadline = self._clock() + self._wait

    def _pass(self, request_id: str, state: _Request, computed: int) -> None:
        wants = state.wants
        if state.passed and computed < wants[state.passed - 1].begin:
            self._want(request_id, state, computed)  # it was preempted, and begins anew
            return
        before = state.passed
        while state.passed < len(wants) and wants[state.passed].end <= computed:
            state.passed += 1
        if state.passed > before:
            needed = {want.identifier for want in wants[state.passed :]}
            for want in wants[before : state.passed]:
                if want.identifier not in needed:
                    self._leave(want.identifier, request_id)
                    if want.identifier in state.pending:
                        state.pending.remove(want.identifier)

    def _poll(self, state: _Request) -> bool:
        """Whether nothing of a request is pending any more, or it has waited long enough."""
        now = self._clock()
        if any(self._asks_again(identifier, now) for identifier in state.pending):
            # One call for all that wait: each may take its time, for which the engine waits.
            waiting = dict.fromkeys(i for other in self._requests.values() for i in other.pending)
            again = [identifier for identifier in waiting if self._asks_again(identifier, now)]
            self._pin([(identifier, 0) for identifier in again])  # their entries know the rows
        state.pending = [
            identifier for identifier in state.pending if self._entries[identifier].status == "pending"
        ]
        if state.pending and now >= state.deadline:
            for identifier in state.pending:
                entry = self._entries[identifier]
                entry.status, entry.asked = "miss", now  # the daemon goes on fetching it
            self.stats.add(late=len(state.pending))
            state.pending = []
        return not state.pending

    def _asks_again(self, identifier: str, now: float) -> bool:
        entry = self._entries.get(identifier)
        return entry is None or (entry.status == "pending" and now - entry.asked >= _ASK_AGAIN)

    def _fresh(self, entry: _Entry | None) -> bool:
        """Whether what is known of an item still holds."""
        if entry is None or entry.status == "pending":
            return False
        if entry.status == "miss":
            return self._clock() - entry.asked < _MISS
        return self._pins.sure(entry.epoch)

    def _known(self, name: str) -> bool:
        entry = self._entries.get(name)
        return entry is not None and entry.status != "miss"

    def _pin(self, wanted: Sequence[tuple[str, int]]) -> None:
        """Ask the daemon for items, each with the least number of rows that it must have."""
        if not wanted:
            return
        now = self._clock()
        names = [identifier for identifier, _ in wanted]
        items = self._pins.ask(names)
        if items is None:
            self.stats.add(failures=1)
            items = Items([Item("unavailable")] * len(names))
        hello = items.hello
        answered = self._clock()
        for (identifier, rows), item in zip(wanted, items):
            entry = self._entries.get(identifier)
            if entry is None:
                entry = self._entries[identifier] = _Entry("miss", now)
            rows = entry.rows = max(rows, entry.rows)
            entry.asked = answered
            entry.epoch = hello.epoch if hello else 0
            entry.load = None
            entry.status = item.status if item.status == "pending" else "miss"
            if item.status == "hit" and hello is not None:
                entry.load = self._load(identifier, item, rows, hello.segment)
                entry.status = "hit" if entry.load else "miss"
                if entry.load:
                    self._pins.keep([identifier])
                else:
                    self._pins.drop([identifier])

    def _load(self, identifier: str, item: Item, rows: int, segment: Segment) -> Load | None:
        """What a hit is, or nothing if it can't be the output of this item."""
        if not self._pins.mappable:
            return None
        try:
            dtype, shape = parse_note(item.note, item.size)
            if item.offset < 0 or item.size < 0 or item.offset + item.size > segment.size:
                raise ValueError(f"{item.size} bytes at {item.offset} of {segment.size}")
            if shape and shape[0] < rows:
                raise ValueError(f"it has {shape[0]} rows of {rows}")
        except ValueError as e:
            _logger.warning("The stored output of %s can't be used, it is encoded: %s", identifier, e)
            return None
        return Load(identifier, segment, item.offset, item.size, dtype, shape)

    def _add_loose(self, identifier: str) -> None:
        self._loose[identifier] = None
        if len(self._loose) > _LOOSE:
            oldest = next(iter(self._loose))
            del self._loose[oldest]
            self._settle(oldest)

    def _leave(self, identifier: str, request_id: str) -> None:
        entry = self._entries.get(identifier)
        if entry is not None:
            entry.requests.discard(request_id)
            self._settle(identifier)

    def _returned(self, step: int) -> None:
        while self._under_way and self._under_way[0][0] <= step:
            for identifier in self._under_way.popleft()[1]:
                entry = self._entries.get(identifier)
                if entry is not None:
                    entry.loading = max(0, entry.loading - 1)
                    self._settle(identifier)

    def _settle(self, identifier: str) -> None:
        """Release an item that no request needs any more."""
        entry = self._entries.get(identifier)
        if (
            entry is None
            or entry.requests
            or entry.loading
            or identifier in self._confirmed
            or identifier in self._hits
            or identifier in self._loose
        ):
            return
        del self._entries[identifier]
        if entry.status != "miss":
            self._pins.drop([identifier])

    def _release(self) -> None:
        self._pins.release(self._loading)

    def _loading(self, identifier: str) -> bool:
        entry = self._entries.get(identifier)
        return identifier in self._confirmed or (entry is not None and entry.loading > 0)


def parse_note(note: bytes, size: int) -> tuple[str, tuple[int, ...]]:
    """The dtype and shape that a note says. Raises :class:`ValueError` if they aren't those of an
    encoder's output, rows of numbers, of that size."""
    words = note.decode("ascii", "replace").split(" ")
    if words[0] not in _DTYPES or not all(word.isdigit() and len(word) < 16 for word in words[1:]):
        raise ValueError(f"its note is {note[:80]!r}")
    shape = tuple(int(word) for word in words[1:])
    if len(shape) != 2:
        raise ValueError(f"it has {len(shape)} dimensions, not 2")
    if not size or shape[0] * shape[1] * _DTYPES[words[0]].itemsize != size:
        raise ValueError(f"{size} bytes are no {note[:80].decode()}")
    return words[0], shape

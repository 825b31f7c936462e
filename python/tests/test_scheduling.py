"""The scheduler's half of the encoder connector, without vLLM, against a stand-in for the daemon."""

from __future__ import annotations

import pathlib
import types
from collections.abc import Iterator
from typing import Any

import pytest
from standin import Standin

from ringcache.daemon import Client
from ringcache.vllm._scheduling import LEASE, Scheduling, parse_note

NOTE = "float32 4 2"
DATA = bytes(range(32))


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Request:
    """What is looked at of vLLM's."""

    def __init__(self, request_id: str, *items: str, rows: int = 4, at: int = 5) -> None:
        self.request_id = request_id
        self.num_computed_tokens = 0
        self._rows = rows
        self.mm_features = [
            types.SimpleNamespace(
                identifier=item, mm_position=types.SimpleNamespace(offset=at + 10 * n, length=rows)
            )
            for n, item in enumerate(items)
        ]

    def get_num_encoder_embeds(self, index: int) -> int:
        return self._rows


@pytest.fixture
def daemon(tmp_path: pathlib.Path) -> Iterator[Standin]:
    standin = Standin(str(tmp_path / "s"))
    yield standin
    standin.close()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def scheduling(daemon: Standin, clock: Clock) -> Iterator[Scheduling]:
    client = Client(daemon.path, client="test", space="space", timeout=30)
    s = Scheduling(client, wait=2, seconds=300, depth=3, loads=True, clock=clock)
    yield s
    s.close()


def end(s: Scheduling, *requests: Request) -> None:
    """Requests finish, and nothing is left of them."""
    for request in requests:
        s.finished(request.request_id)
    step, _ = s.step()
    s.returned(step)
    assert not s._requests
    assert not s._entries
    assert not s._under_way
    assert not s._pins.to_unpin


def held(daemon: Standin) -> set[str]:
    return daemon.held()


def test_hit_is_pinned_loaded_and_released(daemon: Standin, scheduling: Scheduling) -> None:
    at = daemon.put("a", DATA, NOTE)
    request = Request("r", "a", "b")
    assert scheduling.available(request, 0)
    assert daemon.calls[-1]["names"] == ["a", "b"], "one pin for all items"
    before = len(daemon.calls)
    assert scheduling.has("a")
    assert not scheduling.has("b")
    scheduling.allocated(request, 0)
    scheduling.allocated(request, 1)
    step, loads = scheduling.step()
    assert len(daemon.calls) == before, "no call but the pin"
    assert [load.identifier for load in loads] == ["a"]
    assert (loads[0].offset, loads[0].size, loads[0].dtype, loads[0].shape) == (at, 32, "float32", (4, 2))
    assert loads[0].segment.inode == daemon.inode
    assert scheduling.available(request, 40), "the item is passed"
    assert held(daemon) == {"a"}, "not before the worker has it"
    scheduling.returned(step)
    assert held(daemon) == set()
    assert scheduling.stats.take() == {"hits": 1, "misses": 1}
    end(scheduling, request)


def test_steps_in_decode_make_no_call(daemon: Standin, scheduling: Scheduling) -> None:
    request = Request("r", "a", "b")
    scheduling.available(request, 0)
    scheduling.step()
    scheduling.available(request, 100)
    before = len(daemon.calls)
    for computed in range(101, 400):
        assert scheduling.available(request, computed)
        scheduling.step()
    assert len(daemon.calls) == before
    end(scheduling, request)


def test_pending_holds_the_request_back(daemon: Standin, clock: Clock, scheduling: Scheduling) -> None:
    daemon.put("a", DATA, NOTE)
    daemon.pending["a"] = 2
    request = Request("r", "a")
    assert not scheduling.available(request, 0)
    calls = len(daemon.calls)
    assert not scheduling.available(request, 0), "asked again too soon"
    assert len(daemon.calls) == calls
    clock.now += 0.003
    assert not scheduling.available(request, 0)
    clock.now += 0.003
    assert scheduling.available(request, 0)
    assert scheduling.has("a")
    end(scheduling, request)


def test_pending_is_not_waited_for_forever(
    daemon: Standin, clock: Clock, scheduling: Scheduling
) -> None:
    daemon.pending["a"] = -1
    request = Request("r", "a")
    assert not scheduling.available(request, 0)
    clock.now += 1.9
    assert not scheduling.available(request, 0)
    clock.now += 0.2
    assert scheduling.available(request, 0)
    assert not scheduling.has("a")
    assert scheduling.stats.take() == {"late": 1}
    end(scheduling, request)


def test_many_requests_that_wait_are_one_call_a_step(
    daemon: Standin, clock: Clock, scheduling: Scheduling
) -> None:
    """Each call may take its time-out, and the engine's steps wait for all of them."""
    requests = [Request(f"r{n}", f"i{n}") for n in range(30)]
    for n, request in enumerate(requests):
        daemon.put(f"i{n}", DATA, NOTE)
        daemon.pending[f"i{n}"] = 3
        assert not scheduling.available(request, 0)
    for waits in (True, True, False):
        before = len(daemon.calls)
        clock.now += 0.01
        for request in requests:
            assert scheduling.available(request, 0) != waits
        scheduling.step()
        assert len(daemon.calls) == before + 1
    assert all(scheduling.has(f"i{n}") for n in range(30))
    end(scheduling, *requests)
    assert held(daemon) == set()


def test_what_was_pinned_and_not_scheduled_is_released(
    daemon: Standin, scheduling: Scheduling
) -> None:
    daemon.put("a", DATA, NOTE)
    assert scheduling.has("a"), "of a release that asks for items alone"
    assert held(daemon) == {"a"}
    _, loads = scheduling.step()
    assert loads == []
    assert held(daemon) == set()


def test_pin_of_a_request_that_waits_is_kept(daemon: Standin, scheduling: Scheduling) -> None:
    daemon.put("a", DATA, NOTE)
    request = Request("r", "a")
    scheduling.available(request, 0)
    for _ in range(10):
        assert scheduling.has("a")
        assert scheduling.step()[1] == []
    assert held(daemon) == {"a"}
    assert daemon.ops() == ["hello", "pin"]
    end(scheduling, request)
    assert held(daemon) == set()


def test_aborted_request_with_a_load_under_way(daemon: Standin, scheduling: Scheduling) -> None:
    daemon.put("a", DATA, NOTE)
    request = Request("r", "a")
    scheduling.available(request, 0)
    assert scheduling.has("a")
    scheduling.allocated(request, 0)
    step, loads = scheduling.step()
    assert loads
    scheduling.finished("r")
    scheduling.step()
    assert held(daemon) == {"a"}, "the worker may still copy"
    scheduling.returned(step)
    assert held(daemon) == set()
    end(scheduling)


def test_aborted_between_allocation_and_step(daemon: Standin, scheduling: Scheduling) -> None:
    daemon.put("a", DATA, NOTE)
    request = Request("r", "a")
    scheduling.available(request, 0)
    assert scheduling.has("a")
    scheduling.allocated(request, 0)
    step, loads = scheduling.step(["r"])
    assert loads, "the runner is going to need it"
    assert held(daemon) == {"a"}
    scheduling.returned(step)
    assert held(daemon) == set()


def test_without_reports_a_load_is_released_when_its_step_must_be_over(
    daemon: Standin, scheduling: Scheduling
) -> None:
    daemon.put("a", DATA, NOTE)
    request = Request("r", "a")
    scheduling.available(request, 0)
    scheduling.has("a")
    scheduling.allocated(request, 0)
    scheduling.step()
    scheduling.finished("r")
    scheduling.step()
    scheduling.step()
    assert held(daemon) == {"a"}
    scheduling.step()
    assert held(daemon) == set()


def test_item_of_two_requests(daemon: Standin, scheduling: Scheduling) -> None:
    daemon.put("a", DATA, NOTE)
    one, two = Request("1", "a"), Request("2", "a", "a")
    assert scheduling.available(one, 0)
    assert scheduling.available(two, 0)
    assert daemon.ops() == ["hello", "pin"]
    scheduling.finished("1")
    scheduling.step()
    assert held(daemon) == {"a"}
    end(scheduling, two)
    assert held(daemon) == set()


def test_item_that_a_request_has_twice(daemon: Standin, scheduling: Scheduling) -> None:
    daemon.put("a", DATA, NOTE)
    request = Request("r", "a", "a")
    assert scheduling.available(request, 0)
    assert scheduling.available(request, 10), "the first is passed"
    scheduling.step()
    assert held(daemon) == {"a"}
    assert scheduling.available(request, 30)
    scheduling.step()
    assert held(daemon) == set()
    end(scheduling, request)


def test_preempted_request_begins_anew(daemon: Standin, scheduling: Scheduling) -> None:
    daemon.put("a", DATA, NOTE)
    request = Request("r", "a")
    scheduling.available(request, 0)
    scheduling.has("a")
    scheduling.allocated(request, 0)
    step, _ = scheduling.step()
    scheduling.returned(step)
    scheduling.available(request, 30)
    scheduling.step()
    assert held(daemon) == set()
    assert scheduling.available(request, 0)
    assert held(daemon) == {"a"}
    assert scheduling.has("a")
    scheduling.allocated(request, 0)
    assert len(scheduling.step()[1]) == 1
    end(scheduling, request)


def test_daemon_away_costs_a_miss(daemon: Standin, scheduling: Scheduling) -> None:
    daemon.stop()
    request = Request("r", "a")
    assert scheduling.available(request, 0)
    assert not scheduling.has("a")
    scheduling.allocated(request, 0)
    assert scheduling.step()[1] == []
    assert scheduling.stats.take()["failures"] >= 1
    scheduling.finished("r")


def test_pin_is_asked_for_anew_after_a_restart(daemon: Standin, scheduling: Scheduling) -> None:
    daemon.put("a", DATA, NOTE)
    request = Request("r", "a")
    scheduling.available(request, 0)
    assert scheduling.has("a")
    scheduling.step()
    daemon.stop()
    daemon.pins.clear()  # the grace time is over
    daemon.start()
    assert scheduling.has("a")
    assert held(daemon) == {"a"}
    assert len({call["session"] for call in daemon.calls if call["op"] == "hello"}) == 1
    end(scheduling, request)


def test_gone_after_a_restart(daemon: Standin, scheduling: Scheduling) -> None:
    daemon.put("a", DATA, NOTE)
    request = Request("r", "a")
    scheduling.available(request, 0)
    assert scheduling.has("a")
    daemon.stop()
    daemon.pins.clear()
    daemon.objects.clear()
    daemon.start()
    assert not scheduling.has("a")
    scheduling.allocated(request, 0)
    assert scheduling.step()[1] == []
    end(scheduling, request)


def test_nothing_is_a_hit_of_a_daemon_that_is_gone(daemon: Standin, scheduling: Scheduling) -> None:
    daemon.put("a", DATA, NOTE)
    request = Request("r", "a")
    scheduling.available(request, 0)
    assert scheduling.has("a")
    daemon.stop()
    assert not scheduling.has("a")
    scheduling.allocated(request, 0)
    assert scheduling.step()[1] == [], "the last answer counts"
    scheduling.finished("r")


def test_new_segment_voids_what_was_pinned(
    daemon: Standin, scheduling: Scheduling, tmp_path: pathlib.Path
) -> None:
    daemon.put("a", DATA, NOTE)
    daemon.put("b", DATA, NOTE)
    request = Request("r", "a", "b")
    scheduling.available(request, 0)
    assert scheduling.has("a")
    daemon.stop()
    other = Standin(daemon.path, generation=2)
    try:
        other.put("x", DATA, NOTE)
        at = other.put("a", DATA, NOTE)
        assert scheduling.has("a")
        scheduling.allocated(request, 0)
        assert not scheduling.has("b")
        ((load,)) = scheduling.step()[1]
        assert (load.offset, load.segment.inode) == (at, other.inode)
        end(scheduling, request)
        assert held(other) == set()
    finally:
        other.close()


def test_answer_is_of_its_own_segment_whatever_another_thread_meets(
    daemon: Standin, scheduling: Scheduling, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The watch connects the client to a daemon with a new segment, before an answer is looked at."""
    daemon.put("first", DATA, NOTE)
    old = daemon.put("a", DATA, NOTE)
    client = scheduling._client
    pin, others = client.pin, []

    def replaced(*args: Any, **kw: Any) -> Any:
        items = pin(*args, **kw)
        daemon.stop()
        others.append(Standin(daemon.path, generation=2))
        others[0].put("a", DATA[::-1], NOTE)
        client.hello()
        return items

    try:
        request = Request("r", "a")
        with monkeypatch.context() as patch:
            patch.setattr(client, "pin", replaced)
            assert scheduling.available(request, 0)
        (other,) = others
        entry = scheduling._entries["a"]
        assert entry.load is not None
        assert (entry.load.offset, entry.load.segment.inode) == (old, daemon.inode)
        assert not scheduling._fresh(entry)
        assert scheduling.has("a")
        scheduling.allocated(request, 0)
        (load,) = scheduling.step()[1]
        assert (load.offset, load.segment.inode) == (other.objects["a"][0], other.inode)
        assert load.offset != old
        end(scheduling, request)
        assert held(other) == set()
    finally:
        for other in others:
            other.close()


def test_segment_that_cannot_be_mapped_gives_no_hit(
    daemon: Standin, scheduling: Scheduling
) -> None:
    daemon.put("a", DATA, NOTE)
    daemon.inode += 1
    request = Request("r", "a")
    assert scheduling.available(request, 0)
    assert not scheduling.has("a")
    end(scheduling, request)
    assert held(daemon) == set()


@pytest.mark.parametrize(
    ("note", "data"),
    [
        ("float32 3 2", bytes(24)),  # fewer rows than the item has
        ("float32 4 2", bytes(31)),
        ("float32 8", bytes(32)),
        ("float32 4 2 1", bytes(32)),
        ("nothing 4 2", bytes(32)),
        ("float32 4 -2", bytes(32)),
        ("float32 4 +2", bytes(32)),
        ("float32 0 2", b""),
        ("", bytes(32)),
        ("\xff", bytes(32)),
    ],
)
def test_object_that_is_no_output_of_the_item_is_a_miss(
    daemon: Standin, scheduling: Scheduling, note: str, data: bytes
) -> None:
    daemon.put("a", data, note)
    request = Request("r", "a")
    assert scheduling.available(request, 0)
    assert not scheduling.has("a")
    end(scheduling, request)
    assert held(daemon) == set()


def test_place_outside_the_segment_is_a_miss(daemon: Standin, scheduling: Scheduling) -> None:
    daemon.objects["a"] = ((1 << 20) - 16, 32, NOTE.encode())
    request = Request("r", "a")
    scheduling.available(request, 0)
    assert not scheduling.has("a")
    end(scheduling, request)


def test_lease_is_renewed_before_it_ends(
    daemon: Standin, clock: Clock, scheduling: Scheduling
) -> None:
    daemon.put("a", DATA, NOTE)
    request = Request("r", "a")
    scheduling.available(request, 0)
    clock.now += 149
    assert scheduling.has("a")
    assert daemon.ops().count("pin") == 1
    clock.now += 2
    assert scheduling.has("a")
    assert daemon.ops().count("pin") == 2
    end(scheduling, request)


def test_lease_that_the_daemon_cuts(daemon: Standin, clock: Clock, scheduling: Scheduling) -> None:
    daemon.seconds = 20
    daemon.put("a", DATA, NOTE)
    request = Request("r", "a")
    scheduling.available(request, 0)
    clock.now += 9
    assert scheduling.has("a")
    assert daemon.ops().count("pin") == 1
    clock.now += 2
    assert scheduling.has("a")
    assert daemon.ops().count("pin") == 2
    end(scheduling, request)


def test_what_a_lost_answer_pinned_is_released(daemon: Standin, clock: Clock) -> None:
    client = Client(daemon.path, client="test", space="space", timeout=30)
    s = Scheduling(client, wait=2, seconds=300, depth=3, loads=True, clock=clock)
    daemon.put("a", DATA, NOTE)
    client.hello()
    daemon.answer = lambda request: b"" if request["op"] == "pin" else None
    daemon.pins[client._session, LEASE] = {"a"}
    request = Request("r", "a")
    assert s.available(request, 0)
    assert not s.has("a")
    daemon.answer = None
    client._retry_at = 0
    end(s, request)
    assert held(daemon) == set()
    s.close()


def test_identifier_that_is_no_text(daemon: Standin, scheduling: Scheduling) -> None:
    daemon.put("a", DATA, NOTE)
    one, odd = Request("1", "a"), Request("2", "\ud800")
    assert scheduling.available(one, 0)
    assert scheduling.available(odd, 0)
    assert scheduling.has("a")
    assert not scheduling.has("\ud800")
    end(scheduling, one, odd)
    assert held(daemon) == set()


def test_refused_release_is_asked_for_again(daemon: Standin, scheduling: Scheduling) -> None:
    daemon.put("a", DATA, NOTE)
    scheduling.available(Request("r", "a"), 0)
    daemon.answer = lambda request: {"error": {"kind": "busy", "text": "later"}}
    scheduling.finished("r")
    scheduling.step()
    assert held(daemon) == {"a"}
    daemon.answer = None
    scheduling.step()
    assert held(daemon) == set()


def test_release_waits_for_a_daemon_that_is_away(daemon: Standin, scheduling: Scheduling) -> None:
    daemon.put("a", DATA, NOTE)
    request = Request("r", "a")
    scheduling.available(request, 0)
    daemon.stop()
    scheduling.finished("r")
    scheduling.step()
    assert held(daemon) == {"a"}
    daemon.start()
    scheduling._client._retry_at = 0
    scheduling.step()
    assert held(daemon) == set()


def test_pending_release_spares_what_is_pinned_again(
    daemon: Standin, scheduling: Scheduling
) -> None:
    daemon.put("a", DATA, NOTE)
    scheduling.available(Request("1", "a"), 0)
    daemon.stop()
    scheduling.finished("1")
    scheduling.step()
    daemon.start()
    scheduling._client._retry_at = 0
    two = Request("2", "a")
    scheduling.available(two, 0)
    scheduling.step()
    assert held(daemon) == {"a"}
    assert scheduling.has("a")
    end(scheduling, two)
    assert held(daemon) == set()


def test_all_items_of_a_request_of_old_releases(daemon: Standin, scheduling: Scheduling) -> None:
    daemon.put("a", DATA, NOTE)
    daemon.put("c", DATA, NOTE)
    request = Request("r", "a", "b", "c")
    assert scheduling.has_all(request) == [True, False, True]
    scheduling.allocated(request, 0)
    assert [load.identifier for load in scheduling.step()[1]] == ["a"]
    request.num_computed_tokens = 12
    before = len(daemon.calls)
    assert scheduling.has_all(request) == [False, False, True]
    request.num_computed_tokens = 60
    assert scheduling.has_all(request) == [False, False, False]
    assert len(daemon.calls) == before
    for _ in range(3):
        scheduling.step(["r"])
    assert held(daemon) == set()
    assert not scheduling._entries


def test_old_releases_get_one_answer_for_an_item_that_is_there_twice(
    daemon: Standin, scheduling: Scheduling, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They schedule the first, and take the second for the same."""
    daemon.put("a", DATA, NOTE)
    request = Request("r", "a", "a")
    has = scheduling.has

    def once(identifier: str) -> bool:
        found = has(identifier)
        daemon.stop()
        return found

    monkeypatch.setattr(scheduling, "has", once)
    first, second = scheduling.has_all(request)
    assert first == second
    scheduling.allocated(request, 0)
    assert bool(scheduling.step()[1]) == first, "what was pinned is loaded"
    daemon.start()
    scheduling._client._retry_at = 0
    monkeypatch.undo()
    end(scheduling, request)


def test_encode_only_engine_skips_what_is_stored(daemon: Standin, clock: Clock) -> None:
    client = Client(daemon.path, client="test", space="space", timeout=30)
    s = Scheduling(client, wait=2, seconds=300, depth=3, loads=False, clock=clock)
    daemon.put("a", DATA, NOTE)
    request = Request("r", "a")
    assert s.available(request, 0)
    assert s.has("a")
    s.allocated(request, 0)
    assert s.step()[1] == []
    end(s, request)
    s.close()


def test_nothing_grows(daemon: Standin, scheduling: Scheduling) -> None:
    for n in range(3000):
        if n % 3 == 0:
            daemon.put(f"i{n}", b"12345678", "float32 1 2") if n < 1000 else None
        request = Request(f"r{n}", f"i{n}", f"i{n // 2}", rows=1)
        scheduling.available(request, 0)
        for index, feature in enumerate(request.mm_features):
            if scheduling.has(feature.identifier) and n % 5:
                scheduling.allocated(request, index)
        scheduling.has(f"loose{n}")
        step, _ = scheduling.step()
        if n % 7 == 0:
            scheduling.finished(request.request_id)
            scheduling.returned(step)
        elif n % 2:
            scheduling.returned(step)
            scheduling.available(request, 100)
            scheduling.finished(request.request_id)
        else:
            scheduling.finished(request.request_id)
    end(scheduling)
    assert held(daemon) == set()


def test_nothing_grows_while_the_daemon_is_away(daemon: Standin, scheduling: Scheduling) -> None:
    daemon.put("a", DATA, NOTE)
    first = Request("first", "a")
    scheduling.available(first, 0)
    daemon.stop()
    for n in range(300):
        request = Request(f"r{n}", f"i{n}", "a")
        scheduling.available(request, 0)
        scheduling.finished(request.request_id)
        scheduling.step()
    assert set(scheduling._pins.to_unpin) <= {"a"}, "nothing else was asked for"
    daemon.start()
    scheduling._client._retry_at = 0
    end(scheduling, first)
    assert held(daemon) == set()


def test_pending_release_waits_for_a_load_under_way(
    daemon: Standin, scheduling: Scheduling
) -> None:
    daemon.put("a", DATA, NOTE)
    one = Request("1", "a")
    scheduling.available(one, 0)
    assert scheduling.has("a")
    scheduling.allocated(one, 0)
    step, loads = scheduling.step()
    assert loads
    daemon.stop()
    scheduling.available(Request("2", "a"), 0)  # asks anew, in vain
    daemon.start()
    scheduling._client._retry_at = 0
    scheduling.step()
    assert held(daemon) == {"a"}, "a worker may be copying it"
    scheduling.returned(step)
    end(scheduling, one, Request("2", "a"))
    assert held(daemon) == set()


def test_close_releases(daemon: Standin, scheduling: Scheduling) -> None:
    daemon.put("a", DATA, NOTE)
    scheduling.available(Request("r", "a"), 0)
    assert held(daemon) == {"a"}
    scheduling.close()
    assert held(daemon) == set()


def test_notes() -> None:
    assert parse_note(b"bfloat16 256 5376", 2752512) == ("bfloat16", (256, 5376))
    assert parse_note(b"float8_e4m3fn 1 3", 3) == ("float8_e4m3fn", (1, 3))
    bad: Any
    for bad in (b"float32", b"float32 2 2 ", b" float32 2 2", b"float32  2 2", b"float32 " + b"9" * 20 + b" 1"):
        with pytest.raises(ValueError):
            parse_note(bad, 16)

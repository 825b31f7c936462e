"""The scheduler's half of offloading, without vLLM, against a stand-in for the daemon."""

from __future__ import annotations

import os
import pathlib
import random
import re
import types
from collections.abc import Iterator
from typing import Any

import pytest
from conftest import ROOT
from standin import Standin
from test_scheduling import Clock

from ringcache.daemon import Client
from ringcache.vllm._blocks import LEASE, Blocks, check, options_of, space_of

SIZE = 64
CHAIN = [bytes([n]) * 36 for n in range(10)]


class Engine:
    """A scheduler with requests whose blocks are the first ones of CHAIN."""

    def __init__(self, daemon: Standin, *, ranks: int = 1) -> None:
        self.daemon = daemon
        self.clock = Clock()
        self.ranks = ranks
        self.client = Client(daemon.path, client="test", space="space", timeout=30)
        self.blocks = Blocks(
            self.client, size=SIZE, ranks=ranks, wait=2, seconds=300, clock=self.clock
        )

    def put(self, *numbers: int, size: int = SIZE, rank: int | None = None) -> None:
        for n in numbers:
            for r in range(self.ranks) if rank is None else [rank]:
                self.daemon.put(f"{CHAIN[n].hex()}.{r}", bytes([n]) * size, "note")

    def look(self, request: str, n: int) -> str:
        return self.blocks.lookup(CHAIN[n], request, lambda: iter(CHAIN[n + 1 :]))

    def hits(self, request: str) -> int | None:
        """As vLLM counts them: None is to ask again."""
        pending = False
        for n in range(len(CHAIN)):
            answer = self.look(request, n)
            if answer == "miss":
                return None if pending else n
            pending |= answer == "pending"
        return None if pending else len(CHAIN)

    def end(self, *requests: str) -> None:
        """Requests finish, and nothing is left of them."""
        for request in requests:
            self.blocks.finished(request)
        self.blocks.step()
        assert not self.blocks._requests
        assert not self.blocks._blocks
        assert not self.blocks._pins.to_unpin
        assert self.daemon.held() == set()


@pytest.fixture
def daemon(tmp_path: pathlib.Path) -> Iterator[Standin]:
    standin = Standin(str(tmp_path / "s"))
    yield standin
    standin.close()


@pytest.fixture
def engine(daemon: Standin) -> Iterator[Engine]:
    made = Engine(daemon)
    yield made
    made.blocks.close()


def names(*numbers: int, ranks: int = 1) -> set[str]:
    return {f"{CHAIN[n].hex()}.{rank}" for n in numbers for rank in range(ranks)}


def test_hit_is_pinned_until_it_is_loaded(daemon: Standin, engine: Engine) -> None:
    engine.put(0, 1, 2)
    assert engine.hits("r") == 3
    assert daemon.held() == names(0, 1, 2)
    assert daemon.ops().count("pin") == 1, "one call for a prompt"
    assert engine.hits("r") == 3
    assert daemon.ops().count("pin") == 1
    places = engine.blocks.load(CHAIN[1:3], "r")
    assert engine.blocks.stats.take() == {"hits": 2}
    assert [place.offset for (place,) in places] == [daemon.objects[f"{k.hex()}.0"][0] for k in CHAIN[1:3]]
    engine.blocks.step()
    assert daemon.held() == names(1, 2), "the first is not loaded"
    assert daemon.calls[-1]["names"] == list(names(0))
    engine.blocks.loaded(CHAIN[1:3], "r")
    engine.blocks.step()
    assert daemon.held() == set()
    engine.end("r")


def test_a_request_ends_before_its_load_is_complete(daemon: Standin, engine: Engine) -> None:
    engine.put(0, 1)
    assert engine.hits("r") == 2
    engine.blocks.load(CHAIN[:1], "r")
    engine.blocks.finished("r")
    engine.blocks.step()
    assert daemon.held() == names(0), "a worker may be copying it"
    engine.blocks.loaded(CHAIN[:1], "r")
    assert daemon.held() == set(), "no step may follow"
    engine.end()


def test_requests_share_a_pin(daemon: Standin, engine: Engine) -> None:
    engine.put(0, 1)
    assert engine.hits("a") == engine.hits("b") == 2
    engine.blocks.finished("a")
    engine.blocks.step()
    assert daemon.held() == names(0, 1)
    assert len(engine.blocks.load(CHAIN[:2], "b")) == 2
    engine.blocks.loaded(CHAIN[:2], "b")
    engine.end("b")


def test_nothing_behind_a_miss_is_pinned(daemon: Standin, engine: Engine) -> None:
    engine.put(0, 2, 3)
    assert engine.hits("r") == 1
    assert daemon.held() == names(0)
    engine.end("r")


def test_a_miss_is_believed_for_a_second(daemon: Standin, engine: Engine) -> None:
    assert engine.hits("r") == 0
    engine.put(0)
    assert engine.hits("r") == 0
    assert daemon.ops().count("pin") == 1
    engine.clock.now += 1
    assert engine.hits("r") == 1
    engine.end("r")


def test_the_last_block_first(daemon: Standin, engine: Engine) -> None:
    """As vLLM looks up where attention has a window."""
    engine.put(*range(10))
    assert [engine.look("r", n) for n in (9, 8, 7)] == ["hit"] * 3
    assert [len(call["names"]) for call in daemon.calls if call["op"] == "pin"] == [1, 1, 1]
    engine.end("r")


def test_what_is_on_its_way_is_waited_for(daemon: Standin, engine: Engine) -> None:
    engine.put(0, 1, 2)
    (name,) = names(1)
    daemon.pending[name] = 2
    assert engine.hits("r") is None
    asked = daemon.ops().count("pin")
    assert engine.hits("r") is None
    assert daemon.ops().count("pin") == asked, "not at every turn"
    engine.clock.now += 0.01
    assert engine.hits("r") is None
    engine.clock.now += 0.01
    assert engine.hits("r") == 3
    engine.end("r")


def test_what_is_on_its_way_for_too_long_is_computed(daemon: Standin, engine: Engine) -> None:
    engine.put(0, 1, 2)
    (name,) = names(1)
    daemon.pending[name] = -1
    assert engine.hits("r") is None
    engine.clock.now += 2
    assert engine.hits("r") == 1
    assert engine.hits("r") == 1
    engine.blocks.load(CHAIN[:1], "r")
    assert engine.blocks.stats.take() == {"late": 1, "hits": 1}, "however often vLLM asks"
    engine.blocks.loaded(CHAIN[:1], "r")
    engine.blocks.step()
    assert daemon.calls[-1].get("leases") == [LEASE], "nobody is interested any more"
    engine.end("r")


def test_interest_of_another_request_stays(daemon: Standin, engine: Engine) -> None:
    engine.put(0)
    (name,) = names(0)
    daemon.pending[name] = -1
    assert engine.hits("a") is None
    assert engine.hits("b") is None
    engine.blocks.finished("a")
    engine.blocks.step()
    assert "release" not in daemon.ops()
    engine.put(5)
    assert engine.look("c", 5) == "hit"
    engine.blocks.finished("c")
    assert daemon.calls[-1]["names"] == list(names(5))
    engine.end("b")
    assert daemon.calls[-1].get("leases") == [LEASE]


def test_a_block_is_there_with_all_its_parts(daemon: Standin) -> None:
    engine = Engine(daemon, ranks=2)
    engine.put(0, 2)
    engine.put(1, rank=0)
    assert engine.hits("r") == 1
    engine.blocks.step()
    assert daemon.held() == names(0, ranks=2), "a block with one of its parts is released"
    assert len(engine.blocks.load(CHAIN[:1], "r")[0]) == 2
    engine.blocks.loaded(CHAIN[:1], "r")
    engine.end("r")
    engine.blocks.close()


def test_a_block_of_another_size_is_none(
    daemon: Standin, engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    engine.put(0)
    engine.put(1, size=SIZE * 2)
    assert engine.hits("r") == 1
    assert "[128] bytes, not 64" in caplog.text
    engine.blocks.step()
    assert daemon.held() == names(0)
    engine.end("r")


def test_a_daemon_that_is_away_has_nothing(daemon: Standin, engine: Engine) -> None:
    engine.put(0, 1)
    assert engine.hits("a") == 2
    daemon.stop()
    engine.clock.now += 0.01
    assert engine.hits("b") == 0
    assert engine.hits("a") == 0, "the last answer counts"
    assert engine.blocks.stats.take() == {"failures": 2}
    daemon.start()
    engine.client._retry_at = 0
    engine.clock.now += 1
    assert engine.hits("b") == 2
    engine.end("a", "b")


def test_what_was_pinned_is_loaded_without_the_daemon(daemon: Standin, engine: Engine) -> None:
    engine.put(0, 1)
    assert engine.hits("r") == 2
    daemon.stop()
    assert len(engine.blocks.load(CHAIN[:2], "r")) == 2
    engine.blocks.step()
    daemon.start()
    engine.client._retry_at = 0
    assert daemon.held() == names(0, 1)
    engine.blocks.loaded(CHAIN[:2], "r")
    engine.end("r")


def test_another_request_in_vain_spares_a_load(daemon: Standin, engine: Engine) -> None:
    engine.put(0, 1)
    assert engine.hits("a") == 2
    engine.blocks.load(CHAIN[:2], "a")
    daemon.answer = lambda request: b"" if request["op"] == "pin" else None
    engine.client._disconnect()
    engine.clock.now += 0.01
    assert engine.hits("b") == 0
    daemon.answer = None
    engine.client._retry_at = 0
    engine.blocks.finished("b")
    engine.blocks.step()
    assert daemon.held() == names(0, 1), "a worker may be copying them"
    engine.blocks.loaded(CHAIN[:2], "a")
    engine.end("a")


def test_another_segment_has_other_places(daemon: Standin, engine: Engine) -> None:
    engine.put(0, 1)
    assert engine.hits("r") == 2
    daemon.stop()
    engine.clock.now += 0.01
    other = Standin(daemon.path, generation=2)
    try:
        engine.daemon = other
        other.put("x", bytes(SIZE), "note")
        engine.put(0)
        assert engine.hits("r") == 1
        ((place,),) = engine.blocks.load(CHAIN[:1], "r")
        assert (place.segment.inode, place.offset) == (other.inode, other.objects[f"{CHAIN[0].hex()}.0"][0])
        engine.blocks.loaded(CHAIN[:1], "r")
        engine.end("r")
    finally:
        other.close()


def test_an_answer_of_a_connection_that_has_ended_is_no_pin(
    daemon: Standin, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The watch connects the client to a daemon with a new segment, before an answer is looked at."""
    engine.put(0, 1)
    pin, others = engine.client.pin, []

    def replaced(*args: Any, **kw: Any) -> Any:
        items = pin(*args, **kw)
        daemon.stop()
        others.append(Standin(daemon.path, generation=2))
        engine.client.hello()
        return items

    try:
        with monkeypatch.context() as patch:
            patch.setattr(engine.client, "pin", replaced)
            assert engine.hits("r") == 0
        (engine.daemon,) = others
        engine.put(0)
        assert engine.hits("r") == 1
        ((place,),) = engine.blocks.load(CHAIN[:1], "r")
        assert place.segment.inode == others[0].inode
        engine.blocks.loaded(CHAIN[:1], "r")
        engine.end("r")
    finally:
        for other in others:
            other.close()


def test_a_segment_that_cannot_be_mapped_has_nothing(daemon: Standin, engine: Engine) -> None:
    engine.put(0)
    os.unlink(f"/dev/shm/{daemon.segment}")
    assert engine.hits("r") == 0
    engine.end("r")


def test_half_of_the_time_is_left(daemon: Standin, engine: Engine) -> None:
    engine.put(0)
    assert engine.look("r", 0) == "hit"
    engine.clock.now += 149
    assert engine.look("r", 0) == "hit"
    assert daemon.ops().count("pin") == 1
    engine.clock.now += 2
    assert engine.look("r", 0) == "hit"
    assert daemon.ops().count("pin") == 2
    engine.end("r")


def test_reset_finds_nothing_of_before(daemon: Standin, engine: Engine) -> None:
    engine.put(0, 1)
    assert engine.hits("a") == 2
    engine.blocks.reset()
    assert daemon.held() == set(), "nothing is being loaded"
    assert engine.hits("a") == 0
    daemon.put(f"{engine.blocks.name(CHAIN[0])}.0", bytes(SIZE), "note")
    assert engine.hits("b") == 1
    engine.blocks.load(CHAIN[:1], "b")
    before = daemon.held()
    engine.blocks.reset()
    assert daemon.held() == before, "it is being loaded, and goes with the time of its lease"
    engine.blocks.loaded(CHAIN[:1], "b")  # of before the reset
    engine.put(2)
    assert engine.hits("b") == 0
    assert len({lease for _, lease in daemon.pins} - {LEASE}) == 1
    engine.blocks.finished("a")
    engine.blocks.finished("b")
    assert not engine.blocks._requests


def test_close_releases(daemon: Standin, engine: Engine) -> None:
    engine.put(0)
    assert engine.hits("r") == 1
    engine.blocks.close()
    assert daemon.held() == set()


@pytest.mark.parametrize("seed", range(20))
def test_nothing_is_left_of_any_sequence(daemon: Standin, seed: int) -> None:
    """What is being loaded is pinned, and when all requests have ended nothing is."""
    draw = random.Random(seed)
    engine = Engine(daemon, ranks=draw.choice([1, 2]))
    engine.put(*range(4))
    running: dict[str, list[bytes]] = {}  # and what they load
    for number in range(200):
        choice = draw.random()
        request = draw.choice(sorted(running)) if running else ""
        if choice < 0.3 or not running:
            running[f"r{number}"] = []
        elif choice < 0.7 and not running[request]:
            found = engine.hits(request)
            if found and draw.random() < 0.7:
                running[request] = CHAIN[draw.randrange(found) : found]
                engine.blocks.load(running[request], request)
        elif choice < 0.8:
            engine.blocks.step()
        elif choice < 0.85:
            daemon.stop()
            daemon.start()
            engine.client._retry_at = 0
        elif choice < 0.9:
            engine.put(draw.randrange(len(CHAIN)))
        else:
            loading = running.pop(request)
            early = draw.random() < 0.5
            if early:
                engine.blocks.finished(request)
            if loading:
                engine.blocks.loaded(loading, request)
            if not early:
                engine.blocks.finished(request)
        engine.clock.now += draw.choice([0, 0.001, 1])
        loads = {f"{key.hex()}.{rank}" for keys in running.values() for key in keys for rank in range(engine.ranks)}
        assert loads <= daemon.held()
    for request, keys in running.items():
        if keys:
            engine.blocks.loaded(keys, request)
    engine.client.hello()
    engine.end(*running)
    engine.blocks.close()


def config(model: str = "some/model", **changes: Any) -> Any:
    """What is looked at of vLLM's OffloadingConfig."""
    made = types.SimpleNamespace(
        groups=(types.SimpleNamespace(tokens_per_block=32),),
        model=types.SimpleNamespace(name=model, dtype="float32"),
        cache=types.SimpleNamespace(tokens_per_hash=32),
        parallel=types.SimpleNamespace(world_size=1, tp_size=1, pp_size=1, pcp_size=1, dcp_size=1),
        kv_cache_layout="LBHNC",
    )
    for key, value in changes.items():
        *path, last = key.split("__")
        target = made
        for part in path:
            target = getattr(target, part)
        setattr(target, last, value)
    return made


def test_a_space_is_of_what_makes_the_bytes() -> None:
    options = options_of({"revision": "1"})

    def space(made: Any, version: str = "0.32.0+cpu", device: str = "cpu") -> str:
        return space_of(made, options, version, device)

    plain = space(config())
    assert re.fullmatch(r"kv\.model\.0\.32\.0_cpu\.[0-9a-f]{32}", plain)
    assert space(config()) == plain
    example = space(config(), "0.32.0")
    assert f"`{example.removeprefix('kv.')}`" in (ROOT / "docs" / "format.md").read_text()
    others = [
        space(config("other/model")),
        space(config(model__dtype="bfloat16")),
        space(config(cache__tokens_per_hash=16)),
        space(config(groups=(types.SimpleNamespace(tokens_per_block=64),))),
        space(config(kv_cache_layout="BLHNC")),
        *(space(config("some/model", **{f"parallel__{name}": 2})) for name in vars(config().parallel)),
        space(config(), "0.33.0"),
        space(config(), device="cuda"),
        space_of(config(), options_of({"revision": "2"}), "0.32.0+cpu", "cpu"),
    ]
    assert len({plain, *others}) == 1 + len(others)
    assert space_of(config(), options_of({"space": "mine"}), "0.32.0", "cpu") == "mine"


def test_a_space_is_of_the_weights(tmp_path: pathlib.Path) -> None:
    def space() -> str:
        return space_of(config(str(tmp_path)), options_of({}), "0.32.0", "cpu")

    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.bin").write_bytes(bytes(5000))
    before = space()
    (tmp_path / "model.bin").write_bytes(bytes(4999) + b"x")
    assert space() != before
    with pytest.raises(ValueError, match='is no folder.*give kv_connector_extra_config a "revision"'):
        space_of(config("org/model"), options_of({}), "0.32.0", "cpu")


@pytest.mark.parametrize(
    ("extra", "text"),
    [
        ({"sockets": "x"}, "has no option 'sockets'; there are socket, .*and vLLM's own .*offload_prompt_only"),
        ({"timeout": "1"}, "kv_connector_extra_config: timeout must be a number, got '1'"),
        ({"lease": 1}, "lease must be 10 to 86400 seconds"),
        ({"block_size": 64}, "block_size can't be set here"),
        ({"blocks_per_chunk": 2}, "blocks_per_chunk can't be set here"),
        ({"canonical_layout": True}, "canonical_layout is not supported"),
    ],
)
def test_options_that_cannot_be_right(extra: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        options_of(extra)


def test_options() -> None:
    theirs = {"spec_name": "KVOffloadingSpec", "spec_module_path": "ringcache.vllm", "blocks_per_chunk": 1}
    options = options_of({**theirs, "offload_prompt_only": False, "socket": "/s", "wait": 5})
    assert (options.socket, options.wait, options.lease) == ("/s", 5.0, 300.0)


def test_hybrid_models_are_refused() -> None:
    group = types.SimpleNamespace(tokens_per_block=32)
    check(config())
    with pytest.raises(ValueError, match="2 groups, as hybrid models have"):
        check(config(groups=(group, group)))

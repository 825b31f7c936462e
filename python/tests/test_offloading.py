"""The worker's half of offloading, and the spec on the base classes of the installed vLLM. Skipped
without torch and vLLM."""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import os
import pathlib
import pickle
import threading
import types
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from conftest import ROOT
from standin import Standin
from test_blocks import CHAIN, config

if importlib.util.find_spec("vllm") is None or importlib.util.find_spec("torch") is None:
    pytest.skip("vllm and torch are not installed", allow_module_level=True)

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

import torch  # noqa: E402
from vllm.v1.core import kv_cache_utils  # noqa: E402
from vllm.v1.kv_offload import base  # noqa: E402
from vllm.v1.kv_offload.factory import OffloadingSpecFactory  # noqa: E402

from ringcache.daemon import Client, Segment  # noqa: E402
from ringcache.vllm import _block_worker  # noqa: E402
from ringcache.vllm._block_worker import BlockWorker  # noqa: E402
from ringcache.vllm._blocks import Place  # noqa: E402
from ringcache.vllm.offloading import KVOffloadingSpec, LoadBlocks  # noqa: E402

# What vLLM 0.32.0 and 0.33.0 have; a hook that is new is to be looked at.
HOOKS = {
    "OffloadingManager": """complete_load complete_store config_info get_load_source get_stats has_pending_work lock lookup
        on_new_request on_request_finished on_reset_flushed on_schedule_end prepare_load prepare_store reset_cache
        shutdown take_events touch""",
    "OffloadingWorker": "get_finished shutdown submit_load submit_store wait",
    "OffloadingSpec": "build_metric_definitions config_info_keys get_manager get_worker",
}

PAGE = 32  # bytes of a row
ROWS = 8


@pytest.fixture
def daemon(tmp_path: pathlib.Path) -> Iterator[Standin]:
    standin = Standin(str(tmp_path / "s"))
    yield standin
    standin.close()


def tensors() -> list[torch.Tensor]:
    return [torch.randint(-128, 128, (ROWS, PAGE), dtype=torch.int8) for _ in range(2)]


def worker(daemon: Standin, made: list[torch.Tensor], rank: int = 0) -> BlockWorker:
    client = Client(daemon.path, client="test", space="space", timeout=30)
    return BlockWorker(client, tensors=[(t, PAGE) for t in made], rank=rank, tenant="t", pin=False)


def places(daemon: Standin, w: BlockWorker, *names: str) -> list[tuple[Place, ...]]:
    segment = w._client.hello().segment
    return [(Place(segment, daemon.objects[f"{name}.{w._rank}"][0]),) for name in names]


def test_what_one_stores_another_loads(daemon: Standin) -> None:
    made, other = tensors(), tensors()
    w = worker(daemon, made)
    w.start()
    w.store(7, ["a", "b"], ["", "a"], [5, 2])
    (done,) = w.finished()
    assert (done.job, done.size) == (7, 4 * PAGE)
    assert w.finished() == []
    (reserve,) = [call for call in daemon.calls if call["op"] == "reserve"]
    assert [(o["name"], o.get("parent"), o["tenant"]) for o in reserve["objects"]] == [
        ("a.0", None, "t"),
        ("b.0", "a.0", "t"),
    ]
    at, size, _ = daemon.objects["b.0"]
    assert daemon.memory[at : at + size] == made[0][2].numpy().tobytes() + made[1][2].numpy().tobytes()
    w2 = worker(daemon, other)
    w2.load(8, places(daemon, w2, "a", "b"), [0, 1])
    w2.wait({8})
    (done,) = w2.finished()
    assert (done.job, done.size) == (8, 4 * PAGE)
    for t, o in zip(made, other):
        assert torch.equal(o[:2], t[[5, 2]])
    w.store(9, ["a", "c"], ["", "b"], [0, 0])
    assert [done.size for done in w.finished()] == [2 * PAGE], "what is there is not stored again"
    assert "abort" not in daemon.ops()
    w.close()
    w2.close()
    assert daemon.held() == set()


def test_each_worker_has_its_part(daemon: Standin) -> None:
    made = [tensors() for _ in range(2)]
    workers = [worker(daemon, t, rank) for rank, t in enumerate(made)]
    for w in workers:
        w.store(1, ["a"], [""], [3])
    both = tuple(place for w in workers for (place,) in places(daemon, w, "a"))
    for w, t in zip(workers, made):
        w.load(2, [both], [4])
        assert torch.equal(t[0][4], t[0][3])
        w.close()


def test_behind_a_block_without_room_nothing_is_stored(daemon: Standin) -> None:
    w = worker(daemon, tensors())

    def second(request: dict[str, Any]) -> Any:
        if request["op"] != "reserve":
            return None
        for session in daemon._sessions.values():
            items = daemon._reserve((session, request["lease"]), request)
        items[1] = {"status": "full"}
        daemon.reserved[session, request["lease"]].pop(request["objects"][1]["name"])
        return {"items": items}

    daemon.answer = second
    w.store(1, ["a", "b", "c"], ["", "a", "b"], [0, 1, 2])
    assert set(daemon.objects) == {"a.0"}
    assert daemon.held() == set(), "c is given up"
    daemon.answer = None
    before = len(daemon.calls)
    w.store(2, ["d"], ["c"], [3])
    assert len(daemon.calls) == before, "its parent is not there"
    w.store(3, ["a", "b", "c", "d"], ["", "a", "b", "c"], [0, 1, 2, 3])
    assert set(daemon.objects) == {"a.0", "b.0", "c.0", "d.0"}
    w.close()


def test_many_blocks_are_stored_in_batches(daemon: Standin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_block_worker, "_BATCH", 3)
    w = worker(daemon, tensors())
    names = [f"n{n}" for n in range(8)]
    w.store(1, names, ["", *names[:-1]], list(range(8)))
    assert [len(call["objects"]) for call in daemon.calls if call["op"] == "reserve"] == [3, 3, 2]
    assert len(daemon.objects) == 8
    w.close()


def test_a_daemon_that_is_away_takes_nothing(daemon: Standin) -> None:
    w = worker(daemon, tensors())
    w.start()
    daemon.stop()
    w.store(1, ["a", "b"], ["", "a"], [0, 1])
    assert [(done.job, done.size) for done in w.finished()] == [(1, 0)]
    assert not w._to_abort, "nothing was asked for"
    daemon.start()
    w._client._retry_at = 0
    w.store(2, ["c"], ["b"], [0])
    assert not daemon.objects, "nobody could load it without those in front of it"
    w.store(3, ["a", "b"], ["", "a"], [0, 1])
    assert set(daemon.objects) == {"a.0", "b.0"}
    w.close()


@pytest.mark.parametrize("op", ["reserve", "commit"])
def test_what_a_lost_answer_reserved_is_given_up(daemon: Standin, op: str) -> None:
    w = worker(daemon, tensors())
    w.start()

    def lost(request: dict[str, Any]) -> Any:
        if request["op"] != op:
            return None
        if op == "reserve":
            for session in daemon._sessions.values():
                daemon._reserve((session, request["lease"]), request)
        return b""

    daemon.answer = lost
    w.store(1, ["a"], [""], [0])
    assert daemon.held() == {"a.0"}
    daemon.answer = None
    w._client._retry_at = 0
    w.store(2, ["b"], [""], [1])
    assert daemon.held() == set()
    assert set(daemon.objects) == {"b.0"}
    w.close()


def test_nothing_is_written_after_the_time(daemon: Standin, monkeypatch: pytest.MonkeyPatch) -> None:
    w = worker(daemon, tensors())
    w.start()
    clock = iter([0.0, 0.0, 10.0, 301.0, 301.0, 301.0])  # began, before reserve, the first and the second block
    monkeypatch.setattr(_block_worker, "time", types.SimpleNamespace(monotonic=lambda: next(clock)))
    w.store(1, ["a", "b"], ["", "a"], [0, 1])
    monkeypatch.undo()
    assert not daemon.objects
    at = sorted(place[0] for names in daemon.reserved.values() for place in names.values())
    assert daemon.memory[at[1] : at[1] + 2 * PAGE] == bytes(2 * PAGE)
    w.close()
    assert daemon.held() == set()


def test_a_segment_that_is_gone_ends_the_engine_with_a_reason(daemon: Standin) -> None:
    w = worker(daemon, tensors())
    w.store(1, ["a"], [""], [0])
    pinned = places(daemon, w, "a")
    late = worker(daemon, tensors())
    os.unlink(f"/dev/shm/{daemon.segment}")
    w.load(2, pinned, [1])  # it has the mapping
    with pytest.raises(RuntimeError, match="are leased, and this worker can't map the segment"):
        late.load(1, pinned, [0])
    with pytest.raises(ValueError, match="worker 0 can't map the daemon's segment"):
        late.start()
    w.close()
    late.close()


def test_beside_a_device_jobs_end_later(daemon: Standin, monkeypatch: pytest.MonkeyPatch) -> None:
    """The way of a GPU's blocks, with a stream that does nothing."""
    nothing = types.SimpleNamespace(record=lambda s: None, wait_event=lambda e: None, synchronize=lambda: None)
    for name in ("Event", "Stream", "current_stream"):
        monkeypatch.setattr(torch.cuda, name, lambda *_: nothing)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: contextlib.nullcontext())
    made = tensors()
    w = worker(daemon, made)
    w._loads, w._stores = ThreadPoolExecutor(1), ThreadPoolExecutor(1)
    gate = threading.Event()
    real = w._client.reserve
    monkeypatch.setattr(w._client, "reserve", lambda *a, **kw: (gate.wait(), real(*a, **kw))[1])
    w.store(1, ["a"], [""], [0])
    assert w.finished() == []
    daemon.put("z.0", bytes(range(2 * PAGE)), "note")
    w.load(2, places(daemon, w, "z"), [7])
    w.wait({2})
    assert [done.job for done in w.finished()] == [2], "a load does not wait for a store"
    assert made[0][7].tolist() == list(range(PAGE))
    gate.set()
    w.wait({1, 99})
    assert [done.job for done in w.finished()] == [1]
    gone = [(Place(Segment("gone", 1, 1, 1), 0),)]
    w.load(3, gone, [0])
    with pytest.raises(RuntimeError, match="are leased"):
        w.wait({3})
    w.close()


def spec(daemon: Standin, extra: dict[str, Any] | None = None, **changes: Any) -> KVOffloadingSpec:
    made = config(**changes)
    made.extra_config = {"socket": daemon.path, "space": "space", "timeout": 30, **(extra or {})}
    made.enable_kv_cache_events = False
    made.cache.blocks_per_chunk = 1
    made.parallel.rank = 0
    made.worker_kv_bytes_per_block = 2 * PAGE
    return KVOffloadingSpec(made)


def caches(made: list[torch.Tensor]) -> Any:
    refs = [base.CanonicalKVCacheRef(tensor_idx=n, page_size_bytes=PAGE) for n in (0, 1)]
    return base.CanonicalKVCaches([base.CanonicalKVCacheTensor(t, PAGE) for t in made], [refs])


def context(name: str, count: int) -> Any:
    made = base.ReqContext(req_id=name)
    for n, key in enumerate(CHAIN[:count]):
        made.set_offload_key_position(key, 32 * (n + 1))
    return made


def test_every_hook_of_the_base_classes_is_known_and_fits() -> None:
    for name, hooks in HOOKS.items():
        theirs = getattr(base, name)
        assert {n for n in vars(theirs) if not n.startswith("_")} <= set(hooks.split()), name
    assert "expedited" in inspect.signature(_module().Worker.submit_load).parameters
    for ours in (_module().Manager, _module().Worker, KVOffloadingSpec):
        assert not ours.__abstractmethods__
        for name, method in vars(ours).items():
            above = getattr(ours.__mro__[1], name, None)
            if name.startswith("_") or not inspect.isfunction(above):
                continue
            wanted = list(inspect.signature(above).parameters)
            assert list(inspect.signature(method).parameters)[: len(wanted)] == wanted, name


def _module() -> Any:
    from ringcache.vllm import offloading

    return offloading


def test_vllm_finds_the_spec() -> None:
    extra = {"spec_name": "KVOffloadingSpec", "spec_module_path": "ringcache.vllm"}
    assert OffloadingSpecFactory.get_spec_cls(extra) is KVOffloadingSpec


def test_an_engine_stores_and_another_loads(daemon: Standin) -> None:
    made, other = tensors(), tensors()
    first, second = spec(daemon), spec(daemon)
    manager, w = first.get_manager(), first.get_worker(caches(made))
    assert first.get_manager() is manager
    ctx = context("r", 3)
    manager.on_new_request(ctx)
    assert manager.lookup(CHAIN[0], ctx) is base.LookupResult.MISS
    out = manager.prepare_store(CHAIN[:2], ctx)
    assert out.keys_to_store == CHAIN[:2]
    gpu = base.GPULoadStoreSpec([4, 6], group_sizes=[2], block_indices=[0])
    assert w.submit_store(1, gpu, pickle.loads(pickle.dumps(out.store_spec)))
    manager.on_request_finished(ctx)
    assert [(r.job_id, r.success, r.transfer_size) for r in w.get_finished()] == [(1, True, 4 * PAGE)]
    manager.complete_store(out.keys_to_store, ctx)
    parents = [o.get("parent") for call in daemon.calls for o in call.get("objects", ())]
    assert parents == [None, f"{CHAIN[0].hex()}.0"]
    assert manager.prepare_store(CHAIN[2:3], ctx).store_spec.parents == [CHAIN[1].hex()], "of an earlier step"

    manager2, w2 = second.get_manager(), second.get_worker(caches(other))
    ctx = context("s", 3)
    manager2.on_new_request(ctx)
    results = [manager2.lookup(key, ctx) for key in CHAIN[:3]]
    assert results == [base.LookupResult.HIT] * 2 + [base.LookupResult.MISS]
    nothing = base.ReqContext("t", load_tier_filter=base.TierFilter(matchers=()))
    manager2.on_new_request(nothing)
    assert manager2.lookup(CHAIN[0], nothing) is base.LookupResult.MISS, "the request wants nothing loaded"
    load = manager2.prepare_load(CHAIN[:2], ctx)
    assert isinstance(load, LoadBlocks)
    gpu = base.GPULoadStoreSpec([1, 0], group_sizes=[2], block_indices=[0])
    assert w2.submit_load(2, pickle.loads(pickle.dumps(load)), gpu, expedited=True)
    w2.wait({2})
    assert [r.job_id for r in w2.get_finished()] == [2]
    for t, o in zip(made, other):
        assert torch.equal(o[[1, 0]], t[[4, 6]])
    manager2.on_request_finished(ctx)
    manager2.complete_load(CHAIN[:2], ctx)
    manager2.on_schedule_end(None)
    for one in (manager, manager2, w, w2):
        one.shutdown()
    assert daemon.held() == set()


def test_counts_reach_prometheus(daemon: Standin) -> None:
    """In vLLM's own metrics, beside those of encoder outputs. The alerts and the board of the daemon are
    tested with what they look like here: RECORD=1 writes the file anew."""
    from prometheus_client import (  # type: ignore[import-not-found, unused-ignore]
        CollectorRegistry,
        Counter,
        Gauge,
        Histogram,
        generate_latest,
    )
    from vllm.distributed.kv_transfer.kv_connector.v1.offloading.metrics import OffloadPromMetrics

    from ringcache.vllm._metrics import CacheMetrics
    from ringcache.vllm._stats import KV_NAMES, NAMES

    registry = CollectorRegistry()

    def into(kind: Any) -> Any:
        return lambda **options: kind(registry=registry, **options)

    kinds = {kind: into(kind) for kind in (Counter, Gauge, Histogram)}
    extra = {"spec_name": "KVOffloadingSpec", "spec_module_path": "ringcache.vllm"}
    transfer = types.SimpleNamespace(kv_connector_extra_config=extra)
    engine = types.SimpleNamespace(kv_transfer_config=transfer, ec_transfer_config=types.SimpleNamespace())
    names = ["model_name", "engine"]
    values: dict[int, list[object]] = {0: ["model", "0"]}
    kv = OffloadPromMetrics(engine, kinds, names, values)
    outputs = CacheMetrics(engine, kinds, names, values)
    manager = spec(daemon).get_manager()
    stats = pickle.loads(pickle.dumps(manager.get_stats()))
    assert manager.get_stats() is None
    kv.observe(stats.data, 0)
    stats.reset()
    for name in ("load", "store"):  # as vLLM's scheduler does
        stats.increase_counter(f"vllm:kv_offload_{name}_bytes", 0)
    kv.observe(stats.data, 0)
    text = generate_latest(registry).decode()
    ours = [*(f"encoder_{name}" for name in NAMES), *(f"kv_{name}" for name in KV_NAMES)]
    wanted = [f"vllm:ringcache_{name}_total{{" for name in ours]
    wanted += [f"vllm:kv_offload_{name}_bytes_total{{" for name in ("load", "store")]
    lines = [line for start in wanted for line in text.splitlines() if line.startswith(start)]
    assert len(lines) == len(wanted), text
    path = ROOT / "daemon/internal/promtest/testdata/engine.txt"
    if os.environ.get("RECORD"):
        path.write_text("".join(f"{line}\n" for line in lines))
    assert path.read_text().splitlines() == lines

    daemon.put(f"{CHAIN[0].hex()}.0", bytes(2 * PAGE), "note")
    ctx = context("r", 2)
    manager.on_new_request(ctx)
    assert manager.lookup(CHAIN[0], ctx) is base.LookupResult.HIT
    manager.prepare_load(CHAIN[:1], ctx)
    kv.observe(manager.get_stats().data, 0)
    assert manager.get_stats() is None
    outputs.observe({"hits": 2}, 0)
    text = generate_latest(registry).decode()
    for name, count in (("kv_hits", 1), ("kv_failures", 0), ("encoder_hits", 2)):
        line = f'vllm:ringcache_{name}_total{{engine="0",model_name="model"}} {count}.0'
        assert line in text, text
    manager.complete_load(CHAIN[:1], ctx)
    manager.on_request_finished(ctx)
    manager.shutdown()


def test_what_is_on_its_way_is_asked_for_again(daemon: Standin) -> None:
    daemon.put(f"{CHAIN[0].hex()}.0", bytes(2 * PAGE), "note")
    daemon.pending[f"{CHAIN[0].hex()}.0"] = -1
    manager = spec(daemon).get_manager()
    ctx = context("r", 1)
    manager.on_new_request(ctx)
    assert manager.lookup(CHAIN[0], ctx) is base.LookupResult.RETRY
    manager.on_request_finished(ctx)
    manager.shutdown()


@pytest.mark.parametrize(("variable", "shares"), [(None, False), ("7", True)])
def test_hashes_with_a_random_seed_share_nothing(
    daemon: Standin,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    variable: str | None,
    shares: bool,
) -> None:
    monkeypatch.setattr(kv_cache_utils, "_NONE_HASH_SEED", "7")
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    if variable:
        monkeypatch.setenv("PYTHONHASHSEED", variable)
    daemon.put(f"{CHAIN[0].hex()}.0", bytes(2 * PAGE), "note")
    manager = spec(daemon).get_manager()
    ctx = context("r", 2)
    with caplog.at_level("ERROR", "vllm.ringcache"):
        for _ in range(2):
            manager.on_new_request(ctx)
    found = [r.getMessage() for r in caplog.records if "random seed" in r.getMessage()]
    assert len(found) == (0 if shares else 1)
    assert (manager.lookup(CHAIN[0], ctx) is base.LookupResult.HIT) == shares
    assert len(manager.prepare_store(CHAIN[1:2], ctx).keys_to_store) == shares
    manager.on_request_finished(ctx)
    manager.shutdown()


def test_a_reset_stores_under_other_names(daemon: Standin) -> None:
    manager = spec(daemon).get_manager()
    ctx = context("r", 2)
    manager.on_new_request(ctx)
    (before,) = manager.prepare_store(CHAIN[:1], ctx).store_spec.names
    manager.reset_cache()
    assert manager.prepare_store(CHAIN[:1], ctx).store_spec.names != [before]
    manager.shutdown()


def test_what_cannot_be_right_is_refused(daemon: Standin) -> None:
    for extra, changes, text in (
        ({"sockets": "x"}, {}, "KVOffloadingSpec: kv_connector_extra_config has no option 'sockets'"),
        ({"space": ""}, {}, "KVOffloadingSpec: some/model is no folder"),
        ({}, {"groups": (types.SimpleNamespace(tokens_per_block=32),) * 2}, "KVOffloadingSpec: .* 2 groups"),
    ):
        with pytest.raises(ValueError, match=text):
            spec(daemon, extra, **changes)
    made = spec(daemon)
    made.config.worker_kv_bytes_per_block = 5
    with pytest.raises(ValueError, match="a block of the KV cache has 64 bytes, and vLLM says 5"):
        made.get_worker(caches(tensors()))

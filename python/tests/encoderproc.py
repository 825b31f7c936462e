"""Cases of the encoder connector on the real base class of a release of vLLM, in a process of
their own: ``encoderproc.py FOLDER VERSION``, with the folder of the package ``vllm``.

Only the package's files about connectors are loaded; what else they import is made up here, so that
a release needs nothing installed but torch. Prints a JSON object: how each case ended, by name.
"""

from __future__ import annotations

import ast
import functools
import inspect
import json
import logging
import os
import pathlib
import pickle
import shutil
import sys
import tempfile
import threading
import time
import traceback
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

FOLDER, VERSION = pathlib.Path(sys.argv[1]), sys.argv[2]
RANKS = {"tensor": 0, "first": True}


class _Anything(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or self.__path__:  # a real folder has real modules
            raise AttributeError(name)
        return type(name, (), {})


def made_up(name: str, path: pathlib.Path | None = None, **attributes: Any) -> None:
    module = _Anything(name)
    module.__path__ = [str(path)] if path else []
    for key, value in attributes.items():
        setattr(module, key, value)
    sys.modules[name] = module
    parent, _, child = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], child, module)


made_up("vllm", __version__=VERSION)
made_up("vllm.logger", init_logger=logging.getLogger)
made_up("vllm.config")
made_up("vllm.v1")
made_up("vllm.v1.outputs")
made_up("vllm.v1.core")
made_up("vllm.v1.core.sched")
made_up("vllm.v1.core.sched.output")
made_up("vllm.platforms", current_platform=types.SimpleNamespace(device_type="cpu"))
made_up("vllm.distributed")
made_up(
    "vllm.distributed.parallel_state",
    get_tensor_model_parallel_rank=lambda: RANKS["tensor"],
    get_pp_group=lambda: types.SimpleNamespace(is_first_rank=RANKS["first"]),
)
made_up("vllm.distributed.ec_transfer")
made_up(
    "vllm.distributed.ec_transfer.ec_connector",
    FOLDER / "distributed" / "ec_transfer" / "ec_connector",
)

import torch  # noqa: E402
from standin import Standin  # noqa: E402
from vllm.distributed.ec_transfer.ec_connector import base  # noqa: E402

import ringcache.vllm  # noqa: E402
from ringcache.daemon import Segment  # noqa: E402
from ringcache.vllm import _options, _scheduling, _working, encoder  # noqa: E402

# What releases have beside each other; a hook that is new is to be looked at.
HOOKS = """
bind_connector_metadata build_connector_meta build_connector_worker_meta build_ec_connector_stats
build_prom_metrics clear_connector_metadata ensure_cache_available get_ec_connector_stats get_finished
has_cache_item has_caches has_pending_push_work is_consumer is_producer register_caches request_finished role
save_caches shutdown start_load_caches start_save_caches start_worker_services take_unavailable_requests
update_connector_output update_state_after_alloc update_state_after_free
""".split()

IS_NEW = hasattr(base.ECConnectorBase, "is_consumer")


def config(daemon: Standin | None = None, role: str = "ec_both", **changes: Any) -> Any:
    extra = {"socket": daemon.path if daemon else "/nonexistent", "timeout": 20.0}
    extra.update(changes.pop("extra", {}))
    model = types.SimpleNamespace(
        model=changes.pop("model", "some/model"),
        dtype=torch.float32,
        revision=None,
        seed=0,
        hf_config=types.SimpleNamespace(_commit_hash="c0ffee"),
        quantization=None,
        hf_overrides={},
        is_encoder_decoder=False,
        multimodal_config=types.SimpleNamespace(mm_processor_cache_gb=4, video_pruning_rate=None),
        get_hidden_size=lambda: 8,
    )
    made = types.SimpleNamespace(
        model_config=model,
        cache_config=types.SimpleNamespace(enable_prefix_caching=True),
        load_config=types.SimpleNamespace(load_format="auto"),
        parallel_config=types.SimpleNamespace(pipeline_parallel_size=1),
        lora_config=None,
        ec_transfer_config=types.SimpleNamespace(
            ec_connector_extra_config=extra,
            is_ec_producer=role != "ec_consumer",
            is_ec_consumer=role != "ec_producer",
        ),
    )
    for key, value in changes.items():
        target = made
        *path, last = key.split("__")
        for part in path:
            target = getattr(target, part)
        setattr(target, last, value)
    return made


# The connectors of a case, which end with it: they watch their daemon, and the log is everybody's.
CONNECTORS: list[Any] = []


def scheduler(made: Any) -> Any:
    return _connector(made, base.ECConnectorRole.SCHEDULER)


def worker(made: Any) -> Any:
    return _connector(made, base.ECConnectorRole.WORKER)


def _connector(made: Any, role: Any) -> Any:
    CONNECTORS.append(ringcache.vllm.EncoderCacheConnector(made, role))
    return CONNECTORS[-1]


class Request:
    def __init__(self, request_id: str, *items: str, rows: int = 4) -> None:
        self.request_id = request_id
        self.num_computed_tokens = 0
        self.rows = rows
        self.mm_features = [
            types.SimpleNamespace(
                identifier=item, mm_position=types.SimpleNamespace(offset=2 + 10 * n, length=rows)
            )
            for n, item in enumerate(items)
        ]

    def get_num_encoder_embeds(self, index: int) -> int:
        return self.rows


def schedule(s: Any, request: Request, finished: tuple[str, ...] = ()) -> Any:
    """As a scheduler of the release does; the metadata is pickled on its way to the workers."""
    if hasattr(base.ECConnectorBase, "ensure_cache_available"):
        while not s.ensure_cache_available(request, 0):
            pass
    if hasattr(base.ECConnectorBase, "has_caches"):
        has = s.has_caches(request)
    else:
        has = [s.has_cache_item(feature.identifier) for feature in request.mm_features]
    for index, there in enumerate(has):
        if there or IS_NEW:  # older releases say it of loads only
            s.update_state_after_alloc(request, index)
    metadata = s.build_connector_meta(types.SimpleNamespace(finished_req_ids=set(finished)))
    assert isinstance(metadata, base.ECConnectorMetadata)
    return pickle.loads(pickle.dumps(metadata))


def run(w: Any, metadata: Any, outputs: dict[str, Any], consumes: bool = True) -> Any:
    """A step of a runner: the cache, and the worker's report."""
    cache: dict[str, torch.Tensor] = {}
    w.bind_connector_metadata(metadata)
    if IS_NEW and w.is_producer:
        w.start_save_caches(encoder_cache=cache)
    if consumes:
        w.start_load_caches(cache)
    for name, tensor in outputs.items():
        if name not in cache:
            cache[name] = tensor
            w.save_caches(encoder_cache=cache, mm_hash=name)
    assert w.get_finished(set()) == (None, None)
    report = w.build_connector_worker_meta()
    w.clear_connector_metadata()
    return cache, pickle.loads(pickle.dumps(report))


def outputs(*names: str, dtype: torch.dtype = torch.float32, rows: int = 4) -> dict[str, torch.Tensor]:
    return {
        name: (torch.arange(rows * 8).reshape(rows, 8) + 100 * n).to(dtype)
        for n, name in enumerate(names, 1)
    }


@contextmanager
def a_daemon(**options: Any) -> Iterator[Standin]:
    folder = tempfile.mkdtemp(prefix="rc")
    daemon = Standin(os.path.join(folder, "s"), **options)
    try:
        yield daemon
    finally:
        daemon.close()
        shutil.rmtree(folder)


def every_hook_of_the_base_class_is_known_and_fits() -> None:
    ours, theirs = encoder.EncoderCacheConnector, base.ECConnectorBase
    assert not ours.__abstractmethods__, ours.__abstractmethods__
    public = [name for name in dir(theirs) if not name.startswith("_")]
    assert set(public) <= set(HOOKS), set(public) - set(HOOKS)
    assert {n for n in vars(ours) if not n.startswith("_")} <= set(HOOKS)
    for name in public:
        if callable(getattr(theirs, name)):
            want = list(inspect.signature(getattr(theirs, name)).parameters.values())
            have = list(inspect.signature(getattr(ours, name)).parameters.values())
            assert [(p.name, p.kind) for p in have] == [(p.name, p.kind) for p in want], name
            for one, other in zip(have, want):
                assert (one.default is one.empty) == (other.default is other.empty), name


def every_field_of_the_configuration_is_known() -> None:
    """What the release takes, `python -m ringcache.vllm check` does not refuse."""
    tree = ast.parse((FOLDER / "config" / "ec_transfer.py").read_text())
    (made,) = [
        node
        for node in tree.body
        if isinstance(node, ast.ClassDef) and node.name == "ECTransferConfig"
    ]
    fields = {
        node.target.id
        for node in made.body
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Name)
        and "init=False" not in ast.unparse(node)
    }
    assert "ec_connector_extra_config" in fields
    assert fields <= set(_options.FIELDS), fields
    assert set(_options.FIELDS) - fields <= {"ec_rank", "ec_parallel_size"}, fields


def loaded_by_the_factory() -> None:
    from vllm.distributed.ec_transfer.ec_connector.factory import ECConnectorFactory

    made = config()
    made.ec_transfer_config.ec_connector = "EncoderCacheConnector"
    made.ec_transfer_config.ec_connector_module_path = "ringcache.vllm"
    made.ec_transfer_config.engine_id = "1"
    connector = ECConnectorFactory.create_connector(made, base.ECConnectorRole.WORKER)
    assert type(connector) is encoder.EncoderCacheConnector
    connector.shutdown()


def one_engine_stores_and_another_loads() -> None:
    with a_daemon() as daemon:
        first = config(daemon, "ec_both" if IS_NEW else "ec_producer")
        second = config(daemon, "ec_consumer")
        s, w = scheduler(first), worker(first)
        if IS_NEW:
            w.start_worker_services()
        made = outputs("a", "b")
        metadata = schedule(s, Request("1", "a", "b"))
        assert metadata.loads == []
        _, report = run(w, metadata, made, consumes=IS_NEW)
        assert (report.step, report.counts) == (0, {"saves": 2, "saved_bytes": 256})
        assert set(daemon.objects) == {"a", "b"}
        assert daemon.objects["a"][2] == b"float32 4 8"
        s.shutdown()
        w.shutdown()
        s, w = scheduler(second), worker(second)
        request = Request("1", "b", "c", "a")
        metadata = schedule(s, request)
        assert [load.identifier for load in metadata.loads] == ["b", "a"]
        cache, report = run(w, metadata, outputs("c"))
        assert torch.equal(cache["a"], made["a"])
        assert torch.equal(cache["b"], made["b"])
        assert cache["a"].is_contiguous()
        assert "c" not in daemon.objects, "a consumer stores nothing"
        # The engine's tensors are its own.
        daemon.memory[:] = bytes(len(daemon.memory))
        assert torch.equal(cache["a"], made["a"])
        assert daemon.held() == {"a", "b"}
        if IS_NEW:
            s.request_finished(request)
            s.update_connector_output(types.SimpleNamespace(ec_connector_worker_meta=report))
        else:
            for _ in range(3):
                s.build_connector_meta(types.SimpleNamespace(finished_req_ids={"1"}))
        assert daemon.held() == set()
        s.shutdown()
        w.shutdown()


def all_ranks_load_and_the_first_saves() -> None:
    with a_daemon() as daemon:
        made = config(daemon)
        s = scheduler(made)
        workers = []
        for ranks in ((0, True), (1, True), (0, False)):
            RANKS["tensor"], RANKS["first"] = ranks
            w = worker(made)
            workers.append(w)
            run(w, encoder.StepMetadata(0), outputs(f"of {ranks}"), consumes=False)
        RANKS["tensor"], RANKS["first"] = 0, True
        assert set(daemon.objects) == {"of (0, True)"}
        if not IS_NEW:
            s = scheduler(config(daemon, "ec_consumer"))
        metadata = schedule(s, Request("1", "of (0, True)"))
        reports = []
        for w in workers:
            cache, report = run(w, metadata, {})
            assert set(cache) == {"of (0, True)"}
            reports.append(report)
        merged = reports[0].aggregate(reports[1]).aggregate(reports[2])
        assert merged.step == metadata.step
        if IS_NEW:
            assert isinstance(merged, base.ECConnectorWorkerMetadata)


def dtypes_and_odd_tensors_are_kept() -> None:
    with a_daemon() as daemon:
        w = worker(config(daemon))
        r = worker(config(daemon, "ec_consumer"))
        wide = torch.randn(4, 16)
        made = {
            "bfloat16": torch.randn(5, 7).to(torch.bfloat16),
            "float16": torch.randn(1, 3).to(torch.float16),
            "float8": torch.randn(3, 5).to(torch.float8_e4m3fn),
            "columns": wide[:, 2:9],
            "turned": torch.randn(4, 8).t(),
            "rows": wide[1:3],
            "grad": torch.randn(2, 2, requires_grad=True),
        }
        run(w, encoder.StepMetadata(0), made, consumes=False)
        assert set(daemon.objects) == set(made)
        s = scheduler(config(daemon, "ec_consumer"))
        cache, _ = run(r, schedule(s, Request("1", *made, rows=1)), {})
        for name, tensor in made.items():
            assert cache[name].dtype == tensor.dtype, name
            assert not cache[name].requires_grad
            same = cache[name].view(torch.uint8), tensor.detach().contiguous().view(torch.uint8)
            assert torch.equal(*same), name
        for odd in (torch.zeros(0, 4), torch.zeros(3), torch.zeros(1, 2, 3)):
            run(w, encoder.StepMetadata(0), {"odd": odd}, consumes=False)
        assert "odd" not in daemon.objects


def what_cannot_be_stored_is_skipped() -> None:
    with a_daemon() as daemon:
        w = worker(config(daemon))
        reports = [
            run(w, encoder.StepMetadata(0), made, consumes=False)[1]
            for made in (outputs("a"), outputs("a"), {"big": torch.zeros(1024, 1024)})
        ]
        daemon.reserved["other", "x"] = {"b": (0, 0, b"")}
        reports.append(run(w, encoder.StepMetadata(0), outputs("b"), consumes=False)[1])
        assert set(daemon.objects) == {"a"}
        assert functools.reduce(lambda a, b: a.aggregate(b), reports).counts == {
            "saves": 1, "saved_bytes": 128, "skipped": 3
        }
        del daemon.reserved["other", "x"]
        assert daemon.held() == set()


def room_of_another_size_is_not_written() -> None:
    with a_daemon() as daemon:
        w = worker(config(daemon))

        def lie(request: dict[str, Any]) -> dict[str, Any] | None:
            if request["op"] != "reserve":
                return None
            reply = daemon.reply(next(iter(daemon._connections)), request)
            reply["items"][0]["size"] -= 1
            return reply

        daemon.answer = lie
        run(w, encoder.StepMetadata(0), outputs("a"), consumes=False)
        assert daemon.memory[64:256] == bytes(192)
        assert not daemon.objects
        daemon.answer = None
        run(w, encoder.StepMetadata(0), outputs("b"), consumes=False)
        assert daemon.held() == set()


def what_waits_to_be_saved_holds_little_of_the_device() -> None:
    class OfDevice(torch.Tensor):  # type: ignore[misc, unused-ignore]
        device = property(lambda self: torch.device("cuda", 0))  # type: ignore[assignment, unused-ignore]

    event, stream = torch.cuda.Event, torch.cuda.current_stream
    torch.cuda.Event = lambda: types.SimpleNamespace(record=lambda of: None)  # type: ignore[assignment, misc, unused-ignore]
    torch.cuda.current_stream = lambda device: None  # type: ignore[assignment, unused-ignore]
    most, _working._QUEUE_BYTES = _working._QUEUE_BYTES, 1000  # type: ignore[misc]
    try:
        w = worker(config())._working()
        w._thread = threading.current_thread()  # which takes nothing out of the queue
        for size, waiting in ((5000, 1), (100, 1), (5000, 1)):
            w.save("a", torch.zeros(size, dtype=torch.uint8).as_subclass(OfDevice))
            assert w._queue.qsize() == waiting
        w._unqueued(5000)
        for size, waiting in ((600, 2), (400, 3), (1, 3)):
            w.save("a", torch.zeros(size, dtype=torch.uint8).as_subclass(OfDevice))
            assert w._queue.qsize() == waiting
        assert w.stats.take() == {"skipped": 3}
        w._thread = None
    finally:
        torch.cuda.Event, torch.cuda.current_stream = event, stream  # type: ignore[misc, unused-ignore]
        _working._QUEUE_BYTES = most  # type: ignore[misc]


def what_the_engine_has_is_not_loaded() -> None:
    with a_daemon() as daemon:
        made = outputs("a")
        s, metadata = _pinned(daemon, made)
        w = worker(config(daemon, "ec_consumer"))
        cache = dict(made)
        w.bind_connector_metadata(metadata)
        w.start_load_caches(cache)
        assert cache["a"] is made["a"]
        report = w.build_connector_worker_meta()
        assert report.step == metadata.step, "it is reported all the same"
        assert w.build_connector_worker_meta() is None


def a_lost_answer_leaves_no_reservation() -> None:
    with a_daemon() as daemon:
        w = worker(config(daemon))
        w._working().start()
        for op in ("reserve", "commit"):
            daemon.answer = lambda request, op=op: (
                (daemon.reply(next(iter(daemon._connections)), request), b"")[1]
                if request["op"] == op
                else None
            )
            run(w, encoder.StepMetadata(0), outputs(op), consumes=False)
            daemon.answer = None
            w._client._retry_at = 0
            run(w, encoder.StepMetadata(0), outputs("next " + op), consumes=False)
            assert "next " + op in daemon.objects
            assert daemon.held() == set(), op
        assert "reserve" not in daemon.objects
        assert "commit" in daemon.objects, "its answer was lost, not the commit"


def a_lost_answer_and_a_second_try_leave_no_reservation() -> None:
    with a_daemon() as daemon:
        w = worker(config(daemon))
        w._working().start()
        lost: list[Any] = []

        def lose(request: dict[str, Any]) -> bytes | None:
            if request["op"] == "reserve" and not lost:
                lost.append(daemon.reply(next(iter(daemon._connections)), request))
                return b""
            return None

        daemon.answer = lose
        run(w, encoder.StepMetadata(0), outputs("a"), consumes=False)
        assert lost
        assert daemon.held() == {"a"}, "the second try is told that it is pending"
        run(w, encoder.StepMetadata(0), outputs("b"), consumes=False)
        assert daemon.held() == set()
        run(w, encoder.StepMetadata(0), outputs("a"), consumes=False)
        assert set(daemon.objects) == {"a", "b"}


def saving_never_raises_and_nothing_grows() -> None:
    made = outputs("a")["a"]
    w = worker(config(None))
    for n in range(100):
        run(w, encoder.StepMetadata(0), {f"{n}": made}, consumes=False)
    assert not w._worker._to_abort
    run(w, encoder.StepMetadata(0), {"odd": [made]}, consumes=False)
    with a_daemon() as daemon:
        w = worker(config(daemon))
        w._working()._copy_in = lambda *_: 1 / 0
        run(w, encoder.StepMetadata(0), {"a": made}, consumes=False)
        del w._working()._copy_in
        run(w, encoder.StepMetadata(0), {"\ud800": made, "b": made}, consumes=False)
        assert set(daemon.objects) == {"b"}
        assert daemon.held() == set()


def nobody_sees_bytes_before_they_are_written() -> None:
    with a_daemon() as daemon:
        w = worker(config(daemon))
        seen = []

        def look(request: dict[str, Any]) -> None:
            if request["op"] == "commit":
                for places in daemon.reserved.values():
                    for at, size, _ in places.values():
                        seen.append(bytes(daemon.memory[at : at + size]))

        daemon.answer = look
        made = outputs("a")
        run(w, encoder.StepMetadata(0), made, consumes=False)
        assert seen == [made["a"].numpy().tobytes()]


def nothing_is_written_after_the_time_of_its_room() -> None:
    """A worker that was stopped for so long leaves alone what is another object's by then."""
    import ringcache.vllm._working

    working: Any = ringcache.vllm._working

    made = outputs("a", "b")
    with a_daemon() as daemon:
        w = worker(config(daemon))
        w._working().start()
        pieces: list[None] = []

        class Stopped:
            """A clock on which an hour passes behind the second look, of which copies take."""

            sleep = staticmethod(working.time.sleep)

            def monotonic(self) -> float:
                pieces.append(None)
                return time.monotonic() + (3600 if len(pieces) > 2 else 0)

        real, working.time, size = working.time, Stopped(), working._PIECE
        working._PIECE = made["a"][:1].nbytes  # a row
        try:
            run(w, encoder.StepMetadata(0), {"a": made["a"]}, consumes=False)
            ((at, length, _),) = daemon.reserved[next(iter(daemon.reserved))].values()
            written = bytes(daemon.memory[at : at + length])
            row = made["a"][:1].nbytes
            assert written[:row] == made["a"][:1].numpy().tobytes()
            assert written[row:] == bytes(length - row), "the rest came too late"
            assert "a" not in daemon.objects
        finally:
            working.time, working._PIECE = real, size
        run(w, encoder.StepMetadata(0), {"b": made["b"]}, consumes=False)
        assert set(daemon.objects) == {"b"}
        assert daemon.held() == set(), "what was not written is given up"
        asked = [call["seconds"] for call in daemon.calls if call["op"] == "reserve"]
        assert asked == [working._SAVE_SECONDS] * 2


def _pinned(daemon: Standin, made: dict[str, torch.Tensor]) -> tuple[Any, Any]:
    """What was stored, pinned for an engine whose worker has not started."""
    w = worker(config(daemon))
    run(w, encoder.StepMetadata(0), made, consumes=False)
    w.shutdown()
    s = scheduler(config(daemon, "ec_consumer"))
    metadata = schedule(s, Request("1", *made))
    assert [load.identifier for load in metadata.loads] == list(made)
    return s, metadata


def a_worker_loads_without_the_daemon() -> None:
    with a_daemon() as daemon:
        made = outputs("a", "b")
        _, metadata = _pinned(daemon, made)
        daemon.stop()
        cache, _ = run(worker(config(daemon, "ec_consumer")), metadata, {})
        assert torch.equal(cache["a"], made["a"])
        assert torch.equal(cache["b"], made["b"])


def a_worker_loads_from_a_segment_that_was_replaced() -> None:
    with a_daemon() as daemon:
        made = outputs("a")
        s, metadata = _pinned(daemon, made)
        w = worker(config(daemon, "ec_consumer"))
        w._working().start()
        pathlib.Path("/dev/shm", daemon.segment).unlink()
        daemon.stop()
        cache, _ = run(w, metadata, {})
        assert torch.equal(cache["a"], made["a"])
        w.shutdown()
        s.shutdown()


def what_is_gone_is_asked_for_by_name() -> None:
    with a_daemon() as daemon:
        made = outputs("a")
        _, metadata = _pinned(daemon, made)
        daemon.stop()
        pathlib.Path("/dev/shm", daemon.segment).unlink()
        other = Standin(daemon.path, generation=2)
        try:
            other.put("x", b"x", "")
            other.put("a", made["a"].numpy().tobytes(), "float32 4 8")
            other.pending["a"] = 2
            cache, _ = run(worker(config(daemon, "ec_consumer")), metadata, {})
            assert torch.equal(cache["a"], made["a"])
            assert other.held() == set()
        finally:
            other.close()


@contextmanager
def replaced_behind(daemon: Standin, client: Any, call: str, other: list[Standin]) -> Iterator[None]:
    """As soon as a call is answered, another thread connects the client to a new segment."""
    asked = getattr(client, call)

    def replace(*args: Any, **kw: Any) -> Any:
        items = asked(*args, **kw)
        if not other:
            daemon.stop()
            other.append(Standin(daemon.path, generation=2))
            client.hello()
        return items

    setattr(client, call, replace)
    try:
        yield
    finally:
        delattr(client, call)
        for one in other:
            one.close()


def an_answer_is_of_its_own_segment_whatever_another_thread_meets() -> None:
    made = outputs("a", "b")
    with a_daemon() as daemon:
        at = daemon.put("a", made["a"].numpy().tobytes(), "float32 4 8")
        w = worker(config(daemon, "ec_consumer"))
        other: list[Standin] = []
        with replaced_behind(daemon, w._client, "pin", other):
            gone = Segment("gone", 1 << 20, 1, 1)
            lost = _scheduling.Load("a", gone, at, 128, "float32", (4, 8))
            mappings = w._working()._mappings
            mappings.of = _gone_but(mappings.of)
            cache, _ = run(w, encoder.StepMetadata(1, [lost]), {})
            assert torch.equal(cache["a"], made["a"]), "not what is there in the new segment"
    with a_daemon() as daemon:
        w = worker(config(daemon))
        w._working().start()
        other = []
        with replaced_behind(daemon, w._client, "reserve", other):
            run(w, encoder.StepMetadata(0), {"b": made["b"]}, consumes=False)
            assert other[0].memory[64:] == bytes(other[0].size - 64), "nothing is reserved there"
            assert not other[0].objects
            w.shutdown()


def _gone_but(mapped: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def of(segment: Any) -> Any:
        if segment.name == "gone":
            raise ringcache.SegmentError("it is gone")
        return mapped(segment)

    return of


def what_is_gone_everywhere_ends_the_step_with_a_reason() -> None:
    with a_daemon() as daemon:
        _, metadata = _pinned(daemon, outputs("a"))
        daemon.stop()
        pathlib.Path("/dev/shm", daemon.segment).unlink()
        w = worker(config(daemon, "ec_consumer", extra={"wait": 0.1}))
        try:
            run(w, metadata, {})
        except RuntimeError as e:
            assert "a was pinned and is gone" in str(e), e
        else:
            raise AssertionError("no error")


def a_daemon_that_is_away_stops_nothing() -> None:
    made = config(None)
    s, w = scheduler(made), worker(made)
    if IS_NEW:
        w.start_worker_services()
    cache, _ = run(w, schedule(s, Request("1", "a")), outputs("a"), consumes=IS_NEW)
    assert set(cache) == {"a"}
    s.shutdown()
    w.shutdown()


def a_daemon_that_comes_later_is_used() -> None:
    with a_daemon() as daemon:
        made = config(daemon, "ec_both" if IS_NEW else "ec_producer")
        daemon.stop()
        s, w = scheduler(made), worker(made)
        run(w, schedule(s, Request("1", "a")), outputs("a"), consumes=IS_NEW)
        daemon.start()
        for part in (s._scheduling._client, w._client):
            part._retry_at = 0
        run(w, schedule(s, Request("2", "b")), outputs("b"), consumes=IS_NEW)
        assert set(daemon.objects) == {"b"}


def an_encode_only_engine_does_not_encode_what_is_there() -> None:
    with a_daemon() as daemon:
        made = config(daemon, "ec_producer")
        s, w = scheduler(made), worker(made)
        run(w, schedule(s, Request("1", "a")), outputs("a"), consumes=False)
        s.request_finished(Request("1", "a"))
        request = Request("2", "a")
        assert s.ensure_cache_available(request, 0)
        assert s.has_cache_item("a")
        assert schedule(s, request).loads == []
        s.build_connector_meta(types.SimpleNamespace(finished_req_ids={"2"}))
        assert daemon.held() == set()


def old_releases_take_both_for_producer() -> None:
    if IS_NEW:
        return
    with a_daemon() as daemon:
        daemon.put("a", bytes(128), "float32 4 8")
        s = scheduler(config(daemon, "ec_both"))
        assert schedule(s, Request("1", "a")).loads == [], "the runner would not load it"


def a_release_without_waiting_takes_what_is_in_memory() -> None:
    with a_daemon() as daemon:
        daemon.put("a", bytes(128), "float32 4 8")
        daemon.pending["a"] = 1
        s = scheduler(config(daemon, "ec_consumer"))
        assert not s.has_cache_item("a")
        s.build_connector_meta(types.SimpleNamespace(finished_req_ids=set()))
        assert "release" not in daemon.ops(), "it goes on its way"
        assert s.has_cache_item("a")


def configurations_that_cannot_work_are_refused() -> None:
    cases: list[tuple[str, dict[str, Any]]] = [
        ("no option 'sockt'; there are socket, ", {"extra": {"sockt": "/x"}}),
        ("timeout must be a number, got '1'", {"extra": {"timeout": "1"}}),
        ("timeout must be 0.001 to 60 seconds, got 0", {"extra": {"timeout": 0}}),
        ("lease must be 10 to 86400 seconds, got 1", {"extra": {"lease": 1}}),
        ("wait must be a number, got True", {"extra": {"wait": True}}),
        ("wait must be 0 to 600 seconds, got nan", {"extra": {"wait": float("nan")}}),
        ("socket must be a text, got 1", {"extra": {"socket": 1}}),
        ("pin must be true or false, got 1", {"extra": {"pin": 1}}),
        ("tenant has 256 bytes, the most is 255", {"extra": {"tenant": "t" * 256}}),
        ("space has 256 bytes, the most is 255", {"extra": {"space": "s" * 256}}),
        ("revision has 4097 bytes, the most is 4096", {"extra": {"revision": "r" * 4097}}),
        (
            "vLLM counts items instead of hashing them",
            {"model_config__multimodal_config__mm_processor_cache_gb": 0, "cache_config__enable_prefix_caching": False},
        ),
        ("the model takes text alone", {"model_config__multimodal_config": None}),
        ("encoder-decoder", {"model_config__is_encoder_decoder": True}),
        (
            "16 tensor-parallel workers on 2 hosts",
            {
                "parallel_config__nnodes_within_dp": 2,
                "parallel_config__tensor_parallel_size": 16,
                "parallel_config__local_world_size": 8,
            },
        ),
        ("LoRA", {"lora_config": types.SimpleNamespace(enable_tower_connector_lora=True)}),
    ]
    for text, changes in cases:
        for make in (scheduler, worker):
            try:
                make(config(**changes))
            except ValueError as e:
                assert text in str(e), (text, str(e))
            else:
                raise AssertionError(text)
    for changes in (
        {"model_config__multimodal_config__mm_processor_cache_gb": 0},
        {"cache_config__enable_prefix_caching": False},
        {
            "parallel_config__nnodes_within_dp": 2,
            "parallel_config__tensor_parallel_size": 8,
            "parallel_config__local_world_size": 8,
        },
        {"extra": {"wait": 0, "lease": 10, "pin": "off", "tenant": "t", "space": "s", "revision": "r"}},
    ):
        scheduler(config(**changes)).shutdown()


def options_go_where_they_belong() -> None:
    with a_daemon() as daemon:
        extra = {"space": "mine", "tenant": "me", "lease": 33}
        made = config(daemon, "ec_both" if IS_NEW else "ec_producer", extra=extra)
        run(worker(made), schedule(scheduler(made), Request("1", "a")), outputs("a"), consumes=False)
        by_op = {call["op"]: call for call in daemon.calls}
        assert "fingerprint" not in by_op["hello"]
        assert by_op["pin"]["space"] == "mine"
        assert by_op["pin"]["seconds"] == 33
        assert by_op["reserve"]["space"] == "mine"
        assert by_op["reserve"]["objects"][0]["tenant"] == "me"


def fingerprints_tell_models_apart() -> None:
    def of(made: Any, **options: Any) -> Any:
        return _options.fingerprint(made, _options.Options(**options), VERSION)

    one = of(config())
    assert one == of(config())
    assert (one.model, one.revision, one.dtype, one.layout) == ("some/model", "c0ffee", "float32", "tokens 8")
    assert one.engine == VERSION
    others = [
        of(config(model="other/model")),
        of(config(model_config__dtype=torch.bfloat16)),
        of(config(model_config__hf_config=types.SimpleNamespace(_commit_hash="bad"))),
        of(config(model_config__quantization="fp8")),
        of(config(model_config__multimodal_config__video_pruning_rate=0.5)),
        of(config(model_config__multimodal_config__mm_encoder_attn_dtype="fp8")),
        of(config(model_config__hf_overrides={"a": 1})),
        of(config(load_config__load_format="dummy")),
        of(config(), revision="r"),
    ]
    assert len({*others, one}) == len(others) + 1
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as copy:
        _fingerprints_of_folders(pathlib.Path(folder), pathlib.Path(copy))


def fingerprints_tell_revisions_of_mistrals_form_apart() -> None:
    import huggingface_hub.constants as hub  # type: ignore[import-not-found, unused-ignore]

    def revision(**changes: Any) -> str:
        made = config(model_config__hf_config=types.SimpleNamespace(_commit_hash=None), **changes)
        return _options.fingerprint(made, _options.Options(), VERSION).revision

    cache = hub.HF_HUB_CACHE
    with tempfile.TemporaryDirectory() as folder:
        model = pathlib.Path(folder, "models--some--model")
        (model / "refs").mkdir(parents=True)
        hub.HF_HUB_CACHE = folder
        try:
            assert revision() == ""
            for commit in ("c0ffee", "decade"):
                (model / "refs" / "main").write_text(commit)
                (model / "snapshots" / commit).mkdir(parents=True)
                (model / "snapshots" / commit / "params.json").touch()
                assert revision() == commit
            assert revision(model_config__revision="c0ffee") == "c0ffee"
            assert revision(model="no repository / at all") == ""
        finally:
            hub.HF_HUB_CACHE = cache
        one = _options.weights_digest(model / "snapshots" / "decade")
        (model / "snapshots" / "decade" / "params.json").write_bytes(b"{}")
        assert _options.weights_digest(model / "snapshots" / "decade") != one


def _fingerprints_of_folders(folder: pathlib.Path, copy: pathlib.Path) -> None:
    def write(values: bytes, **changes: bytes) -> str:
        header = json.dumps(
            {
                "__metadata__": {"format": "pt"},
                "w": {"dtype": "U8", "shape": [5000], "data_offsets": [0, 5000]},
                "v": {"dtype": "U8", "shape": [8], "data_offsets": [5000, 5008]},
                "empty": {"dtype": "U8", "shape": [0], "data_offsets": [5008, 5008]},
            }
        ).encode()
        for name, data in {
            "config.json": b"{}",
            "preprocessor_config.json": b"{}",
            "tokenizer.json": b"{}",
            "model.safetensors": len(header).to_bytes(8, "little") + header + values,
            **{key.replace("_DOT_", "."): data for key, data in changes.items()},
        }.items():
            (folder / name).write_bytes(data)
        return _options.weights_digest(folder)

    zeros = bytes(5008)
    one = write(zeros)
    assert write(zeros) == one
    shutil.copytree(folder, copy, dirs_exist_ok=True)
    assert _options.weights_digest(copy) == one, "copies are the same"
    changed = bytearray(zeros)
    changed[2500] = 1
    assert write(bytes(changed)) != one, "a tensor that was trained on"
    changed = bytearray(zeros)
    changed[5004] = 1
    assert write(bytes(changed)) != one
    assert write(zeros, config_DOT_json=b"[]") != one
    assert write(zeros, preprocessor_config_DOT_json=b"[]") != one
    assert write(zeros, tokenizer_DOT_json=b"[]") == one
    assert write(zeros, other_DOT_safetensors=b"") != one
    (folder / "other.safetensors").unlink()
    for torn in (b"", b"\xff" * 8, b"\xff" * 7 + b"\0", (4).to_bytes(8, "little") + b"{}{}",
        (2).to_bytes(8, "little") + b"[]"):
        (folder / "model.safetensors").write_bytes(torn)
        assert len(_options.weights_digest(folder)) == 32
    (folder / "model.safetensors").unlink()
    (folder / "model.bin").write_bytes(bytes(200_000))
    binary = _options.weights_digest(folder)
    (folder / "model.bin").write_bytes(bytes(199_999) + b"\1")
    assert _options.weights_digest(folder) != binary


def counts_reach_the_log_and_prometheus() -> None:
    if not (FOLDER / "distributed/ec_transfer/ec_connector/metrics.py").exists():
        assert worker(config()).get_ec_connector_stats() is None
        return
    from prometheus_client import (  # type: ignore[import-not-found, unused-ignore]
        CollectorRegistry,
        Counter,
        Gauge,
        Histogram,
        generate_latest,
    )

    with a_daemon() as daemon:
        made = config(daemon)
        s, w = scheduler(made), worker(made)
        assert s.get_ec_connector_stats() is None
        run(w, schedule(s, Request("1", "a")), outputs("a"))
        run(w, schedule(s, Request("2", "a")), {})
        of_scheduler = s.get_ec_connector_stats()
        assert s.get_ec_connector_stats() is None
        assert w.get_ec_connector_stats() is None
        of_worker = encoder.EncoderCacheConnector.build_ec_connector_stats(
            {"saves": 1, "saved_bytes": 128, "loaded_bytes": 128}
        )
        pickle.loads(pickle.dumps(of_worker))
        payload = dict(of_worker.data)
        accumulated = encoder.EncoderCacheConnector.build_ec_connector_stats(payload)
        accumulated.aggregate(of_scheduler)
        assert payload == of_worker.data, "another logger of vLLM has the same payload"
        merged = of_worker.aggregate(of_scheduler)
        assert merged.data == {
            "misses": 1, "hits": 1, "saves": 1, "saved_bytes": 128, "loaded_bytes": 128
        }
        connector = encoder.EncoderCacheConnector
        assert connector.build_ec_connector_stats(merged.data).reduce() == merged.data
        assert connector.build_ec_connector_stats().is_empty()
        registry = CollectorRegistry()

        def counter(**options: Any) -> Any:
            return Counter(registry=registry, **options)

        metrics = connector.build_prom_metrics(
            made, {Counter: counter, Gauge: Gauge, Histogram: Histogram}, ["engine"], {0: ["0"]}
        )
        metrics.observe(merged.data, 0)
        metrics.observe({"hits": 2, "of a later release": 1}, 0)
        text = generate_latest(registry).decode()
        assert 'vllm:ringcache_encoder_hits_total{engine="0"} 3.0' in text, text


def counts_of_workers_reach_the_scheduler() -> None:
    """Runners of vLLM's first kind never ask a worker for its counts."""
    if not (FOLDER / "distributed/ec_transfer/ec_connector/metrics.py").exists():
        return
    with a_daemon() as daemon:
        made = config(daemon)
        s, workers = scheduler(made), []
        for ranks in ((0, True), (1, True)):
            RANKS["tensor"], RANKS["first"] = ranks
            workers.append(worker(made))
            workers[-1]._working()
        RANKS["tensor"], RANKS["first"] = 0, True

        def step(request: Request, made: dict[str, Any]) -> dict[str, int]:
            """Of an engine with two workers; what it counts."""
            metadata = schedule(s, request)
            reports = [run(w, metadata, made)[1] for w in workers]
            merged = None
            for report in filter(None, reversed(reports)):
                merged = report if merged is None else merged.aggregate(report)
            if merged is not None:
                s.update_connector_output(types.SimpleNamespace(ec_connector_worker_meta=merged))
            counts = s.get_ec_connector_stats()
            return dict(counts.data) if counts else {}

        saved = step(Request("1", "a", "b"), outputs("a", "b"))
        assert saved == {"misses": 2, "saves": 2, "saved_bytes": 256}, saved
        loaded = step(Request("2", "a", "b"), {})
        assert loaded == {"hits": 2, "loaded_bytes": 256}, loaded
        assert step(Request("3"), {}) == {}
        assert step(Request("4"), outputs("a")) == {"skipped": 1}
        # A runner of the second kind asks each worker, before it asks for the report.
        metadata = schedule(s, Request("5", "c"))
        workers[0].bind_connector_metadata(metadata)
        workers[0].save_caches(encoder_cache=outputs("c"), mm_hash="c")
        asked = workers[0].get_ec_connector_stats()
        report = workers[0].build_connector_worker_meta()
        s.update_connector_output(types.SimpleNamespace(ec_connector_worker_meta=report))
        total = s.get_ec_connector_stats()
        if asked is not None:
            total = asked.aggregate(total)
        assert total.data == {"misses": 1, "saves": 1, "saved_bytes": 128}, total.data


@contextmanager
def the_log(level: int = logging.WARNING) -> Iterator[list[str]]:
    """What an operator sees."""
    said: list[str] = []
    handler = logging.Handler(level)
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    log = logging.getLogger("vllm.ringcache")
    before = log.level
    log.addHandler(handler)
    log.setLevel(level)
    try:
        yield said
    finally:
        log.removeHandler(handler)
        log.setLevel(before)


def _shares(said: list[str]) -> bool:
    return any("shares encoder outputs" in line or "are shared again" in line for line in said)


def a_worker_that_stores_nothing_says_nothing_of_the_daemon() -> None:
    """It never says more of it: the scheduler does."""
    with the_log(logging.INFO) as said:
        for ranks, role in (
            ((0, True), "ec_consumer"), ((1, True), "ec_producer"), ((0, False), "ec_producer")
        ):
            RANKS["tensor"], RANKS["first"] = ranks
            w = worker(config(None, role))
            w._working().start()
            assert w._worker._link._thread is None
            w.shutdown()
        RANKS["tensor"], RANKS["first"] = 0, True
    assert said == [], said


def a_worker_that_cannot_map_the_segment_shares_nothing() -> None:
    from ringcache.vllm import _link

    every, _link._EVERY = _link._EVERY, 0.001  # type: ignore[misc]
    try:
        with the_log(logging.INFO) as said, a_daemon() as daemon:
            inode, daemon.inode = daemon.inode, daemon.inode + 1
            w = worker(config(daemon, "ec_producer"))
            w._working().start()
            run(w, encoder.StepMetadata(0), outputs("a", "b"), consumes=False)
            assert not daemon.objects
            assert "can't be mapped by this worker" in said[0], said
            assert not _shares(said), said
            daemon.stop()
            daemon.inode = inode
            daemon.start()
            end = time.monotonic() + 300
            while not _shares(said):
                assert time.monotonic() < end
                time.sleep(0.005)
            w._client._retry_at = 0
            run(w, encoder.StepMetadata(0), outputs("c"), consumes=False)
            assert set(daemon.objects) == {"c"}
            w.shutdown()
            assert daemon.held() == set()
    finally:
        _link._EVERY = every  # type: ignore[misc]


def a_daemon_that_goes_and_comes_is_a_line_each() -> None:
    """Of a worker, whose every save says the same."""
    with the_log() as said:
        with a_daemon() as daemon:
            w = worker(config(daemon, "ec_producer"))
            for name in ("a", "b"):
                run(w, encoder.StepMetadata(0), outputs(name), consumes=False)
            daemon.stop()
            for name in ("c", "d"):
                w._client._retry_at = 0
                run(w, encoder.StepMetadata(0), outputs(name), consumes=False)
            daemon.start()
            for name in ("e", "f"):
                w._client._retry_at = 0
                run(w, encoder.StepMetadata(0), outputs(name), consumes=False)
            assert set(daemon.objects) == {"a", "b", "e", "f"}
            w.shutdown()
    assert len(said) == 2, said
    away, again = said
    assert away.startswith("Encoder outputs are not shared for now, outputs are not stored: the daemon at"), said
    assert again.startswith("Encoder outputs are shared again, after "), said


CASES: list[Callable[[], None]] = [
    every_hook_of_the_base_class_is_known_and_fits,
    every_field_of_the_configuration_is_known,
    loaded_by_the_factory,
    one_engine_stores_and_another_loads,
    all_ranks_load_and_the_first_saves,
    dtypes_and_odd_tensors_are_kept,
    what_cannot_be_stored_is_skipped,
    room_of_another_size_is_not_written,
    what_waits_to_be_saved_holds_little_of_the_device,
    what_the_engine_has_is_not_loaded,
    a_lost_answer_leaves_no_reservation,
    a_lost_answer_and_a_second_try_leave_no_reservation,
    saving_never_raises_and_nothing_grows,
    nobody_sees_bytes_before_they_are_written,
    nothing_is_written_after_the_time_of_its_room,
    a_worker_loads_without_the_daemon,
    a_worker_loads_from_a_segment_that_was_replaced,
    what_is_gone_is_asked_for_by_name,
    an_answer_is_of_its_own_segment_whatever_another_thread_meets,
    what_is_gone_everywhere_ends_the_step_with_a_reason,
    a_daemon_that_is_away_stops_nothing,
    a_daemon_that_comes_later_is_used,
    an_encode_only_engine_does_not_encode_what_is_there,
    old_releases_take_both_for_producer,
    a_release_without_waiting_takes_what_is_in_memory,
    configurations_that_cannot_work_are_refused,
    options_go_where_they_belong,
    fingerprints_tell_models_apart,
    fingerprints_tell_revisions_of_mistrals_form_apart,
    counts_reach_the_log_and_prometheus,
    counts_of_workers_reach_the_scheduler,
    a_worker_that_stores_nothing_says_nothing_of_the_daemon,
    a_worker_that_cannot_map_the_segment_shares_nothing,
    a_daemon_that_goes_and_comes_is_a_line_each,
]


def main() -> None:
    ended = {}
    for case in CASES:
        try:
            case()
            ended[case.__name__] = ""
        except Exception:
            ended[case.__name__] = traceback.format_exc()
        while CONNECTORS:
            CONNECTORS.pop().shutdown()
    print(json.dumps({"base": inspect.getfile(base), "cases": ended}))


if __name__ == "__main__":
    main()

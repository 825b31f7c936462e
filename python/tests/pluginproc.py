"""What tests/test_plugin.py checks, in a process with vLLM: its writer, its receiver and ours on one ring.

    pluginproc.py LIBRARY

LIBRARY is the fake driver. Prints a JSON object, from each case to nothing or to how it failed.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import logging
import multiprocessing
import os
import pathlib
import sys
import traceback
import types
import uuid
from collections.abc import Callable, Iterator
from typing import Any

NAME = os.environ["VLLM_OBJECT_STORAGE_SHM_BUFFER_NAME"] = f"ringcache-test-{uuid.uuid4()}"
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python" / "src"), str(ROOT / "interop" / "e2e")]

import torch  # noqa: E402
import vllm  # noqa: E402
from vllm.multimodal import inputs  # noqa: E402
from vllm.multimodal.cache import shm  # noqa: E402

import pin_probe  # noqa: E402
import ringcache.vllm as plugin  # noqa: E402

RING, READERS = 1 << 20, 2
RECEIVER = shm.ShmObjectStoreReceiverCache
STOCK_INIT, STOCK_REDUCE = RECEIVER.__init__, inputs.BaseMultiModalField.reduce_data
SIGNED = vllm.__version__ != "0.31.0"

cases: dict[str, Callable[[], None]] = {}


def case(check: Callable[[], None]) -> Callable[[], None]:
    cases[check.__name__] = check
    return check


class Inapplicable(Exception):
    """Why a release has nothing that the case could check."""


class Records(logging.Handler):
    """What the plugin logs."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.found.append(record)

    def texts(self, level: int) -> list[str]:
        return [r.getMessage() for r in self.found if r.levelno == level]


@contextlib.contextmanager
def logged() -> Iterator[Records]:
    handler, logger = Records(), logging.getLogger("vllm.ringcache")
    logger.addHandler(handler)
    try:
        yield handler
    finally:
        logger.removeHandler(handler)


def config() -> Any:
    mm = types.SimpleNamespace(
        mm_processor_cache_gb=RING / (1 << 30),
        mm_processor_cache_type="shm",
        mm_shm_cache_max_object_size_mb=1,
    )
    return types.SimpleNamespace(
        parallel_config=types.SimpleNamespace(world_size=READERS),
        model_config=types.SimpleNamespace(get_multimodal_config=lambda: mm),
    )


class Ring:
    """vLLM's writer, its receiver and ours."""

    def __init__(self, protected: bool | None = None) -> None:
        self.writer = shm.ShmObjectStoreSenderCache(config())
        lock = multiprocessing.Lock()
        self.stock = object.__new__(RECEIVER)
        STOCK_INIT(self.stock, config(), lock)
        pinned: Any = importlib.import_module("ringcache.vllm.pinned")
        reader = pinned.Reader
        if protected if protected is not None else not SIGNED:
            # The writer of this release is none that a late count suits, see _decide.
            pinned.Reader = type("Protected", (reader,), {"protected": True})
        try:
            self.ours = RECEIVER(config(), lock)
        finally:
            pinned.Reader = reader
        self.storage: Any = self.ours._shm_cache

    def send(self, key: str, item: Any) -> Any:
        """What goes to workers: an address item, or the item itself where the ring has no room."""
        self.writer.touch_sender_cache_item(key)
        wire, _ = self.writer.get_and_update_item(None if self.writer.is_cached_item(key) else (item, []), key)
        if hasattr(self.writer, "release_sender_touches"):
            self.writer.release_sender_touches()
        return wire

    def read(self, receiver: Any, key: str, wire: Any) -> Any:
        receiver.touch_receiver_cache_item(key, wire)
        return receiver.get_and_update_item(wire, key)

    def count(self, wire: Any) -> int:
        ring = self.stock._shm_cache.ring_buffer
        with ring.access_buf(wire["address"].data) as (data, _):
            return int.from_bytes(data[:4], "little")

    def close(self) -> None:
        gc.collect()
        if hasattr(self.storage, "_reader"):
            self.storage.close()
        self.stock._shm_cache.close()
        self.writer.close()


@contextlib.contextmanager
def ring(**options: Any) -> Iterator[Ring]:
    made = Ring(**options)
    try:
        yield made
    finally:
        made.close()


def batched(data: Any, **options: Any) -> Any:
    return inputs.MultiModalFieldElem(data, inputs.MultiModalBatchedField(**options))


def item(seed: int, rows: int = 100) -> Any:
    torch.manual_seed(seed)
    return inputs.MultiModalKwargsItem({"pixel_values": batched(torch.rand(rows, 32))})


def every() -> Iterator[tuple[str, Any]]:
    """Items of all kinds of field, dtype and nesting."""
    flat, shared = inputs.MultiModalFlatField, inputs.MultiModalSharedField
    for name in (
        "bool uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64 complex64 float8_e4m3fn "
        "uint16 uint32 uint64"
    ).split():
        raw = torch.arange(24 * 64, dtype=torch.int32).to(torch.uint8)
        dtype = getattr(torch, name)
        large = (raw % 2 == 0) if name == "bool" else raw.view(dtype)
        small = large[:8]
        yield name, inputs.MultiModalKwargsItem(
            {
                "large": batched(large.reshape(3, -1)),
                "small": batched(small.clone()),
                "none": batched(torch.empty((0, 3), dtype=dtype)),
                "kept": batched(large.reshape(-1, 4), keep_on_cpu=True),
                "scalar": batched(large.reshape(-1)[0].clone()),
            }
        )
    big = torch.rand(20, 30)
    yield (
        "fields",
        inputs.MultiModalKwargsItem(
            {
                "z first": batched(big),
                "flat": inputs.MultiModalFieldElem(big + 1, flat(slices=[slice(0, 3), slice(3, 9, 2)])),
                "flat of two": inputs.MultiModalFieldElem(
                    big + 2, flat(slices=[[slice(None), slice(0, 3)], [slice(None), slice(3, None)]], dim=1)
                ),
                "flat kept": inputs.MultiModalFieldElem(big + 3, flat(slices=[slice(0, 1)], keep_on_cpu=True)),
                "shared": inputs.MultiModalFieldElem(big + 4, shared(batch_size=7)),
                "a shared scalar": inputs.MultiModalFieldElem(5, shared(batch_size=3, keep_on_cpu=True)),
                "int": batched(-7),
                "float": batched(2.5),
                "nothing": batched([]),
                "numbers": batched([1, 2.0, [3, [4, []]]]),
                "lists": batched([big + 5, [torch.arange(3), [big + 6, 8]], big[:0]]),
            }
        ),
    )


def tensors(data: Any) -> Iterator[Any]:
    if isinstance(data, list):
        for inner in data:
            yield from tensors(inner)
    elif isinstance(data, torch.Tensor):
        yield data


def same(want: Any, got: Any, place: str = "") -> None:
    assert type(want) is type(got), (place, type(want), type(got))
    if isinstance(want, torch.Tensor):
        assert (want.dtype, want.shape, want.device) == (got.dtype, got.shape, got.device), (place, got)
        assert want.stride() == got.stride() and not got.requires_grad, place
        assert pin_probe.raw(want).equal(pin_probe.raw(got)), place
    elif isinstance(want, list):
        assert len(want) == len(got), place
        for i, inner in enumerate(want):
            same(inner, got[i], f"{place}.{i}")
    else:
        assert want == got, (place, want, got)


def same_item(want: Any, got: Any) -> None:
    assert type(want) is type(got) and list(want) == list(got), (list(want), list(got))
    for key, element in want.items():
        assert type(element) is type(got[key])
        assert type(element.field) is type(got[key].field) and element.field == got[key].field, (key, got[key].field)
        same(element.data, got[key].data, key)


def inside(tensor: Any) -> bool:
    return bool(pin_probe.in_ring(tensor, pin_probe.ring()))


def unchanged() -> None:
    assert RECEIVER.__init__ is STOCK_INIT and inputs.BaseMultiModalField.reduce_data is STOCK_REDUCE


def refused(*words: str) -> None:
    """Registering changes nothing, and logs one error with the words."""
    with logged() as log:
        plugin.register()
    unchanged()
    errors = log.texts(logging.ERROR)
    assert len(log.found) == len(errors) == 1 and all(w in errors[0] for w in words), log.found


@case
def off_without_the_variable() -> None:
    for value in (None, "", "0"):
        os.environ.pop(plugin.VARIABLE, None)
        if value is not None:
            os.environ[plugin.VARIABLE] = value
        with logged() as log:
            plugin.register()
        assert not log.found
        assert "ringcache.vllm.pinned" not in sys.modules
        unchanged()


@case
def another_value_is_refused() -> None:
    os.environ[plugin.VARIABLE] = "yes"
    refused("RINGCACHE_VLLM_PIN must be 0 or 1, got 'yes'")


@case
def another_release_is_refused() -> None:
    os.environ[plugin.VARIABLE] = "1"
    real = vllm.__version__
    for version in ("0.30.0", "0.99.0", "0.32.1rc1", "dev", ""):
        vllm.__version__ = version
        try:
            refused("this release is not known", f"vLLM {version}", "0.31.0, 0.32.0, 0.33.0")
        finally:
            vllm.__version__ = real
    assert "ringcache.vllm.pinned" not in sys.modules


@case
def another_shape_is_refused() -> None:
    storage = importlib.import_module("vllm.distributed.device_communicators.shm_object_storage")
    stock = storage.SingleWriterShmObjectStorage
    field = inputs.MultiModalBatchedField
    for owner, name, other, words in (
        (stock, "get", lambda self, place: None, "SingleWriterShmObjectStorage.get has other parameters"),
        (stock, "touch", None, "SingleWriterShmObjectStorage has no touch"),
        (RECEIVER, "get_and_update_item", lambda self, a, b, c: None, "get_and_update_item has other parameters"),
        (field, "reduce_data", STOCK_REDUCE, "MultiModalBatchedField has a reduce_data of its own"),
    ):
        had = vars(owner).get(name)
        setattr(owner, name, other)
        try:
            refused(words, "known releases: 0.31.0, 0.32.0, 0.33.0")
        finally:
            if had is None:
                delattr(owner, name)
            else:
                setattr(owner, name, had)


@case
def installed_once() -> None:
    with logged() as log:
        plugin.register()
        patched = RECEIVER.__init__, inputs.BaseMultiModalField.reduce_data
        assert patched[0] is not STOCK_INIT and patched[1] is not STOCK_REDUCE
        plugin.register()
        assert patched == (RECEIVER.__init__, inputs.BaseMultiModalField.reduce_data)
    assert not log.found


@case
def falls_back_without_a_driver() -> None:
    before = plugin.statistics().copied
    with ring() as r, logged() as log:
        n = 0
        for key, sent in every():
            wire = r.send(key, sent)
            same_item(r.read(r.stock, key, wire), got := r.read(r.ours, key, wire))
            assert not any(inside(t) for e in got.values() for t in tensors(e.data))
            assert r.count(wire) == READERS  # at once, with the item alive
            n += 1
        warnings = log.texts(logging.WARNING)
        assert len(warnings) == 1 and "copies objects as without the plugin" in warnings[0], warnings
        assert plugin.statistics().copied == before + n


@case
def copies_go_to_the_device_of_the_driver_only() -> None:
    from ringcache.vllm import pinned

    device = pinned.Device()
    taken = [d for d in ("cpu", "cuda:0", "cuda:1", "meta", "xpu:1") if device.takes(d, 1)]
    assert taken == ["cuda:1"], taken
    assert not device.expected()  # this vLLM is one for CPUs


@case
def falls_back_without_room_for_all_pages() -> None:
    pinned: Any = importlib.import_module("ringcache.vllm.pinned")
    from ringcache import Segment, SegmentError

    def full(self: Segment) -> None:
        raise SegmentError("/dev/shm is full")

    populate, Segment.populate = Segment.populate, full  # type: ignore[method-assign]
    pinned.device_type = type("Expected", (pinned.Device,), {"expected": lambda self: True})
    try:
        with logged() as log, ring() as r:
            wire = r.send("k", item(1))
            same_item(item(1), r.read(r.ours, "k", wire))
            same_item(item(1), r.read(r.ours, "k", wire))
        warnings = log.texts(logging.WARNING)
        assert len(warnings) == 1 and "/dev/shm is full" in warnings[0], warnings
    finally:
        Segment.populate, pinned.device_type = populate, pinned.Device  # type: ignore[method-assign]


@case
def late_counts_are_refused_where_touches_count() -> None:
    with_fake_device()
    with ring(protected=False) as r, logged() as log:
        wire = r.send("k", item(1))
        got = r.read(r.ours, "k", wire)
        assert inside(got["pixel_values"].data) is SIGNED
        assert any("count at once" in w for w in log.texts(logging.WARNING)) is not SIGNED
        del got


def with_fake_device() -> None:
    from ringcache.vllm import pinned

    os.environ["RINGCACHE_CUDA_LIBRARY"] = sys.argv[1]
    pinned.device_type = pin_probe.fake_device
    for field in inputs.BaseMultiModalField.__subclasses__():
        field._reduce_data = pin_probe.joined(field._reduce_data)  # waits for copies as kernels do


def late_counts_suit() -> None:
    if not SIGNED:
        raise Inapplicable("objects of a writer without slots are not read in place in this release")


def unprotected(check: Callable[[Ring], None]) -> Callable[[], None]:
    """A case with a writer that has no slots for readers, where late counts suit the release."""

    def run() -> None:
        late_counts_suit()
        with ring(protected=False) as r:
            check(r)

    run.__name__ = check.__name__
    cases[run.__name__] = run
    return run


@case
def decodes_as_stock() -> None:
    with ring() as r, logged() as log:
        before = plugin.statistics().in_place
        for n, (key, sent) in enumerate(every(), 1):
            wire = r.send(key, sent)
            same_item(r.read(r.stock, key, wire), got := r.read(r.ours, key, wire))
            for name, element in got.items():
                for t in tensors(element.data):
                    assert inside(t) is (t.nbytes >= 256 and not element.field.keep_on_cpu), (key, name)
            assert plugin.statistics().in_place == before + n
            del got, element, t
        assert not log.found, log.texts(logging.WARNING)


@case
def batches_as_stock() -> None:
    with ring() as r:
        small, large, other = torch.rand(1, 32), torch.rand(9, 32), torch.rand(9, 32)
        flat, shared = inputs.MultiModalFlatField, inputs.MultiModalSharedField
        kinds: dict[str, tuple[Any, list[Any]]] = {
            "one": (inputs.MultiModalBatchedField(), [large]),
            "stacked": (inputs.MultiModalBatchedField(), [large, other]),
            "of two sizes": (inputs.MultiModalBatchedField(), [large, small]),
            "kept": (inputs.MultiModalBatchedField(keep_on_cpu=True), [large, other]),
            "joined": (flat(slices=[slice(0, 9)]), [large, small, other]),
            "joined across": (flat(slices=[[slice(None), slice(0, 32)]], dim=1), [large, other]),
            "padded": (flat(slices=[slice(0, 9)], dim=1), [large, small]),
            "nested": (flat(slices=[slice(0, 9)]), [[large, [small, 3]], [other, other]]),
            "shared": (shared(batch_size=2), [large, large]),
            "numbers": (inputs.MultiModalBatchedField(), [1, 2.5]),
        }
        for kind, (field, values) in kinds.items():
            for device in ("cpu", None):
                def elements(receiver: Any) -> Any:
                    read = []
                    for i, value in enumerate(values):
                        key = f"{kind}{i}{device}{receiver is r.stock}"
                        sent = inputs.MultiModalKwargsItem({"x": inputs.MultiModalFieldElem(value, field)})
                        read.append(r.read(receiver, key, r.send(key, sent))["x"])
                    return read

                want = STOCK_REDUCE(field, elements(r.stock), device=device)
                before = plugin.statistics().device_copies
                got = field.reduce_data(ours := elements(r.ours), device=device)
                assert r.storage._staging is not None
                same(want, got, f"{kind} {device}")
                assert not any(inside(t) for t in tensors(got)), (kind, device)  # private, or on the device
                used = ours[:1] if kind == "shared" else ours  # the same data for all
                large_ones = [t for e in used for t in tensors(e.data) if inside(t)]
                copies = plugin.statistics().device_copies - before
                assert copies == (len(large_ones) if device else 0), (kind, device, copies)
                assert bool(large_ones) is (kind not in ("kept", "numbers"))
                del got, ours, used, large_ones


@unprotected
def a_lease_ends_with_the_last_tensor(r: Ring) -> None:
    torch.manual_seed(0)
    two = inputs.MultiModalKwargsItem({"a": batched(torch.rand(64)), "b": batched([torch.rand(65), 1])})
    wire = r.send("k", two)
    got = r.read(r.ours, "k", wire)
    row = got["a"].data[3:]  # a view is as good as the whole
    del got["a"], got["b"]
    r.storage.clear()
    assert r.count(wire) == 0
    assert row.equal(two["a"].data[3:])
    del row
    r.storage.clear()
    assert r.count(wire) == 1
    assert not r.storage._held


@unprotected
def a_lease_ends_after_its_copies(r: Ring) -> None:
    library = pin_probe.device.library
    wire = r.send("k", item(3))
    got = r.read(r.ours, "k", wire)
    library.fake_hold(1)
    try:
        moved = r.storage.moved([got["pixel_values"]], "cpu")[0].data
        del got
        r.storage.clear()
        assert not r.storage._held and r.count(wire) == 0, "counted before its copy was done"
        assert not moved.equal(item(3)["pixel_values"].data)
    finally:
        library.fake_hold(0)
    r.storage._staging.drain()
    assert r.count(wire) == 1 and moved.equal(item(3)["pixel_values"].data)


@case
def the_writer_goes_on_beside_a_long_request() -> None:
    """And without spilling it does not, which is what the check is worth."""
    late_counts_suit()
    for spills in (True, False):
        with ring(protected=False) as r:
            if not spills:
                r.storage._make_room = lambda address, id: None
            before, blocked = plugin.statistics().spilled, 0
            kept: Any = None
            for n in range(300):  # 3.8 MB through 1 MiB
                key = f"{spills}{n}"
                wire = r.send(key, item(n))
                if "address" not in wire:
                    blocked += 1
                    continue
                r.read(r.stock, key, wire)
                got = r.read(r.ours, key, wire)
                assert inside(got["pixel_values"].data)
                kept = got if kept is None else kept
                same_item(item(n), got)
                del got
            same_item(item(0), kept)
            if spills:
                assert blocked == 0 and plugin.statistics().spilled == before + 1
                assert not inside(kept["pixel_values"].data)
            else:
                assert blocked > 100 and plugin.statistics().spilled == before
            del kept


@unprotected
def a_spilled_tensor_that_is_viewed_keeps_its_lease(r: Ring) -> None:
    wire = r.send("k", item(5))
    got = r.read(r.ours, "k", wire)
    row = got["pixel_values"].data[1:]
    (held,) = set(r.storage._held.values())
    r.storage._spill(held)
    r.storage.clear()
    assert not inside(got["pixel_values"].data) and inside(row)
    assert r.count(wire) == 0
    del row, held
    r.storage.clear()
    assert r.count(wire) == 1
    same_item(item(5), got)


@case
def a_slot_without_room_is_made_room_in() -> None:
    from ringcache import SegmentBusyError

    with ring() as r:
        wire = r.send("k", item(5))
        got = r.read(r.ours, "k", wire)
        get, calls = r.storage._staging.get, []

        def busy(*arguments: Any) -> Any:
            calls.append(arguments)
            if len(calls) == 1:
                raise SegmentBusyError("no room")
            return get(*arguments)

        r.storage._staging.get = busy
        again = r.read(r.ours, "k", wire)
        assert len(calls) == 2
        assert inside(again["pixel_values"].data) and not inside(got["pixel_values"].data)
        same_item(item(5), again)
        same_item(item(5), got)
        del again
        del r.storage._staging.get


@case
def wrong_handles_fail_as_stock() -> None:
    with ring() as r:
        wire = r.send("k", item(6))
        r.read(r.ours, "k", wire)  # decides
        r.storage.clear()
        before = r.count(wire)
        other = r.send("other", item(7))

        def changed(**changes: Any) -> Any:
            return inputs.MultiModalKwargsItem({**wire, **{k: batched(v) for k, v in changes.items()}})

        def signed(key: str, address: int, id: int) -> dict[str, Any]:
            if not SIGNED:
                return {}
            return {"signature": list(r.stock._shm_cache._make_signature(key, address, id))}

        address = wire["address"].data
        wrongs = {"id": changed(monotonic_id=77, **signed("k", address, 77))}
        if SIGNED:
            wrongs["signature"] = changed(signature=other["signature"].data)
            wrongs["form"] = changed(signature=[1, 2])
            wrongs["missing"] = inputs.MultiModalKwargsItem({k: wire[k] for k in ("address", "monotonic_id")})
        for name, wrong in wrongs.items():
            texts = []
            for receiver in (r.stock, r.ours):
                try:
                    receiver.get_and_update_item(wrong, "k")
                except ValueError as e:
                    texts.append(str(e))
            assert len(texts) == 2 and texts[0] == texts[1], (name, texts)
            assert name != "id" or "has been modified or is invalid" in texts[0]
        assert r.count(wire) == before


@case
def a_reader_that_cannot_attach_leaves_stock() -> None:
    path = pathlib.Path("/dev/shm", NAME)
    pinned: Any = importlib.import_module("ringcache.vllm.pinned")
    reader = pinned.Reader

    def open_to_all(*arguments: Any, **options: Any) -> Any:
        path.chmod(0o666)
        return reader(*arguments, **options)

    pinned.Reader = open_to_all
    try:
        with logged() as log:
            writer = shm.ShmObjectStoreSenderCache(config())
            ours = RECEIVER(config(), multiprocessing.Lock())
        errors = log.texts(logging.ERROR)
        assert len(errors) == 1 and "writable by every user" in errors[0], errors
        assert type(ours._shm_cache).__name__ == "SingleWriterShmObjectStorage"
        wire, _ = writer.get_and_update_item((item(1), []), "k")
        same_item(item(1), ours.get_and_update_item(wire, "k"))
        ours._shm_cache.close()
        writer.close()
    finally:
        pinned.Reader = reader


@case
def everything_is_given_back() -> None:
    with ring() as r, logged() as log:
        got = r.read(r.ours, "k", r.send("k", item(8)))
        library = pin_probe.device.library
        assert library.fake_live() == 1
        r.storage.close()  # with an item alive, as at the end of a process
        assert library.fake_live() == 0
        assert any("1 copied" in t or "read in place" in t for t in log.texts(logging.INFO)), log.found
        same_item(item(8), got)
        del got
        for device in devices:
            device.close()
        devices.clear()
        assert library.fake_contexts() == 0 and library.fake_events() == 0 and library.fake_violations() == 0


devices: list[Any] = []


def main() -> None:
    make = pin_probe.fake_device

    def made() -> Any:
        devices.append(make())
        return devices[-1]

    pin_probe.fake_device = made
    logging.getLogger("vllm.ringcache").setLevel(logging.INFO)
    results = {}
    try:
        for name, check in cases.items():
            try:
                check()
                results[name] = ""
            except Inapplicable as e:
                results[name] = f"inapplicable: {e}"
            except Exception:
                results[name] = traceback.format_exc()
            print(name, results[name] or "ok", file=sys.stderr, flush=True)
    finally:
        pathlib.Path("/dev/shm", NAME).unlink(missing_ok=True)
    print(json.dumps({"version": vllm.__version__, "cases": results}))


if __name__ == "__main__":
    main()

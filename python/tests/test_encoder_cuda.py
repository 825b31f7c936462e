"""The worker's half of the encoder connector with a GPU. Skipped without torch and one."""

from __future__ import annotations

import importlib.util
import pathlib
import time
from collections.abc import Iterator
from typing import Any

import pytest
from standin import Standin

from ringcache.daemon import Client
from ringcache.vllm._scheduling import Load, parse_note

if importlib.util.find_spec("torch") is None:
    pytest.skip("torch is not installed", allow_module_level=True)

import torch

if not torch.cuda.is_available():
    pytest.skip("there is no GPU", allow_module_level=True)

from ringcache.vllm import _working

CUDA = torch.device("cuda", 0)


@pytest.fixture
def daemon(tmp_path: pathlib.Path) -> Iterator[Standin]:
    standin = Standin(str(tmp_path / "s"), size=256 << 20)
    yield standin
    standin.close()


def worker(daemon: Standin, *, saves: bool = True, pin: bool = False) -> _working.Worker:
    client = Client(daemon.path, client="test", space="space", timeout=30)
    return _working.Worker(
        client, first=True, saves=saves, wait=1, tenant="", pin=pin, device=CUDA
    )


def loads(w: _working.Worker, daemon: Standin) -> list[Load]:
    w._client.hello()
    assert w._client.segment is not None
    found = []
    for name, (offset, size, note) in daemon.objects.items():
        found.append(Load(name, w._client.segment, offset, size, *parse_note(note, size)))
    return found


def eventually(call: Any) -> None:
    end = time.monotonic() + 300
    while not call():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_saves_beside_the_engine(daemon: Standin) -> None:
    w = worker(daemon)
    w.start()
    made = {}
    for n in range(20):
        x = torch.randn(256, 1024, device=CUDA)
        for _ in range(10):  # the output is not there yet when it is saved
            x = torch.tanh(x @ x.t() @ x)
        made[f"{n}"] = x.to(torch.bfloat16)
        w.save(f"{n}", made[f"{n}"])
    w.save("turned", made["0"].t())
    eventually(lambda: len(daemon.objects) == 21)
    for name, tensor in {**made, "turned": made["0"].t()}.items():
        at, size, note = daemon.objects[name]
        assert note.decode() == " ".join(["bfloat16", *map(str, tensor.shape)])
        want = tensor.contiguous().view(torch.uint8).cpu().numpy().tobytes()
        assert bytes(daemon.memory[at : at + size]) == want
    assert w._thread is not None
    w.close()
    assert not w._thread.is_alive()
    assert daemon.held() == set()


def test_end_waits_for_what_is_being_saved(daemon: Standin) -> None:
    w = worker(daemon)
    for n in range(10):
        w.save(f"{n}", torch.full((4, 4), n, device=CUDA))
    w.close()
    assert len(daemon.objects) == 10


def test_queue_that_is_full_skips(daemon: Standin) -> None:
    w = worker(daemon)
    w._client.timeout = 1
    w._client.hello()
    daemon.hung.set()
    for n in range(100):
        w.save(f"{n}", torch.full((4, 4), n, device=CUDA))
    daemon.hung.clear()
    assert w.stats.take()["skipped"] >= 30
    w.close()


@pytest.mark.parametrize("pin", [False, True], ids=["pageable", "pinned"])
@pytest.mark.parametrize("saves", [False, True], ids=["consumer", "both"])
def test_loads(daemon: Standin, pin: bool, saves: bool) -> None:
    made = {}
    for n in range(24):
        made[f"{n}"] = torch.randn(256, 2688 * 2).to(torch.bfloat16)
        raw = made[f"{n}"].view(torch.uint8).numpy().tobytes()
        daemon.put(f"{n}", raw, "bfloat16 256 5376")
    w = worker(daemon, saves=saves, pin=pin)
    w.start()
    if pin and not w._mappings._pinned:
        pytest.skip("the driver does not pin the mapping")
    for stream in (torch.cuda.current_stream(), torch.cuda.Stream()):
        cache: dict[str, torch.Tensor] = {}
        with torch.cuda.stream(stream):
            began = time.perf_counter()
            w.load(loads(w, daemon), cache)
            submitted = time.perf_counter() - began
            sums = {name: tensor.float().sum() for name, tensor in cache.items()}
        torch.cuda.synchronize()
        print(f"{len(made)} outputs: {submitted * 1e3:.2f} ms, {(time.perf_counter() - began) * 1e3:.2f} ms in all")
        for name, tensor in made.items():
            assert cache[name].device == CUDA
            assert torch.equal(cache[name].cpu(), tensor)
            assert torch.allclose(sums[name].cpu(), tensor.float().sum(), rtol=1e-3, atol=1)
    w.close()
    assert not w._mappings._pinned
    daemon.memory[:1] = b"x"  # still there


def test_pinned_mapping_of_a_segment_that_was_replaced(daemon: Standin) -> None:
    made = torch.randn(64, 64)
    daemon.put("a", made.numpy().tobytes(), "float32 64 64")
    w = worker(daemon, saves=False, pin=True)
    pinned = loads(w, daemon)
    w.load(pinned, {})
    if not w._mappings._pinned:
        pytest.skip("the driver does not pin the mapping")
    others: list[Standin] = []
    try:
        for generation in range(2, 7):
            daemon.stop()
            pathlib.Path("/dev/shm", daemon.segment).unlink(missing_ok=True)
            if others:
                others[-1].stop()
            others.append(Standin(daemon.path, generation=generation, size=1 << 20))
            others[-1].put("a", made.numpy().tobytes(), "float32 64 64")
            w._client._retry_at = 0
            w._client._disconnect()
            cache: dict[str, torch.Tensor] = {}
            w.load(loads(w, others[-1]), cache)
            assert torch.equal(cache["a"].cpu(), made)
        assert len(w._mappings._mappings) == len(w._mappings._pinned) == 3
    finally:
        w.close()
        for other in others:
            other.close()

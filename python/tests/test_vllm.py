"""Against the installed vLLM: its writer, its readers and ours. Skipped without it."""

from __future__ import annotations

import importlib.util
import os
import pathlib
import subprocess
import sys
import uuid

import pytest

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("vllm") is None, reason="vllm is not installed"
)

SCRIPT = """
import hashlib, os, sys, types
sys.path[:0] = sys.argv[2:]
name = os.environ["VLLM_OBJECT_STORAGE_SHM_BUFFER_NAME"] = sys.argv[1]
import torch, vllm
from vllm.multimodal import inputs
from vllm.multimodal.cache import ShmObjectStoreSenderCache
from vllm.v1.serial_utils import MsgpackEncoder
from workerproc import WorkerProcess

SIZE, K, MAX = 3_000_001, 2, 1 << 20
gb = SIZE / (1 << 30)
mm = types.SimpleNamespace(mm_processor_cache_gb=gb, mm_processor_cache_type="shm",
    mm_shm_cache_max_object_size_mb=MAX >> 20)
sender = ShmObjectStoreSenderCache(types.SimpleNamespace(
    parallel_config=types.SimpleNamespace(world_size=K),
    model_config=types.SimpleNamespace(get_multimodal_config=lambda: mm)))
encoder = MsgpackEncoder()

def make(seed, n):
    torch.manual_seed(seed)
    field = inputs.MultiModalBatchedField()
    return inputs.MultiModalKwargsItem({
        "pixel_values": inputs.MultiModalFieldElem(torch.rand(n, 8).to(torch.bfloat16), field),
        "grid": inputs.MultiModalFieldElem(torch.tensor([1, 2, seed]), field),
        "list": inputs.MultiModalFieldElem([torch.zeros(0), [torch.ones(500)], 5], field)})

def digest(t):
    return hashlib.sha256(t.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()).hexdigest()

def obj(seed, n):
    key, item = f"key{seed}", make(seed, n)
    sender.touch_sender_cache_item(key)
    wire, _ = sender.get_and_update_item(None if sender.is_cached_item(key) else (item, []), key)
    want = {"pixel_values": digest(item["pixel_values"].data), "grid": digest(item["grid"].data),
        "list.0": digest(torch.zeros(0)), "list.1.0": digest(torch.ones(500))}
    return {"key": key, "frames": [bytes(f).hex() for f in encoder.encode(wire)], "sha256": want}

try:
    for peer in ("ringcache", "vllm"):
        config = {"segment": name, "size": SIZE, "max_object": MAX, "readers": K,
            "generation": vllm.__version__, "peer": peer}
        with WorkerProcess(config) as worker:
            print(worker.receive())
            objects, nbytes = 0, 0
            for seq in range(40):  # 8 MB through 3 MB: the writer must be able to evict
                batch = [obj(seed, 4000) for seed in range(3 * seq, 3 * seq + 4)]
                assert all("address" in str(bytes.fromhex(o["frames"][0])) for o in batch), seq
                if hasattr(sender, "release_sender_touches"): sender.release_sender_touches()
                reply = worker.ask({"seq": seq, "objects": batch})
                assert reply["seq"] == seq and reply["errors"] == [], reply
                objects, nbytes = objects + reply["objects"], nbytes + reply["bytes"]
            # And the payload itself, for what does not fit.
            item = make(1, 200_000)
            inline = {"key": "big", "frames": [bytes(f).hex() for f in encoder.encode(item)],
                "sha256": {"pixel_values": digest(item["pixel_values"].data),
                    "grid": digest(item["grid"].data), "list.0": digest(torch.zeros(0)),
                    "list.1.0": digest(torch.ones(500))}}
            reply = worker.ask({"seq": 99, "objects": [inline]})
            assert reply["errors"] == [] and reply["objects"] == K, reply
            # A stale handle is an error of the batch, not the end.
            sender.clear_cache()
            batch = [obj(2000, 100), obj(2001, 100)][1:]
            sender.clear_cache()
            obj(2002, 4000)  # over both
            reply = worker.ask({"seq": 100, "objects": batch})
            assert len(reply["errors"]) == K and "has been modified or is invalid" in str(reply), reply
            sender.clear_cache()
            assert worker.end() == 0
            print(peer, objects, nbytes)
            assert objects == K * 160
finally:
    sender._shm_cache.ring_buffer.close()
print("done", vllm.__version__)
"""


def test_peers() -> None:
    here = pathlib.Path(__file__).resolve().parent
    name = f"ringcache-test-{uuid.uuid4()}"
    try:
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, name, str(here)],
            capture_output=True,
            text=True,
            timeout=1800,
            env={**os.environ, "VLLM_LOGGING_LEVEL": "ERROR", "VLLM_NO_USAGE_STATS": "1"},
        )
    finally:
        pathlib.Path("/dev/shm", name).unlink(missing_ok=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "done" in done.stdout
    print(done.stdout)

"""LMCache's own classes and vLLM's publisher, unchanged, against `ringcache directory`.

Needs an environment of setup.sh with lmcache 0.5.6 (the controller) or 0.5.7 (the coordinator) on PYTHONPATH; the top of test_kv.py
has the commands. Each part is skipped with the other release.
"""

import json
import pathlib
import shutil
import subprocess
import time
import types
import urllib.request

import pytest
from lmcache_release import installed
from ports import free_ports

HERE = pathlib.Path(__file__).resolve().parent
SECONDS = 120

pytestmark = pytest.mark.skipif(not installed() or shutil.which("go") is None,
                                reason="no lmcache on PYTHONPATH, or no go to build the program with")


def wait(ready, what):
    end = time.monotonic() + SECONDS
    while True:
        found = ready()
        if found:
            return found
        assert time.monotonic() < end, what
        time.sleep(0.02)


class Directory:
    def __init__(self, place, *more):
        self.place, self.more = place, more
        self.http, self.pull, self.reply, self.heartbeat = free_ports(4)
        self.start()

    def start(self):
        self.log = open(self.place / "log", "ab")
        self.process = subprocess.Popen(
            [self.place / "ringcache", "directory", *(x for name in ("http", "pull", "reply", "heartbeat") for x in (f"--{name}", f"127.0.0.1:{getattr(self, name)}")),
             "--chunk-size", "16", *self.more], stderr=self.log)
        wait(self.alive, "it serves")

    def alive(self):
        try:
            return self.get("/healthz")
        except OSError:
            return None

    def get(self, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        with urllib.request.urlopen(f"http://127.0.0.1:{self.http}{path}", data, timeout=SECONDS) as r:
            return r.read()

    def metric(self, name):
        """A metric; of one that has a label for the face, the sum."""
        lines = [x for x in self.get("/metrics").decode().splitlines() if x.startswith((f"ringcache_directory_{name} ", f"ringcache_directory_{name}{{"))]
        return sum(float(x.split()[-1]) for x in lines)

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.log.close()


@pytest.fixture
def place(tmp_path):
    subprocess.run(["go", "build", "-o", tmp_path / "ringcache", "./cmd/ringcache"], cwd=HERE.parent, check=True)
    return tmp_path


def test_workers_of_the_controller(place):
    """LMCacheWorker registers, reports by LMCache's batched sender, is asked for all after a kill of the directory, and is found."""
    worker_module = pytest.importorskip("lmcache.v1.cache_controller.worker", reason="0.5.6 has the controller here")
    import asyncio

    import msgspec
    import zmq
    from lmcache.v1.cache_controller import message as m

    directory = Directory(place)
    kept = {}

    class Config:
        lmcache_instance_id = "instance"
        controller_pull_url, controller_reply_url = f"127.0.0.1:{directory.pull}", f"127.0.0.1:{directory.reply}"
        lmcache_worker_ports, enable_p2p = free_ports(1), True
        p2p_host, p2p_init_ports = "10.1.2.3", [8200]
        lmcache_worker_heartbeat_time, lmcache_worker_heartbeat_delay_time = 0.2, 0.1
        extra = {"full_sync_startup_delay_s": 0.0, "full_sync_status_poll_interval_s": 0.1, "full_sync_batch_size": 7, "full_sync_retry_delay_s": 0.1,
                 "worker_socket_recv_timeout_ms": 2000, "worker_socket_send_timeout_ms": 2000}

        def get_extra_config_value(self, name, default):
            return self.extra.get(name, default)

        def get_lmcache_worker_ids(self, use_mla, world_size):
            return []

    class Backend:
        def __str__(self):
            return "LocalCPUBackend"

        def get_keys(self):
            return [types.SimpleNamespace(chunk_hash=h) for h in sorted(kept)]

    frozen = []
    engine = types.SimpleNamespace(storage_manager=types.SimpleNamespace(local_cpu_backend=Backend()), freeze=frozen.append,
                                   health=lambda: 0, clear=lambda locations: 640, lookup=lambda tokens, **_: len(tokens))
    worker = worker_module.LMCacheWorker(Config(), types.SimpleNamespace(worker_id=0, use_mla=False, world_size=1), engine)
    number = 0

    def report(kind, hashes, skip=0):
        nonlocal number
        number += skip
        ops = []
        for h in hashes:
            ops.append(m.KVOpEvent(op_type=kind, key=h, seq_num=number))
            number += 1
            if kind == m.OpType.ADMIT:
                kept[h] = True
            else:
                kept.pop(h, None)
        worker.put_msg(m.BatchedKVOperationMsg(instance_id="instance", worker_id=0, location="LocalCPUBackend", operations=ops))

    def request(x):
        s = zmq.Context.instance().socket(zmq.DEALER)
        s.connect(f"tcp://127.0.0.1:{directory.reply}")
        s.send_multipart([b"", msgspec.msgpack.encode(x)])
        assert s.poll(SECONDS * 1000), "an answer"
        answer = msgspec.msgpack.decode(s.recv_multipart()[-1], type=m.Msg)
        s.close(linger=0)
        return answer

    def layout(hashes):
        return request(m.BatchedP2PLookupMsg(hashes=hashes, instance_id="other", worker_id=0)).layout_info[0]

    try:
        hashes = [(-1) ** i * (i * 2**55 + i) for i in range(1, 100)]
        wait(lambda: worker.heartbeat_socket, "it has registered")
        report(m.OpType.ADMIT, hashes)
        found = ("instance", "LocalCPUBackend", len(hashes), "10.1.2.3:8200")
        wait(lambda: layout(hashes) == found, "all chunks are found")
        report(m.OpType.EVICT, hashes[50:])
        wait(lambda: layout(hashes)[2] == 50, "the first ones are left")

        report(m.OpType.ADMIT, hashes[50:60], skip=3)  # as if three reports were lost
        wait(lambda: directory.metric("synced_total") == 1, "all was told")
        wait(lambda: frozen == [True, False], "the worker goes on")
        assert layout(hashes)[2] == 60

        directory.kill()
        directory.start()
        wait(lambda: directory.metric("synced_total") == 1, "the next directory was told, too")
        assert layout(hashes)[2] == 60

        assert request(m.QueryInstMsg(event_id="e", ip=worker.lmcache_worker_ip)).instance_id == "instance"
        (info,) = request(m.QueryWorkerInfoMsg(event_id="e", instance_id="all", worker_ids=None)).worker_infos
        assert (info.instance_id, info.port, info.peer_init_url) == ("instance", worker.lmcache_worker_port, "10.1.2.3:8200")
        assert request(m.HealthMsg(event_id="e", instance_id="instance")).error_codes == {0: 0}
        assert request(m.ClearMsg(event_id="e", instance_id="instance", location="LocalCPUBackend")).num_tokens == 640
        assert request(m.PinMsg(event_id="e", instance_id="instance", location="LocalCPUBackend", tokens=[1, 2])).num_tokens == 2
        assert isinstance(request(m.CheckFinishMsg(event_id="e")), m.ErrorMsg)
        worker.deregister()
        wait(lambda: directory.metric("workers") == 0, "it has gone")
    finally:
        worker.loop.call_soon_threadsafe(lambda: [t.cancel() for t in asyncio.all_tasks(worker.loop)])
        time.sleep(0.1)
        worker.loop.call_soon_threadsafe(worker.loop.stop)
        worker.thread.join()
        directory.kill()
        print((place / "log").read_text())


def test_servers_of_the_coordinator(place):
    """Registration, heartbeats and events of a server of 0.5.7, by its own registrar and subscriber's sink."""
    api = pytest.importorskip("lmcache.v1.mp_coordinator.api", reason="0.5.7 has the coordinator's events")
    if not hasattr(api, "CacheEventBatch"):
        pytest.skip("0.5.7 has the coordinator's events")
    from lmcache.v1.distributed.api import ObjectKey, Tier
    from lmcache.v1.mp_coordinator.cache_events import HttpCacheEventSink
    from lmcache.v1.multiprocess.token_hasher import TokenHasher

    directory = Directory(place)
    try:
        tokens = list(range(100, 100 + 4 * 16))
        rank = ObjectKey.ComputeKVRank(1, 0, 1, 0)
        entries = [api.CacheEventEntry(key=ObjectKey(chunk_hash=h, model_name="m", kv_rank=rank).to_encoded_object_key(), size_bytes=10,
                                       token_ids=tokens[16 * i:16 * i + 16], token_offset=16 * i)
                   for i, h in enumerate(TokenHasher(16, "blake3").compute_chunk_hashes(tokens))]
        sink = HttpCacheEventSink(f"http://127.0.0.1:{directory.http}")
        for name, n in (("a", 4), ("b", 2)):
            sink.publish([api.CacheEventBatch(instance_id=name, incarnation=1, seq=1, event_type=api.CacheEventType.STORE, tier=Tier.L1, backend="dram", entries=entries[:n])])

        def longest():
            found = json.loads(directory.get("/directory/longest", {"token_ids": tokens, "model_name": "m"}))["instances"]
            return [(f["instance_id"], f["chunks"], f["tokens"], f["stale"]) for f in found]

        wait(lambda: longest() == [("a", 4, 64, False), ("b", 2, 32, False)], "both are known")
        results = json.loads(directory.get("/directory/lookup", {"token_ids": tokens, "model_name": "m"}))["results"]
        assert [r["token_ids"] for r in results] == [tokens[i:i + 16] for i in range(0, 64, 16)]
        assert [len(r["placements"]) for r in results] == [2, 2, 1, 1]
        sink.close()
    finally:
        directory.kill()


def test_events_of_vllm(place):
    """vLLM's publisher, with what it has sent before anybody listened, and after a restart of the publisher."""
    from vllm.distributed.kv_events import AllBlocksCleared, BlockRemoved, BlockStored, KVEventBatch, ZmqEventPublisher

    pub, replay = f"ipc://{place}/pub", f"ipc://{place}/replay"

    def stored(hashes, medium="GPU"):
        return BlockStored(block_hashes=hashes, parent_block_hash=None, token_ids=[1] * len(hashes), block_size=1, lora_id=None, medium=medium, lora_name=None)

    def publish(*events):
        publisher.publish(KVEventBatch(ts=time.time(), events=list(events)))

    publisher = ZmqEventPublisher(0, pub, replay, topic="kv@pod@m")
    publish(stored([1, 2, 2**64 - 1]))
    publish(stored([bytes(24) + (7).to_bytes(8, "big")], "CPU"), BlockRemoved(block_hashes=[2], medium="GPU"))
    directory = Directory(place, "--events", f"{pub},instance=pod,model=m,replay={replay}")
    try:
        wait(lambda: directory.metric("entries") == 3, "what was sent before")
        publish(stored([11, 12]))
        wait(lambda: directory.metric("entries") == 5, "what is sent now")
        publisher.shutdown()
        publisher = ZmqEventPublisher(0, pub, replay, topic="kv@pod@m")
        publish(stored([1]))
        wait(lambda: directory.metric("entries") == 1, "the next one has one block")
        assert directory.metric("gaps_total") == 0
        publish(AllBlocksCleared())
        wait(lambda: directory.metric("entries") == 0, "none is left")
    finally:
        publisher.shutdown()
        directory.kill()

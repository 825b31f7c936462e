"""Events of KV by ZMQ, from `ringcache serve` through the real classes of a worker to a router, in one process.

LMCache's worker adapter, 0.5.6 or 0.5.7, subscribes at the daemon; its connector makes vLLM's events; vLLM's publisher
sends them; and a subscriber decodes them by vLLM's classes and asks for all of them again. Needs what test_kv.py needs,
but for xxhash.
"""

import pathlib
import shutil
import subprocess
import time
import types

import msgspec
import pytest
from lmcache_release import installed

HERE = pathlib.Path(__file__).resolve().parent
CHUNK, MODEL = 16, "org/model"


@pytest.fixture
def place(tmp_path_factory):
    if not installed():
        pytest.skip("no lmcache on PYTHONPATH; the top of test_kv.py has the commands")
    if shutil.which("go") is None:
        pytest.skip("no go on PATH to build the program with")
    place = tmp_path_factory.mktemp("kv")
    subprocess.run(["go", "build", "-o", place / "ringcache", "./cmd/ringcache"], cwd=HERE.parent, check=True)
    return place


class Daemon:
    def __init__(self, place):
        self.place = place
        (place / "shm").mkdir()
        self.start()

    def start(self):
        self.log = open(self.place / "log", "ab")
        self.process = subprocess.Popen(
            [self.place / "ringcache", "serve", "--socket", self.place / "s", "--shm-dir", self.place / "shm", "--size", "16MiB", "--http", "off",
             "--lmcache", f"ipc://{self.place}/kv", "--lmcache-chunk-size", str(CHUNK)], stderr=self.log)

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.log.close()


class Router:
    """A subscriber, with vLLM's classes."""

    def __init__(self, context, pub, replay):
        import zmq
        from vllm.distributed.kv_events import KVEventBatch
        self.decoder = msgspec.msgpack.Decoder(KVEventBatch)
        self.sub, self.replay = context.socket(zmq.SUB), context.socket(zmq.DEALER)
        self.sub.connect(pub)
        self.sub.subscribe(b"kv@")
        self.replay.connect(replay)
        self.messages = []

    def next(self):
        assert self.sub.poll(60_000), "no batch within a minute"
        topic, number, payload = self.sub.recv_multipart()
        assert topic == b"kv@pod@" + MODEL.encode()
        self.messages.append((topic, number, payload))
        assert int.from_bytes(number, "big") == len(self.messages) - 1
        batch = self.decoder.decode(payload)
        assert batch.data_parallel_rank == 0
        return batch.events

    def close(self):
        self.sub.close(linger=0)
        self.replay.close(linger=0)


def wait(ready, what):
    end = time.monotonic() + 120
    while not ready():
        assert time.monotonic() < end, what
        time.sleep(0.01)


def warm(publisher, router, batch):
    """Publishes until the router gets something: what nobody has subscribed to yet is dropped. Those are replayed, too."""
    sent = 0
    while not router.sub.poll(100):
        publisher.publish(batch(ts=0.0, events=[]))
        sent += 1
    while len(router.messages) < sent:
        if not router.messages:
            topic, number, payload = router.sub.recv_multipart()
            router.messages = [(topic, n.to_bytes(8, "big"), payload) for n in range(int.from_bytes(number, "big") + 1)]
        else:
            router.next()


def test_events_reach_a_router(place):
    import zmq
    from lmcache.integration.vllm.lmcache_mp_connector import LMCacheMPConnector
    from lmcache.integration.vllm.vllm_multi_process_adapter import LMCacheMPWorkerAdapter, ParallelStrategy
    from lmcache.v1.multiprocess import custom_types
    from lmcache.v1.multiprocess.rpc import get_rpc_spec
    from lmcache.v1.multiprocess.token_hasher import TokenHasher
    from vllm.distributed.kv_events import BlockRemoved, BlockStored, KVEventBatch, ZmqEventPublisher
    from vllm.v1.core.kv_cache_utils import maybe_convert_block_hash

    context = zmq.Context()
    daemon = Daemon(place)
    worker = LMCacheMPWorkerAdapter(
        f"ipc://{place}/kv", context, MODEL, CHUNK, ParallelStrategy(False, 1, 0, 1, 1, 1), mq_timeout=60, heartbeat_interval=1, enable_kv_events=True)
    connector = types.SimpleNamespace(_enable_kv_events=True, worker_adapter=worker, _kv_events_hook_called=False)
    pub, replay = f"ipc://{place}/pub", f"ipc://{place}/replay"
    publisher = ZmqEventPublisher(0, pub, replay, topic="kv@pod@" + MODEL)
    router = Router(context, pub, replay)
    client = worker.req_client

    def events():
        """What the scheduler would publish after a step."""
        found = LMCacheMPConnector.get_kv_connector_kv_cache_events(connector)
        return found.get_all_events() if found else []

    def published(n):
        """Steps of the engine, until n events came; what a router gets of them."""
        got, end = [], time.monotonic() + 120
        while len(got) < n:
            assert time.monotonic() < end, (got, (place / "log").read_text())
            new = events()
            if not new:
                time.sleep(0.01)
                continue
            publisher.publish(KVEventBatch(ts=time.time(), events=new))
            arrived = router.next()
            assert arrived == new
            got += arrived
        return got

    def call(name, *args):
        return getattr(client, name)(*args[:len(get_rpc_spec(name).payload_types)]).result(timeout=60)

    def store(request, tokens):
        key = custom_types.IPCCacheServerKey.from_token_ids(
            token_ids=tokens, model_name=MODEL, world_size=1, worker_id=0, start=0, end=len(tokens), request_id=request, cache_salt="",
            num_kv_readers=1, request_configs=None)
        call("prepare_store", key, worker.instance_id, ())
        assert call("commit_store", key, worker.instance_id, b"")

    def stored(got, tokens):
        """All chunks of a prompt, in order, each with the one in front of it as its parent."""
        assert all(isinstance(e, BlockStored) for e in got), got
        # A container of the connector has no order; parents have.
        by_parent = {e.parent_block_hash: e for e in got}
        parent, chain = None, []
        for i in range(0, len(tokens), CHUNK):
            e = by_parent[parent]
            assert (e.token_ids, e.block_size, e.medium, e.lora_id, e.lora_name) == (tokens[i:i + CHUNK], CHUNK, "CPU", None, None)
            (parent,) = e.block_hashes
            chain.append(parent)
        hashes = TokenHasher(CHUNK, "blake3").compute_chunk_hashes(tokens)
        assert chain == [maybe_convert_block_hash(h) for h in hashes]
        return chain

    try:
        call("register_kv_cache_engine_driven_context", custom_types.RegisterEngineDrivenContextPayload(
            instance_id=worker.instance_id, model_name=MODEL, world_size=1, block_size=CHUNK, num_layers=2, hidden_dim_size=8, dtype_str="float32", use_mla=False))
        assert events() == [], "the first step begins the subscription"
        wait(lambda: worker._kv_event_incarnation, "the first batch")
        warm(publisher, router, KVEventBatch)

        first = list(range(1000, 1000 + 4 * CHUNK))
        store("a", first)
        chain = stored(published(4), first)
        long = [i % 50_000 for i in range(300 * CHUNK)]
        store("b", long)
        chain += stored(published(300), long)
        call("clear", False)
        gone = published(304)
        assert all(isinstance(e, BlockRemoved) and e.medium == "CPU" for e in gone)
        assert sorted(h for e in gone for h in e.block_hashes) == sorted(chain)

        # What the worker has announced is withdrawn when the daemon is killed, and it goes on with the next one.
        store("c", first)
        chain = stored(published(4), first)
        incarnation = worker._kv_event_incarnation
        daemon.kill()
        (withdrawn,) = published(1)
        assert sorted(withdrawn.block_hashes) == sorted(chain)
        daemon.start()
        wait(lambda: worker._kv_event_incarnation != incarnation, "the first batch of the next daemon")
        second = list(range(5000, 5000 + 2 * CHUNK))
        store("d", second)
        stored(published(2), second)

        # A router that has missed everything asks again.
        router.replay.send_multipart((b"", (0).to_bytes(8, "big")))
        again = []
        while True:
            assert router.replay.poll(60_000)
            _, *message = router.replay.recv_multipart()
            if message[1] == ZmqEventPublisher.END_SEQ:
                break
            again.append(tuple(message))
        assert again == router.messages
        print(len(again), "batches")
    finally:
        router.close()
        publisher.shutdown()
        worker.shutdown()
        daemon.kill()
        context.term()

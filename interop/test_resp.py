"""Redis's protocol beside a real redis-server, by LMCache's own classes, unchanged, in one process run.

    make build
    PYTHONPATH=$lmcache RINGCACHE_AGENT=bin/ringcache "$env/bin/python" -m pytest interop/test_resp.py -q -s

$env is an environment of setup.sh, and $lmcache a release of lmcache of e2e/lmcache.sh. LMCACHE_SOURCE=FOLDER, where LMCache's source distribution is
unpacked (the top of test_lmcache_tools.py has the commands), adds LMCache's own test of its RESP adapter.
"""

import asyncio
import os
import pathlib
import random
import socket
import subprocess
import sys
import threading
import time

import pytest
from lmcache_release import installed
from ports import free_ports

CASES = int(1_000 * float(os.environ.get("RINGCACHE_INTEROP_SCALE", "1")))
SEED = int(os.environ.get("RINGCACHE_INTEROP_SEED", "20261127"))
PATIENCE = 600
OWN_TEST = "tests/v1/distributed/test_resp_l2_adapter_integration.py"

pytestmark = pytest.mark.skipif(not installed(), reason="no lmcache on PYTHONPATH; the top of this file has the commands")


def wait(process, port):
    end = time.monotonic() + PATIENCE
    while True:
        assert process.poll() is None and time.monotonic() < end
        try:
            return socket.create_connection(("127.0.0.1", port), PATIENCE).close()
        except OSError:
            time.sleep(0.1)


@pytest.fixture(scope="module")
def ports(redis_package, tmp_path_factory):
    """The ports of redis-server and of ours."""
    root = tmp_path_factory.mktemp("resp")
    stock, ours = free_ports(2)
    folder, env = redis_package
    with open(root / "stock", "wb") as a, open(root / "ours", "wb") as b:
        processes = [
            subprocess.Popen([folder / "usr/bin/redis-server", "--port", str(stock), "--save", "", "--dir", root], env=env, stdout=a, stderr=a),
            subprocess.Popen([os.environ["RINGCACHE_AGENT"], "serve", "--socket", root / "socket", "--name", "rcresp_%d" % os.getpid(), "--shm-dir", root,
                              "--size", "512MiB", "--http", "off", "--resp", "127.0.0.1:%d" % ours, "--resp-flush"], stdout=b, stderr=b),
        ]
        try:
            for process, port in zip(processes, (stock, ours), strict=True):
                wait(process, port)
            yield stock, ours
            assert [p.poll() for p in processes] == [None, None], (root / "ours").read_text()[-4000:]
        finally:
            for process in processes:
                process.kill()
                process.wait()
    assert "panic" not in (root / "ours").read_text()


class Connectors:
    """LMCache's connector of one URL, two of them, on a loop of their own."""

    def __init__(self, url):
        import torch
        from lmcache.v1.config import LMCacheEngineConfig
        from lmcache.v1.memory_allocators.ad_hoc_memory_allocator import AdHocMemoryAllocator
        from lmcache.v1.metadata import LMCacheMetadata
        from lmcache.v1.storage_backend.connector import CreateConnector
        from lmcache.v1.storage_backend.local_cpu_backend import LocalCPUBackend
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        config = LMCacheEngineConfig.from_defaults(chunk_size=16, remote_url=url)
        metadata = LMCacheMetadata("org/model", 1, 1, 0, 0, torch.bfloat16, (2, 2, 16, 1, 4), False)
        metadata.chunk_size = 16
        self.memory = LocalCPUBackend(config=config, metadata=metadata, memory_allocator=AdHocMemoryAllocator("cpu"), dst_device="cpu")
        self.all = [CreateConnector(url, self.loop, self.memory, config, metadata) for _ in range(2)]
        self.inner = getattr(self.all[0], "_connector", self.all[0])

    def run(self, call):
        return asyncio.run_coroutine_threadsafe(call, self.loop).result(PATIENCE)

    def close(self):
        # LMCache's own close waits for the loop on which it runs, so it would never return.
        for c in self.all:
            client = getattr(getattr(c, "_connector", c), "client", None)
            if client is not None:
                client.close()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()


def described(o):
    return None if o is None else (bytes(o.byte_array), tuple(o.get_shape()), str(o.get_dtype()), o.get_memory_format().name)


@pytest.mark.parametrize("scheme", ["resp", "redis"])
def test_connectors(ports, scheme):
    """Each random operation by LMCache's connector has one answer from both servers."""
    import torch
    from lmcache.utils import CacheEngineKey
    r = random.Random(SEED)
    sides = [Connectors("%s://127.0.0.1:%d" % (scheme, port)) for port in ports]
    pool = [CacheEngineKey("org/model", 1, 0, r.getrandbits(64), torch.bfloat16) for _ in range(100)]
    done, hits = dict.fromkeys(("put", "get", "exists"), 0), 0
    try:
        for n in range(CASES):
            key, at, op = r.choice(pool), r.randrange(2), r.choice(("put", "get", "get", "exists"))
            done[op] += 1
            there = [side.run(side.all[at].exists(key)) for side in sides]
            assert there[0] == there[1], (n, key)
            if op == "put":
                value = None
                for side in sides:
                    o = side.memory.allocate(side.inner.meta_shapes, side.inner.meta_dtypes, side.inner.meta_fmt)
                    value = value or r.randbytes(len(bytes(o.byte_array)))
                    memoryview(o.byte_array).cast("B")[:] = value
                    side.run(side.all[at].put(key, o))
                    o.ref_count_down()
            elif op == "get" and (there[0] or scheme == "redis"):  # the native client waits for ever for what is not there
                stock, ours = (described(side.run(side.all[1 - at].get(key))) for side in sides)
                assert stock == ours, (n, key)
                hits += stock is not None
    finally:
        for side in sides:
            side.close()
    print("operations by LMCache's connector for %s://: %s, %d hits; different 0" % (scheme, done, hits))
    assert hits > CASES // 10


def test_adapter(ports, redis_package, tmp_path):
    """LMCache's own test of its RESP adapter, unchanged."""
    source = os.environ.get("LMCACHE_SOURCE")
    if not source:
        pytest.skip("LMCACHE_SOURCE is not set")
    test = tmp_path / "test_adapter.py"  # by itself, without the settings of LMCache's other tests
    test.write_bytes((pathlib.Path(source) / OWN_TEST).read_bytes())
    env = {**redis_package[1], "REDIS_HOST": "127.0.0.1", "REDIS_PORT": str(ports[1])}
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", test], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE)
    print(done.stdout[-200:])
    assert done.returncode == 0, done.stdout + done.stderr
    assert "7 passed" in done.stdout

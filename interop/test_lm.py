"""lm:// beside the real LMCache, of 0.5.6: its own connector classes and its own server, unchanged, in one process run.

    make build
    PYTHONPATH=$lmcache RINGCACHE_AGENT=bin/ringcache "$env/bin/python" -m pytest interop/test_lm.py -q -s

$env is an environment of setup.sh, and $lmcache a release of lmcache of e2e/lmcache.sh: 0.5.6, since 0.5.7 has no lm://.
"""

import asyncio
import importlib.util
import os
import pathlib
import random
import shutil
import socket
import struct
import subprocess
import sys
import threading
import time

import pytest
from ports import free_ports

HERE = pathlib.Path(__file__).resolve().parent
CASES = int(20_000 * float(os.environ.get("RINGCACHE_INTEROP_SCALE", "1")))
SEED = int(os.environ.get("RINGCACHE_INTEROP_SEED", "20261127"))
PATIENCE = 600


def has_lm():
    try:
        return importlib.util.find_spec("lmcache.v1.storage_backend.connector.lm_connector") is not None
    except ModuleNotFoundError:
        return False


pytestmark = pytest.mark.skipif(not has_lm(), reason="no lmcache with lm:// on PYTHONPATH; the top of this file has the commands")


def connect(port):
    s = socket.create_connection(("127.0.0.1", port), PATIENCE)
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return s


def wait(process, port):
    end = time.monotonic() + PATIENCE
    while True:
        assert process.poll() is None and time.monotonic() < end
        try:
            return connect(port).close()
        except OSError:
            time.sleep(0.1)


@pytest.fixture(scope="module")
def ports(tmp_path_factory):
    """The ports of LMCache's server and of ours."""
    folder = tmp_path_factory.mktemp("lm")
    stock, ours = free_ports(2)
    env = {**os.environ, "LMCACHE_LOG_LEVEL": "ERROR", "LMCACHE_TRACK_USAGE": "false"}
    with open(folder / "stock", "wb") as a, open(folder / "ours", "wb") as b:
        processes = [
            subprocess.Popen([sys.executable, "-m", "lmcache.v1.server", "127.0.0.1", str(stock)], env=env, stdout=a, stderr=a),
            subprocess.Popen([os.environ["RINGCACHE_AGENT"], "serve", "--socket", folder / "socket", "--name", "rclm_%d" % os.getpid(), "--shm-dir", folder,
                              "--size", "256MiB", "--http", "off", "--lm", "127.0.0.1:%d" % ours], stdout=b, stderr=b),
        ]
        try:
            for process, port in zip(processes, (stock, ours), strict=True):
                wait(process, port)
            yield stock, ours
            assert [p.poll() for p in processes] == [None, None], (folder / "ours").read_text()[-4000:]
        finally:
            for process in processes:
                process.kill()
                process.wait()
    assert "panic" not in (folder / "ours").read_text()


def keys(r):
    """Random keys of LMCache's classes: of chunks and of layers, with tags and without."""
    import torch
    from lmcache.utils import CacheEngineKey, LayerCacheEngineKey
    model, world = r.choice(("org/model", "m", "\u00e9")), r.randrange(1, 9)
    tags = {"lmcache.tag." + n: v for n, v in r.sample([("user", "alice"), ("b", "2"), ("c", "x%y")], r.choice((0, 0, 0, 1, 2)))}
    fields = (model, world, r.randrange(world), r.getrandbits(r.choice((3, 64))) * r.choice((1, 1, -1)), r.choice((torch.bfloat16, torch.float16, torch.uint8)), tags)
    return LayerCacheEngineKey(*fields, r.randrange(3)) if r.random() < 0.3 else CacheEngineKey(*fields)


class Connectors:
    """LMCache's connectors of one server, two of them, on a loop of their own."""

    def __init__(self, port):
        import torch
        from lmcache.v1.config import LMCacheEngineConfig
        from lmcache.v1.memory_allocators.ad_hoc_memory_allocator import AdHocMemoryAllocator
        from lmcache.v1.metadata import LMCacheMetadata
        from lmcache.v1.storage_backend.connector import CreateConnector
        from lmcache.v1.storage_backend.local_cpu_backend import LocalCPUBackend
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()
        url = "lm://127.0.0.1:%d" % port
        config = LMCacheEngineConfig.from_defaults(chunk_size=16, remote_url=url)
        metadata = LMCacheMetadata("org/model", 1, 1, 0, 0, torch.bfloat16, (2, 2, 16, 1, 4), False)
        metadata.chunk_size = 16
        self.memory = LocalCPUBackend(config=config, metadata=metadata, memory_allocator=AdHocMemoryAllocator("cpu"), dst_device="cpu")
        self.all = [CreateConnector(url, self.loop, self.memory, config, metadata) for _ in range(2)]

    def run(self, call):
        return asyncio.run_coroutine_threadsafe(call, self.loop).result(PATIENCE)

    def close(self):
        for c in self.all:
            self.run(c.close())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


def described(o):
    return None if o is None else (bytes(o.byte_array), tuple(o.get_shape()), str(o.get_dtype()), o.get_memory_format().name)


def test_connectors(ports):
    """Each random operation by LMCache's connector has one answer from both servers."""
    import torch
    from lmcache.v1.memory_management import MemoryFormat
    r = random.Random(SEED)
    sides = [Connectors(port) for port in ports]
    pool = [keys(r) for _ in range(300)]
    done, hits = dict.fromkeys(("put", "get", "exists"), 0), 0
    try:
        assert type(getattr(sides[0].all[0], "_connector", sides[0].all[0])).__module__ == "lmcache.v1.storage_backend.connector.lm_connector"
        for n in range(CASES):
            key, at, op = r.choice(pool), r.randrange(2), r.choice(("put", "get", "get", "exists"))
            done[op] += 1
            if op == "put":
                shape, dtype, fmt = r.choice((
                    ((2, 2, 16, 8), torch.bfloat16, MemoryFormat.KV_2LTD), ((2, 2, r.randrange(1, 16), 8), torch.bfloat16, MemoryFormat.KV_2LTD),
                    ((16, 2, 8), torch.float16, MemoryFormat.KV_T2D), ((1, 2, 16, 576), torch.uint8, MemoryFormat.KV_MLA_FMT),
                    ((2, 8, 256, 32), torch.float32, MemoryFormat.KV_2LTD)))
                value = r.randbytes(torch.Size(shape).numel() * dtype.itemsize)
                for side in sides:
                    o = side.memory.allocate(torch.Size(shape), dtype, fmt)
                    memoryview(o.byte_array).cast("B")[:] = value
                    side.run(side.all[at].put(key, o))
                    assert side.run(side.all[at].exists(key)), n  # it is stored before another connection asks
            elif op == "exists":
                stock, ours = (side.run(side.all[at].exists(key)) for side in sides)
                assert stock == ours, (n, key)
            else:
                stock, ours = (described(side.run(side.all[at].get(key))) for side in sides)
                assert stock == ours, (n, key)
                hits += stock is not None
    finally:
        for side in sides:
            side.close()
    print("operations by LMCache's connector: %s, %d hits; different 0" % (done, hits))
    assert hits


def receive(s, n):
    b = b""
    while len(b) < n:
        try:
            more = s.recv(n - len(b))
        except ConnectionError:
            more = b""
        if not more:
            return None
        b += more
    return b


def spelled(r, key):
    """A key as LMCache writes it, or as its server reads it, too."""
    fields = key.split("@")
    if r.random() < 0.2:
        fields[1] = "0" + fields[1]
    if r.random() < 0.2:
        fields[3] = fields[3].upper()
    if r.random() < 0.2 and not fields[3].startswith("-"):
        fields[3] = "00" + fields[3]
    if r.random() < 0.05:
        fields = r.choice((fields[:4], fields[:4] + ["int7"], fields + ["x"], ["plain"]))
    key = "@".join(fields).encode()
    return b"\xff" + key if r.random() < 0.02 else key


def test_headers(ports):
    """Each random header has one answer from both servers, byte for byte, also headers that are wrong."""
    r = random.Random(SEED)
    sides = [connect(port) for port in ports]
    pool = [keys(r).to_string() for _ in range(200)]
    closed = answered = 0
    for n in range(CASES):
        command = r.choice((1, 2, 2, 3, 5)) if r.random() < 0.97 else r.choice((0, 6, -1))
        value = r.randbytes(r.choice((0, 1, 100, 5000))) if command == 1 else b""
        numbers = [r.randrange(9), r.randrange(9), r.randrange(3)]
        if r.random() < 0.03:
            numbers[r.randrange(3)] = r.choice((9, -1, 1 << 20))
        shape = [r.choice((0, 1, 2, 7, 1 << 20, -1)) for _ in range(4)]
        key = spelled(r, r.choice(pool))
        sent = struct.pack("<9i150s", command, len(value) if command == 1 else r.choice((0, 9, -1)), *numbers, *shape, key.ljust(150)) + value
        if command == 1:  # a question behind it, since there is no answer
            sent += struct.pack("<9i150s", 5, 0, 1, 2, 0, 0, 0, 0, 0, b"m@1@0@0@half".ljust(150))
        got = []
        for s in sides:
            s.sendall(sent)
            head = receive(s, 36)
            length = struct.unpack("<i", head[4:8])[0] if head else 0
            got.append(head if not length else head + receive(s, length))
        assert got[0] == got[1], (n, sent[:186], got)
        if got[0] is None:
            closed += 1
            for s in sides:
                s.close()
            sides = [connect(port) for port in ports]
        else:
            answered += 1
    for s in sides:
        s.close()
    print("random headers: %d answered, %d connections closed; different 0" % (answered, closed))


@pytest.mark.parametrize("which", ["LMCache's server", "our server"])
def test_our_client(ports, which, tmp_path):
    """Our client finds in LMCache's server, and in ours, what it has stored."""
    if shutil.which("go") is None:
        pytest.skip("no go on PATH to build the program with")
    program = tmp_path / "lm"
    subprocess.run(["go", "build", "-o", program, "./interop/lm"], cwd=HERE.parent, check=True)
    port = ports[which == "our server"]
    done = subprocess.run([program, "127.0.0.1:%d" % port, str(CASES), str(SEED)], capture_output=True, text=True, timeout=PATIENCE)
    print(which, done.stdout, done.stderr)
    assert done.returncode == 0 and done.stdout.rstrip().endswith("different 0")

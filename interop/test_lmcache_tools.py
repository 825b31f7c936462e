"""LMCache's own tools, unchanged, against `ringcache serve`: its benchmark, its commands, and the script of its CI for HTTP.

    make test-lmcache                       # with both releases; LMCACHE_SOURCE=FOLDER for the script, too

It needs an environment of setup.sh with lmcache beside it, on PYTHONPATH; without one all tests are skipped. The script is in LMCache's
source distribution only, and FOLDER is where one is unpacked. In a virtual environment this downloads it:

    pip install -U setuptools setuptools_scm wheel packaging ninja
    NO_NATIVE_EXT=1 pip download --no-deps --no-build-isolation --no-binary :all: lmcache==0.5.7rc2
"""

import http.server
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
import uuid

import pytest
from lmcache_release import installed
from ports import free_ports

PATIENCE = 600
CHUNK = 64
# Of each worker: K and V, blocks, tokens of a block, heads, width of a head; 4 layers. MLA has one vector in
# place of K and V.
SHAPE, MLA = "(2,128,16,2,32):float32:4", "(1,128,16,1,64):float32:4"
SCRIPT = ".buildkite/k3_tests/multiprocess/scripts/workloads/common/http-api.sh"
# What the script asks for and `ringcache serve` does not have: what LMCache's server shows of its own program and
# of its Python process.
OWN = ("GET / — service", "GET /config", "GET /env", "GET /loglevel", "GET /threads", "GET /periodic-threads", "GET /version",
       "GET /lmc_version", "GET /commit_id")

pytestmark = pytest.mark.skipif(not installed(),
                                reason="no lmcache on PYTHONPATH; the top of this file has the commands")


class Server:
    def __init__(self, folder, name, *more):
        grpc, zmq, self.port = free_ports(3)
        self.http = "http://127.0.0.1:%d" % self.port
        self.urls = {"grpc+unix": "grpc+unix://%s" % (folder / "kv"), "ipc": "ipc://%s" % (folder / "zmq"),
                     "grpc": "grpc://127.0.0.1:%d" % grpc, "tcp": "tcp://127.0.0.1:%d" % zmq}
        self._log = open(folder / "log", "wb")
        self.process = subprocess.Popen(
            [os.environ["RINGCACHE_AGENT"], "serve", "--socket", folder / "socket", "--name", name, "--size", "64MiB", "--lmcache",
             ",".join(self.urls.values()), "--lmcache-chunk-size", str(CHUNK), "--http", self.http.removeprefix("http://"),
             *more],
            stdout=self._log, stderr=self._log)
        end = time.monotonic() + PATIENCE
        while not self._serves():
            assert self.process.poll() is None and time.monotonic() < end, (folder / "log").read_text()[-4000:]
            time.sleep(0.05)

    def _serves(self):
        try:
            return urllib.request.urlopen(self.http + "/healthcheck", timeout=PATIENCE).status == 200
        except (urllib.error.URLError, OSError):
            return False

    def status(self):
        return json.load(urllib.request.urlopen(self.http + "/status", timeout=PATIENCE))

    def counter(self, name):
        text = urllib.request.urlopen(self.http + "/metrics", timeout=PATIENCE).read().decode()
        return int(float(re.search(r"^%s (\S+)$" % name, text, re.M)[1]))

    def close(self):
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(PATIENCE) == 0
        self._log.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    if not os.environ.get("RINGCACHE_AGENT"):
        pytest.fail("RINGCACHE_AGENT must name the ringcache program")
    name = "rctools_%s" % uuid.uuid4().hex[:12]
    made = Server(tmp_path_factory.mktemp("s"), name)
    yield made
    made.close()
    for file in pathlib.Path("/dev/shm").glob(name + "*"):
        file.unlink()


def settings():
    return {**os.environ, "LMCACHE_TRACK_USAGE": "false", "LMCACHE_DISABLE_BANNER": "1", "LMCACHE_LOG_LEVEL": "WARNING"}


def run(*command):
    """Runs a module of LMCache's and returns what it prints."""
    done = subprocess.run([sys.executable, "-m", *command], env=settings(), capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


def lmcache(*command):
    return run("lmcache.cli.main", *command)


def bench_server(url, server, chunks, first, end, *options, shape=SHAPE, mode="engine_driven"):
    return ("bench", "server", "--rpc-url", url, "--mode", "cpu", "--transfer-mode", mode, "--num-tokens", str(chunks * CHUNK), "--start",
            str(first), "--end", str(end), "--interval", "0", "--num-blocks", "128", "--kvcache-shape-spec", shape, "--url", server.http,
            *options)


# The benchmark stores each sequence, looks it up, loads it and compares checksums. Stores count for each worker,
# hits once; with MLA one worker stores for all.
@pytest.mark.parametrize("transport, first, options, shape, storing", [
    ("grpc+unix", 0, (), SHAPE, 1), ("ipc", 10, (), SHAPE, 1), ("grpc", 20, (), SHAPE, 1), ("tcp", 30, (), SHAPE, 1),
    ("grpc+unix", 40, ("--tp-size", "2"), SHAPE, 2), ("ipc", 50, ("--tp-size", "2"), SHAPE, 2),
    ("grpc+unix", 60, ("--tp-size", "2", "--use-mla"), MLA, 1)])
def test_bench_server(server, tmp_path, transport, first, options, shape, storing):
    sequences, chunks = 3, 4
    counters = "lmcache_mp_l1_write_chunks_total", "lmcache_mp_lookup_hit_tokens_total"
    before = [server.counter(name) for name in counters]
    lmcache(*bench_server(server.urls[transport], server, chunks, first, first + sequences, *options, "--format", "json", "--output",
                          tmp_path / "out.json", shape=shape))
    results = json.loads((tmp_path / "out.json").read_text())["metrics"]["results"]
    assert (results["checksum_ok"], results["checksum_fail"]) == (sequences, 0), results
    counted = [server.counter(name) - n for name, n in zip(counters, before)]
    assert counted == [sequences * chunks * storing, sequences * chunks * CHUNK]
    assert server.status()["active_sessions"] == 0


@pytest.mark.parametrize("whose", ["LMCache's", "ringcache's"])
def test_coordinator(tmp_path, whose):
    """LMCache's coordinator, and ours, know what the daemon has in memory, also after a kill of either."""
    if whose == "LMCache's":
        api = pytest.importorskip("lmcache.v1.mp_coordinator.api", reason="0.5.7 has the coordinator's events")
        if not hasattr(api, "CacheEventBatch"):
            pytest.skip("0.5.7 has the coordinator's events")
    [port] = free_ports(1)
    url = "http://127.0.0.1:%d" % port
    command = {"LMCache's": [sys.executable, "-m", "lmcache.v1.mp_coordinator", "--host", "127.0.0.1", "--port", str(port)],
               "ringcache's": [os.environ["RINGCACHE_AGENT"], "directory", "--http", url.removeprefix("http://")]}[whose]
    name = "rctools_%s" % uuid.uuid4().hex[:12]

    def start():
        return subprocess.Popen([*command, "--chunk-size", str(CHUNK)], env=settings(), stdout=log, stderr=log)

    def told():
        try:
            return json.load(urllib.request.urlopen(url + "/directory/stats", timeout=PATIENCE))["l1_count"]
        except (urllib.error.URLError, OSError):
            return -1

    def wait(chunks):
        end = time.monotonic() + PATIENCE
        while told() != chunks:
            assert coordinator.poll() is None and time.monotonic() < end, (tmp_path / "coordinator").read_text()[-4000:]
            time.sleep(0.1)

    with open(tmp_path / "coordinator", "wb") as log:
        coordinator = start()
        made = None
        try:
            made = Server(tmp_path, name, "--lmcache-coordinator", url, "--lmcache-instance", "a")
            lmcache(*bench_server(made.urls["grpc+unix"], made, 4, 0, 3))
            wait(12)
            coordinator.kill()
            coordinator.wait()
            coordinator = start()
            wait(12)
            made.process.kill()
            made.process.wait()
            made = Server(tmp_path, name, "--lmcache-coordinator", url, "--lmcache-instance", "a")
            lmcache(*bench_server(made.urls["grpc+unix"], made, 4, 3, 4))
            wait(16)
            made.close()
            wait(0)
        finally:
            for p in [coordinator, *([made.process] if made else [])]:
                p.kill()
                p.wait()
            for file in pathlib.Path("/dev/shm").glob(name + "*"):
                file.unlink()


def test_bench_server_that_copies_by_itself(server):
    """That mode is not here, and the engine is told which one to set."""
    command = bench_server(server.urls["grpc+unix"], server, 1, 80, 81, mode="lmcache_driven")
    done = subprocess.run([sys.executable, "-m", "lmcache.cli.main", *command], env=settings(), capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode != 0 and "set lmcache.mp.mp_transfer_mode to engine_driven" in done.stdout + done.stderr, done.stdout + done.stderr


def test_ping(server):
    assert re.search(r"Status: +OK", lmcache("ping", "kvcache", "--url", server.http))


def test_describe(server):
    text = lmcache("describe", "kvcache", "--url", server.http)
    assert re.search(r"Health: +OK", text) and re.search(r"Chunk size: +%d" % CHUNK, text), text


def test_status_viewer(server):
    text = run("lmcache.tools.mp_status_viewer", "--url", server.http + "/status")
    assert "HEALTHY" in text and "UNHEALTHY" not in text and "chunk_size: %d" % CHUNK in text, text


def test_kvcache_clear(server):
    lmcache(*bench_server(server.urls["grpc+unix"], server, 1, 90, 91))
    assert server.status()["storage_manager"]["l1_manager"]["total_object_count"] > 0
    assert re.search(r"Status: +OK", lmcache("kvcache", "clear", "--url", server.http))
    assert server.status()["storage_manager"]["l1_manager"]["total_object_count"] == 0


def test_quota(server):
    at = "--url", server.http
    assert re.search(r"Status: +ok", lmcache("quota", "set", "alice", "--limit-gb", "1.5", *at))
    assert re.search(r"Limit \(GB\): +1\.50?\b", lmcache("quota", "get", "alice", *at))
    assert "alice" in lmcache("quota", "list", *at)
    assert re.search(r"Status: +removed", lmcache("quota", "delete", "alice", *at))
    text = lmcache("quota", "get", "alice", *at)  # which has no bound now, and no number
    assert re.search(r"Exists: +False", text), text
    assert "alice" not in lmcache("quota", "list", *at)


class Engine(http.server.BaseHTTPRequestHandler):
    """In place of the engine, of which the script asks one completion first."""

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_):
        pass


def test_http_script(server, tmp_path):
    source = os.environ.get("LMCACHE_SOURCE")
    if not source or not (pathlib.Path(source) / SCRIPT).exists():
        pytest.skip("LMCACHE_SOURCE names no unpacked source distribution of LMCache; the top of this file has the commands")
    if shutil.which("curl") is None:
        pytest.skip("no curl on PATH, which the script runs")
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "lmcache").write_text("#!/bin/sh\nexec %s -m lmcache.cli.main \"$@\"\n" % shlex.quote(sys.executable))
    (programs / "lmcache").chmod(0o755)
    # The script ends at the first difference; without its `set -e` it goes on and counts.
    (tmp_path / "on").write_text('set() { builtin set "$@"; builtin set +e; }\n')
    engine = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Engine)
    threading.Thread(target=engine.serve_forever, daemon=True).start()
    env = {**settings(), "PATH": "%s:%s" % (programs, os.environ["PATH"]), "BASH_ENV": str(tmp_path / "on"), "MODEL": "m",
           "BUILD_ID": "1", "ENGINE_PORT": str(engine.server_port), "LMCACHE_HTTP_PORT": str(server.port),
           "RESULTS_DIR": str(tmp_path / "results"), "no_proxy": "*"}
    try:
        done = subprocess.run(["bash", pathlib.Path(source) / SCRIPT], env=env, capture_output=True, text=True, timeout=PATIENCE)
    finally:
        engine.shutdown()
        engine.server_close()
    assert "=== Summary ===" in done.stdout, done.stdout[-4000:] + done.stderr[-4000:]
    passed = re.findall(r"^PASS: (.*)", done.stdout, re.M)
    failed = [label for label in re.findall(r"^FAIL: (.*)", done.stdout, re.M) if not label.startswith(OWN)]
    print("\n".join(line for line in done.stdout.splitlines() if line.startswith(("PASS", "FAIL"))))
    assert not failed, failed
    for part in ("GET / (", "GET / — status", "GET /healthcheck (", "GET /healthcheck — status", "GET /status (", "GET /status — valid",
                 "GET /metrics (", "GET /metrics — has", "GET /metrics — Prometheus", "POST /cache/clear (", "POST /cache/clear — status",
                 "lmcache describe kvcache — exit", "describe — Health", "describe — L1 capacity", "lmcache kvcache clear — exit",
                 "kvcache clear — OK"):
        assert any(label.startswith(part) for label in passed), part

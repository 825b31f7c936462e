"""vLLM's mirrored LRU caches in one process and lrusync in another, in lockstep over a socket.

The program in lockstep/ makes the requests and compares; this starts it and the real vLLM (lockstep_peer.py).
"""

import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

import pytest

from conftest import HERE, SCALE, _older, _own

# Requests for the environment's own release and for each older one.
REQUESTS = {"sender": (140000, 14000), "receiver": (120000, 12000), "faults": (60000, 12000), "sizes": (2000, 2000)}
# Less under way and more room than usual, so that an item is still wanted when the answer comes that it is missing.
OPTIONS = {"faults": ("--window", "2", "--capacity", "150000.5")}
PATIENCE = 300 * max(1, SCALE)  # seconds for one run

_rows = []


class Table:
    """A plugin that prints what the program counted."""

    HEADS = ("release", "mode", "requests", "items", "hits", "evictions", "oversize", "clears", "invalidations",
             "orders_compared",
             "differences", "failed", "refused_too_large", "refused_ghost", "drops", "swaps", "restarts", "misses",
             "resends", "seconds")

    def pytest_terminal_summary(self, terminalreporter):
        if not _rows:
            return
        terminalreporter.section("mirrored caches in lockstep")
        rows = [[h.replace("_", " ") for h in self.HEADS],
                *[["%.1f" % r[h] if h == "seconds" else str(r[h]) for h in self.HEADS] for r in _rows]]
        widths = [max(len(r[i]) for r in rows) for i in range(len(self.HEADS))]
        for r in rows:
            terminalreporter.line("  ".join(c.rjust(n) if i > 1 else c.ljust(n) for i,
                                            (c, n) in enumerate(zip(r, widths))))


@pytest.fixture(scope="session")
def folder():
    """Short, as the path of a socket has to be."""
    with tempfile.TemporaryDirectory(prefix="rcm") as path:
        yield pathlib.Path(path)


@pytest.fixture(scope="session")
def program(request, folder):
    if not shutil.which("go"):
        pytest.skip("no go on PATH to build the load program with")
    path = folder / "lockstep"
    subprocess.run(["go", "build", "-o", str(path), "./interop/lockstep"], cwd=HERE.parent, check=True)
    request.config.pluginmanager.register(Table())
    return path


@contextlib.contextmanager
def child(*command, **more):
    """A process that ends with the block, however that ends."""
    process = subprocess.Popen([str(c) for c in command], text=True, **more)
    try:
        yield process
    finally:
        if process.stdin:
            process.stdin.close()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class Mirror:
    def __init__(self, version, program, socket):
        self.version, self._program, self._socket = version, program, socket
        self.minor = tuple(map(int, version.split(".")[:2]))

    def run(self, mode, count, *more):
        """Exit status and counts of one run."""
        with child(self._program, mode, "--socket", self._socket, "--generation", self.version, "--requests", count,
                   *more,
                   stdout=subprocess.PIPE) as process:
            try:
                out, _ = process.communicate(timeout=PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        return process.returncode, json.loads(out)


@pytest.fixture(scope="session", params=[_own(), *_older()])
def mirror(request, program, folder):
    version = request.param
    socket = folder / version
    command = [sys.executable, HERE / "lockstep_peer.py", socket]
    if version != _own():
        command.append(pathlib.Path(sys.prefix) / "releases" / version)
    with child(*command, stdin=subprocess.PIPE, env={**os.environ, "VLLM_LOGGING_LEVEL": "ERROR"}) as peer:
        deadline = time.monotonic() + 180
        while not socket.exists():
            assert peer.poll() is None, "the peer ended with status %d" % peer.returncode
            assert time.monotonic() < deadline, "the peer does not listen"
            time.sleep(0.05)
        yield Mirror(version, program, socket)
        assert peer.poll() is None, "the peer ended with status %d" % peer.returncode


def run(mirror, mode):
    count = max(200, int(REQUESTS[mode][mirror.version != _own()] * SCALE))
    status, counts = mirror.run(mode, count, *OPTIONS.get(mode, ()))
    _rows.append(counts)
    assert counts["differences"] == 0 and counts["failed"] == 0, counts
    assert status == 0, counts
    assert counts["requests"] + counts["refused_too_large"] + counts["refused_ghost"] >= count
    assert counts["orders_compared"] > 0
    return counts


@pytest.mark.parametrize("mode", ["sender", "receiver"])
def test_orders_stay_equal(mirror, mode):
    counts = run(mirror, mode)
    if SCALE >= 1:
        assert min(counts[k] for k in ("hits", "evictions", "clears")) > 0, counts


def test_lost_and_reordered_requests_fail_nobody(mirror):
    if mirror.minor < (0, 28):
        pytest.skip("an engine of this release dies of a lost request")
    counts = run(mirror, "faults")
    if SCALE >= 1:
        assert min(counts[k] for k in ("drops", "swaps", "restarts", "misses", "resends")) > 0, counts
        # What was missed is known from then on: only a second accident makes a request miss again.
        assert counts["missed_again"] * 6 < counts["misses"], counts


def test_sizes_of_random_items(mirror):
    counts = run(mirror, "sizes")
    assert SCALE < 1 or counts["unsized"] > 0, counts


def test_the_order_of_modalities_is_noticed(mirror):
    """These tests must be able to fail: a sender that goes modality by modality, as vLLM's own does, drifts."""
    if (0, 12) <= mirror.minor < (0, 24):
        pytest.skip("an engine of this release may hang for ever then")
    status, counts = mirror.run("sender", 500, "--by-modality")
    assert status == 1
    assert counts["differences"] > 0, counts

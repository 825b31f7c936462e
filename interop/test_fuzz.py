"""`ringcache fuzz` with every release: rings, stores, LRU caches and mirrored caches, compared operation by operation."""

import concurrent.futures
import os
import subprocess
import sys

import pytest

import conftest

OPS = max(100, int(600 * conftest.SCALE))  # of each family: a start of vLLM takes longer
RELEASES = [conftest._own(), *conftest._older()]
ENVIRONMENT = dict(os.environ)


def fuzz(release, *args):
    # With an environment of its own: pytest changes this process's between tests, while threads start programs from it.
    command = [os.environ["RINGCACHE_AGENT"], "fuzz", *args, "--release", release, "--against", "vllm", "--python",
               sys.executable]
    if release != RELEASES[0]:
        command += ["--vllm-path", os.path.join(sys.prefix, "releases", release)]
    return subprocess.run(command, capture_output=True, text=True, timeout=3600, env=ENVIRONMENT)


@pytest.fixture(scope="module")
def runs():
    """All releases, two at a time: most of a run is the import of vLLM."""
    if not os.environ.get("RINGCACHE_AGENT"):
        pytest.fail("RINGCACHE_AGENT must name the ringcache program")
    with concurrent.futures.ThreadPoolExecutor(2) as threads:
        yield {r: threads.submit(fuzz, r, "all", "--ops", str(OPS), "--seed", "1") for r in RELEASES}


@pytest.mark.parametrize("release", RELEASES)
def test_no_differences(runs, release):
    done = runs[release].result()
    print(done.stdout, done.stderr)
    assert done.returncode == 0
    lines = [s for s in done.stdout.splitlines() if s.endswith(" 0 differences")]
    assert [s.split(",")[0] for s in lines] == ["ring", "store", "lru", "pair"]


def test_a_planted_difference_is_found(runs, tmp_path):
    """A system under test that reports the third chunk of a ring 8 bytes too far, and vLLM beside it."""
    wrong = tmp_path / "wrong.py"
    wrong.write_text("""
import json, subprocess, sys
agent = subprocess.Popen([sys.argv[1], "agent"], stdin=sys.stdin, stdout=subprocess.PIPE)
for line in agent.stdout:
    reply = json.loads(line)
    if reply.get("id") == 2 and "address" in reply:
        reply["address"] += 8
    print(json.dumps(reply), flush=True)
""")
    system = "%s %s %s" % (sys.executable, wrong, os.environ["RINGCACHE_AGENT"])
    done = fuzz(RELEASES[0], "ring", "--system", system, "--ops", "2000", "--seed", "1", "--length", "40")
    assert done.returncode == 1, done.stdout + done.stderr
    shown = [s.strip() for s in done.stdout.splitlines() if s.strip().startswith('{"op"')]
    assert [s.split('"')[3] for s in shown] == ["ring.new", "ring.alloc", "ring.alloc", "ring.alloc"], done.stdout
    assert "again: ringcache fuzz ring" in done.stdout
    assert "1 differences" in done.stdout

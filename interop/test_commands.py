"""What `ringcache ls` and `ringcache inspect` show of a segment that the real vLLM has."""

import json
import os
import subprocess

import pytest
from harness import RING, PyWriter


def ringcache(*args):
    done = subprocess.run([os.environ["RINGCACHE_AGENT"], *args, "--json"], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_segment_of_vllm(pool, segment, closing):
    """Every object that vLLM has put since the begin of its ring is there, with its id and place, and so is its process."""
    name, release = segment(), pool.release
    writer = closing(PyWriter(pool.writer, release, name, 1))
    uses = [["put", "key-%d" % i, 7, i] for i in range(20)]
    writer.issue_send(uses)
    handles = [(a[1], a[2]) for a in writer.issue_receive() if a[0] == "handle"]
    first_lap = [h for h in handles if h[0] < RING]
    if len(first_lap) < len(handles):
        pytest.skip("the ring has wrapped")
    assert len(handles) > 3
    shown = ringcache("inspect", name)
    assert [(o["address"], o["id"]) for o in shown["objects"]] == handles
    assert all(o["reads"] == 0 and o["state"] == "unknown" for o in shown["objects"])
    assert shown["segment"]["data_offset"] == (32 if release.signed else 0)
    [listed] = [s for s in ringcache("ls") if s["name"] == name]
    assert listed["state"] == "foreign" and listed["objects"] == len(handles)
    assert pool.writer._process.pid in listed["open_by"]

"""Random objects in volume, from each writer to readers of both kinds, through a ring that wraps and evicts all the time."""

import pytest

from conftest import SCALE
from harness import RING, GoReader, GoWriter, PyReader, PyWriter, Segment, check_balance, drain, drive
from objects import MIB

# Objects for 1, 2 and 4 readers. More readers cost more per object and find no other bytes, but other interleavings.
COUNTS = {1: 13000, 2: 4500, 4: 2500}


def run(table, release, direction, writer, readers, name, count, policy="fifo"):
    count = max(50, int(count * SCALE))
    n = len(readers)
    result = drive(writer, readers, "%s/%s/%d/%s" % (release.version, direction, n, policy), count)
    table([release.version, direction, n, policy, result.objects, result.hits, result.bytes // MIB, result.fulls,
           len(result.differences), "%.1f" % result.seconds])
    assert result.objects == count
    assert not result.differences, result.differences[:5]
    if SCALE >= 1:
        assert result.bytes > 2 * RING, "the ring must wrap many times"
    check_balance(writer, n, Segment(name, release, RING))
    drain(writer, fifo=policy == "fifo")


@pytest.mark.parametrize("n", [1, 2, 4])
def test_go_writes_vllm_reads(pool, agents, segment, closing, table, n):
    name, release = segment(), pool.release
    writer = closing(GoWriter(agents[0], release, name, n))
    readers = [closing(PyReader(p, release, name, n)) for p in pool.readers[:n]]
    run(table, release, "go->vllm", writer, readers, name, COUNTS[n])


@pytest.mark.parametrize("n", [1, 2])
def test_go_writes_vllm_reads_pool(pool, agents, segment, closing, table, n):
    """The same under the policy pool: what differs is where objects lie, and what goes to make room."""
    name, release = segment(), pool.release
    writer = closing(GoWriter(agents[0], release, name, n, policy="pool"))
    readers = [closing(PyReader(p, release, name, n)) for p in pool.readers[:n]]
    run(table, release, "go->vllm", writer, readers, name, 3000, policy="pool")


@pytest.mark.parametrize("n", [1, 2, 4])
def test_vllm_writes_go_reads(pool, agents, segment, closing, table, n):
    name, release = segment(), pool.release
    if not release.writer_works:
        pytest.skip("the writer of this release overwrites live chunks")
    writer = closing(PyWriter(pool.writer, release, name, n))
    readers = [closing(GoReader(a, release, name, n, pool.lock_name)) for a in agents[1:1 + n]]
    run(table, release, "vllm->go", writer, readers, name, COUNTS[n])


@pytest.mark.parametrize("kind", ["go", "vllm"])
def test_mixed_readers(pool, agents, segment, closing, table, kind):
    """Two readers of each kind count on one ring under one lock."""
    name, release = segment(), pool.release
    if kind == "go":
        writer = closing(GoWriter(agents[0], release, name, 4))
    elif release.writer_works:
        writer = closing(PyWriter(pool.writer, release, name, 4))
    else:
        pytest.skip("the writer of this release overwrites live chunks")
    readers = [closing(PyReader(p, release, name, 4)) for p in pool.readers[:2]]
    readers += [closing(GoReader(a, release, name, 4, pool.lock_name)) for a in agents[1:3]]
    run(table, release, "%s->mixed" % kind, writer, readers, name, 1200)

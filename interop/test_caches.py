"""The real caches of a vLLM server and of its workers, each with Go on the other side.

What travels between them is what travels in a deployment: encoded address items, or the encoded object itself when it
could not be stored.
"""

import random

import pytest

import objects
from agent import AgentError
from conftest import SCALE
from harness import GoReader, GoWriter, Segment, check_balance, drain, normal_state
from objects import MIB

SIZE, MAX_MIB = 3 * MIB, 1


def requests(seed, count):
    """Requests of one to four different keys out of a working set that is larger than the ring; a few are too large."""
    rng = random.Random(seed)
    for _ in range(max(40, int(count * SCALE))):
        numbers = {rng.randrange(30 if rng.random() < 0.4 else 500) for _ in range(rng.randint(1, 4))}
        yield [("%s-%d" % (seed, n), seed, n) for n in sorted(numbers)]


def check_sent(sent):
    if SCALE >= 1:
        assert min(sent.values()) > 0, sent


@pytest.mark.parametrize("n", [1, 2])
def test_go_feeds_receiver_caches(pool, agents, segment, closing, n):
    release, agent, name = pool.release, agents[0], segment()
    writer = closing(GoWriter(agent, release, name, n, size=SIZE, max_object=MAX_MIB * MIB))
    workers = pool.readers[:n]
    for w in workers:
        w.call("receiver", store="cache", name=name, size=SIZE, max_mib=MAX_MIB, readers=n)
    sent = {"hit": 0, "new": 0, "inline": 0}
    try:
        for request in requests("receive/%d" % n, 400):
            items = []
            hits = [agent.call("store.cached", store="w", key=key)["cached"] for key, _, _ in request]
            if release.touches:
                for key, _, _ in request:
                    agent.call("store.touch", store="w", key=key)
            for (key, seed, number), hit in zip(request, hits):
                if not release.touches:  # nothing protected it since; the server of these releases asked again, too
                    hit = agent.call("store.cached", store="w", key=key)["cached"]
                value = objects.value(seed, number, **release.options)
                try:
                    if hit:
                        h = agent.call("store.lookup", store="w", key=key)
                    else:
                        h = agent.call("store.put", store="w", key=key, value=value)
                    signature = {"signature": h["signature"]} if release.signed else {}
                    frames = [agent.call("address_item", address=h["address"], id=h["id"], generation=release.version,
                                         **signature)["hex"]]
                    sent["hit" if hit else "new"] += 1
                except AgentError as e:
                    assert e.kind in ("full", "too_large"), e
                    if value["type"] != "item":
                        continue  # only items can travel inline
                    frames = agent.call("serde.encode", value=value, generation=release.version)["frames"]
                    sent["inline"] += 1
                items.append((key, seed, number, frames))
            if release.signed:
                agent.call("store.release_touches", store="w")
            for w in workers:
                w.send("receive_request", store="cache", items=items, options=release.options)
            for w in workers:
                assert w.receive() == []
        check_sent(sent)
        check_balance(writer, n, Segment(name, release, SIZE))
        drain(writer)
    finally:
        for w in workers:
            w.drain()
            w.call("close", store="cache")


@pytest.mark.parametrize("n", [1, 2])
def test_sender_cache_feeds_go(pool, agents, segment, closing, n):
    release, name = pool.release, segment()
    if not release.writer_works:
        pytest.skip("the writer of this release overwrites live chunks")
    pool.writer.call("sender", store="cache", name=name, size=SIZE, max_mib=MAX_MIB, readers=n)
    sent = {"hit": 0, "new": 0, "inline": 0}

    class Sender:
        def state(self):
            return normal_state(pool.writer.call("sender_state", store="cache"))

    try:
        readers = [closing(GoReader(a, release, name, n, pool.lock_name, size=SIZE, max_object=MAX_MIB * MIB))
                   for a in agents[1:1 + n]]
        decoder = agents[0]
        for request in requests("send/%d" % n, 400):
            # Only items: a server has nothing else to cache.
            request = [k for k in request if objects.value(k[1], k[2], **release.options)["type"] == "item"]
            handles = []
            for (key, seed, number), (_, hit, stored, frames) in zip(request,
                pool.writer.call("send_request", store="cache", keys=request, options=release.options)):
                got = decoder.call("serde.decode", frames=frames, kind="item", generation=release.version)["value"]
                if not stored:
                    assert objects.difference(objects.value(seed, number, **release.options), got) is None
                    sent["inline"] += 1
                    continue
                data = {f["name"]: f["data"] for f in got["fields"]}
                assert list(data) == ["address", "monotonic_id", *(["signature"] if release.signed else [])]
                handles.append((key, seed, number, data["address"], data["monotonic_id"], data.get("signature")))
                sent["hit" if hit else "new"] += 1
            for r in readers:
                r.read_send([handles])
            for r in readers:
                assert r.read_receive() == []
        check_sent(sent)
        check_balance(Sender(), n, Segment(name, release, SIZE))
    finally:
        pool.writer.drain()
        pool.writer.call("close", store="cache")

"""A server that is killed again and again, and vLLM's workers, which attached once and go on reading.

The places at which it can be killed are taken one by one in objstore's TestKillMatrix; here it is killed by the clock of
its own answers, and the readers are the real ones.
"""

import random

import pytest

from agent import Agent, AgentError, AgentGone
from conftest import SCALE
from harness import PyReader, go_handle
import objects

SIZE = 4 << 20  # so small that every server evicts
KILLS = max(10, int(60 * SCALE))  # of the newest release; a quarter for each older one


class Server:
    """An agent with a pool, created by the first and adopted by each later one."""

    def __init__(self, release, name, readers, adopt):
        self.agent, self.release = Agent(), release
        self.made = self.agent.call("store.adopt" if adopt else "store.create", store="w", name=name, size=SIZE,
                                    max_object=SIZE,
                                    readers=readers, generation=release.version, policy="pool")

    def close(self):
        self.agent.close()  # which removes the segment, if it was not killed

    def call(self, op, **fields):
        return self.agent.call("store." + op, store="w", **fields)

    def put(self, request, key, number):
        return go_handle(self.call("put", key=key, request=request,
                                   value=objects.value("kills", number, **self.release.options)))


@pytest.mark.parametrize("n", [2])
def test_workers_go_on_reading_when_the_server_is_killed(pool, segment, closing, n):
    release, name, rng = pool.release, segment(), random.Random(7)
    number, kept, in_use, read, wrong = 0, 0, 0, 0, []
    server = closing(Server(release, name, n, adopt=False))
    readers = [closing(PyReader(p, release, name, n, size=SIZE)) for p in pool.readers[:n]]

    def deliver(uses):
        nonlocal read
        for r in readers:
            r.read_send([[u] for u in uses])
        for r in readers:
            wrong.extend(r.read_receive())
        read += len(uses) * n

    kills = KILLS if pool.newest else KILLS // 4
    for life in range(kills):
        flying = []  # uses of requests that were sent, which no worker has read
        for i in range(rng.randint(1, 6)):
            request = "%d-%d" % (life, i)
            server.call("begin", request=request)
            uses = []
            for _ in range(rng.randint(1, 3)):
                number += 1
                key = "key%d" % number
                try:
                    uses.append((key, "kills", number, *server.put(request, key, number)))
                except AgentError as e:
                    assert e.kind in ("full", "too_large"), e
            server.call("commit", request=request)
            if rng.random() < 0.3:
                deliver(uses)
                server.call("finish", request=request)
            else:
                flying += uses
        # Killed in the middle of work that no request waits for.
        for i in range(30):
            op = rng.choice(["put", "evict", "lookup", "fence", "free_unused"])
            if op == "fence" and flying:
                op = "put"  # a fence would be a lie
            fields = {}
            if op in ("put", "evict", "lookup"):
                fields["key"] = "key%d" % (number + 1000 + i if op == "put" else rng.randint(1, number))
            if op == "put":
                fields["value"] = objects.value("kills", rng.randint(1, number), **release.options)
            server.agent.send("store." + op, store="w", **fields)
        server.agent.flush()
        try:
            for _ in range(rng.randint(0, 30)):
                try:
                    server.agent.receive()
                except AgentError as e:
                    assert e.kind in ("exists", "full", "too_large", "not_found"), e
        except AgentGone:
            pytest.fail("the server ended before it was killed:\n" + server.agent.log())
        server.agent.kill()

        rng.shuffle(flying)
        early = flying[:len(flying) // 2]
        deliver(early)  # the segment has no owner now
        server = closing(Server(release, name, n, adopt=True))
        assert server.made["dropped"] <= 1, "more than what was being written was lost: %s" % server.made
        kept, in_use = kept + server.made["kept"], in_use + server.made["in_use"]
        server.call("begin", request="filler")
        for _ in range(12):  # far more than fits, so that all goes that may
            number += 1
            try:
                server.put("filler", "key%d" % number, number)
            except AgentError as e:
                assert e.kind in ("full", "too_large"), e
        server.call("rollback", request="filler")
        deliver(flying[len(early):])
        server.call("fence")
    server.call("free_unused")
    state = server.call("state")
    assert not wrong, wrong[:5]
    assert (state["used_bytes"], state["leases"], state["quarantined"]) == (0, 0, 0)
    server.call("close")
    print("%d kills, %d objects adopted, %d of them in use, %d reads by vLLM %s, all right" % (kills, kept, in_use,
        read, release.version))

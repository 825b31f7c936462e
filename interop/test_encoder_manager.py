"""The encoder cache manager of Go and the real EncoderCacheManager of each release, compared after every step.

RINGCACHE_INTEROP_SCALE=35 makes it 100,000 steps for each release.
"""

import collections
import contextlib
import random

import pytest

from agent import AgentError
from conftest import SCALE

STEPS, BATCH = max(1000, int(3000 * SCALE)), 250
# Capacity, items, and which part of the capacity the largest item takes. In the first, a few of a request's many inputs are
# cached at a time, which makes sets in no ascending order.
SHAPES = [(20, 60, 4), (10, 6, 2), (200, 60, 20), (60, 12, 4)]


class Walk:
    """Random steps with the requests of a scheduler. None of them depends on what another one returned."""

    def __init__(self, seed, about, drift):
        self.rng = rng = random.Random("%s/%d" % (drift, seed))
        self._about, self._drift, self._count = about, drift, 0
        self.capacity, items, part = SHAPES[seed % len(SHAPES)]
        self.counts = {"h%d" % n: rng.randint(0, self.capacity // rng.choice([part, 2 * part])) for n in range(items)}
        self.live = {}

    def _request(self):
        rng = self.rng
        inputs = [[h, self.counts[h]] for h in rng.choices(list(self.counts), k=rng.choice([1, 2, 3, 5, 20, 70]))]
        if self._drift:  # two items under one identifier
            for i in inputs:
                if rng.random() < 0.1:
                    i[1] = rng.randint(0, self.capacity // 2)
        name = "r%d" % self._count
        self._count += 1
        self.live[name] = inputs
        return name

    def batch(self, count):
        """New requests, and steps."""
        rng, new, steps = self.rng, {}, []
        while len(steps) < count:
            if not self.live or rng.random() < 0.08 and len(self.live) < 30:
                name = self._request()
                new[name] = self.live[name]
            x, name = rng.random(), rng.choice(list(self.live))
            inputs = self.live[name]
            number = rng.randrange(len(inputs))
            budget, scheduled = rng.choice([10**6, 10**6, self.capacity // 3]), rng.choice([0, 0, 0,
                rng.randrange(self.capacity)])
            if x < 0.03:
                steps += [["sched", name, n, budget, 0] for n in rng.sample(range(len(inputs)), min(12, len(inputs)))]
            elif x < 0.55:
                steps.append(["sched", name, number, budget, scheduled])
            elif x < 0.58:
                steps.append(["check", name, number])
            elif x < 0.61:
                steps.append(["can", name, number, budget, scheduled])
            elif x < 0.75:
                steps.append(["free_input", name, number])
            elif x < 0.85:
                steps.append(["free", name])
                if rng.random() < 0.7:
                    del self.live[name]
            elif x < 0.9:
                steps.append(["inputs", name])
            elif x < 0.96:
                steps.append(["freed"])
            elif x < 0.99 and self._about["embeds"]:
                steps.append(["embeds", inputs[number][0]])
            elif x > 0.998 and self._about["reset"]:
                steps.append(["reset"])
        return new, steps


class Manager:
    """Go's, by the agent."""

    def __init__(self, agent, capacity, release):
        self._agent, self._requests = agent, {}
        agent.call("encoder.new", encoder="manager", capacity=capacity, generation=release.version)

    def close(self):
        self._agent.drain()
        self._agent.call("encoder.close", encoder="manager")

    def add(self, requests):
        for name, inputs in requests.items():
            self._requests[name] = [{"identifier": h, "embeds": n} for h, n in inputs]

    def _operations(self, step, result):
        """What makes up a step, if all of it goes as it did in vLLM: the operation, its arguments, the reply."""
        verb, *a = step
        if verb == "sched":
            yield "check", a[:2], {}, {"hit": result == "hit"}
            if result != "hit":
                yield "can_allocate", a[:2], {"budget": a[2], "scheduled": a[3]}, {"fits": result == "alloc"}
            if result == "alloc":
                yield "allocate", a[:2], {}, {}
        elif verb == "can":
            yield "can_allocate", a[:2], {"budget": a[2], "scheduled": a[3]}, {"fits": result}
        elif verb == "embeds":
            yield verb, [], {"identifier": a[0]}, {"found": False} if result is None else {"found": True,
                "embeds": result}
        else:
            yield verb, a, {}, {"check": {"hit": result}, "inputs": {"cached": result},
                                "freed": {"freed": result}}.get(verb, {})

    def send(self, step, result):
        """Returns the replies that must come."""
        wanted = []
        for operation, names, fields, want in self._operations(step, result):
            if names:
                fields.update(request=names[0], inputs=self._requests[names[0]])
            if len(names) > 1:
                fields["input"] = names[1]
            self._agent.send("encoder." + operation, encoder="manager", **fields)
            wanted.append(want)
        self._agent.send("encoder.state", encoder="manager")
        return wanted

    def receive(self, step, wanted, state):
        for want in wanted:
            reply = self._agent.receive()
            assert want.items() <= reply.items(), (step, want, reply)
        s = self._agent.receive()
        assert [s["free"], s["freeable"], s["cached"], s["released"]] == state, step


@pytest.mark.parametrize("drift", [False, True], ids=["", "drift"])
def test_random_walks(pool, agents, drift):
    """drift: requests have different numbers of embeddings for one identifier, which users can choose."""
    seen, done, seed = collections.Counter(), 0, -1
    while done < STEPS // 2:
        seed += 1
        about = pool.writer.call("encoder_open", capacity=0)
        walk = Walk(seed, about, drift)
        pool.writer.call("encoder_open", capacity=walk.capacity)
        with contextlib.closing(Manager(agents[0], walk.capacity, pool.release)) as manager:
            for _ in range(2):
                requests, steps = walk.batch(BATCH)
                answers = pool.writer.call("encoder_run", requests=requests, steps=steps)
                manager.add(requests)
                sent = [manager.send(step, result) for step, (result, _) in zip(steps, answers)]
                for step, wanted, (result, state) in zip(steps, sent, answers):
                    manager.receive(step, wanted, state)
                    count(seen, step, result)
                done += len(steps)
    # A walk that met nothing would prove little.
    if SCALE >= 1:
        assert min(seen[k] for k in ("hit", "alloc", "no", "evicted", "disorder")) > 0, seen


def count(seen, step, result):
    if step[0] == "sched":
        seen[result] += 1
    elif step[0] == "freed":
        seen["evicted"] += len(result)
    elif step[0] == "inputs":
        seen["disorder"] += result != sorted(result)


def test_refused_allocations(pool, agents):
    """What vLLM asserts is refused here, and changes nothing."""
    about = pool.writer.call("encoder_open", capacity=10)
    requests = {"r": [["a", 4]], "s": [["b", 7]], "t": [["a", 5]]}
    pool.writer.call("encoder_run", requests=requests, steps=[["sched", "r", 0, 9, 0]])
    with contextlib.closing(Manager(agents[0], 10, pool.release)) as manager:
        manager.add(requests)
        state = [6, 6, {"a": ["r"]}, []]
        manager.receive("first", manager.send(["sched", "r", 0, 9, 0], "alloc"), state)
        for name in ["s", "t"]:
            with pytest.raises(AgentError, match="cached|there is room for 6") as e:
                agents[0].call("encoder.allocate", encoder="manager", request=name, inputs=manager._requests[name],
                               input=0)
            assert e.value.kind == "invalid"
            manager.receive(name, manager.send(["embeds", "a"], 4), state)
    (no_room, _), (other_count, _) = pool.writer.call("encoder_run", requests={},
                                                      steps=[["allocate", "s", 0], ["allocate", "t", 0]])
    assert no_room == "AssertionError"
    assert (other_count == "AssertionError") == about["embeds"]

"""What goes wrong with the lifetimes of objects in vLLM's ring, and that it can't under the policy `pool`.

Tests begin with the name of a hazard in docs/hazards.md. A test of what vLLM does (`_upstream`) asserts the bad outcome; the
test of the same scenario with our writer and leases is `_pool`. The workers are vLLM's own receiver caches, one
process per rank; the server is vLLM's sender cache, our writer with the policy `fifo`, which does the same, or our
writer with the policy `pool`. Nothing is left to chance: where two ranks race, their steps are ordered here.
"""

import collections
import contextlib
import itertools
import multiprocessing.resource_tracker
import os
import struct
import sys
import time

import pytest

import hazards_peer
from agent import Agent, AgentError
from conftest import _own
from harness import FULL_TEXT, Release, Segment, check_text, go_handle, normal_state
from objects import MIB, content
from peer import PeerError

NEW = _own()  # handles are signed, one use is one read
OLD = "0.31.0"  # touches are counted, ids restart; the last of its kind
BOTH = pytest.mark.parametrize("version", [OLD, NEW])
STALE = "Data for address:id '%d:%d' has been modified or is invalid."

OBJECT = 100_000  # bytes of data in a usual object
FOUR = 4 * (OBJECT + 400)  # a ring that holds four of them, and no fifth
ROOMY = 2 * MIB  # a pool that holds some more, so that its own overhead plays no role
COUNT = 8  # where in a chunk the readers' count is


def item(n, tag):
    return {"type": "item", "fields": [{"name": "x", "data": {"dtype": "uint8", "shape": [n], "xof": tag},
                                        "field": {"kind": "batched"}}]}


def item_values(*keys, size=OBJECT):
    """What requests have under these keys."""
    return [item(size, "%s/%d" % (key, size)) for key in keys]


@contextlib.contextmanager
def closed_if_failing(thing):
    try:
        yield
    except BaseException:
        thing.close()
        raise


# -- who is who --------------------------------------------------------------------------------------------------------

class Request:
    """What a server sent for one request: per child (n > 1 makes several) a list of [key, frames]."""

    def __init__(self, name, keys, values, children, handles, stored):
        self.name, self.keys, self.values, self.children, self.handles, self.stored = name, keys, values, children, handles, stored


class Front:
    """A server: makes requests, and can tell the counts of an object."""

    numbers = itertools.count()

    def entry(self, key):
        """(address, id) of a cached object."""
        return self.state()["key_index"][key]

    def counts(self, key):
        """(issued, read) as the two sides of the protocol have counted."""
        state = self.state()
        number = state["key_index"][key][1]
        return state["writer_flag"][number], state["reader_flag"][number]

    def cached(self, key):
        return key in self.state()["key_index"]

    def finish(self, request):
        """The engine said that the request is finished, which this server does not tell its cache."""


class VllmFront(Front):
    """vLLM's own sender cache."""

    def __init__(self, family, name, size, max_mib, n):
        self.p0 = family.fork()
        with closed_if_failing(self.p0):
            self.p0.call("sender", store="p0", name=name, size=size, max_mib=max_mib, readers=n)

    def request(self, *keys, n=1, size=OBJECT, inject=False):
        values = item_values(*keys, size=size)
        sent = self.p0.call("inject" if inject else "accept", store="p0", items=[list(x) for x in zip(keys, values)])
        items = [(key, frames) for key, (_, frames) in zip(keys, sent)]
        # The engine copies a request for its children, with the handles in it.
        return Request("r%d" % next(self.numbers), keys, values, [items] * n, None, [stored for stored, _ in sent])

    def state(self):
        return normal_state(self.p0.call("sender_state", store="p0"))

    def clear(self):
        self.p0.call("clear_cache", store="p0")

    def close(self):
        self.p0.close()


class GoFront(Front):
    """Our writer. The frames that it sends are address items, or the object itself when there was no room."""

    policy = None

    def __init__(self, release, name, size, max_mib, n, adopt=False, **more):
        self.agent, self.release = Agent(), release
        with closed_if_failing(self.agent):
            self.made = self.call("adopt" if adopt else "create", name=name, size=size, max_object=int(max_mib * MIB),
                                  readers=n,
                                  generation=release.version, policy=self.policy, **more)

    def call(self, op, **fields):
        return self.agent.call("store." + op, store="w", **fields)

    def error(self, op, **fields):
        return self.agent.error("store." + op, store="w", **fields)

    def frames(self, handle):
        signature = {"signature": handle[2]} if handle[2] else {}
        return [self.agent.call("address_item", address=handle[0], id=handle[1], generation=self.release.version,
                                **signature)["hex"]]

    def inline(self, value):
        return self.agent.call("serde.encode", value=value, generation=self.release.version)["frames"]

    def state(self):
        return normal_state(self.raw_state())

    def raw_state(self):
        return self.call("state")

    def clear(self):
        self.call("clear")

    def close(self):
        try:
            self.call("unlink")
            self.call("close")
        finally:
            assert self.agent.close() == 0


class FifoFront(GoFront):
    policy = "fifo"

    def request(self, *keys, n=1, size=OBJECT):
        values, items, handles = item_values(*keys, size=size), [], []
        hits = [self.call("cached", key=key)["cached"] for key in keys]
        if self.release.touches:
            for key in keys:
                self.call("touch", key=key)
        for key, value, hit in zip(keys, values, hits):
            try:
                if hit or self.call("cached", key=key)["cached"]:
                    handle = go_handle(self.call("lookup", key=key))
                else:
                    handle = go_handle(self.call("put", key=key, value=value))
            except AgentError as e:
                check_text(e, "full", FULL_TEXT)
                handle = None
            handles.append(handle)
            items.append((key, self.frames(handle) if handle else self.inline(value)))
        if self.release.signed:
            self.call("release_touches")
        return Request("r%d" % next(self.numbers), keys, values, [items] * n, [handles] * n,
                       [h is not None for h in handles])


class PoolFront(GoFront):
    """With leases: one handle for each child."""

    policy = "pool"

    def request(self, *keys, n=1, size=OBJECT, handles=None, commit=True):
        """handles: how many of the children get one of their own; the others a copy of the last, as an engine that fans out makes it."""
        name, values = "r%d" % next(self.numbers), item_values(*keys, size=size)
        self.call("begin", request=name)
        made = []
        for _ in range(handles or n):
            made.append([self._issue(name, key, value) for key, value in zip(keys, values)])
        made += [made[-1]] * (n - len(made))
        children = [[(key, self.frames(h) if h else self.inline(v)) for key, v, h in zip(keys, values, m)]
                    for m in made]
        if commit:
            self.call("commit", request=name)
        return Request(name, keys, values, children, made, [h is not None for h in made[0]])

    def _issue(self, name, key, value):
        try:
            if self.call("cached", key=key)["cached"]:
                return go_handle(self.call("lookup", key=key, request=name))
            return go_handle(self.call("put", key=key, value=value, request=name))
        except AgentError as e:
            check_text(e, "full")
            return None

    def finish(self, request):
        self.call("finish", request=request.name)

    def abort(self, request):
        self.call("abort", request=request.name)

    def rollback(self, request):
        self.call("rollback", request=request.name)

    def fence(self):
        self.call("fence")

    def evict(self, key):
        return self.call("evict", key=key)["evicted"]


class Scene:
    """A segment with a server that writes it and the workers that read it."""

    def __init__(self, front, family, lock, name, size, max_mib, n):
        self.front, self.family, self.lock, self.name, self.size, self.max_mib, self.n = front, family, lock, name, size, max_mib, n
        self.segment = Segment(name, family.release, size)
        self.ranks, self._delivered, self._filled = [], set(), itertools.count()

    def start(self, index=None):
        """The worker of one rank, or all of them. Those that were there are ended."""
        if index is None:
            for rank in self.ranks:
                rank.close()
            self.ranks = []
            for i in range(self.n):
                self.start(i)
            return
        rank = self.family.fork(self.lock)
        if index < len(self.ranks):
            self.ranks[index].close()
        self.ranks[index:index + 1] = [rank]
        rank.call("receiver", store="c", name=self.name, size=self.size, max_mib=self.max_mib, readers=self.n)

    def deliver(self, rank, request, child=0):
        name = "%s.%d" % (request.name, child)
        if (id(rank), name) not in self._delivered:
            rank.call("deliver", store="c", request=name, items=request.children[child])
            self._delivered.add((id(rank), name))
        return name

    def touch(self, rank, request, i=0):
        """The first half of what a rank does with a request; get is the second."""
        rank.call("touch_feature", store="c", request=self.deliver(rank, request), index=i)

    def get(self, rank, request, i=0):
        assert rank.call("get_feature", store="c", request=self.deliver(rank, request), index=i,
                         value=request.values[i]) is None

    def resolve_send(self, rank, request, child=0, values=None):
        name = self.deliver(rank, request, child)
        self._delivered.discard((id(rank), name))  # the same may come again
        rank.send("resolve", store="c", request=name, values=values or request.values)

    def resolve(self, request, child=0, values=None, ranks=None):
        """Ranks resolve a request one after the other. The bytes must be right."""
        for rank in ranks or self.ranks:
            self.resolve_send(rank, request, child, values)
            assert rank.receive() == []

    def failure(self, rank, request, child=0):
        """(type, text) of what the rank dies of when it resolves the request."""
        self.resolve_send(rank, request, child)
        try:
            answer = rank.receive()
        except PeerError as e:
            return e.type, e.text
        raise AssertionError("the rank resolved it: %s" % (answer or "with the right bytes"))

    def fill(self, count, ranks=None):
        """New objects, each read by all at once. Returns how many of them found room."""
        stored = 0
        for _ in range(count):
            request = self.front.request("fill-%d" % next(self._filled))
            self.resolve(request, ranks=ranks)
            self.front.finish(request)
            stored += request.stored[0]
        return stored

    def unprotected(self, key):
        """By its counts the object is free."""
        issued, read = self.front.counts(key)
        return read >= issued * self.n

    def pinned_for_ever(self, key="a"):
        """The ring has come to a halt behind this object, of four that it has room for."""
        assert self.fill(10) == 3
        assert self.fill(10) == 0
        assert self.front.cached(key) and not self.unprotected(key)

    def evicted_in_flight(self, request, key="a"):
        """By its counts the object is free although a request in flight needs it: the next pressure takes it away."""
        assert self.front.cached(key) and self.unprotected(key)
        assert self.fill(4) == 4
        assert not self.front.cached(key)
        kind, text = self.failure(self.ranks[-1], request)
        assert kind == "ValueError" and "has been modified or is invalid" in text, text

    def settle(self):
        """Pool: nothing holds anything any more; every object can go, and can be put again."""
        state = self.front.raw_state()
        assert (state["leases"], state["quarantined"]) == (0, 0)
        keys = sorted(state["key_index"])
        for key in keys:
            assert self.front.evict(key), key
        assert self.front.raw_state()["used_bytes"] == 0
        for key in [*keys, "one more"]:
            request = self.front.request(key)
            assert request.stored == [True], key
            self.resolve(request)
            self.front.finish(request)
        assert self.fill(30) == 30

    def close(self):
        for rank in self.ranks:
            rank.close()
        try:
            self.front.close()
        finally:
            self.family.drop(self.lock)


@pytest.fixture(scope="session")
def families():
    """The process of each release, made when it is first asked for."""
    made = {}
    with contextlib.ExitStack() as stack:
        def family(version):
            if version not in made:
                path = None if version == NEW else os.path.join(sys.prefix, "releases", version)
                f = made[version] = stack.enter_context(contextlib.closing(hazards_peer.Family(path)))
                f.release = Release(version, f.about)
            return made[version]
        yield family


@pytest.fixture
def scene(families, segment, closing):
    def make(version, server="vllm", n=2, size=None, max_mib=1, **more):
        family, name = families(version), segment()
        size = size or (ROOMY if server == "pool" else FOUR)
        if server == "vllm":
            front = VllmFront(family, name, size, max_mib, n)
        else:
            kind = {"fifo": FifoFront, "pool": PoolFront}[server]
            front = kind(family.release, name, size, max_mib, n, **more)
        s = closing(Scene(front, family, family.lock(), name, size, max_mib, n))
        s.start()
        return s
    return make


# -- same_step, blocked_head: two requests with one new image in one step ----------------------------------------------

def one_rank_ahead(s):
    """All ranks but the last are through with the first request, and have touched for the second, before the last begins."""
    first, second = s.front.request("a"), s.front.request("a")
    *ahead, last = s.ranks
    for rank in ahead:
        s.touch(rank, first)
        s.get(rank, first)
        s.touch(rank, second)
    s.touch(last, first)
    s.get(last, first)
    s.touch(last, second)
    for rank in s.ranks:
        s.get(rank, second)
    return first, second


@pytest.mark.parametrize("n,read,want", [(2, 5, 6), (4, 9, 12), (8, 17, 24)])
def test_same_step_upstream_pins_the_object(scene, n, read, want):
    s = scene(OLD, n=n)
    one_rank_ahead(s)
    issued, counted = s.front.counts("a")
    assert (counted, issued * n) == (read, want)
    s.pinned_for_ever()


def test_same_step_upstream_is_mended_in_0_32(scene):
    s = scene(NEW, n=4)
    one_rank_ahead(s)
    assert s.front.counts("a") == (2, 8)
    assert s.fill(10) == 10


@BOTH
@pytest.mark.parametrize("n", [2, 4, 8])
def test_same_step_pool(scene, version, n):
    s = scene(version, "pool", n=n)
    first, second = one_rank_ahead(s)
    s.front.finish(first)
    assert not s.front.evict("a"), "the second request holds it"
    s.front.finish(second)
    s.settle()


def three_at_once(s):
    """Requests of two items, resolved whole: one rank has touched for the second while the other has not begun the first."""
    requests = [s.front.request("a", "b%d" % i) for i in range(3)]
    lead, other = s.ranks
    s.resolve(requests[0], ranks=[lead])
    for i in (0, 1):
        s.touch(lead, requests[1], i)
    s.resolve(requests[0], ranks=[other])
    for i in (0, 1):
        s.get(lead, requests[1], i)
    s.resolve(requests[1], ranks=[other])
    s.resolve(requests[2])
    return requests


def test_blocked_head_upstream_blocks_the_head_of_the_ring(scene):
    """Under our writer with the same protocol. The counts of the oldest chunk are one short, and nothing behind it can go."""
    s = scene(OLD, "fifo")
    three_at_once(s)
    issued, counted = s.front.counts("a")
    assert (counted, issued * 2) == (9, 10)
    for key in ("b0", "b1", "b2"):
        assert s.unprotected(key)  # read by all, and yet they stay
    assert s.fill(10) == 0
    assert all(s.front.cached(key) for key in ("a", "b0", "b1", "b2"))
    e = s.front.error("put", key="new", value=item(OBJECT, "new"))
    check_text(e, "full", FULL_TEXT)
    assert "was read 9 of 10 times" in e.text


@BOTH
def test_blocked_head_pool(scene, version):
    s = scene(version, "pool")
    for request in three_at_once(s):
        s.front.finish(request)
    s.settle()


# -- never_arrives, unsent_use: what was issued is never read ----------------------------------------------------------

@BOTH
@pytest.mark.parametrize("server", ["vllm", "fifo"])
def test_never_arrives_upstream_pins_the_object(scene, version, server):
    s = scene(version, server)
    s.front.request("a")  # too long, or cancelled in the queue: no worker ever hears of it
    assert s.front.counts("a") == (1, 0)
    s.pinned_for_ever()


@BOTH
def test_never_arrives_pool(scene, version):
    s = scene(version, "pool")
    lost = s.front.request("a")
    s.front.abort(lost)
    assert not s.front.evict("a"), "a worker may still read it"
    assert s.front.raw_state()["quarantined"] == 1
    assert s.fill(30) == 30  # it stays, and blocks nothing
    s.front.fence()
    s.settle()


def test_unsent_use_upstream_touch_without_lookup_pins_the_object(scene):
    s = scene(OLD)
    s.resolve(s.front.request("a"))
    s.front.p0.call("touch_sender", store="p0", key="a")  # and then processing another item of the request failed
    assert s.front.counts("a") == (2, 2)
    s.pinned_for_ever()


def test_unsent_use_upstream_hit_pins_the_object(scene):
    s = scene(NEW)
    s.front.p0.call("touch_sender", store="p0", key="a")
    s.resolve(s.front.request("a"))
    assert s.unprotected("a")  # a touch alone does no harm any more
    s.front.request("a")
    assert s.front.counts("a") == (2, 2)
    s.pinned_for_ever()


@BOTH
def test_never_arrives_pool_fence_is_for_what_came_before(scene, version):
    s = scene(version, "pool")
    before, after = s.front.request("before"), s.front.request("after")
    s.front.abort(before)
    s.front.fence()
    s.front.abort(after)
    assert s.front.evict("before")
    assert not s.front.evict("after")
    s.front.fence()
    s.settle()


@BOTH
def test_never_arrives_pool_without_requests(scene, version):
    """A handle that no request owns holds its object until it was read, or a fence passes."""
    s = scene(version, "pool")
    for fence in (False, True):
        handle = go_handle(s.front.call("put", key="a", value=item_values("a")[0]))
        assert not s.front.evict("a")
        if fence:
            s.front.fence()
        else:
            s.resolve(Request("anonymous", ["a"], item_values("a"), [[("a", s.front.frames(handle))]], None, [True]))
        assert s.front.evict("a")
    s.settle()


@BOTH
def test_never_arrives_pool_by_time(scene, version):
    """The time to live ends a quarantine too, but not of what some ranks have read: the others may be about to."""
    s = scene(version, "pool", quarantine_ttl=0.2)
    half, unread = s.front.request("half"), s.front.request("unread")
    s.resolve(half, ranks=s.ranks[:1])
    s.front.abort(half)
    s.front.abort(unread)
    deadline = time.monotonic() + 180
    while not s.front.evict("unread"):
        assert time.monotonic() < deadline
    assert not s.front.evict("half")  # although it was aborted before
    s.resolve(half, ranks=s.ranks[1:])
    s.settle()


@BOTH
@pytest.mark.parametrize("hit", [False, True])
def test_unsent_use_pool(scene, version, hit):
    s = scene(version, "pool")
    if hit:
        first = s.front.request("a")
        s.resolve(first)
        s.front.finish(first)
        assert s.unprotected("a")
    lost = s.front.request("a", commit=False)
    assert not s.front.evict("a")
    s.front.rollback(lost)  # never sent: nothing to wait for
    assert not s.front.cached("a") or s.unprotected("a")
    s.settle()


# -- many_children, injected_items, resumed_request, image_twice, resumed_hit: read more often than issued -------------

@BOTH
def test_many_children_upstream_use_up_later_protection(scene, version):
    s = scene(version)
    fanned = s.front.request("a", n=2)
    for child in (0, 1):
        s.resolve(fanned, child)
    assert s.front.counts("a") == (1, 6 if version == OLD else 4)
    s.evicted_in_flight(s.front.request("a"))


@BOTH
@pytest.mark.parametrize("handles", [3, 1])
def test_many_children_pool(scene, version, handles):
    """Also with a single handle for all: the lease holds the object, not the counts."""
    s = scene(version, "pool")
    fanned = s.front.request("a", n=3, handles=handles)
    for child in range(3):
        s.resolve(fanned, child)
        assert not s.front.evict("a")
    s.front.finish(fanned)
    hit = s.front.request("a")
    assert s.fill(30) == 30
    assert not s.front.evict("a")
    s.resolve(hit)
    s.front.finish(hit)
    s.settle()


@BOTH
def test_many_children_pool_counts_that_ran_ahead_end_no_quarantine(scene, version):
    s = scene(version, "pool", rereads=True)
    fanned = s.front.request("a", n=3, handles=1)
    for child in range(3):
        s.resolve(fanned, child)
    s.front.finish(fanned)
    cancelled = s.front.request("a")
    s.front.abort(cancelled)
    assert s.fill(30) == 30
    assert not s.front.evict("a")
    s.resolve(cancelled)  # it was on its way
    s.front.fence()
    s.settle()


def test_injected_items_upstream_are_counted_by_workers_only(scene):
    s = scene(OLD)
    for counts in ((1, 2), (2, 6)):
        s.resolve(s.front.request("a", inject=True))
        assert s.front.counts("a") == counts
    s.evicted_in_flight(s.front.request("a", inject=True))


def test_injected_items_upstream_is_mended_in_0_32(scene):
    s = scene(NEW)
    for i in range(3):
        s.resolve(s.front.request("a", inject=True))
        assert s.front.counts("a") == (i + 1, 2 * i + 2)


@BOTH
def test_injected_items_pool(scene, version):
    """There is no touch that one could forget."""
    s = scene(version, "pool")
    for _ in range(3):
        request = s.front.request("a")
        assert s.fill(30) == 30
        s.resolve(request)
        s.front.finish(request)
    s.settle()


@BOTH
def test_resumed_request_upstream_finds_its_object_gone(scene, version):
    s = scene(version)
    request = s.front.request("a")
    s.resolve(request)
    # Preempted here: the engine will send it to the workers once more, as if it were new.
    s.evicted_in_flight(request)


@BOTH
def test_resumed_request_pool(scene, version):
    s = scene(version, "pool", rereads=True)
    request = s.front.request("a")
    for _ in range(3):
        s.resolve(request)
        assert s.fill(30) == 30
    s.front.finish(request)
    s.settle()


@BOTH
def test_resumed_request_pool_aborted_while_preempted(scene, version):
    """Complete counts prove nothing here; without such engines they do."""
    s = scene(version, "pool", rereads=True)
    request = s.front.request("a")
    s.resolve(request)
    s.front.abort(request)
    assert s.fill(30) == 30
    assert not s.front.evict("a")
    s.resolve(request)
    s.front.fence()
    s.settle()

    s = scene(version, "pool")
    request = s.front.request("a")
    s.front.abort(request)
    assert not s.front.evict("a")
    s.resolve(request)
    s.settle()


def test_image_twice_upstream_uses_up_later_protection(scene):
    s = scene(OLD)
    s.resolve(s.front.request("a", "a"))
    assert s.front.counts("a") == (2, 6)
    hit = s.front.request("a")
    s.resolve(hit, ranks=s.ranks[:1])
    s.evicted_in_flight(hit)


def test_image_twice_upstream_is_mended_in_0_32(scene):
    s = scene(NEW)
    s.resolve(s.front.request("a", "a", "a"))
    assert s.front.counts("a") == (3, 6)


@BOTH
def test_image_twice_pool(scene, version):
    s = scene(version, "pool")
    twice = s.front.request("a", "a")
    s.resolve(twice)
    s.front.finish(twice)
    hit = s.front.request("a")
    s.resolve(hit, ranks=s.ranks[:1])
    assert s.fill(30) == 30
    s.resolve(hit, ranks=s.ranks[1:])
    s.front.finish(hit)
    s.settle()


@BOTH
def test_resumed_hit_upstream_uses_up_later_protection(scene, version):
    s = scene(version)
    request = s.front.request("a")
    for _ in range(2):
        s.resolve(request)
    assert s.front.counts("a") == (1, 6 if version == OLD else 4)
    s.evicted_in_flight(s.front.request("a"))


@BOTH
def test_resumed_hit_pool(scene, version):
    s = scene(version, "pool", rereads=True)
    request = s.front.request("a")
    for _ in range(2):
        s.resolve(request)
    s.front.finish(request)
    hit = s.front.request("a")
    s.resolve(hit, ranks=s.ranks[:1])
    assert s.fill(30) == 30
    s.resolve(hit, ranks=s.ranks[1:])
    s.front.finish(hit)
    s.settle()


# -- clear_under_request, reused_id, reset_under_request: clearing with requests in flight -----------------------------

def test_clear_under_request_upstream_gives_the_dog_for_the_cat(scene):
    s = scene(OLD)
    cat = s.front.request("cat")
    place = s.front.entry("cat")
    s.front.clear()
    dog = s.front.request("dog")
    assert s.front.entry("dog") == place == [0, 0]
    assert cat.values != dog.values
    s.resolve(cat, values=dog.values)  # no error, and the bytes of the dog


@BOTH
def test_clear_under_request_pool(scene, version):
    s = scene(version, "pool")
    cat = s.front.request("cat")
    check_text(s.front.error("clear"), "invalid")
    s.resolve(cat)
    s.front.finish(cat)
    s.front.clear()
    dog = s.front.request("dog")
    assert dog.handles[0][0][1] > cat.handles[0][0][1]
    # Not even an engine that comes again when it is over gets the dog.
    kind, text = s.failure(s.ranks[0], cat)
    assert kind == "ValueError" and text == STALE % tuple(cat.handles[0][0][:2])
    s.resolve(dog)
    s.front.finish(dog)
    s.settle()


def test_reused_id_upstream_reads_of_an_old_handle_count_for_a_new_object(scene):
    s = scene(OLD)
    old = s.front.request("x")
    s.front.clear()
    new = s.front.request("a")
    s.resolve(old, values=new.values)
    assert s.front.counts("a") == (1, 2)
    s.evicted_in_flight(new)


def test_reused_id_upstream_is_mended_in_0_32(scene):
    s = scene(NEW)
    old = s.front.request("x")
    s.front.clear()
    s.front.request("a")
    assert s.front.entry("a") == [0, 1]
    assert s.failure(s.ranks[0], old) == ("ValueError", STALE % (0, 0))
    assert s.front.counts("a") == (1, 0)


@BOTH
def test_reused_id_pool(scene, version):
    s = scene(version, "pool")
    ids = []
    for i in range(5):
        request = s.front.request("k%d" % i)
        ids.append(request.handles[0][0][1])
        s.resolve(request)
        s.front.finish(request)
        s.front.clear()
        assert s.front.raw_state()["used_bytes"] == 0
    assert ids == sorted(set(ids)), "an id came again"
    s.settle()


def test_reset_under_request_upstream_fails_the_workers(scene):
    s = scene(NEW)
    request = s.front.request("a")
    s.front.clear()  # nothing said that it was needed
    assert s.fill(4) == 4
    assert s.failure(s.ranks[0], request) == ("ValueError", STALE % (0, 0))


@BOTH
def test_reset_under_request_pool(scene, version):
    s = scene(version, "pool")
    request, queued = s.front.request("a"), s.front.request("b", commit=False)
    for _ in range(2):
        check_text(s.front.error("clear"), "invalid")
        assert s.fill(30) == 30
    s.resolve(request)
    s.front.finish(request)
    check_text(s.front.error("clear"), "invalid")
    s.front.rollback(queued)
    s.front.clear()
    assert s.front.raw_state()["used_bytes"] == 0
    s.settle()


# -- stripped_handle: the engine takes the handle out of the request ---------------------------------------------------

def test_stripped_handle_upstream_fails_the_worker(scene):
    """Releases whose workers assert and builds whose scheduler strips handles never met in a release (see docs/hazards.md)."""
    s = scene("0.16.0")
    request = s.front.request("a")
    s.ranks[0].call("deliver", store="c", request="stripped", items=[["a", None]])
    s.ranks[0].send("resolve", store="c", request="stripped", values=request.values)
    with pytest.raises(PeerError) as e:
        s.ranks[0].receive()
    assert e.value.type == "AssertionError"


@BOTH
def test_stripped_handle_pool_items_are_not_stripped(scene, version):
    """vLLM's own function that strips knows our items as handles, and leaves them in."""
    s = scene(version, "pool")
    request, covered = s.front.request("a"), 1000
    for rank in s.ranks:
        assert rank.call("strip", request=s.deliver(rank, request), computed=covered) == 1
    s.resolve(request)
    plain = [["b", s.front.inline(item(OBJECT, "b"))]]
    s.ranks[0].call("deliver", store="c", request="plain", items=plain)
    assert s.ranks[0].call("strip", request="plain", computed=covered) == 0
    s.front.finish(request)
    s.settle()


# -- stale_touch -------------------------------------------------------------------------------------------------------

BIG = 180_000
MARK = "big3"  # random bytes that make a plausible chunk where the old one was, see the assertion


def test_stale_touch_upstream_changes_a_byte_of_another_object(scene):
    s = scene(OLD)
    s.resolve(s.front.request("z"))
    fanned = s.front.request("a", n=2)
    for child in (0, 1):
        s.resolve(fanned, child)
    hit = s.front.request("a")
    address, number = s.front.entry("a")
    assert s.unprotected("a")
    assert s.fill(2) == 2
    big = s.front.request(MARK, size=BIG)  # over z and a
    assert s.front.entry(MARK)[0] == 0 and not s.front.cached("a") and 0 < address < BIG
    _, chunk, count = s.segment.chunk(address)
    assert chunk > 12 and count >= s.n, "choose another MARK"
    before = s.segment.ring()
    s.touch(s.ranks[0], hit)
    after = s.segment.ring()
    changed = [i for i, (x, y) in enumerate(zip(before, after)) if x != y]
    assert changed == [address + COUNT] and after[address + COUNT] == before[address + COUNT] + 1
    # That rank dies of the handle. The others know nothing, and get another image than was put.
    assert s.failure(s.ranks[0], hit) == ("ValueError", STALE % (address, number))
    s.resolve_send(s.ranks[1], big)
    at = after.index(content(big.values[0]["fields"][0]["data"])[-20000:]) - (BIG - 20000)
    assert s.ranks[1].receive() == ["x: bytes differ, first at %d of %d" % (address + COUNT - at, BIG)]


@BOTH
def test_stale_touch_pool(scene, version):
    s = scene(version, "pool")
    fanned = s.front.request("a", n=2, handles=1)
    for child in (0, 1):
        s.resolve(fanned, child)
    s.front.finish(fanned)
    hit = s.front.request("a")
    assert s.fill(30) == 30
    big = [s.front.request("%s%d" % (MARK, i), size=BIG) for i in range(4)]
    s.touch(s.ranks[0], hit)
    for request in [*big, hit]:
        s.resolve(request)
        s.front.finish(request)
    s.settle()


# -- dead_worker, fixed_name, death_in_lock: processes that are killed -------------------------------------------------

def test_dead_worker_upstream_leaves_its_share_unread(scene):
    s = scene(NEW)
    request = s.front.request("a")
    s.resolve(request, ranks=s.ranks[:1])
    s.ranks[1].kill()
    s.start(1)
    assert s.front.counts("a") == (1, 1)
    s.pinned_for_ever()


@BOTH
@pytest.mark.parametrize("readers", [2, 3])
def test_dead_worker_pool(scene, version, readers):
    """A worker that dies takes its engine with it; the next one may be of another size."""
    s = scene(version, "pool")
    done = s.front.request("done")
    s.resolve(done)
    s.front.finish(done)
    for keys in (["a"], ["a", "b"]):
        s.resolve(s.front.request(*keys), ranks=s.ranks[:1])
    queued = s.front.request("done", commit=False)
    s.ranks[1].kill()
    s.n = readers
    s.start()
    s.front.call("reset_readers", readers=readers)
    s.front.call("commit", request=queued.name)  # only now it is sent, to the new ones
    s.resolve(queued)
    s.front.finish(queued)
    for key in ("a", "b", "done"):  # the contents are warm
        assert s.front.cached(key)
        request = s.front.request(key)
        assert request.stored == [True]
        s.front.abort(request)
        assert not s.front.evict(key)
        s.resolve(request)  # the counts begin anew: complete ones mean something
        assert s.front.evict(key)
    s.settle()


def test_fixed_name_upstream_of_a_killed_server_is_taken(scene):
    s = scene(NEW)
    s.front.p0.kill()
    # Its children would outlive it and keep CPython's resource tracker, as here; a killed container has none left.
    multiprocessing.resource_tracker.unregister("/" + s.name, "shared_memory")
    try:
        with pytest.raises(PeerError) as e:
            VllmFront(s.family, s.name, s.size, s.max_mib, s.n)
        assert e.value.type == "FileExistsError"
    finally:
        os.unlink("/dev/shm/" + s.name)


@BOTH
def test_fixed_name_pool(scene, version):
    s = scene(version, "pool")
    kept, sent = s.front.request("kept"), s.front.request("sent")
    s.resolve(kept)
    s.front.finish(kept)
    s.front.call("begin", request="torn")
    s.front.call("reserve", key="torn", value=item(OBJECT, "torn"), request="torn")
    before = s.front.state()["key_index"]
    s.front.agent.kill()
    s.front = PoolFront(s.family.release, s.name, s.size, s.max_mib, s.n, adopt=True)
    assert (s.front.made["kept"], s.front.made["in_use"]) == (2, 1)
    assert s.front.state()["key_index"] == before
    again = s.front.request("kept")
    assert again.handles == kept.handles
    s.resolve(again)
    s.front.finish(again)
    # What the dead one had sent may still be read.
    assert s.fill(30) == 30
    assert not s.front.evict("sent")
    s.resolve(sent)
    s.front.fence()
    new = s.front.request("torn")
    assert new.handles[0][0][1] > max(number for _, number in before.values()), "ids go on"
    s.resolve(new)
    s.front.finish(new)
    s.settle()


def semaphore(lock):
    """The value of a lock of workers: 1 is free."""
    with open("/dev/shm/sem." + lock.lstrip("/"), "rb") as f:
        return struct.unpack("<I", f.read(4))[0]


def die_in_the_lock(s, request):
    rank = s.ranks[0]
    assert semaphore(s.lock) == 1
    rank.call("stop_in_lock", store="c")
    s.resolve_send(rank, request)
    assert rank.receive() == "in the lock"
    rank.kill()
    assert semaphore(s.lock) == 0  # and it stays so


def test_death_in_lock_upstream_stops_all_other_workers(scene):
    s = scene(NEW, n=3)
    request = s.front.request("a")
    die_in_the_lock(s, request)
    s.start(0)
    for rank in s.ranks:
        s.resolve_send(rank, request)
    try:
        for rank in s.ranks:
            assert not rank.answers_within(0.7), rank.receive()
        assert s.front.counts("a") == (1, 0)
    finally:
        for rank in s.ranks:
            rank.kill()


def test_death_in_lock_pool(scene, closing):
    """vLLM's workers and their lock are out of reach: they hang here, too. Ours say so, and the store goes on."""
    s = scene(NEW, "pool")
    request = s.front.request("a")
    die_in_the_lock(s, request)
    reader = closing(Agent())
    reader.call("store.open", store="r", name=s.name, size=s.size, max_object=MIB, readers=s.n, generation=NEW,
                lock=s.lock)
    address, number, signature = request.handles[0][0]
    check_text(reader.error("store.get", store="r", key="a", address=address, id=number, signature=signature),
               "timeout")
    reader.call("store.close", store="r")
    assert not s.front.evict("a")
    s.front.finish(request)  # with an error, as the engine gave up
    assert s.front.evict("a")
    assert s.front.raw_state()["used_bytes"] == 0
    assert s.front.request("a").stored == [True]
    # The engine is started anew, with another lock.
    s.family.drop(s.lock)
    s.lock = s.family.lock()
    s.start()
    s.front.call("reset_readers", readers=s.n)
    s.settle()


# -- first_release: it frees what is in use ----------------------------------------------------------------------------

def rolling(s, count):
    """Objects of many sizes, each resolved when six newer ones were issued. Yields the requests as they are issued."""
    window = collections.deque()
    for i in range(count):
        window.append(s.front.request("k%d" % i, size=1000 + 7001 * (i * i % 13)))
        yield window[-1]
        if len(window) > 6:
            s.resolve(window[0])
            s.front.finish(window.popleft())
    while window:
        s.resolve(window[0])
        s.front.finish(window.popleft())


def test_first_release_upstream_overwrites_live_objects(scene):
    s = scene("0.11.0", n=1, max_mib=0.1)
    unread, places, overlaps = collections.deque(maxlen=7), {}, []
    with pytest.raises(PeerError) as e:
        for request in rolling(s, 60):
            key = request.keys[0]
            unread.append(key)
            if request.stored[0]:
                address = s.front.entry(key)[0]
                start, end = places[key] = (address % s.size, address % s.size + s.segment.chunk(address)[1])
                overlaps += [k for k in unread if k != key and k in places and places[k][0] < end
                             and start < places[k][1]]
    assert overlaps[:1] == ["k%d" % (int(key[1:]) - 6)], "the one that could not be read was overwritten"
    assert e.value.type == "ValueError" and "has been modified or is invalid" in e.value.text, e.value


@pytest.mark.parametrize("version", ["0.11.0", OLD, NEW])
def test_first_release_pool(scene, version):
    s = scene(version, "pool", n=1, max_mib=0.1)
    assert sum(request.stored[0] for request in rolling(s, 200)) == 200
    s.settle()


# -- straddling_count: counts across cache lines -----------------------------------------------------------------------

def count_words(s):
    """Where the counts of all live objects are, from the start of the segment, which is mapped at the start of a page."""
    return [s.family.release.offset + address % s.size + COUNT for address, _ in s.front.state()["key_index"].values()]


def sizes(s):
    for i in range(100):
        request = s.front.request("k%d" % i, size=1000 + 13 * i)
        s.resolve(request)
        s.front.finish(request)


@BOTH
def test_straddling_count_upstream_spans_two_cache_lines(scene, version):
    """A count that is changed under the readers' lock and read without it by the writer, in two halves."""
    s = scene(version)
    sizes(s)
    words = count_words(s)
    assert len(words) == 100
    assert sum(w % 4 != 0 for w in words) >= 50
    assert sum(w % 64 > 60 for w in words) >= 1


@BOTH
def test_straddling_count_pool(scene, version):
    s = scene(version, "pool")
    sizes(s)
    words = count_words(s)
    assert len(words) == 100
    assert all(w % 4 == 0 and w % 64 <= 60 for w in words)
    s.settle()


# -- failed_copy -------------------------------------------------------------------------------------------------------

def test_failed_copy_upstream_poisons_the_ring(scene):
    s = scene(NEW)
    s.resolve(s.front.request("a"))
    s.front.p0.call("fail_copy", store="p0")
    assert s.front.p0.error("accept", store="p0", items=[["bad", item(OBJECT, "bad")]]).type == "OSError"
    assert s.fill(2) == 2
    # The ring is full. Making room forgets a, comes to a chunk that no table knows, and gives up in the middle.
    error = s.front.p0.error("accept", store="p0", items=[["new", item(OBJECT, "new")]])
    assert (error.type, error.text) == ("KeyError", "1")
    assert s.front.cached("a"), "the key tables still have what the ring gave away"
    assert s.fill(1) == 1  # over a
    kind, text = s.failure(s.ranks[0], s.front.request("a"))
    assert (kind, text) == ("ValueError", STALE % (0, 0))
    for _ in range(3):  # from now on every request with a new image fails
        assert s.front.p0.error("accept", store="p0", items=[["new", item(OBJECT, "new")]]).type == "KeyError"


@BOTH
def test_failed_copy_pool(scene, version):
    s = scene(version, "pool")
    for i in range(40):  # more than there is room for
        s.front.call("begin", request="torn")
        s.front.call("reserve", key="bad", value=item(OBJECT, "bad"), request="torn")
        s.front.call("fill", key="bad", field="x", offset=i, hex="00ff")
        assert not s.front.cached("bad")
        s.front.call("discard", key="bad")
        s.front.call("rollback", request="torn")
    assert s.front.raw_state()["used_bytes"] == 0
    # A put that fails on the way leaves nothing either.
    check_text(s.front.error("put", key="bad", value={"type": "tensor",
                                                      "data": {"dtype": "uint8", "shape": [5], "hex": "00"}}),
                                                      "invalid")
    check_text(s.front.error("put", key="bad", value=item(2 * MIB, "too large")), "too_large")
    assert s.front.raw_state()["used_bytes"] == 0
    request = s.front.request("bad")
    s.resolve(request)
    s.front.finish(request)
    s.settle()


# -- replaced_while_decoded --------------------------------------------------------------------------------------------

def stopped(s, request, after=False, values=None):
    """The first rank in the middle of a get."""
    rank = s.ranks[0]
    rank.call("stop_decoding", store="c", after=after)
    s.resolve_send(rank, request, values=values)
    assert rank.receive() == ("decoded" if after else "decoding")
    return rank


def test_replaced_while_decoded_upstream_gives_other_bytes(scene):
    s = scene(NEW, n=1)
    cat = s.front.request("cat")
    rank = stopped(s, cat, values=item_values("dog"))  # the id was right
    s.front.clear()
    dog = s.front.request("dog")
    rank.send("go")
    assert rank.receive() == []  # no error, and the bytes of the dog
    assert s.front.counts("dog") == (1, 1)  # for which it was counted, too
    s.evicted_in_flight(dog, "dog")


def test_replaced_while_decoded_upstream_count_lands_in_the_middle_of_pixels(scene):
    s = scene(NEW)
    s.resolve(s.front.request("z"))
    cat = s.front.request("cat")
    address = s.front.entry("cat")[0]
    rank = stopped(s, cat, after=True)
    s.front.clear()
    big = s.front.request("big", size=BIG)
    assert 0 < address < BIG
    before = s.segment.ring()
    rank.send("go")
    assert rank.receive() == []
    after = s.segment.ring()
    assert [i for i, (x, y) in enumerate(zip(before, after)) if x != y] == [address + COUNT]
    s.resolve_send(s.ranks[1], big)
    assert "bytes differ" in s.ranks[1].receive()[0]


@BOTH
@pytest.mark.parametrize("after", [False, True])
def test_replaced_while_decoded_pool(scene, version, after):
    s = scene(version, "pool")
    cat = s.front.request("cat")
    rank = stopped(s, cat, after)
    s.resolve(cat, ranks=s.ranks[1:])
    check_text(s.front.error("clear"), "invalid")
    assert not s.front.evict("cat")
    assert s.fill(30, ranks=s.ranks[1:]) == 30
    rank.send("go")
    assert rank.receive() == []
    assert s.front.counts("cat")[1] == s.n  # all are its own
    s.front.finish(cat)
    s.settle()


# -- count_overflow, two_gib_object: numbers that end ------------------------------------------------------------------

def set_count(s, key, count):
    with open("/dev/shm/" + s.name, "r+b") as f:
        f.seek(s.family.release.offset + s.front.entry(key)[0] % s.size + COUNT)
        f.write(struct.pack("<i", count))


LIMIT = 2**31 - 1


def test_count_overflow_upstream_hot_object_overflows_its_count(scene):
    s = scene(NEW)
    s.resolve(s.front.request("a"))
    set_count(s, "a", LIMIT)
    for _ in range(2):
        request = s.front.request("a")
        for rank in s.ranks:
            kind, text = s.failure(rank, request)
            assert kind == "OverflowError", text


@BOTH
@pytest.mark.parametrize("count", [1 << 30, LIMIT])
def test_count_overflow_pool(scene, version, count):
    """Long before, the count begins again when no request needs the object."""
    s = scene(version, "pool")
    request = s.front.request("a")
    s.resolve(request)
    set_count(s, "a", count)
    s.front.finish(request)
    assert s.front.counts("a")[1] == 0
    for _ in range(3):
        request = s.front.request("a")
        s.resolve(request)
        assert s.unprotected("a")
        s.front.finish(request)
    s.settle()


@BOTH
def test_count_overflow_pool_never_idle(scene, version):
    """Reads can run ahead of what was issued (resumed_request), and there may always be a request that holds the object."""
    s = scene(version, "pool", rereads=True)
    first = s.front.request("a")
    s.resolve(first)
    set_count(s, "a", LIMIT)
    second = s.front.request("a")
    s.resolve(second)
    s.front.finish(second)
    s.front.finish(first)
    s.settle()


GIB2 = 1 << 31


def need_memory(size):
    with open("/proc/meminfo") as f:
        memory = next(int(line.split()[1]) for line in f if line.startswith("MemAvailable"))
    shm = os.statvfs("/dev/shm")
    if min(memory << 10, shm.f_bavail * shm.f_frsize) < size:
        pytest.skip("needs %d GiB of memory" % (size >> 30))


def test_two_gib_object_upstream_fails_the_request(scene):
    """Although ring and limit are larger."""
    need_memory(6 << 30)
    s = scene(NEW, size=3 << 30, max_mib=3000)
    error = s.front.p0.error("accept_zeros", store="p0", key="huge", nbytes=GIB2)
    assert error.type == "OverflowError", error
    assert not s.front.cached("huge")
    assert s.front.state()["ring"]["metadata"] == {}


def test_two_gib_object_pool(scene):
    need_memory(6 << 30)
    s = scene(NEW, "pool", n=1, size=GIB2 + 64 * MIB, max_mib=GIB2 // MIB + 64)
    huge = {"type": "item", "fields": [{"name": "x", "data": {"dtype": "uint8", "shape": [GIB2]},
                                        "field": {"kind": "batched"}}]}
    s.front.call("begin", request="huge")
    check_text(s.front.error("reserve", key="huge", value=huge, request="huge"), "too_large")
    s.front.call("rollback", request="huge")
    assert s.front.raw_state()["used_bytes"] == 0
    s.settle()

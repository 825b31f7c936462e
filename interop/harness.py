"""The two implementations behind one pair of interfaces, and the loop that drives a writer and its readers.

A writer has issue_send/issue_receive: a batch of uses, each answered by ["handle", address, id, signature], ["full"] or
["gone"]. A reader has read_send/read_receive: a batch of handles, answered by a list of differences, which has to be
empty. Sending and receiving are apart so that all processes work at the same time.
"""

import collections
import os
import random
import struct
import time

import objects
from agent import AgentError
from objects import MIB

RING = 32 * MIB
LARGEST = 8 * MIB
MAX_OBJECT = LARGEST + 64 * objects.KIB  # tensors are not all of a stored object
FULL_TEXT = "Not enough space in the data buffer, try calling free_buf() to free up space"
OFFSET = 32  # bytes in front of the ring where handles are signed


class Release:
    """A wire generation: what a test needs to know about the release that its workers run."""

    def __init__(self, version, about):
        self.version, self.signed, self.touches, self.keeps = version, about["signed"], about["touches"], about["keeps"]
        self.bare = not about["keyed"]  # an item without fields can be built
        # Between 0.12 and 0.31 touching counted; since then it protects on the writer's side and counts nothing.
        self.counts_touches = self.touches and not self.signed
        self.offset = OFFSET if self.signed else 0
        self.options = {"keep": self.keeps, "bare": self.bare}
        # The writer of 0.11.0 overwrites live chunks: it can only be read to, not from.
        self.writer_works = version != "0.11.0"


def check_text(e, kind, upstream=None):
    assert isinstance(e, AgentError), "the agent accepted it"
    assert e.kind == kind, e
    if upstream is not None:
        assert e.upstream == upstream


def go_handle(reply):
    """[address, id, signature] of the agent's answer; the signature as the list of ints that it is in Python."""
    sign = reply.get("signature")
    return [reply["address"], reply["id"], None if sign is None else list(bytes.fromhex(sign))]


def normal_state(s):
    """A state from either side in one form."""
    ints = lambda d: {int(k): v for k, v in (d or {}).items()}
    ring = s.get("ring") or {}
    return {"key_index": {k: list(v) for k, v in s["key_index"].items()}, "writer_flag": ints(s["writer_flag"]),
            "reader_flag": ints(s["reader_flag"]), "touched": sorted(s.get("touched") or []),
            "ring": {**{k: ring.get(k) for k in ("start", "end", "id_start", "id_end")},
                     "metadata": ints(ring.get("metadata"))}}


class GoWriter:
    def __init__(self, agent, release, name, readers, size=RING, max_object=MAX_OBJECT, policy="fifo", store="w",
                 **more):
        self.agent, self.release, self.store = agent, release, store
        agent.call("store.create", store=store, name=name, size=size, max_object=max_object, readers=readers,
                   generation=release.version, policy=policy, **more)

    def issue_send(self, uses):
        self._uses = uses
        for verb, key, seed, number in uses:
            if verb == "put":
                self.agent.send("store.put", store=self.store, key=key,
                                value=objects.value(seed, number, **self.release.options))
            else:
                if self.release.touches:
                    self.agent.send("store.touch", store=self.store, key=key)
                self.agent.send("store.lookup", store=self.store, key=key)
        if self.release.signed:
            self.agent.send("store.release_touches", store=self.store)
        self.agent.flush()

    def issue_receive(self):
        out = []
        for verb, *_ in self._uses:
            try:
                if verb == "look" and self.release.touches:
                    self.agent.receive()
                r = self.agent.receive()
                out.append(["handle", *go_handle(r)])
            except AgentError as e:
                if verb == "put" and e.kind == "full":
                    out.append(["full"])
                elif verb == "look" and e.kind == "not_found":
                    out.append(["gone"])
                else:
                    raise
        if self.release.signed:
            self.agent.receive()
        return out

    def state(self):
        return normal_state(self.agent.call("store.state", store=self.store))

    def free_unused(self):
        self.agent.call("store.free_unused", store=self.store)

    def close(self):
        self.agent.drain()
        self.agent.call("store.unlink", store=self.store)
        self.agent.call("store.close", store=self.store)


class PyWriter:
    def __init__(self, peer, release, name, readers, size=RING, max_object=MAX_OBJECT, store="w", **more):
        self.peer, self.release, self.store = peer, release, store
        peer.call("create", store=store, name=name, size=size, max_object=max_object, readers=readers, **more)

    def issue_send(self, uses):
        self.peer.send("issue", store=self.store, uses=uses, options=self.release.options)

    def issue_receive(self):
        return self.peer.receive()

    def state(self):
        return normal_state(self.peer.call("state", store=self.store))

    def free_unused(self):
        self.peer.call("free_unused", store=self.store)

    def close(self):
        self.peer.drain()
        self.peer.call("close", store=self.store)


class GoReader:
    def __init__(self, agent, release, name, readers, lock, size=RING, max_object=MAX_OBJECT, store="r"):
        self.agent, self.release, self.store = agent, release, store
        agent.call("store.open", store=store, name=name, size=size, max_object=max_object, readers=readers,
                   generation=release.version, lock=lock)

    def read_send(self, groups):
        self._groups = groups
        for group in groups:
            if self.release.touches:
                for use in group:
                    self.agent.send("store.touch", **self.handle(use))
            for use in group:
                self.agent.send("store.get", **self.handle(use))
        self.agent.flush()

    def handle(self, use):
        key, _, _, address, ident, signature = use
        return {"store": self.store, "key": key, "address": address, "id": ident,
                **({"signature": signature} if signature else {})}

    def read_receive(self):
        out = []
        for group in self._groups:
            if self.release.touches:
                for _ in group:
                    self.agent.receive()
            for key, seed, number, *_ in group:
                got = self.agent.receive()["value"]
                if text := objects.difference(objects.value(seed, number, **self.release.options), got):
                    out.append("%s: %s" % (key, text))
        return out

    def close(self):
        self.agent.drain()
        self.agent.call("store.close", store=self.store)


class PyReader:
    def __init__(self, peer, release, name, readers, size=RING, max_object=MAX_OBJECT, store="r"):
        self.peer, self.release, self.store = peer, release, store
        peer.call("open", store=store, name=name, size=size, max_object=max_object, readers=readers)

    def read_send(self, groups):
        self.peer.send("read", store=self.store, groups=groups, options=self.release.options)

    def read_receive(self):
        return self.peer.receive()

    def close(self):
        self.peer.drain()
        self.peer.call("close", store=self.store)


class Segment:
    """The raw bytes of a segment, read with nothing but the file: a third opinion on what lies where."""

    def __init__(self, name, release, size):
        self.path, self.release, self.size = "/dev/shm/" + name, release, size

    def chunk(self, address):
        """(id, size, reader count) of the chunk at a logical address."""
        with open(self.path, "rb") as f:
            f.seek(self.release.offset + address % self.size)
            return struct.unpack("<iii", f.read(12))

    def ring(self):
        with open(self.path, "rb") as f:
            f.seek(self.release.offset)
            return f.read(self.size)


def check_balance(writer, readers, segment):
    """Every live object was read exactly as often as it was issued, to every reader, and lies where the tables say."""
    state = writer.state()
    for key, (address, ident) in state["key_index"].items():
        issued, read = state["writer_flag"][ident], state["reader_flag"][ident]
        assert read == issued * readers, "%s: issued %d to %d readers, read %d" % (key, issued, readers, read)
        number, size, count = segment.chunk(address)
        assert (number, count) == (ident, read), "%s: chunk says id %d count %d, tables %d %d" % (key, number, count,
            ident, read)
        assert 12 < size <= segment.size
    assert len({i for _, i in state["key_index"].values()}) == len(state["key_index"]), "an id has two keys"
    return state


def drain(writer, fifo=True):
    """All can be freed, and then nothing is left in the writer's tables."""
    for _ in range(10000):
        state = writer.state()
        if not state["key_index"]:
            break
        before = len(state["key_index"])
        writer.free_unused()
        assert len(writer.state()["key_index"]) < before, "nothing was freed, %d objects left: %s" % (before, state)
    assert (state["key_index"], state["writer_flag"], state["reader_flag"]) == ({}, {}, {})
    if fifo:
        ring = state["ring"]
        assert (ring["start"], ring["end"], ring["metadata"]) == (0, 0, {}) and ring["id_start"] == ring["id_end"]


class Result:
    def __init__(self):
        self.objects = self.hits = self.bytes = self.fulls = 0
        self.differences, self.seconds = [], 0.0


def drive(writer, readers, seed, count, hit_share=0.12, batch_bytes=6 * MIB, batch_objects=96):
    """Puts count objects, looks up some again, has every reader read every handle, compares all bytes.

    While the readers work on one batch the writer makes the next. A key that is looked up again is not in flight: with
    releases that count touches, two requests on one key at a time leave the counts short (their defect, see the
    reference), which would stop this ring for ever.
    """
    rng, result, started = random.Random(seed), Result(), time.monotonic()
    idle = collections.deque(maxlen=200)  # (key, number) that every reader has let go of
    todo, reading, retries = collections.deque(range(count)), collections.deque(), 0
    options, prefix = writer.release.options, "%s-%d-" % (seed, os.getpid())

    def collect():
        uses = reading.popleft()
        for reader in readers:
            result.differences += reader.read_receive()
        idle.extend((u[0], u[2]) for u in uses)

    while todo:
        uses, size = [], 0
        while todo and len(uses) < batch_objects and size < batch_bytes:
            if idle and rng.random() < hit_share:
                key, number = idle[i := rng.randrange(len(idle))]
                del idle[i]
                uses.append(("look", key, seed, number))
                continue
            number = todo.popleft()
            uses.append(("put", prefix + str(number), seed, number))
            size += objects.nbytes(objects.value(seed, number, **options))
        writer.issue_send(uses)
        answers = writer.issue_receive()
        handles, again = [], []
        for (verb, key, _, number), (what, *handle) in zip(uses, answers):
            if what == "handle":
                handles.append((key, seed, number, *handle))
                result.hits += verb == "look"
                if verb == "put":
                    result.objects += 1
                    result.bytes += objects.nbytes(objects.value(seed, number, **options))
            elif what == "full":
                again.append(number)
        if handles:
            groups = []
            while handles:
                n = rng.randint(1, 3)
                groups.append(handles[:n])
                handles = handles[n:]
            if len(reading) > 0:
                collect()
            for reader in readers:
                reader.read_send(groups)
            reading.append([u for g in groups for u in g])
            retries = 0
        if again:
            # Unread objects are in the way. When all have been read there must be room.
            result.fulls += len(again)
            while reading:
                collect()
            retries += not uses or len(again) == len(uses)
            assert retries < 4, "the ring stays full although everything was read: %s" % writer.state()
            todo.extendleft(reversed(again))
    while reading:
        collect()
    result.seconds = time.monotonic() - started
    return result

"""What both sides refuse, with vLLM's own text, and what happens around the edges of a segment's life."""

import pickle

import pytest

import objects
from agent import Agent
from harness import FULL_TEXT, GoReader, GoWriter, PyReader, PyWriter, check_text, go_handle
from test_lockstep import Pair

STALE = "Data for address:id '%d:%d' has been modified or is invalid."
INVALID, MISSING = "Invalid SHM handle signature for cache key.", "Missing SHM handle signature for cache key."


def u8(n, tag="t"):
    return {"type": "item", "fields": [{"name": "x", "data": {"dtype": "uint8", "shape": [n], "xof": tag},
                                        "field": {"kind": "batched"}}]}


@pytest.fixture
def pair(pool, agents, segment, closing):
    """Both rings side by side (see test_lockstep.py)."""
    if not pool.release.writer_works:
        pytest.skip("the writer of this release overwrites live chunks")
    return lambda size, max_object, readers=1: Pair(pool, agents, segment, closing, size, max_object, readers)


def test_duplicate(pair):
    p = pair(4096, 2000)
    first = p.handle("put", "put", "put", key="a", value=u8(10))
    assert first[0] == "ok" and p.cached("a") and not p.cached("b")
    assert p.handle("again", "put", "put", key="a", value=u8(10)) == ("no", "exists",
        "Key 'a' already exists in the storage.")
    # A key is bytes of text to both, and its quoting in the message as well.
    for key in ("", "it's", 'say "x"', "\u00e9\u4e2d\U0001f600", "back\\slash", "k" * 128):
        assert p.handle("put", "put", "put", key=key, value=u8(1))[0] == "ok"
        assert p.handle("again", "put", "put", key=key, value=u8(1))[1:] == ("exists",
            "Key '%s' already exists in the storage." % key)
        p.get(0, key, *p.handle("lookup", "lookup", "lookup", key=key)[1], u8(1))
    p.compare("duplicates")
    p.compare_bytes("duplicates")


def test_oversize_to_the_byte(pair):
    p = pair(8192, 1000)
    no = p.handle("put", "put", "put", key="a", value=u8(5000))
    assert no[1] == "too_large"
    need = int(no[2].split("(")[1].split(" ")[0])
    assert no[2] == "Serialized object size (%d bytes) exceeds max object size (1000 bytes)" % need
    assert p.compare("refusal")["key_index"] == {}


@pytest.mark.parametrize("slack,ok", [(0, True), (-1, False)])
def test_largest_object(pair, slack, ok):
    """Without the 8 bytes of the chunk's header: those are not counted."""
    value = {"type": "pickle", "hex": pickle.dumps(b"x" * 500, protocol=pickle.HIGHEST_PROTOCOL).hex()}
    # 4 bytes of counter, the pickle, and vLLM's pickled tuple ("bytes", length, None).
    need = 4 + len(value["hex"]) // 2 + len(pickle.dumps(("bytes", len(value["hex"]) // 2, None),
                                                         protocol=pickle.HIGHEST_PROTOCOL))
    p = pair(8192, need + slack)
    assert (p.handle("put", "put", "put", key="a", value=value)[0] == "ok") is ok


def test_full_until_read(pair):
    p = pair(2000, 900, readers=2)
    handles = []
    for i in range(20):
        r = p.handle("put", "put", "put", key="k%d" % i, value=u8(300, "t%d" % i))
        if r[0] == "no":
            break
        handles.append(("k%d" % i, *r[1]))
    assert r == ("no", "full", FULL_TEXT) and len(handles) >= 3
    p.get(0, *handles[0], u8(300, "t0"))
    assert p.handle("put", "put", "put", key="new", value=u8(300))[1] == "full"  # one of two readers is not enough
    p.get(1, *handles[0], u8(300, "t0"))
    assert p.handle("put", "put", "put", key="new", value=u8(300))[0] == "ok"
    assert not p.cached("k0")
    p.compare("the end")
    p.compare_bytes("the end")


def test_clear_with_handles_in_flight(pair):
    p = pair(2000, 900)
    handles = [("k%d" % i, *p.handle("put", "put", "put", key="k%d" % i, value=u8(100, "t%d" % i))[1])
               for i in range(5)]
    p.plain("clear", "clear", "clear")
    for i, h in enumerate(handles):  # nothing was overwritten yet
        p.get(0, *h, u8(100, "t%d" % i))
    new = p.handle("put", "put", "put", key="new", value=u8(100, "new"))[1]
    if p.release.signed:
        assert new[:2] == [0, 5]
        assert p.verify(*handles[1]) == ("no", "bad_signature", INVALID)  # not the key's current entry any more
        text = STALE % tuple(handles[0][1:3])
        assert p.get(0, *handles[0]) == ("no", "stale", text)
        assert p.touch(0, *handles[0]) == ("no", "stale", text)
    else:
        # Ids start again: the handle of k0 now names the new object. This is why later releases let ids rise.
        assert new[:2] == [0, 0]
        p.get(0, *handles[0], u8(100, "new"))
    p.get(0, "new", *new, u8(100, "new"))
    p.compare("the end")
    p.compare_bytes("the end")


def test_stale_and_wrong_handles(pair):
    p = pair(1000, 900)
    old = p.handle("put", "put", "put", key="a", value=u8(500))[1]
    p.get(0, "a", *old, u8(500))
    new = p.handle("put", "put", "put", key="b", value=u8(500, "b"))[1]  # overwrites a, at the same address
    assert p.get(0, "a", *old) == ("no", "stale", STALE % tuple(old[:2]))
    if not p.release.signed:
        assert p.get(0, "b", new[0], new[1] + 1, None) == ("no", "stale", STALE % (new[0], new[1] + 1))
        assert p.get(0, "b", new[0] + 4, new[1], None)[:2] == ("no", "stale")
        p.get(0, "anything", new[0] + 1000, new[1], None, u8(500, "b"))  # addresses are logical
    p.compare("the end")


def bad_signatures(good):
    return {
        "none": None, "first bit": [good[0] ^ 1, *good[1:]], "last bit": [*good[:31], good[31] ^ 128], "nested": [good],
        "short": good[:31], "long": [*good, 0], "256": [256] * 32, "negative": [-1, *good[1:]],
        "float": [float(good[0]), *good[1:]],
        "bool": [True, *good[1:]], "empty": [], "string": "abc", "number": 5, "map": {"a": 1}, "nulls": [None] * 32,
    }


def test_forged_signatures(pair):
    p = pair(4096, 2000)
    if not p.release.signed:
        pytest.skip("handles of this release are not signed")
    address, ident, good = p.handle("put", "put", "put", key="k", value=u8(50))[1]
    assert p.signature("k") == ("ok", good) and p.verify("k", address, ident, good) == ("ok", None)
    assert p.signature("absent")[1] == "not_found"
    before = p.compare("put")
    forged = [("k", address, ident, s) for s in bad_signatures(good).values()]
    forged += [("j", address, ident, good), ("k", address + 1, ident, good), ("k", address, ident + 1, good),
               ("", address, ident, good)]
    for h in forged:
        for refused in (p.get(0, *h), p.touch(0, *h), p.verify(*h)):
            assert refused[:2] == ("no", "bad_signature"), h
            assert refused[2] in (INVALID, MISSING), h
    assert p.compare("forgeries") == before, "a refused handle must not count"
    p.get(0, "k", address, ident, good, u8(50))


def test_signature_as_hex(pool, agents, segment, closing):
    release = pool.release
    if not release.signed:
        pytest.skip("handles of this release are not signed")
    w = closing(GoWriter(agents[0], release, segment(), 1, size=4096, max_object=1000))
    address, ident, good = go_handle(agents[0].call("store.put", store="w", key="k", value=u8(5)))
    assert isinstance(good, list) and len(good) == 32
    agents[0].call("store.verify", store="w", key="k", address=address, id=ident, signature=bytes(good).hex())
    e = agents[0].error("store.verify", store="w", key="k", address=address, id=ident,
                        signature=bytes(good[::-1]).hex())
    check_text(e, "bad_signature", INVALID)


def test_wrong_ring_size(pool, agents, segment, closing):
    """A reader whose N is not the writer's. vLLM notices a larger one at once, a smaller one at the first handle beyond it."""
    release = pool.release
    name = segment()
    closing(GoWriter(agents[0], release, name, 1, size=8192, max_object=2000))
    more = {"max_object": 2000, "readers": 1}
    e = agents[1].error("store.open", store="wrong", name=name, size=8193, generation=release.version,
                        lock=pool.lock_name, **more)
    assert e is not None, "the agent attached to a segment that is too small"
    assert pool.readers[0].error("open", store="wrong", name=name, size=8193, **more).type == "AssertionError"

    for i in range(3):
        h = go_handle(agents[0].call("store.put", store="w", key="k%d" % i, value=u8(700)))
    assert h[0] >= 1000
    py = closing(PyReader(pool.readers[0], release, name, 1, size=1000, max_object=2000))
    assert STALE % tuple(h[:2]) in py.peer.error("get", store="r", key="k2", address=h[0], ident=h[1],
                                                 signature=h[2]).text
    # A segment is exactly as long as its ring wants, so this need not wait for a wrong read.
    e = agents[1].error("store.open", store="wrong", name=name, size=1000, generation=release.version,
                        lock=pool.lock_name, **more)
    assert e is not None, "the agent attached to a segment that is too large"


def test_missing_segment_and_second_writer(pool, agents, segment, closing):
    release, name = pool.release, segment()
    more = {"size": 4096, "max_object": 1000, "readers": 1}
    assert agents[1].error("store.open", store="r", name=name, generation=release.version, lock=pool.lock_name,
                           **more) is not None
    assert pool.readers[0].error("open", store="r", name=name, **more).type == "FileNotFoundError"
    writer = closing(GoWriter(agents[0], release, name, 1, size=4096, max_object=1000))
    assert pool.writer.error("create", store="x", name=name, **more).type == "FileExistsError"
    check_text(agents[1].error("store.create", store="x", name=name, generation=release.version, **more),
               "exists_segment")
    # Readers of both kinds come and go without taking the segment with them.
    for _ in range(3):
        for r in (PyReader(pool.readers[0], release, name, 1, size=4096, max_object=1000),
                  GoReader(agents[1], release, name, 1, pool.lock_name, size=4096, max_object=1000)):
            r.close()
    assert writer.state()["key_index"] == {}
    agents[0].call("store.put", store="w", key="k", value=u8(5))


def test_writers_with_a_lock(pool, agents, segment, closing):
    """A writer may be given the lock and then counts its own reads, as vLLM's own tests of this class have it."""
    release = pool.release
    if not release.writer_works:
        pytest.skip("the writer of this release overwrites live chunks")
    args = {"size": 102400, "max_object": 10240}
    go = closing(GoWriter(agents[0], release, segment(), 2, lock=True, **args))
    py = closing(PyWriter(pool.writer, release, segment(), 2, lock=True, **args))
    for i in range(400):
        value = {"type": "pickle", "hex": pickle.dumps("data_%d" % i * 100, protocol=pickle.HIGHEST_PROTOCOL).hex()}
        try:
            a = go_handle(agents[0].call("store.put", store="w", key="k%d" % i, value=value))
        except Exception as e:
            check_text(e, "full", FULL_TEXT)
            assert pool.writer.error("put", store="w", key="k%d" % i, value=value).type == "MemoryError"
            break
        b = pool.writer.call("put", store="w", key="k%d" % i, value=value)
        assert a[:2] == b[:2]
        if i < 12:  # the ring is blocked by the first unread object, so these can be freed
            for _ in range(2):
                got = agents[0].call("store.get", store="w", key="k%d" % i, address=a[0], id=a[1],
                                     **({"signature": a[2]} if a[2] else {}))["value"]
                assert got == value == pool.writer.call("get", store="w", key="k%d" % i, address=b[0], ident=b[1],
                                                        signature=b[2])
    else:
        raise AssertionError("the rings never filled")
    assert go.state() == py.state()
    assert "k0" not in go.state()["key_index"]


NUMBERS = [0, -1, 127, 128, 255, 256, -32, -33, 2**31, -2**31, 2**53 - 1, -(2**53) + 1, 1.0, -0.0, 0.1, 1e300, 5e-324,
           True, False]
HUGE = [2**53, 2**63 - 1, -2**63, 2**63, 2**64 - 1]


def test_every_dtype_number_and_slice(pair):
    p = pair(1 << 20, 1 << 19)
    fields = [{"name": d, "data": [{"dtype": d, "shape": s, "xof": "%s%s" % (d, s)}
                                   for s in ([], [1], [0], [2, 0, 3], [7, 5], [300, 3])],
               "field": {"kind": "batched"}} for d in objects.DTYPES]
    values = {"dtypes": {"type": "item", "fields": fields},
              "numbers": {"type": "item", "fields": [{"name": "n", "data": NUMBERS,
                                                      "field": {"kind": "shared", "batch_size": 1}}]},
              "huge": {"type": "item", "fields": [{"name": "n", "data": HUGE, "field": {"kind": "batched"}}]}}
    n = None
    cuts = [[], [[n, n, n]], [[n, n, n], [0, 5, n]], [[0, 5, n], [n, n, n]], [[[n, n, n]]],
            [[[n, n, n], [0, 7, 2]], [[n, n, n], [7, 9, n]]],
            [[[0, 3, n]], [[3, 7, n]]], [[-5, n, -1]]]
    values["slices"] = {"type": "item", "fields": [
        {"name": "f%d" % i, "data": 1, "field": {"kind": "flat", "slices": c, "dim": 0}} for i, c in enumerate(cuts)]}
    for d in objects.DTYPES:
        for n in (0, 1, 31, 32, 33, 64, 255, 256, 257, 5000):  # around the size at which bytes leave the main frame
            values["%s %d" % (d, n)] = {"type": "tensor", "data": {"dtype": d, "shape": [n], "xof": "x"}}
    for key, value in values.items():
        h = p.handle("put " + key, "put", "put", key=key, value=value)
        assert h[0] == "ok", (key, h)
        p.get(0, key, *h[1], value)
    p.compare("the end")
    p.compare_bytes("the end")


def test_python_objects_come_back_as_their_pickles(pool, agents, segment, closing):
    release = pool.release
    if not release.writer_works:
        pytest.skip("the writer of this release overwrites live chunks")
    name = segment()
    closing(PyWriter(pool.writer, release, name, 1, size=1 << 20, max_object=1 << 18))
    go = closing(GoReader(agents[1], release, name, 1, pool.lock_name, size=1 << 20, max_object=1 << 18))
    things = {"dict": {"a": 1, "b": [1, 2, 3]}, "str": "text" * 100, "int": 12345, "list": [1, None, 2.5, "x"],
              "bytes": b"\0" * 3000,
              "none": None, "tuple": (1, (2,)), "empty": b"", "set": {1, 2}}
    for key, thing in things.items():
        a, i = pool.writer.call("put_object", store="w", key=key, value=thing)
        s = pool.writer.call("signature", store="w", key=key)
        got = agents[1].call("store.get", **go.handle((key, None, None, a, i, s)))["value"]
        assert got["type"] == "pickle"
        assert bytes.fromhex(got["hex"]) == pickle.dumps(thing, protocol=pickle.HIGHEST_PROTOCOL)
        assert pickle.loads(bytes.fromhex(got["hex"])) == thing


def test_bad_input_does_not_stop_the_agent(closing):
    a = closing(Agent())
    for line in (b"{", b"[]", b"null", b'"x"', b"\xff\xfe", b'{"op":5}', b'{"op":"nope"}', b'{"op":"store.get"}',
                 b'{"op":"store.put","store":"absent","key":"k","value":{}}',
                 b'{"op":"ring.new","ring":"r","size":1e400}',
                 b'{"op":"ring.new","ring":"r","size":-5}', b"[" * 100000,
                 b'{"op":"size_of","value":' + b"[" * 5000 + b"]" * 5000 + b"}"):
        a.raw(line)
        with pytest.raises(Exception) as e:
            a.receive()
        assert getattr(e.value, "kind", None) == "invalid", (line[:60], e.value)

"""The agent's protocol (docs/agent.md) over vLLM's own classes: rings, stores of the policy fifo, LRU caches, mirrored caches.

    vllm_agent.py PREFIX [FOLDER OF THE RELEASE]

Names of segments begin with PREFIX. `about` is an operation of this program alone: which releases it runs. An operation that
would never return in this release is refused with the kind "hang" and not performed.
"""

import gc
import importlib.metadata
import itertools
import multiprocessing
import os
import platform
import sys

import vllm_classes


class Refused(Exception):
    def __init__(self, kind, text):
        super().__init__(text)
        self.kind = kind


# Texts of vLLM's errors, and the kind that each one has. The first match wins.
TEXTS = (
    ("already exists in the storage", "exists"), ("exceeds max object size", "too_large"), ("has been modified or is invalid", "stale"),
    ("SHM handle signature", "bad_signature"), ("value too large", "too_large"), ("Cannot pin key", "invalid"),
    ("All items are pinned", "invalid"), ("Expected a cached item", "miss"), ("Expected the item", "miss"),
    ("Size must be greater than 0", "invalid"),
)


def refusal(e, corrupt):
    """The reply for an exception. corrupt is the kind of an error that is none of vLLM's own."""
    if isinstance(e, Refused):
        return {"kind": e.kind, "text": str(e)}
    text = str(e)
    kind = next((k for part, k in TEXTS if part in text), None)
    if kind is None and hasattr(e, "mm_hashes"):
        kind = "miss"
    if kind is None:
        kind = {MemoryError: "full", KeyError: "not_found", FileNotFoundError: "not_found", FileExistsError: "exists_segment"}.get(
            type(e), corrupt)
    out = {"kind": kind, "text": "%s: %s" % (type(e).__name__, text)}
    if kind not in ("not_found", "corrupt", "exists_segment") and text:
        out["upstream"] = text
    return out


def strings(table):
    return {str(k): v for k, v in table.items()}


class Objects:
    """Named objects of one kind."""

    def __init__(self, kind):
        self._kind, self._held = kind, {}

    def add(self, name, make):
        if name in self._held:
            raise Refused("invalid", "%s %r exists" % (self._kind, name))
        self._held[name] = make()

    def get(self, name):
        try:
            return self._held[name]
        except KeyError:
            raise Refused("invalid", "no %s %r" % (self._kind, name)) from None

    def pop(self, name):
        self.get(name)
        return self._held.pop(name)

    def names(self):
        return list(self._held)


class Agent:
    def __init__(self, vllm, prefix):
        self._vllm, self._prefix, self._numbers = vllm, prefix, itertools.count()
        self._rings, self._stores, self._lrus, self._pairs = (Objects(k) for k in ("ring", "store", "lru", "pair"))
        self._lock = multiprocessing.Lock()
        names = vllm.cache_names()
        pick = lambda *wanted: next(names[n] for n in wanted if n in names)
        self._roles = {
            "sender": pick("LruKeyReplicatedSenderCache", "MultiModalProcessorSenderCache"),
            "receiver": pick("LruKeyReplicatedReceiverCache", "MultiModalReceiverCache"),
            "processor_only": names["MultiModalProcessorOnlyCache"],
        }
        self._sizes, self._LRU = names["MultiModalCache"], names["LRUCache"]
        probe = self._LRU(1, getsizeof=lambda n: n)
        probe.touch("absent") if hasattr(probe, "touch") else None
        self._ghosts = len(probe.order) > 0
        self._grow_anew = int(importlib.metadata.version("cachetools").split(".")[0]) < 8
        self._ops = {name.replace("_", ".", 1): getattr(self, name) for name in dir(type(self))
                     if name.split("_")[0] in ("ring", "store", "lru", "pair")}
        self._ops["about"], self._ops["size_of"] = self._about, self._size_of

    def perform(self, request):
        try:
            op = self._ops.get(request["op"])
            if op is None:
                raise Refused("unsupported", "vLLM has no %s" % request["op"])
            out = op(request)
            out["ok"] = True
        except Exception as e:
            # A handle whose chunk holds another object with the same id fails wherever vLLM's decoders do.
            error = refusal(e, "corrupt" if request["op"] == "store.get" else "invalid")
            out = {"ok": False, "error": error}
            if hasattr(e, "mm_hashes"):
                out["hashes"] = e.mm_hashes
        if "seq" in request:
            out["seq"] = request["seq"]
        return out

    def _about(self, _):
        return {"version": self._vllm.version.split("+")[0], "python": platform.python_version(), "grow_anew": self._grow_anew}

    def _name(self, request):
        name = request.get("name") or "%d" % next(self._numbers)
        return name if name.startswith(self._prefix) else self._prefix + name

    # -- ring ------------------------------------------------------------------------------------------------------

    def ring_new(self, r):
        def make():
            ring = self._vllm.Ring(r["size"], name=self._name(r), create=True)
            ring.monotonic_id_start = ring.monotonic_id_end = r.get("first_id", 0)
            return ring
        self._rings.add(r["ring"], make)
        return {}

    def ring_alloc(self, r):
        address, number = self._rings.get(r["ring"]).allocate_buf(r["size"])
        return {"address": address, "id": number}

    def ring_free(self, r):
        every, ids = r.get("all", False), set(r.get("ids") or ())
        freed = self._rings.get(r["ring"]).free_buf(lambda number, _: every or number in ids, r.get("limit"))
        return {"freed": list(freed)}

    def ring_header(self, r):
        with self._rings.get(r["ring"]).access_buf(r["address"]) as (_, (number, size)):
            return {"id": number, "size": size}

    def ring_clear(self, r):
        self._rings.get(r["ring"]).clear()
        return {}

    def ring_state(self, r):
        out = self._vllm.ring_state(self._rings.get(r["ring"]))
        out["metadata"] = strings(out["metadata"])
        return out

    def ring_close(self, r):
        self._vllm.close_ring([self._rings.pop(r["ring"])], None)
        return {}

    # -- store -----------------------------------------------------------------------------------------------------

    def store_create(self, r):
        if r.get("policy", "fifo") != "fifo":
            raise Refused("unsupported", "vLLM has no policy %r" % r["policy"])
        def make():
            secret = bytes.fromhex(r["secret"]) if r.get("secret") else None
            return self._vllm.create(self._name(r), r["size"], r["max_object"], r["readers"], self._lock if r.get("lock") else None, secret)
        self._stores.add(r["store"], make)
        memory = self._stores.get(r["store"]).ring_buffer.shared_memory
        return {"name": memory.name, "segment_bytes": memory.size}

    def store_open(self, r):
        if not r.get("lock"):
            raise Refused("unsupported", "vLLM's readers always count, under a lock")
        self._stores.add(r["store"], lambda: self._vllm.open(self._name(r), r["size"], r["max_object"], r["readers"], self._lock))
        return {}

    def _writer(self, r):
        storage = self._stores.get(r["store"])
        if not storage.is_writer:
            raise Refused("unsupported", "%s is for the writer" % r["op"])
        return storage

    def _issued(self, storage, key, handle):
        out = {"address": handle[0], "id": handle[1]}
        if self._vllm.signed:
            out["signature"] = bytes(storage.get_signature(key)).hex()
        return out

    @staticmethod
    def _signature(r):
        s = r.get("signature")
        return list(bytes.fromhex(s)) if isinstance(s, str) else s

    def store_put(self, r):
        storage = self._writer(r)
        return self._issued(storage, r["key"], storage.put(r["key"], self._vllm.build(r["value"])))

    def store_cached(self, r):
        return {"cached": self._writer(r).is_cached(r["key"])}

    def store_lookup(self, r):
        storage = self._writer(r)
        return self._issued(storage, r["key"], storage.get_cached(r["key"]))

    def store_signature(self, r):
        storage = self._writer(r)
        if not self._vllm.signed:
            storage.key_index[r["key"]]
            raise Refused("unsupported", "vLLM %s has no signatures" % self._vllm.version)
        return {"signature": bytes(storage.get_signature(r["key"])).hex()}

    def store_verify(self, r):
        storage = self._stores.get(r["store"])
        if not self._vllm.signed:
            raise Refused("unsupported", "vLLM %s has no signatures" % self._vllm.version)
        storage.verify_signature(r["key"], r["address"], r["id"], self._signature(r))
        return {}

    def store_get(self, r):
        storage = self._stores.get(r["store"])
        got = self._vllm.get(storage, r.get("key"), r["address"], r["id"], self._signature(r) if "key" in r else None)
        return {"value": self._vllm.describe(got)}

    def store_touch(self, r):
        storage = self._stores.get(r["store"])
        if not self._vllm.touches:
            raise Refused("unsupported", "vLLM %s has no touch" % self._vllm.version)
        self._vllm.touch(storage, r["key"], r.get("address", 0), r.get("id", 0), self._signature(r))
        return {}

    def store_release_touches(self, r):
        storage = self._writer(r)
        if hasattr(storage, "release_touches"):
            storage.release_touches()
        return {}

    def store_free_unused(self, r):
        storage = self._writer(r)
        before = list(storage.id_index)
        storage.free_unused()
        return {"freed": [n for n in before if n not in storage.id_index]}

    def store_clear(self, r):
        self._writer(r).clear()
        return {}

    def store_state(self, r):
        storage = self._writer(r)
        out = self._vllm.state(storage)
        out["reader_flag"] = {}  # of the chunks: in 0.11.0 there are some without an object, and objects without one
        for number, address in storage.ring_buffer.metadata.items():
            with storage.ring_buffer.access_buf(address) as (view, _):
                out["reader_flag"][number] = int.from_bytes(view[:4], "little", signed=True)
        out["ring"]["metadata"] = strings(out["ring"]["metadata"])
        out["writer_flag"], out["reader_flag"] = strings(out["writer_flag"]), strings(out["reader_flag"])
        return out

    def store_peek(self, r):
        raw = self._stores.get(r["store"]).ring_buffer.shared_memory.buf
        if not 0 <= r["offset"] <= r["offset"] + r["length"] <= len(raw):
            raise Refused("invalid", "the segment has %d bytes" % len(raw))
        return {"hex": bytes(raw[r["offset"]:r["offset"] + r["length"]]).hex()}

    def store_unlink(self, r):
        self._writer(r).ring_buffer.shared_memory.unlink()
        return {}

    def store_close(self, r):
        self._vllm.close_ring([self._stores.pop(r["store"])], "ring_buffer")
        return {}

    # -- LRU -------------------------------------------------------------------------------------------------------

    # In 0.12 to 0.23 the touch of an absent key leaves it in the order. An eviction that comes to such a ghost takes
    # nothing away and comes to it again, for ever. What follows foresees that, by the rules of vLLM's LRUCache and of
    # cachetools below it.

    def _refuse_hanging_put(self, cache, key, size):
        if not self._ghosts or size > cache.maxsize:
            return
        sizes, used = cache._Cache__size, cache.currsize
        more = size - sizes.get(key, 0)
        for oldest in cache.order:
            if used + more <= cache.maxsize:
                return
            if oldest in cache.pinned_items:
                continue
            if oldest not in cache:
                raise Refused("hang", "the eviction never gets past %r, which was touched and is absent" % oldest)
            used -= sizes[oldest]
            if oldest == key and not self._grow_anew:
                more = size

    def _refuse_hanging_features(self, cache, features):
        """features are (key, size or None): all are touched, then each is looked up or put."""
        if not self._ghosts:
            return
        order, sizes, used = dict.fromkeys(cache.order), dict(cache._Cache__size), cache.currsize
        def newest(key):
            order.pop(key, None)
            order[key] = None
        for key, _ in features:
            newest(key)
        for key, size in features:
            if key not in sizes:
                if size is None or size > cache.maxsize:
                    return  # an error, and nothing after it
                while used + size > cache.maxsize:
                    oldest = next(iter(order))
                    if oldest not in sizes:
                        raise Refused("hang", "the eviction never gets past %r, which was touched and is absent" % oldest)
                    del order[oldest]
                    used -= sizes.pop(oldest)
                sizes[key] = size
                used += size
            newest(key)

    def lru_new(self, r):
        self._lrus.add(r["lru"], lambda: self._LRU(r["capacity"], getsizeof=lambda n: n))
        return {}

    def lru_put(self, r):
        cache = self._lrus.get(r["lru"])
        self._refuse_hanging_put(cache, r["key"], r["size"])
        cache.put(r["key"], r["size"])
        return {"stored": True}

    def lru_put_if_fits(self, r):
        cache = self._lrus.get(r["lru"])
        if not hasattr(cache, "put_if_fits"):
            raise Refused("unsupported", "vLLM %s has no put_if_fits" % self._vllm.version)
        self._refuse_hanging_put(cache, r["key"], r["size"])
        return {"stored": cache.put_if_fits(r["key"], r["size"])}

    @staticmethod
    def _found(size):
        return {"found": False} if size is None else {"found": True, "size": size}

    def lru_get(self, r):
        return self._found(self._lrus.get(r["lru"]).get(r["key"]))

    def lru_has(self, r):
        return {"has": r["key"] in self._lrus.get(r["lru"])}

    def lru_touch(self, r):
        self._lrus.get(r["lru"]).touch(r["key"])
        return {}

    def lru_pop(self, r):
        return self._found(self._lrus.get(r["lru"]).pop(r["key"], None))

    def lru_popitem(self, r):
        cache = self._lrus.get(r["lru"])
        if not cache.order and r.get("remove_pinned"):
            raise Refused("invalid", "the lru is empty")
        key, size = cache.popitem(remove_pinned=r.get("remove_pinned", False))
        # A ghost comes without a value, and stays.
        return {"key": key, "size": size} if size is not None else {"key": key, "size": 0, "ghost": True}

    def lru_pin(self, r):
        self._lrus.get(r["lru"]).pin(r["key"])
        return {}

    def _clear(self, cache, clear):
        live = len(cache)
        for key in cache.order:
            if live and key not in cache:
                raise Refused("hang", "clear never gets past %r, which was touched and is absent" % key)
            live -= key in cache
        clear()
        return {}

    def lru_clear(self, r):
        cache = self._lrus.get(r["lru"])
        return self._clear(cache, cache.clear)

    def lru_stat(self, r):
        hits, total = self._lrus.get(r["lru"]).stat(delta=r.get("delta", False))
        return {"hits": hits, "total": total}

    def lru_state(self, r):
        cache = self._lrus.get(r["lru"])
        return {"order": [k for k in cache.order if k in cache], "size": cache.currsize, "pinned": sorted(cache.pinned_items),
                "sizes": dict(cache._Cache__size)}

    def lru_close(self, r):
        self._lrus.pop(r["lru"])
        return {}

    # -- mirrored caches -------------------------------------------------------------------------------------------

    def pair_new(self, r):
        if r["role"] not in self._roles:
            raise Refused("invalid", "unknown role %r" % r["role"])
        self._pairs.add(r["pair"], lambda: (r["role"], self._roles[r["role"]](self._vllm.cache_config(r["capacity"]))))
        return {}

    def _frontend(self, r, method=None):
        role, cache = self._pairs.get(r["pair"])
        if role == "receiver":
            raise Refused("unsupported", "%s is for a sender or processor_only" % r["op"])
        if method and not hasattr(cache, method):
            raise Refused("unsupported", "vLLM %s has no %s" % (self._vllm.version, method))
        return role, cache

    def pair_cached(self, r):
        return {"cached": self._frontend(r)[1].is_cached(r["keys"])}

    def pair_touch(self, r):
        self._frontend(r, "touch_sender_cache_item")[1].touch_sender_cache_item(r["key"])
        return {}

    def pair_invalidate(self, r):
        self._frontend(r, "invalidate")[1].invalidate(r["key"])
        return {}

    def pair_update(self, r):
        role, cache = self._frontend(r)
        given = None
        if r.get("value") is not None:
            given = (self._vllm.build(r["value"]), r.get("prompt_updates"))
            if r["key"] not in cache._cache:
                self._refuse_hanging_put(cache._cache, r["key"], self._sizes.get_item_size(given[0]))
        item, updates = cache.get_and_update_item(given, r["key"])
        out = {"data": "omitted" if item is None else "sent"}
        if updates is not None:
            out["prompt_updates"] = updates
        if role == "processor_only":
            out["value"] = self._vllm.describe(item)
        return out

    def pair_features(self, r):
        role, cache = self._pairs.get(r["pair"])
        if role != "receiver":
            raise Refused("unsupported", "pair.features is for a receiver")
        specs = []
        for f in r["features"]:
            item = None if f.get("value") is None else self._vllm.build(f["value"])
            specs.append(self._vllm.feature(f.get("key"), item, f.get("identifier")))
        if self._ghosts and hasattr(cache, "touch_receiver_cache_item"):
            hashed, size = self._vllm.hashed, self._sizes.get_item_size
            self._refuse_hanging_features(cache._cache, [
                (hashed and s.mm_hash or s.identifier, None if s.data is None else size(s.data)) for s in specs])
        return {"values": [self._vllm.describe(s.data) for s in cache.get_and_update_features(specs)]}

    def pair_clear(self, r):
        _, cache = self._pairs.get(r["pair"])
        return self._clear(cache._cache, cache.clear_cache)

    def pair_state(self, r):
        _, cache = self._pairs.get(r["pair"])
        lru = cache._cache
        hits, total = lru.stat()
        return {"order": [k for k in lru.order if k in lru], "size": lru.currsize, "hits": hits, "total": total}

    def pair_close(self, r):
        self._pairs.pop(r["pair"])
        return {}

    def _size_of(self, r):
        return {"bytes": self._sizes.get_item_size(self._vllm.build(r["value"]))}

    def close(self):
        for name in self._rings.names():
            self.ring_close({"ring": name})
        for name in self._stores.names():
            self.store_close({"store": name})


def serve(agent, source, target):
    """Answers lines until the input ends. All lines that have come are decoded, performed and answered together."""
    import msgspec
    decode, lines = msgspec.json.Decoder().decode, msgspec.json.Encoder(order="deterministic").encode_lines
    rest = b""
    while chunk := os.read(source, 1 << 20):
        head, end, tail = chunk.rpartition(b"\n")
        if not end:
            rest += chunk
            continue
        batch, rest = (rest + head).split(b"\n"), tail
        out, replies = memoryview(lines([agent.perform(decode(line)) for line in batch if line])), 0
        while replies < len(out):
            replies += os.write(target, out[replies:])


def main():
    # What vLLM prints must not get between the replies.
    target = os.dup(1)
    os.dup2(2, 1)
    agent = Agent(vllm_classes.load(sys.argv[2] if len(sys.argv) > 2 else None), sys.argv[1])
    # What was imported stays; without this the collector goes through all of it again and again.
    gc.collect()
    gc.freeze()
    try:
        serve(agent, 0, target)
    finally:
        agent.close()


if __name__ == "__main__":
    main()

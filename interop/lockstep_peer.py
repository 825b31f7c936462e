"""The real vLLM's end of the mirrored LRU caches, for the program in lockstep/.

    lockstep_peer.py SOCKET [FOLDER OF THE RELEASE]

Listens on a unix socket and serves one connection after the other. It ends when its standard input does, so that it
does not outlive who started it. Frames: see lockstep/wire.go.
"""

import collections
import gc
import os
import platform
import random
import socket
import struct
import sys
import threading
import warnings

REQUEST, CLEAR, FORGET, END = 1, 2, 3, 4


class Wire:
    """Frames of a connection. What is written goes out when there is nothing left to read."""

    def __init__(self, conn):
        import msgspec
        self._conn, self._in, self._at, self._out = conn, bytearray(), 0, []
        self._encode, self._decode = msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder().decode

    def write(self, value):
        raw = self._encode(value)
        self._out.append(struct.pack("<I", len(raw)))
        self._out.append(raw)

    def flush(self):
        if self._out:
            self._conn.sendall(b"".join(self._out))
            self._out.clear()

    def read(self):
        """The next frame, or None at the end."""
        while True:
            have = len(self._in) - self._at
            if have >= 4:
                size = 4 + int.from_bytes(self._in[self._at:self._at + 4], "little")
                if have >= size:
                    self._at += size
                    return self._decode(self._in[self._at - size + 4:self._at])
            self.flush()
            del self._in[:self._at]
            self._at = 0
            if not (more := self._conn.recv(1 << 18)):
                return None
            self._in += more


class Items:
    """Makes the items of recipes, and finds out what is in one."""

    def __init__(self, vllm):
        self._vllm, self._torch, self._inputs = vllm, vllm.torch, vllm.inputs
        self._field = vllm.inputs.MultiModalBatchedField()

    def item(self, data, modality="image"):
        elem, field = self._inputs.MultiModalFieldElem, self._field
        if self._vllm.keyed:
            return self._inputs.MultiModalKwargsItem.from_elems([elem(modality=modality, key=k, data=d, field=field)
                for k, d in data.items()])
        return self._inputs.MultiModalKwargsItem({k: elem(data=d, field=field) for k, d in data.items()})

    def cook(self, recipe, modality):
        """See recipe.size in lockstep/items.go."""
        stamp, words, kind = recipe
        full = lambda n: self._torch.full((n,), stamp, dtype=self._torch.int64)
        data = {"pixel_values": [full(words // 2), full(words - words // 2)] if kind == 2 else full(words)}
        if kind == 1:
            data["number"] = stamp
        elif kind == 3:
            data.update(scale=0.5, mask=None, flags=[True, False, 0])
        return self.item(data, modality)

    def taste(self, item):
        """[stamp, words] of an item; -1 if its tensors are not of one piece."""
        pixels = item["pixel_values"].data
        parts = pixels if isinstance(pixels, list) else [pixels]
        stamps = {int(t[at]) for t in parts for at in (0, -1)}
        return [stamps.pop() if len(stamps) == 1 else -1, sum(t.nbytes for t in parts) // 8]


def contents(lru):
    """What an LRU of vLLM holds, oldest first. Old releases have keys in the order that are not in the cache."""
    sizes = lru._Cache__size
    keys = [k for k in lru.order if k in sizes]
    assert len(keys) == len(lru)
    return [keys, [sizes[k] for k in keys], lru.currsize]


NOTHING = [[], [], 0]


class Peer:
    def __init__(self, vllm):
        self._vllm, self._items = vllm, Items(vllm)
        names = vllm.cache_names()
        pick = lambda *wanted: next(names[n] for n in wanted if n in names)
        self._Sender = pick("LruKeyReplicatedSenderCache", "MultiModalProcessorSenderCache")
        self._Receiver = pick("LruKeyReplicatedReceiverCache", "MultiModalReceiverCache")
        self._size = pick("MultiModalCache").get_item_size
        # Where there is no such error, nothing ends in it.
        self._Miss = names.get("MultiModalCacheMissError", type("NoSuchError", (Exception,), {}))

    def _dtypes(self):
        torch, names = self._vllm.torch, set()
        warnings.simplefilter("ignore")  # about types that are old or new
        for d in {d for d in vars(torch).values() if isinstance(d, torch.dtype)}:
            try:
                torch.empty((1,), dtype=d)
            except (RuntimeError, NotImplementedError):
                continue  # torch knows of it, but has no tensors of it
            names.add(str(d).removeprefix("torch."))
        return sorted(names)

    def serve(self, wire):
        mode, capacity, requests, seed = wire.read()
        wire.write([self._vllm.version.split("+")[0], platform.python_version(), self._dtypes() if mode == "sizes"
                    else []])
        if mode == "sizes":
            self.sizes(wire)
        elif mode == "receiver":
            Frontend(self, wire, capacity, requests, seed).run()
        else:
            self.engine(wire, capacity)
        wire.flush()

    def engine(self, wire, capacity):
        """P1: vLLM's receiver takes what a Go sender sends."""
        cache, items = self._Receiver(self._vllm.cache_config(capacity)), self._items
        while (frame := wire.read()) is not None:
            op, number, order, features, _, _ = frame
            values, missing, error = [], None, ""
            if op != REQUEST:
                cache.clear_cache()
            else:
                specs = [self._vllm.feature(key, items.cook(recipe, modality) if has else None, identifier, modality,
                                            position)
                         for key, identifier, modality, position, has, recipe in features]
                assert specs == sorted(specs, key=lambda s: s.mm_position.offset)
                try:
                    values = [items.taste(f.data) for f in cache.get_and_update_features(specs)]
                except self._Miss as e:
                    missing = e.mm_hashes
                except Exception as e:  # whatever it is would end an engine
                    error = "%s: %s" % (type(e).__name__, e)
            wire.write([number, values, missing, error, contents(cache._cache) if order else NOTHING])

    def sizes(self, wire):
        while (frame := wire.read()) is not None:
            number, elems = frame
            try:
                data = {k: self._data(d) for k, d in elems}
                # Old releases can't make an item of nothing; a mapping is sized the same way.
                item = self._items.item(data) if data or not self._vllm.keyed else {}
                wire.write([number, self._size(item), ""])
            except TypeError as e:
                wire.write([number, 0, "%s: %s" % (type(e).__name__, e)])

    def _data(self, d):
        if not isinstance(d, dict):
            return [self._data(x) for x in d] if isinstance(d, list) else d
        torch, shape = self._vllm.torch, d["shape"]
        dtype = getattr(torch, d["dtype"])
        if "q" not in d["dtype"] and sum(shape) % 2:
            return torch.empty([2, *shape], dtype=dtype)[1]  # a view into a larger one, as the items of a batch are
        return torch.empty(shape, dtype=dtype)


class Frontend:
    """P0: vLLM's sender, driven as vLLM's processor does but for one thing: it goes through the items of a request in
    the order of the prompt, which is what the engine does, and not modality by modality."""

    WINDOW = 64  # requests under way
    ITEMS, POPULAR = 150, 12

    def __init__(self, peer, wire, capacity, requests, seed):
        self._wire, self._capacity, self._requests = wire, capacity, requests
        self._items, self._cache = peer._items, peer._Sender(peer._vllm.cache_config(capacity))
        self._size = peer._size
        self._lru, self._rng = self._cache._cache, random.Random(seed)
        self._touches = hasattr(self._cache, "touch_sender_cache_item")
        self._ghosts = self._touches and self._leaves_ghosts(peer._Sender(peer._vllm.cache_config(capacity)))
        self._fits = hasattr(self._lru, "put_if_fits")
        self._misses = hasattr(self._cache, "invalidate")
        self._hashed = peer._vllm.hashed
        self._counts = collections.Counter()
        self._next, self._under_way = 0, {}
        # Keys that the engine has lost and we don't know of. While there are some, or a request that named one is under
        # way, the contents differ, and nothing overtakes the repair.
        self._stale, self._equal = set(), True
        self._recipes = [self._recipe(n) for n in range(self.ITEMS)]
        self._cooked = [self._items.cook(r, "image") for r in self._recipes]

    @staticmethod
    def _leaves_ghosts(cache):
        """Whether the touch of an absent key leaves it in the order of use, where eviction never gets past it."""
        cache.touch_sender_cache_item("absent")
        return "absent" in cache._cache.order

    def _recipe(self, number):
        words = 2 + self._rng.randrange(500)
        if number % 37 == 36:
            words = int(self._capacity) // 8 + 1 + self._rng.randrange(500)
        elif number % 8 == 7:
            words = int(self._capacity) // 8 // 5 * self._rng.randint(1, 3)
        return [number << 20, words, self._rng.randrange(4)]

    def _draw(self):
        numbers = [self._rng.randrange(self.ITEMS if self._rng.random() < 0.5 else self.POPULAR)
                   for _ in range(self._rng.randint(1, 5))]
        if self._rng.random() < 0.06:
            numbers[-1] = numbers[0]
        return numbers

    def _refused(self, numbers):
        sizes = {n: self._size(self._cooked[n]) for n in numbers}
        if not self._fits and max(sizes.values()) > self._capacity:
            return "refused_too_large"  # fails, after half of the request was done
        if self._ghosts and sum(sizes.values()) > self._capacity:
            return "refused_ghost"  # may hang
        return None

    def run(self):
        for _ in range(self._requests):
            x = self._rng.randrange(2000)
            if x < 2:
                self._cache.clear_cache()
                self._stale.clear()
                self._post(CLEAR)
            elif x < 6 and self._misses:
                self._settle()
                self._post(FORGET)
                self._stale, self._equal = set(self._lru.order), False
            numbers = self._draw()
            if why := self._refused(numbers):
                self._counts[why] += 1
                continue
            self._request(numbers, resent=False)
            if len(self._under_way) >= self.WINDOW:
                self._answer()
            if not self._equal:
                self._settle()
                self._equal = not self._stale
        self._settle()
        self._post(END)

    def _request(self, numbers, resent):
        cache, keys = self._cache, ["k%d" % n for n in numbers]
        hits = cache.is_cached(keys)
        if self._touches:
            for k in keys:
                cache.touch_sender_cache_item(k)
        features, position = [], 0
        for number, key, hit in zip(numbers, keys, hits):
            # Its place may have gone to an item before it, or it may be here a second time.
            hit = hit and cache.is_cached([key])[0]
            [(item, _)] = cache.get_and_update([None if hit else (self._cooked[number], [])], [key])
            if item is not None:
                self._stale.discard(key)
            position += self._rng.randint(1, 9)
            identifier = "adapter:" + key if self._hashed and number % 2 == 0 else key
            features.append([key, identifier, "image", position, item is not None, self._recipes[number]])
        self._stale &= set(self._lru.order)
        self._post(REQUEST, features, numbers, resent)

    def _post(self, op, features=(), numbers=(), resent=False):
        self._next += 1
        if op != END:
            self._under_way[self._next] = numbers, resent
        self._wire.write([op, self._next, self._equal, features, contents(self._lru), self._counts if op == END
                          else {}])
        if self._next % 16 == 0:
            self._wire.flush()

    def _answer(self):
        """Takes one answer. What was missed is forgotten and the request made again, as clients of vLLM have to."""
        if (frame := self._wire.read()) is None:
            raise ConnectionError("the program went away")
        number, _, missing, _, _ = frame
        numbers, resent = self._under_way.pop(number)
        if not missing:
            return
        if resent:
            self._counts["failed"] += 1
            return
        for key in missing:
            self._counts["invalidations"] += 1
            self._cache.invalidate(key)
        self._counts["resends"] += 1
        self._request(numbers, resent=True)

    def _settle(self):
        while self._under_way:
            self._answer()


def end_with_parent():
    sys.stdin.buffer.read()
    os._exit(0)


def main():
    threading.Thread(target=end_with_parent, daemon=True).start()
    import upstream
    peer = Peer(upstream.load(sys.argv[2] if len(sys.argv) > 2 else None))
    # What was imported stays; without this the collector goes through all of it again and again.
    gc.collect()
    gc.freeze()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(sys.argv[1] + ".new")
        listener.listen()
        os.rename(sys.argv[1] + ".new", sys.argv[1])  # who sees it can connect
        while True:
            conn, _ = listener.accept()
            with conn:
                try:
                    peer.serve(Wire(conn))
                except (BrokenPipeError, ConnectionError) as e:
                    print("lockstep_peer: %s" % e, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()

"""Worker processes that hold real vLLM storages.

`main` runs in a process spawned by multiprocessing, so that the lock which readers share is a real one and arrives the
only way it can, by inheritance. `Peer` is the other end of its pipe, in the pytest process. Commands are (name,
arguments); answers are ("ok", result) or ("error", type name, text).
"""

import collections
import multiprocessing
import os
import traceback

import objects


class PeerError(Exception):
    """The command raised in the worker: type is the exception's name, text its message."""

    def __init__(self, command, kind, text, trace=""):
        self.type, self.text = kind, text
        super().__init__("%s: %s: %s\n%s" % (command, kind, text, trace))


class PeerGone(Exception):
    """The worker ended, or did not answer in time."""


class Worker:
    """The commands. Each public method is one."""

    def __init__(self, vllm, lock):
        self._vllm, self._lock, self._held, self._encoder = vllm, lock, {}, None

    def about(self):
        v = self._vllm
        return {"version": v.version, "signed": v.signed, "touches": v.touches, "keyed": v.keyed, "keeps": v.keeps}

    def create(self, store, name, size, max_object, readers, secret=None, lock=False):
        self._held[store] = self._vllm.create(name, size, max_object, readers, self._lock if lock else None,
                                              bytes.fromhex(secret) if secret else None)

    def open(self, store, name, size, max_object, readers):
        self._held[store] = self._vllm.open(name, size, max_object, readers, self._lock)

    def close(self, store):
        holder = self._held.pop(store)
        self._vllm.close(holder)

    # A batch of uses, as a server makes them: new objects and look-ups of older ones. [verb, key, seed, number]
    def issue(self, store, uses, options):
        out, held = [], self._held[store]
        for verb, key, seed, number in uses:
            try:
                if verb == "put":
                    address, ident = held.put(key, self._vllm.build(objects.value(seed, number, **options)))
                elif not held.is_cached(key):
                    out.append(["gone"])
                    continue
                else:
                    if self._vllm.touches:
                        held.touch(key)
                    address, ident = held.get_cached(key)
                out.append(["handle", address, ident, self._vllm.signature(held, key)])
            except MemoryError:
                out.append(["full"])
        if self._vllm.signed:
            held.release_touches()
        return out

    # What a worker does with the handles of one request: touch all, then get each. Returns the differences.
    def read(self, store, groups, options):
        out, held = [], self._held[store]
        for group in groups:
            for key, _, _, address, ident, signature in group:
                self._vllm.touch(held, key, address, ident, signature)
            for key, seed, number, address, ident, signature in group:
                got = self._vllm.get(held, key, address, ident, signature)
                if text := self._vllm.differs(objects.value(seed, number, **options), got):
                    out.append("%s: %s" % (key, text))
        return out

    # Single calls, for the scenarios that look at each answer.
    def put(self, store, key, value):
        held = self._held[store]
        address, ident = held.put(key, self._vllm.build(value))
        return [address, ident, self._vllm.signature(held, key)]

    def put_object(self, store, key, value):
        return list(self._held[store].put(key, value))

    def lookup(self, store, key):
        held = self._held[store]
        address, ident = held.get_cached(key)
        return [address, ident, self._vllm.signature(held, key)]

    def is_cached(self, store, key):
        return self._held[store].is_cached(key)

    def signature(self, store, key):
        return self._vllm.signature(self._held[store], key)

    def verify(self, store, key, address, ident, signature):
        self._held[store].verify_signature(key, address, ident, signature)

    def get(self, store, key, address, ident, signature=None):
        return self._vllm.describe(self._vllm.get(self._held[store], key, address, ident, signature))

    def touch(self, store, key, address=0, ident=0, signature=None):
        self._vllm.touch(self._held[store], key, address, ident, signature)

    def touch_key(self, store, key):
        self._held[store].touch(key)

    def release_touches(self, store):
        self._held[store].release_touches()

    def free_unused(self, store):
        self._held[store].free_unused()

    def clear(self, store):
        self._held[store].clear()

    def state(self, store):
        return self._vllm.state(self._held[store])

    def encode(self, value, threshold):
        """The frames with VLLM_MSGPACK_ZERO_COPY_THRESHOLD set to the threshold."""
        encoder = self._vllm.Encoder(size_threshold=threshold)
        return [bytes(f).hex() for f in encoder.encode(self._vllm.build(value))]

    # The real caches of a server and of its workers, with items in their encoded form.
    def sender(self, store, name, size, max_mib, readers):
        self._held[store] = self._vllm.sender_cache(name, size, max_mib, readers)

    def receiver(self, store, name, size, max_mib, readers):
        self._held[store] = self._vllm.receiver_cache(name, size, max_mib, readers, self._lock)

    def send_request(self, store, keys, options):
        """One request of [key, seed, number]: what the server's side of the cache does, returning encoded items."""
        cache, out = self._held[store], []
        hits = cache.is_cached([k for k, _, _ in keys])
        if self._vllm.touches:
            for key, _, _ in keys:
                cache.touch_sender_cache_item(key)
        for (key, seed, number), hit in zip(keys, hits):
            if not self._vllm.touches:  # nothing protected it since; the server of these releases asked again, too
                hit = cache.is_cached([key])[0]
            item, _ = cache.get_and_update_item(None if hit
                                                else (self._vllm.build(objects.value(seed, number, **options)), []),
                                                key)
            frames = [bytes(f) for f in self._vllm.Encoder().encode(item)]
            out.append([key, hit, "address" in item, [f.hex() for f in frames]])
        if self._vllm.signed:
            cache.release_sender_touches()
        return out

    def sender_state(self, store):
        return self._vllm.state(self._held[store]._shm_cache)

    def receive_request(self, store, items, options):
        """One request of [key, seed, number, frames]: decoded and resolved. Returns the differences."""
        decoder = self._vllm.Decoder(self._vllm.inputs.MultiModalKwargsItem)
        features = [self._vllm.feature(key, decoder.decode([bytes.fromhex(f) for f in frames])) for key, _, _,
                    frames in items]
        self._held[store].get_and_update_features(features)
        out = []
        for (key, seed, number, _), feature in zip(items, features):
            if text := self._vllm.differs(objects.value(seed, number, **options), feature.data):
                out.append("%s: %s" % (key, text))
        return out

    # The scheduler's encoder cache manager.
    def encoder_open(self, capacity):
        import encoder_manager_peer
        self._encoder = encoder_manager_peer.Manager(capacity)
        return self._encoder.about

    def encoder_run(self, requests, steps):
        """Takes the steps one by one: [result, state after it] of each."""
        return self._encoder.run(requests, steps)


def main(pipe, lock, path):
    try:
        import upstream
        worker = Worker(upstream.load(path), lock)
    except BaseException as e:
        pipe.send(("error", type(e).__name__, str(e), traceback.format_exc()))
        return
    pipe.send(("ok", worker.about()))
    serve(pipe, worker)


def serve(pipe, worker):
    """Answers commands until the other end is closed."""
    while True:
        try:
            command, arguments = pipe.recv()
        except EOFError:
            break
        try:
            answer = ("ok", getattr(worker, command)(**arguments))
        except BaseException as e:
            answer = ("error", type(e).__name__, str(e), traceback.format_exc())
            # The traceback keeps frames alive, and with them views into the segment.
            e.__traceback__ = None
        pipe.send(answer)
    for store in list(worker._held):
        worker.close(store)


class Peer:
    """One worker process. `call` asks and waits; `send` and `receive` let it work meanwhile."""

    def __init__(self, context, lock, path, timeout=180):
        self.timeout = timeout
        self._pipe, other = context.Pipe()
        self._sent = collections.deque(["start"])
        self._process = context.Process(target=main, args=(other, lock, path), daemon=True)
        self._process.start()
        other.close()

    def ready(self):
        self.about = self.receive()
        return self

    def send(self, command, **arguments):
        self._sent.append(command)
        try:
            self._pipe.send((command, arguments))
        except OSError:
            pass  # receive tells

    def receive(self):
        command = self._sent.popleft()
        try:
            if not self._pipe.poll(self.timeout):
                raise PeerGone("no answer to %s within %g s" % (command, self.timeout))
            answer = self._pipe.recv()
        except (EOFError, OSError) as e:
            self._process.join(180)
            raise PeerGone("ended with status %s at %s" % (self._process.exitcode, command)) from e
        if answer[0] == "error":
            raise PeerError(command, *answer[1:])
        return answer[1]

    def call(self, command, **arguments):
        assert not self._sent, "answers are outstanding"
        self.send(command, **arguments)
        return self.receive()

    def error(self, command, **arguments):
        """The PeerError that the command must end in, or None if it succeeds."""
        try:
            self.call(command, **arguments)
        except PeerError as e:
            return e
        return None

    def drain(self):
        """Throws away what is outstanding, so that a test that failed in the middle leaves a usable worker."""
        while self._sent:
            try:
                self.receive()
            except PeerError:
                pass

    def close(self):
        self._pipe.close()
        self._process.join(180)
        if self._process.exitcode is None:
            self._process.kill()
            self._process.join(180)


class Pool:
    """The workers of one release: one writer and up to four readers, started together, used by all scenarios."""

    def __init__(self, path, readers):
        # Spawn, as the engine does where CUDA is in play; it also gives the lock a name, by which a process of another
        # language can take it. The child's sys.path comes from here, so the release's folder is put first over there.
        context = multiprocessing.get_context("spawn")
        os.environ["VLLM_LOGGING_LEVEL"] = "ERROR"
        self.lock = context.Lock()
        self.lock_name = self.lock._semlock.name
        self.writer, *self.readers = [Peer(context, self.lock, path) for _ in range(1 + readers)]
        for p in (self.writer, *self.readers):
            p.ready()
        self.about = self.writer.about

    def close(self):
        for p in (self.writer, *self.readers):
            p.close()

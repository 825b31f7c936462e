"""vLLM processes that can be had by the dozen, stopped between two steps, and killed.

`Family` is one process that imported a release, which takes seconds; each `Child` is a fork of it, which takes none. So
every test has workers and a lock of its own, and may do to them what it likes.
"""

import collections
import gc
import multiprocessing
import multiprocessing.connection
import multiprocessing.reduction
import os
import select
import signal
import traceback
import types

import peer


class Rank(peer.Worker):
    """More commands: one step at a time of what a server and its workers do, with the release's own caches."""

    def __init__(self, vllm, lock, pipe):
        super().__init__(vllm, lock)
        self._pipe, self._requests = pipe, {}

    # -- the server ------------------------------------------------------------------------------------------------

    def accept(self, store, items, touch=True):
        """The cache's part of one request of [key, value], in the order of vllm/multimodal/processing."""
        cache, out = self._held[store], []
        hits = cache.is_cached([key for key, _ in items])
        if touch and self._vllm.touches:
            for key, _ in items:
                cache.touch_sender_cache_item(key)
        for (key, value), hit in zip(items, hits):
            item, _ = cache.get_and_update_item(None if hit else (self._vllm.build(value), []), key)
            out.append(self._encoded(item))
        if touch and self._vllm.signed:
            cache.release_sender_touches()
        return out

    def inject(self, store, items):
        """The same by the way of frontends that send processed items: vLLM's own function, which knows no touches."""
        from vllm.v1.engine.input_processor import InputProcessor
        renderer = types.SimpleNamespace(mm_processor_cache=self._held[store], update_mm_cache_stats=lambda: None)
        values = {"image": [self._vllm.build(value) for _, value in items]}
        InputProcessor.inject_into_mm_cache(types.SimpleNamespace(renderer=renderer),
                                            {"image": [key for key, _ in items]}, values)
        return [self._encoded(item) for item in values["image"]]

    def _encoded(self, item):
        return ["address" in item, [bytes(f).hex() for f in self._vllm.Encoder().encode(item)]]

    def touch_sender(self, store, key):
        self._held[store].touch_sender_cache_item(key)

    def clear_cache(self, store):
        self._held[store].clear_cache()

    def accept_zeros(self, store, key, nbytes):
        """A request for an item of that many bytes, of which none is ever touched."""
        field = self._vllm.inputs.MultiModalBatchedField()
        elem = self._vllm.inputs.MultiModalFieldElem(data=self._vllm.torch.zeros(nbytes, dtype=self._vllm.torch.uint8),
                                                     field=field)
        item, _ = self._held[store].get_and_update_item((self._vllm.inputs.MultiModalKwargsItem({"x": elem}), []), key)
        return "address" in item

    def fail_copy(self, store):
        """The next copy into a chunk fails."""
        storage = self._held[store]._shm_cache

        def failing(*_):
            del storage.copy_to_buffer
            raise OSError("the copy failed")
        storage.copy_to_buffer = failing

    # -- a worker --------------------------------------------------------------------------------------------------

    def deliver(self, store, request, items):
        """A request of [key, frames] arrives; nothing of the cache is used yet."""
        decoder = self._vllm.Decoder(self._vllm.inputs.MultiModalKwargsItem)
        self._requests[request] = [
            self._vllm.feature(key, decoder.decode([bytes.fromhex(f) for f in frames]) if frames else None) for key,
            frames in items]

    def resolve(self, store, request, values):
        """All of it, by the release's own method. Returns the differences."""
        features = self._requests.pop(request)
        self._held[store].get_and_update_features(features)
        return [text for f, v in zip(features, values) if (text := self._vllm.differs(v, f.data))]

    # The same in steps, which are those of that method.
    def touch_feature(self, store, request, index):
        feature = self._requests[request][index]
        self._held[store].touch_receiver_cache_item(self._key(feature), feature.data)

    def get_feature(self, store, request, index, value):
        feature = self._requests[request][index]
        feature.data = self._held[store].get_and_update_item(feature.data, self._key(feature))
        return self._vllm.differs(value, feature.data)

    def _key(self, feature):
        return getattr(feature, "mm_hash", None) or feature.identifier

    def strip(self, request, computed):
        """What a scheduler does with a request of which so many tokens are computed: how many features keep their data."""
        from vllm.multimodal.utils import strip_covered_mm_data
        self._requests[request] = strip_covered_mm_data(self._requests[request], computed)
        return sum(f.data is not None for f in self._requests[request])

    # -- stops -----------------------------------------------------------------------------------------------------

    def _stop(self, where):
        """Answers the running command with where; goes on when told to, and its own answer is then that one's."""
        self._pipe.send(("ok", where))
        if self._pipe.recv() != ("go", {}):
            raise RuntimeError("stopped %s and was told something else" % where)

    def stop_decoding(self, store, after=False):
        """The next get stops between the look at the id and the decoding, or between the decoding and the counting."""
        serde = self._held[store]._shm_cache.ser_de
        decode = serde.deserialize

        def stopping(view):
            del serde.deserialize
            if after:
                value = decode(view)
                self._stop("decoded")
                return value
            self._stop("decoding")
            return decode(view)
        serde.deserialize = stopping

    def stop_in_lock(self, store):
        """The next get stops when it has the lock and has not counted yet."""
        storage = self._held[store]._shm_cache
        count = storage.increment_reader_flag

        def stopping(view):
            del storage.increment_reader_flag
            self._stop("in the lock")
            count(view)
        storage.increment_reader_flag = stopping


def _child(handle, release, lock):
    with multiprocessing.connection.Connection(handle) as pipe:
        peer.serve(pipe, Rank(release, lock, pipe))


def main(pipe, path):
    try:
        import upstream
        release = upstream.load(path)
        import vllm.multimodal.cache  # so that the forks have it
        about = peer.Worker(release, None).about()
    except BaseException as e:
        pipe.send(("error", type(e).__name__, str(e), traceback.format_exc()))
        return
    gc.collect()
    gc.freeze()  # or else each fork would look through, and so copy, all of vLLM when it collects its few objects
    pipe.send(("ok", about))
    # A spawn context's lock has a name, which Go needs; a fork inherits it all the same.
    fork, spawn, locks = multiprocessing.get_context("fork"), multiprocessing.get_context("spawn"), {}
    while True:
        try:
            command, argument = pipe.recv()
        except EOFError:
            break
        answer = None
        if command == "lock":
            lock = spawn.Lock()
            answer = lock._semlock.name
            locks[answer] = lock
        elif command == "drop":
            locks.pop(argument)
        else:
            handle = multiprocessing.reduction.recv_handle(pipe)
            process = fork.Process(target=_child, args=(handle, release, locks.get(argument)), daemon=True)
            process.start()
            os.close(handle)
            answer = process.pid
        multiprocessing.active_children()  # takes leave of those that ended
        pipe.send(("ok", answer))


class _Process:
    """A process that is no child of this one."""

    def __init__(self, pid):
        self._fd = os.pidfd_open(pid)

    @property
    def exitcode(self):
        return "unknown" if select.select([self._fd], [], [], 0)[0] else None

    def join(self, timeout):
        select.select([self._fd], [], [], timeout)

    def kill(self):
        if self.exitcode is None:
            signal.pidfd_send_signal(self._fd, signal.SIGKILL)

    def close(self):
        os.close(self._fd)


class Child(peer.Peer):
    """One fork of a family."""

    def __init__(self, pipe, pid, timeout=180):
        self.timeout, self._pipe, self._sent, self._process = timeout, pipe, collections.deque(), _Process(pid)

    def answers_within(self, seconds):
        return self._pipe.poll(seconds)

    def kill(self):
        """SIGKILL, and the process is gone when this returns."""
        self._process.kill()
        self._process.join(180)
        assert self._process.exitcode is not None, "the process lives"

    def close(self):
        super().close()
        self._process.close()


class Family:
    """The process of one release that the others are forked from."""

    def __init__(self, path):
        os.environ["VLLM_LOGGING_LEVEL"] = "ERROR"
        context = multiprocessing.get_context("spawn")
        self._pipe, other = context.Pipe()
        # Not a daemon: those may have no children. It ends when its pipe does.
        self._process = context.Process(target=main, args=(other, path))
        self._process.start()
        other.close()
        self.about = self._receive()

    def _receive(self, timeout=180):
        if not self._pipe.poll(timeout):
            raise peer.PeerGone("no answer within %d s" % timeout)
        answer = self._pipe.recv()
        if answer[0] == "error":
            raise peer.PeerError("start", *answer[1:])
        return answer[1]

    def _ask(self, command, argument=None):
        self._pipe.send((command, argument))
        return self._receive()

    def lock(self):
        """A new lock of workers, by its name."""
        return self._ask("lock")

    def drop(self, lock):
        self._ask("drop", lock)

    def fork(self, lock=None):
        ours, theirs = multiprocessing.Pipe()
        self._pipe.send(("fork", lock))
        multiprocessing.reduction.send_handle(self._pipe, theirs.fileno(), self._process.pid)
        theirs.close()
        return Child(ours, self._receive())

    def close(self):
        self._pipe.close()
        self._process.join(180)
        if self._process.exitcode is None:
            self._process.kill()
            self._process.join(180)

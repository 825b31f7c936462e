"""Receivers: each answers every object with the time at which it read the first byte of the pixels.

Each has a thread, all of which but one sleep, since the peers of a case take turns."""

import os
import socket
import threading
import time
import traceback

clock = time.monotonic_ns  # the same in all processes


def stamp(at):
    return at.to_bytes(8, "little")


class Receiver:
    """What serves in a thread until its sender ends."""

    def start(self):
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        try:
            self.serve()
        except BaseException:
            traceback.print_exc()
            os._exit(1)  # the sender waits for an answer that will not come


class ZMQ(Receiver):
    """A DEALER, as an engine is. look returns the time at which the first byte was read."""

    def __init__(self, endpoint):
        import zmq
        self.context = zmq.Context()
        self.socket = self.context.socket(zmq.DEALER)
        self.socket.connect(endpoint)
        self.socket.send(b"hello")

    def serve(self):
        while True:
            key, *frames = self.socket.recv_multipart(copy=False)
            if not frames:
                break
            self.socket.send(stamp(self.look(bytes(key).decode(), [f.buffer for f in frames])))
        self.socket.send(b"end")

    def close(self):
        self.thread.join()
        self.socket.close()
        self.context.term()


class VLLM(ZMQ):
    """vLLM's decoder, and with a store its worker's cache."""

    def __init__(self, case, shape, more):
        import store
        self.vllm = store.vllm()
        self.decode = self.vllm.Decoder(self.vllm.inputs.MultiModalKwargsItem).decode
        self.receiver = None
        if more["way"] == "shm":
            self.receiver = store.receiver(more["name"],
                                           (case["ring_bytes"], -(-(case["size"] + 4096) // store.MIB), 1))
        super().__init__(more["endpoint"])

    def look(self, key, frames):
        item = self.decode(frames)
        if self.receiver is not None:
            feature = self.vllm.feature(key, item)
            self.receiver.get_and_update_features([feature])
            item = feature.data
        item["pixel_values"].data.untyped_storage()[0]
        return clock()

    def close(self):
        super().close()
        if self.receiver is not None:
            self.vllm.close(self.__dict__.pop("receiver"))


class Ours(ZMQ):
    """Our reader, in place."""

    def __init__(self, case, shape, more):
        import reader_job
        import ringcache
        self.decode = ringcache.decode_address
        self.reader = reader_job.open_reader(more["name"], case)
        super().__init__(more["endpoint"])

    def look(self, key, frames):
        handle = self.decode(frames)
        with self.reader.get(handle.address, handle.id, key, handle.signature) as view:
            view.item["pixel_values"].data.numpy().flat[0]
            return clock()

    def close(self):
        super().close()
        self.reader.close()


class Socket(Receiver):
    """The bare bytes, received into memory that is used again."""

    def __init__(self, case, shape, more):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(more["endpoint"])
        self.memory = memoryview(bytearray(2 * shape[0] * shape[1] + 4096))

    def fill(self, n):
        """Reads n bytes, or returns None where nothing follows."""
        done = 0
        while done < n:
            got = self.socket.recv_into(self.memory[done:n])
            if not got:
                return None
            done += got
        return self.memory[:n]

    def serve(self):
        while (head := self.fill(8)) is not None:
            self.fill(int.from_bytes(head, "little"))[0]
            self.socket.sendall(stamp(clock()))

    def close(self):
        self.thread.join()
        self.socket.close()


class Redis(Socket):
    """Waits for a key in a list, gets its value into memory that is used again, and pushes the time to another list."""

    def __init__(self, case, shape, more):
        super().__init__(case, shape, more)
        self.file = self.socket.makefile("rb")

    def reply(self):
        """A reply of one level: its bytes, or its number."""
        head = self.file.readline()
        if head[:1] != b"$":
            return head
        n = int(head[1:])
        view = self.memory[:n + 2]
        done = 0
        while done < n + 2:
            done += self.file.readinto(view[done:])
        return view[:n]

    def serve(self):
        while True:
            self.socket.sendall(b"*3\r\n$5\r\nBLPOP\r\n$4\r\nkeys\r\n$1\r\n0\r\n")
            self.reply()  # of a list of two
            self.reply()
            key = bytes(self.reply())
            if key == b"end":
                return
            self.socket.sendall(b"*2\r\n$3\r\nGET\r\n$%d\r\n%s\r\n" % (len(key), key))
            self.reply()[0]
            at = b"%d" % clock()
            self.socket.sendall(b"*3\r\n$5\r\nRPUSH\r\n$7\r\nanswers\r\n$%d\r\n%s\r\n" % (len(at), at))
            self.reply()

    def close(self):
        super().close()
        self.file.close()


KINDS = {"shm": VLLM, "direct": VLLM, "ours": Ours, "socket": Socket, "redis": Redis}


def make(case, shape, more):
    receiver = KINDS[more["way"]](case, shape, more)
    receiver.start()
    return receiver

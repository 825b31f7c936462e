"""Ways of sending an item from the process with vLLM to a receiver, one at a time: the next is sent when the receiver
has answered the last with the time at which it read the first byte."""

import multiprocessing
import time

import store

clock = time.monotonic_ns  # the same in all processes


class ZMQ:
    """A bound ROUTER, as the frontend has it. The receiver is a DEALER, as the engine."""

    def __init__(self, endpoint):
        import zmq
        self.context = zmq.Context()
        self.socket = self.context.socket(zmq.ROUTER)
        self.socket.setsockopt(zmq.RCVTIMEO, 300_000)  # ms: the receiver may have ended
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.bind(endpoint)
        self.peer = None

    def send(self, *frames):
        if self.peer is None:
            self.peer = self.socket.recv_multipart()[0]
        self.socket.send_multipart([self.peer, *frames], copy=False)

    def answer(self):
        return int.from_bytes(self.socket.recv_multipart()[1], "little")

    def close(self):
        self.send(b"")
        self.socket.recv_multipart()  # so that it is not closed before the receiver has the message
        self.socket.close()
        self.context.term()


class Shm(store.Store):
    """vLLM's caches: get_and_update_item, the address item encoded and sent."""

    def __init__(self, case, shape, more):
        super().__init__(case, shape, more["name"])
        self.encode, self.delivery = store.vllm().Encoder().encode, case["job"] == "delivery"
        self.link = ZMQ(more["endpoint"])

    def run(self, n):
        samples = []
        for _ in range(n):
            key = self.next_key()
            began = clock()
            item, _ = self.sender.get_and_update_item((self.item, ()), key)
            if self.delivery:
                began = clock()
            self.link.send(key.encode(), *self.encode(item))
            samples.append(self.link.answer() - began)
        return samples

    def close(self):
        self.link.close()
        super().close()


class Direct:
    """vLLM without a cache: the item encoded with its tensors as frames, and sent."""

    def __init__(self, case, shape, more):
        self.encode, self.item = store.vllm().Encoder().encode, store.make_item(shape)
        self.link = ZMQ(more["endpoint"])

    def run(self, n):
        samples = []
        for _ in range(n):
            began = clock()
            self.link.send(b"key", *self.encode(self.item))
            samples.append(self.link.answer() - began)
        return samples

    def close(self):
        self.link.close()


def receive_queue(items, answers):
    """The process at the other end of a queue."""
    while (item := items.get()) is not None:
        first = item["pixel_values"][0]
        answers.put((clock(), first))


class Queue:
    """A queue of multiprocessing, which pickles what goes through: the bare bytes of the item."""

    def __init__(self, case, shape, more):
        context = multiprocessing.get_context("spawn")
        self.items, self.answers = context.Queue(), context.Queue()
        self.process = context.Process(target=receive_queue, args=(self.items, self.answers), daemon=True)
        self.process.start()
        self.item = {"pixel_values": bytes(i & 255 for i in range(256)) * (2 * shape[0] * shape[1] // 256 + 1),
                     "image_grid_thw": bytes(24)}

    def run(self, n):
        samples = []
        for _ in range(n):
            began = clock()
            self.items.put(self.item)
            samples.append(self.answers.get()[0] - began)
        return samples

    def close(self):
        self.items.put(None)
        self.process.join()


WAYS = {"shm": Shm, "direct": Direct, "queue": Queue}

"""Jobs of the real vLLM, each timed here, with vLLM's own classes and in the order in which its frontend and its
workers call them."""

import time

import send
import store

clock = time.perf_counter_ns
BATCH = 4  # puts between two moments at which all reads are counted: half of the smallest ring


def versions():
    import sys
    import torch
    return {"vLLM": store.vllm().version, "torch": torch.__version__, "Python": sys.version.split()[0]}


class Sender(store.Store):
    """A request up to the bytes that the engine gets: is_cached_item, get_and_update_item, and encoding the address. The
    jobs about live objects, of which ours don't encode either, are without the last."""

    def __init__(self, case, shape, more):
        super().__init__(case, shape)
        self.encode, self.hit = store.vllm().Encoder().encode, case["job"] in ("repeat", "transaction", "live-hit")
        if case["job"].startswith("live"):
            self.encode = None
            for _ in range(case["live"]):
                self.count([self.put()])
            self.keys = [store.key(1 + i * 2654435761 % case["live"]) for i in range(case["live"])]
        elif self.hit:
            self.keys = [self.put() for _ in range(case["live"])]
            self.count(self.keys)
        else:
            for _ in range(case["ring_bytes"] // case["size"] + 16):
                self.count([self.put()])
        self.at = 0

    def run(self, n):
        spent, left = 0, n
        sender, encode, known = self.sender, self.encode, len(self.keys) if self.hit else 0
        while left:
            count = min(left, BATCH)
            if self.hit:
                keys = [self.keys[(self.at + i) % known] for i in range(count)]
                self.at += count
                news = None
            else:
                keys, news = [self.next_key() for _ in range(count)], (self.item, ())
            began = clock()
            for key in keys:
                sender.is_cached_item(key)
                item, _ = sender.get_and_update_item(news, key)
                if encode is not None:
                    encode(item)
            spent += clock() - began
            self.count(keys)
            left -= count
        return [spent / n]


class Worker(store.Store):
    """A worker: decoding the address item, then get_and_update_features, which touches, copies and counts."""

    def __init__(self, case, shape, more):
        super().__init__(case, shape)
        vllm = store.vllm()
        self.encode = vllm.Encoder().encode
        self.decode = vllm.Decoder(vllm.inputs.MultiModalKwargsItem).decode
        self.receiver = self.make_receiver()

    def run(self, n):
        spent, left, sum_ = 0, n, 0
        decode, receiver = self.decode, self.receiver
        while left:
            count = min(left, BATCH)
            work = []
            for _ in range(count):
                key = self.next_key()
                item, _ = self.sender.get_and_update_item((self.item, ()), key)
                work.append(([bytes(f) for f in self.encode(item)], store.vllm().feature(key, None)))
            began = clock()
            for frames, feature in work:
                feature.data = decode(frames)
                receiver.get_and_update_features([feature])
                for elem in feature.data.values():
                    sum_ += elem.data.untyped_storage()[0]
            spent += clock() - began
            left -= count
            del work, feature, elem
        return [spent / n]

    def close(self):
        store.vllm().close(self.__dict__.pop("receiver"))
        super().close()


class Hash:
    """The key of an image from the bytes of its file, as the processor makes it."""

    def __init__(self, case, shape, more):
        import PIL.Image
        import vllm.multimodal.hasher as hasher
        data = bytes(i * 7 & 255 for i in range(case["size"]))
        self.hash, self.model = hasher.MultiModalHasher.hash_kwargs, "Qwen/Qwen2-VL-7B-Instruct"
        self.image = hasher.MediaWithBytes(PIL.Image.new("RGB", (8, 8)), data)

    def run(self, n):
        began = clock()
        for _ in range(n):
            self.hash("blake3", model_id=self.model, image=self.image)
        return [(clock() - began) / n]

    def close(self):
        pass


def make(case, shape, more):
    job = case["job"]
    if "way" in more:
        return send.WAYS[more["way"]](case, shape, more)
    return {"worker": Worker, "hash": Hash}.get(job, Sender)(case, shape, more)

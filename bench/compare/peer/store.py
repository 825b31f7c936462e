"""vLLM's caches on a segment of their own, and an item as the processor of Qwen2-VL makes it for one image."""

import functools
import itertools
import os

MIB = 1 << 20
names = itertools.count()


@functools.cache
def vllm():
    import upstream
    return upstream.load(None)


def key(i):
    return "%064x" % (i * 0x9E3779B97F4A7C15 & (1 << 64) - 1)


def make_item(shape):
    torch, inputs = vllm().torch, vllm().inputs
    rows, columns = shape
    pixels = (torch.arange(rows * columns) % 8191 + 1).to(torch.int16).view(torch.bfloat16).view(rows, columns)
    grid = torch.tensor([1, 1, rows], dtype=torch.int64)
    elem = inputs.MultiModalFieldElem
    return inputs.MultiModalKwargsItem({
        "pixel_values": elem(data=pixels, field=inputs.MultiModalFlatField(slices=[slice(0, rows)], dim=0)),
        "image_grid_thw": elem(data=grid, field=inputs.MultiModalBatchedField(keep_on_cpu=True)),
    })


class Store:
    """The cache of the frontend, and what every job with one does."""

    def __init__(self, case, shape, name=None):
        self.name = name or "ringcache_compare_%d_%d" % (os.getpid(), next(names))
        self.limits = (case["ring_bytes"], -(-(case["size"] + 4096) // MIB), 1)
        self.sender, self.item, self.made = vllm().sender_cache(self.name, *self.limits), make_item(shape), 0

    def make_receiver(self):
        return receiver(self.name, self.limits)

    def next_key(self):
        self.made += 1
        return key(self.made)

    def put(self):
        k = self.next_key()
        self.sender.get_and_update_item((self.item, ()), k)
        return k

    def count(self, keys):
        """Counts the reads of the only reader, as that would: the ring frees nothing without."""
        storage = self.sender._shm_cache
        for k in keys:
            address, number = storage.key_index[k]
            with storage.ring_buffer.access_buf(address) as (view, _):
                view[:4] = storage.writer_flag[number].to_bytes(4, "little", signed=True)

    def close(self):
        vllm().close(self.__dict__.pop("sender"))


def receiver(name, limits):
    import multiprocessing
    # vLLM's workers share a lock that the engine makes; this one is the only worker.
    return vllm().receiver_cache(name, *limits, multiprocessing.get_context("spawn").Lock())

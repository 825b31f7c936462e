"""A worker with our reader: from the bytes of an address item to the first byte of each tensor, read in place and
counted."""

import itertools
import multiprocessing
import time

import ringcache

clock = time.perf_counter_ns


def open_reader(name, case):
    reader = ringcache.Reader(name, case["ring_bytes"], n_readers=1, lock=multiprocessing.get_context("spawn").Lock())
    reader.populate()  # as a worker does before it serves
    return reader


class Worker:
    def __init__(self, case, shape, more):
        self.reader, self.sum = open_reader(more["name"], case), 0

    def run(self, n, keys, frames):
        get, decode = self.reader.get, ringcache.decode_address
        frames = [[bytes.fromhex(f)] for f in frames]
        work = list(itertools.islice(itertools.cycle(zip(keys, frames)), n))
        began = clock()
        for key, frame in work:
            handle = decode(frame)
            with get(handle.address, handle.id, key, handle.signature) as view:
                for elem in view.item.values():
                    self.sum += int(elem.data.numpy().flat[0])
        spent = clock() - began
        del view, elem
        return [spent / n]

    def close(self):
        self.reader.close()

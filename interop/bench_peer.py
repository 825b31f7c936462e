#!/usr/bin/env python3
"""Times real vLLM's storage for another program: one JSON request per line in, one JSON answer per line out.

    {"op":"put"|"get"|"hit","size":BYTES,"rounds":N}  ->  {"median_ns":F,"min_ns":F,"per_round":K,"version":V}

The item has one uint8 tensor of `size` bytes. put: storage.put of a fresh key into a ring that holds objects which all
readers have read, so that it evicts what it needs; get: a reader's get of a live object, which decodes and counts under
the lock; hit: get_cached. A round is `per_round` operations and its time is divided by that: more of them where one
takes about as long as reading the clock.

    bench_peer.py [RELEASE]     the environment's own vLLM, or a release unpacked in it
"""

import json
import multiprocessing
import os
import statistics
import sys
import time

import upstream

MIB = 1 << 20


def item(vllm, size):
    # Filled, so that no page of the source is the kernel's zero page; built once, so that a put does not time it.
    tensor = vllm.torch.frombuffer(bytearray(os.urandom(size)), dtype=vllm.torch.uint8)
    field = vllm.field({"kind": "batched"})
    cls = vllm.inputs.MultiModalFieldElem
    if vllm.keyed:
        return vllm.inputs.MultiModalKwargsItem.from_elems([cls(modality="image", key="pixel_values", data=tensor, field=field)])
    return vllm.inputs.MultiModalKwargsItem({"pixel_values": cls(data=tensor, field=field)})


class Bench:
    def __init__(self, vllm, lock, name, size):
        self.vllm, self.size = vllm, size
        # Room for eight objects: the ring is full after eight rounds, and from then on every put evicts.
        ring = max(8 * (size + 4096), MIB)
        limits = (ring, size + 4096, 1)
        self.writer = vllm.create(name, *limits)
        self.reader = vllm.open(name, *limits, lock)
        self.item, self.made = item(vllm, size), 0
        for _ in range(2 * ring // (size + 4096)):
            self.read(self.put())

    def put(self):
        key = "key%d" % self.made
        self.made += 1
        return (key, *self.writer.put(key, self.item))

    def read(self, handle, signature=None):
        key, address, ident = handle
        self.vllm.get(self.reader, key, address, ident, signature or self.vllm.signature(self.writer, key))

    def close(self):
        self.vllm.close(self.reader)
        self.vllm.close(self.writer)

    def round(self, op, count):
        clock, spent = time.perf_counter_ns, 0
        if op == "put":
            # As many as surely fit, and all read before the next ones: a put never finds the ring full of unread objects.
            while count:
                n = min(count, 4)
                begin = clock()
                handles = [self.put() for _ in range(n)]
                spent += clock() - begin
                for h in handles:
                    self.read(h)
                count -= n
            return spent
        handle = next(iter((k, *v) for k, v in reversed(self.writer.key_index.items())))
        signature = self.vllm.signature(self.writer, handle[0])
        begin = clock()
        if op == "get":
            for _ in range(count):
                self.read(handle, signature)
        else:
            for _ in range(count):
                self.writer.get_cached(handle[0])
        spent = clock() - begin
        # Each use on one side is owed one on the other; even them out, or the object would stay for ever.
        issued, read = self.writer.writer_flag[handle[2]], self.vllm.state(self.writer)["reader_flag"][handle[2]]
        self.writer.writer_flag[handle[2]] = max(issued, 1)
        with self.writer.ring_buffer.access_buf(handle[1]) as (view, _):
            view[:4] = max(issued, read).to_bytes(4, "little", signed=True)
        return spent


def main():
    release = sys.argv[1] if len(sys.argv) > 1 else None
    vllm = upstream.load(os.path.join(sys.prefix, "releases", release) if release else None)
    lock = multiprocessing.get_context("spawn").Lock()
    for number, line in enumerate(sys.stdin):
        bench = None
        try:
            request = json.loads(line)
            op, size, rounds = request["op"], int(request["size"]), int(request["rounds"])
            if op not in ("put", "get", "hit") or size < 1 or rounds < 1:
                raise ValueError("op is put, get or hit; size and rounds are positive")
            bench = Bench(vllm, lock, "rcbench_%d_%d" % (os.getpid(), number), size)
            count = 1000 if op == "hit" else max(1, min(64, 4 * MIB // size))
            bench.round(op, count)  # warm: code paths, pages, caches
            times = [bench.round(op, count) / count for _ in range(rounds)]
            answer = {"median_ns": statistics.median(times), "min_ns": min(times), "per_round": count, "version": vllm.version}
        except Exception as e:
            answer = {"error": "%s: %s" % (type(e).__name__, e)}
        finally:
            if bench:
                bench.close()
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()

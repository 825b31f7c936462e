"""Rings for tests of examples/ringtest/agent.py: rings.py RING [BUG]."""

import os
import struct
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "..", "examples", "ringtest"))
sys.dont_write_bytecode = True

import agent


class BestFit:
    """Places chunks in the smallest hole that takes them, and frees them in any order."""

    def __init__(self, size, first_id):
        self.memory = bytearray(size)
        self.live = {}
        self.sizes = {}
        self.next_id = first_id

    def holes(self):
        at = 0
        for address, chunk_id in sorted((a, i) for i, a in self.live.items()):
            yield at, address - at
            at = address + self.sizes[chunk_id]
        yield at, len(self.memory) - at

    def alloc(self, size):
        need = size + 8
        fitting = [(room, at) for at, room in self.holes() if room >= need]
        if not fitting:
            return None
        address, chunk_id = min(fitting)[1], self.next_id
        struct.pack_into("<II", self.memory, address, chunk_id, need)
        self.live[chunk_id], self.sizes[chunk_id] = address, need
        self.next_id = (chunk_id + 1) % 2**31
        return address, chunk_id

    def free(self, may, limit):
        freed = [i for i in self.live if may(i)]
        for chunk_id in freed:
            struct.pack_into("<I", self.memory, self.live.pop(chunk_id), 0xFFFFFFFF)
            del self.sizes[chunk_id]
        return freed

    def clear(self):
        self.free(lambda chunk_id: True, 0)


def with_bug(ring, bug):
    class Broken(ring):
        def alloc(self, size):
            if bug == "raises" and size == 3:
                raise KeyError("planted")
            if bug == "full" or bug == "lost room" and self.next_id > 4 and not self.live:
                return None
            short = bug == "overlap" and size > 1
            chunk = super().alloc(size - short)
            if chunk is None:
                return None
            address, chunk_id = chunk
            if short:
                at = address % len(self.memory)
                self.memory[at + 4:at + 8] = (size + 8).to_bytes(4, "little")
            return address, chunk_id + (bug == "wrong id")

        def free(self, may, limit):
            if bug == "early free":
                return super().free(lambda chunk_id: True, limit)
            freed = super().free(may, limit)
            if bug == "lost bytes" and freed and self.live:
                self.memory[next(iter(self.live.values())) % len(self.memory) + 8] = 0
            return freed

    return Broken


agent.Ring = {"fifo": agent.Ring, "best-fit": BestFit}[sys.argv[1]]
if len(sys.argv) > 2:
    agent.Ring = with_bug(agent.Ring, sys.argv[2])
agent.main()

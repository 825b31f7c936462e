"""Counting from several processes under one real lock."""

from __future__ import annotations

import multiprocessing
import struct
from multiprocessing.synchronize import Barrier
from multiprocessing.synchronize import Lock as ProcessLock
from typing import Any

import build
import pytest
from conftest import MakeSegment

from ringcache import Reader, sign

READERS, ROUNDS, SIZE = 3, 400, 4096


def read_many(
    name: str, generation: str, addresses: list[int], lock: ProcessLock, barrier: Barrier
) -> None:
    with Reader(name, SIZE, generation=generation, n_readers=READERS, lock=lock) as reader:
        barrier.wait()
        for _ in range(ROUNDS):
            for id, address in enumerate(addresses):
                signature = None
                if reader.generation.signed:
                    signature = list(sign(reader.secret(), f"k{id}", address, id))
                with reader.get(address, id, f"k{id}", signature) as view:
                    assert view.tensor.numpy()[0] == id


@pytest.mark.parametrize("generation", ["0.31.0", "0.32.0"])
@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_no_count_is_lost(make_segment: MakeSegment, generation: str, method: str) -> None:
    # One counter crosses a cache line: 64 - 8 - 2 in front of a chunk's count.
    addresses = [54, 501, 1024]
    chunks = {
        address: build.chunk(
            id, build.body("Tensor", build.frames(["int64", [1], build.raw(struct.pack("<q", id))]))
        )
        for id, address in enumerate(addresses)
    }
    signed = generation == "0.32.0"
    name = make_segment(build.segment(SIZE, chunks, build.SECRET if signed else b""))
    context: Any = multiprocessing.get_context(method)
    lock, barrier = context.Lock(), context.Barrier(READERS)
    processes = [
        context.Process(target=read_many, args=(name, generation, addresses, lock, barrier))
        for _ in range(READERS)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(300)
        process.kill()
    assert [process.exitcode for process in processes] == [0] * READERS
    with Reader(name, SIZE, generation=generation) as reader:
        for id, address in enumerate(addresses):
            assert reader.reader_count(address, id) == READERS * ROUNDS

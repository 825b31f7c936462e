"""Times one look of a worker: from the bytes of an address item to the first byte of each tensor, counted.

    look.py [SOURCES ...]    folders with the package `ringcache`, ../src if none is given

Each folder gets a process of its own, and they take turns, so that what else the machine does meets all of them.
Times are microseconds of one look: the least and the median of all rounds, and the first folder's least by that
of each. "warm" looks at four objects again and again; "cold" looks once at each of four objects that the parent has just
written, as a worker does whose caches are full of the pixels.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import pathlib
import statistics
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent
OBJECTS, ROUNDS, WARM = 4, 15, 200
PATCH = 3 * 2 * 14 * 14
SIZES = (4 << 10, 64 << 10, 1 << 20, 24 << 20)


def serve(sources: str, pipe: Connection) -> None:
    sys.path.insert(0, sources)
    import ringcache

    lock = multiprocessing.get_context("spawn").Lock()
    clock = time.perf_counter_ns
    decode = getattr(ringcache, "decode_address", None) or (
        lambda frames: ringcache.parse_address(ringcache.decode_item(frames))  # before it
    )
    total = 0
    while (opening := pipe.recv()) is not None:
        with ringcache.Reader(*opening, lock=lock) as reader:
            assert reader.protected
            get = reader.get
            while (work := pipe.recv()) is not None:
                began = clock()
                for key, frames in work:
                    handle = decode(frames)
                    assert handle is not None
                    with get(handle.address, handle.id, key, handle.signature) as view:
                        for elem in view.item.values():
                            total += int(elem.data.numpy().flat[0])  # type: ignore[union-attr]
                pipe.send((clock() - began) / len(work))
            del view, elem


class Writer:
    """A ring for two batches of objects, in turns."""

    def __init__(self, size: int) -> None:
        import build
        import numpy as np
        from ringcache import sign

        rows, columns = (1, size // 2) if size < 2 * PATCH else (size // (2 * PATCH), PATCH)
        document = {
            "pixel_values": build.elem(
                ["bfloat16", [rows, columns], 1],
                ["flat", {"slices": [[0, rows, None]], "dim": 0, "keep_on_cpu": False}],
            ),
            "image_grid_thw": build.elem(
                ["int64", [3], build.raw(bytes(24))], ["batched", {"keep_on_cpu": True}]
            ),
        }
        parts = build.frames(document, os.urandom(1 << 16) * (2 * rows * columns >> 16) or bytes(1))
        parts[1] = parts[1].ljust(2 * rows * columns, b"\1")
        self.body = np.frombuffer(build.pool_body(build.ITEM, parts, "k" * 64, 1), np.uint8)
        self.step = -(-(8 + len(self.body)) // 64) * 64
        self.size = 2 * OBJECTS * self.step
        self.build, self.sign, self.np = build, sign, np
        self.ids = itertools.count(1)
        self.name = f"ringcache-bench-{uuid.uuid4()}"

    @contextmanager
    def open(self) -> Iterator[None]:
        files = [pathlib.Path("/dev/shm", self.name), pathlib.Path("/dev/shm", self.name + ".ctl")]
        try:
            os.umask(0o077)
            with files[0].open("xb") as f:
                f.write(self.build.segment(self.size, {}))
            info = files[0].stat()
            files[1].write_bytes(self.build.sidecar((info.st_dev, info.st_ino), self.size, slots=8))
            self.ring = self.np.memmap(files[0], self.np.uint8, "r+")[32:]
            yield
        finally:
            self.ring = None
            for file in files:
                file.unlink(missing_ok=True)

    def put(self) -> list[tuple[str, list[bytes]]]:
        work = []
        for _ in range(OBJECTS):
            id = next(self.ids)
            at, key = id % (2 * OBJECTS) * self.step, f"{id:064x}"
            self.ring[at + 8 : at + 8 + len(self.body)] = self.body
            head = self.np.array([id, 8 + len(self.body)], "<i4").view(self.np.uint8)
            self.ring[at : at + 8] = head
            work.append((key, self.build.address_frames(key, at, id)))
        return work


def main() -> None:
    folders = sys.argv[1:] or [str(HERE.parent / "src")]
    sys.path[:0] = [folders[0], str(HERE.parent / "tests")]
    context = multiprocessing.get_context("spawn")
    peers = []
    for folder in folders:
        ours, theirs = context.Pipe()
        process = context.Process(target=serve, args=(folder, theirs), daemon=True)
        process.start()
        peers.append((ours, process))

    def ask(pipe: Any, work: Any) -> float:
        pipe.send(work)
        return float(pipe.recv()) / 1e3

    for size in SIZES:
        writer = Writer(size)
        with writer.open():
            times: dict[str, list[list[float]]] = {k: [[] for _ in peers] for k in ("warm", "cold")}
            for pipe, _ in peers:
                pipe.send((writer.name, writer.size))
            for round in range(ROUNDS):
                for i, (pipe, _) in list(enumerate(peers))[:: 1 if round % 2 else -1]:
                    work = writer.put()
                    times["cold"][i].append(ask(pipe, work))
                    times["warm"][i].append(ask(pipe, work * (WARM // OBJECTS)))
            for pipe, _ in peers:
                pipe.send(None)
        for kind, all in times.items():
            line = f"{size >> 10:6d} KiB {kind}"
            for some in all:
                line += f"  {min(some):8.1f} {statistics.median(some):8.1f}"
                line += f" x{min(all[0]) / min(some):.2f}"
            print(line, flush=True)
    for pipe, process in peers:
        pipe.send(None)
        process.join()


if __name__ == "__main__":
    main()

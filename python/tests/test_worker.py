from __future__ import annotations

import os
import pathlib
import signal
import time
import struct
import uuid
from typing import Any

import build
import pytest
from conftest import MakeSegment
from workerproc import WorkerProcess, line_object, wait_gone, wait_gone_file

from ringcache import Reader
from ringcache._resolve import Config
from ringcache.worker import _Pool, _Signal, _Signals, _Worker

SIZE, MAX, K = 8192, 4096, 3
PIXELS = bytes(range(256)) * 4
GRID = struct.pack("<3q", 1, 2, 3)


def item(pixels: bytes = PIXELS) -> list[bytes]:
    return build.frames(
        {
            "pixel_values": build.elem(build.u8(len(pixels), 1)),
            "grids": build.elem([["int64", [3], build.raw(GRID)], 7]),
        },
        pixels,
    )


def config(segment: str, **kw: Any) -> dict[str, Any]:
    return {
        "segment": segment,
        "size": SIZE,
        "max_object": MAX,
        "readers": K,
        "generation": "0.32.0",
        "peer": "ringcache",
        **kw,
    }


@pytest.fixture
def name(make_segment: MakeSegment) -> str:
    """A segment with object k0 at 0 with id 3 and k1 at 2001 with id 4."""
    return make_segment(
        build.segment(
            SIZE,
            {
                0: build.chunk(3, build.body(build.ITEM, item())),
                2001: build.chunk(4, build.body(build.ITEM, item(PIXELS[::-1]), pad=5)),
            },
        )
    )


def expected(pixels: bytes = PIXELS) -> dict[str, bytes]:
    return {"pixel_values": pixels, "grids.0": GRID}


def k0(**kw: Any) -> dict[str, Any]:
    return line_object("k0", build.address_frames("k0", 0, 3), **{**expected(), **kw})


def k1() -> dict[str, Any]:
    return line_object("k1", build.address_frames("k1", 2001, 4), **expected(PIXELS[::-1]))


def inline() -> dict[str, Any]:
    return line_object("k2", item(PIXELS[5:]), **expected(PIXELS[5:]))


def semaphore(ready: dict[str, Any]) -> pathlib.Path:
    return pathlib.Path("/dev/shm", "sem." + ready["lock"].removeprefix("/"))


def counts(name: str) -> tuple[int, int]:
    with Reader(name, SIZE, generation="0.32.0") as reader:
        return reader.reader_count(0, 3), reader.reader_count(2001, 4)


def test_resolves(name: str) -> None:
    with WorkerProcess(config(name)) as worker:
        ready = worker.receive()
        assert ready == {"ready": True, "workers": K, "lock": ready["lock"]}
        assert semaphore(ready).exists()
        assert len(worker.workers()) == K
        n = len(PIXELS) + len(GRID)

        reply = worker.ask({"seq": 1, "objects": [k0(), k1(), inline()]})
        total = K * (3 * n - 5)
        assert reply == {"seq": 1, "objects": 3 * K, "bytes": total, "errors": []}
        assert counts(name) == (K, K)

        reply = worker.ask({"seq": 2, "objects": [k0(), k0()]})
        assert reply == {"seq": 2, "objects": 2 * K, "bytes": 2 * K * n, "errors": []}
        assert counts(name) == (3 * K, K)

        reply = worker.ask({"seq": 3, "objects": []})
        assert reply == {"seq": 3, "objects": 0, "bytes": 0, "errors": []}

        unchecked = {**k0(), "sha256": None}
        reply = worker.ask({"seq": -4, "objects": [unchecked]})
        assert reply == {"seq": -4, "objects": K, "bytes": 0, "errors": []}

        assert worker.end() == 0
        assert not semaphore(ready).exists()
    assert worker.stderr == b""


def test_older_generation(make_segment: MakeSegment) -> None:
    """Unsigned handles, no secret, and the touch that counts."""
    chunk = build.chunk(3, build.body(build.ITEM, item()))
    name = make_segment(build.segment(SIZE, {0: chunk}, b""))
    address = build.frames({"address": build.elem(SIZE), "monotonic_id": build.elem(3)})
    with WorkerProcess(config(name, generation="0.31.0", readers=1)) as worker:
        worker.receive()
        obj = line_object("k0", address, **expected())
        for seq, count in ((1, 1), (2, 3), (3, 5)):
            assert worker.ask({"seq": seq, "objects": [obj]})["errors"] == []
            with Reader(name, SIZE, generation="0.31.0") as reader:
                assert reader.reader_count(0, 3) == count
        assert worker.end() == 0


def test_reports_errors_and_goes_on(name: str) -> None:
    with WorkerProcess(config(name)) as worker:
        worker.receive()
        stale = line_object("k0", build.address_frames("k0", 0, 9))
        forged = line_object("k0", build.address_frames("k0", 0, 3, bytes(32)))
        other = k0(pixel_values=b"other")
        missing = line_object("k0", build.address_frames("k0", 0, 3), pixel_values=PIXELS)
        junk = {"key": "k0", "frames": ["c1"], "sha256": {}}
        cases = [
            (stale, "StaleError: Data for address:id '0:9' has been modified or is invalid."),
            (forged, "HandleError: Invalid SHM handle signature for cache key."),
            (other, "ValueError: pixel_values: sha256 is "),
            (missing, "ValueError: tensors are ['grids.0', 'pixel_values'], expected ['pixel_val"),
            (junk, "CorruptError: document is not MessagePack"),
            ({"key": "k0", "frames": [], "sha256": {}}, "CorruptError: object has no frames"),
        ]
        for seq, (bad, text) in enumerate(cases):
            reply = worker.ask({"seq": seq, "objects": [k1(), bad, k1()]})
            assert (reply["seq"], reply["objects"]) == (seq, 2 * K)
            assert len(reply["errors"]) == K
            for i in range(K):
                assert any(f"worker {i}: object 1 (key 'k0'): {text}" in e for e in reply["errors"])
        many = worker.ask({"seq": 99, "objects": [stale] * 50})["errors"]
        assert len(many) == 101
        assert many[-1] == f"and {50 * K - 100} more errors"
        assert worker.end() == 0


def test_input_without_last_newline(name: str) -> None:
    with WorkerProcess(config(name)) as worker:
        worker.receive()
        worker.send(b'\n  \n{"seq": 5, "objects": []}')
        assert worker.process.stdin
        worker.process.stdin.close()
        assert worker.receive()["seq"] == 5
        assert worker.exit_code() == 0


def test_large_lines(name: str) -> None:
    """Far beyond the pipes' buffers, in both directions of the supervisor."""
    big = os.urandom(3 << 20)
    frames = build.frames({"x": build.elem(build.u8(len(big), 1))}, big)
    with WorkerProcess(config(name)) as worker:
        worker.receive()
        reply = worker.ask({"seq": 1, "objects": [line_object("k", frames, x=big)] * 4})
        assert reply == {"seq": 1, "objects": 4 * K, "bytes": 4 * K * len(big), "errors": []}
        assert worker.end() == 0


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (b"\xff\n", "config: "),
        (b"[]\n", "config: "),
        (b"{}\n", "config: Object missing required field `segment`"),
        ({"peer": "other"}, "config: Invalid enum value 'other'"),
        ({"typo": 1}, "config: Object contains unknown field `typo`"),
        ({"readers": 0}, "config: readers must be"),
        ({"readers": 100_000}, "config: readers must be"),
        ({"size": 0}, "config: size and max_object"),
        ({"timeout": -1}, "config: timeout"),
    ],
)
def test_bad_config(line: bytes | dict[str, Any], text: str) -> None:
    first = line if isinstance(line, bytes) else config("x", **line)
    with WorkerProcess(first) as worker:
        assert text in worker.receive()["error"]
        assert worker.exit_code() == 2


def test_no_config() -> None:
    with WorkerProcess(b"") as worker:
        assert worker.process.stdin
        worker.process.stdin.close()
        assert worker.receive() == {"error": "config: no line"}
        assert worker.exit_code() == 2


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"segment": f"ringcache-test-{uuid.uuid4()}"}, "SegmentNotFoundError"),
        ({"size": SIZE + 1}, "SegmentSizeError"),
        ({"generation": "9.9.9"}, "UnknownVersionError"),
    ],
)
def test_cannot_attach(name: str, change: dict[str, Any], text: str) -> None:
    with WorkerProcess({**config(name), **change}) as worker:
        reply = worker.receive()
        assert list(reply) == ["error"]
        assert text in reply["error"]
        assert worker.exit_code() == 1


@pytest.mark.parametrize(
    ("line", "seq"),
    [
        (b"not json\n", None),
        (b"[]\n", None),
        (b'{"seq": 7}\n', 7),
        (b'{"seq": 7, "objects": [{"key": "k", "frames": ["zz"], "sha256": {}}]}\n', 7),
        (b'{"seq": 7, "objects": [{"key": "k", "frames": "00"}]}\n', 7),
        (b'{"seq": "7", "objects": []}\n', None),
    ],
)
def test_bad_line(name: str, line: bytes, seq: int | None) -> None:
    with WorkerProcess(config(name)) as worker:
        worker.receive()
        reply = worker.ask(line)
        assert reply["seq"] == seq
        assert reply["error"].startswith("bad line: ")
        assert worker.exit_code() == 2


def test_worker_dies_idle(name: str) -> None:
    with WorkerProcess(config(name)) as worker:
        worker.receive()
        children = worker.children()
        os.kill(worker.workers()[1], signal.SIGKILL)
        reply = worker.receive()
        assert reply["seq"] is None
        assert "ended early, exit code -9" in reply["error"]
        assert worker.exit_code() == 1
        wait_gone(children)


def test_worker_dies_in_a_batch(name: str) -> None:
    with WorkerProcess(config(name)) as worker:
        ready = worker.receive()
        stuck = worker.workers()[0]
        os.kill(stuck, signal.SIGSTOP)
        worker.send({"seq": 8, "objects": [k0()]})
        os.kill(stuck, signal.SIGKILL)
        reply = worker.receive()
        # Idle or in the batch: that depends on who is faster, the error does not.
        assert reply["seq"] in (8, None)
        assert "ended early, exit code -9" in reply["error"]
        assert worker.exit_code() == 1
        wait_gone_file(semaphore(ready))


def test_stuck_worker_times_out(name: str) -> None:
    for seconds in (8.0, 40.0, 200.0):  # the start has no longer, and may need it
        with WorkerProcess(config(name, timeout=seconds)) as worker:
            ready = worker.receive()
            if "error" in ready:
                assert ready == {"error": f"workers took longer than {seconds} s"}
                continue
            children = worker.children()
            os.kill(worker.workers()[0], signal.SIGSTOP)
            reply = worker.ask({"seq": 8, "objects": [k0()]})
            assert reply == {"seq": 8, "error": f"workers took longer than {seconds} s"}
            assert worker.exit_code() == 1
            wait_gone(children)
            wait_gone_file(semaphore(ready))
            return
    pytest.fail("the workers did not start")


def test_slow_worker_is_not_a_failure() -> None:
    """At the end each has the time that a batch has, and is not killed after seconds."""

    class Slow:
        exitcode: int | None = None
        killed = False

        def join(self, timeout: float | None = None) -> None:
            if timeout is None or timeout >= 60:
                self.exitcode = 0 if self.exitcode is None else self.exitcode

        def kill(self) -> None:
            if self.exitcode is None:
                self.exitcode = -9

    class Pipe:
        def close(self) -> None: ...

    pool = _Pool.__new__(_Pool)
    pool._config = Config("s", 1, 1, 2)
    pool._workers = [_Worker(Slow(), Pipe()) for _ in range(2)]  # type: ignore[arg-type]
    assert pool.close() == 0
    pool._config.timeout = 1
    pool._workers = [_Worker(Slow(), Pipe()) for _ in range(2)]  # type: ignore[arg-type]
    assert pool.close() == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("group", [False, True])
def test_signals(name: str, number: signal.Signals, group: bool) -> None:
    """To the process alone, or as from a terminal to its group: no word, no trace."""
    if group and number == signal.SIGTERM:
        pytest.skip("the group's workers end by themselves")
    with WorkerProcess(config(name), start_new_session=True) as worker:
        ready = worker.receive()
        children = worker.children()
        if group:
            os.killpg(worker.process.pid, number)
        else:
            os.kill(worker.process.pid, number)
        assert worker.exit_code() == 128 + number
        wait_gone(children)
        wait_gone_file(semaphore(ready))
    assert worker.stderr == b""


def test_signal_just_before_a_wait() -> None:
    """It interrupts no system call, so the wait itself has to see it."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.getsignal(number) for number in numbers]
    idle, other = os.pipe()
    try:
        signals = _Signals()
        for number in numbers:
            with pytest.raises(_Signal):
                os.kill(os.getpid(), number)
                time.sleep(60)  # until Python calls the handler
            with pytest.raises(_Signal) as e:
                signals.wait([idle])  # that exception is over; nothing else ends this wait
            assert e.value.number == number
    finally:
        for number, handler in zip(numbers, before):
            signal.signal(number, handler)
        os.close(signal.set_wakeup_fd(-1))
        for fd in (idle, other):
            os.close(fd)


def test_signal_while_starting(name: str) -> None:
    with WorkerProcess(config(name), start_new_session=True) as worker:
        deadline = time.monotonic() + 300
        while not worker.workers():
            assert worker.process.poll() is None and time.monotonic() < deadline
        children = worker.children()
        os.killpg(worker.process.pid, signal.SIGINT)
        assert worker.exit_code() == 128 + signal.SIGINT
        wait_gone(children)


def test_no_orphans(name: str) -> None:
    """A supervisor that is killed leaves no process and no semaphore, even with
    a worker that waits for a lock nobody will release."""
    with WorkerProcess(config(name)) as worker:
        ready = worker.receive()
        children = worker.children()
        assert len(children) == K + 1  # and the resource tracker
        path = semaphore(ready)
        # Take the lock as if its holder had died: its value is the first word.
        with open(path, "r+b") as f:
            f.write(struct.pack("<I", 0))
        worker.send({"seq": 1, "objects": [k0()]})
        worker.process.kill()
        wait_gone(children)
        wait_gone_file(path)

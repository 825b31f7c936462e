"""``python -m ringcache.worker``: a pool of processes that resolve and verify objects.

It stands in for an engine's workers: it speaks JSON lines with the program that
writes the segment. The first line configures it::

    {"segment": NAME, "size": N, "max_object": BYTES, "readers": K,
     "generation": "0.32.0", "peer": "ringcache", "timeout": 120}

``generation`` (empty: the newest known), ``peer`` and ``timeout`` (seconds for
the start, and for each batch) may be left out. K processes are started, all
with one lock. With ``"peer": "vllm"`` they use the installed vLLM's own
receiver instead of this package. When all have attached::

    {"ready": true, "workers": K, "lock": "/mp-xxxxxxxx"}

Then every line is a batch, and gets one line when all processes have finished::

    {"seq": 1, "objects": [{"key": KEY, "frames": [HEX, ...], "sha256": {"pixel_values": HEX}}]}
    {"seq": 1, "objects": 2, "bytes": 1048576, "errors": []}

``frames`` are the MessagePack frames of an item: an address item, or the item
itself. Every process touches all objects, then gets each and compares the
SHA-256 of the bytes of every tensor with ``sha256`` (all tensors must be named:
by key, inside lists as ``key.0``; without ``sha256`` nothing is compared).
``objects`` and ``bytes`` are sums over the processes of what was verified, so K
times one object if all is well.

What cannot be answered ends the program, after one line ``{"seq": 1, "error":
TEXT}`` (``seq`` null if unknown, absent before ready). Exit codes: 0 end of
input, 1 a process failed or timed out, 2 bad input, 128 + n signal n. Only
stdout carries the protocol; everything else goes to stderr.
"""

from __future__ import annotations

import math
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnContext, SpawnProcess
from types import FrameType
from typing import Any, Final, NamedTuple, NoReturn

import msgspec

from . import _resolve

MAX_LINE: Final = 1 << 30
MAX_WORKERS: Final = 256
MAX_ERRORS: Final = 100  # texts in one reply
_GRACE: Final = 120.0  # seconds to learn how a process ended whose pipe has closed

FAILED: Final = 1
BAD_INPUT: Final = 2


class _End(Exception):
    """Ends the program with an exit code, after an error line if there is one."""

    def __init__(self, code: int, reply: dict[str, Any] | None = None) -> None:
        super().__init__(code)
        self.code = code
        self.reply = reply


class _Signal(BaseException):
    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class _Signals:
    """SIGINT and SIGTERM raise _Signal, and each wait of the supervisor ends for them.

    The exception alone is not enough: a signal that comes just before a system
    call does not interrupt it, and what a finalizer raises is lost. So the
    signals are in a pipe as well, and every wait watches the pipe.
    """

    def __init__(self) -> None:
        self._pipe, write = os.pipe()
        os.set_blocking(write, False)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._raise)

    @staticmethod
    def _raise(number: int, frame: FrameType | None) -> None:
        raise _Signal(number)

    def wait(self, objects: Sequence[Connection | int]) -> list[Any]:
        """Wait until a connection or file descriptor is ready; those that are."""
        ready = wait([*objects, self._pipe])
        if self._pipe in ready:
            raise _Signal(os.read(self._pipe, 1)[0])
        return ready

    def ignore(self) -> None:
        """From now on: what ends the program may not be cut short."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)


class _LineObject(msgspec.Struct):
    key: str
    frames: list[str]
    sha256: dict[str, str] | None = None


class _Line(msgspec.Struct):
    seq: int
    objects: list[_LineObject]


class _Seq(msgspec.Struct):
    seq: int | None = None


class _Lines:
    """Lines of a file descriptor, with its waiting in the caller's hands."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._buffer = bytearray()
        self._scanned = 0
        self._ended = False

    def pop(self) -> bytes | None:
        """The next whole line, or None if more must be read first."""
        end = self._buffer.find(b"\n", self._scanned)
        if end < 0:
            self._scanned = len(self._buffer)
            if not (self._ended and self._buffer):
                return None
            end = len(self._buffer)  # the last line may lack its newline
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        self._scanned = 0
        return line

    def fill(self) -> bool:
        """Read what is there; False at the end of the input."""
        chunk = os.read(self.fd, 1 << 20)
        self._buffer += chunk
        self._ended = not chunk
        if len(self._buffer) > MAX_LINE:
            raise _End(BAD_INPUT, {"seq": None, "error": f"line is longer than {MAX_LINE} bytes"})
        return not self._ended


class _Worker(NamedTuple):
    process: SpawnProcess
    conn: Connection


class _Output:
    """The protocol's stdout, shared with the watchdog's thread."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lock = threading.Lock()
        self._ended = False

    def write(self, reply: dict[str, Any], *, last: bool = False) -> None:
        """Write a line; after the ``last`` one nothing more is written."""
        data = memoryview(msgspec.json.encode(reply) + b"\n")
        with self._lock:
            if self._ended:
                return
            self._ended = last
            while data:
                data = data[os.write(self._fd, data) :]


class _Pool:
    """The worker processes. Every wait of the supervisor is in here."""

    def __init__(self, config: _resolve.Config, output: _Output, signals: _Signals) -> None:
        self._config = config
        self._output = output
        self._signals = signals
        self._workers: list[_Worker] = []
        context = SpawnContext()
        # Spawned processes inherit the lock; no other way shares it.
        self._lock = context.Lock()
        # A terminal's Ctrl-C reaches the whole group. Blocked here, the signal
        # stays blocked in the children, which end when we say so.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            for i in range(config.readers):
                ours, theirs = context.Pipe()
                process = context.Process(
                    target=_resolve.run,
                    args=(i, config, self._lock, theirs),
                    name=f"ringcache-worker-{i}",
                    daemon=True,
                )
                process.start()
                theirs.close()  # so that the worker's end closes with the worker
                self._workers.append(_Worker(process, ours))
        except BaseException:
            self.kill()
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})

    @property
    def lock_name(self) -> str:
        # Not public in multiprocessing, but the only way to name the semaphore.
        name: str = self._lock._semlock.name  # type: ignore[attr-defined]
        return name

    def start(self) -> None:
        """Wait until every process has attached."""
        with self._watched({}):
            for result in self._collect({}):
                if result.errors:
                    raise _End(FAILED, {"error": "; ".join(result.errors)})

    def run(self, batch: _resolve.Batch) -> dict[str, Any]:
        """Give the batch to every process; the reply when all have finished."""
        about = {"seq": batch.seq}
        total = _resolve.Result(errors=[])
        message = msgspec.msgpack.encode(batch)
        with self._watched(about):
            for worker in self._workers:
                try:
                    worker.conn.send_bytes(message)
                except OSError:
                    self._dead(worker, about)
            for result in self._collect(about):
                total.objects += result.objects
                total.bytes += result.bytes
                total.errors += result.errors
        if len(total.errors) > MAX_ERRORS:
            more = len(total.errors) - MAX_ERRORS
            total.errors[MAX_ERRORS:] = [f"and {more} more errors"]
        return {**about, **msgspec.to_builtins(total)}

    def idle(self, fd: int) -> None:
        """Wait until ``fd`` can be read; a process that ends meanwhile is an error."""
        ready = self._signals.wait([fd, *(w.process.sentinel for w in self._workers)])
        for worker in self._workers:
            if worker.process.sentinel in ready:
                self._dead(worker, {"seq": None})

    def close(self) -> int:
        """End the processes in order; the exit code.

        All have as long as a batch may take: a slow machine is not a failure.
        """
        for worker in self._workers:
            worker.conn.close()
        deadline = time.monotonic() + self._config.timeout
        for worker in self._workers:
            worker.process.join(max(0, deadline - time.monotonic()))
        clean = all(w.process.exitcode == 0 for w in self._workers)
        self.kill()
        return 0 if clean else FAILED

    def kill(self) -> None:
        for worker in self._workers:
            worker.process.kill()
        for worker in self._workers:
            worker.process.join()

    def _collect(self, about: dict[str, Any]) -> Iterator[_resolve.Result]:
        """One answer of every process, as they come."""
        pending = {w.conn: w for w in self._workers}
        while pending:
            for ready in self._signals.wait([*pending]):
                assert isinstance(ready, Connection)
                worker = pending.pop(ready)
                try:
                    message = ready.recv_bytes()
                except (EOFError, OSError):
                    self._dead(worker, about)
                yield msgspec.msgpack.decode(message, type=_resolve.Result)

    def _dead(self, worker: _Worker, about: dict[str, Any]) -> NoReturn:
        worker.process.join(_GRACE)
        code = worker.process.exitcode
        raise _End(
            FAILED, {**about, "error": f"{worker.process.name} ended early, exit code {code}"}
        )

    @contextmanager
    def _watched(self, about: dict[str, Any]) -> Iterator[None]:
        """End the program if the body takes too long, whatever it waits for."""

        def expire() -> None:
            seconds = self._config.timeout
            with suppress(OSError):
                text = f"workers took longer than {seconds} s"
                self._output.write({**about, "error": text}, last=True)
            for worker in self._workers:
                with suppress(Exception):
                    worker.process.kill()
            os._exit(FAILED)

        timer = threading.Timer(self._config.timeout, expire)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()


def _parse_config(line: bytes) -> _resolve.Config:
    try:
        config = msgspec.json.decode(line, type=_resolve.Config)
    except (msgspec.MsgspecError, ValueError) as e:
        raise _End(BAD_INPUT, {"error": f"config: {e}"}) from e
    if not 1 <= config.readers <= MAX_WORKERS:
        raise _End(BAD_INPUT, {"error": f"config: readers must be 1 to {MAX_WORKERS}"})
    if config.size < 1 or config.max_object < 1:
        raise _End(BAD_INPUT, {"error": "config: size and max_object must be positive"})
    if not (math.isfinite(config.timeout) and 0 < config.timeout <= threading.TIMEOUT_MAX):
        raise _End(BAD_INPUT, {"error": "config: timeout must be a positive number of seconds"})
    return config


def _parse_batch(line: bytes) -> _resolve.Batch:
    try:
        parsed = msgspec.json.decode(line, type=_Line)
        objects = [
            _resolve.Object(o.key, [bytes.fromhex(frame) for frame in o.frames], o.sha256)
            for o in parsed.objects
        ]
    except (msgspec.MsgspecError, ValueError) as e:
        seq = None
        with suppress(msgspec.MsgspecError, ValueError):
            seq = msgspec.json.decode(line, type=_Seq).seq
        raise _End(BAD_INPUT, {"seq": seq, "error": f"bad line: {e}"}) from e
    return _resolve.Batch(parsed.seq, objects)


def _first_line(lines: _Lines, signals: _Signals) -> bytes | None:
    while True:
        line = lines.pop()
        if line is not None and line.strip():
            return line
        if line is None:
            signals.wait([lines.fd])
            if not lines.fill():
                return lines.pop()


def _serve(lines: _Lines, output: _Output, signals: _Signals) -> int:
    first = _first_line(lines, signals)
    if first is None:
        raise _End(BAD_INPUT, {"error": "config: no line"})
    config = _parse_config(first)
    pool = _Pool(config, output, signals)
    try:
        pool.start()
        output.write({"ready": True, "workers": config.readers, "lock": pool.lock_name})
        more = True
        while True:
            line = lines.pop()
            if line is None:
                if not more:
                    return pool.close()
                pool.idle(lines.fd)
                more = lines.fill()
            elif line.strip():
                output.write(pool.run(_parse_batch(line)))
    finally:
        signals.ignore()
        pool.kill()


def main() -> int:
    """Serve stdin; the exit code."""
    # Keep the protocol to this process: children get /dev/null and stderr, so
    # that they neither write into it nor hold its ends open.
    lines, output = _Lines(os.dup(0)), _Output(os.dup(1))
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    signals = _Signals()
    try:
        return _serve(lines, output, signals)
    except _End as e:
        if e.reply is not None:
            with suppress(OSError):
                output.write(e.reply, last=True)
        return e.code
    except _Signal as e:
        return 128 + e.number
    except BrokenPipeError:
        return FAILED


if __name__ == "__main__":
    sys.exit(main())

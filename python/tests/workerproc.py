"""Runs ``python -m ringcache.worker`` for the tests."""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

LIMIT = 300.0  # seconds; only a guard against what hangs, a slow machine is no failure
SRC = pathlib.Path(__file__).resolve().parents[1] / "src"


def hashes(**tensors: bytes) -> dict[str, str]:
    return {place: hashlib.sha256(data).hexdigest() for place, data in tensors.items()}


def line_object(key: str, frames: Sequence[bytes], **tensors: bytes) -> dict[str, Any]:
    return {"key": key, "frames": [f.hex() for f in frames], "sha256": hashes(**tensors)}


class WorkerProcess:
    """The supervisor, with a time limit on every answer and no process left behind."""

    def __init__(self, config: dict[str, Any] | bytes, **kw: Any) -> None:
        env = {**os.environ, "PYTHONPATH": f"{SRC}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "ringcache.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=env,
            **kw,
        )
        self._lines: queue.Queue[bytes] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()
        self.stderr = b""
        self._stderr_reader = threading.Thread(target=self._read_stderr, daemon=True)
        self._stderr_reader.start()
        self.send(config)

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put(b"")

    def _read_stderr(self) -> None:
        assert self.process.stderr
        self.stderr = self.process.stderr.read()

    def send(self, message: dict[str, Any] | bytes) -> None:
        assert self.process.stdin
        data = message if isinstance(message, bytes) else json.dumps(message).encode() + b"\n"
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def receive(self, timeout: float = LIMIT) -> dict[str, Any]:
        line = self._lines.get(timeout=timeout)
        assert line.endswith(b"\n"), f"no line but {line!r}"
        reply: dict[str, Any] = json.loads(line)
        return reply

    def ask(self, message: dict[str, Any] | bytes) -> dict[str, Any]:
        self.send(message)
        return self.receive()

    def end(self, timeout: float = LIMIT) -> int:
        """Close stdin; no more lines may come. The exit code."""
        assert self.process.stdin
        self.process.stdin.close()
        return self.exit_code(timeout)

    def exit_code(self, timeout: float = LIMIT) -> int:
        code = self.process.wait(timeout)
        rest = self._lines.get(timeout=timeout)
        assert rest == b"", f"unexpected line {rest!r}"
        self._stderr_reader.join(timeout)
        return code

    def children(self) -> list[int]:
        task = f"/proc/{self.process.pid}/task/{self.process.pid}/children"
        return [int(pid) for pid in pathlib.Path(task).read_text().split()]

    def workers(self) -> list[int]:
        """The children that are workers; the other is Python's resource tracker."""
        return [pid for pid in self.children() if b"spawn_main" in command(pid)]

    def __enter__(self) -> WorkerProcess:
        return self

    def __exit__(self, *_: object) -> None:
        children = self.children() if self.process.poll() is None else []
        self.process.kill()
        self.process.wait()
        wait_gone(children)
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert stream
            try:
                stream.close()
            except BrokenPipeError:
                pass


def command(pid: int) -> bytes:
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def wait_gone(pids: Sequence[int], seconds: float = LIMIT) -> None:
    """Fail if a process is still there after the time."""
    deadline = time.monotonic() + seconds
    while alive := [pid for pid in pids if command(pid)]:
        assert time.monotonic() < deadline, f"processes {alive} are still there"
        time.sleep(0.02)


def wait_gone_file(path: pathlib.Path, seconds: float = LIMIT) -> None:
    deadline = time.monotonic() + seconds
    while path.exists():
        assert time.monotonic() < deadline, f"{path} is still there"
        time.sleep(0.02)

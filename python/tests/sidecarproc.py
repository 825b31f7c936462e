"""What child processes of the tests of sidecars do, until they are killed."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

from ringcache import Reader, RingcacheError

Kill = Callable[[], None]


@contextmanager
def child(target: Callable[..., None], *args: Any) -> Iterator[tuple[Kill, Any]]:
    """Runs target(pipe, *args) in a new process until it sends something; gives a
    function that kills it, and what it sent."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=target, args=(theirs, *args), daemon=True)
    process.start()
    theirs.close()

    def kill() -> None:
        assert process.pid
        os.kill(process.pid, signal.SIGKILL)
        process.join()  # a time limit would wait for its children too
        assert process.exitcode == -signal.SIGKILL

    try:
        assert ours.poll(300), "the child did not begin in time"
        yield kill, ours.recv()
    finally:
        if process.is_alive():
            kill()


def wait(pipe: Connection) -> None:
    """Until the test kills this process, or has ended itself."""
    with contextlib.suppress(EOFError):
        pipe.recv()


def view(pipe: Connection, name: str, size: int, *handle: Any) -> None:
    """Hold a view of an object."""
    reader = Reader(name, size)
    held = reader.get(*handle)
    pipe.send((os.getpid(), reader.protected, held.id))
    wait(pipe)


def lock(pipe: Connection, name: str, size: int) -> None:
    """Hold the readers' lock."""
    reader = Reader(name, size, sidecar_lock=True)
    assert reader._lock
    reader._lock.__enter__()
    pipe.send(None)
    wait(pipe)


def fork(pipe: Connection, name: str, size: int, *handle: Any) -> None:
    """Fork with a view; the child tells what it can do with the reader, and stays."""
    reader = Reader(name, size, sidecar_lock=True)
    held = reader.get(*handle)
    if os.fork():
        wait(pipe)
    told = []
    for use in (
        lambda: reader.get(*handle),
        reader._lock.__enter__,  # type: ignore[union-attr]
        held.check,
        held.release,
        reader.close,
    ):
        try:
            use()
            told.append("")
        except RingcacheError as e:
            told.append(f"{type(e).__name__}: {e}")
    pipe.send((os.getpid(), told))
    wait(pipe)


def count(pipe: Connection, name: str, size: int, rounds: int, *handle: Any) -> None:
    """Count reads under the sidecar's lock, in two threads."""

    def read() -> None:
        for _ in range(rounds):
            reader.get(*handle).release()

    with Reader(name, size, sidecar_lock=True) as reader:
        threads = [threading.Thread(target=read) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    pipe.send(None)
    wait(pipe)

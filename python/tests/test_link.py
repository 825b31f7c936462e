"""What the log of an engine says of a daemon that goes and comes."""

from __future__ import annotations

import logging
import time
import types
from collections.abc import Callable

import pytest
from test_daemon import Daemon, real  # noqa: F401

from ringcache.daemon import Client
from ringcache.errors import DaemonError
from ringcache.vllm._link import Link
from ringcache.vllm._scheduling import Scheduling

AWAY = "Encoder outputs are not shared for now"
AGAIN = "Encoder outputs are shared again, after "


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What an operator sees."""
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.INFO]


def until(done: Callable[[], bool]) -> None:
    end = time.monotonic() + 300
    while not done():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_daemon_that_goes_and_comes_is_a_line_each(
    real: Daemon, caplog: pytest.LogCaptureFixture  # noqa: F811
) -> None:
    """Whether the engine has requests or idles."""
    caplog.set_level(logging.DEBUG, "vllm.ringcache")
    client = Client(real.socket, client="test", space="s", timeout=30)
    scheduling = Scheduling(client, wait=0, seconds=300, depth=2, loads=True)
    until(lambda: _answers(client))
    scheduling.watch()
    until(lambda: lines(caplog) != [])
    assert lines(caplog) == [f"The scheduler shares encoder outputs through {real.socket}"]
    try:
        for idle in (True, False):
            caplog.clear()
            real.kill()
            if not idle:
                for n in range(20):
                    _ask(scheduling, f"{idle} {n}")
            until(lambda: lines(caplog) != [])
            (away,) = lines(caplog)
            assert away.startswith(AWAY + ", items are encoded: the daemon at " + real.socket)
            real.start()
            until(lambda: len(lines(caplog)) > 1)
            if not idle:
                for n in range(20):
                    _ask(scheduling, f"{idle} later {n}")
            _, again = lines(caplog)
            assert again.startswith(AGAIN), again
            assert again.endswith(f" s: the daemon at {real.socket} answers the scheduler")
    finally:
        scheduling.close()
    assert scheduling._link._thread is not None
    assert not scheduling._link._thread.is_alive()


def _answers(client: Client) -> bool:
    try:
        client.hello()
    except DaemonError:
        return False
    return True


def _ask(scheduling: Scheduling, name: str) -> None:
    feature = types.SimpleNamespace(
        identifier=name, mm_position=types.SimpleNamespace(offset=0, length=4)
    )
    request = types.SimpleNamespace(request_id=name, num_computed_tokens=0, mm_features=[feature])
    scheduling.available(request, 0)
    scheduling.finished(name)
    scheduling.step()


def test_how_long_it_was_away(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "vllm.ringcache")
    now = [100.0]
    link = Link(Client("/nonexistent", client="test"), "worker", clock=lambda: now[0])
    gone = DaemonError("away", "nobody")
    for _ in range(3):
        link.failed(gone, "outputs are not stored")
        now[0] += 4
    link.worked()
    link.worked()
    assert lines(caplog) == [
        f"{AWAY}, outputs are not stored: nobody",
        f"{AGAIN}12.0 s: the daemon at /nonexistent answers the worker",
    ]


def test_an_error_of_one_call_is_no_change(caplog: pytest.LogCaptureFixture) -> None:
    """The daemon is there; it is said once for each text."""
    caplog.set_level(logging.INFO, "vllm.ringcache")
    link = Link(Client("/nonexistent", client="test"), "worker")
    for _ in range(3):
        link.failed(DaemonError("invalid", "a name of 9999 bytes"), "outputs are not stored")
        link.worked()
    for n in range(300):
        link.refused(f"text {n}")
        link.refused(f"text {n}")
    assert lines(caplog)[0] == "outputs are not stored: a name of 9999 bytes"
    assert lines(caplog)[1:] == [f"text {n}" for n in range(99)]

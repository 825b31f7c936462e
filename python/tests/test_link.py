"""What the log of an engine says of a daemon that goes and comes."""

from __future__ import annotations

import logging
import pathlib
import time
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from standin import Standin
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
    with Client(real.socket, client="other", space="s", timeout=30) as other:
        until(lambda: _answers(other))
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
    client = Client("/nonexistent", client="test")
    link = Link(client, "worker", clock=lambda: now[0])
    gone = DaemonError("away", "nobody")
    client.away = True
    for _ in range(3):
        link.failed(gone, "outputs are not stored")
        now[0] += 4
    client.away = False
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


@pytest.fixture
def standin(tmp_path: pathlib.Path) -> Iterator[Standin]:
    made = Standin(str(tmp_path / "s"))
    yield made
    made.close()


def fails(call: Callable[[], Any]) -> DaemonError:
    with pytest.raises(DaemonError) as caught:
        call()
    return caught.value


def test_calls_are_in_their_own_order(standin: Standin, caplog: pytest.LogCaptureFixture) -> None:
    """Not in that in which threads come to tell of them."""
    caplog.set_level(logging.INFO, "vllm.ringcache")
    with Client(standin.path, client="test", space="s", timeout=30) as client:
        link = Link(client, "worker")
        client.check()
        link.worked()
        caplog.clear()
        client.check()
        standin.stop()
        error = fails(client.check)
        link.failed(error, "outputs are not stored")
        link.worked()  # of the call before
        (away,) = lines(caplog)
        assert away.startswith(AWAY)
        standin.start()
        client.check()
        link.failed(error, "outputs are not stored")  # of the call before
        link.worked()
        _, again = lines(caplog)
        assert again.startswith(AGAIN)
        error = fails(lambda: client.pin("l", ["\ud800"]))
        link.failed(error, "outputs are not stored")
        assert "can't be sent" in lines(caplog)[-1]
        link.worked()
        assert len(lines(caplog)) == 3


def test_one_connection_is_one_line(
    standin: Standin, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if another thread connects while it is written."""
    caplog.set_level(logging.INFO, "vllm.ringcache")
    epochs = iter((1, 2, 2, 2, 2))
    monkeypatch.setattr(Client, "epoch", property(lambda _: next(epochs)))
    link = Link(Client(standin.path, client="test"), "worker")
    for _ in range(3):
        link.worked()
    assert len(lines(caplog)) == 2


def test_daemon_that_refuses_everyone_is_away(
    standin: Standin, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever the kind of its refusals, and however their texts differ."""
    caplog.set_level(logging.INFO, "vllm.ringcache")
    with Client(standin.path, client="test", space="s", timeout=30) as client:
        link = Link(client, "worker")
        for n, kind in enumerate(("busy", "busy", "internal", "new kind")):
            text = f"{n} clients are too many"
            standin.answer = lambda _, e={"kind": kind, "text": text}: {"error": e}
            client._retry_at = 0
            link.failed(fails(client.check), "outputs are not stored")
        standin.answer = None
        client._retry_at = 0
        client.check()
        link.worked()
    away, again = lines(caplog)
    assert away == f"{AWAY}, outputs are not stored: 0 clients are too many"
    assert again.startswith(AGAIN)


def test_watch_takes_no_greeting_for_an_answer(
    standin: Standin, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A daemon that says hello and answers no call is away until it answers one."""
    monkeypatch.setattr("ringcache.vllm._link._EVERY", 0.001)
    caplog.set_level(logging.INFO, "vllm.ringcache")
    with Client(standin.path, client="test", space="s", timeout=30) as client:
        link = Link(client, "worker")
        standin.answer = lambda request: b"" if request["op"] != "hello" else None
        link.failed(fails(lambda: client.pin("l", ["a"])), "outputs are not stored")
        hellos = standin.ops().count("hello")
        link.watch("outputs are not stored", lambda _: None)
        until(lambda: standin.ops().count("hello") > hellos + 3)
        (away,) = lines(caplog)
        assert away.startswith(AWAY)
        standin.answer = None
        until(lambda: len(lines(caplog)) == 2)
        assert lines(caplog)[1].startswith(AGAIN)
        count = len(standin.calls)
        client.pin("l", ["a"])
        assert standin.ops()[count:] == ["pin"], "while all is well, it asks nothing"
        link.close()


def test_nothing_is_shared_through_a_segment_that_is_not_here(
    standin: Standin, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ringcache.vllm._link._EVERY", 0.001)
    caplog.set_level(logging.INFO, "vllm.ringcache")
    client = Client(standin.path, client="test", space="s", timeout=30)
    scheduling = Scheduling(client, wait=0, seconds=300, depth=2, loads=True)
    inode, standin.inode = standin.inode, standin.inode + 1
    try:
        _ask(scheduling, "a")
        scheduling.watch()
        standin.stop()
        until(lambda: any(line.startswith(AWAY) for line in lines(caplog)))
        standin.start()
        until(lambda: any("is another file" in line for line in lines(caplog)[2:]))
        _ask(scheduling, "b")
        assert not [line for line in lines(caplog) if "shares" in line or AGAIN in line]
        standin.stop()
        standin.inode = inode
        standin.start()
        until(lambda: lines(caplog)[-1].startswith(AGAIN))
    finally:
        scheduling.close()

"""The client of the daemon: against the examples of docs/daemon.md, a stand-in that misbehaves, and the
daemon itself."""

from __future__ import annotations

import json
import os
import pathlib
import re
import signal
import socket
import struct
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from conftest import ROOT
from standin import Standin

from ringcache import ClosedError, DaemonError, SegmentError, SegmentSizeError, daemon
from ringcache.daemon import Client, Fingerprint, Item, Mapping, Object, Segment

PAGE = ROOT / "docs" / "daemon.md"
PRINT = Fingerprint(model="m", dtype="float32")


@pytest.fixture
def standin(tmp_path: pathlib.Path) -> Iterator[Standin]:
    made = Standin(str(tmp_path / "s"))
    yield made
    made.close()


def client(standin: Standin, timeout: float = 30) -> Client:
    return Client(standin.path, client="test", fingerprint=PRINT, timeout=timeout)


def examples() -> list[tuple[str, dict[str, Any], bytes]]:
    """The examples of the page: kind, message, and frame."""
    found = []
    for kind, body in re.findall(r"^```(wire-\S+)\n(.*?)^```", PAGE.read_text(), re.S | re.M):
        texts: list[str] = []
        frame = ""
        for line in body.splitlines():
            line = line.split("   #")[0].split("  #")[0]
            if re.fullmatch(r"[0-9a-f ]+", line):
                frame += line
            elif not line.startswith("varies:"):
                texts.append(line)
        found.append((kind, json.loads("\n".join(texts)), bytes.fromhex(frame)))
    return found


def as_bytes(value: Any) -> Any:
    """A message as it is decoded: notes are bytes."""
    if isinstance(value, dict):
        return {k: v.encode() if k == "note" else as_bytes(v) for k, v in value.items()}
    return [as_bytes(v) for v in value] if isinstance(value, list) else value


def test_requests_have_the_bytes_of_the_page() -> None:
    count = 0
    for kind, message, frame in examples():
        if kind != "wire-request":
            continue
        form: Any = daemon._HelloRequest if message["op"] == "hello" else daemon._Request
        made = msgspec.convert(as_bytes(message), form)
        body = daemon._encode(made)
        assert len(body).to_bytes(4, "little") + body == frame, message
        count += 1
    assert count > 10


def test_replies_of_the_page_are_understood() -> None:
    count = 0
    for kind, message, frame in examples():
        if not kind.startswith("wire-reply"):
            continue
        assert int.from_bytes(frame[:4], "little") == len(frame) - 4
        reply = daemon._decode(frame[4:])
        assert reply.id == message.get("id", 0)
        for item, want in zip(reply.items, message.get("items", ()), strict=True):
            for name, value in want.items():
                if name != "levels":
                    assert getattr(item, name) == as_bytes({name: value})[name]
        if "error" in message:
            assert reply.error is not None
            assert (reply.error.kind, reply.error.text) == tuple(message["error"].values())
        if "segment" in message:
            assert reply.segment == Segment(**message["segment"])
            assert reply.space == message["space"]
        count += 1
    assert count > 10


def test_exchange(standin: Standin) -> None:
    with client(standin) as c:
        assert c.pin("l", ["a", "b"]) == [Item("miss"), Item("miss")]
        assert c.segment == Segment(standin.segment, 1 << 20, 1, standin.inode)
        (room,) = c.reserve("s", [Object("a", 3, b"uint8 1 3")])
        assert room.status == "reserved"
        with Mapping(c.segment, writable=True) as mapping:
            mapping.view(room.offset, 3)[:] = b"abc"
        assert c.commit("s", ["a"])[0].status == "ok"
        (found,) = c.pin("l", ["a"])
        assert found == Item("hit", "", room.offset, 3, b"uint8 1 3")
        assert c.get("l", ["a"])[0].status == "hit"
        with Mapping(c.segment) as mapping:
            assert bytes(mapping.view(found.offset, found.size)) == b"abc"
            with pytest.raises(TypeError):
                mapping.view(0, 1)[:] = b"x"
        c.release("l", ["a"])
        assert standin.held() == set()
        c.pin("l", ["a"])
        c.release("l")
        assert standin.held() == set()
        c.reserve("s", [Object("z", 3)], seconds=60)
        assert standin.calls[-1]["seconds"] == 60
        assert c.abort("s", ["z"])[0].status == "ok"
    with pytest.raises(ClosedError):
        c.pin("l", ["a"])


def test_batches_are_within_the_limit(standin: Standin) -> None:
    with client(standin) as c:
        names = [f"n{i}" for i in range(2500)]
        assert len(c.pin("l", names)) == 2500
        assert [len(call["names"]) for call in standin.calls[1:]] == [1024, 1024, 452]
        assert len(c.reserve("s", [Object(name, 1) for name in names])) == 2500
        c.release("l", names)


def test_comes_back_with_its_session(standin: Standin) -> None:
    standin.put("a", b"abc", "uint8 1 3")
    with client(standin) as c:
        c.pin("l", ["a"])
        assert c.alive()
        standin.stop()
        assert not c.alive()
        standin.start()
        assert c.get("l", ["a"])[0].status == "hit"
        assert c.epoch == 2
        hellos = [call["session"] for call in standin.calls if call["op"] == "hello"]
        assert len(hellos) == 2
        assert len(set(hellos)) == 1
        assert re.fullmatch("[0-9a-f]{32}", hellos[0])


def test_answer_has_the_segment_that_it_is_about(standin: Standin) -> None:
    """Whatever the client is connected to by the time that the answer is looked at."""
    at = standin.put("a", b"abc", "uint8 1 3")
    with client(standin) as c:
        items = c.pin("l", ["a"])
        standin.stop()
        other = Standin(standin.path, generation=2)
        try:
            second = c.hello()
            assert items.hello is not None
            assert (items[0].offset, items.hello.segment.inode) == (at, standin.inode)
            assert (items.hello.epoch, second.epoch) == (1, 2)
            assert second.segment == c.segment
            assert second.segment.inode == other.inode
            assert c.reserve("s", [Object("b", 3)]).hello == second
            assert c.get("l").hello == second
        finally:
            other.close()


def test_answers_about_two_segments_are_none(
    standin: Standin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was pinned of the first names is void, and its offsets are of no use."""
    names = [f"n{i}" for i in range(1500)]
    with client(standin) as c:
        call = c._call
        others: list[Standin] = []

        def replaced(*args: Any, **kw: Any) -> Any:
            answer = call(*args, **kw)
            if not others:
                standin.stop()
                others.append(Standin(standin.path, generation=2))
            return answer

        monkeypatch.setattr(c, "_call", replaced)
        try:
            with pytest.raises(DaemonError, match="the daemon has a new segment") as caught:
                c.pin("l", names)
            assert caught.value.kind == "away"
            assert len(c.pin("l", names)) == 1500
        finally:
            others[0].close()


def test_who_watches_keeps_no_call_from_trying(tmp_path: pathlib.Path) -> None:
    """The daemon is back, and the next call finds out, however many calls failed before."""
    path = str(tmp_path / "s")
    with Client(path, client="test", fingerprint=PRINT, timeout=30) as c:
        for _ in range(50):
            with pytest.raises(DaemonError) as caught:
                c.check()
            assert caught.value.away
            assert "failed lately" not in str(caught.value)
        with pytest.raises(DaemonError):
            c.pin("l", ["a"])
        assert c._pause <= 0.1, "it is the first failure"
        c._retry_at = 0
        with pytest.raises(DaemonError):
            c.check()
        made = Standin(path)
        try:
            assert c.pin("l", ["a"]) == [Item("miss")]
            made.hung.set()
            c.timeout = 0.05
            for _ in range(3):
                with pytest.raises(DaemonError, match="no answer within"):
                    c.check()
            made.hung.clear()
            c.timeout = 30
            assert c.pin("l", ["a"]) == [Item("miss")]
            assert c.check() == c.hello()
        finally:
            made.close()


def test_away_ends_with_an_answer(standin: Standin) -> None:
    """Not with a connection: a daemon may greet, and answer nothing."""
    with client(standin) as c:
        assert not c.away
        c.hello()
        standin.answer = answer(error={"kind": "busy", "text": "too many leases"})
        with pytest.raises(DaemonError) as caught:
            c.pin("l", ["a"])
        assert not caught.value.away
        assert not c.away, "it is about this call"
        standin.answer = lambda request: b"" if request["op"] != "hello" else None
        with pytest.raises(DaemonError) as caught:
            c.pin("l", ["a"])
        assert caught.value.away
        assert c.away
        c._retry_at = 0
        c.hello()
        assert c.away
        standin.answer = None
        c.check()
        assert not c.away


def test_pause_after_a_failure_grows_and_ends(tmp_path: pathlib.Path) -> None:
    c = Client(str(tmp_path / "none"), client="test", fingerprint=PRINT, timeout=30)
    pauses = []
    for _ in range(8):
        with pytest.raises(DaemonError) as caught:
            c.pin("l", ["a"])
        assert caught.value.kind == "away"
        with pytest.raises(DaemonError, match="failed lately"):
            c.pin("l", ["a"])
        pauses.append(c._pause)
        c._retry_at = 0
    assert pauses == sorted(pauses)
    assert pauses[0] <= 0.1
    assert pauses[-1] == pauses[-2] == 2
    made = Standin(str(tmp_path / "none"))
    try:
        c.pin("l", ["a"])
        assert c._pause <= 0.1, "it begins anew"
    finally:
        c.close()
        made.close()


def test_daemon_that_hangs_costs_one_timeout(standin: Standin) -> None:
    with client(standin) as c:
        c.hello()
        c.timeout = 0.1
        standin.hung.set()
        began = time.monotonic()
        with pytest.raises(DaemonError, match="no answer within"):
            c.pin("l", ["a"])
        for _ in range(100):
            with pytest.raises(DaemonError, match="failed lately"):
                c.pin("l", ["a"])
        assert c._retry_at - began >= 1, "ten times the time-out"
        standin.hung.clear()
        c._retry_at = 0
        c.timeout = 30
        assert c.pin("l", ["a"]) == [Item("miss")], "not the late answer"


def test_hello_that_hangs_costs_one_timeout(standin: Standin) -> None:
    standin.hung.set()
    with client(standin, timeout=0.1) as c:
        for text in ("no answer within", "failed lately"):
            with pytest.raises(DaemonError, match=text):
                c.pin("l", ["a"])


def test_many_that_wait_for_a_daemon_that_hangs(tmp_path: pathlib.Path) -> None:
    """A queue of connections that is full answers at once, and that is no reason to spin."""
    path = str(tmp_path / "s")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(1)
    clients = [Client(path, client="test", fingerprint=PRINT, timeout=0.05) for _ in range(6)]
    for c in clients:
        with pytest.raises(DaemonError):
            c.pin("l", ["a"])
        with pytest.raises(DaemonError, match="failed lately"):
            c.pin("l", ["a"])
    listener.close()


def frame(body: bytes) -> bytes:
    return len(body).to_bytes(4, "little") + body


def answer(**fields: Any) -> Callable[[dict[str, Any]], bytes]:
    return lambda request: frame(msgspec.msgpack.encode({"id": request["id"], **fields}))


@pytest.mark.parametrize(
    "lie",
    [
        lambda request: b"",
        lambda request: b"\x01",
        lambda request: b"\xff\xff\xff\xff" + bytes(64),
        lambda request: frame(b""),
        lambda request: frame(b"\xc1" * 30),
        lambda request: frame(msgspec.msgpack.encode([1, 2])),
        lambda request: frame(msgspec.msgpack.encode({"items": [{"status": "miss"}]})),
        lambda request: frame(msgspec.msgpack.encode({"id": 9999, "items": [{"status": "miss"}]})),
        answer(items="miss"),
        answer(items=[{"status": 5}]),
        answer(items=[{"status": "hit", "offset": "x"}]),
        answer(items=[]),
        answer(items=[{"status": "miss"}] * 2),
        answer(),
    ],
    ids=range(14),
)
def test_answers_that_are_none(standin: Standin, lie: Callable[[dict[str, Any]], bytes]) -> None:
    with client(standin) as c:
        c.hello()
        c.timeout = 0.3
        standin.answer = lambda request: lie(request) if request["op"] != "hello" else None
        with pytest.raises(DaemonError) as caught:
            c.pin("l", ["a"])
        assert caught.value.kind == "away"
        standin.answer = None
        c.timeout, c._retry_at = 30, 0
        assert c.pin("l", ["a"]) == [Item("miss")]


def test_length_that_is_too_large_is_not_waited_for(standin: Standin) -> None:
    with client(standin) as c:
        c.hello()
        standin.answer = lambda request: (daemon._MAX_REPLY + 1).to_bytes(4, "little")
        with pytest.raises(DaemonError, match="has 8388609 bytes, the most is 8388608"):
            c.pin("l", ["a"])


@pytest.mark.parametrize(
    "hello",
    [
        answer(),
        answer(version=1, segment={"name": "x", "size": 0}, space="s"),
        answer(version=1, segment={"size": 5}, space="s"),
        answer(version=1, segment={"name": "x", "size": 5}),
        answer(version=2, segment={"name": "x", "size": 5}, space="s"),
        answer(error={"kind": "version", "text": "upgrade the client"}),
        answer(error={"kind": "busy", "text": "too many"}),
        lambda request: b"",
    ],
    ids=range(8),
)
def test_hellos_that_are_none(
    standin: Standin, hello: Callable[[dict[str, Any]], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ringcache.daemon._LEAST_PAUSE", 600.0)  # a slow machine is within it
    standin.answer = hello
    with client(standin) as c:
        with pytest.raises(DaemonError):
            c.hello()
        with pytest.raises(DaemonError, match="failed lately"):
            c.hello()
        standin.answer = None
        c._retry_at = 0
        c.hello()


def test_refusal_is_told_and_the_connection_goes_on(standin: Standin) -> None:
    with client(standin) as c:
        c.hello()
        standin.answer = answer(error={"kind": "busy", "text": "too many leases"})
        with pytest.raises(DaemonError, match="too many leases") as caught:
            c.pin("l", ["a"])
        assert caught.value.kind == "busy"
        standin.answer = None
        c.pin("l", ["a"])
        assert c.epoch == 1


def of_another_version(value: Any) -> Any:
    """An answer with keys in each of its maps that no client knows."""
    if isinstance(value, dict):
        more = {"id": 1, "items": [None, 1.5, b"x", {"status": 7}], "text": {"a": []}}
        known = {key: of_another_version(inner) for key, inner in value.items()}
        return {"of a later daemon": more, **known, "and one more": more}
    if isinstance(value, list):
        return [of_another_version(inner) for inner in value]
    return value


def test_later_daemon(standin: Standin, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the client knows of an answer is what counts; a feature is used only if both sides named it."""

    def later(request: dict[str, Any]) -> bytes | None:
        if request["op"] == "clear":
            error = {"kind": "of a later daemon", "text": "no"}
            return answer(error=of_another_version(error))(request)
        connection = next(iter(standin._connections))
        reply = {"id": request["id"], **standin.reply(connection, request)}
        if request["op"] == "hello":
            reply["features"] = ["of a later daemon", "of both"]
        return frame(msgspec.msgpack.encode(of_another_version(reply)))

    offset = standin.put("a", b"bytes", "note")
    standin.answer = later
    with client(standin) as c:
        assert c.pin("l", ["a", "b"]) == [Item("hit", "", offset, 5, b"note"), Item("miss")]
        assert c.hello().features == ()
        assert "features" not in standin.calls[0]
        with pytest.raises(DaemonError, match="no") as caught:
            c._ask(daemon._Request(op="clear"))
        assert caught.value.kind == "of a later daemon"
        assert c.alive()
    monkeypatch.setattr("ringcache.daemon.FEATURES", ("of both", "of this client"))
    with client(standin) as c:
        assert c.hello().features == ("of both",)
        assert standin.calls[-1]["features"] == ["of both", "of this client"]


def test_another_version_is_named(standin: Standin) -> None:
    standin.answer = answer(version=2, segment={"name": "x", "size": 5}, space="s")
    with client(standin) as c, pytest.raises(DaemonError, match="in version 2 .* speaks version 1"):
        c.hello()


def test_interrupted_call_leaves_no_answer_behind(
    standin: Standin, monkeypatch: pytest.MonkeyPatch
) -> None:
    with client(standin) as c:
        c.hello()

        def interrupt(*_: object) -> bytearray:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(daemon, "receive", interrupt)
            with pytest.raises(KeyboardInterrupt):
                c.pin("l", ["a"])
        assert c.pin("l", ["a", "b"]) == [Item("miss"), Item("miss")]


def test_request_that_is_too_large(standin: Standin) -> None:
    with client(standin) as c:
        with pytest.raises(DaemonError, match="a request of"):
            c.pin("l", ["x" * 2000] * 1000)
        assert c.pin("l", ["a"]) == [Item("miss")]


def test_name_that_is_no_text_costs_no_pause(standin: Standin) -> None:
    """A user's identifier may have anything, and must not keep others from the daemon."""
    with client(standin) as c:
        c.hello()
        for name in ("\ud800", "a\udfffb"):
            with pytest.raises(DaemonError, match="can't be sent") as caught:
                c.pin("l", [name])
            assert caught.value.kind == "invalid"
        assert c.pin("l", ["a"]) == [Item("miss")]
        assert c.epoch == 1


def test_threads_share_a_client(standin: Standin) -> None:
    standin.put("a", b"abc", "uint8 1 3")
    failed = []
    with client(standin) as c:

        def ask(n: int) -> None:
            for _ in range(100):
                names = ["a"] * n
                if [item.status for item in c.pin("l", names)] != ["hit"] * n:
                    failed.append(n)

        threads = [threading.Thread(target=ask, args=(n,)) for n in range(1, 6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failed


def test_forked_child_uses_no_connection_of_its_parent(standin: Standin) -> None:
    with client(standin) as c:
        c.hello()
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                c.pin("l", ["a"])
            except ClosedError:
                c.close()
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(pid, 0)[1] == 0
        assert c.alive()
        c.pin("l", ["a"])


def test_a_chain_ends_with_what_is_not_there(standin: Standin) -> None:
    names = [f"{n:04}" for n in range(2500)]
    for name in (*names[:1023], *names[1024:2100]):
        standin.put(name, b"x", "note")
    with client(standin) as c:
        items = c.pin("lease", names, prefix=True)
        assert [item.status for item in items] == ["hit"] * 1023 + ["miss"], "no second batch"
        standin.put(names[1023], b"x", "note")
        standin.pending = {names[5]: 1}
        items = c.pin("lease", names, prefix=True)
        assert [item.status for item in items] == ["hit"] * 5 + ["pending"] + ["hit"] * 2094 + ["miss"]
        standin.answer = lambda request: {"items": []} if request["op"] == "pin" else None
        with pytest.raises(DaemonError, match="answered 0 items of 1"):
            c.pin("lease", names[:1], prefix=True)


def test_mapping_takes_only_the_file_of_the_daemon(standin: Standin) -> None:
    good = Segment(standin.segment, 1 << 20, 1, standin.inode)
    with Mapping(good) as mapping:
        assert len(mapping.view(0, 1 << 20)) == 1 << 20
        for offset, size in ((-1, 1), (0, -1), (1 << 20, 1), (1, 1 << 20), (1 << 62, 1)):
            with pytest.raises(SegmentSizeError):
                mapping.view(offset, size)
        view = mapping.view(64, 4)
    assert bytes(view) == bytes(4), "it stays as long as something views it"
    for bad in (
        Segment(standin.segment, 1 << 20, 1, standin.inode + 1),
        Segment(standin.segment, (1 << 20) + 1, 1, standin.inode),
        Segment("ringcache-test-none", 1 << 20, 1, standin.inode),
        Segment("../etc/passwd", 1 << 20, 1, standin.inode),
        Segment(standin.segment, 0, 1, 0),
        Segment(standin.segment, 1 << 63, 1, standin.inode),
    ):
        before = len(os.listdir("/proc/self/fd"))
        with pytest.raises(SegmentError):
            Mapping(bad) if bad.size else Mapping(bad).view(0, 1)
        assert len(os.listdir("/proc/self/fd")) == before


def test_mapping_is_not_another_hosts_segment_of_the_same_inode(standin: Standin) -> None:
    with pytest.raises(SegmentError, match="on one host"):
        Mapping(Segment(standin.segment, 1 << 20, 2, standin.inode))


def test_socket_of_another_user_is_refused(
    standin: Standin, monkeypatch: pytest.MonkeyPatch
) -> None:
    for user, refused in ((os.geteuid() + 1, True), (0, False), (os.geteuid(), False)):
        peer = struct.pack("3i", 1, user, user)
        monkeypatch.setattr(socket.socket, "getsockopt", lambda *_, peer=peer: peer)
        standin.calls.clear()
        with client(standin) as c:
            if not refused:
                c.hello()
                continue
            with pytest.raises(DaemonError, match=f"of user {user}") as caught:
                c.hello()
            assert caught.value.kind == "permission"
            assert standin.calls == [], "nothing was said"


def test_default_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RINGCACHE_SOCKET", raising=False)
    assert Client(client="x").socket == "/run/ringcache/ringcache.sock"
    monkeypatch.setenv("RINGCACHE_SOCKET", "/x")
    assert Client(client="x").socket == "/x"


class Daemon:
    """``ringcache serve``."""

    def __init__(self, program: str, folder: pathlib.Path) -> None:
        self.program = program
        self.socket = str(folder / "d")
        self.name = f"ringcache-test-{uuid.uuid4()}"
        self.log = folder / "log"
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [self.program, "serve", "--socket", self.socket, "--name", self.name]
                + ["--size", "8MiB", "--http", "off"],
                stdout=log,
                stderr=log,
            )

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        self.kill()
        for file in pathlib.Path("/dev/shm").glob(f"{self.name}*"):
            file.unlink()


@pytest.fixture
def real(program: str, tmp_path: pathlib.Path) -> Iterator[Daemon]:
    made = Daemon(program, tmp_path)
    try:
        yield made
    finally:
        made.close()


def eventually(call: Callable[[], Any], seconds: float = 300) -> Any:
    end = time.monotonic() + seconds
    while True:
        try:
            return call()
        except DaemonError:
            if time.monotonic() > end:
                raise
            time.sleep(0.01)


def eventually_stopped(pid: int) -> None:
    """Wait until all threads are stopped: the signal reaches them one after the other."""
    end = time.monotonic() + 300
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        while (task / "stat").read_text().rsplit(")", 1)[1].split()[0] != "T":
            assert time.monotonic() < end
            time.sleep(0.001)


def test_real_daemon(real: Daemon) -> None:
    with Client(real.socket, client="test", fingerprint=PRINT, timeout=30) as c:
        assert eventually(lambda: c.pin("l", ["a"]))[0].status == "miss"
        assert c.space.startswith("m.float32.")
        (room,) = c.reserve("s", [Object("a", 32, b"float32 4 2", tenant="t", cost=5)])
        assert room.status == "reserved"
        assert c.reserve("s2", [Object("a", 32, b"float32 4 2")])[0].status == "pending"
        assert c.segment is not None
        with Mapping(c.segment, writable=True) as mapping:
            mapping.view(room.offset, 32)[:] = bytes(range(32))
        assert c.commit("s", ["a"])[0].status == "ok"
        assert c.reserve("s", [Object("a", 32, b"float32 4 2")])[0].status == "exists"
        assert c.reserve("s", [Object("b", 1 << 30, b"float32 4 2")])[0].status in ("too large", "full")
        (found,) = c.pin("l", ["a"], seconds=300)
        assert (found.status, found.size, found.note) == ("hit", 32, b"float32 4 2")

        # SIGKILL: what is pinned stays, and the same session goes on.
        before = c.segment
        real.kill()
        assert not c.alive()
        with Mapping(before) as mapping:
            assert bytes(mapping.view(found.offset, 32)) == bytes(range(32))
        real.start()
        assert eventually(lambda: c.get("l", ["a"])) == [found]
        assert c.segment == before
        c.release("l", ["a"])
        assert c.get("l", ["a"])[0].status == "ended"
        c.pin("l", ["a"])
        c.release("l")
        assert c.get("l", ["a"])[0].status == "ended"


def test_real_daemon_that_is_stopped(real: Daemon) -> None:
    with Client(real.socket, client="test", fingerprint=PRINT, timeout=30) as c:
        eventually(c.hello)
        assert real.process is not None
        os.kill(real.process.pid, signal.SIGSTOP)
        try:
            eventually_stopped(real.process.pid)
            c.timeout = 0.1
            for text in ("no answer within", "failed lately"):
                with pytest.raises(DaemonError, match=text):
                    c.pin("l", ["a"])
        finally:
            os.kill(real.process.pid, signal.SIGCONT)
        c.timeout, c._retry_at = 30, 0
        assert c.pin("l", ["a"])[0].status == "miss"

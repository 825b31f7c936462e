"""Leases: against a stand-in for the daemon, and the daemon itself."""

from __future__ import annotations

import gc
import math
import os
import pathlib
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from standin import Standin
from test_daemon import Daemon, answer, eventually, real  # noqa: F401

from ringcache import (
    ArgumentError,
    Client,
    ClosedError,
    CorruptError,
    DaemonError,
    ExpiredError,
    Lease,
    Pinned,
    SegmentBusyError,
    SegmentSizeError,
    Tensor,
)

PIXELS = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


@pytest.fixture
def standin(tmp_path: pathlib.Path) -> Iterator[Standin]:
    made = Standin(str(tmp_path / "s"))
    yield made
    made.close()


@pytest.fixture
def client(standin: Standin) -> Iterator[Client]:
    with Client(standin.path, client="test", space="photos", timeout=30) as made:
        yield made


def sure(found: Pinned | None) -> Pinned:
    assert found is not None
    return found


def test_what_was_put_is_read_in_place(standin: Standin, client: Client) -> None:
    with client.lease("a") as lease:
        assert lease.put("cat", PIXELS)
        assert lease.put("raw", b"abc", note=b"mine")
        assert lease.put("half", Tensor("bfloat16", (2, 1), memoryview(b"\0\1\2\3")))
        assert lease.put("one", np.array(0.5))
        assert lease.put("turned", PIXELS.T)
        assert not lease.put("cat", PIXELS), "it is there already"
    assert standin.held() == set()
    with client.lease("b", seconds=60) as lease:
        cat = sure(lease.pin("cat"))
        assert (cat.name, cat.size, cat.note) == ("cat", 96, b"float32 2 3 4")
        array = cat.tensor().numpy()
        assert np.array_equal(array, PIXELS)
        assert array.dtype == PIXELS.dtype
        assert not array.flags.writeable
        assert cat.view.readonly
        mapping = client.mapping(standin_segment(client))
        assert np.shares_memory(array, np.frombuffer(mapping.view(0, standin.size), np.uint8))
        assert np.array_equal(cat.tensor("uint8", [96]).numpy().view(np.float32), PIXELS.ravel())
        raw = sure(lease.pin("raw"))
        assert (bytes(raw.view), raw.note) == (b"abc", b"mine")
        with pytest.raises(
            CorruptError, match="the note of 'raw' is b'mine', no dtype and shape: give them"
        ):
            raw.tensor()
        half = sure(lease.pin("half")).tensor()
        assert (half.dtype, half.shape, half.tobytes()) == ("bfloat16", (2, 1), b"\0\1\2\3")
        assert sure(lease.pin("one")).tensor().numpy() == 0.5
        assert np.array_equal(sure(lease.pin("turned")).tensor().numpy(), PIXELS.T)
        assert len(standin.held()) == 5
        assert [call["seconds"] for call in standin.calls[-5:]] == [60] * 5
        del array, half
    assert standin.held() == set()


def standin_segment(client: Client) -> Any:
    assert client.segment is not None
    return client.segment


@pytest.mark.parametrize(
    "note", [b"", b"float32 x", b"float32 -1", b"float32 7", b"\xff 1", b"uint8 " + b"9" * 30]
)
def test_note_that_says_no_tensor(standin: Standin, client: Client, note: bytes) -> None:
    standin.put("a", b"abc", note.decode("latin-1"))
    with client.lease() as lease:
        with pytest.raises(CorruptError):
            sure(lease.pin("a")).tensor()
        with pytest.raises(ArgumentError):
            sure(lease.pin("a")).tensor("uint8")
        with pytest.raises(ArgumentError, match="takes 4 bytes, has 3"):
            sure(lease.pin("a")).tensor("uint8", (4,))


def test_what_cannot_be_had_is_none(standin: Standin, client: Client) -> None:
    standin.put("a", b"abc", "")
    with client.lease() as lease:
        assert lease.pin("none") is None
        assert lease.reserve("a", 3) is None
        assert lease.reserve("large", 1 << 30) is None
        for status in ("miss", "pending", "full", "too large", "unavailable"):
            standin.answer = status_of("pin", status)
            assert lease.pin("a") is None, status
        for status in ("exists", "pending", "full", "too large"):
            standin.answer = status_of("reserve", status)
            assert lease.reserve("b", 3) is None, status
        for status in ("invalid", "of a later version"):
            standin.answer = status_of("pin", status)
            with pytest.raises(ArgumentError, match=status):
                lease.pin("a")
            standin.answer = status_of("reserve", status)
            with pytest.raises(ArgumentError, match=status):
                lease.reserve("b", 3)
        standin.answer = None


def status_of(op: str, status: str) -> Callable[[dict[str, Any]], Any]:
    return lambda request: {"items": [{"status": status}]} if request["op"] == op else None


@pytest.mark.parametrize(
    "take",
    [
        lambda found: found.view,
        lambda found: found.view[1:2],
        lambda found: found.view.cast("B", (1, 3)),
        lambda found: found.tensor("uint8", (3,)),
        lambda found: found.tensor("uint8", (3,)).numpy(),
        lambda found: found.tensor("uint8", (3,)).numpy()[::-1][:1].reshape(1, 1).view(np.int8),
        lambda found: np.from_dlpack(found.tensor("uint8", (3,))),
    ],
    ids=range(7),
)
def test_no_lease_ends_under_what_views_it(
    standin: Standin, client: Client, take: Callable[[Pinned], Any]
) -> None:
    standin.put("a", b"abc", "")
    standin.put("b", b"abc", "")
    lease = client.lease()
    other = sure(lease.pin("b"))
    found = sure(lease.pin("a"))
    views = [take(found)]
    for _ in range(2):
        with pytest.raises(SegmentBusyError, match="'a' of lease 'lease-1' are still viewed"):
            lease.release()
        assert standin.held() == {"a", "b"}
        assert bytes(other.view) == b"abc", "the others go on, too"
    with pytest.raises(SegmentBusyError), lease:
        pass
    views.clear()
    lease.release()
    lease.release()
    assert standin.held() == set()
    for one in (found, other):
        with pytest.raises(ClosedError):
            _ = one.view
        with pytest.raises(ClosedError):
            one.tensor("uint8", (3,))
    for call in (lambda: lease.pin("a"), lambda: lease.reserve("x", 1), lease.check):
        with pytest.raises(ClosedError, match="'lease-1' is released"):
            call()


def test_a_lease_lasts_as_long_as_the_daemon_lets_it(standin: Standin, client: Client) -> None:
    standin.put("a", b"abc", "")
    standin.seconds = 100
    with client.lease(seconds=1000) as lease:
        lease.pin("a")
        first = lease._until
        assert 0 < first - time.monotonic() <= 100
        lease.pin("a")
        assert lease._until > first
    for seconds in (0, -1, 1.5, True, "1"):
        with pytest.raises(ArgumentError):
            client.lease(seconds=seconds)  # type: ignore[arg-type]
    with client.lease(seconds=np.int64(7)) as lease:  # type: ignore[arg-type]
        lease.reserve("b", np.int32(3))  # type: ignore[arg-type]
        assert [standin.calls[-1]["seconds"], standin.calls[-1]["objects"][0]["size"]] == [7, 3]
        for size in (-1, 1.5):
            with pytest.raises(ArgumentError):
                lease.reserve("c", size)  # type: ignore[arg-type]


def test_time_that_has_passed_is_told(standin: Standin, client: Client) -> None:
    standin.put("a", b"abc", "")
    with (
        pytest.raises(ExpiredError, match="the time of lease 'lease-1' has passed"),
        client.lease() as lease,
    ):
        lease.pin("a")
        lease.check()
        lease._until = 0
    assert standin.held() == set(), "it was released all the same"
    lease = client.lease()
    lease.pin("a")
    lease._until = 0
    for call in (lease.check, lambda: lease.pin("a"), lambda: lease.reserve("b", 1)):
        with pytest.raises(ExpiredError):
            call()
    lease.release()
    with client.lease() as lease:
        lease.reserve("b", 1)
        lease._until = 0  # it has pinned nothing


def test_pins_are_asked_for_when_the_connection_was_lost(standin: Standin, client: Client) -> None:
    standin.put("a", b"abc", "")
    with client.lease() as lease:
        lease.pin("a")
        calls = len(standin.calls)
        lease.check()
        assert len(standin.calls) == calls, "nothing is asked while the connection is up"
        standin.stop()
        standin.start()
        lease.check()
        assert standin.ops()[-2:] == ["hello", "get"]
        lease.check()
        assert standin.ops()[-1] == "get"
        assert standin.ops().count("get") == 1


@pytest.mark.parametrize("again", [False, True])
def test_pins_that_the_daemon_lost_are_told(standin: Standin, client: Client, again: bool) -> None:
    """Also if the same name is pinned again meanwhile, at the same place."""
    standin.put("a", b"abc", "")
    with pytest.raises(ExpiredError, match="the daemon lost what lease"), client.lease() as lease:
        lease.pin("a")
        standin.stop()
        standin.pins.clear()
        standin.start()
        if again:
            client.pin(lease.name, ["a"])
            lease._epoch = -1
            lease._lost = True
    assert standin.held() == set()


def test_a_pin_after_a_loss_does_not_hide_it(standin: Standin, client: Client) -> None:
    standin.put("a", b"abc", "")
    lease = client.lease()
    lease.pin("a")
    standin.stop()
    standin.pins.clear()
    standin.start()
    for _ in range(2):
        with pytest.raises(ExpiredError):
            lease.pin("a")
    lease.release()


@pytest.mark.parametrize("another", [False, True])
def test_a_loss_that_a_pin_meets_is_told(
    standin: Standin, client: Client, monkeypatch: pytest.MonkeyPatch, another: bool
) -> None:
    """The connection is lost between the look at it and the pin, so nobody knows what came between."""
    standin.put("a", b"abc", "")
    lease = client.lease()
    lease.pin("a")
    others: list[Standin] = []

    def replaced() -> int:
        standin.stop()
        if another:
            others.append(Standin(standin.path, generation=2))
            others[0].put("x", bytes(100), "")
            others[0].put("a", b"abc", "")
        else:
            standin.start()
        return 1

    monkeypatch.setattr(client, "current", replaced)
    try:
        with pytest.raises(ExpiredError):
            lease.pin("a")
        monkeypatch.undo()
        with pytest.raises(ExpiredError), lease:
            pass
    finally:
        for other in others:
            other.close()


def test_another_segment_has_none_of_the_pins(standin: Standin, client: Client) -> None:
    standin.put("a", b"abc", "")
    with client.lease() as old, client.lease() as new:
        found = sure(old.pin("a"))
        standin.stop()
        other = Standin(standin.path, generation=2)
        try:
            other.put("a", b"xyz", "")
            assert bytes(sure(new.pin("a")).view) == b"xyz"
            assert bytes(found.view) == b"abc", "the old mapping stays"
            with pytest.raises(ExpiredError):
                old.check()
            old.release()
            new.release()
        finally:
            other.close()


def test_daemon_that_is_away_cannot_vouch(standin: Standin, client: Client) -> None:
    standin.put("a", b"abc", "")
    with pytest.raises(DaemonError), client.lease() as lease:
        found = sure(lease.pin("a"))
        standin.stop()
    with pytest.raises(ClosedError):
        _ = found.view


def test_a_dropped_lease_ends_with_the_next_call(standin: Standin, client: Client) -> None:
    standin.put("a", b"abc", "")
    with client.lease() as lease:
        with pytest.warns(ResourceWarning, match="lease 'lease-2' was dropped without release"):
            view = sure(client.lease().pin("a")).view
            assert standin.held() == {"a"}, "the view keeps it"
            lease.pin("none")
            assert standin.held() == {"a"}
            del view
        lease.pin("none")
        assert standin.held() == set()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lease = client.lease()
        lease.pin("none")
        lease.release()
        lease = client.lease()  # which the daemon does not know
        del lease
        gc.collect()


def test_a_release_that_was_not_answered_is_made_later(standin: Standin, client: Client) -> None:
    standin.put("a", b"abc", "")
    lease = client.lease()
    lease.pin("a")
    standin.stop()
    with pytest.raises(DaemonError):
        lease.release()
    standin.start()
    lease.release()
    assert standin.held() == {"a"}
    client._retry_at = 0
    with client.lease() as lease:
        lease.pin("none")
    assert standin.held() == set()


def test_an_error_is_not_hidden_and_its_frames_keep_nothing(
    standin: Standin, client: Client
) -> None:
    standin.put("a", b"abc", "")

    def fail() -> None:
        with client.lease() as lease:
            view = sure(lease.pin("a")).view
            raise KeyError(len(view))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(KeyError) as caught:
            fail()
        assert standin.held() == {"a"}, "the frame has a view"
        del caught
        gc.collect()
        with client.lease() as lease:
            lease.pin("none")
    assert standin.held() == set()


def test_room_is_written_in_place(standin: Standin, client: Client) -> None:
    with client.lease() as lease:
        room = lease.reserve("a", 96, note=b"float32 2 3 4", parent="p", tenant="t", cost=5)
        assert room is not None
        assert standin.calls[-1]["objects"] == [
            {
                "name": "a",
                "size": 96,
                "note": b"float32 2 3 4",
                "parent": "p",
                "tenant": "t",
                "cost": 5,
            }
        ]
        with room:
            room.numpy("float32", (2, 3, 4))[:] = PIXELS
            with pytest.raises(ArgumentError):
                room.numpy("float32", (5,))
            room.view[:4] = PIXELS.tobytes()[:4]
            room.write(PIXELS.tobytes()[4:8], 4)
            for data, at in ((b"x" * 97, 0), (b"x", 96), (b"x", -1)):
                with pytest.raises(ArgumentError, match="do not fit"):
                    room.write(data, at)
            with pytest.raises(ArgumentError, match="is reserved by this lease already"):
                lease.reserve("a", 96)
        assert np.array_equal(sure(lease.pin("a")).tensor().numpy(), PIXELS)
        for use in (lambda: room.view, room.commit, room.numpy, lambda: room.write(b"x")):
            with pytest.raises(ClosedError):
                use()
        room.abort()


def test_room_is_not_published_while_somebody_could_write_to_it(
    standin: Standin, client: Client
) -> None:
    with client.lease() as lease:
        room = lease.reserve("a", 3)
        assert room is not None
        array = room.numpy()[1:]
        for end in (room.commit, room.abort):
            with pytest.raises(SegmentBusyError, match="the room of 'a' is still viewed"):
                end()
        with pytest.raises(SegmentBusyError, match="'a' of lease"):
            lease.release()
        array[:] = 7
        assert "a" not in standin.objects
        del array
        room.commit()
        assert bytes(sure(lease.pin("a")).view) == b"\0\7\7"


def test_room_is_given_up_after_an_error(standin: Standin, client: Client) -> None:
    with client.lease() as lease:
        room = lease.reserve("a", 3)
        assert room is not None
        with pytest.raises(KeyError), room:
            raise KeyError
        assert standin.ops()[-1] == "abort"
        assert lease.put("a", b"abc")
        assert standin.held() == set()


def test_room_whose_time_has_passed(standin: Standin, client: Client) -> None:
    with client.lease() as lease:
        room = lease.reserve("a", 3)
        assert room is not None
        lease._until = 0
        with pytest.raises(ExpiredError) as caught:
            room.write(b"abc")
        lease._until = math.inf
        assert caught.tb, "whose frames are alive, and keep nothing"
        standin.reserved.clear()
        with pytest.raises(ExpiredError, match=r"has lost the room of 'a' \(ended\)"):
            room.commit()


def test_commit_whose_answer_was_lost_may_be_made_again(standin: Standin, client: Client) -> None:
    with client.lease() as lease:
        room = lease.reserve("a", 3)
        assert room is not None
        room.write(b"abc")
        standin.answer = answer(error={"kind": "busy", "text": "too many"})
        with pytest.raises(DaemonError):
            room.commit()
        standin.answer = None
        room.commit()
        assert "a" in standin.objects


def test_object_without_bytes(standin: Standin, client: Client) -> None:
    with client.lease() as lease:
        assert lease.put("a", np.zeros((0, 3), np.int16))
        found = sure(lease.pin("a"))
        assert found.tensor().numpy().shape == (0, 3)
        assert bytes(found.view) == b""
        assert lease.put("b", b"")


@pytest.mark.parametrize(
    "data",
    [
        np.array(["a"]),
        np.array([None]),
        np.zeros(2, ">f4"),
        np.zeros(2, "M8[s]"),
        memoryview(b"abcd")[::2],
        5,
        "abc",
    ],
    ids=range(7),
)
def test_data_that_cannot_be_stored(standin: Standin, client: Client, data: Any) -> None:
    with client.lease() as lease, pytest.raises(ArgumentError):
        lease.put("a", data)
    assert standin.calls == []


def test_many_at_once(standin: Standin, client: Client) -> None:
    names = [f"{n}" for n in range(5)]
    for name in ("0", "1", "3"):
        standin.put(name, name.encode(), "")
    with client.lease() as lease:
        assert lease.pin_all([]) == []
        found = lease.pin_all(names)
        assert [None if one is None else bytes(one.view) for one in found] == [
            b"0",
            b"1",
            None,
            b"3",
            None,
        ]
        chain = lease.pin_all(names, prefix=True)
        assert [sure(one).name for one in chain] == ["0", "1"]


def test_what_is_on_its_way_is_waited_for(standin: Standin, client: Client) -> None:
    standin.put("a", b"abc", "")
    standin.pending = {"a": 3}
    with client.lease() as lease:
        assert lease.pin("a") is None
        assert lease.pin("a", wait=300) is not None
        assert standin.ops() == ["hello", *["pin"] * 4]
        standin.pending = {"b": -1}
        assert lease.pin("b", wait=0.01) is None


def test_places_and_state(standin: Standin, client: Client) -> None:
    standin.put("a", b"abc", "")
    assert [item.levels for item in client.find(["a", "b"])] == [("memory",), ()]
    state = client.stat()
    assert [(level.name, level.objects) for level in state.levels] == [("memory", 1)]
    assert standin.held() == set()
    standin.answer = answer()
    with pytest.raises(DaemonError, match="has no state"):
        client.stat()


def test_names_need_a_space(standin: Standin) -> None:
    with Client(standin.path, client="test", timeout=30) as c:
        assert c.stat().sessions == 1
        for call in (lambda: c.lease().pin("a"), lambda: c.find(["a"])):
            with pytest.raises(ArgumentError, match="names are of a space"):
                call()


def test_daemon_that_names_places_outside_its_segment(standin: Standin, client: Client) -> None:
    for offset, size in ((standin.size, 1), (0, standin.size + 1), (1 << 63, 1)):
        standin.answer = lambda request, at=offset, size=size: (
            {"items": [{"status": "hit", "offset": at, "size": size}]}
            if request["op"] == "pin"
            else None
        )
        with client.lease() as lease, pytest.raises(SegmentSizeError):
            lease.pin("a")
    standin.answer = lambda request: (
        {"items": [{"status": "reserved", "offset": 64, "size": 4}]}
        if request["op"] == "reserve"
        else None
    )
    with client.lease() as lease, pytest.raises(CorruptError, match="reserved 4 bytes"):
        lease.reserve("a", 3)


def test_forked_child_has_none_of_the_leases(standin: Standin, client: Client) -> None:
    standin.put("a", b"abc", "")
    with client.lease() as lease:
        found = sure(lease.pin("a"))
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                for use in (lambda: found.view, lambda: lease.pin("a"), lease.check):
                    with pytest.raises(ClosedError):
                        use()
                lease.release()
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(pid, 0)[1] == 0
        assert standin.held() == {"a"}
        assert bytes(found.view) == b"abc"


def test_threads_share_a_client(standin: Standin, client: Client) -> None:
    """Each with leases of its own; what one drops another may end."""
    for n in range(8):
        standin.put(f"{n}", bytes([n]) * 100, "uint8 100")
    failed: list[object] = []
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)

    def work(n: int) -> None:
        try:
            for i in range(25):
                with client.lease() as lease:
                    one, other = lease.pin_all([f"{n}", f"{(n + i) % 8}"])
                    array = sure(one).tensor().numpy()
                    if not (array == n).all() or sure(other).view[0] != (n + i) % 8:
                        failed.append((n, i))
                    del array
                    if not lease.put(f"{n}.{i}", bytes([n]) * 10):
                        failed.append((n, i))
        except BaseException as e:
            failed.append(e)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert failed == []
    assert standin.held() == set()
    assert len(standin.objects) == 8 + 8 * 25


def test_arrays_outlive_the_client(standin: Standin) -> None:
    standin.put("a", b"abc", "")
    with Client(standin.path, client="test", space="s", timeout=30) as c:
        lease = c.lease()
        view = sure(lease.pin("a")).view
    assert bytes(view) == b"abc"
    del view
    with pytest.raises(ClosedError):
        lease.release()


def test_real_daemon(real: Daemon) -> None:  # noqa: F811
    with Client(real.socket, client="test", space="photos", timeout=30) as c:
        eventually(c.hello)
        with c.lease("writer") as lease:
            assert lease.put("cat", PIXELS)
            assert not lease.put("cat", PIXELS)
            assert not lease.put("huge", np.zeros(1 << 24, np.uint8))
            assert lease.put("nothing", b"")
            assert bytes(sure(lease.pin("nothing")).view) == b""
            items = c.find(["cat", "dog"])
            while any(item.status == "pending" for item in items):  # the daemon finds out
                items = c.find(["cat", "dog"])
            assert [(item.status, item.levels) for item in items] == [
                ("hit", ("memory",)),
                ("miss", ()),
            ]
            state = c.stat()
            assert (state.levels[0].name, state.levels[0].objects, state.stored) == ("memory", 2, 2)
            with pytest.raises(ArgumentError, match="invalid"):
                lease.pin("\0")
        with c.lease("reader", seconds=300) as lease:
            found = sure(lease.pin("cat"))
            array = found.tensor().numpy()
            assert np.array_equal(array, PIXELS)

            # SIGKILL: the pin outlives it, and the lease finds out that it does.
            real.kill()
            assert np.array_equal(array, PIXELS)
            real.start()
            eventually(lease.check)
            assert c.stat().levels[0].held > 0
            del array
        assert c.stat().levels[0].held == 0


def test_real_daemon_that_was_away_for_too_long(real: Daemon) -> None:  # noqa: F811
    """Its grace time has passed, so the pins are gone, and that is told."""
    with Client(real.socket, client="test", space="photos", timeout=30) as c:
        eventually(c.hello)
        with pytest.raises(ExpiredError, match="the daemon lost"), c.lease() as lease:
            lease.put("cat", PIXELS)
            assert lease.pin("cat") is not None
            real.kill()
            for file in pathlib.Path("/dev/shm").glob(f"{real.name}*"):
                file.unlink()
            real.start()
            eventually(c.hello)


def test_lease_is_made_by_its_client(client: Client) -> None:
    assert isinstance(client.lease(), Lease)
    assert [client.lease("x").name, client.lease("x").name] == ["x-2", "x-3"]

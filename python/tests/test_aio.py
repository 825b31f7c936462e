"""The client for asyncio: it is the other one, so what is tested here is the loop's side."""

from __future__ import annotations

import asyncio
import pathlib
from collections.abc import Awaitable, Callable, Iterator

import numpy as np
import pytest
from standin import Standin
from test_daemon import Daemon, real  # noqa: F401

from ringcache import ClosedError, DaemonError, ExpiredError, SegmentBusyError
from ringcache.aio import AsyncClient, AsyncLease

PIXELS = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


@pytest.fixture
def standin(tmp_path: pathlib.Path) -> Iterator[Standin]:
    made = Standin(str(tmp_path / "s"))
    yield made
    made.close()


def run(standin: Standin, use: Callable[[AsyncClient], Awaitable[None]]) -> None:
    async def main() -> None:
        async with AsyncClient(standin.path, client="test", space="photos", timeout=30) as client:
            await use(client)

    asyncio.run(main())


def test_all_of_it(standin: Standin) -> None:
    async def use(client: AsyncClient) -> None:
        async with client.lease("a", seconds=60) as lease:
            assert lease.name == "a-1"
            assert await lease.put("cat", PIXELS)
            assert not await lease.put("cat", PIXELS)
            room = await lease.reserve("dog", 3, note=b"uint8 3")
            assert room is not None
            async with room:
                assert (room.name, room.size) == ("dog", 3)
                await room.write(b"ab")
                room.numpy()[2:] = 5
                room.view[:1] = b"x"
            lost = await lease.reserve("lost", 3)
            assert lost is not None
            with pytest.raises(KeyError):
                async with lost:
                    raise KeyError
            assert await lease.reserve("cat", 3) is None
            cat, none, dog = await lease.pin_all(["cat", "none", "dog"])
            assert cat is not None
            assert none is None
            assert dog is not None
            assert np.array_equal(cat.tensor().numpy(), PIXELS)
            assert bytes(dog.view) == b"xb\5"
            assert len(await lease.pin_all(["cat", "none", "dog"], prefix=True)) == 1
            await lease.check()
        assert standin.held() == set()
        assert [item.levels for item in await client.find(["cat", "none"])] == [("memory",), ()]
        assert (await client.stat()).sessions == 1
        assert (await client.hello()).epoch == 1
        with pytest.raises(ClosedError):
            await lease.pin("cat")

    run(standin, use)


def test_no_lease_ends_under_what_views_it(standin: Standin) -> None:
    standin.put("a", b"abc", "")

    async def use(client: AsyncClient) -> None:
        lease = client.lease()
        found = await lease.pin("a")
        assert found is not None
        view = found.view
        with pytest.raises(SegmentBusyError):
            async with lease:
                pass
        assert standin.held() == {"a"}
        del view
        await lease.release()
        assert standin.held() == set()

    run(standin, use)


def test_pins_that_the_daemon_lost_are_told(standin: Standin) -> None:
    standin.put("a", b"abc", "")

    async def use(client: AsyncClient) -> None:
        with pytest.raises(ExpiredError):
            async with client.lease() as lease:
                await lease.pin("a")
                standin.stop()
                standin.pins.clear()
                standin.start()

    run(standin, use)


def test_the_loop_goes_on_while_the_daemon_hangs(standin: Standin) -> None:
    standin.put("a", b"abc", "")

    async def use(client: AsyncClient) -> None:
        await client.hello()
        standin.hung.set()
        lease = client.lease()
        call = asyncio.ensure_future(lease.pin("a"))
        for _ in range(100):
            await asyncio.sleep(0)
        assert not call.done()
        standin.hung.clear()
        assert await call is not None
        await lease.release()

    run(standin, use)


def test_waiting_for_an_object_stops_nobody_else(standin: Standin) -> None:
    """Neither the loop nor the client's other calls."""
    standin.put("a", b"abc", "")
    standin.pending = {"b": -1}

    async def use(client: AsyncClient) -> None:
        async with client.lease() as waiting, client.lease() as other:
            call = asyncio.ensure_future(waiting.pin("b", wait=300))
            for _ in range(20):
                assert await other.pin("a") is not None
            assert not call.done()
            standin.pending = {}
            standin.put("b", b"xyz", "")
            assert await call is not None

    run(standin, use)


def test_what_a_cancelled_call_pins_ends_with_its_lease(standin: Standin) -> None:
    standin.put("a", b"abc", "")

    async def pin(lease: AsyncLease, begun: asyncio.Event) -> None:
        async with lease:
            begun.set()
            await lease.pin("a")

    async def use(client: AsyncClient) -> None:
        await client.hello()
        standin.hung.set()
        begun = asyncio.Event()
        task = asyncio.ensure_future(pin(client.lease(), begun))
        await begun.wait()
        await asyncio.sleep(0)
        task.cancel()
        standin.hung.clear()
        with pytest.raises(asyncio.CancelledError):
            await task
        await client.stat()
        assert standin.held() == set()

    run(standin, use)


def test_many_tasks_share_a_client(standin: Standin) -> None:
    for n in range(8):
        standin.put(f"{n}", bytes([n]) * 100, "uint8 100")

    async def use(client: AsyncClient) -> None:
        async def work(n: int) -> None:
            for i in range(10):
                async with client.lease() as lease:
                    found = await asyncio.gather(lease.pin(f"{n}"), lease.pin(f"{(n + i) % 8}"))
                    assert [one is not None and one.view[0] for one in found] == [n, (n + i) % 8]

        await asyncio.gather(*(work(n) for n in range(8)))
        assert standin.held() == set()

    run(standin, use)


def test_closed_client(standin: Standin) -> None:
    async def main() -> None:
        client = AsyncClient(standin.path, client="test", space="photos", timeout=30)
        await client.hello()
        await client.close()
        with pytest.raises(RuntimeError):
            await client.hello()

    asyncio.run(main())


def test_daemon_that_is_not_there(tmp_path: pathlib.Path) -> None:
    async def main() -> None:
        async with AsyncClient(str(tmp_path / "s"), client="test", space="s") as client:
            with pytest.raises(DaemonError):
                async with client.lease() as lease:
                    await lease.pin("a")

    asyncio.run(main())


def test_real_daemon(real: Daemon) -> None:  # noqa: F811
    async def main() -> None:
        async with AsyncClient(real.socket, client="test", space="photos", timeout=30) as client:
            while True:
                try:
                    await client.hello()
                    break
                except DaemonError:
                    await asyncio.sleep(0.01)
            async with client.lease() as lease:
                assert await lease.put("cat", PIXELS)
                found = await lease.pin("cat")
                assert found is not None
                assert np.array_equal(found.tensor().numpy(), PIXELS)
            assert (await client.stat()).levels[0].held == 0

    asyncio.run(main())

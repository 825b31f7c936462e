"""The client of ``ringcache serve`` for asyncio: the same leases, whose calls are awaited.

::

    async with AsyncClient(client="example", space="photos") as client:
        async with client.lease(seconds=60) as lease:
            await lease.put("cat", pixels)
            found = await lease.pin("cat", wait=1)

There is one thread for each client, which makes its calls, one after the other, by
:class:`ringcache.Client`; so a daemon that is slow, or away, stops no loop. Lifetimes are those of
:mod:`ringcache.lease`, and what :meth:`AsyncLease.pin` gives is its :class:`~ringcache.Pinned`.

A call that is cancelled may be made all the same. What it pins or reserves ends with its lease.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

import numpy.typing as npt

from .daemon import Client, Fingerprint, Hello, Items, State
from .errors import RingcacheError
from .lease import SECONDS, Data, Lease, Pinned, Reservation, pauses

if TYPE_CHECKING:
    import torch

__all__ = ["AsyncClient", "AsyncLease", "AsyncReservation"]

_T = TypeVar("_T")


class AsyncClient:
    """:class:`ringcache.Client`, which has the arguments. Tasks may share one, all of one loop."""

    def __init__(
        self,
        socket: str | None = None,
        *,
        client: str,
        fingerprint: Fingerprint | None = None,
        space: str = "",
        timeout: float = 5.0,
    ) -> None:
        self._client = Client(
            socket, client=client, fingerprint=fingerprint, space=space, timeout=timeout
        )
        # One thread: what a lease does is in the order in which it was asked for.
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="ringcache")

    async def hello(self) -> Hello:
        """:meth:`ringcache.Client.hello`"""
        return await self._run(self._client.hello)

    async def stat(self) -> State:
        """:meth:`ringcache.Client.stat`"""
        return await self._run(self._client.stat)

    async def find(self, names: Sequence[str]) -> Items:
        """:meth:`ringcache.Client.find`"""
        return await self._run(self._client.find, names)

    def lease(self, name: str = "lease", *, seconds: int = SECONDS) -> AsyncLease:
        """:meth:`ringcache.Client.lease`. No call is made here."""
        return AsyncLease(self, self._client.lease(name, seconds=seconds))

    async def close(self) -> None:
        """:meth:`ringcache.Client.close`, after the calls that are being made."""
        try:
            await self._run(self._client.close)
        finally:
            self._executor.shutdown(wait=False)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def _run(self, call: Callable[..., _T], *args: Any, **named: Any) -> _T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, functools.partial(call, *args, **named))


class AsyncLease:
    """:class:`ringcache.Lease`, whose methods these are. Made by :meth:`AsyncClient.lease`; use
    ``async with``, or :meth:`release` it."""

    def __init__(self, client: AsyncClient, lease: Lease) -> None:
        self._client = client
        self._lease = lease
        self._run = client._run

    @property
    def name(self) -> str:
        return self._lease.name

    async def pin(self, name: str, *, wait: float = 0) -> Pinned | None:
        return (await self.pin_all([name], wait=wait))[0]

    async def pin_all(
        self, names: Sequence[str], *, prefix: bool = False, wait: float = 0
    ) -> list[Pinned | None]:
        again = pauses(wait)
        while True:
            found, pending = await self._run(self._lease._look, names, prefix)
            pause = next(again, None)
            if not pending or pause is None:
                return found
            await asyncio.sleep(pause)

    async def reserve(
        self,
        name: str,
        size: int,
        *,
        note: bytes = b"",
        parent: str = "",
        tenant: str = "",
        cost: int = 0,
    ) -> AsyncReservation | None:
        room = await self._run(
            self._lease.reserve, name, size, note=note, parent=parent, tenant=tenant, cost=cost
        )
        return None if room is None else AsyncReservation(self._client, room)

    async def put(
        self,
        name: str,
        data: Data,
        *,
        note: bytes | None = None,
        parent: str = "",
        tenant: str = "",
        cost: int = 0,
    ) -> bool:
        return await self._run(
            self._lease.put, name, data, note=note, parent=parent, tenant=tenant, cost=cost
        )

    async def check(self) -> None:
        await self._run(self._lease.check)

    async def release(self) -> None:
        await self._run(self._lease.release)

    async def __aenter__(self) -> AsyncLease:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._run(self._lease.__exit__, kind, error, trace)


class AsyncReservation:
    """:class:`ringcache.Reservation`, whose methods these are. Made by :meth:`AsyncLease.reserve`."""

    def __init__(self, client: AsyncClient, room: Reservation) -> None:
        self._room = room
        self._run = client._run
        self.name: str = room.name
        #: In bytes.
        self.size: int = room.size

    @property
    def view(self) -> memoryview:
        return self._room.view

    def numpy(self, dtype: str = "uint8", shape: Sequence[int] | None = None) -> npt.NDArray[Any]:
        return self._room.numpy(dtype, shape)

    def torch(self, dtype: str = "uint8", shape: Sequence[int] | None = None) -> torch.Tensor:
        return self._room.torch(dtype, shape)

    async def write(self, data: bytes | bytearray | memoryview, at: int = 0) -> None:
        await self._run(self._room.write, data, at)

    async def commit(self) -> None:
        await self._run(self._room.commit)

    async def abort(self) -> None:
        await self._run(self._room.abort)

    async def __aenter__(self) -> AsyncReservation:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            await self.commit()
        else:
            with contextlib.suppress(RingcacheError):  # it ends with the lease
                await self.abort()

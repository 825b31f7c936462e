"""A stand-in for ``ringcache serve`` that speaks the protocol of docs/daemon.md, in one thread. It
keeps no state that a daemon keeps for safety only, and can be told to misbehave."""

from __future__ import annotations

import contextlib
import mmap
import os
import pathlib
import select
import socket
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

import msgspec

SIZE = 1 << 20
ALIGNED = 64

_KEYS = {
    "hello": ({"version", "session", "client"}, {"fingerprint", "features"}),
    "pin": ({"lease", "space", "names"}, {"seconds", "prefix", "trace"}),
    "get": ({"lease", "space"}, {"names", "trace"}),
    "reserve": ({"lease", "space", "objects"}, {"seconds", "trace"}),
    "commit": ({"lease", "space", "names"}, {"keep", "seconds", "trace"}),
    "abort": ({"lease", "space", "names"}, set()),
    "release": (set(), {"leases", "lease", "space", "names"}),
    "stat": (set(), {"space", "names"}),
}


class Standin:
    """A daemon. ``objects`` maps names to (offset, size, note); ``pins`` and ``reserved`` map a
    lease of a session to names. ``calls`` has each request."""

    def __init__(
        self, path: str, *, segment: str | None = None, generation: int = 1, size: int = SIZE
    ) -> None:
        self.path = path
        self.size = size
        self.segment = segment or f"ringcache-test-{uuid.uuid4()}"
        self.generation = generation
        self.objects: dict[str, tuple[int, int, bytes]] = {}
        self.pins: dict[tuple[str, str], set[str]] = {}
        self.reserved: dict[tuple[str, str], dict[str, tuple[int, int, bytes]]] = {}
        self.calls: list[dict[str, Any]] = []
        self.pending: dict[str, int] = {}  # names, and how often they are still pending; -1 is always
        self.answer: Callable[[dict[str, Any]], Any] | None = None  # in place of its own
        self.seconds = 3600
        self._file = pathlib.Path("/dev/shm", self.segment)
        fd = os.open(self._file, os.O_CREAT | os.O_RDWR, 0o600)
        os.truncate(fd, size)
        self.inode = os.fstat(fd).st_ino
        self.memory = mmap.mmap(fd, size)
        os.close(fd)
        self.memory[:8] = generation.to_bytes(8, "little")
        self._next = ALIGNED
        self._listener: socket.socket | None = None
        self._connections: dict[socket.socket, bytearray] = {}
        self._sessions: dict[socket.socket, str] = {}
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        self.hung = threading.Event()
        self.start()

    def start(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self.path)
        self._listener.listen()
        self._stop.clear()
        self._thread = threading.Thread(target=self._run, args=(self._listener,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """As after SIGKILL: what is in the segment and pinned stays."""
        if self._thread is not None:
            self._stop.set()
            self.hung.clear()
            self._thread.join()
            self._thread = None
        for connection in [*self._connections, self._listener]:
            if connection is not None:
                connection.close()
        self._connections.clear()
        self._sessions.clear()
        self._listener = None

    def close(self) -> None:
        self.stop()
        self._file.unlink(missing_ok=True)
        with contextlib.suppress(BufferError):
            self.memory.close()

    def put(self, name: str, data: bytes, note: str) -> int:
        at = self._room(len(data))
        self.memory[at : at + len(data)] = data
        self.objects[name] = (at, len(data), note.encode())
        return at

    def held(self) -> set[str]:
        return set().union(*self.pins.values(), *self.reserved.values())

    def ops(self) -> list[str]:
        return [call["op"] for call in self.calls]

    def _room(self, size: int) -> int:
        at = self._next
        self._next += -(-size // ALIGNED) * ALIGNED
        return at

    def _run(self, listener: socket.socket) -> None:
        while not self._stop.is_set():
            ready, _, _ = select.select([listener, *self._connections], [], [], 0.01)
            for one in ready:
                if self.hung.is_set():
                    time.sleep(0.005)
                elif one is listener:
                    self._connections[listener.accept()[0]] = bytearray()
                else:
                    self._serve(one)

    def _serve(self, connection: socket.socket) -> None:
        try:
            data = connection.recv(1 << 20)
        except OSError:
            data = b""
        if not data:
            self._drop(connection)
            return
        buffer = self._connections[connection]
        buffer += data
        while len(buffer) >= 4 and len(buffer) >= 4 + int.from_bytes(buffer[:4], "little"):
            length = int.from_bytes(buffer[:4], "little")
            body = bytes(buffer[4 : 4 + length])
            del buffer[: 4 + length]
            request = msgspec.msgpack.decode(body)
            self.calls.append(request)
            reply = self.answer(request) if self.answer else None
            if reply is None:
                reply = self.reply(connection, request)
            if reply == b"":
                self._drop(connection)
                return
            if not isinstance(reply, bytes):
                encoded = msgspec.msgpack.encode({"id": request["id"], **reply})
                reply = len(encoded).to_bytes(4, "little") + encoded
            with contextlib.suppress(OSError):
                connection.sendall(reply)

    def _drop(self, connection: socket.socket) -> None:
        self._connections.pop(connection, None)
        self._sessions.pop(connection, None)
        connection.close()

    def reply(self, connection: socket.socket, request: dict[str, Any]) -> dict[str, Any]:
        op = request["op"]
        needed, allowed = _KEYS[op]
        keys = request.keys() - {"id", "op"}
        if request.get("id", 0) < 1 or not needed <= keys <= needed | allowed:
            return {"error": {"kind": "invalid", "text": f"{op} with {sorted(keys)}"}}
        if op == "release" and ("leases" in keys) == bool(keys & {"lease", "space", "names"}):
            return {"error": {"kind": "invalid", "text": f"release with {sorted(keys)}"}}
        if any(value in (0, "", [], False, None) for value in request.values()):
            return {"error": {"kind": "invalid", "text": f"a zero in {request}"}}
        if op == "hello":
            self._sessions[connection] = request["session"]
            fingerprint = request.get("fingerprint")
            return {
                "version": 1,
                "server": "stand-in",
                "segment": {
                    "name": self.segment,
                    "size": self.size,
                    "generation": self.generation,
                    "inode": self.inode,
                },
                "space": "-".join(map(str, fingerprint.values())) if fingerprint else "",
                "limits": {"names": 1024, "seconds": self.seconds, "held": self.size, "leases": 10},
            }
        session = self._sessions.get(connection)
        if session is None:
            return {"error": {"kind": "hello", "text": "say hello"}}
        key = (session, request.get("lease", ""))
        items = getattr(self, "_" + op)(key, request)
        reply: dict[str, Any] = {"items": items} if items is not None else {}
        if op == "stat":
            level = {"name": "memory", "objects": len(self.objects), "capacity": self.size}
            reply["state"] = {"levels": [level], "sessions": len(self._sessions)}
        return reply

    def _item(self, status: str, place: tuple[int, int, bytes] | None = None) -> dict[str, Any]:
        item: dict[str, Any] = {"status": status}
        if place is not None:
            item.update({"offset": place[0], "size": place[1], "note": place[2]})
        return {key: value for key, value in item.items() if value}

    def _pin(self, key: tuple[str, str], request: dict[str, Any]) -> list[dict[str, Any]]:
        items = []
        for name in request["names"]:
            if self.pending.get(name):
                self.pending[name] -= 1
                items.append(self._item("pending"))
            elif name in self.objects:
                self.pins.setdefault(key, set()).add(name)
                items.append(self._item("hit", self.objects[name]))
            else:
                items.append(self._item("miss"))
                if request.get("prefix"):
                    break
        return items

    def _get(self, key: tuple[str, str], request: dict[str, Any]) -> list[dict[str, Any]]:
        return [
            self._item("hit", self.objects[name]) if name in self.pins.get(key, ()) else self._item("ended")
            for name in request.get("names", sorted(self.pins.get(key, ())))
        ]

    def _reserve(self, key: tuple[str, str], request: dict[str, Any]) -> list[dict[str, Any]]:
        items = []
        for thing in request["objects"]:
            name = thing["name"]
            if name in self.objects:
                items.append(self._item("exists"))
            elif any(name in names for names in self.reserved.values()):
                items.append(self._item("pending"))
            elif self._next + thing.get("size", 0) > self.size:
                items.append(self._item("full"))
            else:
                size = thing.get("size", 0)
                place = (self._room(size), size, thing.get("note", b""))
                self.reserved.setdefault(key, {})[name] = place
                items.append(self._item("reserved", place))
        return items

    def _commit(self, key: tuple[str, str], request: dict[str, Any]) -> list[dict[str, Any]]:
        items = []
        for name in request["names"]:
            place = self.reserved.get(key, {}).pop(name, None)
            if place is not None:
                self.objects[name] = place
            items.append(self._item("ok" if place else "ended"))
        return items

    def _abort(self, key: tuple[str, str], request: dict[str, Any]) -> list[dict[str, Any]]:
        return [
            self._item("ok" if self.reserved.get(key, {}).pop(name, None) else "ended")
            for name in request["names"]
        ]

    def _stat(self, key: tuple[str, str], request: dict[str, Any]) -> list[dict[str, Any]] | None:
        if "names" not in request:
            return None
        return [
            {"status": "hit", "levels": ["memory"]} if name in self.objects else self._item("miss")
            for name in request["names"]
        ]

    def _release(self, key: tuple[str, str], request: dict[str, Any]) -> None:
        for lease in request.get("leases", ()):
            self.pins.pop((key[0], lease), None)
            self.reserved.pop((key[0], lease), None)
        for name in request.get("names", ()):
            self.pins.get(key, set()).discard(name)

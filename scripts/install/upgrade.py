"""A client of the daemon that goes on while daemons take turns below it: scripts/test-upgrade.sh runs it in the environment of a wheel.

    python upgrade.py SOCKET NAME

It stores objects, and pins and compares what it has stored before, until SIGTERM; then it looks at everything once more. Its first
objects are pinned all the time. It prints a line after each round of calls, and fails at the first thing that is lost or wrong.
"""

from __future__ import annotations

import hashlib
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import ringcache
from ringcache.daemon import Client, DaemonError, Items, Object

PATIENCE = 600  # seconds without any daemon, which is an end of the test and no measurement
MOST, KEPT = 1500, 10  # objects: all have room in the segment

counts = {"stored": 0, "compared": 0, "away": 0}


def content(name: str) -> bytes:
    size = 4096 + int(hashlib.sha256(name.encode()).hexdigest()[:4], 16) % 28000
    return random.Random(name).randbytes(size)


def insist(call: Callable[..., Any], *args: Any, **settings: Any) -> Any:
    """Calls until a daemon answers, as connectors do. Each request may be repeated."""
    began = time.monotonic()
    while True:
        try:
            return call(*args, **settings)
        except DaemonError as e:
            if e.kind != "away" or time.monotonic() - began > PATIENCE:
                raise
            counts["away"] += 1
            time.sleep(0.01)


def store(client: Client, name: str) -> None:
    value = content(name)
    items: Items = insist(client.reserve, "store", [Object(name=name, size=len(value))], seconds=600)
    if items[0].status == "reserved":
        view = client.mapping(items.hello.segment, writable=True).view(items[0].offset, len(value))
        view[:] = value
        (done,) = insist(client.commit, "store", [name])
        assert done.status == "ok", (name, done)
    else:
        assert items[0].status == "exists", (name, items[0])  # the answer to its commit was lost
    counts["stored"] += 1


def compare(client: Client, lease: str, name: str) -> None:
    items: Items = insist(client.pin, lease, [name], seconds=3600)
    assert items[0].status == "hit", (name, items[0], client.server)
    view = client.mapping(items.hello.segment).view(items[0].offset, items[0].size)
    assert bytes(view) == content(name), (name, client.server)
    counts["compared"] += 1


def main() -> None:
    socket, me = sys.argv[1:]
    client = Client(socket, client=me, space="upgrade", timeout=60)
    names = [f"{me} {i}" for i in range(MOST)]
    chance = random.Random(me)
    stored, servers = 0, []
    for name in names[:KEPT]:
        store(client, name)
        compare(client, "kept", name)
        stored += 1
    end = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: end.set())
    while not end.is_set():
        if stored < MOST:
            store(client, names[stored])
            stored += 1
        for name in chance.sample(names[:stored], 5):
            compare(client, "look", name)
        insist(client.release, "look")
        kept = insist(client.get, "kept", names[:KEPT])
        assert [item.status for item in kept] == ["hit"] * KEPT, (kept, client.server)
        if client.server not in servers[-1:]:
            servers.append(client.server)
        print(client.server, flush=True)
    for name in names[:stored]:
        compare(client, "all", name)
    insist(client.release, "all")
    print(f"{me} with the package {ringcache.__version__}: {counts['stored']} objects stored and there, {counts['compared']} times compared, "
          f"asked again {counts['away']} times while no daemon was there; daemons {', '.join(servers)}", flush=True)


if __name__ == "__main__":
    main()

"""A reader of the soak, with ringcache's own package: what reader.go is in Go."""

import base64
import json
import os
import sys
import threading

import numpy as np

import ringcache
from ringcache import sidecar

sidecar.LOCK_SECONDS = 600  # the holder of the lock may be stopped for a while


def content(key: str, nonce: int, size: int) -> np.ndarray:
    """The bytes of an object, see content.go."""
    seed = 0xCBF29CE484222325
    for byte in key.encode():
        seed = (seed ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    x = np.arange(1, (size + 7) // 8 + 1, dtype=np.uint64)
    x *= np.uint64(0x9E3779B97F4A7C15)
    x += np.uint64(seed ^ nonce)
    x ^= x >> np.uint64(30)
    x *= np.uint64(0xBF58476D1CE4E5B9)
    x ^= x >> np.uint64(27)
    x *= np.uint64(0x94D049BB133111EB)
    x ^= x >> np.uint64(31)
    return x.astype("<u8").view(np.uint8)[:size]


class WrongBytes(Exception):
    pass


def compare(view: ringcache.View, o: dict) -> None:
    want, at = content(o["key"], o.get("nonce", 0), o["size"]), 0
    for name in ("x", "y"):
        if name not in view.item:
            continue
        part = view.item[name].data.numpy()
        wrong = np.flatnonzero(part != want[at : at + part.size])
        if wrong.size:
            raise WrongBytes(f"wrong bytes at byte {at + int(wrong[0])}: {o}")
        at += part.size
    if at != o["size"]:
        raise WrongBytes(f"wrong bytes in number: {at}, want {o['size']}: {o}")


def get(reader: ringcache.Reader, o: dict) -> ringcache.View:
    signature = base64.b64decode(o["signature"]) if "signature" in o else None
    return reader.get(o["place"], o["id"], o["key"], signature)


def read(reader: ringcache.Reader, m: dict) -> dict:
    """Get all, compare all, release all."""
    late = m.get("late", False)
    done = {"kind": "done", "request": m["request"], "late": late, "bytes": 0, "reads": 0, "late_gone": 0}
    views = []
    for o in m.get("objects", []):
        for _ in range(max(o.get("uses", 1), 1)):
            try:
                views.append((get(reader, o), o))
            except (ringcache.StaleError, ringcache.CorruptError, ringcache.HandleError) as e:
                if not late:
                    raise RuntimeError(f"request {m['request']}, {o}: {e!r}") from e
                done["late_gone"] += 1
                continue
            done["bytes"] += o["size"]
            done["reads"] += 1
    for view, o in views:
        wrong = None
        try:
            compare(view, o)
        except WrongBytes as e:
            wrong = e
        try:
            view.check()
        except ringcache.StaleError:
            if not late:
                raise
            continue  # the reader found out by itself that the object went meanwhile
        if wrong is not None:
            raise wrong
    for view, _ in views:
        try:
            view.release()
        except ringcache.RingcacheError:
            if not late:
                raise
    return done


def say(m: dict) -> None:
    os.write(1, json.dumps(m).encode() + b"\n")


def main() -> None:
    name, size, readers = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    try:
        counts = ringcache.Reader(name, size, n_readers=readers, sidecar_lock=True)
        observes = ringcache.Reader(name, size, n_readers=readers)
    except ringcache.SegmentError as e:
        say({"kind": "absent", "text": repr(e)})
        return
    with counts, observes:
        say({"kind": "ready"})
        for line in sys.stdin.buffer:
            m = json.loads(line)
            if m["kind"] == "end":
                return
            if m["kind"] == "read":
                say(read(observes if m.get("late", False) else counts, m))
            elif m["kind"] == "check":
                say({"kind": "state", "goroutines": threading.active_count()})
            else:
                raise ValueError(f"order {m['kind']!r}")
    os._exit(3)  # the supervisor is dead


try:
    main()
except Exception as e:
    say({"kind": "failed", "error": repr(e), "wrong": isinstance(e, WrongBytes)})
    raise

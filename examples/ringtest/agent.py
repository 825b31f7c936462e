#!/usr/bin/env python3
"""Lets `ringcache fuzz` test a ring in Python: copy this file and put your own ring in place of the class Ring.

    ringcache fuzz ring --placement own --system 'python3 agent.py'   # wherever the ring places chunks
    ringcache fuzz ring --system 'python3 agent.py'                   # exactly as vLLM places them

It answers JSON lines on stdin by JSON lines on stdout (docs/agent.md). The standard library is enough.
"""

import json
import struct
import sys


class Ring:
    """A ring of the size of its memory that frees the oldest chunk first, as vLLM's does.

    A chunk is its id and its size with this header, both as little-endian uint32, and the payload behind them. It lies
    at its address modulo len(memory), not across the end. start and end are compared with vLLM's only; a ring with a
    placement of its own leaves them out.
    """

    def __init__(self, size, first_id):
        self.memory = bytearray(size)
        self.live = {}  # addresses by id, the oldest chunk first
        self.next_id = first_id
        self.start = self.end = 0

    def alloc(self, size):
        """Returns the address and the id of a chunk with a payload of size bytes, None if there is no room."""
        n, need = len(self.memory), size + 8
        address = self.end
        if address % n + need > n:
            address += n - address % n  # what is left at the end is too short
        if need > n or address + need - self.start > n:
            return None
        chunk_id = self.next_id
        struct.pack_into("<II", self.memory, address % n, chunk_id, need)
        self.live[chunk_id] = address
        self.end = address + need
        self.next_id = (chunk_id + 1) % 2**31
        return address, chunk_id

    def free(self, may, limit):
        """Frees chunks for whose ids may returns True, and returns these ids in the order in which they were freed.

        It stops after limit bytes of chunks. A ring that frees in any order need not.
        """
        n, freed, done = len(self.memory), [], 0
        while self.live and done < limit:
            chunk_id, address = next(iter(self.live.items()))
            if not may(chunk_id):
                break
            done += struct.unpack_from("<I", self.memory, address % n + 4)[0]
            freed.append(chunk_id)
            self._forget(chunk_id)
            if self.live:
                self.start += (next(iter(self.live.values())) - self.start) % n
            else:
                self.start = self.end = 0
        if self.start >= n:  # addresses of live chunks stay
            self.start -= n
            self.end -= n
        return freed

    def clear(self):
        """Frees every chunk. Ids go on."""
        for chunk_id in list(self.live):
            self._forget(chunk_id)
        self.start = self.end = 0

    def _forget(self, chunk_id):
        # Without its id, the handle of a chunk that is gone matches nothing.
        struct.pack_into("<I", self.memory, self.live.pop(chunk_id) % len(self.memory), 0xFFFFFFFF)


# What follows is the protocol, and stays as it is.

# The fields of each operation with their types; those that end in ? may be absent.
FIELDS = {
    "ring.new": {"size": int, "first_id?": int, "generation?": str},
    "ring.alloc": {"size": int},
    "ring.free": {"ids?": list, "all?": bool, "limit?": int},
    "ring.header": {"address": int},
    "ring.clear": {},
    "ring.state": {},
    "ring.fill": {"offset": int, "hex": str},
    "ring.peek": {"offset": int, "length": int},
    "ring.close": {},
}


class Refused(Exception):
    """A reply that is an error: its kind, and a text."""


def parse(line):
    """Returns the object of a line."""
    try:
        request = json.loads(line)
    except ValueError as e:
        raise Refused("invalid", f"no JSON: {e}") from e
    if not isinstance(request, dict):
        raise Refused("invalid", "no JSON object")
    return request


def read_fields(request):
    """Returns the operation of a request and all its fields, None for those that are absent."""
    op = request.get("op")
    if not isinstance(op, str) or op not in FIELDS:
        raise Refused("invalid", f"no operation {op!r}")
    types = {"ring": str, **FIELDS[op]}
    fields = {}
    for name, kind in types.items():
        value = request.get(name.rstrip("?"))
        if value is None and not name.endswith("?"):
            raise Refused("invalid", f"the field {name} is missing")
        if value is not None and type(value) is not kind:  # True is no int here
            raise Refused("invalid", f"the field {name.rstrip('?')} is {value!r}")
        fields[name.rstrip("?")] = value
    for name in request:
        if name not in fields and name not in ("op", "seq"):
            raise Refused("invalid", f"unknown field {name}; there are {', '.join(fields)}")
    return op, fields


def perform(rings, op, f):
    """Performs an operation, and returns the fields of its reply."""
    if op == "ring.new":
        first_id = f["first_id"] or 0
        if f["ring"] in rings or not 8 < f["size"] <= 2**32 or not 0 <= first_id < 2**31:
            raise Refused("invalid", "the ring exists, or its size or first_id is out of range")
        rings[f["ring"]] = Ring(f["size"], first_id)
        return {}
    ring = rings.get(f["ring"])
    if ring is None:
        raise Refused("invalid", f"no ring {f['ring']}")
    n = len(ring.memory)
    if op == "ring.alloc":
        if f["size"] < 1:
            raise Refused("invalid", f"a payload of {f['size']} bytes")
        chunk = ring.alloc(f["size"])
        if chunk is None:
            raise Refused("full", "no room")
        return {"address": chunk[0], "id": chunk[1]}
    if op == "ring.free":
        if not f["all"] and f["ids"] is None:
            raise Refused("invalid", "the field ids is missing")
        if not all(type(i) is int and 0 <= i < 2**32 for i in f["ids"] or []):
            raise Refused("invalid", "ids are from 0 to 2^32 - 1")
        ids = set(f["ids"] or [])
        limit = n if f["limit"] is None else f["limit"]
        return {"freed": ring.free(lambda i: bool(f["all"]) or i in ids, limit)}
    if op == "ring.header":
        at = f["address"] % n
        if f["address"] < 0:
            raise Refused("invalid", f"address {f['address']}")
        chunk_id, size = struct.unpack_from("<II", ring.memory, at) if at + 8 <= n else (0, 0)
        if not 8 <= size <= n - at:
            raise Refused("corrupt", f"no header at address {f['address']}")
        return {"id": chunk_id, "size": size}
    if op == "ring.clear":
        ring.clear()
    if op == "ring.state":
        return {
            "start": getattr(ring, "start", 0), "end": getattr(ring, "end", 0),
            "id_start": next(iter(ring.live), ring.next_id), "id_end": ring.next_id,
            "metadata": {str(i): a for i, a in ring.live.items()},
        }
    if op in ("ring.fill", "ring.peek"):
        try:
            data = bytes.fromhex(f.get("hex") or "")
        except ValueError as e:
            raise Refused("invalid", f"the field hex: {e}") from e
        begin, length = f["offset"], f["length"] if op == "ring.peek" else len(data)
        if begin < 0 or length < 0 or begin + length > n:
            raise Refused("invalid", f"{length} bytes from {begin} on: the ring has {n}")
        if op == "ring.peek":
            return {"hex": ring.memory[begin:begin + length].hex()}
        ring.memory[begin:begin + length] = data
    if op == "ring.close":
        del rings[f["ring"]]
    return {}


def main():
    """Answers lines until there are no more. An exception of the ring ends it, and is the finding."""
    rings = {}
    for line in sys.stdin:
        request = {}
        try:
            request = parse(line)
            reply = {"ok": True, **perform(rings, *read_fields(request))}
        except Refused as e:
            reply = {"ok": False, "error": {"kind": e.args[0], "text": e.args[1]}}
        if "seq" in request:
            reply["seq"] = request["seq"]
        print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    main()

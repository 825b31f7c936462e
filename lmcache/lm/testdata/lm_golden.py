"""Writes headers of lm:// as the classes of the installed lmcache make them, and what its server answers, byte for byte:

    python lm_golden.py > located-0.5.6.json
    python lm_golden.py > typed-0.3.1.json
    python lm_golden.py --first-engine > untyped-0.3.15.json

lmcache is a wheel, unpacked without its dependencies on PYTHONPATH, in the environment of interop/setup.sh; the old ones
need the packages sortedcontainers and nvtx beside it. The first engine of LMCache has the modules lmcache.protocol and
lmcache.server; the other ones are in lmcache.v1.
"""

import importlib.metadata
import json
import os
import random
import socket
import struct
import subprocess
import sys
import time

os.environ.setdefault("LMCACHE_LOG_LEVEL", "ERROR")
os.environ.setdefault("LMCACHE_TRACK_USAGE", "false")
FIRST = "--first-engine" in sys.argv
if FIRST:
    from lmcache import protocol
else:
    import torch

    from lmcache import utils
    from lmcache.v1 import protocol
    from lmcache.v1.memory_management import MemoryFormat

PUT, GET, EXIST, LIST, HEALTH = 1, 2, 3, 4, 5
REQUEST, REPLY = protocol.ClientMetaMessage.packlength(), protocol.ServerMetaMessage.packlength()
FORM = {158: "untyped", 182: "typed", 186: "located"}[REQUEST]
KEYS = {
    "located": ["meta-llama/Llama-3.1-8B-Instruct@1@0@1234abcd@bfloat16", "org/model@2@1@-5@half@user%alice", "m@8@7@ffffffffffffffff@fp8_e4m3fn@31",
                "m@1@0@0@float@0@a%1@b%2", "é@1@0@1@half"],
    "typed": ["vllm@meta-llama/Llama-3.1-8B-Instruct@1@0@1234abcd", "vllm@m@8@7@0a0b"],
    "untyped": ["vllm@meta-llama/Llama-3.1-8B-Instruct@1@0@1234abcd", "any text", "é"],
}[FORM]


def command(n):
    return protocol.ClientCommand(n) if hasattr(protocol, "ClientCommand") else n


def code(n):
    return protocol.ServerReturnCode(n) if hasattr(protocol, "ServerReturnCode") else n


def parsed(text):
    if FIRST:
        return text
    return utils.parse_cache_key(text) if hasattr(utils, "parse_cache_key") else utils.CacheEngineKey.from_string(text)


def request(row):
    if FIRST:
        return protocol.ClientMetaMessage(command(row["command"]), row["key"], row["length"]).serialize()
    more = [[None, "LocalCPUBackend", "LocalDiskBackend"][row["location"]]] if FORM == "located" else []
    return protocol.ClientMetaMessage(command(row["command"]), parsed(row["key"]), row["length"], MemoryFormat(row["format"]),
                                      protocol.INT_TO_DTYPE[row["dtype"]], torch.Size(row["shape"]), *more).serialize()


def reply(row):
    if FIRST:
        return protocol.ServerMetaMessage(code(row["code"]), row["length"]).serialize()
    more = [[None, "LocalCPUBackend", "LocalDiskBackend"][row["location"]]] if FORM == "located" else []
    return protocol.ServerMetaMessage(code(row["code"]), row["length"], MemoryFormat(row["format"]), protocol.INT_TO_DTYPE[row["dtype"]],
                                      torch.Size(row["shape"]), *more).serialize()


def formats():
    return [f.value for f in MemoryFormat if f.value <= 8] if not FIRST else [1]


def rows(rng):
    """Every command, format, dtype and location, and shapes and lengths at the edges."""
    shapes = [[2, 32, 256, 1024], [0, 0, 0, 0], [4096, 0, 0, 0], [5, 0, 7, 0], [2147483647, 1, 1, 1], [1, 2, 3, 4]]
    for n in range(60):
        row = {"format": rng.choice(formats()), "dtype": rng.choice([0, 2, 3, 4, 5, 6, 7, 8]), "shape": rng.choice(shapes),
               "length": rng.choice([0, 1, 4096, 33554432, 2147483647]), "location": n % 3 if FORM == "located" else 0}
        if FIRST:
            row.update(format=0, dtype=0, shape=[0, 0, 0, 0])
        yield row


def headers():
    rng = random.Random(20261127)
    requests, replies = [], []
    for n, row in enumerate(rows(rng)):
        q = dict(row, command=1 + n % (4 if FIRST else 5), key=rng.choice(KEYS))
        requests.append(dict(q, hex=request(q).hex()))
        p = dict(row, code=rng.choice([200, 400]))
        replies.append(dict(p, hex=reply(p).hex()))
    return requests, replies


def raw(command, key, length=0, format=1, dtype=2, shape=(0, 0, 0, 0), location=0):
    """A header that may be wrong, without the classes."""
    key = key if isinstance(key, bytes) else key.encode()
    words = {"untyped": [], "typed": [format, dtype, *shape], "located": [format, dtype, location, *shape]}[FORM]
    return struct.pack("<%di150s" % (2 + len(words)), command, length, *words, key.ljust(150))


class Server:
    def __init__(self):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        module = "lmcache.server" if FIRST else "lmcache.v1.server"
        self.process = subprocess.Popen([sys.executable, "-m", module, "127.0.0.1", str(self.port)], stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)
        while True:
            try:
                self.connect().close()
                return
            except OSError:
                assert self.process.poll() is None
                time.sleep(0.2)

    def connect(self):
        s = socket.create_connection(("127.0.0.1", self.port), 5)
        s.settimeout(3)
        return s


def receive(s, n):
    """Up to n bytes, fewer if the server closes the connection or is silent; and which of these it was."""
    b = b""
    while len(b) < n:
        try:
            more = s.recv(n - len(b))
        except socket.timeout:
            return b, "silence"
        except ConnectionError:
            return b, "closed"
        if not more:
            return b, "closed"
        b += more
    return b, "complete"


def exchange(server):
    """Connections, each a list of steps: what is sent, and what comes back."""
    out = []

    def connection(name, *steps):
        s = server.connect()
        rows = []
        for step, sent, expected in steps:
            s.sendall(sent)
            got, end = receive(s, expected)
            rows.append({"step": step, "send": sent.hex(), "receive": got.hex(), "end": end})
        s.close()
        out.append({"name": name, "steps": rows})

    k, small = KEYS[0], bytes(range(64))
    shape = (2, 1, 4, 4)
    basic = [
        ("GET, a miss", raw(GET, k), REPLY), ("EXIST, a miss", raw(EXIST, k), REPLY),
        ("PUT", raw(PUT, k, 64, 1, 3, shape) + small, 0), ("EXIST", raw(EXIST, k), REPLY), ("GET", raw(GET, k), REPLY + 64),
        ("GET with other fields", raw(GET, k, 9, 4, 6, (1, 2, 3, 4), 2), REPLY + 64),
        ("PUT of other bytes", raw(PUT, k, 64, 1, 3, shape) + small[::-1], 0), ("GET of these", raw(GET, k), REPLY + 64),
        ("PUT of another size", raw(PUT, k, 16, 3, 2, (2, 2, 2, 0), 1) + small[:16], 0), ("GET of that", raw(GET, k), REPLY + 16),
        ("PUT of no bytes", raw(PUT, KEYS[1], 0), 0), ("EXIST of no bytes", raw(EXIST, KEYS[1]), REPLY), ("GET of no bytes", raw(GET, KEYS[1]), REPLY),
    ]
    if not FIRST:
        basic.insert(0, ("HEALTH", raw(HEALTH, k), REPLY))
    connection("basic", *basic)
    if not FIRST:
        types = []
        for n in range(9):
            key = KEYS[0].replace("1234abcd", "d%d" % n)
            types += [("PUT dtype %d" % n, raw(PUT, key, 2, 1, n, (1, 0, 3, 0)) + b"ab", 0), ("GET", raw(GET, key), REPLY + 2)]
        for n in formats():
            key = KEYS[0].replace("1234abcd", "f%d" % n)
            types += [("PUT format %d" % n, raw(PUT, key, 2, n, 2, (1, 1, 0, 0)) + b"ab", 0), ("GET", raw(GET, key), REPLY + 2)]
        connection("types", *types)
    if FORM == "located":
        connection(
            "keys", ("PUT with capitals and zeros", raw(PUT, "m@1@0@00FF@half", 2, 1, 2, (1, 1, 1, 1)) + b"xy", 0),
            ("GET", raw(GET, "m@1@0@ff@half"), REPLY + 2), ("EXIST of its layer", raw(EXIST, "m@1@0@ff@half@0"), REPLY),
            ("PUT of a layer", raw(PUT, "m@1@0@ff@half@0", 2, 2, 2, (1, 2, 1, 0)) + b"L0", 0), ("GET", raw(GET, "m@1@0@ff@half@00"), REPLY + 2),
            ("PUT with tags", raw(PUT, "m@1@0@ff@half@a%1@b%2", 2, 1, 2, (1, 1, 1, 1)) + b"T1", 0), ("GET", raw(GET, "m@1@0@ff@half@a%1@b%2"), REPLY + 2),
            ("EXIST with tags in another order", raw(EXIST, "m@1@0@ff@half@b%2@a%1"), REPLY), ("EXIST with spaces around", raw(EXIST, b"\tm@1@0@ff@half\n"), REPLY),
        )
        for name, key in (("no fields", b"plain"), ("empty", b""), ("NUL", b"m@1@0@ff@half".ljust(150, b"\0")), ("no dtype", b"m@1@0@ff@int7"),
                          ("no UTF-8", b"\xff\xfe@1@0@1@half"), ("cut", ("é" * 139 + "@1@0@1@half").encode()[:150])):
            connection("bad key: " + name, ("EXIST", raw(EXIST, key), REPLY))
        for name, bad in (("command 6", raw(6, k)), ("command 0", raw(0, k)), ("format 9", raw(EXIST, k, format=9)), ("format -1", raw(EXIST, k, format=-1)),
                          ("dtype 9", raw(EXIST, k, dtype=9)), ("location 3", raw(EXIST, k, location=3))):
            connection("bad header: " + name, ("EXIST", bad, REPLY))
        connection("LIST", ("LIST", raw(LIST, k), REPLY), ("HEALTH", raw(HEALTH, k), REPLY))
        connection("negative length", ("PUT", raw(PUT, "neg@1@0@1@half", -1, 1, 2, (1, 1, 1, 1)), 0), ("HEALTH", raw(HEALTH, k), REPLY))
    connection("in one write", ("EXIST, GET and PUT", raw(EXIST, k) + raw(GET, k) + raw(PUT, KEYS[1], 3, 1, 2, (1, 1, 1, 1)) + b"abc" + raw(GET, KEYS[1]),
                                2 * REPLY + 16 + REPLY + 3))
    cut = KEYS[0].replace("1234abcd", "cc")
    connection("cut PUT", ("PUT", raw(PUT, cut, 100, 1, 2, (1, 1, 1, 50)) + b"only ten b", 0))
    time.sleep(1)
    connection("after a cut PUT", ("EXIST", raw(EXIST, cut), REPLY), ("GET", raw(GET, cut), REPLY + 100))
    return out


def main():
    requests, replies = headers()
    server = Server()
    try:
        connections = exchange(server)
    finally:
        server.process.kill()
        server.process.wait()
    versions = {name: importlib.metadata.version(name) for name in ("lmcache", "torch")}
    head = {"versions": versions, "form": FORM, "request_size": REQUEST, "reply_size": REPLY}
    print(json.dumps(head)[:-1] + ",")
    for name, rows in (("requests", requests), ("replies", replies), ("connections", connections)):
        end = "]}" if name == "connections" else "],"
        print('"%s": [' % name)
        print(",\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + end)


main()

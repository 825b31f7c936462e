"""Writes what the look-up client of the installed lmcache sends for requests, one row of JSON a line:

    PYTHONHASHSEED=0 python lmcache/lookup/testdata/frames.py > lmcache/lookup/testdata/frames.json

The environment is that of kv/testdata/lmcache_golden.py. interop/test_lookup.py has clients and servers talk.
"""

import json
import os
import pathlib
import sys
from types import SimpleNamespace as Fake

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "kv" / "testdata"))
from token_database import T, Tokenizer  # noqa: E402, F401: it puts a tokenizer into LMCache
import torch  # noqa: E402

from lmcache.v1.config import LMCacheEngineConfig  # noqa: E402
from lmcache.v1.metadata import LMCacheMetadata  # noqa: E402
try:
    from lmcache.inprocess.v1 import rpc_utils  # noqa: E402
    from lmcache.inprocess.v1.lookup_client import factory  # noqa: E402
    from lmcache.inprocess.v1.lookup_client.lmcache_lookup_client import LMCacheLookupClient, LMCacheLookupServer  # noqa: E402, F401
except ImportError:  # before 0.5.7
    from lmcache.v1 import rpc_utils  # noqa: E402
    from lmcache.v1.lookup_client import factory  # noqa: E402
    from lmcache.v1.lookup_client.lmcache_lookup_client import LMCacheLookupClient, LMCacheLookupServer  # noqa: E402, F401


def config(algorithm="sha256_cbor", chunk=4, tail=False, blending=False, **more):
    return LMCacheEngineConfig.from_defaults(chunk_size=chunk, pre_caching_hash_algorithm=algorithm, save_unfull_chunk=tail, enable_blending=blending,
                                             blend_special_str="7 8", **more)


def metadata(world=1, worker=0, engine="e", port=0):
    return LMCacheMetadata("org/m", world, world, worker, worker, torch.bfloat16, (1, 2, 4, 1, 8), engine_id=engine,
                           kv_connector_extra_config={"lmcache_rpc_port": port})


class Socket:
    """In place of a ZMQ socket: it keeps what is sent, and answers 5."""

    def send_multipart(self, frames, copy):
        self.sent = [bytes(f).hex() for f in frames]

    def recv(self):
        return (5).to_bytes(4, "big")

    def setsockopt(self, *_):
        pass


def row(algorithm, tokens, chunk=4, tail=False, blending=False, options=None, request="r"):
    socket = Socket()
    transport = factory.ZmqReqRepClientTransport.__new__(factory.ZmqReqRepClientTransport)
    import msgspec
    transport.encoder, transport._world_size, transport.sockets, transport.socket_params = msgspec.msgpack.Encoder(), 1, [socket], []
    client = LMCacheLookupClient(config(algorithm, chunk, tail, blending), metadata(), transport)
    hit = client.lookup(list(tokens), request, options)
    return {"algorithm": algorithm, "chunk": chunk, "tail": tail, "blending": blending, "tokens": list(tokens), "id": request,
            "options": json.dumps(options) if options else "", "hit": hit, "frames": getattr(socket, "sent", None)}


def rows():
    for algorithm in ("builtin", "sha256_cbor", "xxhash_cbor"):
        for tail in (False, True):
            for n in (0, 3, 8, 70):
                yield row(algorithm, range(n), tail=tail)
    yield row("builtin", range(200), chunk=1, request="r" * 40)
    yield row("sha256_cbor", range(600), chunk=300, options={"lmcache.tag.user": "al\u00efce", "lmcache.tag.n": 7})
    yield row("sha256_cbor", range(600), chunk=256, options={"lmcache.tag.long": "x" * 300}, request="\u00e9" * 300)
    for tokens in ([], [0, 127, 128, 255, 256, 65535, 65536, 2**31 - 1, 2**32 - 1], list(range(70))):
        yield row("sha256_cbor", tokens, blending=True)


def paths():
    for base, engine, port, rank in (("/tmp/x", "e", 0, 0), ("/tmp/x", "e", 7, 3), ("/tmp/x", "e", "producer", 2), ("/tmp/x", "e" * 59, 0, 0),
                                     ("/tmp/x", "e" * 60, 0, 0), ("/tmp/\u00e9", "e" * 58, 0, 0), ("/tmp/\u00e9", "e" * 59, 0, 0), ("/tmp/x/", "e" * 80, "p", 1), ("/tmp//x", "e" * 80, "p", 1), ("/" + "x" * 60, "e" * 80, "p", 1),
                                     ("/" + "x" * 77, "e", "p", 1), ("/" + "x" * 78, "e", "p", 1), ("/" + "x" * 79, "e", "p", 1)):
        try:
            path = rpc_utils.get_zmq_rpc_path_lmcache(engine, "lookup", port, rank, base)
        except ValueError:
            path = ""
        yield {"base": base, "engine": engine, "port": port if isinstance(port, int) else 0, "name": "" if isinstance(port, int) else port, "rank": rank, "path": path}


if __name__ == "__main__":
    os.environ["PYTHONHASHSEED"] == "0" or sys.exit("PYTHONHASHSEED=0 is missing")
    parts = {name: ",\n".join(json.dumps(r, separators=(",", ":")) for r in made()) for name, made in (("rows", rows), ("paths", paths))}
    print("{%s}" % ",\n".join('"%s": [\n%s\n]' % p for p in parts.items()))

"""Package lmcache/lookup beside the real LMCache, 0.5.6 or 0.5.7: its look-up client asks our server, and ours asks its
server. The top of test_kv.py has the commands.
"""

import json
import os
import pathlib
import random
import shutil
import subprocess
import sys

import pytest
from lmcache_release import installed

HERE = pathlib.Path(__file__).resolve().parent
CASES = int(2000 * float(os.environ.get("RINGCACHE_INTEROP_SCALE", "1")))
ENV = {"PYTHONHASHSEED": "0", "LMCACHE_LOG_LEVEL": "ERROR", "LMCACHE_TRACK_USAGE": "false", "VLLM_LOGGING_LEVEL": "ERROR"}


@pytest.mark.parametrize("part", ["client", "server", "seeds"])
def test_lookup(part, tmp_path):
    if not installed():
        pytest.skip("no lmcache on PYTHONPATH; the top of test_kv.py has the commands")
    if shutil.which("go") is None:
        pytest.skip("no go on PATH to build the program with")
    program = tmp_path / "lookup"
    subprocess.run(["go", "build", "-o", program, "./interop/lookup"], cwd=HERE.parent, check=True)
    subprocess.run([sys.executable, __file__, part, program, tmp_path], env={**os.environ, **ENV, "VLLM_RPC_BASE_PATH": str(tmp_path)}, check=True, timeout=1200)


class Go:
    def __init__(self, program):
        self.p = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __call__(self, op, **command):
        self.p.stdin.write(json.dumps({"Op": op, **command}) + "\n")
        self.p.stdin.flush()
        answer = json.loads(self.p.stdout.readline())
        return answer["Error"] or answer["N"]

    def close(self):
        self.p.stdin.close()
        assert self.p.wait(600) == 0


def golden():
    sys.path.insert(0, str(HERE.parent / "lmcache" / "lookup" / "testdata"))
    import frames
    return frames


WORLD = 2


def requests(r, separator):
    """Random requests of which some share their front, with options."""
    known = [[]]
    for i in range(CASES):
        front = r.choice(known)
        tokens = front[:r.randrange(len(front) + 1)] + [r.randrange(10 if separator else 1 << r.choice((3, 16, 32))) for _ in range(r.randrange(0, 20))]
        known = known[-20:] + [tokens]
        yield f"r{i}-\u00e9", tokens, {"lmcache.tag.user": r.choice("ab"), "lmcache.x": 1} if r.random() < 0.3 else None


def expected(database, stored, tokens, options):
    n = 0
    try:
        for _, end, key in database.process_tokens(list(tokens), request_configs=options):
            if key.to_string() not in stored:
                return n
            n = end
    except (AssertionError, RuntimeError):  # no tokens, or fewer than the separator has
        pass
    return n


def databases(f, config):
    return [(f.T.SegmentTokenDatabase if config.enable_blending else f.T.ChunkedTokenDatabase)(config, f.metadata(WORLD, rank)) for rank in range(WORLD)]


def keys(database, tokens, options):
    try:
        return [key.to_string() for _, _, key in database.process_tokens(list(tokens), request_configs=options)]
    except (AssertionError, RuntimeError):
        return []


def client(program, base):
    """LMCache's client asks our server."""
    f, r, hits = golden(), random.Random(1), 0
    for i, (algorithm, tail, blending) in enumerate((("builtin", False, False), ("sha256_cbor", True, False), ("sha256_cbor", False, True))):
        engine, config = f"client{i}", f.config(algorithm, 4, tail, blending, lookup_timeout_ms=60000)
        go = Go(program)
        assert go("serve", Base=str(base), Engine=engine, Ranks=list(range(WORLD)), Algorithm=algorithm, Seed="0", Chunk=4, Tail=tail, Blending=blending) == 0
        c = f.factory.LookupClientFactory.create_lookup_client(config, f.metadata(WORLD, engine=engine))
        made, stored = databases(f, config), [set() for _ in range(WORLD)]
        for name, tokens, options in requests(r, blending):
            if len(tokens) < 2 and blending:
                continue  # LMCache's own database fails with them
            want = min(expected(made[rank], stored[rank], tokens, options) for rank in range(WORLD))
            assert c.lookup(tokens, name, options) == want, (tokens, options)
            hits += want > 0
            for rank in range(WORLD):
                new = keys(made[rank], tokens, options)[:r.choice((1, 3, 100))]
                stored[rank].update(new)
                go("store", Rank=rank, Keys=new)
        c.transport.ctx = None  # it is the process's own
        c.close()
        go.close()
    print("LMCache's client: look-ups with a hit", hits)
    assert hits > CASES // 10


def server(program, base):
    """Our client asks LMCache's server."""
    f, r, hits = golden(), random.Random(2), 0

    class Engine:
        def __init__(self, config, database):
            self.config, self.database, self.stored = config, database, set()

        def lookup(self, tokens=None, hashes=None, offsets=None, lookup_id=None, pin=False, request_configs=None):
            n = 0
            for _, end, key in self.database.process_tokens(tokens=tokens, hashes=hashes, offsets=offsets, request_configs=request_configs):
                if key.to_string() not in self.stored:
                    return n
                n = end
            return n

    for i, (algorithm, tail, blending) in enumerate((("builtin", True, False), ("sha256_cbor", False, False), ("sha256_cbor", False, True))):
        name, config = f"server{i}", f.config(algorithm, 4, tail, blending)
        made = databases(f, config)
        engines = [Engine(config, d) for d in made]
        servers = [f.factory.LookupClientFactory.create_lookup_server(e, f.metadata(WORLD, rank, name)) for rank, e in enumerate(engines)]
        go = Go(program)
        assert go("connect", Base=str(base), Engine=name, Ranks=list(range(WORLD)), Algorithm=algorithm, Seed="0", Chunk=4, Tail=tail, Blending=blending) == 0
        for request, tokens, options in requests(r, blending):
            if len(tokens) < 2 and blending:
                continue
            want = min(expected(made[rank], e.stored, tokens, options) for rank, e in enumerate(engines))
            assert go("ask", ID=request, Tokens=tokens, Options=json.dumps(options) if options else "") == want, (tokens, options)
            hits += want > 0
            for rank, e in enumerate(engines):
                e.stored.update(keys(made[rank], tokens, options)[:r.choice((1, 3, 100))])
        go.close()
        for s in servers:
            s.close()
    print("our client: look-ups with a hit", hits)
    assert hits > CASES // 10


def seeds(program, base):
    """A scheduler whose PYTHONHASHSEED is another one than the workers' is found, and its own is named."""
    f = golden()
    for i, (algorithm, seed, chunk, said) in enumerate((
            ("builtin", "42", 4, "a peer hashes with builtin with PYTHONHASHSEED=0"), ("sha256_cbor", "", 4, "a peer hashes with sha256_cbor with PYTHONHASHSEED=0"),
            ("sha256_cbor", "0", 4, 0))):
        go, engine, tokens = Go(program), f"seeds{i}", list(range(40))
        assert go("serve", Base=str(base), Engine=engine, Ranks=[0], Algorithm=algorithm, Seed=seed, Chunk=chunk) == 0
        c = f.factory.LookupClientFactory.create_lookup_client(f.config(algorithm, chunk, lookup_timeout_ms=60000), f.metadata(1, engine=engine))
        assert c.lookup(tokens, "r") == 0
        answer = go("stored", ID="r", Tokens=tokens)
        assert answer == said if said == 0 else said in answer, answer
        go.close()


if __name__ == "__main__":
    {"client": client, "server": server, "seeds": seeds}[sys.argv[1]](sys.argv[2], pathlib.Path(sys.argv[3]))

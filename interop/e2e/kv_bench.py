"""What the first token of a prompt costs if its KV is computed, and if it is loaded: from memory, from disk, from Redis.

    kv_bench.py [--tokens 1100,4000] [--prompts 2] [--rounds 5] [--release 0.5.6] [--out FOLDER]

One vLLM engine computes each prompt; another one has LMCache, whose server is `ringcache serve`. Neither has a prefix cache of its own.
In each round the server starts twice with an empty segment and one lower level. Each prompt is then computed by the first engine, loaded
by the second one from that level, and loaded again from memory. The program ends with status 1 if a token differs, or if
the engine or the server counts other tokens than were to be loaded. With --out it writes kv-prefill.md.
"""

import argparse
import os
import pathlib
import platform
import random
import re
import socket
import statistics
import urllib.request

from encoder_programs import Programs, Redis, Server, environment, until
from kv_demo import CHUNK, SIZES, Engine, install, make_model

MODEL = "llava_text"
LONGEST = 4088  # and an answer of 8, of the 4096 tokens that the engine takes
LEVELS = "disk", "redis"
WHERE = {"memory": "memory", "disk": "disk", "redis": "Redis"}
COUNTERS = {"memory": "lmcache_mp_lookup_hit_l1_tokens_total", "disk": "lmcache_mp_lookup_hit_l2_tokens_total",
            "redis": "lmcache_mp_lookup_hit_l2_tokens_total"}


def prompts(length, count):
    numbers = random.Random(length)
    return [[5 + numbers.randrange(195) for _ in range(length)] for _ in range(count)]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def counters(address):
    text = urllib.request.urlopen("http://%s/metrics" % address, timeout=60).read().decode()
    return {name: int(float(re.search(r"^%s (\S+)$" % name, text, re.M)[1])) for name in set(COUNTERS.values())}


def drop_pages(folder):
    """Drops the files from the kernel's page cache, so that they are read from the device."""
    for file in folder.rglob("*"):
        if file.is_file():
            f = os.open(file, os.O_RDONLY)
            os.fsync(f)
            os.posix_fadvise(f, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(f)


class Bench:
    def __init__(self, a, programs, env):
        self._a, self._server = a, Server(programs, "ringcache-bench")
        self._address, self._disk = "127.0.0.1:%d" % free_port(), programs.folder / "disk"
        self._redis = Redis(programs)
        self._url = "grpc+unix://%s" % (programs.folder / "kv")
        model = make_model(programs, env, MODEL)
        self._start(*LEVELS)
        self._alone = Engine(programs, env, a.release, model)
        self._caching = Engine(programs, env, a.release, model, self._url)
        for engine in (self._alone, self._caching):
            engine.ready()
        self._probe = prompts(CHUNK + 1, 1)[0]
        self._right = {}
        self.computed, self.ratios = {}, {}

    def _start(self, *levels):
        below = {"disk": ("--disk", self._disk), "redis": ("--redis", self._redis.address)}
        self._server.start("--size", "512MiB", "--http", self._address, "--lmcache", self._url,
                           "--lmcache-chunk-size", CHUNK, *(option for level in levels for option in below[level]))

    def _ask(self, engine, prompt, what, loaded, counter=None):
        """Returns the seconds to the first token, once all counts of the request were compared."""
        before = counters(self._address)
        answer = engine.answer(prompt)
        after = counters(self._address)
        counted = {name: after[name] - before[name] for name in after}
        due = {name: loaded if name == counter else 0 for name in after}
        if answer["cached"] != loaded or counted != due:
            raise SystemExit("kv_bench: %s of %d tokens: the engine counts %d as loaded, the server %s; due are %s" % (
                what, len(prompt), answer["cached"], counted, due))
        if self._right.setdefault(tuple(prompt), answer["tokens"]) != answer["tokens"]:
            raise SystemExit("kv_bench: other tokens of a prompt of %d, %s" % (len(prompt), what))
        return answer["first"]

    def store(self, work):
        """Has everything stored in both lower levels, which also warms the engines."""
        for prompt in [self._probe, *work]:
            self._ask(self._alone, prompt, "computed first", 0)
            self._ask(self._caching, prompt, "stored", 0)

    def round(self, level, work):
        self._server.stop()  # in order, so that all is in the lower levels
        self._server.lose_memory()
        drop_pages(self._disk)
        self._start(level)
        until("the connector", lambda: self._caching.answer(self._probe)["cached"] > 0)
        for prompt in work:
            loaded = len(prompt) // CHUNK * CHUNK
            computed = self._ask(self._alone, prompt, "computed", 0)
            self.computed.setdefault(len(prompt), []).append(computed)
            for where in (level, "memory"):
                seconds = self._ask(self._caching, prompt, "loaded from " + where, loaded, COUNTERS[where])
                self.ratios.setdefault((len(prompt), where), []).append(seconds / computed)
                print("%4d tokens: computed %7.0f ms, from %-6s %7.0f ms" % (
                    len(prompt), 1000 * computed, WHERE[where], 1000 * seconds), flush=True)

    def end(self):
        for engine in (self._alone, self._caching):
            engine.end()
            engine.wait()
        self._server.stop()


def table(a, bench, lengths, load):
    def ratio(length, where):
        some = bench.ratios[length, where]
        return "%.3f (%.3f to %.3f)" % (statistics.median(some), min(some), max(some))

    lines = [
        "# Prefill: computed, and loaded", "",
        "Written by `python3 interop/e2e/kv_bench.py`. Time to the first token of one request, in a whole vLLM 0.32.0 engine "
        "on a CPU with LMCache %s and chunks of %d tokens: divided by the time of computing the same prompt just before, by an "
        "engine without a connector. Medians, and the range of all. The model is of %s, with 16 heads and 4 KV heads of width "
        "32, in float32: 8 KiB of KV for a token. Prompts of each length: %d; rounds: %d, and for memory twice as many. From "
        "disk: after a restart with an empty segment, with the files dropped from the page cache. From Redis: the same, with "
        "a Redis on this machine." % (a.release, CHUNK, SIZES[MODEL], a.prompts, a.rounds), "",
        "%d processors (%s) for engines, server and Redis; an engine computes with one thread. Load average %.0f to %.0f "
        "meanwhile. Only the ratios mean anything." % (os.cpu_count(), platform.machine(), min(load), max(load)), "",
        "| tokens of the prompt | of which loaded | computed, ms | from memory | from disk | from Redis |",
        "| ---: | ---: | ---: | ---: | ---: | ---: |"]
    for length in lengths:
        lines.append("| %d | %d | %.0f | %s |" % (
            length, length // CHUNK * CHUNK, 1000 * statistics.median(bench.computed[length]),
            " | ".join(ratio(length, where) for where in WHERE)))
    lines += ["", "All tokens of all answers were equal, and engine and server counted as loaded what the table says, from the level "
                  "that it says."]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tokens", default="1100,4000", help="lengths of prompts (default %(default)s)")
    parser.add_argument("--prompts", type=int, default=2, help="of each length (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="for each level (default %(default)s)")
    parser.add_argument("--release", default="0.5.6", choices=["0.5.6", "0.5.7rc2"], help="of LMCache (default %(default)s)")
    parser.add_argument("--out", type=pathlib.Path, metavar="FOLDER")
    a = parser.parse_args()
    lengths = [int(n) for n in a.tokens.split(",")]
    if not all(CHUNK < n <= LONGEST for n in lengths):
        parser.error("a prompt has more than %d tokens, which is a chunk, and at most %d" % (CHUNK, LONGEST))
    work, load = [prompt for n in lengths for prompt in prompts(n, a.prompts)], []
    env = install(environment())
    with Programs() as programs:
        bench = Bench(a, programs, env)
        bench.store(work)
        for turn in range(a.rounds):
            for level in LEVELS if turn % 2 == 0 else LEVELS[::-1]:
                bench.round(level, work)
                load.append(os.getloadavg()[0])
            print("round %d of %d" % (turn + 1, a.rounds), flush=True)
        bench.end()
    text = table(a, bench, lengths, load)
    print("\n" + text, end="")
    if a.out:
        (a.out / "kv-prefill.md").write_text(text)


if __name__ == "__main__":
    main()

"""Two vLLM engines with two releases of LMCache, one long prompt, one server of KV that is killed on the way.

    kv_demo.py [--model llava_text|llava]      # make demo PEER=kv
"""

import argparse
import json
import os
import pathlib
import random
import subprocess
import time

from encoder_programs import HERE, PATIENCE, Programs, Server, environment, progress, until

TOKENS, CHUNK = 3000, 256
SIZES = {"llava_text": "8 layers x 512", "llava": "2 layers x 128: a toy, which computes a prompt as fast as it loads it"}


class Engine:
    """kv_engine.py in a process of its own, with a release of LMCache; without a URL its KV is nobody else's."""

    def __init__(self, programs, env, release, model, url=None):
        config = {"kv_connector": "LMCacheMPConnector", "kv_role": "kv_both", "kv_load_failure_policy": "recompute",
                  "kv_connector_extra_config": {"lmcache.mp.server_urls": [url], "lmcache.mp.mq_timeout": 5,
                                                "lmcache.mp.heartbeat_interval": 1}}
        command = [env["python"], HERE / "kv_engine.py", "--model", model]
        self._process = programs.start(
            [*command, "--kv", json.dumps(config)] if url else command, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": env["lmcache_" + release]})

    def _answer(self):
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("the engine has ended:\n" + pathlib.Path(self._process.log).read_text()[-6000:])
        return json.loads(line)

    def ready(self):
        self._answer()

    def answer(self, prompt):
        """Returns what kv_engine.py says of one prompt."""
        self._process.stdin.write(json.dumps([prompt]) + "\n")
        self._process.stdin.flush()
        return self._answer()["answers"][0]

    def ask(self, prompt):
        """Returns the tokens of the answer, how many tokens of the prompt were not computed, and the seconds."""
        began = time.monotonic()
        answer = self.answer(prompt)
        return answer["tokens"], answer["cached"], time.monotonic() - began

    def end(self):
        self._process.stdin.close()

    def wait(self):
        self._process.wait(PATIENCE)


def install(env):
    """Adds the folders of the releases of LMCache."""
    out = subprocess.run([HERE / "lmcache.sh"], check=True, stdout=subprocess.PIPE, text=True).stdout
    return {**env, **dict(line.split("=", 1) for line in out.splitlines())}


def make_model(programs, env, kind):
    subprocess.run([env["python"], HERE / "make_model.py", programs.folder / "models", kind], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return programs.folder / "models" / kind


def prompt(seed):
    numbers = random.Random(seed)
    return [5 + numbers.randrange(195) for _ in range(TOKENS)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", default="llava_text", choices=list(SIZES))
    a = parser.parse_args()
    began = time.monotonic()

    def say(text):
        print("%5.1f s  %s" % (time.monotonic() - began, text), flush=True)

    with progress("the environment of vLLM is looked for; where there is none yet, 6 GB are installed"):
        env = environment()
    with progress("the releases of LMCache are looked for, or installed"):
        env = install(env)
    with Programs() as programs:
        with progress("ringcache is built"):
            server = Server(programs, "ringcache-demo")
        model = env.get("model_" + a.model)
        if model is None:
            with progress("a model of random weights is made, of %s" % SIZES[a.model]):
                model = make_model(programs, env, a.model)
        url = "grpc+unix://%s" % (programs.folder / "kv")
        settings = ("--size", "256MiB", "--disk", programs.folder / "disk", "--lmcache", url, "--lmcache-chunk-size", CHUNK)
        server.start(*settings)
        say("ringcache serve runs: 256 MiB of shared memory, and a disk below it; chunks of %d tokens" % CHUNK)
        engines = {"one": Engine(programs, env, "0.5.6", model, url), "two": Engine(programs, env, "0.5.7rc2", model, url)}
        say("two vLLM engines start, one with LMCache 0.5.6 and two with 0.5.7rc2; all they know of ringcache is its URL")
        for name, engine in engines.items():
            with progress("engine %s starts" % name):
                engine.ready()
            say("engine %s is ready" % name)
        right, wrong, times, due, hits = {}, 0, {}, 0, 0
        # A first step makes what later ones have.
        for engine in engines.values():
            engine.ask(prompt(0)[:40])

        def ask(title, name, seed, hit):
            nonlocal wrong, due, hits
            tokens, cached, seconds = engines[name].ask(prompt(seed))
            equal = right.setdefault(seed, tokens) == tokens
            wrong += not equal
            due += hit > 0
            hits += hit > 0 and cached == hit
            times[title] = seconds
            say(title)
            print("         engine %s  prompt %d of %d tokens  loaded %4d  computed %4d  %7.1f ms  tokens %s%s" % (
                name, seed, TOKENS, cached, TOKENS - cached, 1000 * seconds, " ".join("%3d" % t for t in tokens),
                "" if equal else "  WRONG"), flush=True)

        def find(seed):
            text = subprocess.run([server.binary, "kv", "find", "--socket", server.socket, "-f", "-"],
                                  input=json.dumps(prompt(seed)), check=True, stdout=subprocess.PIPE, text=True).stdout
            print("".join("         %s\n" % line for line in text.rstrip("\n").split("\n")), end="", flush=True)

        whole = TOKENS // CHUNK * CHUNK
        computed, loaded = "engine one computes a prompt", "engine two loads what engine one has stored"
        ask(computed, "one", 1, 0)
        ask(loaded, "two", 1, whole)
        say("ringcache kv find:")
        find(1)
        server.kill()
        say("the server was killed by SIGKILL; what it had is still in shared memory")
        ask("engine two goes on without it, after the time that its LMCache waits for a server (mq_timeout, 5 s)", "two", 2, 0)
        at = time.monotonic()
        server.start(*settings)
        say("the server runs again, after %.2f s" % (time.monotonic() - at))
        with progress("the engines find the server again"):
            for name in engines:
                until("the connector of engine %s" % name, lambda: engines[name].ask(prompt(1))[1] > 0)
        again = "engine one loads the prompt from the memory that outlived the kill"
        ask(again, "one", 1, whole)
        server.stop()
        server.lose_memory()
        server.start(*settings)
        say("the server was ended and its shared memory deleted, as by a restart of the machine; the disk is still there")
        with progress("the engines find the server again"):
            until("the connector of engine two", lambda: engines["two"].ask(prompt(1))[1] > 0)
        ask("engine two loads the prompt, which came from the disk", "two", 1, whole)
        say("%d of %d prompts that were there were loaded; tokens of all answers %s" % (
            hits, due, "equal" if not wrong else "DIFFER in %d" % wrong))
        say("a request took %.2f of the time of computing its prompt when engine two loaded it, and %.2f after the kill" % (
            times[loaded] / times[computed], times[again] / times[computed]))
        say("(single requests; the model is of %s)" % SIZES[a.model])
        with progress("the engines end"):
            for engine in engines.values():
                engine.end()
            for engine in engines.values():
                engine.wait()
        server.stop()
        if wrong or hits < due:
            raise SystemExit("kv_demo: a token differs, or a prompt was computed again while the server was there")


if __name__ == "__main__":
    main()

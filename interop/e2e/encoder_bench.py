"""What a request costs if its image is encoded, and if the encoder's output is loaded: from memory, from disk, from Redis.

    encoder_bench.py [--images 24] [--rounds 3]

Requests come one at a time, with one image each, already processed by vLLM's frontend, and make one token; the engine's own encoder cache
is emptied before each round. Medians of all requests, in milliseconds, and their ratio to encoding. Absolute ones mean little on a shared machine.
"""

import argparse
import json
import statistics
import subprocess

from encoder_programs import HERE, IMAGE, TOWERS, Engine, Programs, Redis, Server, environment

KINDS = "llava", "llava_large"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--images", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=3)
    a = parser.parse_args()
    env = environment()
    with Programs() as programs:
        subprocess.run([env["python"], HERE / "make_model.py", programs.folder / "models", *KINDS], check=True,
                       stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)
        server, redis = Server(programs, "ringcache-bench"), Redis(programs)
        print("%-28s %10s %18s %18s %18s" % ("vision tower", "encoded", "from memory", "from disk", "from Redis"),
              flush=True)
        for kind in KINDS:
            described = TOWERS[kind].partition(":")[0]
            line = measure(a, programs, env["python"], kind, server, redis)
            encoded = line["encoded"]
            print("%-28s %7.1f ms" % (described, encoded) + "".join(
                " %7.1f ms = %4.2f" % (line[where], line[where] / encoded) for where in ("memory", "disk", "redis")),
                flush=True)


def measure(a, programs, python, kind, server, redis):
    inputs, folder = programs.folder / (kind + ".json"), programs.folder / ("disk-" + kind)
    names = ["image%d" % i for i in range(a.images)]
    inputs.write_text(json.dumps([{"name": name, "prompt_token_ids": [1, *IMAGE[kind], 30 + i],
                                   "params": {"max_tokens": 1},
                                   "images": [{"pattern": i, "size": [224, 224]}]} for i,
                                   name in enumerate([*names, "probe"])]))
    model, tokens, times = programs.folder / "models" / kind, {}, {}

    def ask(engine, what, encoded):
        engine.forget()
        for name in names:
            answer = engine.ask(name)
            worker = answer["workers"][0]
            if (worker["items"], worker["loads"]) != ((1, 0) if encoded else (0, 1)):
                raise SystemExit("encoder_bench: %s of %s: %s" % (what, name, worker))
            if tokens.setdefault(name, answer["answers"][0]["tokens"]) != answer["answers"][0]["tokens"]:
                raise SystemExit("encoder_bench: another token for %s %s" % (name, what))
            times.setdefault(what, []).append(1000 * answer["seconds"])

    engine = Engine(programs, python, model, inputs)
    engine.ready()
    ask(engine, "first", True)  # and processed
    for _ in range(a.rounds):
        ask(engine, "encoded", True)
    engine.end()

    below = {"disk": ("--disk", folder), "redis": ("--redis", redis.address)}
    server.start("--size", "64MiB", *below["disk"], *below["redis"])
    engine = Engine(programs, python, model, inputs, server, wait=20)
    engine.ready()
    engine.ask("probe")
    ask(engine, "saved", True)
    for _ in range(a.rounds):
        ask(engine, "memory", False)
    for where, options in below.items():
        server.stop()  # in order, so that all is in the lower levels
        server.lose_memory()
        server.start("--size", "64MiB", *options)
        engine.settle("probe")
        ask(engine, where, False)
    engine.end()
    server.stop()
    server.lose_memory()
    return {what: statistics.median(some) for what, some in times.items()}


if __name__ == "__main__":
    main()

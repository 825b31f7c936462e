"""Two vLLM engines, six photos, one cache of encoder outputs that is killed on the way.

    encoder_demo.py [--model llava_large|llava|qwen2vl]      # make demo PEER=encoder
"""

import argparse
import json
import statistics
import subprocess
import time

from encoder_programs import HERE, IMAGE, MEDIA, TOWERS, Engine, Programs, Server, environment, progress


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", default="llava_large", choices=["llava_large", "llava", "qwen2vl"],
                        help="llava_large has an encoder that takes most of a request's time, as real ones do; the others are toys")
    a = parser.parse_args()
    began = time.monotonic()

    def say(text):
        print("%5.1f s  %s" % (time.monotonic() - began, text), flush=True)

    with progress("the environment of vLLM is looked for; where there is none yet, 6 GB are installed"):
        env = environment()
    with Programs() as programs:
        photos = sorted(p for p in MEDIA.iterdir() if p.suffix in (".png", ".jpg"))
        inputs = programs.folder / "inputs.json"
        inputs.write_text(json.dumps([{"name": p.stem, "prompt_token_ids": [1, 20 + i, *IMAGE[a.model], 40 + 7 * i, 31],
                                       "params": {"max_tokens": 3}, "images": [str(p)]} for i, p in enumerate(photos)]))
        with progress("ringcache is built"):
            server = Server(programs, "ringcache-demo")
        model = env.get("model_" + a.model)
        if model is None:
            with progress("a model of random weights is made, its vision tower is %s" % TOWERS[a.model]):
                subprocess.run([env["python"], HERE / "make_model.py", programs.folder / "models", a.model], check=True,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            model = programs.folder / "models" / a.model
        settings = "--size", "16MiB", "--disk", programs.folder / "disk"
        server.start(*settings)
        say("ringcache serve runs: 16 MiB of shared memory, and a disk below it")
        python = env["python"]
        engines = {"one": Engine(programs, python, model, inputs, server),
                   "two": Engine(programs, python, model, inputs, server, "ec_consumer")}
        say("two vLLM engines start, in processes of their own; all they know of the cache is --ec-transfer-config")
        for name, engine in engines.items():
            with progress("engine %s starts" % name):
                seconds = engine.ready()
            say("engine %s is ready, %.0f s after it began" % (name, seconds))
        tokens, wrong, calls, times = {}, 0, {}, {}

        def ask(title, name):
            say(title)
            calls[title] = 0
            for p in photos:
                answer = engines[name].ask(p.stem)
                got, w = answer["answers"][0]["tokens"], answer["workers"][0]
                equal = tokens.setdefault(p.stem, got) == got
                calls[title] += w["calls"]
                nonlocal wrong
                wrong += not equal
                what = "encoded" if w["calls"] else "loaded" if w["loads"] else "had it"
                times.setdefault(title, []).append(1000 * answer["seconds"])
                print("         engine %s  %-18s %-8s %6.1f ms  tokens %s %s" % (
                    name, p.stem, what, 1000 * answer["seconds"], " ".join("%3d" % t for t in got), "" if equal
                    else "  WRONG"), flush=True)
            return calls[title]

        due = ask("engine one sees the photos for the first time", "one") == len(photos)
        due &= ask("engine two asks for the same ones", "two") == 0
        server.kill()
        say("the server was killed by SIGKILL; what it had is still in shared memory")
        engines["two"].forget()
        alone = "engine two goes on without it: what it misses it encodes itself"
        ask(alone, "two")
        at = time.monotonic()
        server.start(*settings)
        say("the server runs again, after %.2f s" % (time.monotonic() - at))
        engines["two"].settle(photos[0].stem)
        engines["two"].forget()
        memory = "engine two again, its own cache emptied"
        due &= ask(memory, "two") == 0
        server.stop()
        server.lose_memory()
        server.start(*settings)
        say("the server was ended and its shared memory deleted, as by a restart of the machine; the disk is still there")
        engines["one"].settle(photos[0].stem)
        engines["one"].forget()
        disk = "engine one again, its own cache emptied"
        due &= ask(disk, "one") == 0
        for engine in engines.values():
            engine.end()
        server.stop()
        say("%d calls of the vision tower instead of %d; tokens of %d answers %s" % (
            sum(calls.values()), len(photos) * len(calls), len(photos) * len(calls), "equal" if not wrong
            else "DIFFER in %d" % wrong))
        # Of photos that the engine has processed before, so that this is not in the way.
        of = {title: statistics.median(times[title]) for title in (alone, memory, disk)}
        say("a request took %.2f of the time of encoding when its photo was loaded from memory, and %.2f from disk" % (
            of[memory] / of[alone], of[disk] / of[alone]))
        say("(medians of %d; the vision tower is %s)" % (len(photos), TOWERS[a.model]))
        if wrong or not due:
            raise SystemExit("encoder_demo: a token differs, or an image was encoded again while the server was there")


if __name__ == "__main__":
    main()

"""Two vLLM engines, six photos, one cache of encoder outputs that is killed on the way.

    encoder_demo.py [--model llava|qwen2vl]      # make demo PEER=encoder
"""

import argparse
import json
import time

from encoder_programs import IMAGE, MEDIA, Engine, Programs, Server, environment


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", default="llava", choices=["llava", "qwen2vl"])
    a = parser.parse_args()
    began, env = time.monotonic(), environment()

    def say(text):
        print("%5.1f s  %s" % (time.monotonic() - began, text), flush=True)

    with Programs() as programs:
        photos = sorted(p for p in MEDIA.iterdir() if p.suffix in (".png", ".jpg"))
        inputs = programs.folder / "inputs.json"
        inputs.write_text(json.dumps([{"name": p.stem, "prompt_token_ids": [1, 20 + i, *IMAGE[a.model], 40 + 7 * i, 31], "images": [str(p)]} for i, p in enumerate(photos)]))
        server = Server(programs, "ringcache-demo")
        settings = "--size", "16MiB", "--disk", programs.folder / "disk"
        server.start(*settings)
        say("ringcache serve runs: 16 MiB of shared memory, and a disk below it")
        python, model = env["python"], env["model_" + a.model]
        engines = {"one": Engine(programs, python, model, inputs, server), "two": Engine(programs, python, model, inputs, server, "ec_consumer")}
        say("two vLLM engines start, in processes of their own; all they know of the cache is --ec-transfer-config")
        for name, engine in engines.items():
            say("engine %s is ready, %.0f s after it began" % (name, engine.ready()))
        tokens, wrong, calls = {}, 0, {}

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
                print("         engine %s  %-18s %-8s %6.1f ms  tokens %s %s" % (
                    name, p.stem, what, 1000 * answer["seconds"], " ".join("%3d" % t for t in got), "" if equal else "  WRONG"), flush=True)
            return calls[title]

        due = ask("engine one sees the photos for the first time", "one") == len(photos)
        due &= ask("engine two asks for the same ones", "two") == 0
        server.kill()
        say("the server was killed by SIGKILL; what it had is still in shared memory")
        engines["two"].forget()
        ask("engine two goes on without it: what it misses it encodes itself", "two")
        at = time.monotonic()
        server.start(*settings)
        say("the server runs again, after %.2f s" % (time.monotonic() - at))
        engines["two"].settle(photos[0].stem)
        engines["two"].forget()
        due &= ask("engine two again, its own cache emptied", "two") == 0
        server.stop()
        server.lose_memory()
        server.start(*settings)
        say("the server was ended and its shared memory deleted, as by a restart of the machine; the disk is still there")
        engines["one"].settle(photos[0].stem)
        engines["one"].forget()
        due &= ask("engine one again, its own cache emptied", "one") == 0
        for engine in engines.values():
            engine.end()
        server.stop()
        say("%d calls of the vision tower instead of %d; tokens of %d answers %s" % (
            sum(calls.values()), len(photos) * len(calls), len(photos) * len(calls), "equal" if not wrong else "DIFFER in %d" % wrong))
        if wrong or not due:
            raise SystemExit("encoder_demo: a token differs, or an image was encoded again while the server was there")


if __name__ == "__main__":
    main()

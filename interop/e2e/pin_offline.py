"""Inputs through vLLM's own frontend, one after the other, beside one request that lasts all the time.

    pin_offline.py --model FOLDER --inputs inputs.json --long NAME [--cache-gb GB] ...

The long request is input NAME, with more tokens than all the others take steps, so its item is in use to the end. Prints
JSON: the tokens of each input by its name, and how many items found no room in the ring and were sent in the message.
"""

import argparse
import json
import pathlib

import common
import reference
import supervise

if __name__ == "__mp_main__":
    supervise.die_with_parent()

ROOM = 3000  # tokens of the long request


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--inputs", required=True, type=pathlib.Path)
    parser.add_argument("--long", required=True, metavar="NAME")
    common.add_engine_flags(parser, cache_gb=1 / 1024)
    a = parser.parse_args()
    supervise.run(lambda: work(a))


def work(a):
    entries, stdout = json.loads(a.inputs.read_text()), common.keep_stdout()
    common.prepare_environment(a)
    import vllm
    from vllm.multimodal.cache import shm

    sent = {"ring": 0, "message": 0}
    update = shm.ShmObjectStoreSenderCache.get_and_update_item

    def updated(self, item, key):
        found = update(self, item, key)
        sent["ring" if "address" in found[0] else "message"] += 1
        return found

    shm.ShmObjectStoreSenderCache.get_and_update_item = updated
    engine = vllm.LLM(disable_log_stats=True, **common.engine_arguments(a)).llm_engine
    sent.update(ring=0, message=0)
    tokens, open_ = {}, set()

    def add(name, entry, **changes):
        params = {**common.PARAMS, **entry.get("params", {}), **changes}
        engine.add_request(name, reference.prompt(entry, a.inputs.parent), vllm.SamplingParams(**params))
        open_.add(name)

    def step():
        for output in engine.step():
            tokens[output.request_id] = list(output.outputs[0].token_ids)
            if output.finished:
                open_.discard(output.request_id)

    (long,) = (entry for entry in entries if entry["name"] == a.long)
    add("long", long, max_tokens=ROOM)
    while not tokens.get("long"):
        step()
    for entry in entries:
        add(entry["name"], entry)
        while entry["name"] in open_:
            step()
        if "long" not in open_:
            raise SystemExit("pin_offline: the long request has ended, so nothing is shown")
    engine.abort_request(["long"])
    while engine.has_unfinished_requests():
        step()
    engine.engine_core.shutdown()  # in order, so that workers report
    print(json.dumps({"tokens": tokens, "sent": sent}), file=stdout, flush=True)


if __name__ == "__main__":
    main()

"""Starts one offline vLLM engine, with a connector of the encoder cache or without, and has it do what lines on stdin say.

    encoder_engine.py --model FOLDER --inputs inputs.json [--ec JSON] [--tp N] [--executor mp] ...

--ec is vLLM's ec_transfer_config. Each line is a JSON object with one of these keys, and is answered by a line on stdout:

    {"ask": ["image0", "two3"]}        inputs of the file by their names, all at once; with "params": over their own
    {"abort": ["image0"], "steps": 2}  the same, and abort all of them after so many steps of the engine
    {"reset": "encoder"}               one of vLLM's own caches: encoder, mm (processed images) or prefix
    {"arm": "load", "pid": 123}        kill that process when a worker's connector is next called to load, or to "save"; with
                                       "until": tell by FILE.reached, and go on when FILE is there; pid may be missing then
    {"count": true}                    what the engine's metrics say of the connector, answered by `counts`

The answer to ask has `answers`, in the same order (tokens, finish, identifiers of the images), `seconds`, `workers` (for each: calls of
the vision tower, items that it encoded, loads and saves by the connector, for this answer, and armed: a kill is still due) and
`pending`: how often the connector has put a request off, null where the scheduler lives in another process. What fails is
answered by `error`. The first line comes when the engine is ready: {"ready": {"pids": [...], "seconds": S}}. The end of stdin ends it.
"""

import argparse
import json
import logging
import os
import pathlib
import queue
import sys
import threading
import time

import common
import encoder_worker
import reference
import supervise

if __name__ == "__mp_main__":
    supervise.die_with_parent()

STUCK = 60  # seconds that a command may still take when stdin has ended


class Engine:
    def __init__(self, a):
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
        import vllm
        logging.getLogger("vllm.v1.worker.cpu_worker").setLevel(logging.ERROR)
        self._vllm, self._folder = vllm, a.inputs.parent
        self._entries = {entry["name"]: entry for entry in json.loads(a.inputs.read_text())}
        options = {"worker_extension_cls": "encoder_worker.Observed"}
        if a.ec:
            from vllm.config import ECTransferConfig
            options["ec_transfer_config"] = ECTransferConfig(**a.ec)
        self._llm = vllm.LLM(disable_log_stats=False, **{**common.engine_arguments(a), **options})
        self.pids = self._llm.collective_rpc("observe_encoder")
        self._pending = self._count_pending()
        self._requests = []
        processor = self._llm.llm_engine.input_processor
        process = processor.process_inputs

        def processed(*args, **kwargs):
            self._requests.append(process(*args, **kwargs))
            return self._requests[-1]

        processor.process_inputs = processed

    def _counts(self):
        return self._llm.collective_rpc("encoder_counts")

    def _count_pending(self):
        """Counts how often the scheduler's connector says that a request must wait, where the scheduler is in this process."""
        core = getattr(self._llm.llm_engine.engine_core, "engine_core", None)
        connector = core and core.scheduler.ec_connector
        if not connector:
            return None
        count, ensure = [0], connector.ensure_cache_available

        def ensured(request, computed):
            ready = ensure(request, computed)
            count[0] += not ready
            return ready

        connector.ensure_cache_available = ensured
        return count

    def do(self, command):
        if "ask" in command:
            return self._ask(command["ask"], command.get("params", {}))
        if "abort" in command:
            return self._abort(command["abort"], command["steps"])
        if "reset" in command:
            {"encoder": self._llm.llm_engine.reset_encoder_cache, "mm": self._llm.reset_mm_cache,
             "prefix": self._llm.reset_prefix_cache}[command["reset"]]()
            return {}
        if "arm" in command:
            self._llm.collective_rpc("arm_encoder", args=(command["arm"], command.get("pid"), command.get("until")))
            return {}
        if "count" in command:
            prefix = "vllm:ringcache_encoder_"
            return {"counts": {m.name.removeprefix(prefix): int(m.value) for m in self._llm.get_metrics()
                               if m.name.startswith(prefix)}}
        raise ValueError("no such command: %r" % command)

    def _inputs(self, names, params):
        entries = [self._entries[name] for name in names]
        return ([reference.prompt(entry, self._folder) for entry in entries],
                [self._vllm.SamplingParams(**{**common.PARAMS, **entry.get("params", {}), **params})
                 for entry in entries])

    def _abort(self, names, steps):
        engine = self._llm.llm_engine
        added = [engine.add_request("abort%d" % i, prompt, params)
                 for i, (prompt, params) in enumerate(zip(*self._inputs(names, {"max_tokens": 64})))]
        for _ in range(steps):
            engine.step()
        engine.abort_request(added)
        while engine.has_unfinished_requests():
            engine.step()
        return {}

    def _ask(self, names, params):
        prompts, params = self._inputs(names, params)
        self._requests.clear()
        if self._pending:
            self._pending[0] = 0
        before = self._counts()
        began = time.monotonic()
        outputs = self._llm.generate(prompts, params, use_tqdm=False)
        seconds = time.monotonic() - began
        return {
            "answers": [{"tokens": list(output.outputs[0].token_ids), "finish": output.outputs[0].finish_reason,
                         "identifiers": [f.identifier for f in request.mm_features or []]}
                        for output, request in zip(outputs, self._requests)],
            "seconds": round(seconds, 6), "pending": self._pending and self._pending[0],
            "workers": [{**now, **{field: now[field] - then[field] for field in encoder_worker.FIELDS}}
                        for now, then in zip(self._counts(), before)]}


def read(stdin, lines):
    """Hands lines over. At their end a command that does not end either, in an engine that hangs, must not keep the process."""
    for line in stdin:
        lines.put(json.loads(line))
    lines.put(None)
    time.sleep(STUCK)
    print("encoder_engine: stdin has ended and the engine has not: it is killed", file=sys.stderr, flush=True)
    os._exit(1)


def work(a, stdin):
    stdout, began = common.keep_stdout(), time.monotonic()
    common.prepare_environment(a)

    def tell(message):
        print(json.dumps(message), file=stdout, flush=True)

    lines = queue.SimpleQueue()
    threading.Thread(target=read, args=(stdin, lines), daemon=True, name="stdin").start()
    engine = Engine(a)
    tell({"ready": {"pids": engine.pids, "seconds": round(time.monotonic() - began, 1)}})
    while command := lines.get():
        try:
            answer = engine.do(command)
        except Exception as e:
            answer = {"error": "%s: %s" % (type(e).__name__, e)}
        tell(answer)
    engine._llm.llm_engine.engine_core.shutdown()  # in order, so that the connector ends, too


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--inputs", required=True, type=pathlib.Path)
    parser.add_argument("--ec", type=json.loads, metavar="JSON", help="vLLM's ec_transfer_config; none without")
    common.add_engine_flags(parser, cache_gb=0.25)
    parser.set_defaults(cache_type="lru")
    a = parser.parse_args()
    stdin = os.fdopen(os.dup(0))  # the supervisor's child gets no stdin of its own
    supervise.run(lambda: work(a, stdin))


if __name__ == "__main__":
    main()

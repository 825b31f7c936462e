"""Starts one offline vLLM engine, whose KV a connector shares or nobody does, and has it do what lines on stdin say.

    kv_engine.py --model FOLDER [--kv JSON] [--max-tokens N] [--tp N] ...

--kv is vLLM's kv_transfer_config. Each line is a JSON list of prompts, which are lists of token ids or, with a cache_salt,
vLLM's own form of these, and is answered by a line on stdout: for each prompt its tokens, and how many tokens of the
prompt were not computed, and the seconds from its arrival to its first token; and how often requests were preempted so far. The first line comes when the engine is ready:
{"ready": true}. The end of stdin ends it.

{"kill": PID, "at": "load" or "store"} has the process PID killed when our spec next pins for a load (the scheduler has looked up,
the worker has not copied), or when a worker is about to store; it needs an engine with one process. {"reset": true}
empties vLLM's prefix cache, and what the connector knows.
"""

import argparse
import json
import os
import signal
import sys

import common
import supervise

if __name__ == "__mp_main__":
    supervise.die_with_parent()


def arm(pid, at):
    """Has a process killed in front of the next load or store."""
    from ringcache.vllm._block_worker import BlockWorker
    from ringcache.vllm._blocks import Blocks
    owner, name = (Blocks, "load") if at == "load" else (BlockWorker, "store")
    real = getattr(owner, name)

    def killed(*args):
        setattr(owner, name, real)
        os.kill(pid, signal.SIGKILL)
        while common.running(pid):
            pass
        return real(*args)

    setattr(owner, name, killed)


def work(a, stdin):
    lines = common.keep_stdout()
    common.prepare_environment(a)
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    os.environ.update(LMCACHE_TRACK_USAGE="false", LMCACHE_DISABLE_BANNER="1")
    if (a.kv or {}).get("kv_connector", "").startswith("LMCache"):
        # The CPU platform of vLLM 0.32 looks at every attribute of every module, and an object of llvmlite, which LMCache
        # imports, answers any name with a C function.
        import llvmlite.binding.ffi
        llvmlite.binding.ffi.lib._fntab["__dict__"] = {}
    import vllm
    options = {}
    if a.kv:
        from vllm.config import KVTransferConfig
        options["kv_transfer_config"] = KVTransferConfig(**a.kv)
    llm = vllm.LLM(disable_log_stats=False, **{**common.engine_arguments(a), "block_size": 32, **options})
    params = vllm.SamplingParams(**{**common.PARAMS, "max_tokens": a.max_tokens})
    print(json.dumps({"ready": True}), file=lines)
    for line in stdin:
        command = json.loads(line)
        if isinstance(command, dict):
            if "kill" in command:
                arm(command["kill"], command["at"])
            else:
                llm.reset_prefix_cache(reset_connector=True)
            print(json.dumps({"ready": True}), file=lines)
            continue
        prompts = [p if isinstance(p, dict) else {"prompt_token_ids": p} for p in command]
        outputs = llm.generate(prompts, params, use_tqdm=False)
        preempted = sum(m.value for m in llm.get_metrics() if m.name == "vllm:num_preemptions")
        print(json.dumps({"answers": [{"tokens": list(o.outputs[0].token_ids), "cached": o.num_cached_tokens or 0,
                                       "first": o.metrics.first_token_latency} for o in outputs], "preempted": int(preempted)}), file=lines)
    llm.llm_engine.engine_core.shutdown()  # in order, so that the connector ends, too


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    common.add_engine_flags(parser, 0.25)
    parser.add_argument("--kv", type=json.loads, metavar="JSON")
    parser.add_argument("--max-tokens", type=int, default=common.PARAMS["max_tokens"], metavar="N")
    a = parser.parse_args()
    stdin = os.fdopen(os.dup(0))  # the supervisor's child gets no stdin of its own
    supervise.run(lambda: work(a, stdin))


if __name__ == "__main__":
    main()

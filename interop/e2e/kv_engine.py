"""Starts one offline vLLM engine, whose KV LMCache's connector shares or nobody does, and has it do what lines on stdin say.

    kv_engine.py --model FOLDER [--kv JSON] [--max-tokens N] [--tp N] ...

--kv is vLLM's kv_transfer_config. Each line is a JSON list of prompts, which are lists of token ids or, with a cache_salt,
vLLM's own form of these, and is answered by a line on stdout: for each prompt its tokens, and how many tokens of the
prompt were not computed; and how often requests were preempted so far. The first line comes when the engine is ready:
{"ready": true}. The end of stdin ends it.
"""

import argparse
import json
import os
import sys

import common
import supervise

if __name__ == "__mp_main__":
    supervise.die_with_parent()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    common.add_engine_flags(parser, 0.25)
    parser.add_argument("--kv", type=json.loads, metavar="JSON")
    parser.add_argument("--max-tokens", type=int, default=common.PARAMS["max_tokens"], metavar="N")
    a = parser.parse_args()
    supervise.die_with_parent()
    common.prepare_environment(a)
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    os.environ.update(LMCACHE_TRACK_USAGE="false", LMCACHE_DISABLE_BANNER="1")
    lines = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # libraries print, too
    if a.kv:
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
    for line in sys.stdin:
        prompts = [p if isinstance(p, dict) else {"prompt_token_ids": p} for p in json.loads(line)]
        outputs = llm.generate(prompts, params, use_tqdm=False)
        preempted = sum(m.value for m in llm.get_metrics() if m.name == "vllm:num_preemptions")
        print(json.dumps({"answers": [{"tokens": list(o.outputs[0].token_ids), "cached": o.num_cached_tokens or 0}
                                      for o in outputs], "preempted": int(preempted)}), file=lines)


if __name__ == "__main__":
    main()

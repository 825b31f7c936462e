"""Starts one real vLLM EngineCore, with its workers, for a frontend that isn't vLLM's.

    launch.py --model FOLDER --handshake tcp://127.0.0.1:PORT --shm NAME [--tp N] ...

The frontend must have bound the handshake socket and created the segment /dev/shm/NAME before. The process started
here is a small supervisor: it prints `engine_pid=N` on stdout, and `engine_cpu_s=S engine_rss_mib=M` when all has
ended. The engine's own words go to stderr. SIGTERM and SIGINT end the engine in order. The supervisor ends with the
engine's status (128 + n for signal n).
"""

import argparse
import os

import common
import supervise

if __name__ == "__mp_main__":
    supervise.die_with_parent()
    common.allow_async_scheduling()


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--handshake", required=True, metavar="ADDRESS", help="such as tcp://127.0.0.1:29550")
    parser.add_argument("--shm", default="", metavar="NAME", help="the ring's segment; needed with --cache-type shm")
    parser.add_argument("--die-with-stdin", action="store_true", help="end when stdin reaches its end")
    parser.add_argument("--grace", type=float, default=15, metavar="S",
                        help="seconds from SIGTERM to SIGKILL; 0 kills at once (default 15)")
    parser.add_argument("--log-stats", action="store_true",
                        help="outputs then carry events (3: preempted) and statistics of the scheduler")
    common.add_engine_flags(parser, cache_gb=0.0009765625)
    a = parser.parse_args()
    if a.cache_type == "shm" and not a.shm:
        parser.error("--cache-type shm needs --shm NAME, the segment that the frontend created")
    return a


def engine(a):
    common.keep_stdout()
    common.prepare_environment(a)
    if a.shm:
        os.environ["VLLM_OBJECT_STORAGE_SHM_BUFFER_NAME"] = a.shm
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.usage.usage_lib import UsageContext
    from vllm.v1.engine.core import EngineCoreProc
    from vllm.v1.executor import Executor

    config = AsyncEngineArgs(**common.engine_arguments(a)).create_engine_config(
        UsageContext.OPENAI_API_SERVER, headless=True)
    EngineCoreProc.run_engine_core(
        vllm_config=config, local_client=False, handshake_address=a.handshake,
        executor_class=Executor.get_class(config), log_stats=a.log_stats, dp_rank=0, local_dp_rank=0)


def main():
    a = arguments()
    supervise.run(lambda: engine(a), a.grace, a.die_with_stdin,
                  started=lambda pid: print("engine_pid=%d" % pid, flush=True),
                  ended=lambda cpu, rss: print("engine_cpu_s=%.2f engine_rss_mib=%d" % (cpu, rss), flush=True))


if __name__ == "__main__":
    main()

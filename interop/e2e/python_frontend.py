"""Serves a workload with vLLM's own asynchronous frontend and prints one JSON line of figures.

    python_frontend.py --model FOLDER --workload FILE [--tp N] [--cache-type shm|lru] ...

The engine is a process of its own, with the settings that launch.py gives it. Image files are read, decoded and
processed as in vLLM's server; HTTP is left out. Each of the workload's clients has one request under way at a time.
"""

import argparse
import asyncio
import json
import os
import pathlib
import resource
import time

import common
import supervise

if __name__ == "__mp_main__":
    supervise.die_with_parent()
    common.allow_async_scheduling()


class Frontend:
    def __init__(self, engine, workload, folder):
        from vllm import SamplingParams
        from vllm.multimodal.media import MediaConnector
        from vllm.sampling_params import RequestOutputKind

        self._engine, self._folder = engine, folder
        self._media = MediaConnector(allowed_local_media_path="/")
        # One output for each request, as the server asks for where the client does not stream.
        self._params = SamplingParams(**workload["params"], output_kind=RequestOutputKind.FINAL_ONLY)
        self.latencies, self.tokens = [], 0

    async def _image(self, spec):
        path = common.image_file(spec, self._folder)
        if path is None:
            return common.load_image(spec, self._folder)
        return await self._media.fetch_image_async(path.resolve().as_uri())

    async def _one(self, number, request):
        start, last = time.perf_counter(), None
        prompt = {"prompt_token_ids": request["prompt_token_ids"]}
        if request.get("images"):
            prompt["multi_modal_data"] = {"image": [await self._image(spec) for spec in request["images"]]}
        async for last in self._engine.generate(prompt, self._params, "r%d" % number):
            pass
        self.latencies.append(time.perf_counter() - start)
        self.tokens += len(last.outputs[0].token_ids)

    async def serve(self, clients, numbered):
        """Runs the requests, clients of them at a time; returns when the last has ended."""
        left = iter(numbered)

        async def client():
            for number, request in left:
                await self._one(number, request)

        async with asyncio.TaskGroup() as group:
            for _ in range(clients):
                group.create_task(client())


def own_cpu():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def children_cpu():
    """CPU seconds of the living descendants: the engine and its workers."""
    ticks = 0
    for pid in supervise.descendants() - {os.getpid()}:
        fields = pathlib.Path("/proc/%d/stat" % pid).read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


async def measure(a, workload):
    from vllm import AsyncEngineArgs
    from vllm.v1.engine.async_llm import AsyncLLM

    started = time.perf_counter()
    engine = AsyncLLM.from_engine_args(AsyncEngineArgs(disable_log_stats=True, **common.engine_arguments(a)))
    try:
        numbered = list(enumerate(workload["requests"]))
        warmup, clients = workload["warmup"], workload["clients"]
        await Frontend(engine, workload, a.workload.parent).serve(clients, numbered[:warmup])

        frontend = Frontend(engine, workload, a.workload.parent)
        start, cpu, engine_cpu = time.perf_counter(), own_cpu(), children_cpu()
        await frontend.serve(clients, numbered[warmup:])
        wall, cpu, engine_cpu = time.perf_counter() - start, own_cpu() - cpu, children_cpu() - engine_cpu
    finally:
        engine.shutdown()
    latencies = sorted(frontend.latencies)
    return {"kind": workload["kind"], "clients": clients, "requests": len(latencies), "output_tokens": frontend.tokens,
            "wall_s": round(wall, 3), "requests_per_s": round(len(latencies) / wall, 1),
            "frontend_cpu_s": round(cpu, 3), "engine_cpu_s": round(engine_cpu, 2),
            "latency_ms": {name: round(1e3 * latencies[int(share * (len(latencies) - 1))], 2)
                           for name, share in (("p50", 0.5), ("p99", 0.99))},
            "start_s": round(start - started, 1)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--workload", required=True, type=pathlib.Path, metavar="FILE")
    common.add_engine_flags(parser, cache_gb=0.0625)
    a = parser.parse_args()
    supervise.run(lambda: work(a))


def work(a):
    workload, stdout = json.loads(a.workload.read_text()), common.keep_stdout()
    executor = common.prepare_environment(a)
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    import vllm

    figures = asyncio.run(measure(a, workload))
    print(json.dumps({"vllm_version": vllm.__version__, "tp": a.tp, "cache_type": a.cache_type, "executor": executor,
                      **figures}), file=stdout, flush=True)


if __name__ == "__main__":
    main()

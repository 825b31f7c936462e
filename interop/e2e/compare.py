"""Compares the frontend in Go (examples/frontend) with vLLM's own, on the same engine: requests a second and CPU seconds.

    compare.py --python ENV/bin/python --model FOLDER --model-kind llava|qwen2vl [--rounds 5] [--requests 600]

Each round serves each kind of workload with both frontends, in turns, each time with a new engine of the same settings
in a process of its own. Figures are medians of the rounds, and of requests a second the least and the most, too; absolute ones mean little
on a shared machine.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
CACHE_GB = "0.0625"
VERSION = "0.32.0"


def run(command):
    done = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          stdin=subprocess.DEVNULL, cwd=HERE.parents[1])
    if done.returncode:
        sys.exit("compare: %s failed (status %d):\n%s" % (command[0], done.returncode, done.stderr[-4000:]))
    return done.stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--python", required=True, help="interpreter with vLLM")
    parser.add_argument("--model", required=True, metavar="FOLDER")
    parser.add_argument("--model-kind", required=True, choices=["llava", "qwen2vl"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=600)
    parser.add_argument("--clients", type=int, default=8)
    a = parser.parse_args()

    with tempfile.TemporaryDirectory(prefix="ringcache-compare-") as folder:
        folder = pathlib.Path(folder)
        run(["go", "build", "-o", folder / "frontend", "./examples/frontend"])

        def go(workload):
            return run([folder / "frontend", "--model", a.model, "--version", VERSION, "--capacity", CACHE_GB,
                        "--workload", workload, "--",
                        a.python, HERE / "launch.py", "--model", a.model, "--handshake", "{handshake}", "--shm",
                        "{segment}",
                        "--cache-gb", CACHE_GB, "--die-with-stdin"])

        def python(workload):
            return run([a.python, HERE / "python_frontend.py", "--model", a.model, "--workload", workload, "--cache-gb",
                        CACHE_GB])

        figures = {}
        for kind in ("text", "new", "repeat"):
            run([a.python, HERE / "workload.py", "--kind", kind, "--model-kind", a.model_kind, "--clients", a.clients,
                 "--requests", a.requests, "--out", folder / kind])
            for turn in range(a.rounds):
                order = [("Go", go), ("vLLM", python)]
                for name, serve in order if turn % 2 == 0 else order[::-1]:
                    line = json.loads(serve(folder / kind / "workload.json").splitlines()[-1])
                    figures.setdefault((kind, name), []).append(line)

    print("%s, vLLM %s, %d requests of %d clients, median of %d" % (a.model_kind, VERSION, a.requests, a.clients,
        a.rounds))
    print("%-8s %-6s %12s %15s %14s %16s %10s %10s" % ("", "", "requests/s", "least..most", "CPU s", "CPU ms/request",
                                                       "p50 ms", "p99 ms"))
    for kind in ("text", "new", "repeat"):
        middle = {}
        for name in ("Go", "vLLM"):
            lines = figures[kind, name]
            middle[name] = m = {k: statistics.median(f(x) for x in lines) for k, f in {
                "rate": lambda x: x["requests_per_s"], "cpu": lambda x: x["frontend_cpu_s"],
                "p50": lambda x: x["latency_ms"]["p50"], "p99": lambda x: x["latency_ms"]["p99"]}.items()}
            rates = [x["requests_per_s"] for x in lines]
            print("%-8s %-6s %12.1f %15s %14.2f %16.2f %10.1f %10.1f" % (
                kind, name, m["rate"], "%.1f..%.1f" % (min(rates), max(rates)), m["cpu"], 1000 * m["cpu"] / a.requests,
                m["p50"], m["p99"]))
        print("%-8s %-6s %11.2fx %29.2fx" % ("", "ratio", middle["Go"]["rate"] / middle["vLLM"]["rate"],
                                             middle["vLLM"]["cpu"] / middle["Go"]["cpu"]))


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""The peers in Python: lines of JSON in, lines of JSON out.

    peer.py vllm            jobs of the real vLLM, and its ways of sending
    peer.py encoder         vLLM's connectors of its encoder cache
    peer.py reader          a worker with our reader
    peer.py receive         receivers of what is sent
    peer.py receive-vllm    receivers with vLLM

The first line out has the versions. Then {"op":"prepare","id":I,"case":{...},"shape":[R,C],"more":{...}} makes a job,
{"op":"run","id":I,"n":N} does it N times and answers {"samples":[NS,...]}, {"op":"close","id":I} ends it. Any
answer may be {"error":TEXT}.
"""

import json
import os
import sys
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..", "..")
sys.path[:0] = [HERE, os.path.join(ROOT, "interop"), os.path.join(ROOT, "fuzz", "system", "vllm"),
                os.path.join(ROOT, "python", "src")]


def makers(purpose):
    """What makes a job from a case, a shape and further arguments, and the versions of what it uses."""
    if purpose == "vllm":
        import vllm_jobs
        return vllm_jobs.make, vllm_jobs.versions()
    if purpose == "encoder":
        import encoder_jobs
        return encoder_jobs.make, encoder_jobs.versions()
    if purpose == "reader":
        import reader_job
        return reader_job.Worker, {}
    import receive
    if purpose == "receive-vllm":
        import store
        store.vllm()  # now, and not within a job
    return receive.make, {}


def main():
    # Other code may print: only answers go to the real standard output.
    out, sys.stdout = os.fdopen(os.dup(1), "w"), sys.stderr
    jobs = {}

    def answer(line):
        print(json.dumps(line), file=out, flush=True)

    try:
        make, versions = makers(sys.argv[1])
    except Exception as e:
        answer({"error": "%s: %s" % (type(e).__name__, e)})
        return
    answer({"versions": versions})
    for line in sys.stdin:
        request = json.loads(line)
        job, result = request["id"], {}
        try:
            if request["op"] == "prepare":
                jobs[job] = make(request["case"], request["shape"], request["more"] or {})
            elif request["op"] == "run":
                result["samples"] = jobs[job].run(**{k: v for k, v in request.items() if k not in ("op", "id")})
            elif job in jobs:
                jobs.pop(job).close()
        except Exception as e:
            traceback.print_exc(file=sys.stderr)
            result = {"error": "%s: %s" % (type(e).__name__, e)}
            e.__traceback__ = None  # it keeps frames, and with them views of segments
        answer(result)


if __name__ == "__main__":
    main()

"""Writes manager.0.33.0.json: scripted traces of vLLM's EncoderCacheManager, with the full state after each step.

    PYTHONPATH=<vLLM 0.33.0> python encoder/testdata/manager.py > encoder/testdata/manager.0.33.0.json
"""

import importlib.metadata
import json
import os
import platform
import types

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
from vllm.v1.core.encoder_cache_manager import EncoderCacheManager  # noqa: E402


class Request:
    def __init__(self, name, inputs):
        self.request_id, self.mm_features = name, [types.SimpleNamespace(identifier=h) for h, _ in inputs]
        self.get_num_encoder_embeds = lambda i: inputs[i][1]


def state(m):
    return {"free": m.num_free_slots, "freeable_slots": m.num_freeable_slots, "cached": {h: sorted(r) for h, r in m.cached.items()},
            "freeable": list(m.freeable.items())}


def run(capacity, requests, script):
    m, made, trace = EncoderCacheManager(capacity), {n: Request(n, f) for n, f in requests}, []
    calls = {
        "can": lambda r, *a: m.can_allocate(made[r], *a),
        "alloc": lambda r, i: m.allocate(made[r], i),
        "check": lambda r, i: m.check_and_update_cache(made[r], i),
        "free_input": lambda r, i: m.free_encoder_input(made[r], i),
        "free": lambda r: m.free(made[r]),
        "freed": m.get_freed_mm_hashes,
        "reset": m.reset,
    }
    for op, *arguments in script:
        trace.append({"op": [op, *arguments], "result": calls[op](*arguments), "state": state(m)})
    return {"capacity": capacity, "requests": requests, "trace": trace}


A = ["a", [["h1", 4], ["h2", 3]]]
TRACES = [
    run(10, [A], [("can", "a", 0, 100, 0), ("alloc", "a", 0), ("can", "a", 1, 100, 0), ("alloc", "a", 1), ("check", "a", 0), ("free_input", "a", 0),
                  ("free", "a"), ("freed",)]),
    run(8, [A, ["b", [["h3", 5]]]], [("alloc", "a", 0), ("alloc", "a", 1), ("can", "b", 0, 100, 0), ("free", "a"), ("can", "b", 0, 100, 0),
                                     ("alloc", "b", 0), ("freed",), ("freed",)]),
    run(8, [["a", [["h1", 4]]], ["b", [["h1", 4]]]], [("alloc", "a", 0), ("check", "b", 0), ("free", "a"), ("free", "b"), ("check", "a", 0), ("free", "a")]),
    run(8, [["a", [["h1", 4], ["h1", 4]]]], [("alloc", "a", 0), ("check", "a", 1), ("free_input", "a", 0), ("free_input", "a", 1)]),
    run(6, [["a", [["h1", 4]]], ["b", [["h2", 4]]]], [("alloc", "a", 0), ("free", "a"), ("can", "b", 0, 100, 0), ("alloc", "b", 0), ("free", "b"),
                                                     ("can", "a", 0, 100, 0), ("alloc", "a", 0), ("freed",)]),
    run(8, [["a", [["h1", 4]]]], [("can", "a", 0, 3, 0), ("can", "a", 0, 4, 5), ("can", "a", 0, 4, 4), ("reset",)]),
    run(9, [["a", [["h1", 3]]], ["b", [["h2", 3]]], ["c", [["h3", 3]]], ["d", [["h4", 4]]]],
        [("alloc", "a", 0), ("alloc", "b", 0), ("alloc", "c", 0), ("free", "b"), ("free", "a"), ("free", "c"), ("check", "b", 0), ("free", "b"),
         ("can", "d", 0, 9, 0), ("alloc", "d", 0), ("freed",)]),
]
print('{\n"versions": %s,\n"encoder_cache_manager": [' % json.dumps({"python": platform.python_version(), "vllm": importlib.metadata.version("vllm")}))
print(",\n".join(json.dumps(t, separators=(",", ":")) for t in TRACES))
print("]\n}")

"""Times blake3 as vLLM's MultiModalHasher uses it: one hasher, updated with every part, then the digest in hexadecimal.

Reads lines of JSON: the parts before and after the data in base64, the size of the data in bytes, and how many calls.
"""

import base64
import json
import sys
import time

from blake3 import blake3

data = {}
for line in sys.stdin:
    question = json.loads(line)
    before, after = base64.b64decode(question["before"]), base64.b64decode(question["after"])
    size = question["size"]
    if size not in data:
        data[size] = bytes(i % 251 for i in range(size))
    file = data[size]
    times = []
    for _ in range(question["calls"]):
        began = time.perf_counter_ns()
        hasher = blake3()
        hasher.update(before)
        hasher.update(file)
        hasher.update(after)
        digest = hasher.hexdigest()
        times.append(time.perf_counter_ns() - began)
    print(json.dumps({"hex": digest, "times_ns": times}), flush=True)

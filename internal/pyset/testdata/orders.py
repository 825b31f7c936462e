"""Writes orders.json: sets of small integers as this CPython iterates them, after random changes.

    python3 internal/pyset/testdata/orders.py > internal/pyset/testdata/orders.json

A row is a list of operations, then the order: v adds v, -v-1 removes v. Every row ends with the order of the copy.
"""

import json
import random
import sys

rng, rows = random.Random(1), []
for n in range(200):
    values = rng.choice([8, 12, 20, 40, 100, 700, 1 << 20])
    limit = rng.choice([3, 6, 20, 60, 150])
    s, operations = set(), []
    for _ in range(limit):
        v = rng.randrange(values)
        if s and rng.random() < 0.3:
            v = rng.choice(sorted(s))
            s.discard(v)
            operations.append(-v - 1)
        else:
            s.add(v)
            operations.append(v)
    rows.append([operations, list(s), list(s.copy())])
# A fresh set of ascending numbers, as a set comprehension makes it.
for n in range(100):
    values = sorted(rng.sample(range(rng.choice([9, 17, 40, 130])), rng.randrange(9)))
    s = {v for v in values}
    rows.append([values, list(s), list(s.copy())])
json.dump({"python": sys.version.split()[0], "rows": rows}, sys.stdout, separators=(",", ":"))
print()

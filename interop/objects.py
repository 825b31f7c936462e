"""Random objects that both sides can make by themselves.

An object is described by a seed and a number. `value` gives its description in the agent's own form (a dict), in which
the bytes of a tensor are named by a string whose BLAKE3 output they are; so a test can ask either side to write an
object, and either side to check one, without moving its bytes through a pipe. Only the standard library and blake3 are
used here, because the pytest process does not load vLLM.
"""

import hashlib
import math
import pathlib
import pickle
import random
import sys

from blake3 import blake3

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "fuzz" / "system" / "vllm"))
from vllm_classes import DTYPES, content  # noqa: E402

KIB, MIB = 1 << 10, 1 << 20

COMMON = ["float32", "bfloat16", "uint8", "int64", "bool", "float8_e4m3fn"]
NAMES = ["pixel_values", "image_grid_thw", "input_features", "feature_attention_mask", "pixel_values_videos",
         "num_crops",
         "image_embeds", "second_per_grid_ts", "tokens", "aspect_ratio_ids", "\u753b\u50cf", "x" * 70]


def size(rng, largest):
    """A total size in bytes: every order of magnitude, mostly small, the extremes now and then.

    The mean for a largest of 8 MiB is about 120 KB; a plain log-uniform choice would have 530 KB and spend the time on
    copying instead of on cases.
    """
    x = rng.random()
    if x < 0.010:
        return 0
    if x < 0.013:
        return largest
    top = largest if x < 0.20 else min(largest, 256 * KIB)
    return int(math.exp(rng.uniform(0, math.log(top + 1)))) - 1


def shape(rng, numel):
    """A shape of at most numel elements and at most four dimensions."""
    if numel == 0:
        return rng.choice([[0], [0, 4], [3, 0, 2], [1, 0]])
    if numel == 1 and rng.random() < 0.5:
        return []
    dims = []
    while numel > 1 and len(dims) < 3 and rng.random() < 0.7:
        d = rng.choice([1, 2, 3, 4, 5, 7, 8, 16])
        if d <= numel:
            dims.append(d)
            numel //= d
    return [*dims, numel]


class _Maker:
    def __init__(self, rng, tag):
        self.rng, self.tag, self.made = rng, tag, 0

    def tensor(self, nbytes):
        dtype = self.rng.choice(COMMON) if self.rng.random() < 0.6 else self.rng.choice(list(DTYPES))
        self.made += 1
        return {"dtype": dtype, "shape": shape(self.rng, nbytes // DTYPES[dtype]),
                "xof": "%s/%d" % (self.tag, self.made)}

    def scalar(self):
        r = self.rng
        return r.choice([r.randint(-40, 300), r.randint(-(2**53) + 1, 2**53 - 1), r.random() * 10 ** r.randint(-9, 9),
                         float(r.randint(-3, 3)), True, False])

    def data(self, nbytes):
        x = self.rng.random()
        if x < 0.70:
            return self.tensor(nbytes)
        if x < 0.80:  # one tensor per crop, frame or tile
            n = self.rng.randint(1, 6)
            return [self.tensor(nbytes // n) for _ in range(n)]
        if x < 0.88:
            return [self.scalar(), [self.tensor(nbytes // 2), [self.scalar(), self.tensor(nbytes // 2)]], []]
        if x < 0.94:
            return self.scalar()
        if x < 0.97:
            return None
        return [self.scalar() for _ in range(self.rng.choice([0, 1, 3, 15, 16, 40]))]

    def slice(self):
        r = self.rng
        a = r.choice([None, 0, r.randint(0, 70000)])
        return [a, r.choice([None, (a or 0) + r.randint(0, 5000)]), r.choice([None, None, 1, 2])]

    def field(self, keep):
        r = self.rng
        kind = r.choice(["batched", "batched", "flat", "shared"])
        f = {"kind": kind}
        if kind == "shared":
            f["batch_size"] = r.choice([1, 2, 128, 1000])
        elif kind == "flat":
            f["dim"] = r.choice([0, 0, 1, 2, -1])
            n = r.choice([0, 1, 2, 5, 40])
            if r.random() < 0.5:
                f["slices"] = [self.slice() for _ in range(n)]
            else:  # as flat_from_sizes makes them: whole slices for the dimensions in front
                f["slices"] = [[[None, None, None]] * max(0, f["dim"]) + [self.slice()] for _ in range(n)]
        if keep and r.random() < 0.2:
            f["keep_on_cpu"] = True
        return f

    def pickled(self, nbytes):
        r = self.rng
        raw = blake3(self.tag.encode()).digest(length=min(nbytes, 64 * KIB))
        return r.choice([raw, raw.hex()[:300], {"a": len(raw), "b": [1, None, raw[:20]], "c": (2.5, True)},
                         [raw[i:i + 7] for i in range(0, min(len(raw), 70), 7)], None, 2**70, "value"])


def value(seed, number, largest=8 * MIB, keep=True, bare=True):
    """The object `number` of the sequence `seed`, in the agent's form.

    keep: fields of this release have keep_on_cpu. bare: an item without fields can be built.
    """
    tag = "%s/%d" % (seed, number)
    rng = random.Random(tag)
    make = _Maker(rng, tag)
    total, x = size(rng, largest), rng.random()
    if x < 0.06:
        return {"type": "pickle", "hex": pickle.dumps(make.pickled(total), protocol=pickle.HIGHEST_PROTOCOL).hex()}
    if x < 0.16:
        return {"type": "tensor", "data": make.tensor(total)}
    fields = []
    names = rng.sample(NAMES, rng.choice([1, 1, 2, 3, 5] if not bare else [0, 1, 1, 2, 3, 5, 1, 2, 3]))
    rest = total
    for i, name in enumerate(names):
        part = rest if i == len(names) - 1 else rng.choice([0, min(1, rest), rest // 2, rng.randint(0, rest)])
        rest -= part
        fields.append({"name": name, "data": make.data(part), "field": make.field(keep)})
    return {"type": "item", "fields": fields}


def numel(dims):
    return math.prod(dims)


def nbytes(v):
    """Bytes of tensor data (or of the pickle) in a description."""
    def walk(d):
        if isinstance(d, dict):
            return numel(d["shape"]) * DTYPES[d["dtype"]]
        return sum(map(walk, d)) if isinstance(d, list) else 0
    if v["type"] == "pickle":
        return len(v["hex"]) // 2
    return walk(v["data"]) if v["type"] == "tensor" else sum(walk(f["data"]) for f in v["fields"])


# A canonical form, for comparing a description with what the agent says that it read. Types are kept apart on purpose:
# 1, 1.0 and True are equal in Python and not in a model's inputs.

def canonical_field(f):
    out = {"kind": f["kind"], "keep_on_cpu": bool(f.get("keep_on_cpu", False))}
    if f["kind"] == "shared":
        out["batch_size"] = f["batch_size"]
    if f["kind"] == "flat":
        out["dim"], out["slices"] = f.get("dim", 0), f["slices"]
    return out


def _described(d):
    if isinstance(d, dict):
        raw = content(d)
        return ["tensor", d["dtype"], d["shape"], hashlib.sha256(raw).hexdigest(), raw.hex() if len(raw) <= 256
                else None]
    if isinstance(d, list):
        return [_described(x) for x in d]
    return [type(d).__name__, d]


def _reported(d):
    if isinstance(d, dict):
        return ["tensor", d["dtype"], d["shape"], d["sha256"], d.get("hex")]
    if isinstance(d, list):
        return [_reported(x) for x in d]
    return [type(d).__name__, d]


def _canonical(v, leaf):
    if v["type"] == "pickle":
        return ["pickle", v["hex"]]
    if v["type"] == "tensor":
        return ["tensor", leaf(v["data"])]
    return ["item", [[f["name"], leaf(f["data"]), canonical_field(f["field"])] for f in v["fields"]]]


def expected(v):
    return _canonical(v, _described)


def reported(v):
    return _canonical(v, _reported)


def difference(v, reply):
    """None if the agent's reply is the described object, else a text that names the first difference."""
    try:
        want, got = expected(v), reported(reply)
    except (KeyError, TypeError) as e:
        return "reply has another form (%r): %.300s" % (e, reply)
    return None if want == got else first_difference(want, got)


def first_difference(want, got, at=""):
    if isinstance(want, list) and isinstance(got, list) and len(want) == len(got):
        for i, (w, g) in enumerate(zip(want, got)):
            if w != g:
                return first_difference(w, g, "%s[%d]" % (at, i))
    if isinstance(want, dict) and isinstance(got, dict) and want.keys() == got.keys():
        for k in want:
            if want[k] != got[k]:
                return first_difference(want[k], got[k], "%s.%s" % (at, k))
    return "at %s: want %.200r, got %.200r" % (at or "top", want, got)

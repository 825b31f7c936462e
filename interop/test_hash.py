"""The agent's `hash` against vLLM's own hasher, on random inputs and on real images, in every release that is there."""

import io
import json
import math
import os
import pathlib
import random
import struct
import subprocess
import sys

import pytest
from conftest import SCALE, _older, _own
from objects import DTYPES
from PIL import Image

HERE = pathlib.Path(__file__).resolve().parent
MEDIA = HERE.parent / "examples" / "media"
INPUTS = 8000  # of which at least EQUAL must have a hash; the rest is refused by both sides
EQUAL = 5000

NUMPY = {"|b1": 1, "|u1": 1, "|i1": 1, "<u2": 2, "<i2": 2, "<u4": 4, "<i4": 4, "<u8": 8, "<i8": 8, "<f2": 2, "<f4": 4,
         "<f8": 8,
         ">u2": 2, ">i4": 4, ">f8": 8, "<c8": 8, "<c16": 16, "<U2": 8, "|S3": 3, "<M8[ns]": 8, "<m8[s]": 8}
NO_SCALAR = {"<c8", "<c16", "<M8[ns]", "<m8[s]", "complex64"}  # their 0-d arrays are pickled
BITS = {"1": 1, "L": 8, "P": 8, "I": 32, "F": 32, "I;16": 16, "I;16B": 16, "LA": 16, "La": 16, "PA": 16, "RGB": 24,
        "YCbCr": 24, "LAB": 24,
        "HSV": 24, "RGBA": 32, "RGBa": 32, "RGBX": 32, "CMYK": 32}
LETTERS = "ab.0/_ \u00e9\u4e2d\U0001f600\ufffd\x00\""


class Draw:
    """Random calls. The seed alone decides on them."""

    def __init__(self, seed):
        self.r = random.Random(seed)

    def call(self):
        names = dict.fromkeys(self.text(5) or "x" for _ in range(self.r.randint(1, 4)))
        return [[name, self.value(3)] for name in names]

    def text(self, most):
        return "".join(self.r.choice(LETTERS) for _ in range(self.r.randint(0, most)))

    def value(self, depth):
        kinds = [self.str, self.bytes, self.int, self.float, self.bool, self.none, self.ndarray, self.tensor,
                 self.image]
        if self.r.random() < 0.1:
            kinds = [self.file, self.video]
        elif depth and self.r.random() < 0.35:
            return self.r.choice([self.list, self.map])(depth - 1)
        return self.r.choice(kinds)()

    def list(self, depth):
        return {"list": [self.value(depth) for _ in range(self.r.randint(0, 3))]}

    def map(self, depth):
        names = dict.fromkeys(self.text(4) for _ in range(self.r.randint(0, 3)))
        return {"map": [[name, self.value(depth)] for name in names]}

    def str(self):
        return {"str": self.text(40)}

    def bytes(self):
        return {"bytes": self.r.randbytes(self.r.choice([0, 1, 8, 40, 700])).hex()}

    def int(self):
        edges = [0, 1, -1, 255, 256, 2**31, -2**31, 2**63 - 1, -2**63, 2**63, 2**64 - 1]
        return {"int": str(self.r.choice([self.r.choice(edges), self.r.randint(-2**63, 2**64 - 1),
                                          self.r.randint(-9, 9)]))}

    def float(self):
        bits = struct.unpack("<d", self.r.randbytes(8))[0]
        x = self.r.choice([0.0, -0.0, 1.5, math.inf, -math.inf, math.nan, 5e-324, 1e308, self.r.random(), math.nan
                           if math.isnan(bits) else bits])
        return {"float": x.hex()}

    def bool(self):
        return {"bool": self.r.random() < 0.5}

    def none(self):
        return {"none": True}

    def shape(self, dtype):
        # Few without dimensions, and few of no elements: they are errors before 0.16.0, or all alike.
        if self.r.random() < 0.06 and dtype not in NO_SCALAR:
            return []
        return [self.r.choice([0, 1, 1, 2, 2, 3, 3, 4]) for _ in range(self.r.randint(1, 4))]

    def content(self, dtype, n):
        if dtype == "<U2":
            return b"".join(ord(self.r.choice(LETTERS)).to_bytes(4, "little") for _ in range(n // 4))
        raw = self.r.randbytes(n)
        return bytes(b & 1 for b in raw) if dtype in ("|b1", "bool") else raw

    def dense(self, sizes):
        dtype = self.r.choice(list(sizes))
        if dtype.startswith("float8") and self.r.random() < 0.8:
            dtype = "bfloat16"
        shape = self.shape(dtype)
        return {"dtype": dtype, "shape": shape, "hex": self.content(dtype, math.prod(shape) * sizes[dtype]).hex()}

    def ndarray(self):
        return {"ndarray": self.dense(NUMPY)}

    def tensor(self):
        return {"tensor": self.dense(DTYPES)}

    def image(self):
        mode, w, h = self.r.choice(list(BITS)), self.r.randint(1, 20), self.r.randint(1, 5)
        out = {"mode": mode, "size": [w, h], "hex": self.r.randbytes((w * BITS[mode] + 7) // 8 * h).hex()}
        if mode in ("P", "PA") and self.r.random() < 0.8:
            out["palette"] = self.r.randbytes(768).hex()
        return {"image": out}

    def file(self):
        out = {"kind": "image", "bytes": self.r.randbytes(self.r.choice([0, 5, 900])).hex()}
        if self.r.random() < 0.3:
            out["io_config"] = self.map(1)
        if self.r.random() < 0.1:
            out["exif_uuid"] = self.r.randbytes(16).hex()
        return {"media": out}

    def video(self):
        frames = {"dtype": "|u1", "shape": [2, 2, 2, 3], "hex": self.r.randbytes(24).hex()}
        return {"media": {"kind": "video", "bytes": self.r.randbytes(self.r.choice([0, 10, 23, 24, 25, 90])).hex(),
                          "frames": frames}}


def image_files():
    """Real photos, and what PIL makes of them: name -> the bytes of a file."""
    out = {}
    for path in sorted(MEDIA.glob("*.*")):
        if path.suffix not in (".png", ".jpg"):
            continue
        out[path.name] = path.read_bytes()
        small = Image.open(path).convert("RGB")
        small.thumbnail((200, 200))
        alpha = small.convert("RGBA")
        alpha.putalpha(small.convert("L"))
        deep = Image.frombytes("I;16", small.size,
                               b"".join((257 * p).to_bytes(2, "little") for p in small.convert("L").tobytes()))
        for kind, image, form, more in [
            ("grey", small.convert("L"), "JPEG", {}), ("cmyk", small.convert("CMYK"), "JPEG", {}),
            ("palette", small.quantize(256), "PNG", {}), ("few", small.quantize(5), "PNG", {}),
            ("clear", small.quantize(64), "PNG", {"transparency": 3}), ("gif", small, "GIF", {}),
            ("bits", small.convert("1"), "PNG", {}), ("16bit", deep, "PNG", {}), ("16tiff", deep, "TIFF", {}),
            ("alpha", alpha, "PNG", {}), ("la", alpha.convert("LA"), "PNG", {}),
            ("float", small.convert("F"), "TIFF", {}),
            ("int", small.convert("I"), "TIFF", {}), ("ycbcr", small.convert("YCbCr"), "TIFF", {}),
            ("webp", alpha, "WEBP", {}),
        ]:
            b = io.BytesIO()
            image.save(b, form, **more)
            out["%s of %s" % (kind, path.name)] = b.getvalue()
    return out


def pixels(image):
    """The agent's form of an image that PIL has loaded."""
    image.load()
    out = {"mode": image.mode, "size": list(image.size), "hex": image.tobytes().hex()}
    if image.palette is not None:
        assert type(image.palette.palette) is bytes and image.palette.rawmode is None
        out["palette"] = image.palette.palette.hex()
    return {"image": out}


def image_calls():
    """Calls with real images: one for the agent, one for the peer."""
    config = {"map": [["image_mode", {"str": "RGB"}], ["rgba_background_color", {"list": [{"int": "255"}] * 3}]]}
    model = ["model_id", {"str": "org/model"}]
    for data in image_files().values():
        image, h = Image.open(io.BytesIO(data)), data.hex()
        converted = {"io_config": config} if image.mode != "RGB" else {}
        yield [["image", pixels(image)], model], [["image", {"file": h, "form": "pixels"}], model]
        for more in ({}, {"io_config": config}):
            yield [model, ["image", {"media": {"kind": "image", "bytes": h, **more}}]], [model,
                ["image", {"file": h, "form": "media", **more}]]
        yield [model, ["image", {"media": {"kind": "image", "bytes": h, **converted}}]], [model,
            ["image", {"file": h, "form": "loaded"}]]


def upstream_hashes(release, calls, folder):
    path = "-" if release == _own() else os.path.join(sys.prefix, "releases", release)
    names = [str(folder / n) for n in ("inputs.json", "outputs.json")]
    (folder / "inputs.json").write_text(json.dumps(calls))
    subprocess.run([sys.executable, str(HERE / "hash_peer.py"), path, *names], check=True, cwd=HERE, timeout=600)
    got = json.loads((folder / "outputs.json").read_text())
    assert got["version"].split("+")[0] == release
    return got["algorithms"], got["hashes"]


class Comparison:
    def __init__(self, agent, release, algorithms):
        self.agent, self.release, self.algorithms = agent, release, algorithms
        self.equal = self.refused = self.hashes = 0

    def check(self, call, want, name):
        for algorithm in self.algorithms if "error" not in want else self.algorithms[:1]:
            fields = {"algorithm": algorithm, "kwargs": call, "generation": self.release}
            if "error" in want:
                e = self.agent.error("hash", **fields)
                assert e is not None and e.kind in ("unsupported", "invalid"), "%s: vLLM says %s\n%s" % (name,
                    want["error"], json.dumps(call)[:2000])
                self.refused += 1
                return
            got = self.agent.call("hash", **fields)["hex"]
            assert got == want[algorithm], "%s by %s\n%s" % (name, algorithm, json.dumps(call)[:2000])
            self.hashes += 1
        self.equal += 1


@pytest.mark.parametrize("release", [_own(), *_older()])
def test_same_hashes(release, agents, tmp_path, capsys):
    draw = Draw(20261121)
    randoms = [draw.call() for _ in range(max(200, int(INPUTS * SCALE)))]
    files = list(image_calls())
    algorithms, want = upstream_hashes(release, randoms + [theirs for _, theirs in files], tmp_path)
    random_part = Comparison(agents[0], release, algorithms)
    for i, call in enumerate(randoms):
        random_part.check(call, want[i], "input %d" % i)
    image_part = Comparison(agents[0], release, algorithms)
    absent = 0
    for (call, theirs), w in zip(files, want[len(randoms):]):
        if w.get("error", "").startswith("Absent: io_config"):
            absent += 1  # the release's loader has no io_config: there is nothing to compare
            continue
        image_part.check(call, w, "an image as %s" % json.dumps(theirs)[-200:])
    assert random_part.equal >= EQUAL * min(SCALE, 1)
    assert image_part.equal >= len(files) // 4 and len(algorithms) in (1, 3)
    with capsys.disabled():
        print("\nhash %s: %d random inputs equal, %d refused by both sides; %d calls with real images equal, %d refused by both sides, "
              "%d without a counterpart; %s: %d hashes, 0 differences" % (
                  release, random_part.equal, random_part.refused, image_part.equal, image_part.refused, absent,
                  "+".join(algorithms),
                  random_part.hashes + image_part.hashes))

"""Files of encoder outputs: vLLM's own connector and the real safetensors library on one side, packages encoder and tier/disk on the other.

The Go side is the program in encoder/, the connectors of each release are in a process of their own (encoder_peer.py).
"""

import base64
import ctypes
import json
import os
import random
import shutil
import struct
import subprocess
import sys

import pytest
import safetensors

from conftest import HERE, SCALE, _older, _own

FILES = int(1000 * SCALE)  # of random tensors, each way
DAMAGED = int(20000 * SCALE)
FILE = "encoder_cache.safetensors"

# torch's dtypes, their names in files, bytes of an element.
DTYPES = {
    "bool": ("BOOL", 1), "uint8": ("U8", 1), "int8": ("I8", 1), "uint16": ("U16", 2), "int16": ("I16", 2),
    "uint32": ("U32", 4), "int32": ("I32", 4),
    "uint64": ("U64", 8), "int64": ("I64", 8), "float16": ("F16", 2), "bfloat16": ("BF16", 2), "float32": ("F32", 4),
    "float64": ("F64", 8),
    "complex64": ("C64", 8), "float8_e4m3fn": ("F8_E4M3", 1), "float8_e5m2": ("F8_E5M2", 1),
    "float8_e4m3fnuz": ("F8_E4M3FNUZ", 1),
    "float8_e5m2fnuz": ("F8_E5M2FNUZ", 1), "float8_e8m0fnu": ("F8_E8M0", 1), "float4_e2m1fn_x2": ("F4", 1),
}


class Go:
    """The program in encoder/."""

    def __init__(self, path):
        self.process = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def call(self, op, **fields):
        self.process.stdin.write(json.dumps({"op": op, **fields}).encode() + b"\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, "the program ended with status %s" % self.process.wait(180)
        reply = json.loads(line)
        assert not reply.get("error"), "%s: %s" % (op, reply["error"])
        return reply

    def tensors(self, op, **fields):
        return self.call(op, **fields).get("tensors", [])

    def close(self):
        self.process.stdin.close()
        assert self.process.wait(180) == 0


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    if not shutil.which("go"):
        pytest.skip("no go on PATH to build the program with")
    path = str(tmp_path_factory.mktemp("encoder") / "encoder")
    subprocess.run(["go", "build", "-o", path, "./interop/encoder"], cwd=HERE.parent, check=True)
    return path


@pytest.fixture
def go(program, closing):
    g = Go(program)
    closing(g)
    return g


def b64(data):
    return base64.b64encode(data).decode()


def size_of(dtype, shape):
    n = DTYPES[dtype][1]
    for dim in shape:
        n *= dim
    return n


def in_file(dtype, shape):
    """Names and dimensions as files have them: two elements of four bits are one of torch's."""
    return DTYPES[dtype][0], shape[:-1] + [2 * shape[-1]] if dtype == "float4_e2m1fn_x2" else shape


def random_tensor(r, name):
    dtype = r.choice(list(DTYPES))
    shape = [r.choice([0, 1, 2, 3, 7]) for _ in range(r.randint(dtype == "float4_e2m1fn_x2", 4))]
    return {"name": name, "dtype": dtype, "shape": shape, "raw": r.randbytes(size_of(dtype, shape))}


def random_text(r):
    return "".join(r.choice("ab_.0\"\\/\b\f\n\r\t\x00\x1f\x7f\u00e9\u2028\u4e2d\U0001f600")
                   for _ in range(r.randint(0, 8)))


def real_file(tensors, metadata):
    """What the real library writes."""
    specs, keep = {}, []
    for t in tensors:
        raw = ctypes.create_string_buffer(t["raw"], len(t["raw"]))
        keep.append(raw)
        specs[t["name"]] = safetensors.TensorSpec(dtype=t["dtype"], shape=t["shape"], data_ptr=ctypes.addressof(raw),
                                                  data_len=len(t["raw"]))
    return bytes(safetensors.serialize(specs, metadata))


def real_tensors(file):
    """What the real library reads: {name: (dtype, shape, bytes)}, or None where it refuses."""
    try:
        return {name: (t["dtype"], t["shape"], bytes(t["data"])) for name, t in safetensors.deserialize(file)}
    except safetensors.SafetensorError:
        return None


def go_tensors(parsed, file):
    if parsed.get("error"):
        return None
    return {t["name"]: (t["dtype"], t["shape"] or [], file[t["offset"]:t["offset"] + t["size"]])
            for t in parsed["tensors"] or []}


def test_random_tensors(go):
    """Both write the same bytes for the same tensors, and both read them."""
    r = random.Random("tensors")
    seen = 0
    for n in range(FILES):
        tensors = [random_tensor(r, random_text(r) + str(i)) for i in range(r.randint(0, 6))]
        # The library writes the metadata in no order, so one text at most can be compared.
        metadata = r.choice([None, {}, {random_text(r): random_text(r)}])
        want = real_file(tensors, metadata)
        if not tensors and metadata == {}:
            assert real_tensors(want) is None, "the library can't read this one of its own: make it a case again"
            continue
        described = []
        for t in tensors:
            dtype, shape = in_file(t["dtype"], t["shape"])
            described.append({"name": t["name"], "dtype": dtype, "shape": shape})
        reply = go.call("header", metadata=metadata, tensors=described)
        raw = {t["name"]: t["raw"] for t in tensors}
        order = [t["name"] for t in reply.get("tensors", [])]
        got = base64.b64decode(reply["head"]) + b"".join(raw[name] for name in order)
        assert got == want, n
        parsed = go.call("parse", files=[b64(want)])["files"][0]
        assert go_tensors(parsed, want) == real_tensors(got), n
        assert {k: v[2] for k, v in real_tensors(got).items()} == raw
        assert parsed["metadata"] == metadata
        seen += len(tensors)
    assert seen > 2 * FILES


# Pieces that damaged headers are made of, besides those of the header itself.
PIECES = ["{", "}", "[", "]", ",", ":", " ", "\n", "null", "true", "-0", "0.0", "1e5", "1e308", "1.8e308",
          "179769313486231580793e289",
          "17976931348623158079e290", "0e99999999999", "1e-99999999999", "1e99999999999", "01", "18446744073709551615",
          "18446744073709551616",
          "2305843009213693952", "\"\"", "\"U8\"", "\"F4\"", "\"u8\"", "{\"U8\":null}", "\"__metadata__\":{}",
          "\"__metadata__\":null", "\"x\":[]",
          "\"dtype\":\"U8\"", "\"shape\":[]", "\"data_offsets\":[0,0]", "\"a\":[\"U8\",[],[0,1]]", "\"\\ud83d\\ude00\"",
          "\"\\ud800\"", "\"\\u0000\"", "\\",
          "\"", "\x00", "\x1f", "\ufeff", "[" * 125 + "]" * 125, "[" * 126 + "]" * 126, "{\"y\":" * 60 + "0" + "}" * 60]


def split(text):
    """The tokens of a header, roughly."""
    out, word = [], ""
    for c in text:
        if c in "{}[],: \n":
            out += [word, c] if word else [c]
            word = ""
        else:
            word += c
    return out + [word] if word else out


def random_number(r):
    return "%d%s%d%s" % (r.randint(-3, 10 ** r.randint(0, 320)), r.choice(["", "."]), r.randint(0, 10 ** 20),
                         r.choice(["", "e%d" % r.randint(-400, 400)]))


def largest_number(r):
    """A number near the largest that a float has, which the library does not round correctly."""
    digits = "%d" % (179769313486231580793728971 + r.randint(-10 ** r.randint(1, 13), 10 ** r.randint(1, 13)))
    digits = digits[:r.randint(15, len(digits))]
    point = r.randint(1, len(digits) - 1)
    if r.random() < 0.5:
        return "%s.%se%d" % (digits[:point], digits[point:], 309 - point)
    return "%se%d" % (digits, 309 - len(digits))


def damaged(r):
    """A file whose header is damaged in a few places. Bytes behind it are as many as before, or nearly."""
    tensors = [random_tensor(r, r.choice(["a", "b", "ec_cache", "__metadata_", "\u00e9"]) + str(i))
               for i in range(r.randint(0, 3))]
    file = real_file(tensors, r.choice([None, {}, {"k": "v", "\"": "\\"}]))
    n, = struct.unpack("<Q", file[:8])
    head, data = file[8:8 + n], file[8 + n:]
    kind = r.random()
    if kind < 0.3:  # bits
        head = bytearray(head)
        for _ in range(r.randint(1, 2)):
            head[r.randrange(len(head))] ^= 1 << r.randrange(8)
    elif kind < 0.8:  # tokens
        tokens = split(head.decode().rstrip())
        for _ in range(r.randint(1, 3)):
            i = r.randrange(len(tokens) + 1)
            what = r.random()
            if what < 0.3:
                tokens.insert(i, r.choice(PIECES))
            elif what < 0.5 and i < len(tokens):
                tokens[i] = r.choice(PIECES + tokens)
            elif what < 0.7:
                del tokens[i:i + r.randint(1, 2)]
            elif i < len(tokens):  # swap, or say twice
                j = r.randrange(len(tokens))
                tokens[i], tokens[j] = (tokens[j], tokens[i]) if what < 0.85 else (tokens[i], tokens[i])
                if what >= 0.85:
                    tokens[i:i] = tokens[max(0, j - 8):j] + [","]
        head = "".join(tokens).encode(errors="surrogatepass")
    elif kind < 0.9:  # another field, which anything may be in, often at the right place
        at = head.find(b"{\"dtype\"")
        if at >= 0:
            value = r.choice([r.choice(PIECES), random_number(r), largest_number(r)])
            head = head[:at + 1] + ("\"z\":%s," % value).encode() + head[at + 1:]
    else:
        data = data[:-1] if r.random() < 0.5 else data + b"\0"
    n = len(head) if r.random() < 0.95 else r.choice([0, max(0, len(head) - 1), len(head) + 1, len(head) + len(data),
                                                      10 ** 8 + 1, 2 ** 63, 2 ** 64 - 1])
    file = struct.pack("<Q", n) + bytes(head) + data
    return file[:r.randrange(len(file))] if r.random() < 0.02 else file


def test_damaged_headers(go):
    """Both accept and refuse the same files, and read the same out of those that they accept."""
    r = random.Random("damaged")
    accepted = refused = 0
    for _ in range(max(1, DAMAGED // 500)):
        files = [damaged(r) for _ in range(500)]
        parsed = go.call("parse", files=[b64(f) for f in files])["files"]
        for file, p in zip(files, parsed):
            want, got = real_tensors(file), go_tensors(p, file)
            if want and any(dim >= 1 << 63 for _, shape, _ in want.values() for dim in shape):
                assert got is None, "the one exception: no dimension that large"
                continue
            assert got == want, (file, p, want)
            accepted, refused = accepted + (want is not None), refused + (want is None)
    print("%d accepted, %d refused" % (accepted, refused))
    assert accepted > DAMAGED // 20 and refused > DAMAGED // 3


def tree_tensors(seed):
    """A tensor of each dtype, and shapes at the borders."""
    r = random.Random(seed)
    out = []
    for dtype in DTYPES:
        out.append((dtype, [r.randint(1, 5), r.randint(1, 40)]))
    out += [("bfloat16", [0, 4]), ("float32", [7]), ("bfloat16", [256, 5376]), ("float16", [1, 1, 3])]
    made = []
    for i, (dtype, shape) in enumerate(out):
        raw = r.randbytes(size_of(dtype, shape))
        if dtype == "bool":
            raw = bytes(b & 1 for b in raw)
        made.append({"name": "%s-%d:%s" % (seed, i, dtype), "dtype": dtype, "shape": shape, "hex": raw.hex()})
    return made


def as_go(t):
    return {"name": t["name"], "dtype": t["dtype"], "shape": t["shape"], "data": b64(bytes.fromhex(t["hex"]))}


def as_hex(t):
    """A tensor that Go has loaded."""
    assert not t.get("error"), t
    return {"name": t["name"], "dtype": t["dtype"], "shape": t["shape"] or [],
            "hex": base64.b64decode(t.get("data", "")).hex()}


def releases():
    """0.11.0 has no such connector, 0.11.2 and 0.12.0 have it by another name."""
    some = {_own(), "0.13.0", "0.11.2"}
    return [v for v in [_own(), *_older()] if v in some or SCALE > 1 and v != "0.11.0"]


class Peer:
    """A connector's process. The tests start all before they wait for the first."""

    def __init__(self, version, tmp, job):
        path = "-" if version == _own() else os.path.join(sys.prefix, "releases", version)
        self.result = tmp / "result.json"
        (tmp / "job.json").write_text(json.dumps(job))
        command = [sys.executable, str(HERE / "encoder_peer.py"), path, str(tmp / "job.json"), str(self.result)]
        self.process = subprocess.Popen(command, cwd=HERE, stdout=subprocess.DEVNULL)

    def wait(self):
        assert self.process.wait(600) == 0
        return json.loads(self.result.read_text())

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(180)


def test_connectors(program, tmp_path, closing):
    """In a folder that both have open, connectors load what Go saved and Go loads what connectors saved."""
    runs = []
    for version in releases():
        tmp = tmp_path / version
        folder = tmp / "tree"
        folder.mkdir(parents=True)
        go = Go(program)
        closing(go)
        go.call("open", level="tree", folder=str(folder), tree=True)
        ours, theirs = tree_tensors("go" + version), tree_tensors("py" + version)
        assert not any(t.get("error") for t in go.tensors("save", level="tree", tensors=[as_go(t) for t in ours]))
        foreign = damage(folder, ours[0])
        job = {"folder": str(folder), "load": [t["name"] for t in ours] + [n for n, _ in foreign],
               "has": ["looked", ours[0]["name"], "torn"], "save": theirs}
        peer = Peer(version, tmp, job)
        closing(peer)
        runs.append((version, folder, go, ours, theirs, foreign, peer))
    counts = []
    for version, folder, go, ours, theirs, foreign, peer in runs:
        out = peer.wait()
        loaded = out["load"]
        # The connector loads what Go saved.
        for want, got in zip(ours, loaded):
            assert got == want, version
        # What it does not load is a miss here, and what it loads is either an object or left alone.
        answers = {t["name"]: t for t in go.tensors("load", level="tree", names=[n for n, _ in foreign])}
        for (name, loads), got in zip(foreign, loaded[len(ours):]):
            assert (loads == "loads") == ("error" not in got), (version, name, got)
            if "error" in got:
                assert answers[name]["error"] in ("not found", "corrupt"), (version, name)
        # Some releases make a folder when they look for a file; such a folder is no object.
        assert out["has"] == [False, True, True]
        print(version, out["connector"], "a lookup makes a folder:", out["folders"][0])
        miss, = go.tensors("load", level="tree", names=["looked"])
        assert miss["error"] == "not found"
        # Go loads what the connector saved, while its level is open, and after a restart.
        assert not any(t.get("error") for t in out["save"]), out["save"]
        names = [t["name"] for t in theirs]
        assert [as_hex(t) for t in go.tensors("load", level="tree", names=names)] == theirs
        go.call("close", level="tree")
        go.call("open", level="tree", folder=str(folder), tree=True)
        listed = {t["name"] for t in go.tensors("list", level="tree")}
        assert {t["name"] for t in ours + theirs} <= listed
        assert [as_hex(t) for t in go.tensors("load", level="tree", names=names)] == theirs
        # Without metadata, Go writes the very files.
        assert_same_files(go, folder, theirs)
        assert_import_and_export(go, folder, ours, theirs)
        counts.append((version, len(ours), len(theirs)))
    print(counts)


def damage(folder, good):
    """Files that no connector wrote. Returns their names and whether a connector loads them."""
    source = (folder / good["name"] / FILE).read_bytes()
    n, = struct.unpack("<Q", source[:8])
    bare = b"{\"ec_cache\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}"
    two = b"{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},\"ec_cache\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[4,8]}}"

    def pack(head, data):
        return struct.pack("<Q", len(head)) + head + data

    out = []
    for name, content, loads in (
            ("torn", source[:n + 4], "raises"), ("zero", b"", "raises"), ("short", source[:-1], "raises"),
            ("long", source + b"\0", "raises"),
            ("zeros", bytes(len(source)), "raises"), ("unpadded", pack(bare, b"1234"), "loads"),
            ("two", pack(two, b"12345678"), "loads"),
            ("renamed", pack(bare.replace(b"ec_cache", b"kv_cache"), b"1234"), "raises")):
        (folder / name).mkdir()
        (folder / name / FILE).write_bytes(content)
        out.append((name, loads))
    (folder / "temporary").mkdir()
    (folder / "temporary" / ".tmpAbCdEf").write_bytes(source)
    out.append(("temporary", "raises"))
    return out


def assert_same_files(go, folder, theirs):
    plain = folder.parent / "plain"
    go.call("open", level="plain", folder=str(plain), tree=True, plain=True)
    go.tensors("save", level="plain", tensors=[as_go(t) for t in theirs])
    go.call("close", level="plain")
    for t in theirs:
        ours, stock = plain / t["name"] / FILE, folder / t["name"] / FILE
        assert ours.read_bytes() == stock.read_bytes(), t["name"]
        assert ours.stat().st_mode == stock.stat().st_mode, t["name"]


def assert_import_and_export(go, folder, ours, theirs):
    """Through a level of another layout and out again, the connector's files are the same."""
    go.call("open", level="native", folder=str(folder.parent / "native"))
    good = {t["name"] for t in ours + theirs}
    got = {t["name"]: t.get("error") for t in go.tensors("import", level="native", folder=str(folder))}
    assert {n for n, error in got.items() if not error} == good | {"unpadded"}
    assert got["two"] == got["renamed"] == "invalid" and got["torn"] == got["zero"] == "corrupt" and not got.keys() & {"looked", "temporary"}
    assert [as_hex(t) for t in go.tensors("load", level="native", names=[t["name"] for t in theirs])] == theirs
    out = folder.parent / "out"
    got = {t["name"]: t.get("error") for t in go.tensors("export", level="native", folder=str(out), plain=True)}
    assert not any(got.values()) and good <= got.keys()
    for t in theirs:
        assert (out / t["name"] / FILE).read_bytes() == (folder / t["name"] / FILE).read_bytes(), t["name"]
    assert {t.get("error") for t in go.tensors("export", level="native", folder=str(out), plain=True)} == {"exists"}
    go.call("close", level="native")

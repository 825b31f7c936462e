from __future__ import annotations

import pickle
import random

import build
import pytest

from ringcache import CorruptError
from ringcache.metadata import ITEM, PICKLE, TENSOR, Metadata, _Scan, parse


def read(data: bytes, room: int = 1 << 32) -> Metadata:
    return parse(_Padded(data, room))  # type: ignore[arg-type]


class _Padded:
    """Bytes with so much room behind them, without the memory."""

    def __init__(self, data: bytes, room: int) -> None:
        self.data, self.room = data, room

    def __len__(self) -> int:
        return len(self.data) + self.room

    def __getitem__(self, at: slice | int) -> bytes | int:
        if (at.stop if isinstance(at, slice) else at + 1) > len(self.data):
            raise CorruptError("past the vector")
        return self.data[at]


@pytest.mark.parametrize(
    ("text", "want"),
    [
        (
            "80059526000000000000008c144d756c74694d6f64616c4b77617267734974656d944d30025d9428"
            "4b304d00026587942e",
            (ITEM, 560, (48, 512)),
        ),
        (
            "80059521000000000000008c144d756c74694d6f64616c4b77617267734974656d944b035d944b03"
            "6187942e",
            (ITEM, 3, (3,)),
        ),
        (
            "8005951c000000000000008c0654656e736f72944a701101005d94284b184a581101006587942e",
            (TENSOR, 70000, (24, 69976)),
        ),
        ("8005950e000000000000008c056279746573944b154e87942e", (PICKLE, 21, None)),
        (
            "8005952c000000000000008c144d756c74694d6f64616c4b77617267734974656d948a0505000080"
            "005d94284b644aa1ffff7f6587942e",
            (ITEM, 2147483653, (100, 2147483553)),
        ),
        (
            "8002288c144d756c74694d6f64616c4b77617267734974656d4a300200005d284b304a0002000065742e",
            (ITEM, 560, (48, 512)),
        ),
        (
            "8002288c144d756c74694d6f64616c4b77617267734974656d4b035d284b0365742e",
            (ITEM, 3, (3,)),
        ),
    ],
)
def test_vectors(text: str, want: tuple[str, int, tuple[int, ...] | None]) -> None:
    data = bytes.fromhex(text)
    assert read(data) == Metadata(*want, end=len(data))


@pytest.mark.parametrize("n", [0, 1, 2, 999, 1000, 1001, 2001, 22_000, 30_000, 70_000])
def test_agrees_with_pickle(n: int) -> None:
    """Also beyond 64 KiB, where Python starts another frame."""
    lengths = [(i * 37) % (70_000 if n < 50_000 else 300) for i in range(n)]
    lengths[:1] = [7 * n] * min(n, 1)  # a document that can name the others
    data = pickle.dumps((ITEM, sum(lengths), lengths), 5)
    assert read(data) == Metadata(ITEM, sum(lengths), tuple(lengths), len(data))
    if not lengths:  # there is always a document, so Rust has no form for none
        return
    rust = build.rust_metadata(ITEM, lengths)
    assert pickle.loads(rust) == (ITEM, sum(lengths), lengths)
    assert read(rust) == Metadata(ITEM, sum(lengths), tuple(lengths), len(rust))


@pytest.mark.parametrize(
    "value",
    [
        (ITEM, 3, None),
        (PICKLE, 3, [3]),
        (ITEM, 4, [3]),
        (ITEM, -1, [-1]),
        (ITEM, 1 << 64, [1 << 64]),
        (ITEM, 3.0, [3]),
        (ITEM, True, [1]),
        (ITEM, 3, (3,)),
        (ITEM, 3, [3], 1),
        (ITEM, 3),
        [ITEM, 3, [3]],
        ("Parameter", 3, [3]),
        ("x" * 300, 3, [3]),
        (b"Tensor", 3, [3]),
        (print, 3, [3]),
        {},
        None,
    ],
)
@pytest.mark.parametrize("protocol", range(6))
def test_refuses(value: object, protocol: int) -> None:
    with pytest.raises(CorruptError):
        read(pickle.dumps(value, protocol))


def test_unsupported_type_text() -> None:
    with pytest.raises(CorruptError, match=r"^Unsupported object type 'Parameter' in metadata$"):
        read(pickle.dumps(("Parameter", 3, [3]), 5))


def test_never_calls() -> None:
    class Evil:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return print, ("called",)

    for protocol in range(6):
        with pytest.raises(CorruptError):
            read(pickle.dumps((Evil(), 3, [3]), protocol))


def test_data_must_fit() -> None:
    data = pickle.dumps((ITEM, 3, [3]), 5)
    assert parse(memoryview(data + bytes(3))).nbytes == 3
    with pytest.raises(CorruptError, match="2 are there"):
        parse(memoryview(data + bytes(2)))


def test_damage() -> None:
    """Every truncation, every flipped bit: the same answer as pickle or an error."""
    rnd = random.Random(1)
    for data in (
        pickle.dumps((ITEM, 560, [48, 512]), 5),
        pickle.dumps((PICKLE, 21, None), 5),
        build.rust_metadata(ITEM, [48, 512]),
    ):
        for end in range(len(data)):
            with pytest.raises(CorruptError):
                parse(memoryview(data[:end]))
        for at in range(8 * len(data)):
            damaged = bytearray(data)
            damaged[at // 8] ^= 1 << at % 8
            try:
                got = read(bytes(damaged))
            except CorruptError:
                continue
            assert pickle.loads(damaged)[1] == got.nbytes
        for _ in range(3000):
            damaged = bytearray(data)
            for _ in range(rnd.randint(1, 5)):
                damaged[rnd.randrange(len(damaged))] = rnd.randrange(256)
            try:
                read(bytes(damaged), room=4096)
            except CorruptError:
                pass


def hostile(n: int, first: int) -> dict[str, bytes]:
    """``n`` bytes of frame lengths of 0 behind the first, in every form."""
    name = b"\x8c\x14MultiModalKwargsItem"
    python, rust = b"\x80\x05\x95" + (n + 200).to_bytes(8, "little") + name + b"\x94", b"\x80\x02\x28" + name
    size = bytes([0x4B, first])
    return {
        "python": python + size + b"\x5d\x94\x28" + size + b"\x4b\x00" * (n // 2) + bytes(n + 400),
        "rust": rust + size + b"\x5d\x28" + size + b"\x4b\x00" * (n // 2) + b"\x65\x74\x2e" + bytes(400),
        "appends": rust + size + b"\x5d" + size + b"\x61" + b"\x4b\x00\x61" * (n // 3) + bytes(400),
    }


@pytest.fixture
def integers(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What was parsed: the work, whatever the time it takes."""
    seen: list[int] = []
    parse_one = _Scan.integer

    def counting(self: _Scan, opcode: int) -> int:
        seen.append(opcode)
        assert len(seen) < 100_000, "the list is read to its end"
        return parse_one(self, opcode)

    monkeypatch.setattr(_Scan, "integer", counting)
    return seen


@pytest.mark.parametrize("form", ["python", "rust", "appends"])
@pytest.mark.parametrize("first", [0, 1, 200])
def test_more_frames_than_the_document_can_name(
    integers: list[int], form: str, first: int
) -> None:
    """A list that is too long is refused as soon as it is."""
    with pytest.raises(CorruptError, match="more than the document can name"):
        parse(memoryview(hostile(1 << 20, first)[form]))
    assert len(integers) <= 2 + first // 7


def test_the_document_must_be_there(integers: list[int]) -> None:
    """One that could name so many frames, but that is only declared."""
    lengths = [1 << 22] + [0] * (1 << 18)
    data = pickle.dumps((ITEM, 1 << 22, lengths), 5)
    with pytest.raises(CorruptError, match="are there"):
        parse(memoryview(data))
    assert len(integers) == 1
    del integers[:]
    with pytest.raises(CorruptError, match="at most"):
        read(pickle.dumps((ITEM, 1 << 40, [1 << 40, *[0] * (1 << 18)]), 5), room=1 << 41)
    assert len(integers) == 2


@pytest.mark.parametrize("form", ["python", "rust"])
def test_empty_batches(form: str) -> None:
    """They add nothing, so any number of them could follow each other."""
    batches = b"\x28\x65" * 1000
    if form == "python":
        body = b"\x8c\x06Tensor\x94\x4b\x1e\x5d\x94\x28\x4b\x1e\x65" + batches + b"\x87\x94\x2e"
        data = b"\x80\x05\x95" + len(body).to_bytes(8, "little") + body
    else:
        data = b"\x80\x02\x28\x8c\x06Tensor\x4b\x1e\x5d\x28\x4b\x1e\x65" + batches + b"\x74\x2e"
    with pytest.raises(CorruptError, match="0x65"):
        parse(memoryview(data + bytes(30)))

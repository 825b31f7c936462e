from __future__ import annotations

import pickle
import random

import build
import pytest

from ringcache import CorruptError
from ringcache.metadata import ITEM, PICKLE, TENSOR, Metadata, parse


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
    data = pickle.dumps((ITEM, sum(lengths), lengths), 5)
    assert read(data) == Metadata(ITEM, sum(lengths), tuple(lengths), len(data))
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

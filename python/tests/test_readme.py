"""The examples of the README run, one after the other, with a daemon and with a segment of vLLM's form."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import sys
import types
from collections.abc import Iterator
from typing import Any

import build
import pytest
from conftest import MakeSegment
from examples import Example, examples
from test_daemon import Daemon, eventually, real  # noqa: F401

from ringcache import Client

KEY = "k" * 64
SIZE = 4096
TORCH = importlib.util.find_spec("torch") is not None


@pytest.fixture
def names(
    real: Daemon,  # noqa: F811
    make_segment: MakeSegment,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[dict[str, Any]]:
    """What the page says that there is."""
    monkeypatch.setenv("RINGCACHE_SOCKET", real.socket)
    # A machine may be much slower than the page's readers'.
    assert Client.__init__.__kwdefaults__ is not None
    monkeypatch.setitem(Client.__init__.__kwdefaults__, "timeout", 300.0)
    with Client(client="test") as client:
        eventually(client.hello)
    item = build.frames({"pixel_values": build.elem(build.u8(1024, 1))}, bytes(1024))
    module = types.ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", module)
    module.__dict__.update(
        name=make_segment(build.segment(SIZE, {0: build.chunk(5, build.body(build.ITEM, item))})),
        size=SIZE,
        frames=build.address_frames(KEY, 0, 5),
        key=KEY,
    )
    yield module.__dict__


def execute(example: Example, names: dict[str, Any]) -> None:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile("\n" * (example.line - 1) + example.code, "README.md", "exec"), names)
    assert out.getvalue().splitlines() == example.printed, f"README.md, line {example.line}"


def test_examples(names: dict[str, Any]) -> None:
    ran = [example for example in examples() if not example.torch]
    assert len(ran) >= 7
    for example in ran:
        execute(example, names)


@pytest.mark.skipif(not TORCH, reason="torch is not installed")
def test_examples_with_torch(names: dict[str, Any]) -> None:
    ran = [example for example in examples() if not example.gpu]
    assert len(ran) >= 8
    for example in ran:
        execute(example, names)


def test_examples_with_a_gpu(names: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    for example in examples():
        execute(example, names)


def test_an_example_that_prints_something_else_is_noticed() -> None:
    for code in ("print(1)  # 2\n", "print(1)\n", "x = 1\nprint('a', x)  # a 2\n"):
        with pytest.raises(AssertionError):
            execute(Example(1, code), {})
    execute(Example(1, "print('a')  # a\n"), {})

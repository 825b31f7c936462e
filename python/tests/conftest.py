"""Fixtures: segments that are always removed, and a count of golden cases."""

from __future__ import annotations

import collections
import json
import os
import pathlib
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import build
import pytest

GOLDEN = pathlib.Path(__file__).resolve().parents[2] / "testdata" / "golden"
MakeSegment = Callable[[bytes], str]

_checked: collections.Counter[str] = collections.Counter()


def golden_files(section: str) -> list[pathlib.Path]:
    """The files of a section; a missing directory fails where it is used."""
    return sorted(GOLDEN.glob(f"{section}.*.json"))


def golden_data(path: pathlib.Path) -> Any:
    return json.loads(path.read_text())["data"]


def golden_release(path: pathlib.Path) -> str:
    """The oldest of the releases that share the file."""
    release: str = json.loads(path.read_text())["releases"][0]
    return release


@pytest.fixture
def checked(request: pytest.FixtureRequest) -> Iterator[Callable[[str], None]]:
    """Counts golden cases; a test that uses it and counts none fails."""
    before = _checked.total()

    def count(what: str) -> None:
        _checked[what] += 1

    yield count
    assert _checked.total() > before, f"{request.node.name} checked no golden case"


@pytest.fixture
def make_segment() -> Iterator[MakeSegment]:
    """Creates segments with given bytes; they are gone after the test."""
    made: list[str] = []

    def make(data: bytes) -> str:
        name = f"ringcache-test-{uuid.uuid4()}"
        fd = os.open(f"/dev/shm/{name}", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        made.append(name)
        with open(fd, "wb") as file:
            file.write(data)
        return name

    yield make
    for name in made:
        pathlib.Path("/dev/shm", name).unlink(missing_ok=True)
        pathlib.Path("/dev/shm", name + ".ctl").unlink(missing_ok=True)


def make_sidecar(name: str, ring: int, **fields: Any) -> pathlib.Path:
    """Puts a sidecar beside a segment of make_segment, which also removes it."""
    info = os.stat(f"/dev/shm/{name}")
    file = pathlib.Path("/dev/shm", name + ".ctl")
    data = build.sidecar(fields.pop("identity", (info.st_dev, info.st_ino)), ring, **fields)
    with open(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as f:
        f.write(data)
    return file


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _checked:
        terminalreporter.section("golden cases checked")
        for what, n in sorted(_checked.items()):
            terminalreporter.write_line(f"{n:6d}  {what}")
        terminalreporter.write_line(f"{_checked.total():6d}  in all")


def pytest_collection_modifyitems(session: pytest.Session, items: list[pytest.Item]) -> None:
    wants = any("checked" in getattr(item, "fixturenames", ()) for item in items)
    if wants and not golden_files("serde"):
        raise pytest.UsageError(f"no golden files in {GOLDEN}")

"""Fixtures: segments that are always removed, the Go library's writer, a fake CUDA driver, and a
count of golden cases."""

from __future__ import annotations

import collections
import json
import os
import pathlib
import shutil
import subprocess
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import build
import fakecuda
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "testdata" / "golden"
RING = 1 << 20  # of the agent's pool
OBJECT = 10_000  # bytes of a tensor that it puts
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


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> str:
    """RINGCACHE_AGENT, or else the program of these sources."""
    if path := os.environ.get("RINGCACHE_AGENT"):
        return path
    go = shutil.which("go")
    if go is None or not (ROOT / "go.mod").exists():
        pytest.skip("no Go compiler, or not in the repository: the real writer is not tested")
    out = str(tmp_path_factory.mktemp("bin") / "ringcache")
    made = subprocess.run(
        [go, "build", "-o", out, "./cmd/ringcache"], cwd=ROOT, capture_output=True, text=True
    )
    if made.returncode != 0:
        pytest.skip(f"the program ringcache can't be built: {made.stderr.strip()[-500:]}")
    return out


class Agent:
    """docs/agent.md"""

    def __init__(self, program: str) -> None:
        self.process = subprocess.Popen(
            [program, "agent"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def __call__(self, op: str, **fields: Any) -> dict[str, Any]:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(json.dumps({"op": op, "store": "s", **fields}).encode() + b"\n")
        self.process.stdin.flush()
        reply: dict[str, Any] = json.loads(self.process.stdout.readline())
        assert reply.pop("ok"), reply
        return reply

    def put(self, key: str, fill: int, size: int = OBJECT) -> tuple[int, int, str, list[int]]:
        """Put an object for a request that has finished when this returns; its handle."""
        data = {"dtype": "uint8", "shape": [size], "hex": (bytes([fill]) * size).hex()}
        self("store.begin", request=key)
        at = self("store.put", key=key, request=key, value={"type": "tensor", "data": data})
        self("store.commit", request=key)
        self("store.finish", request=key)
        return at["address"], at["id"], key, list(bytes.fromhex(at["signature"]))

    def evict(self, key: str) -> bool:
        evicted: bool = self("store.evict", key=key)["evicted"]
        return evicted


@pytest.fixture
def agent(program: str) -> Iterator[Agent]:
    a = Agent(program)
    try:
        yield a
        assert a.process.stdin and a.process.stdout
        a.process.stdin.close()
        assert a.process.wait(300) == 0
    finally:
        a.process.kill()
        a.process.wait()


@pytest.fixture
def pool(agent: Agent) -> str:
    """A store of the policy pool; the agent removes it at its end."""
    name = f"ringcache-test-{uuid.uuid4()}"
    agent(
        "store.create", name=name, size=RING, max_object=RING, readers=2, policy="pool", owner="o"
    )
    return name


@pytest.fixture(scope="session")
def fake_libraries(tmp_path_factory: pytest.TempPathFactory) -> list[pathlib.Path]:
    """The fake driver, compiled; a test after a failed one takes a copy, which is a new one."""
    source = ROOT / "pin" / "cuda" / "testdata" / "driver" / "driver.c"
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None or not source.exists():
        pytest.skip("no C compiler, or not in the repository: there is no fake CUDA driver")
    out = tmp_path_factory.mktemp("fake") / "libcuda.so.1"
    made = subprocess.run(
        [compiler, "-shared", "-fPIC", "-pthread", "-o", out, source],
        capture_output=True,
        text=True,
    )
    assert made.returncode == 0, made.stderr
    return [out]


@pytest.fixture
def cuda(
    fake_libraries: list[pathlib.Path], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[fakecuda.Fake]:
    """The fake driver in the place of the real one. A test that leaves anything in it fails."""
    library = fake_libraries[-1]
    monkeypatch.setenv("RINGCACHE_CUDA_LIBRARY", str(library))
    fake = fakecuda.Fake(str(library))
    fake.reset()
    yield fake
    fake.hold(False)
    try:
        fake.check()
    except AssertionError:
        fake_libraries.append(tmp_path / "libcuda.so.1")
        shutil.copy(library, fake_libraries[-1])
        raise


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

"""What type checkers see of the package as it is installed."""

from __future__ import annotations

import ast
import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig

import pytest
from conftest import ROOT
from examples import examples

pytest.importorskip("mypy", reason="mypy is not installed")

PACKAGE = ROOT / "python" / "src" / "ringcache"

# What the README says that there is.
GIVEN = "name: str = ''\nsize: int = 0\nframes: list[bytes] = []\nkey: str = ''\n"

PROGRAM = """
from ringcache import Client, Fingerprint, Lease, Pinned, Reader, Reservation, Tensor
from ringcache.aio import AsyncClient, AsyncLease
from ringcache.daemon import Item, Items, Level, State


def read(lease: Lease, name: str) -> bytes | None:
    found: Pinned | None = lease.pin(name, wait=1)
    return None if found is None else bytes(found.view)


def write(lease: Lease, name: str, data: bytes) -> bool:
    room: Reservation | None = lease.reserve(name, len(data), note=b"mine", tenant="t")
    if room is None:
        return False
    with room:
        room.write(data)
    return True


async def both(lease: AsyncLease) -> list[Pinned | None]:
    return await lease.pin_all(["a", "b"], prefix=True)


def levels(client: Client) -> dict[str, int]:
    state: State = client.stat()
    items: Items = client.find(["a"])
    item: Item = items[0]
    first: Level = state.levels[0]
    return {first.name: first.objects, item.status: len(item.levels)}


client = Client("/run/s", client="x", fingerprint=Fingerprint(model="m", dtype="d"), timeout=0.5)
asynchronous = AsyncClient("/run/s", client="x", space="s")
with client.lease("name", seconds=5) as lease:
    lease.check()
with Reader("name", 4096) as reader, reader.get(1, 2) as view:
    tensor: Tensor = view.tensor
"""

# Each line is a mistake.
MISTAKES = """
import ringcache.aio
client = ringcache.Client("/run/s")
lease = ringcache.Client("/run/s", client="x").lease()
lease.pin(5)
lease.pin("a").view
lease.put("a", 5)
lease.pins
lease.reserve("a").commit()
ringcache.Reader("a", "b")
x: int = ringcache.Reader("a", 1).get(1, 2).tensor
ringcache.aio.AsyncClient(client="x", space="s").lease().pin("a").view
ringcache.nothing
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An environment in which the package is installed, beside what is in this one."""
    folder = tmp_path_factory.mktemp("env")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    packages = next(folder.glob("lib/python*/site-packages"))
    shutil.copytree(PACKAGE, packages / "ringcache", ignore=shutil.ignore_patterns("__pycache__"))
    (packages / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return str(folder / "bin" / "python")


def mypy(python: str, folder: pathlib.Path, program: str) -> list[str]:
    """The errors."""
    file = folder / "program.py"
    file.write_text(program)
    cache = pathlib.Path(python).parents[1] / "mypy"  # of all programs
    options = ["--strict", "--config-file=", "--no-error-summary", "--python-executable", python]
    made = subprocess.run(
        [sys.executable, "-m", "mypy", *options, "--cache-dir", cache, file],
        cwd=folder,
        env={
            name: value
            for name, value in os.environ.items()
            if name not in ("MYPYPATH", "PYTHONPATH")
        },
        capture_output=True,
        text=True,
    )
    assert made.returncode in (0, 1), made.stderr
    return made.stdout.splitlines()


def test_a_users_program_is_typed(python: str, tmp_path: pathlib.Path) -> None:
    assert mypy(python, tmp_path, PROGRAM) == []


def test_the_readme_is_typed(python: str, tmp_path: pathlib.Path) -> None:
    # Without torch the checker knows nothing of it, and says that.
    program = GIVEN + "".join(example.code for example in examples() if not example.torch)
    assert mypy(python, tmp_path, program) == []


def test_mistakes_are_noticed(python: str, tmp_path: pathlib.Path) -> None:
    found = [line for line in mypy(python, tmp_path, MISTAKES) if ": error: " in line]
    lines = {int(line.split(":")[1]) for line in found}
    wrong = [
        n
        for n, line in enumerate(MISTAKES.splitlines(), 1)
        if line and "import" not in line and not line.startswith("lease =")
    ]
    assert lines == set(wrong), "\n".join(found)


@pytest.mark.parametrize(
    "file", sorted(PACKAGE.rglob("*.py")), ids=lambda file: str(file.relative_to(PACKAGE))
)
def test_public_attributes_say_their_types(file: pathlib.Path) -> None:
    """Checkers infer types of others differently. A parameter's type is its attribute's, too."""
    if any(
        part.startswith("_") and part != "__init__.py" for part in file.relative_to(PACKAGE).parts
    ):
        return
    for cls in ast.walk(ast.parse(file.read_text())):
        if not isinstance(cls, ast.ClassDef) or cls.name.startswith("_"):
            continue
        said = {
            node.target.attr
            for node in ast.walk(cls)
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Attribute)
        }
        for node in ast.walk(cls):
            if not isinstance(node, ast.Assign) or isinstance(node.value, ast.Name):
                continue
            for target in node.targets:
                if (
                    isinstance(target, ast.Attribute)
                    and ast.unparse(target.value) == "self"
                    and not target.attr.startswith("_")
                ):
                    assert target.attr in said, f"{file.name}:{node.lineno}: {ast.unparse(node)}"

"""What wheels contain: the command of one processor, or a program that explains where the command comes from."""

from __future__ import annotations

import pathlib
import shutil
import struct
import subprocess
import sys
import zipfile

import pytest

pytest.importorskip("hatchling")

PROJECT = pathlib.Path(__file__).resolve().parents[1]
VERSION = "1.2.3"


def program(machine: int, kind: int = 1) -> bytes:
    """An ELF file with one program header; kind 1 is PT_LOAD, 3 is PT_INTERP."""
    head = b"\x7fELF\x02\x01\x01".ljust(16, b"\0") + struct.pack("<HHIQQQIHHHHHH", 2, machine, 1, 0, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    return head + struct.pack("<IIQQQQQQ", kind, 5, 0, 0, 0, 0, 0, 4096)


def build(tmp_path: pathlib.Path, binary: bytes | None = None) -> tuple[zipfile.ZipFile, pathlib.Path]:
    """Builds a wheel of a copy without git, as scripts/release/wheel.sh does."""
    project = tmp_path / "project"
    shutil.copytree(PROJECT, project, ignore=shutil.ignore_patterns("tests", "__pycache__", ".*_cache", "dist"))
    for name in ("LICENSE", "NOTICE"):
        shutil.copy(PROJECT.parent / name, project)
    environment = {"PATH": "/usr/bin:/bin", "SOURCE_DATE_EPOCH": "1700000000",
                   "SETUPTOOLS_SCM_PRETEND_VERSION_FOR_RINGCACHE": VERSION}
    if binary is not None:
        (tmp_path / "ringcache").write_bytes(binary)
        (tmp_path / "ringcache").chmod(0o755)
        (project / "THIRD_PARTY_LICENSES").write_text("of others")
        environment["RINGCACHE_BINARY"] = str(tmp_path / "ringcache")
    done = subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "dist")],
                          cwd=project, env=environment, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr)
    (wheel,) = (tmp_path / "dist").iterdir()
    return zipfile.ZipFile(wheel), wheel


@pytest.mark.parametrize(("machine", "name"), [(62, "x86_64"), (183, "aarch64")])
def test_wheel_of_a_processor_has_its_command(tmp_path: pathlib.Path, machine: int, name: str) -> None:
    binary = program(machine)
    archive, wheel = build(tmp_path, binary)
    with archive:
        tags = f"manylinux_2_17_{name}.manylinux2014_{name}.musllinux_1_1_{name}"
        assert wheel.name == f"ringcache-{VERSION}-py3-none-{tags}.whl"
        command = archive.getinfo(f"ringcache-{VERSION}.data/scripts/ringcache")
        assert archive.read(command) == binary
        assert command.external_attr >> 16 & 0o111, "it can be run"
        text = archive.read(f"ringcache-{VERSION}.dist-info/WHEEL").decode()
        assert "Root-Is-Purelib: false" in text
        licenses = {n.rsplit("/", 1)[1] for n in archive.namelist() if "/licenses/" in n}
        assert licenses == {"LICENSE", "NOTICE", "THIRD_PARTY_LICENSES"}
        assert "ringcache/py.typed" in archive.namelist()
        assert "ringcache/vllm/encoder.py" in archive.namelist()


def test_wheel_for_any_machine_explains(tmp_path: pathlib.Path) -> None:
    archive, wheel = build(tmp_path)
    with archive:
        assert wheel.name == f"ringcache-{VERSION}-py3-none-any.whl"
        script = archive.read(f"ringcache-{VERSION}.data/scripts/ringcache")
        mode = archive.getinfo(f"ringcache-{VERSION}.data/scripts/ringcache").external_attr >> 16
        assert mode & 0o111, "it can be run"
        assert script.startswith(b"#!python\n"), "installers put the interpreter there"
        archive.extractall(tmp_path / "site")
    done = subprocess.run([sys.executable, "-c", script.decode()], cwd=tmp_path / "site", stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1
    assert f"Python package {VERSION}, and not the command" in done.stderr
    assert f"go install github.com/ringcache/ringcache/cmd/ringcache@v{VERSION}\n" in done.stderr


@pytest.mark.parametrize(("binary", "why"), [
    (b"#!/bin/sh\n", "no 64-bit program of Linux"),
    (program(62, kind=3), "linked dynamically: build it with CGO_ENABLED=0"),
    (program(62, kind=2), "linked dynamically"),
    (program(40), "for machine 40 of ELF, wheels are for"),
])
def test_wheel_refuses_a_program_that_would_not_run(tmp_path: pathlib.Path, binary: bytes, why: str) -> None:
    with pytest.raises(RuntimeError, match=why):
        build(tmp_path, binary)


def test_version_is_the_installed_one() -> None:
    import importlib.metadata

    import ringcache

    try:
        want = importlib.metadata.version("ringcache")
    except importlib.metadata.PackageNotFoundError:
        want = "0.0.0+sources"
    assert ringcache.__version__ == want
    with pytest.raises(AttributeError, match="has no attribute 'other'"):
        getattr(ringcache, "other")  # noqa: B018

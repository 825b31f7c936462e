#!/usr/bin/env python3
"""Runs the Python tests and mypy with each version of Python that can be had: `make test-pythons`.

    scripts/pythons.py [VERSION...]      # 3.10 to 3.14 and 3.14t, which is without the global lock

An interpreter is looked for on PATH, among pyenv's versions, and in the suite `testing` of a Debian whose
apt reaches it: that one is unpacked below ~/.cache/ringcache, with the C library it needs, and is not
installed. Each gets a virtual environment with what python/pyproject.toml names. The last lines say what ran,
and what could not be had and why. Status 1 if something that ran failed, or if nothing ran. Needs Python 3.11.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).resolve().parents[1]
PYTHON = ROOT / "python"
VERSIONS = ("3.10", "3.11", "3.12", "3.13", "3.14", "3.14t")
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "ringcache"
SUITE = "testing"

# Those that the interpreter and the modules of its library load, and the C library of the same suite.
PACKAGES = (
    "python{0} python{0}-minimal libpython{0}-stdlib libpython{0}-minimal "
    "libc6 libexpat1 zlib1g libssl3t64 libffi8 liblzma5 libbz2-1.0 libsqlite3-0 libuuid1 libzstd1"
)

# By whatever name the program is called, it finds its own libraries, and its children do, too.
WRAPPER = """#!/bin/sh
exec {loader} --library-path {libraries} --argv0 "$0" {program} "$@"
"""

ASK = """
import sys, sysconfig
free = "t" if sysconfig.get_config_var("Py_GIL_DISABLED") else ""
print(f"{sys.version_info[0]}.{sys.version_info[1]}{free}", sys.version.split()[0])
"""

# In a free-threaded interpreter a module that was not made for it turns the lock on again.
STARTS = """
import sys, numpy, msgspec, ringcache.aio, ringcache.daemon, ringcache.reader
lock = "" if getattr(sys, "_is_gil_enabled", lambda: True)() else ", no global lock"
print(f"numpy {numpy.__version__}, msgspec {msgspec.__version__}{lock}")
"""


class Missing(Exception):
    """Why something can't be had."""


def output(*command: str | os.PathLike[str], **options: object) -> str:
    """What a command prints; its own last words are the reason where it fails."""
    try:
        made = subprocess.run(command, text=True, capture_output=True, check=False, **options)  # type: ignore[call-overload]
    except OSError as e:
        raise Missing(str(e)) from None
    if made.returncode:
        lines = (made.stderr.strip() or made.stdout.strip()).splitlines()
        raise Missing(lines[-1] if lines else f"{command[0]} ends with status {made.returncode}")
    return made.stdout.strip()


def full_version(python: str | os.PathLike[str], version: str) -> str | None:
    """Of an interpreter, if it is of that version."""
    try:
        short, full = output(python, "-c", ASK).split()
    except Missing:
        return None
    return full if short == version else None


def candidates(version: str) -> Iterator[pathlib.Path]:
    for folder in os.get_exec_path():
        yield pathlib.Path(folder) / f"python{version}"
    pyenv = pathlib.Path(os.environ.get("PYENV_ROOT") or "~/.pyenv").expanduser()
    for found in sorted(pyenv.glob(f"versions/{version.rstrip('t')}.*/bin/python3")):
        yield found


def find(version: str) -> tuple[pathlib.Path, str]:
    """An interpreter and its full version."""
    for path in candidates(version):
        if path.exists() and (full := full_version(path, version)):
            return path, full
    nowhere = f"no python{version} on PATH or in pyenv"
    if version.endswith("t"):
        raise Missing(f"{nowhere}, and no package of Debian is built without the global lock")
    try:
        path = fetched(version)
    except Missing as e:
        raise Missing(f"{nowhere}; Debian's {SUITE}: {e}") from None
    full = full_version(path, version)
    if full is None:
        raise Missing(f"{nowhere}, and Debian's of {SUITE} does not start here")
    return path, full


def fetched(version: str) -> pathlib.Path:
    """The interpreter of Debian's packages, unpacked."""
    for tool in ("apt-get", "dpkg-deb"):
        if shutil.which(tool) is None:
            raise Missing(f"{tool} is not there")
    folder = CACHE / f"debian-python{version}"
    wrapper = folder / "root" / "usr" / "bin" / f"python{version}"
    with locked(folder):
        if (folder / ".complete").exists():
            return wrapper
        shutil.rmtree(folder, ignore_errors=True)
        print(f"fetching Debian's python{version}", file=sys.stderr, flush=True)
        debs = download(folder, PACKAGES.format(version).split())
        for deb in debs:
            output("dpkg-deb", "-x", deb, folder / "root")
        loaders = sorted((folder / "root" / "usr").glob("lib*/ld-linux-*.so.*"))
        libraries = sorted((folder / "root" / "usr" / "lib").glob("*-linux-gnu"))
        if not loaders or not libraries:
            raise Missing("the C library is not where it is expected")
        program = wrapper.with_name(wrapper.name + ".program")
        wrapper.rename(program)
        wrapper.write_text(WRAPPER.format(loader=loaders[0], libraries=libraries[0], program=program))
        wrapper.chmod(0o755)
        (folder / ".complete").touch()
    return wrapper


def download(folder: pathlib.Path, packages: list[str]) -> list[pathlib.Path]:
    """With lists of the suite beside those of the machine, which stay as they are."""
    sites = output("apt-get", "indextargets", "--format", "$(SITE)", "Created-By: Packages").splitlines()
    if not sites:
        raise Missing("apt has no sources")
    for name in ("lists/partial", "cache/archives/partial", "debs"):
        (folder / name).mkdir(parents=True)
    sources = folder / "sources.list"
    sources.write_text(f"deb {sites[0]} {SUITE} main\n")
    apt = ["apt-get", "-o", "APT::Sandbox::User=root", "-o", "Acquire::Languages=none"]
    apt += ["-o", f"Dir::Etc::sourcelist={sources}", "-o", "Dir::Etc::sourceparts=/dev/null"]
    apt += ["-o", f"Dir::State::lists={folder}/lists", "-o", f"Dir::Cache={folder}/cache"]
    apt += ["-o", "Dir::State::status=/dev/null"]
    output(*apt, "update", "-q=2", "-o", "APT::Update::Error-Mode=any")
    output(*apt, "download", "-q=2", *packages, cwd=folder / "debs")
    for name in ("lists", "cache"):
        shutil.rmtree(folder / name)
    return sorted((folder / "debs").glob("*.deb"))


@contextlib.contextmanager
def locked(folder: pathlib.Path) -> Iterator[None]:
    """Another clone may be making it."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(f"{folder}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def environment(version: str, python: pathlib.Path, full: str) -> pathlib.Path:
    """The interpreter of an environment that has what the package and its tests need."""
    project = tomllib.loads((PYTHON / "pyproject.toml").read_text())["project"]
    needs = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    key = hashlib.sha256("\n".join([*needs, str(python), full]).encode()).hexdigest()[:16]
    folder = CACHE / f"python{version}-{key}"
    made = folder / "bin" / "python"
    with locked(folder):
        if (folder / ".complete").exists():
            return made
        shutil.rmtree(folder, ignore_errors=True)
        print(f"making the environment of {full}", file=sys.stderr, flush=True)
        output(python, "-m", "venv", "--without-pip", folder)
        # Debian's interpreters bring no pip along, and a wheel of pip runs from where it lies.
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
        output(
            *pip, "download", "-q", "--no-deps", "--only-binary", ":all:",
            "--python-version", version.rstrip("t"), "-d", folder / "pip", "pip",
        )  # fmt: skip
        (wheel,) = (folder / "pip").glob("*.whl")
        output(
            made, f"{wheel}/pip", "install", "-q", "--disable-pip-version-check",
            "--only-binary", ":all:", *needs,
        )  # fmt: skip
        (folder / ".complete").touch()
    return made


def run(version: str, python: pathlib.Path) -> str:
    """The tests; empty if all is well."""
    settings = {**os.environ, "PYTHONPATH": "src"}
    if version.endswith("t"):
        settings["PYTHON_GIL"] = "0"
    for command in ("-m pytest -q", "-m mypy"):
        print(f"== Python {version}: {command}", flush=True)
        made = subprocess.run([python, *command.split()], cwd=PYTHON, env=settings, check=False)
        if made.returncode:
            return f"FAILED: {command} ends with status {made.returncode}"
    return ""


def main() -> int:
    lines, good, failed = [], 0, 0
    for version in sys.argv[1:] or VERSIONS:
        try:
            python, full = find(version)
            made = environment(version, python, full)
            started = output(made, "-c", STARTS, env={**os.environ, "PYTHONPATH": str(PYTHON / "src")})
        except Missing as e:
            lines.append(f"{version:6}not run: {e}")
            continue
        error = run(version, made)
        good, failed = good + (not error), failed + bool(error)
        lines.append(f"{version:6}{error or 'passed'}: {full} at {python}, {started}")
    print("\n".join(["", *lines]))
    return 1 if failed or not good else 0


if __name__ == "__main__":
    sys.exit(main())

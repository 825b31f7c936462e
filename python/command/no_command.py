#!/usr/bin/env python3
"""Stands in for the command ringcache in the wheel for any machine, which has no program."""

import importlib.metadata
import platform
import sys

version = importlib.metadata.version("ringcache")
release = "+" not in version and ".dev" not in version
print(
    f"""ringcache: this installation has the Python package {version}, and not the command.
The package was built from source, or for any machine. It can read segments and connect engines to a daemon.
The command runs on Linux; wheels for x86_64 and aarch64 have it. This machine is {platform.system()} on {platform.machine()}.
  - if that is one of them:  pip install --force-reinstall --only-binary ringcache ringcache
  - with Go 1.26 or newer:   go install github.com/ringcache/ringcache/cmd/ringcache@{"v" + version if release else "latest"}
  - deb, rpm, tar.gz, image: https://github.com/ringcache/ringcache/blob/main/docs/install.md""",
    file=sys.stderr,
)
sys.exit(1)

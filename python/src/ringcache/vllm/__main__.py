"""``python -m ringcache.vllm check JSON``: whether an engine with this ``--ec-transfer-config`` would share encoder
outputs, or with this ``--kv-transfer-config`` KV blocks."""

from __future__ import annotations

import sys

from ._check import check

_USAGE = """usage: python -m ringcache.vllm check JSON

JSON is what vllm serve gets as --ec-transfer-config or --kv-transfer-config. The options are checked by the connector's own code, and the
daemon's socket and segment are looked at, in a second and without a model. Run it where the engine runs: as its user,
with its environment, in its container. The exit status is 0 if all is well, 1 if not, and 2 for another command line.
"""


def main(arguments: list[str]) -> int:
    if arguments in (["-h"], ["--help"], ["check", "-h"], ["check", "--help"]):
        print(_USAGE, end="")
        return 0
    if len(arguments) != 2 or arguments[0] != "check":
        print(_USAGE, end="", file=sys.stderr)
        return 2
    return check(arguments[1])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

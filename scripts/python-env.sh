#!/bin/sh
# Prints the Python interpreter of a virtual environment that has what the wheel
# and its tests need; makes it on first use.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
. "$here/scripts/venv.sh"
# The tests use the sources of this clone, never an installed copy.
install() {
    "$env/bin/python" -m pip install -q --disable-pip-version-check "$here/python[dev]" &&
        "$env/bin/python" -m pip uninstall -q -y ringcache
}
make_venv python "$here/python/pyproject.toml" install
echo "$env/bin/python"

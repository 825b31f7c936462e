#!/bin/sh
# Prints the Python interpreter of a virtual environment that has what the wheel
# and its tests need; makes it on first use. Every clone with the same
# pyproject.toml shares it.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
python=${PYTHON:-python3}
key=$({ cat "$here/python/pyproject.toml"; "$python" --version; } | sha256sum | cut -c1-16)
env=${XDG_CACHE_HOME:-$HOME/.cache}/ringcache/python-$key
complete() { [ -e "$env/.complete" ] && [ -x "$env/bin/python" ]; } # the interpreter below it can be gone
if ! complete; then
    mkdir -p "$(dirname "$env")"
    exec 9>"$env.lock"
    flock 9 # another clone may be making it
    if ! complete; then
        echo "making the Python environment $env" >&2
        rm -rf "$env"
        "$python" -m venv "$env" >&2 || {
            echo "python-env: $python can't make a virtual environment; install its venv module (Debian: python3-venv)" >&2
            exit 1
        }
        "$env/bin/python" -m pip install -q --disable-pip-version-check "$here/python[dev]" >&2
        # The tests use the sources of this clone, never an installed copy.
        "$env/bin/python" -m pip uninstall -q -y ringcache >&2
        touch "$env/.complete"
    fi
fi
echo "$env/bin/python"

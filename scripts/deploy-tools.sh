#!/bin/sh
# Prints the folder with the programs that check the files of deploy/: schemas of Compose and Kubernetes, and a linter
# of container files. They are in a virtual environment that is made on first use, below ~/.cache/ringcache.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
python=${PYTHON:-python3}
key=$({ cat "$here/deploy/requirements.txt"; "$python" --version; } | sha256sum | cut -c1-16)
env=${XDG_CACHE_HOME:-$HOME/.cache}/ringcache/deploy-tools-$key
complete() { [ -e "$env/.complete" ] && [ -x "$env/bin/python" ]; } # the interpreter below it can be gone
if ! complete; then
    mkdir -p "$(dirname "$env")"
    exec 9>"$env.lock"
    flock 9 # another clone may be making it
    if ! complete; then
        echo "making $env" >&2
        rm -rf "$env"
        "$python" -m venv "$env" >&2 || {
            echo "deploy-tools: $python can't make a virtual environment; install its venv module (Debian: python3-venv)" >&2
            exit 1
        }
        "$env/bin/python" -m pip install -q --disable-pip-version-check --only-binary :all: -r "$here/deploy/requirements.txt" >&2 || {
            echo "deploy-tools: the packages of deploy/requirements.txt can't be installed" >&2
            exit 1
        }
        touch "$env/.complete"
    fi
fi
echo "$env/bin"

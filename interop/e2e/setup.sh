#!/bin/sh
# Builds (or finds) all that an end-to-end run needs and prints it as key=value, one a line; progress goes to stderr.
#
#   python=...           interpreter with vLLM 0.32.0
#   env=...              its environment (interop/setup.sh)
#   release_0.31.0=...   an older release: put this folder first on PYTHONPATH and use the same interpreter
#   models=...           folder of the tiny models
#   model_llava=...      one model, also model_qwen2vl=...
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
env=$("$here/../setup.sh")

# The library versions of the environment decide what a model's files look like, so its name is in the key.
key=$({ cat "$here/make_model.py"; basename "$env"; } | sha256sum | cut -c 1-16)
models=$(dirname "$env")/e2e-models-$key
if [ ! -e "$models/.complete" ]; then
    (
        flock 9
        if [ ! -e "$models/.complete" ]; then
            rm -rf "$models"
            env -u PYTHONPATH "$env/bin/python" "$here/make_model.py" "$models"
            : >"$models/.complete" # last: without it the rest is a torn build and is made anew
        fi
    ) 9>"$models.lock" >&2
fi

echo "python=$env/bin/python"
echo "env=$env"
echo "release_0.31.0=$env/releases/0.31.0"
echo "models=$models"
echo "model_llava=$models/llava"
echo "model_qwen2vl=$models/qwen2vl"

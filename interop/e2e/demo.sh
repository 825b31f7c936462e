#!/bin/sh
# Photos through the example server (examples/frontend) to a whole vLLM engine with a tiny model; arguments go to
# the server. MODEL=llava takes the other model.
set -eu
cd "$(dirname -- "$0")/../.."
environment=$(scripts/progress.sh "the environment of vLLM" interop/e2e/setup.sh)
value() { echo "$environment" | sed -n "s|^$1=||p"; }
model=$(value "model_${MODEL:-qwen2vl}")
scripts/progress.sh "building the server" go build -o bin/frontend ./examples/frontend
exec bin/frontend --demo --model "$model" --version 0.32.0 --capacity 0.0625 "$@" -- \
    "$(value python)" interop/e2e/launch.py --model "$model" --handshake '{handshake}' --shm '{segment}' --cache-gb 0.0625 --die-with-stdin

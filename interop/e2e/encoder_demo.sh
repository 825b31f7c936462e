#!/bin/sh
# Photos through two vLLM engines that share encoder outputs by `ringcache serve`, which is killed on the way;
# `--model qwen2vl` takes the other model.
set -eu
cd "$(dirname -- "$0")/../.."
exec python3 interop/e2e/encoder_demo.py "$@"

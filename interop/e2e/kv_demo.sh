#!/bin/sh
# A long prompt through two vLLM engines with LMCache, which share its KV by `ringcache serve`, which is killed on the way.
set -eu
cd "$(dirname -- "$0")/../.."
exec python3 interop/e2e/kv_demo.py "$@"

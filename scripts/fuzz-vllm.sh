#!/usr/bin/env bash
# Real vLLM, of every release of the interop environment, against this module: 2,000,000 operations with the newest and
# 500,000 with each older one, or the numbers that are given. SEED is the first seed. Lines that end in "0 differences"
# are the result.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

newest=${1:-2000000} older=${2:-500000}
go build -o bin/ringcache ./cmd/ringcache
env=$(interop/setup.sh)
compare() { bin/ringcache fuzz all --against vllm --python "$env/bin/python" --seed "${SEED:-1}" "$@"; }

status=0
compare --ops $((newest / 4)) || status=1
for folder in "$env"/releases/*; do
    compare --vllm-path "$folder" --ops $((older / 4)) || status=1
done
exit $status

#!/bin/sh
# Runs a vLLM server on the CPU, with a tiny LLaVA of random weights that shares its encoder outputs by `ringcache serve`:
#
#   RINGCACHE_SOCKET=/tmp/try/ringcache.sock examples/encoder/engine.sh [PORT] [arguments of vLLM]
#
# The first run installs vLLM, 6 GB, below ~/.cache/ringcache. docs/encoder.md describes what to do with it.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
port=${1:-8000}
[ $# -eq 0 ] || shift
setup=$("$here/../../interop/e2e/setup.sh")
value() { printf '%s\n' "$setup" | sed -n "s/^$1=//p"; }

export PYTHONPATH="$here/../../python/src" # instead of an installed wheel
export RINGCACHE_SOCKET="${RINGCACHE_SOCKET:-/run/ringcache/ringcache.sock}"
export VLLM_CPU_KVCACHE_SPACE=1 VLLM_CPU_OMP_THREADS_BIND=nobind HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 TORCHDYNAMO_DISABLE=1
exec "$(value python)" -m vllm.entrypoints.openai.api_server --host 127.0.0.1 --port "$port" \
    --model "$(value model_llava)" --served-model-name tiny --chat-template "$here/chat.jinja" \
    --dtype float32 --enforce-eager --max-model-len 2048 --max-num-seqs 4 --num-gpu-blocks-override 256 --skip-mm-profiling \
    --ec-transfer-config '{"ec_connector": "EncoderCacheConnector", "ec_connector_module_path": "ringcache.vllm", "ec_role": "ec_both"}' \
    "$@"

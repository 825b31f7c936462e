#!/usr/bin/env bash
# This module against the reference models: every family, every release whose rules differ. The seeds are the same
# each time. Less than a minute on an idle machine; a failure prints its seed and the command that repeats it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

ops=${1:-15000} # of each family and release
go build -o bin/ringcache ./cmd/ringcache
for release in 0.11.2 0.12.0 0.13.0 0.16.0 0.24.0 0.28.0 0.29.0 0.31.0 0.33.0; do
    bin/ringcache fuzz all --against model --release "$release" --ops "$ops"
done

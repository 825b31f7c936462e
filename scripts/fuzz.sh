#!/usr/bin/env bash
# Runs every fuzz target of the module for the given time, one after the other.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
time=${1:-60s}
git grep -hoE '^func Fuzz[A-Za-z]+' -- '*_test.go' >/dev/null # there are some
git grep -oE '^func Fuzz[A-Za-z]+' -- '*_test.go' | while IFS=: read -r file func; do
    target=${func#func }
    echo "== $(dirname "$file") $target"
    go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" "./$(dirname "$file")" </dev/null | tail -3
done

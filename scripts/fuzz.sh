#!/usr/bin/env bash
# Runs every fuzz target of this repository for the given time, one after the other,
# and ends with the first that finds something. Go minimizes each new input for up to a
# minute and counts no executions meanwhile, so that is made short.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
time=${1:-60s}
log=$(mktemp)
trap 'rm -f "$log"' EXIT
targets=$(git grep -oE '^func Fuzz[A-Za-z0-9_]+' -- '*_test.go')
while IFS=: read -r file func; do
    target=${func#func }
    echo "== $(dirname "$file") $target"
    if (cd "$(dirname "$file")" && go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" -fuzzminimizetime 1x .) </dev/null >"$log" 2>&1; then
        tail -3 "$log"
    elif grep -q 'context deadline exceeded' "$log" && ! grep -qE 'Failing input|panic|_test.go:' "$log"; then
        # Go before 1.27 reports its own end of the time as a failure now and then (https://go.dev/issue/75804).
        tail -3 "$log"
    else
        cat "$log" # with the input that failed
        exit 1
    fi
done <<<"$targets"

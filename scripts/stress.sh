#!/usr/bin/env bash
# Finds tests that fail now and then: runs the tests of packages COUNT times under the
# race detector, with 1, 2 and 4 processors, every second time beside BUSY busy
# processes. RUN is a pattern of tests, ARGS are more flags of the test binary. Prints
# one line per package, and keeps the output of every run that failed.
#
#   COUNT=30 BUSY=2 RUN=. ARGS="-kills 200" scripts/stress.sh ./objstore ./shmring/segment
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
[ $# -gt 0 ] || set -- ./...
logs=$(mktemp -d "${TMPDIR:-/tmp}/ringcache-stress.XXXXXX")
busy=()
idle() {
    [ ${#busy[@]} -eq 0 ] || kill "${busy[@]}" 2>/dev/null || true
    busy=()
}
trap idle EXIT

failed=0
packages=$(go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}} {{.Dir}}{{end}}' "$@")
while read -r package folder; do
    [ -n "$package" ] || continue
    log=$logs/${package//\//_}
    go test -race -c -o "$log.test" "$package"
    failures=0
    began=$SECONDS
    for ((run = 1; run <= ${COUNT:-30}; run++)); do
        for ((n = 0; run % 2 == 0 && n < ${BUSY:-2}; n++)); do
            while :; do :; done &
            busy+=($!)
        done
        # shellcheck disable=SC2086 # ARGS are several
        (cd "$folder" && exec "$log.test" -test.cpu 1,2,4 -test.timeout 30m -test.run "${RUN:-.}" ${ARGS:-}) \
            </dev/null >"$log.$run" 2>&1 && rm "$log.$run" || failures=$((failures + 1))
        idle
    done
    rm "$log.test"
    echo "$package: $failures of ${COUNT:-30} runs failed, $((SECONDS - began)) s"
    failed=$((failed + failures))
done <<<"$packages"
if [ "$failed" -gt 0 ]; then
    echo "the output of runs that failed is in $logs" >&2
    exit 1
fi
rmdir "$logs"

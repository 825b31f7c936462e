#!/bin/sh
# Runs a command, and tells on stderr what takes so long when it takes longer than a second: by a line that changes on a
# terminal, by a line every ten seconds elsewhere.
#
#   scripts/progress.sh TEXT COMMAND [ARGUMENT ...]
text=$1
shift
(
    sleep 1
    seconds=1
    while :; do
        if [ -t 2 ]; then
            printf '\r%s: %d s' "$text" "$seconds" >&2
        elif [ $((seconds % 10)) -eq 1 ]; then
            echo "$text: $seconds s" >&2
        fi
        sleep 1
        seconds=$((seconds + 1))
    done
) >/dev/null &
watcher=$!
trap 'kill $watcher 2>/dev/null' EXIT
trap 'exit 130' INT TERM
began=$(date +%s)
"$@"
status=$?
if [ -t 2 ] && [ $(($(date +%s) - began)) -ge 1 ]; then
    printf '\r\033[K' >&2
fi
exit $status

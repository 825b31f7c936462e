#!/bin/bash
# An upgrade by pip: wheels of two versions of this commit, each in an environment of its own, and the daemon of one takes the place of
# the other's, in order and after a kill, forwards and back, under clients of both packages that lose nothing (scripts/install/upgrade.py).
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
work=$(mktemp -d)
segment=ringcache-$(basename "$work") # packages look in /dev/shm
daemon= clients=()
trap '[ -z "$daemon${clients[*]}" ] || kill -9 $daemon "${clients[@]}" 2>/dev/null || :; rm -rf "$work" "/dev/shm/$segment"{,.ctl,.leases}' EXIT
export GIT_AUTHOR_NAME=test GIT_AUTHOR_EMAIL=test@localhost GIT_COMMITTER_NAME=test GIT_COMMITTER_EMAIL=test@localhost
older=0.1.0 newer=0.2.0
git clone -q --no-tags "$here" "$work/tree"
for version in $older $newer; do
    cd "$work/tree"
    git commit -q --allow-empty -m "release $version"
    git tag "v$version"
    CGO_ENABLED=0 go build -trimpath -buildvcs=true -ldflags="-s -w" -o "$work/ringcache" ./cmd/ringcache
    scripts/release/wheel.sh "$work/dist" "$work/ringcache"
    "${PYTHON:-python3}" -m venv "$work/$version"
    "$work/$version/bin/pip" install -q --disable-pip-version-check "$work"/dist/ringcache-$version-*.whl
    echo "== $("$work/$version/bin/ringcache" --version)"
done

socket=$work/socket
serve() { # VERSION
    "$work/$1/bin/ringcache" serve --name "$segment" --size 256MiB --socket "$socket" --grace 10m --http off > "$work/log" 2>&1 &
    daemon=$!
    for _ in $(seq 1200); do
        ! "$work/$1/bin/ringcache" serve status --socket "$socket" > "$work/status" 2>/dev/null || return 0
        kill -0 "$daemon" 2>/dev/null || break
        sleep 0.5
    done
    cat "$work/log" >&2
    return 1
}
# Waits until each client has made rounds of calls at the daemon of a version.
rounds() { grep -c "^ringcache v$2\$" "$work/out$1" || :; } # CLIENT VERSION
calls() { # VERSION
    local i before
    for i in 0 1 2 3; do
        before=$(rounds $i "$1")
        until [ "$(rounds $i "$1")" -ge $((before + 20)) ]; do
            kill -0 "${clients[$i]}" || { cat "$work/err$i" >&2; return 1; }
            sleep 0.2
        done
    done
}
serve $older
for i in 0 1 2 3; do
    version=$older
    [ $((i % 2)) = 0 ] || version=$newer # a package may be newer than the daemon
    "$work/$version/bin/python" "$here/scripts/install/upgrade.py" "$socket" "client $i" > "$work/out$i" 2> "$work/err$i" &
    clients+=($!)
done
calls $older
for step in "TERM $newer" "KILL $older" "TERM $newer" "KILL $newer"; do
    read -r signal version <<<"$step"
    kill -s "$signal" "$daemon"
    wait "$daemon" || [ "$signal" = KILL ]
    serve "$version"
    calls "$version"
    echo "== SIG$signal, and then the daemon of $version: every client goes on"
done
kill "${clients[@]}"
for i in 0 1 2 3; do
    wait "${clients[$i]}" || { cat "$work/err$i" >&2; exit 1; }
    echo "== $(tail -1 "$work/out$i")"
done
clients=()
kill "$daemon"
wait "$daemon"
daemon=

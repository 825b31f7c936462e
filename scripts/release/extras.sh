#!/bin/sh
# Makes the files beside the program, in bin/release: completions, the man page, and the units of systemd with the program's
# place in packages.
set -eu
cd "$(dirname -- "$0")/../.."
out=bin/release
mkdir -p "$out"
CGO_ENABLED=0 go build -trimpath -buildvcs=true -ldflags="-s -w" -o "$out/ringcache" ./cmd/ringcache
for shell in bash zsh fish; do "$out/ringcache" completion "$shell" > "$out/ringcache.$shell"; done
"$out/ringcache" man > "$out/ringcache.1"
gzip -9nf "$out/ringcache.1"
for unit in ringcache.service ringcache.socket ringcache-directory.service; do
    sed 's|/usr/local/bin/|/usr/bin/|; s|/etc/systemd/system/|/usr/lib/systemd/system/|' "deploy/systemd/$unit" > "$out/$unit"
done

#!/bin/sh
# Prints the path of a server that speaks S3 over a folder: versitygw, built from its
# module without root below ~/.cache/ringcache, once for every version and for
# all clones. That takes minutes, so tests do not wait for it:
#
#   scripts/fetch-s3-server.sh           # builds it if it is not there
#   scripts/fetch-s3-server.sh --built   # fails with a reason if it is not there
#
# The module is no requirement of ours: it would bring a hundred others.
set -eu
version=v1.8.0
root=${XDG_CACHE_HOME:-$HOME/.cache}/ringcache/versitygw-$version
if ! [ -e "$root/versitygw" ]; then
    [ "${1:-}" != --built ] || {
        echo "versitygw $version was not built: run scripts/fetch-s3-server.sh" >&2
        exit 1
    }
    for tool in go flock; do
        command -v "$tool" >/dev/null || {
            echo "fetch-s3-server: $tool is not there, so versitygw can't be built" >&2
            exit 1
        }
    done
    mkdir -p "$(dirname "$root")"
    exec 9>"$root.lock"
    flock 9 # another clone may be building it
    if ! [ -e "$root/versitygw" ]; then
        echo "building versitygw $version in $root" >&2
        mkdir -p "$root.build"
        # Outside of any module: -mod and the like are for ours.
        (cd / && GOFLAGS=-buildvcs=false GOWORK=off GOBIN="$root.build" CGO_ENABLED=0 \
            go install -trimpath -ldflags='-s -w' "github.com/versity/versitygw/cmd/versitygw@$version" >&2) || {
            echo "fetch-s3-server: versitygw $version could not be built" >&2
            exit 1
        }
        mkdir -p "$root"
        mv "$root.build/versitygw" "$root/versitygw"
        rm -rf "$root.build"
    fi
fi
echo "$root/versitygw"

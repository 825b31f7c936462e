#!/bin/sh
# Builds (or finds) releases of LMCache for the environment of setup.sh, each in a folder for PYTHONPATH, and prints them:
#
#   lmcache_0.5.6=...
#   lmcache_0.5.7rc2=...
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
env=$("$here/../setup.sh")
key=$({ cat "$here/lmcache.txt"; basename "$env"; } | sha256sum | cut -c 1-16)

for release in 0.5.6 0.5.7rc2; do
    folder=$(dirname "$env")/lmcache-$release-$key
    if [ ! -e "$folder/.complete" ]; then
        (
            flock 9
            if [ ! -e "$folder/.complete" ]; then
                rm -rf "$folder"
                echo "installing LMCache $release" >&2
                "$env/helper/bin/uv" pip install --quiet --python "$env/bin/python" --target "$folder" --no-deps --only-binary :all: \
                    --requirement "$here/lmcache.txt" "lmcache==$release"
                : >"$folder/.complete" # last: without it the rest is a torn build and is made anew
            fi
        ) 9>"$folder.lock" >&2
    fi
    echo "lmcache_$release=$folder"
done

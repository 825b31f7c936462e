#!/bin/sh
# What goreleaser runs for each program that it has built: it writes the SBOM and the licences, which go into archives and
# packages, and the wheel with that program.
#
#   scripts/release/program.sh BINARY ARCH
set -eu
cd "$(dirname -- "$0")/../.."
mkdir -p "dist/about/$2"
scripts/release/sbom.sh "$1" "dist/about/ringcache_$2.spdx.json"
scripts/release/licenses.sh "$1" > "dist/about/$2/THIRD_PARTY_LICENSES"
export RINGCACHE_SBOM="$PWD/dist/about/ringcache_$2.spdx.json"
if [ "$2" = amd64 ]; then
    scripts/release/wheel.sh dist "$1" --pure
else
    scripts/release/wheel.sh dist "$1"
fi

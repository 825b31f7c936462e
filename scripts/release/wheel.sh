#!/bin/sh
# Makes a wheel of python/ with a command in it, whose version and processor are the wheel's.
#
#   scripts/release/wheel.sh DIST BINARY [--pure]      # --pure: also the wheel without a command, and the source distribution
#
# The packages that make it are in a virtual environment of its own, which is made on first use.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
mkdir -p "$1"
dist=$(realpath "$1")
binary=$(realpath "$2")
. "$here/scripts/venv.sh"
install() { "$env/bin/python" -m pip install -q --disable-pip-version-check -r "$here/scripts/release/requirements.txt"; }
make_venv wheel-tools "$here/scripts/release/requirements.txt" install

cd "$here"
SETUPTOOLS_SCM_PRETEND_VERSION_FOR_RINGCACHE=$(scripts/release/version.sh "$binary")
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SETUPTOOLS_SCM_PRETEND_VERSION_FOR_RINGCACHE SOURCE_DATE_EPOCH

# A copy, since the licences belong into the wheel and not beside its sources.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
git ls-files -z --cached --others --exclude-standard python | tar -c --null --files-from=- | tar -x -C "$work"
cp LICENSE NOTICE "$work/python"
sed -i "s|](\.\./|](https://github.com/ringcache/ringcache/blob/$(git rev-parse HEAD)/|g" "$work/python/README.md" # for pages that show it elsewhere
cd "$work/python"
if [ "${3:-}" = --pure ]; then
    "$env/bin/hatchling" build -t sdist -d "$dist" 1>&2
    "$env/bin/hatchling" build -t wheel -d "$dist" 1>&2
fi
"$here/scripts/release/licenses.sh" "$binary" > THIRD_PARTY_LICENSES
RINGCACHE_BINARY=$binary "$env/bin/hatchling" build -t wheel -d "$dist" 1>&2

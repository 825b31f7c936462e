#!/bin/sh
# Writes the SBOM of a program (SPDX, JSON), by syft. What differs between two runs of syft, a time and a random number, is
# made of the program instead, so that equal programs have equal SBOMs.
# See docs/decisions.md, "SBOMs have no time and no random number".
#
#   scripts/release/sbom.sh bin/ringcache ringcache.spdx.json
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
program=$(realpath "$1")
out=$(realpath -m "$2")
cd "$here"
version=$(scripts/release/version.sh "$program")
created=$(date -u -d "@$(git log -1 --format=%ct)" +%Y-%m-%dT%H:%M:%SZ)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp "$program" "$work/ringcache"
(cd "$work" && SYFT_CHECK_FOR_APP_UPDATE=false go -C "$here/scripts/release/syft" tool syft scan --quiet "file:$work/ringcache" \
    --source-name ringcache --source-version "$version" --base-path "$work" --output spdx-json > sbom.json)
python3 - "$work/sbom.json" "$created" "$(sha256sum "$program" | cut -c1-64)" > "$out" <<'PY'
import json, sys
file, created, digest = sys.argv[1:]
with open(file) as f:
    document = json.load(f)
document["creationInfo"]["created"] = created
document["documentNamespace"] = "https://github.com/ringcache/ringcache/sbom/" + digest
json.dump(document, sys.stdout, indent=1, sort_keys=True)
print()
PY

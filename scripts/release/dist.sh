#!/bin/sh
# Makes all files of a release in dist/ and publishes nothing: programs, archives, deb, rpm, wheels, the source distribution for
# Python, SBOMs, checksums. On a commit without a tag it is a snapshot. CHANGELOG.md must have the version of a tag, with its date.
set -eu
cd "$(dirname -- "$0")/../.."
goreleaser() { go tool -modfile=scripts/release/goreleaser/go.mod goreleaser "$@"; }
goreleaser check
set -- --clean --skip=publish,sign
if tag=$(git describe --tags --exact-match --match 'v*' 2>/dev/null); then
    mkdir -p bin/release
    scripts/release/notes.py --tagged "$tag" > bin/release/notes.md
    set -- "$@" --release-notes=bin/release/notes.md
else
    set -- "$@" --snapshot
fi
goreleaser release "$@"

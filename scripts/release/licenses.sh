#!/bin/sh
# Prints the licences of what a program of this repository links: Go's own, and those of all modules that `go version -m`
# names. Whoever hands on the program hands on this text with it.
#
#   scripts/release/licenses.sh bin/ringcache > THIRD_PARTY_LICENSES
set -eu
program=$(realpath "$1")
cd "$(dirname -- "$0")/../.."
echo "ringcache contains the modules below, in the versions that are named, under the licences that follow each name."
print() {
    for file in "$2"/LICEN[SC]E* "$2"/COPYING* "$2"/NOTICE* "$2"/PATENTS*; do
        [ -f "$file" ] || continue
        printf '\n==== %s: %s\n\n' "$1" "$(basename "$file")"
        cat "$file"
    done
}
print "the Go standard library, $(go version "$program" | sed 's/.*: //')" "$(go env GOROOT)"
go version -m "$program" | awk '$1 == "dep" { print $2 }' | while read -r module; do
    found=$(go list -m -f '{{.Path}} {{.Version}}	{{.Dir}}' "$module")
    text=$(print "${found%	*}" "${found#*	}")
    [ -n "$text" ] || {
        echo "licenses: $module has no file with a licence" >&2
        exit 1
    }
    printf '\n%s\n' "$text"
done

#!/bin/sh
# Prints the version of a program of this repository as Python writes versions. Go puts it into the program: the tag, or a version made
# of the commit where there is no tag.
#
#   scripts/release/version.sh bin/ringcache      v0.1.0                               0.1.0
#                                                 v0.1.0-rc.1                          0.1.0rc1
#                                                 v0.1.1-0.20261127190000-0123456789ab 0.1.1.dev20261127190000+g0123456789ab
set -eu
found=$(go version -m "$1" | awk '$1 == "mod" { print $3 }')
python=$(printf '%s\n' "$found" | sed -nE '
s/^v//
s/\+dirty$/.dirty/
s/^([0-9.]+)-(0\.)?([0-9]{14})-([0-9a-f]{12})/\1.dev\3+g\4/
s/^([0-9.]+)-(a|alpha|b|beta|rc)\.?([0-9]+)/\1\2\3/
s/^([0-9]+\.[0-9]+\.[0-9]+((a|alpha|b|beta|rc)[0-9]+)?)\.dirty$/\1+dirty/
/^[0-9]+\.[0-9]+\.[0-9]+((a|alpha|b|beta|rc)[0-9]+)?(\.dev[0-9]+)?(\+[a-z0-9.]+)?$/p')
[ -n "$python" ] || {
    echo "version: $1 has the version '$found': build it in a clone, with git, and name tags v1.2.3 or v1.2.3-rc.1" >&2
    exit 1
}
echo "$python"

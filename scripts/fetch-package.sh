#!/bin/sh
# Prints a folder with the files of distribution packages (Debian, Ubuntu), without
# root and without installing them: they are downloaded with apt-get and unpacked
# with dpkg below ~/.cache/ringcache, once for every version and for all clones.
#
#   root=$(scripts/fetch-package.sh redis-tools libjemalloc2)   # several into one folder
#   root=$(scripts/fetch-package.sh --only ./usr/bin/qemu-aarch64-static qemu-user-static)   # one file of a large one
#
# Dependencies are not followed: name the packages whose files are needed. The
# script fails with a reason where apt or a package is not there, so that
# its caller can skip what needs the package.
set -eu
only=
if [ "${1:-}" = --only ]; then
    only=${2:-}
    shift 2
fi
[ $# -gt 0 ] || {
    echo "usage: fetch-package.sh [--only ./PATH] PACKAGE..." >&2
    exit 2
}
for tool in apt-get dpkg-deb flock; do
    command -v "$tool" >/dev/null || {
        echo "fetch-package: $tool is not there, so $* can't be fetched" >&2
        exit 1
    }
done
# One line for each package: 'address' file size hash. The file's name contains the version.
files=$(apt-get download --print-uris "$@" 2>&1) || {
    echo "fetch-package: apt-get does not find $*: $files (apt-get update, as root, brings its lists)" >&2
    exit 1
}
versions=$(printf '%s\n' "$files" | sed -n "s/^'[^']*' \([^ ]*\) .*/\1/p" | sort)
key=$(printf '%s\n' "$only" "$versions" | sha256sum | cut -c1-16)
root=${XDG_CACHE_HOME:-$HOME/.cache}/ringcache/package-$1-$key
if ! [ -e "$root/.complete" ]; then
    mkdir -p "$(dirname "$root")"
    exec 9>"$root.lock"
    flock 9 # another clone may be fetching it
    if ! [ -e "$root/.complete" ]; then
        echo "fetching $* to $root" >&2
        rm -rf "$root" "$root.download"
        mkdir -p "$root" "$root.download"
        chmod 755 "$root.download"
        (cd "$root.download" && apt-get download -q=2 -o APT::Sandbox::User=root "$@" >&2) || {
            echo "fetch-package: $* could not be downloaded" >&2
            exit 1
        }
        for file in "$root.download"/*.deb; do
            if [ -n "$only" ]; then
                dpkg-deb --fsys-tarfile "$file" | tar -x -C "$root" "$only"
            else
                dpkg-deb -x "$file" "$root"
            fi
        done
        rm -rf "$root.download"
        touch "$root/.complete"
    fi
fi
echo "$root"

#!/bin/sh
# Prints a folder with a headless Chromium of the distribution (Debian), a font, and the libraries that both need, fetched
# as scripts/fetch-package.sh does it. LD_LIBRARY_PATH and FONTCONFIG_FILE have to lead into it:
#
#   root=$(scripts/fetch-chromium.sh)
#   FONTCONFIG_FILE=$root/fonts.conf LD_LIBRARY_PATH=$(cat "$root/libraries") "$root/usr/lib/chromium/chromium-headless-shell" ...
#
# It fails with a reason where the packages can't be had.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
command -v apt-cache >/dev/null || {
    echo "fetch-chromium: apt-cache is not there, so Chromium can't be fetched" >&2
    exit 1
}
needs() { apt-cache depends --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces --no-enhances "$@"; }
direct=$(needs chromium-headless-shell 2>/dev/null | sed -n 's/^ *Depends: \(\(lib\|zlib\)[^<]*\)$/\1/p')
[ -n "$direct" ] || {
    echo "fetch-chromium: there is no package chromium-headless-shell (apt-get update, as root, brings lists of packages)" >&2
    exit 1
}
# The libraries, and what they need, but for those of the C and C++ compilers, which belong to the system.
# shellcheck disable=SC2086 # one word for each package
libraries=$(needs --recurse $direct | grep -E '^(lib|zlib)' | sort -u |
    grep -vxE 'libc6|libgcc-s1|libstdc\+\+6|libdebian-installer4|libelogind0|libnewt0.52|libslang2|libtextwrap1')
# shellcheck disable=SC2086
root=$("$here/fetch-package.sh" chromium-headless-shell chromium-common fonts-dejavu-core $libraries)
if ! [ -e "$root/libraries" ]; then
    find "$root/usr/lib" "$root/lib" -name '*.so*' -not -path '*/chromium/*' -printf '%h\n' 2>/dev/null | sort -u | paste -sd: >"$root/libraries.new"
    cat >"$root/fonts.conf" <<EOF
<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig>
<dir>$root/usr/share/fonts</dir>
<cachedir>$root/fonts.cache</cachedir>
<alias><family>sans-serif</family><prefer><family>DejaVu Sans</family></prefer></alias>
<alias><family>monospace</family><prefer><family>DejaVu Sans Mono</family></prefer></alias>
</fontconfig>
EOF
    mv "$root/libraries.new" "$root/libraries"
fi
echo "$root"

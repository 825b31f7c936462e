#!/bin/bash
# The wheels of `make wheel`, or of dist, on machines that have nothing but Python: no Go, no git, no compiler, no checkout, an empty HOME. The
# machine is a root folder of its own in namespaces of its own, with the C library and a few programs of this one; no root is needed.
#
#   scripts/test-install.sh [--engine] [--no-musl]
#
# --engine: two vLLM engines, one after the other, share encoder outputs by what was installed. vLLM itself is brought along from
# interop/setup.sh, since it is 6 GB. The second machine has no C library at all, and the program of the wheel alone. The third has musl in place
# of glibc, with a Python from scripts/musl-python.sh, and is skipped where that can't be built.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
engine='' musl=1
for a in "$@"; do case $a in --engine) engine=1 ;; --no-musl) musl= ;; *) echo "test-install: what is $a?" >&2; exit 2 ;; esac; done
unshare --user --map-root-user --mount --pid --fork true 2>/dev/null || { echo "test-install: skipped: this machine allows no namespaces (unshare --user)"; exit 0; }
processor=$(uname -m)
newest() { find "$here/dist" -maxdepth 1 -name "$1" -printf '%T@ %p\n' 2>/dev/null | sort -rn | head -1 | cut -d' ' -f2-; }
[ -n "$(newest "ringcache-*manylinux*_$processor*.whl")" ] || make -C "$here" wheel
wheel=$(newest "ringcache-*manylinux*_$processor*.whl") pure=$(newest 'ringcache-*-none-any.whl')

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Makes a machine in $work/NAME: machine NAME FOLDER_OR_FILE=PLACE... ; what is bound can't be written.
machine() {
    local root=$work/$1
    shift
    mkdir -p "$root"/{proc,dev,tmp,etc,home/user,run}
    printf 'set -eu\n' > "$root.sh"
    local pair from to
    for pair in "$@"; do
        from=${pair%%=*} to=${pair#*=}
        if [ -L "$from" ] && [ "$from" = "$to" ]; then cp -P "$from" "$root$to"; continue; fi
        [ -e "$from" ] || continue
        if [ -d "$from" ]; then mkdir -p "$root$to"; else mkdir -p "$(dirname "$root$to")"; touch "$root$to"; fi
        printf 'mount --rbind %q %q && mount -o remount,bind,ro %q 2>/dev/null || :\n' "$from" "$root$to" "$root$to" >> "$root.sh"
    done
    for pair in null zero random urandom; do touch "$root/dev/$pair"; printf 'mount --bind /dev/%s %q\n' "$pair" "$root/dev/$pair" >> "$root.sh"; done
    mkdir -p "$root/dev/shm"
    printf 'mount -t tmpfs -o mode=1777 tmpfs %q\nmount -t proc proc %q\n' "$root/dev/shm" "$root/proc" >> "$root.sh"
}
# Runs a command in a machine, with an environment that names nothing of this one but how its package index is reached.
inside() {
    local root=$work/$1 keep=()
    shift
    while IFS= read -r -d '' v; do case $v in PIP_FIND_LINKS=*) ;; PIP_*=* | UV_*=* | SSL_CERT_*=* | *_PROXY=* | *_proxy=*) keep+=("$v") ;; esac; done < <(env -0)
    unshare --user --map-root-user --mount --pid --fork bash -c '. "$1.sh"; root=$1; shift; exec chroot "$root" "$@"' - "$root" \
        /usr/bin/env -i "${keep[@]}" HOME=/home/user PATH="${MACHINE_PATH:-/usr/bin:/bin}" LANG=C.UTF-8 "$@"
}

system=(/usr=/usr /bin=/bin /lib=/lib /lib64=/lib64 /sbin=/sbin /etc/passwd=/etc/passwd /etc/group=/etc/group /etc/ssl=/etc/ssl /etc/pip.conf=/etc/pip.conf
    /etc/resolv.conf=/etc/resolv.conf /etc/hosts=/etc/hosts /etc/nsswitch.conf=/etc/nsswitch.conf /etc/alternatives=/etc/alternatives /etc/ld.so.cache=/etc/ld.so.cache
    "$here/scripts/install/inside.sh=/inside.sh" "$wheel=/dist/$(basename "$wheel")" "$pure=/dist/$(basename "$pure")")
python=${PYTHON:-python3}
settings=()
if [ -n "$engine" ]; then
    values=$("$here/interop/e2e/setup.sh")
    env=$(sed -n 's/^env=//p' <<<"$values") model=$(sed -n 's/^model_llava=//p' <<<"$values")
    python=$env/bin/python
    system+=("$env=$env" "$model=/model" /sys=/sys "$here/interop/e2e=/demo" "$here/examples/media=/media")
    settings+=("ENGINE=$("$python" -c 'import site; print(site.getsitepackages()[0])')")
fi
# The interpreter without its environment, and its own folder if that is not below /usr.
python=$("$python" -c 'import os, sys; print(os.path.realpath(sys.executable))')
base=$("$python" -c 'import sys; print(sys.base_prefix)')
[ "$base" = /usr ] || system+=("$base=$base")
mkdir -p "$work/empty"
system+=("$work/empty=/usr/local") # Go, Docker and the rest of what was installed here by hand
echo "== a machine with glibc and Python"
machine glibc "${system[@]}"
mkdir "$work/glibc/programs"
for program in bash cat cut ls seq sleep tail uname ${engine:+lscpu}; do # vLLM calls lscpu
    ln -s "/usr/bin/$program" "$work/glibc/programs"; done
MACHINE_PATH=/programs inside glibc "PYTHON=$python" "${settings[@]}" /usr/bin/bash /inside.sh

echo "== a machine without any C library: the program of the wheel, and nothing else"
machine bare
python3 -m zipfile -e "$wheel" "$work/unpacked"
cp "$work"/unpacked/*.data/scripts/ringcache "$work/bare/ringcache"
chmod +x "$work/bare/ringcache"
unshare --user --map-root-user --mount --pid --fork bash -euc '. "$1.sh"
chroot "$1" /ringcache --version
chroot "$1" /ringcache serve --size 16MiB --http off --socket /run/socket > "$1.log" 2>&1 & server=$!
for _ in $(seq 600); do [ ! -S "$1/run/socket" ] && kill -0 $server || break; sleep 0.5; done
chroot "$1" /ringcache serve status --socket /run/socket
chroot "$1" /ringcache ls
kill $server; wait $server' - "$work/bare" || { cat "$work/bare.log"; exit 1; }

[ -n "$musl" ] || exit 0
root=$("$here/scripts/musl-python.sh") || { echo "test-install: the machine with musl and Python is skipped: such a Python can't be built here" ; exit 0; }
echo "== a machine with musl and Python"
# This Python has no TLS: what the wheel depends on comes from the index by another one's hand.
version=$("$root/bin/python3" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
fetch() { "${PYTHON:-python3}" -m pip download -q --no-deps --only-binary :all: --python-version "$version" --implementation cp -d "$work/wheels" "$@"; }
old=(--platform "musllinux_1_1_$processor") new=(--platform "musllinux_1_2_$processor")
fetch "${new[@]}" "${old[@]}" msgspec
# Numpy's wheels for musllinux_1_2 bring libstdc++ and libgfortran of an Alpine whose relocations (DT_RELR) musl knows from 1.2.4 on: an older
# one leaves them out, and the process crashes. Those for musllinux_1_1 do not have them.
musl_version=$("$root"/lib/ld-musl-*.so.1 2>&1 | sed -n 's/^Version //p') || :
if [ "$(printf '%s\n' 1.2.4 "$musl_version" | sort -V | head -1)" = 1.2.4 ]; then fetch "${new[@]}" numpy; else fetch "${old[@]}" numpy; fi
echo "(musl $musl_version; $(cd "$work/wheels" && ls numpy-*))"
cp "$wheel" "$work/wheels"
busybox=$("$here/scripts/fetch-package.sh" busybox-static)
machine musl "$root=$root" "$busybox/bin/busybox=/bin/busybox" "$work/wheels=/dist" "$here/scripts/install/inside.sh=/inside.sh"
mkdir -p "$work/musl/usr/bin"
for applet in cat cut ls seq sh sleep tail uname; do ln -s busybox "$work/musl/bin/$applet"; done
ln -s ../../bin/busybox "$work/musl/usr/bin/env"
inside musl "PYTHON=$root/bin/python3" MUSL=1 /bin/busybox sh /inside.sh

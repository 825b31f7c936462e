#!/usr/bin/env bash
# Runs a part of the core's unit tests as arm64 programs, under qemu's user-mode
# emulation. QEMU names an emulator; without it one that is installed is used, or
# the distribution's package is unpacked into the cache.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# The part: packages as a whole, and by name from those whose other tests start processes, break files under a
# mapping, or take long. Packages of the list that are not there are left out.
whole=(internal/mem internal/mem/litmus internal/blake3 internal/msgpackguard internal/codec internal/pyvalue pycompat shmring internal/sidecar mmhash internal/lru lrusync mmcache pin pin/cuda kv blend/rope)
named=(serde serde/enginecore engine/enginetest/wire shmstore objstore)
names='Golden|Upstream|Propert|Vector|Corrupt|Lease|Pool|Request|Count|Stale|IDs|Aligned'
skip='Process|Python|Kill|Truncat|Sparse|Random|Chaos|ManyRequests|AnyMoment|Bomb|Device'

cat <<END
arm64 under emulation: a part of the core's unit tests shows that the core builds for arm64 and computes the same
there: sizes, alignment of atomics, generic code in place of amd64 assembly. What it can't show:
  data races        there is no race detector
  missing barriers  the emulator keeps the memory order of this host
  faults            a signal for a file that was cut short arrives without its address
  memory            the emulator keeps no account of its pages, and has no io_uring
  processes         a test can't start itself
  speed
END
if [ "$(uname -m)" = aarch64 ]; then
    qemu=env # it runs here as it is
elif qemu=${QEMU:-$(command -v qemu-aarch64-static || command -v qemu-aarch64)}; then
    :
elif root=$(scripts/fetch-package.sh --only ./usr/bin/qemu-aarch64-static qemu-user-static); then
    qemu=$root/usr/bin/qemu-aarch64-static
else
    echo "SKIP arm64: no emulator, for the reason above"
    exit 0
fi
began=$SECONDS
export CGO_ENABLED=0 GOOS=linux GOARCH=arm64 FUZZ_OPS=3000 # of random sequences: an emulator is slow
there() {
    for package in "$@"; do
        [ ! -d "$package" ] || echo "./$package"
    done
}
mapfile -t packages < <(there "${whole[@]}")
scripts/gotest.py -tags failpoints -exec "$qemu" -timeout 30m -skip "$skip" "${packages[@]}"
mapfile -t packages < <(there "${named[@]}")
scripts/gotest.py -tags failpoints -exec "$qemu" -timeout 30m -run "$names" -skip "$skip" "${packages[@]}"
echo "arm64 under emulation: $((SECONDS - began)) s"

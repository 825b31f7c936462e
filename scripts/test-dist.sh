#!/bin/bash
# A release made twice, in two clones in different folders, with a tag that only these clones have: every file must be the same, byte
# for byte. Then `go install` of that tag, and what the packages contain. Needs what `make dist` needs.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
tag=v0.1.0
work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
export GIT_AUTHOR_NAME=test GIT_AUTHOR_EMAIL=test@localhost GIT_COMMITTER_NAME=test GIT_COMMITTER_EMAIL=test@localhost
git clone -q --no-tags "$here" "$work/one"
cd "$work/one"
sed -i "s/^## 0.1.0 (unreleased)$/## 0.1.0 ($(date -u +%F))/" CHANGELOG.md
git commit -q --allow-empty -am "release $tag"
git tag $tag
mkdir -p "$work/a longer way/to"
git clone -q "$work/one" "$work/a longer way/to/two"
for clone in "$work/one" "$work/a longer way/to/two"; do
    cd "$clone"
    echo "== make dist in $clone"
    scripts/release/dist.sh >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
    (cd dist && sha256sum -- *.tar.gz *.deb *.rpm *.whl about/*.json about/*/* checksums.txt) | sort -k2 > "$work/$(basename "$clone").sums"
done
diff -u "$work/one.sums" "$work/two.sums" || { echo "test-dist: a file differs between two builds of one commit" >&2; exit 1; }
echo "== $(wc -l < "$work/one.sums") files are the same in both"
cat "$work/one.sums"

cd "$work/one/dist"
cp about/*.spdx.json .
sha256sum --quiet -c checksums.txt
echo "== checksums.txt has $(wc -l < checksums.txt) files, and is right"
for file in ringcache_*.tar.gz *.deb *.rpm *manylinux*.whl; do
    case $file in
    *.tar.gz) list=$(tar -tzf "$file") ;;
    *.deb) list=$(dpkg-deb -c "$file") ;;
    *.rpm) command -v rpm >/dev/null || { echo "(no rpm here: $file is not looked into)"; continue; }; list=$(rpm -qlp "$file") ;;
    *.whl) list=$(python3 -m zipfile -l "$file") ;;
    esac
    for want in THIRD_PARTY_LICENSES spdx.json; do
        grep -q "$want" <<<"$list" || { echo "test-dist: $file has no $want" >&2; exit 1; }
    done
    case $file in *.whl) continue ;; esac
    for unit in ringcache.service ringcache.socket ringcache-directory.service; do
        grep -q "/$unit" <<<"$list" || { echo "test-dist: $file has no $unit" >&2; exit 1; }
    done
done
echo "== $(./ringcache_linux_amd64_v1/ringcache --version)"
case $(./ringcache_linux_amd64_v1/ringcache --version) in "ringcache $tag, "*) ;; *) echo "test-dist: the version is not the tag's" >&2; exit 1 ;; esac
[ -e "ringcache-${tag#v}-py3-none-any.whl" ] || { echo "test-dist: the wheel's version is not the tag's" >&2; exit 1; }

echo "== go install github.com/ringcache/ringcache/cmd/ringcache@$tag"
GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0="url.$work/one.insteadOf" GIT_CONFIG_VALUE_0=https://github.com/ringcache/ringcache GOPRIVATE=github.com/ringcache \
    GOBIN=$work/bin GOFLAGS=-modcacherw go install "github.com/ringcache/ringcache/cmd/ringcache@$tag"
"$work/bin/ringcache" --version
case $("$work/bin/ringcache" --version) in "ringcache $tag, "*) ;; *) echo "test-dist: go install does not know its version" >&2; exit 1 ;; esac

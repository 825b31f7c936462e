#!/bin/bash
# Prints the folder of a Python that is linked with musl in place of glibc, as Alpine's is: $folder/bin/python3. It is built, once for all
# clones and without root, from the distribution's packages: musl, and the sources of Python, zlib and libffi (Debian, Ubuntu).
# It has no TLS. It fails with a reason where a package or the compiler is not there.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/ringcache
musl=$("$here/scripts/fetch-package.sh" musl musl-dev musl-tools)
root=$cache/musl-python-$({ cat "${BASH_SOURCE[0]}"; basename "$musl"; } | sha256sum | cut -c1-16)
finish() { echo "$root"; exit 0; }
[ ! -e "$root/.complete" ] || finish
mkdir -p "$cache"
exec 9>"$root.lock"
flock 9 # another clone may be building it
[ ! -e "$root/.complete" ] || finish
command -v gcc make >/dev/null || { echo "musl-python: needs gcc and make" >&2; exit 1; }
rm -rf "$root"
mkdir -p "$root/lib" "$root/musl"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
log=$root/build.log
echo "building Python for musl in $root (some minutes; the log is build.log there)" >&2

# Sources by apt, with lists of its own: those of the machine have programs only.
apt=$work/apt
mkdir -p "$apt"/{sources,lists/partial,cache/archives/partial}
for file in /etc/apt/sources.list.d/*.sources; do
    [ -e "$file" ] && sed 's/^Types:.*/Types: deb-src/' "$file" > "$apt/sources/$(basename "$file")"
done
[ ! -s /etc/apt/sources.list ] || sed 's/^deb /deb-src /' /etc/apt/sources.list > "$apt/sources/machine.list"
options=(-q=2 -o "Dir::Etc::SourceList=/dev/null" -o "Dir::Etc::SourceParts=$apt/sources" -o "Dir::State::Lists=$apt/lists"
    -o "Dir::Cache=$apt/cache" -o APT::Sandbox::User=root)
python=$(apt-cache depends python3-minimal | sed -n 's/.*Depends: \(python3\.[0-9]*\)-minimal/\1/p' | head -1)
cd "$work"
# The changes that a distribution makes to the sources are not needed.
{ apt-get "${options[@]}" update && apt-get "${options[@]}" source --tar-only "$python" zlib libffi; } >>"$log" 2>&1 || { echo "musl-python: the sources of $python, zlib and libffi can't be fetched; see $log" >&2; exit 1; }
for file in *.orig.tar.*; do tar -xf "$file"; done

# gcc with musl's headers, libraries and loader, which is in the folder: the machine need not have musl.
cp -rL "$musl/usr/include/"*-linux-musl "$root/musl/include"
cp -L "$musl/usr/lib/"*-linux-musl/* "$root/musl"
cp -L "$musl/lib/"*-linux-musl/libc.so "$root/musl/libc.so"
loader=$root/lib/$(basename "$musl"/lib/ld-musl-*.so.1)
cp -L "$musl/lib/"*-linux-musl/libc.so "$loader"
cp -r /usr/include/linux /usr/include/asm-generic "$root/musl/include"
cp -r "/usr/include/$(gcc -print-multiarch)/asm" "$root/musl/include"
sed -E "s|/usr/include/[^ ]*-linux-musl|$root/musl/include|g; s|/usr/lib/[^ /]*-linux-musl|$root/musl|g; s|-dynamic-linker [^ ]*|-dynamic-linker $loader|" \
    "$musl/usr/lib/"*-linux-musl/musl-gcc.specs > "$root/musl/gcc.specs"
mkdir "$work/bin"
cat > "$work/bin/cc" <<SH
#!/bin/sh
case "\$*" in *-print-multiarch) gcc -print-multiarch | sed s/gnu/musl/; exit ;; esac # or Python's build looks into folders of glibc
exec gcc "\$@" -specs "$root/musl/gcc.specs"
SH
printf '#!/bin/sh\nexit 1\n' > "$work/bin/dpkg-architecture"
chmod +x "$work/bin/"*
export PATH=$work/bin:$PATH CC=$work/bin/cc CFLAGS="-O1 -fPIC" CPPFLAGS="-I$root/include" LDFLAGS="-L$root/lib" PKG_CONFIG_LIBDIR=$root/lib/pkgconfig
build() {
    (cd zlib-* && ./configure --static --prefix="$root" && make -j2 install) &&
        (cd libffi-* && ./configure --disable-shared --disable-docs --disable-multi-os-directory --prefix="$root" && make -j2 install) &&
        (cd Python-* && ./configure --prefix="$root" --disable-test-modules --with-ensurepip=install && make -j2 && make install) &&
        "$root/bin/python3" -c 'import ctypes, mmap, select, socket, zlib, _posixshmem'
}
build >>"$log" 2>&1 || { echo "musl-python: Python can't be built; see $log" >&2; exit 1; }
rm -rf "$root/musl" "$root"/lib/*/test
touch "$root/.complete"
finish

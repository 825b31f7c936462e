#!/bin/sh
# build.sh FOLDER makes the site of the documents in FOLDER, and reports its links. A warning is an error.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
. "$here/scripts/venv.sh"
# The lock holds packages that need Python 3.11.
for PYTHON in ${PYTHON:+"$PYTHON"} python3 python3.14 python3.13 python3.12 python3.11 ''; do
    if [ -n "$PYTHON" ] && "$PYTHON" -c 'import sys; sys.exit(sys.version_info[:2] < (3, 11))' 2>/dev/null; then break; fi
done
[ -n "$PYTHON" ] || { echo "site: needs Python 3.11 or newer with the venv module; none found" >&2; exit 1; }
install() {
    "$env/bin/python" -m pip install -q --disable-pip-version-check --require-hashes -r "$here/scripts/site/requirements.lock"
}
make_venv site "$here/scripts/site/requirements.lock" install
rm -rf "$1"
"$env/bin/python" -m sphinx -q -W --keep-going -b html -c "$here/scripts/site" -d "$1.doctrees" "$here" "$1" >&2
"$env/bin/python" "$here/scripts/site/links.py" "$1"
echo "the site is at $1/index.html, and needs no server"

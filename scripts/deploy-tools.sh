#!/bin/sh
# Prints the folder with the programs that check the files of deploy/: schemas of Compose and Kubernetes, and a linter
# of container files. They are in a virtual environment that is made on first use.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
. "$here/scripts/venv.sh"
install() { "$env/bin/python" -m pip install -q --disable-pip-version-check --only-binary :all: -r "$here/deploy/requirements.txt"; }
make_venv deploy-tools "$here/deploy/requirements.txt" install
echo "$env/bin"

#!/bin/sh
# Builds (or finds) the environment in which real vLLM runs against ringcache, and prints its path.
#
#   env=$(interop/setup.sh) && RINGCACHE_AGENT=/path/to/ringcache "$env/bin/python" -m pytest interop -q
#
# Everything lives under ${XDG_CACHE_HOME:-$HOME/.cache}/ringcache and is shared by every clone that asks for the
# same packages. See environment.py for the details and requirements.in for how the lock is made again.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)

# The lock holds packages that need Python 3.11, and wheels for later ones end at 3.13.
for python in "${RINGCACHE_INTEROP_PYTHON:-}" python3.11 python3.12 python3.13 python3; do
    [ -n "$python" ] || continue
    if "$python" -c 'import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; then
        exec "$python" "$here/environment.py" "$@"
    fi
done
echo "interop: needs Python 3.11 to 3.13 with the venv module (python3.11 preferred); none found." >&2
echo "interop: install one, or name it in RINGCACHE_INTEROP_PYTHON." >&2
exit 1

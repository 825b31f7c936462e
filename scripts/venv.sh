# Sourced. make_venv NAME FILE INSTALL sets env to a virtual environment below ~/.cache/ringcache, one for each content of
# FILE and each interpreter, which every clone shares. INSTALL is a function that fills a new one.
make_venv() {
    python=${PYTHON:-python3}
    key=$({ cat "$2"; "$python" --version; } | sha256sum | cut -c1-16)
    env=${XDG_CACHE_HOME:-$HOME/.cache}/ringcache/$1-$key
    if venv_complete; then return; fi
    mkdir -p "$(dirname "$env")"
    exec 9>"$env.lock"
    flock 9 # another clone may be making it
    if venv_complete; then return; fi
    echo "making the Python environment $env" >&2
    rm -rf "$env"
    "$python" -m venv "$env" >&2 || {
        echo "$1: $python can't make a virtual environment; install its venv module (Debian: python3-venv)" >&2
        exit 1
    }
    "$3" >&2 || {
        echo "$1: the packages that $2 names can't be installed" >&2
        exit 1
    }
    touch "$env/.complete"
}

# The interpreter below an environment can be gone.
venv_complete() { [ -e "$env/.complete" ] && [ -x "$env/bin/python" ]; }

# What scripts/test-install.sh runs inside a machine with nothing but Python, as a person would type it. For bash and for busybox.
set -eu
say() { printf '\n[%4d s] $ %s\n' "$(($(cut -d. -f1 /proc/uptime) - began))" "$*"; }
run() { say "$@"; "$@"; }
began=$(cut -d. -f1 /proc/uptime)
cd "$HOME"
wheel=$(ls /dist/ringcache-*_"$(uname -m)"*.whl)

say "command -v go git gcc ringcache; ls -A $HOME"
! command -v go git gcc ringcache || { echo "test-install: the machine has more than Python" >&2; exit 1; }
[ -z "$(ls -A "$HOME")" ]

run "$PYTHON" -m venv venv
PATH=$HOME/venv/bin:$PATH
if [ -n "${ENGINE:-}" ]; then # vLLM, which was installed elsewhere, and nothing of ours
    echo "$ENGINE" > "$(python -c 'import site; print(site.getsitepackages()[0])')/engine.pth"
    ! python -c 'import ringcache' 2>/dev/null
fi
if [ -n "${MUSL:-}" ]; then
    run pip install -q --no-index --find-links /dist ringcache
else
    run pip install -q "$wheel"
fi
run ringcache --version
run python -c 'import ringcache; print(ringcache.__version__, ringcache.__file__)'

export RINGCACHE_SOCKET=$HOME/ringcache.sock
say "ringcache serve --size 64MiB --http off &"
ringcache serve --size 64MiB --http off > serve.log 2>&1 &
server=$!
for _ in $(seq 600); do
    [ ! -S "$RINGCACHE_SOCKET" ] || break
    kill -0 "$server" || { cat serve.log; exit 1; }
    sleep 0.5
done

cat > client.py <<'PY'
import sys, time
from ringcache.daemon import Client, Mapping, Object
def put(name, value):
    client = Client(client="first process", space="s", timeout=60)
    (place,) = client.reserve("lease", [Object(name=name, size=len(value))])
    with Mapping(client.segment, writable=True) as mapping:
        mapping.view(place.offset, place.size)[:] = value
    print("stored:", client.commit("lease", [name])[0].status)
def get(name):
    client = Client(client="second process", space="s", timeout=60)
    (found,) = client.pin("lease", [name])
    print("asked for again:", found.status)
    with Mapping(client.segment) as mapping:
        return bytes(mapping.view(found.offset, found.size))
value = bytes(range(256)) * 4096
if sys.argv[1] == "put":
    put("object", value)
else:
    assert get("object") == value
    print("1 MiB, every byte as it was written by the other process")
PY
run python client.py put
run python client.py get

if [ -n "${ENGINE:-}" ]; then
    cat > engines.py <<'PY'
import json, os, subprocess, sys
ec = {"ec_connector": "EncoderCacheConnector", "ec_connector_module_path": "ringcache.vllm", "ec_role": "ec_both"}
with open("inputs.json", "w") as f:
    json.dump([{"name": "photo", "prompt_token_ids": [1, 20, 4, 40, 31], "params": {"max_tokens": 3}, "images": ["/media/chelsea.png"]}], f)
answers = []
for name in "one", "two":
    log = open(name + ".log", "wb")
    engine = subprocess.Popen([sys.executable, "/demo/encoder_engine.py", "--model", "/model", "--inputs", "inputs.json", "--ec", json.dumps(ec)],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)
    ready = engine.stdout.readline()
    if not ready:
        sys.exit(open(name + ".log").read()[-4000:])
    print("engine %s is ready after %.0f s" % (name, json.loads(ready)["ready"]["seconds"]), flush=True)
    engine.stdin.write('{"ask": ["photo"]}\n')
    engine.stdin.flush()
    answer = json.loads(engine.stdout.readline())
    if "error" in answer:
        sys.exit(answer["error"])
    w = answer["workers"][0]
    print("engine %s: calls of the vision tower %d, outputs loaded %d, tokens %s" % (name, w["calls"], w["loads"], answer["answers"][0]["tokens"]), flush=True)
    answers.append((w["calls"], w["loads"], answer["answers"][0]["tokens"]))
    engine.stdin.close()
    engine.wait()
one, two = answers
assert one[0] == 1 and two[:2] == (0, 1) and one[2] == two[2], answers
PY
    run python engines.py
fi
run ringcache serve status
run ringcache ls
run ringcache top --once
say "kill %ringcache"
kill "$server"
wait "$server"
tail -1 serve.log

if [ -z "${MUSL:-}" ]; then
    run "$PYTHON" -m venv uv
    export UV_PYTHON="$PYTHON" UV_PYTHON_DOWNLOADS=never # the one that is there, and no other
    run uv/bin/pip install -q uv
    run uv/bin/uvx -q --from "$wheel" ringcache --version
    say "uvx --from $wheel ringcache serve --size 16MiB --http off --name uvx &"
    uv/bin/uvx -q --from "$wheel" ringcache serve --size 16MiB --http off --name uvx > uvx.log 2>&1 &
    server=$!
    for _ in $(seq 600); do
        ! uv/bin/uvx -q --from "$wheel" ringcache serve status > status 2>/dev/null || break
        kill -0 "$server" || { cat uvx.log; exit 1; }
        sleep 0.5
    done
    run cat status
    kill "$server"
    wait "$server" || :

    run "$PYTHON" -m venv pure
    run pure/bin/pip install -q --no-deps /dist/ringcache-*-none-any.whl
    say pure/bin/ringcache serve
    ! pure/bin/ringcache serve 2> explained || { echo "test-install: the wheel for any machine has no command, and its command succeeds" >&2; exit 1; }
    cat explained
    case $(cat explained) in *"go install "*) ;; *) echo "test-install: the command of the wheel for any machine explains nothing" >&2; exit 1 ;; esac
fi
say "done"

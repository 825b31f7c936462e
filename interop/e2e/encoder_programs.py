"""What the demo and the measurement of the encoder cache run: `ringcache serve`, Redis, and engines (encoder_engine.py). Only the standard library."""

import contextlib
import glob
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
PATIENCE = 300  # seconds that anything may take on a busy machine
IMAGE = {"llava": [4], "llava_large": [4], "qwen2vl": [5, 4, 6]}  # placeholder of an image
TOWERS = {"llava": "2 layers x 64, 16 tokens: a toy, whose output is made in less time than it is fetched",
          "qwen2vl": "2 layers x 64, 4 to 16 tokens: a toy, whose output is made in less time than it is fetched",
          "llava_large": "8 layers x 512, 256 tokens"}
ROOT = HERE.parents[1]
MEDIA = ROOT / "examples" / "media"


def environment():
    """What setup.sh prints, by name."""
    out = subprocess.run([HERE / "setup.sh"], check=True, stdout=subprocess.PIPE, text=True).stdout
    return dict(line.split("=", 1) for line in out.splitlines())


@contextlib.contextmanager
def progress(what):
    """Tells what takes longer than a second, and for how long: by a line that changes on a terminal, by lines elsewhere."""
    terminal, done, began = sys.stderr.isatty(), threading.Event(), time.monotonic()

    def tell():
        pause, shown = 1, False
        while not done.wait(pause):
            text = "         %s: %.0f s" % (what, time.monotonic() - began)
            if terminal:
                print("\r" + text, end="", file=sys.stderr, flush=True)
            else:
                print(text, file=sys.stderr, flush=True)
                pause = 10
            shown = True
        if shown and terminal:
            print("\r\033[K", end="", file=sys.stderr, flush=True)

    thread = threading.Thread(target=tell, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def die_with_parent():
    import supervise
    supervise.die_with_parent()


def until(what, done):
    end = time.monotonic() + PATIENCE
    while not done():
        if time.monotonic() > end:
            raise SystemExit("%s takes longer than %d s" % (what, PATIENCE))
        time.sleep(0.005)


class Programs(contextlib.ExitStack):
    """Ends all that was started, and removes the folder and the shared memory."""

    def __enter__(self):
        super().__enter__()
        self.folder = pathlib.Path(self.enter_context(tempfile.TemporaryDirectory(prefix="ec")))
        return self

    def start(self, command, **options):
        name = pathlib.Path(str(command[0])).name
        log = self.enter_context(open(self.folder / (name + ".log"), "ab"))
        process = subprocess.Popen([str(c) for c in command], stderr=log, preexec_fn=die_with_parent, **options)
        process.log = log.name
        self.callback(self.kill, process)
        return process

    @staticmethod
    def kill(process):
        if process.poll() is None:
            process.kill()
        process.wait()


class Server:
    """`ringcache serve` on a segment and a socket of its own."""

    def __init__(self, programs, name="ringcache"):
        self._programs, self.binary = programs, programs.folder / "ringcache"
        subprocess.run(["go", "build", "-o", self.binary, "./cmd/ringcache"], cwd=ROOT, check=True)
        self.socket, self.segment = programs.folder / "socket", "%s-%s" % (name, programs.folder.name)
        self.process = None
        programs.callback(self.lose_memory)

    def start(self, *options):
        command = [self.binary, "serve", "--socket", self.socket, "--name", self.segment, "--http", "off", *options]
        self.process = self._programs.start(command, stdout=subprocess.DEVNULL)
        until("the start of the server", self._listens)

    def _listens(self):
        if self.process.poll() is not None:
            raise SystemExit("ringcache serve has ended:\n" + pathlib.Path(self.process.log).read_text()[-4000:])
        with socket.socket(socket.AF_UNIX) as s:
            try:
                s.connect(str(self.socket))
            except OSError:
                return False
        return True

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(PATIENCE)

    def kill(self):
        self._programs.kill(self.process)

    def lose_memory(self):
        for file in glob.glob("/dev/shm/%s*" % self.segment):
            os.unlink(file)


class Redis:
    def __init__(self, programs):
        packages = ["redis-server", "redis-tools", "libjemalloc2", "liblzf1", "libatomic1"]
        root = subprocess.run([ROOT / "scripts" / "fetch-package.sh", *packages], check=True, stdout=subprocess.PIPE,
                              text=True).stdout.strip()
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        self.address = "127.0.0.1:%d" % port
        command = [root + "/usr/bin/redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly",
                   "no", "--dir", programs.folder]
        libraries = ":".join(glob.glob(root + "/usr/lib/*"))
        programs.start(command, stdout=subprocess.DEVNULL, env={**os.environ, "LD_LIBRARY_PATH": libraries})
        until("the start of Redis", self._listens)

    def _listens(self):
        host, port = self.address.split(":")
        with socket.socket() as s:
            return s.connect_ex((host, int(port))) == 0


class Engine:
    """encoder_engine.py in a process of its own; ready waits for it."""

    def __init__(self, programs, python, model, inputs, server=None, role="ec_both", **options):
        command = [python, HERE / "encoder_engine.py", "--model", model, "--inputs", inputs]
        if server:
            command += ["--ec", json.dumps({
                "ec_connector": "EncoderCacheConnector", "ec_connector_module_path": "ringcache.vllm", "ec_role": role,
                "ec_connector_extra_config": {"socket": str(server.socket), **options}})]
        path = {"PYTHONPATH": str(ROOT / "python" / "src")}
        self._process = programs.start(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                       env={**os.environ, **path}, text=True)

    def ready(self):
        return self._answer()["ready"]["seconds"]

    def _answer(self):
        line = self._process.stdout.readline()
        answer = json.loads(line) if line else {"error": "the engine has ended"}
        if "error" in answer:
            raise SystemExit("%s:\n%s" % (answer["error"], pathlib.Path(self._process.log).read_text()[-6000:]))
        return answer

    def do(self, **command):
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def ask(self, *names):
        return self.do(ask=names)

    def forget(self):
        """Empties the engine's own encoder cache."""
        self.do(reset="encoder")

    def settle(self, name):
        """Asks until the connector has found the server again, and loads."""
        def loads():
            self.forget()
            return self.ask(name)["workers"][0]["loads"] > 0
        until("the connector", loads)

    def end(self):
        self._process.stdin.close()
        self._process.wait(PATIENCE)

"""Package lmcache/config beside the real LMCache, 0.5.6 or 0.5.7: random files, environments and command lines, in one
process each, and all options.

Needs an environment of setup.sh, and a release of lmcache of e2e/lmcache.sh, which is not in the lock:

    PYTHONPATH=$lmcache "$env/bin/python" -m pytest interop/test_config.py -q -s

The files in lmcache/config/testdata are the first 300 cases of each release, made without pytest:

    PYTHONPATH=$lmcache LMCACHE_LOG_LEVEL=CRITICAL "$env/bin/python" interop/test_config.py lmcache/config/testdata/0.5.6.jsonl 300
"""

import argparse
import importlib.metadata
import json
import math
import os
import pathlib
import random
import shutil
import struct
import subprocess
import sys

import pytest
from lmcache_release import installed

HERE = pathlib.Path(__file__).resolve().parent
CASES = int(20_000 * float(os.environ.get("RINGCACHE_INTEROP_SCALE", "1")))


def test_random_configurations(tmp_path):
    if not installed():
        pytest.skip("no lmcache on PYTHONPATH; the top of this file has the commands")
    if shutil.which("go") is None:
        pytest.skip("no go on PATH to run the Go half with")
    cases = tmp_path / "cases.jsonl"
    env = {k: v for k, v in os.environ.items() if not k.startswith("LMCACHE_")}
    env |= {"LMCACHE_LOG_LEVEL": "CRITICAL", "LMCACHE_TRACK_USAGE": "false", "VLLM_LOGGING_LEVEL": "ERROR"}
    subprocess.run([sys.executable, __file__, cases, str(CASES)], env=env, check=True)
    done = subprocess.run(["go", "test", "-count=1", "-run", "^TestGolden$", "-v", "./lmcache/config"], cwd=HERE.parent, capture_output=True, text=True,
                          env={**os.environ, "RINGCACHE_LMCACHE_CONFIGS": str(cases)})
    print(done.stdout, done.stderr)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr
    assert "%s: %d cases, 0 different" % (cases, CASES) in done.stdout


def plain(v, texts=False):
    """A value as the Go half writes it. Elements of lists of texts are texts there."""
    if isinstance(v, bool):
        return str(v) if texts else v
    if isinstance(v, int):
        return str(v) if texts or not -2**63 <= v < 2**63 else {"i": str(v)}
    if isinstance(v, float):
        if texts:
            return str(v)
        return {"f": "nan" if math.isnan(v) else "%x" % struct.unpack(">Q", struct.pack(">d", v))[0]}
    if isinstance(v, (list, tuple)):
        return [plain(e, texts) for e in v]
    if isinstance(v, dict):
        return {"m": {str(k): plain(e) for k, e in v.items()}}
    return v if v is None else str(v)


KINDS = {"int": "int", "_to_bool": "bool", "float": "float", "str": "text", "_to_int_list": "ints", "_to_float_list": "floats",
         "_to_str_list": "texts", "_parse_local_disk": "folders", "_to_hidden_states_retrieve_mode": "mode"}
SPECIAL = {"extra_config": "map", "runtime_plugin_locations": "plugins"}


class Engine:
    """Draws configurations of engines, and reads them as LMCache does."""

    def __init__(self, r, folder):
        from lmcache.v1 import config
        from lmcache.v1.config_base import validate_and_set_config_value
        self.r, self.config, self.set, self.file = r, config, validate_and_set_config_value, folder / "drawn.yaml"
        self.kind = {n: KINDS.get(d["env_converter"].__name__) or SPECIAL[n] for n, d in config._CONFIG_DEFINITIONS.items()}
        self.names = list(self.kind)

    def table(self):
        rows = [(n, self.kind[n], plain(d["default"])) for n, d in self.config._CONFIG_DEFINITIONS.items()]
        return {"kind": "table", "table": rows}

    def name(self):
        r = self.r
        k = r.random()
        if k < 0.86:
            return r.choice(self.names)
        if k < 0.94:
            return r.choice(sorted(set(self.config._CONFIG_ALIASES) | set(self.config._DEPRECATED_CONFIGS)))
        return r.choice(("chunk_sise", "Chunk_Size", "size", "ec_chunk_size", "ec_local_disk", "5", "true", "1.5"))

    NUMBERS = ("0", "1", "-1", "+7", "256", "1_000", "1__0", "_1", "0x10", "0b101", "0o17", "017", "08", "0x", "0b_", "1e3", "1e+3", "1.0e+3", "1.5", ".5", "5.", "-.5", "1:30", "1:30.5", "190:20:30",
               ".inf", "-.inf", ".nan", "inf", "nan", "-Infinity", "9223372036854775807", "9223372036854775808", "1e999", "1.0e+999", " 12 ", "12abc", "1 2", "\u00a07", "1E5", "1e-7", "0.00001", "123456789012345680.0")
    WORDS = ("true", "True", "TRUE", "tRuE", "false", "yes", "no", "on", "Off", "y", "n", "null", "~", "Null", "none", "", "LRU", "lru", "sha256_cbor", "builtin", "cpu", "cuda", "PDBackend", "LocalCPUBackend,PDBackend",
             "file:///a/,/b/", "/mnt/x", " , ", "a, b ,,c", "prefix-strict", "PrefixStrict", "legacy", "skip_missing_chunks", "lm://h:1", "redis://u:p@h:1", "sync", "async", "receiver", "sender", "2024-01-02", "2024-13-02",
             "2024-1-2", "12:30:45", "x y", "a:b", "@x", "%d", "\u00e9\u6f22", "<<", "=")
    JSON = ('{"a": 1}', '{"a": [1, 2.5, null, true, "x"], "b": {"c": {}}}', "{}", "[]", "[1]", "null", "5", '"x"', '{"a": NaN}', '{"a":1,}', '{"enable_nixl_storage": true}', "{", '{"a": 1} x', '{"a": 1, "a": 2}', '{"x": 1e400, "y": 12345678901234567890}',
            ' {"a" : "\\u00e9\\n"}\n')

    def scalar(self):
        r = self.r
        v = r.choice(r.choice((self.NUMBERS, self.WORDS, self.JSON, self.NUMBERS, self.WORDS)))
        k = r.random()
        if k < 0.2:
            return json.dumps(v)
        if k < 0.3:
            return "'" + v.replace("'", "''") + "'"
        if k < 0.33:
            return r.choice(("!!str ", "!!int ", "!!float ", "!foo ")) + v.strip()
        return v.strip()

    def sensible(self, name):
        r, kind = self.r, self.kind.get(name, "int")
        number = str(r.choice((0, 1, 2, 16, 256, 1000)))
        return {"bool": lambda: r.choice(("true", "false", "yes", "off", "1", "0")), "int": lambda: number, "float": lambda: r.choice((number, "0.5", "1e-3", "2.25")), "text": lambda: r.choice(("abc", "lm://h:1", "cpu", "sync", "receiver")),
                "ints": lambda: r.choice((number, "[%s, 7]" % number, '"1, 2,3"', "[]")), "floats": lambda: r.choice(("0.5", "[0.5, 1]", "[]", "1")), "texts": lambda: r.choice(("a", "[a, b]", '"a, b"', "[PDBackend]", "[]")),
                "folders": lambda: r.choice(("/a", "file:///a/", '"/a,file:///b"')), "map": lambda: r.choice(("{a: 1}", "{a: {b: [1, 2]}}", '"{}"', json.dumps('{"a": 1}'))), "plugins": lambda: r.choice(("a", "[a]", "[]", '"a,b"')), "mode": lambda: "legacy"}[kind]()

    def value(self, name):
        r = self.r
        k = r.random()
        if k < 0.55:
            return self.sensible(name)
        if k < 0.85:
            return self.scalar()
        if k < 0.93:
            return "[" + ", ".join(json.dumps(self.scalar()) if r.random() < 0.3 else r.choice(("1", "2.5", "x", "true", "null", "-3", "1e3", "[1]", "{a: 1}", "0x1F")) for _ in range(r.randrange(0, 4))) + "]"
        return r.choice(("{}", "{a: 1}", "{1: x, true: y}", "&x 5", "{a: 2024-01-02, b: 1.5, c: [yes]}"))

    BUNDLES = (
        ("enable_controller: true", "controller_pull_url: a:1", "controller_reply_url: a:2", "lmcache_worker_ports: [1, 2]"),
        ("enable_controller: true", "controller_pull_url: a:1", "controller_reply_url: a:2", "lmcache_worker_ports: 1", "enable_p2p: true", "p2p_host: h", "p2p_init_ports: 1", "p2p_lookup_ports: 2", "transfer_channel: nixl"),
        ("enable_pd: true", "pd_role: receiver", "pd_buffer_size: 1", "pd_buffer_device: cpu", "retrieve_locations: [PDBackend]", "store_location: x"),
        ("enable_pd: true", "pd_role: receiver", "pd_buffer_size: 1", "pd_buffer_device: cpu", "pd_backend_mode: sync", "enable_p2p: off"),
        ("enable_blending: yes", "blend_check_layers: 1"),
        ("extra_config: {enable_nixl_storage: true, nixl_backend: POSIX, nixl_pool_size: 4, nixl_use_hugepages: true}", "nixl_buffer_device: cpu", "local_cpu_use_hugepages: true"),
        ("extra_config: {enable_nixl_storage: true, nixl_backend: POSIX, nixl_pool_size: 4, nixl_use_hugepages: 1}", "nixl_buffer_device: cuda", "nixl_buffer_size: 5"),
        ("extra_config: {enable_nixl_storage: true, nixl_backend: POSIX, nixl_pool_size: 4, nixl_presence_cache_only: true, nixl_presence_cache: 1}", "nixl_buffer_device: cpu", "max_local_cpu_size: 0.1"),
    )

    def document(self):
        r = self.r
        if r.random() < 0.03:
            return r.choice(("", "# nothing", "0", "false", "[]", "''", "5", "[a]", "text", "null", "{}", "a: b: c", "a: 1\n---\nb: 2", "{chunk_size: 7}", "a: [", "? [1]\n: 2", "\tchunk_size: 1"))
        lines = []
        if r.random() < 0.25:
            lines += [x for x in r.choice(self.BUNDLES) if r.random() < 0.93]
        for _ in range(r.choice((0, 1, 2, 3, 5, 8))):
            name = self.name()
            lines.append("%s: %s" % (name, self.value(name)))
        if r.random() < 0.05:
            lines = ["base: &base {chunk_size: 11, local_disk: /m, min_retrieve_tokens: 3}", "other: &other {chunk_size: 12, pin_timeout_sec: 4}"] + lines + [r.choice(("<<: *base", "<<: [*base, *other]", "<<: 5", "<<: [*other, *base]"))]
        r.shuffle(lines) if r.random() < 0.5 and "<<" not in "".join(lines) else None
        return "\n".join(lines) + "\n"

    def variable(self, name):
        r = self.r
        v = self.sensible(name) if r.random() < 0.4 else r.choice(r.choice((self.NUMBERS, self.WORDS, self.JSON)))
        k = r.random()
        if k < 0.3:
            q = r.choice("'\"")
            v = r.choice((q + v + q, " " + q + v + q + "\t", q * 3 + v + q * 3, q + v + q + " " + q + "1" + q, q + v + q + ", " + q + "b" + q, q + "\\x31\\n\\t\\q\\101\\u0032" + q, q + v + "\\" + q, q + v + q + " # " + q, q + q, q, q + "a\nb" + q,
                          q + "a" + q + " + " + q + "b" + q, q + "\\\nx" + q, q + "\\N{DIGIT ONE}" + q, "'" + v + '"', q + "\\400\\8\\x4" + q))
        return v

    def draw(self):
        r = self.r
        case = {"kind": "engine", "environ": []}
        if r.random() < 0.8:
            case["yaml"] = self.document()
        names = [self.name() for _ in range(r.choice((0, 0, 1, 2, 4)))]
        variables = {"LMCACHE_" + n.upper(): self.variable(n) for n in names if n not in ("5", "true", "1.5")}
        if r.random() < 0.1:
            variables.update({"LMCACHE_EXTRA_CONFIG": self.variable("extra_config"), "LMCACHE_CHUNK_SISE": "1"})
        case["environ"] = ["%s=%s" % v for v in variables.items()]
        if r.random() < 0.2:
            pool = (0, 1, 512, -3, 1.5, True, False, None, "", "512", "true", "a,b", [1, 2], ["a"], {"a": 1}, "x", '{"a": 2}', {"b": [1, {"c": None}]}, 2**70)
            case["connector"] = json.dumps({r.choice(("lmcache.", "lmcache.", "lmcache.", "other.")) + self.name(): r.choice(pool) for _ in range(r.randrange(3))})
        want = self.read(case, variables)
        return {**case, "want": want}

    def whole(self, name, value):
        """LMCache leaves a boolean in the place of a list of whole numbers as it is; it is equal to 0 or 1."""
        return [int(e) for e in value] if self.kind[name] == "ints" and isinstance(value, list) else value

    def read(self, case, variables):
        for k in [k for k in os.environ if k.startswith("LMCACHE_")]:
            del os.environ[k]
        os.environ.update(variables)
        cls = self.config.LMCacheEngineConfig
        try:
            if "yaml" in case:
                self.file.write_text(case["yaml"])
                c = cls.from_file(str(self.file))
                c.update_config_from_env()
            else:
                c = cls.from_env()
                c.validate()
            for k, v in json.loads(case.get("connector") or "{}").items():
                if k.startswith("lmcache."):
                    self.set(c, k[8:], v)
        except Exception:
            return None
        values = {n: plain(self.whole(n, getattr(c, n)), self.kind[n] in ("texts", "plugins")) for n in self.names}
        made = values["lmcache_instance_id"]
        if isinstance(made, str) and made.startswith("lmcacheengineconfig_") and len(made) == 52:
            values["lmcache_instance_id"] = None
        return values


class Refused(Exception):
    pass


class Parser(argparse.ArgumentParser):
    def error(self, message):
        raise Refused(message)

    def exit(self, status=0, message=None):
        raise Refused(message)


class Server:
    """Draws command lines of lmcache server."""

    def __init__(self, r):
        from lmcache.v1.distributed import config as storage
        from lmcache.v1.mp_observability.config import add_observability_args
        from lmcache.v1.multiprocess import config as server
        self.r, self.server, self.storage = r, server, storage
        self.release = importlib.metadata.version("lmcache")[:5]
        self.parser = Parser(prog="lmcache server")
        for add in (server.add_mp_server_args, server.add_p2p_args, storage.add_storage_manager_args, server.add_http_frontend_args, add_observability_args, server.add_coordinator_args):
            add(self.parser)
        self.actions = [a for a in self.parser._actions if a.dest != "help"]
        self.flags = [o for a in self.actions for o in a.option_strings]

    @staticmethod
    def option(action):
        return action.option_strings[0][2:]

    def table(self):
        rows = []
        for a in self.actions:
            kind = "bool" if a.nargs == 0 else "texts" if a.nargs == "*" or isinstance(a, argparse._AppendAction) else {int: "int", float: "float"}.get(a.type, "text")
            rows.append((self.option(a), kind, plain(a.default)))
        return {"kind": "table", "release": self.release, "table": rows}

    def draw(self):
        r = self.r
        args = ["--l1-size-gb", "4", "--eviction-policy", "LRU"] if r.random() < 0.9 else []
        for _ in range(r.choice((0, 1, 2, 4))):
            flag = r.choice(self.flags)
            if flag == "--server-module":
                continue
            action = self.parser._option_string_actions[flag]
            if r.random() < 0.25:
                flag = flag[:max(3, len(flag) - r.choice((1, 1, 2, 3, 5, 9)))]
            pool = list(action.choices or ()) * 3 + ["1", "0", "30", "100", "-5", "-.5", "1.5", "nan", "inf", "1_0", " 8 ", "x", "", "a b", "-x", "--port", "--bogus=a b", '{"a": 1}', "-1e3"]
            if r.random() < 0.7:
                pool = list(action.choices or ()) or {int: ["1", "30", "64"], float: ["0.5", "60", "1e3"]}.get(action.type, ["x", "/a b", "{}", ""])
            value = r.choice(pool)
            if action.nargs == 0 and r.random() < 0.9:
                args.append(flag)
            elif r.random() < 0.3:
                args.append("%s=%s" % (flag, value))
            else:
                args += [flag] + [r.choice(pool) for _ in range(r.choice((0, 1, 1, 1, 1, 2) if action.nargs != "*" else (0, 1, 2, 3)))]
        variables = {"LMCACHE_COORDINATOR_" + n: r.choice(("", "1", "yes", "TRUE", "2.5", "x", "-1", "http://c:1")) for n in ("URL", "ADVERTISE_IP", "HEARTBEAT_INTERVAL", "EVENT_REPORTING", "EVENT_FLUSH_INTERVAL") if r.random() < 0.1}
        case = {"kind": "server", "release": self.release, "args": args, "environ": ["%s=%s" % v for v in variables.items()]}
        want, why = self.read(args, variables)
        return {**case, "want": want, "why": why}

    def read(self, args, variables):
        for k in [k for k in os.environ if k.startswith("LMCACHE_")]:
            del os.environ[k]
        os.environ.update(variables)
        try:
            read = self.parser.parse_args(list(args))
            self.server.parse_args_to_mp_server_config(read)
            coordinator = self.server.parse_args_to_coordinator_config(read)
        except (Refused, ValueError) as e:
            return None, str(e)
        try:
            self.storage.parse_args_to_config(read)
        except Exception as e:
            # What else a storage manager refuses depends on the machine and the modules that are there.
            if str(e).startswith(("Legacy L1", "Use either")):
                return None, str(e)
        values = {self.option(a): plain(getattr(read, a.dest)) for a in self.actions}
        for n in ("url", "advertise_ip", "heartbeat_interval", "event_reporting", "event_flush_interval"):
            values["coordinator-" + n.replace("_", "-")] = plain(getattr(coordinator, n))
        return values, ""


def main(path, count):
    r = random.Random(int(os.environ.get("RINGCACHE_SEED", "32")))
    engine, server = Engine(r, pathlib.Path(path).parent), Server(r)
    with open(path, "w") as f:
        tables = engine.table(), server.table()
        for table in tables:
            f.write(json.dumps(table) + "\n")
        presets = [{name: preset for name, _, preset in table["table"]} for table in tables]
        for i in range(count):
            which = int(i % 3 == 0)
            case = (engine, server)[which].draw()
            if case["want"] is not None:  # what differs from the defaults
                case["want"] = {n: v for n, v in case["want"].items() if n not in presets[which] or v != presets[which][n]}
            f.write(json.dumps({k: v for k, v in case.items() if v not in (None, [], {}) or k == "want"}) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))

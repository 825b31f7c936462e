"""``python -m ringcache.vllm check``."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from standin import Standin
from test_daemon import Daemon, eventually, real  # noqa: F401

from ringcache.daemon import Client

HERE = pathlib.Path(__file__).resolve().parent

# Neither vLLM nor torch is needed, and neither is loaded where it is there.
PROGRAM = """
import runpy, sys
sys.modules["vllm"] = sys.modules["torch"] = None
sys.argv[0] = "ringcache.vllm"
runpy.run_module("ringcache.vllm", run_name="__main__", alter_sys=False)
"""


@pytest.fixture
def standin(tmp_path: pathlib.Path) -> Iterator[Standin]:
    made = Standin(str(tmp_path / "s"))
    yield made
    made.close()


def run(*arguments: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(HERE.parent / "src"), "RINGCACHE_SOCKET": "/nonexistent/s"},
        timeout=600,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout + done.stderr


def transfer(role: str = "ec_both", **extra: Any) -> str:
    made: dict[str, Any] = {
        "ec_connector": "EncoderCacheConnector",
        "ec_connector_module_path": "ringcache.vllm",
        "ec_role": role,
    }
    if extra:
        made["ec_connector_extra_config"] = extra
    return json.dumps(made)


def test_all_is_well(real: Daemon) -> None:  # noqa: F811
    with Client(real.socket, client="test", space="s", timeout=30) as c:
        eventually(c.hello)
        server = c.server
    for role, way in (
        ("ec_both", "reading and writing"),
        ("ec_producer", "reading and writing"),
        ("ec_consumer", "reading"),
    ):
        assert run("check", transfer(role, socket=real.socket, wait=1)) == (
            0,
            f"ok      options  EncoderCacheConnector, {role}, socket={real.socket!r}, wait=1\n"
            f"ok      daemon   {server} at {real.socket}, protocol 1\n"
            f"ok      segment  {real.name}, 8 MiB, can be mapped for {way}\n",
        )


def test_all_is_well_for_kv_blocks(standin: Standin) -> None:
    status, text = run("check", kv_transfer(socket=standin.path, wait=1))
    assert status == 0
    assert text.splitlines() == [
        f"ok      options  KVOffloadingSpec, kv_both, socket={standin.path!r}, wait=1",
        f"ok      daemon   stand-in at {standin.path}, protocol 1",
        f"ok      segment  {standin.segment}, 1 MiB, can be mapped for reading and writing",
    ]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"kv_connector": "LMCacheMPConnector"}, "kv_connector must be 'OffloadingConnector', got 'LMCacheMPConnector'"),
        ({"kv_role": "kv_producer"}, "kv_role must be 'kv_both', got 'kv_producer'"),
        ({"kv_connector_extra_config": None}, "kv_connector_extra_config must be an object, in braces, got None"),
        ({"extra": {"spec_name": "CPUOffloadingSpec"}}, "spec_name must be 'KVOffloadingSpec', got 'CPUOffloadingSpec'"),
        ({"extra": {"sockets": "x"}}, "kv_connector_extra_config has no option 'sockets'"),
    ],
)
def test_what_is_wrong_for_kv_blocks(changes: dict[str, Any], words: str) -> None:
    made = json.loads(kv_transfer(**changes.pop("extra", {})))
    status, text = run("check", json.dumps({**made, **changes}))
    assert status == 1
    assert text.startswith("failed  options")
    assert words in text


def kv_transfer(**extra: Any) -> str:
    extra = {"spec_name": "KVOffloadingSpec", "spec_module_path": "ringcache.vllm", **extra}
    made = {"kv_connector": "OffloadingConnector", "kv_role": "kv_both", "kv_connector_extra_config": extra}
    return json.dumps(made)


def test_nobody_is_there(tmp_path: pathlib.Path) -> None:
    status, text = run("check", transfer())
    assert status == 1
    first, second = text.splitlines()
    assert first == "ok      options  EncoderCacheConnector, ec_both"
    assert second.startswith("failed  daemon   the daemon at /nonexistent/s is away: ")
    assert second.endswith(
        "No daemon listens there: start `ringcache serve --socket /nonexistent/s`, or put the socket of the one "
        "that runs into RINGCACHE_SOCKET or into the option socket"
    )
    other = tmp_path / "file"
    other.touch()
    status, text = run("check", transfer(socket=str(other)))
    assert status == 1
    assert text.endswith("That is no socket\n")


def test_a_daemon_that_died(real: Daemon) -> None:  # noqa: F811
    with Client(real.socket, client="test", space="s", timeout=30) as c:
        eventually(c.hello)
    real.kill()
    status, text = run("check", transfer(socket=real.socket))
    assert status == 1
    assert f"Is `ringcache serve` running? It listens at {real.socket}, or did\n" in text


@pytest.mark.parametrize(
    ("text", "result"),
    [
        (transfer(sockt="/x"), "ec_connector_extra_config has no option 'sockt'; there are socket, space, "),
        (transfer(wait="2"), "ec_connector_extra_config: wait must be a number, got '2'"),
        (transfer(lease=1), "ec_connector_extra_config: lease must be 10 to 86400 seconds, got 1"),
        (transfer("both"), "ec_role must be ec_both, ec_consumer or ec_producer, got 'both'"),
        ("{ec_role: 1}", "no JSON: "),
        ("[]", "--ec-transfer-config must be an object, in braces"),
        ("{}", "ec_connector must be 'EncoderCacheConnector', got None"),
        (
            transfer().replace('"ringcache.vllm"', '"ringcache"'),
            "ec_connector_module_path must be 'ringcache.vllm', got 'ringcache'",
        ),
        (
            transfer().replace("{", '{"socket": "/x", ', 1),
            "socket belongs into ec_connector_extra_config: {...}",
        ),
        (
            transfer().replace("{", '{"ec_connector_extra_config": 3, ', 1),
            "ec_connector_extra_config must be an object, in braces, got 3",
        ),
        (
            transfer().replace("{", '{"ec_connector_extra_config": [], ', 1),
            "ec_connector_extra_config must be an object, in braces, got []",
        ),
        (
            transfer().replace("{", '{"ec_connector_extra_config": null, ', 1),
            "ec_connector_extra_config must be an object, in braces, got None",
        ),
        (
            transfer().replace("{", '{"ec_conector_extra_config": {"wait": 1}, ', 1),
            "vLLM has no 'ec_conector_extra_config' there; it has ec_connector, ",
        ),
        (
            transfer(tenant="ä" * 128),
            "ec_connector_extra_config: tenant has 256 bytes, the most is 255\n",
        ),
        (transfer(space="s" * 256), "ec_connector_extra_config: space has 256 bytes, the most is 255\n"),
        (
            transfer(revision="r" * 4097),
            "ec_connector_extra_config: revision has 4097 bytes, the most is 4096\n",
        ),
        (transfer(tenant="a\0b"), "ec_connector_extra_config: tenant has a zero byte, got 'a\\x00b'\n"),
        (transfer(socket="/x\0"), "ec_connector_extra_config: socket has a zero byte, got '/x\\x00'\n"),
        (transfer(socket="/\ud800"), "ec_connector_extra_config: socket is no text: '/\\ud800'\n"),
        (transfer(space="\udc80"), "ec_connector_extra_config: space is no text: '\\udc80'\n"),
        (transfer(wait=10**400), "ec_connector_extra_config: wait must be 0 to 600 seconds, got inf\n"),
    ],
)
def test_wrong_option(text: str, result: str) -> None:
    status, said = run("check", text)
    assert status == 1
    assert said.startswith("failed  options  " + result)
    assert said.count("\n") == 1


def test_what_vllm_and_the_daemon_take_is_right(standin: Standin) -> None:
    given = json.loads(transfer(tenant="t" * 255, space="ä" * 127, revision="r" * 4096))
    for key, value in {"engine_id": "x", "ec_rank": 0, "ec_port": 1, "ec_buffer_size": 1e9}.items():
        given[key] = value
    given["ec_connector_extra_config"]["socket"] = standin.path
    status, text = run("check", json.dumps(given))
    assert (status, text.count("ok ")) == (0, 3), text


def test_long_path_of_a_socket(tmp_path: pathlib.Path) -> None:
    path = str(tmp_path / "s").ljust(120, "s")
    status, text = run("check", transfer(socket=path))
    assert status == 1
    assert text.endswith("The path has 120 bytes, and that of a socket has at most 107: choose a shorter one\n")


def test_path_that_is_no_utf8() -> None:
    """It is a path all the same, as a shell has it."""
    status, text = run("check", transfer(socket="/nonexistent/\udc80"))
    assert status == 1
    assert "the daemon at /nonexistent/\\udc80 is away: " in text
    assert "No daemon listens there" in text


def test_daemon_that_refuses(standin: Standin) -> None:
    """It runs, and listens there."""
    standin.answer = lambda _: {"error": {"kind": "busy", "text": "8 connections are too many"}}
    status, text = run("check", transfer(socket=standin.path))
    assert status == 1
    assert text.endswith("failed  daemon   8 connections are too many\n")


def test_segment_that_is_not_here(standin: Standin) -> None:
    pathlib.Path("/dev/shm", standin.segment).unlink()
    status, text = run("check", transfer(socket=standin.path))
    assert status == 1
    last = text.splitlines()[-1]
    assert last.startswith("failed  segment  ")
    assert "--ipc=host" in last


def test_another_version(standin: Standin) -> None:
    standin.answer = lambda _: {"error": {"kind": "version", "text": "version 1 is not spoken"}}
    status, text = run("check", transfer(socket=standin.path))
    assert status == 1
    assert "failed  daemon   version 1 is not spoken" in text


def test_command_line() -> None:
    for arguments in ((), ("check",), ("chek", "{}"), ("check", "{}", "{}")):
        status, text = run(*arguments)
        assert status == 2
        assert text.startswith("usage: python -m ringcache.vllm check JSON")
    assert run("--help")[0] == 0

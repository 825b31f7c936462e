"""Whether an engine with a configuration would share encoder outputs or KV blocks, without vLLM and without torch."""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Callable
from typing import Any, Final

from ..daemon import SOCKET_VARIABLE, VERSION, Client, Mapping
from ..errors import DaemonError, RingcacheError
from . import _blocks
from ._options import CONNECTOR, Options, of_transfer

# Seconds that the daemon may take here. An engine waits less; this check delays no request.
_PATIENCE: Final = 5.0

_LONGEST_PATH: Final = 107  # bytes, of a unix socket on Linux


def check(text: str, say: Callable[[str], Any] = print) -> int:
    """Print a line for each thing that is looked at. The result is 0 if all is well, else 1."""

    def line(word: str, what: str, result: str) -> None:
        # A path may have bytes that are no text.
        text = f"{word:<7} {what:<8} {result}"
        say(text.encode(errors="backslashreplace").decode())

    try:
        transfer = json.loads(text)
        of_blocks = isinstance(transfer, dict) and "kv_connector" in transfer
        options = _blocks.of_transfer(transfer) if of_blocks else of_transfer(transfer)
    except json.JSONDecodeError as e:
        line("failed", "options", f"no JSON: {e}. Put it in single quotes, so that the shell leaves it alone")
        return 1
    except ValueError as e:
        line("failed", "options", str(e))
        return 1
    name, role = (_blocks.SPEC, "kv_both") if of_blocks else (CONNECTOR, transfer["ec_role"])
    line("ok", "options", f"{name}, {role}{_given(transfer)}")
    writable = role != "ec_consumer"
    with Client(
        options.address, client=f"check {os.getpid()}", space="check", timeout=_PATIENCE
    ) as client:
        try:
            hello = client.hello()
        except RingcacheError as e:
            away = isinstance(e, DaemonError) and e.kind == "away"
            line("failed", "daemon", f"{e}{_advice(options.address) if away else ''}")
            return 1
        line("ok", "daemon", f"{hello.server} at {client.socket}, protocol {VERSION}")
        segment = hello.segment
        try:
            Mapping(segment, writable=writable).close()
        except RingcacheError as e:
            line("failed", "segment", str(e))
            return 1
    way = "reading and writing" if writable else "reading"
    line("ok", "segment", f"{segment.name}, {segment.size / 2**20:.0f} MiB, can be mapped for {way}")
    return 0


def _given(transfer: dict[str, Any]) -> str:
    extra = transfer.get("ec_connector_extra_config") or transfer.get("kv_connector_extra_config") or {}
    return "".join(f", {name}={value!r}" for name, value in extra.items() if not name.startswith("spec_"))


def _advice(path: str) -> str:
    """What is at the place of the socket, where the daemon can't be reached."""
    if (length := len(os.fsencode(path))) > _LONGEST_PATH:
        return (
            f". The path has {length} bytes, and that of a socket has at most {_LONGEST_PATH}: "
            "choose a shorter one"
        )
    try:
        info = os.stat(path)
    except OSError as e:
        if e.errno == errno.EACCES:
            return ". This user may not look there: the daemon and its engines have one user"
        return (
            f". No daemon listens there: start `ringcache serve --socket {path}`, or put the socket of the one that runs "
            f"into {SOCKET_VARIABLE} or into the option socket"
        )
    if not stat.S_ISSOCK(info.st_mode):
        return ". That is no socket"
    if info.st_uid != os.getuid():
        return f". The socket is user {info.st_uid}'s, and this is user {os.getuid()}: the daemon and its engines have one user"
    return f". Is `ringcache serve` running? It listens at {path}, or did"

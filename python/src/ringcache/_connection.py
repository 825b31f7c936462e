"""What the client of the daemon does with a connection, within a time of ``time.monotonic``."""

from __future__ import annotations

import os
import socket as sockets
import struct
import time

from .errors import DaemonError


def check_owner(connection: sockets.socket, path: str) -> None:
    """Another user's daemon could name places in this user's memory, to be written to."""
    if (option := getattr(sockets, "SO_PEERCRED", None)) is None:
        return
    _, user, _ = struct.unpack("3i", connection.getsockopt(sockets.SOL_SOCKET, option, 12))
    if user not in (0, os.geteuid()):  # systemd, which listens for a service, is root
        raise DaemonError(
            "permission",
            f"{path} is of user {user}, and this process runs as {os.geteuid()}: run both as one user",
        )


def left(deadline: float) -> float:
    rest = deadline - time.monotonic()
    if rest <= 0:
        raise TimeoutError
    return rest


def receive(connection: sockets.socket, size: int, deadline: float) -> bytearray:
    data = bytearray(size)
    view, at = memoryview(data), 0
    while at < size:
        connection.settimeout(left(deadline))
        count = connection.recv_into(view[at:])
        if count == 0:
            raise EOFError("the daemon closed the connection")
        at += count
    return data


def ended(connection: sockets.socket) -> bool:
    """Whether the other side closed the connection. Between calls it sends nothing."""
    try:
        # Not MSG_DONTWAIT, after which Python waits for as long as the socket's time-out.
        connection.setblocking(False)
        return connection.recv(1, sockets.MSG_PEEK) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True

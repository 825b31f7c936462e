"""What a process of an engine tells its log about the daemon: one line for each change of state."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from ..daemon import Client
from ..errors import DaemonError, RingcacheError

_logger: Final = logging.getLogger("vllm.ringcache")

# Of a DaemonError: no call works. Others are about one call.
_AWAY: Final = ("away", "closing", "permission", "version")

_EVERY: Final = 1.0  # seconds between two looks at the connection
_REASONS: Final = 100  # that are logged once


class Link:
    """Whether the daemon answers this process, the ``part`` of an engine. Threads may share it."""

    def __init__(
        self, client: Client, part: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._client = client
        self._part = part
        self._clock = clock
        self._lock = threading.Lock()
        self._epoch = 0  # of the client, when the daemon answered last
        self._away_since: float | None = None
        self._refused: set[str] = set()  # what was logged
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def worked(self) -> None:
        """A call was answered."""
        with self._lock:
            since, self._away_since = self._away_since, None
            epoch, self._epoch = self._epoch, self._client.epoch
        if since is not None:
            # A log that shows the one change shows the other.
            _logger.warning(
                "Encoder outputs are shared again, after %.1f s: the daemon at %s answers the %s",
                self._clock() - since,
                self._client.socket,
                self._part,
            )
        elif epoch != self._client.epoch:
            _logger.info("The %s shares encoder outputs through %s", self._part, self._client.socket)

    def failed(self, error: RingcacheError, without: str) -> None:
        """A call failed; ``without`` says what is done instead."""
        if not isinstance(error, DaemonError) or error.kind not in _AWAY:
            self.refused(f"{without}: {error}")
            return
        with self._lock:
            known = self._away_since is not None
            if not known:
                self._away_since = self._clock()
        level = logging.DEBUG if known else logging.WARNING
        _logger.log(level, "Encoder outputs are not shared for now, %s: %s", without, error)

    def refused(self, text: str) -> None:
        """Something about one output, which is logged once; beyond so many texts nothing is."""
        with self._lock:
            known = text in self._refused or len(self._refused) == _REASONS
            if not known:
                self._refused.add(text)
        _logger.log(logging.DEBUG if known else logging.WARNING, "%s", text)

    def watch(self, without: str) -> None:
        """Notice from now on, also without calls, that the daemon goes and comes."""
        self._thread = threading.Thread(
            target=self._watch, name="ringcache-link", args=(without,), daemon=True
        )
        self._thread.start()

    def _watch(self, without: str) -> None:
        while not self._closed.is_set():
            try:
                self._client.hello()
                self.worked()
            except DaemonError as e:
                self.failed(e, without)
            except RingcacheError:  # the client is closed
                return
            self._closed.wait(_EVERY)

    def close(self) -> None:
        """End watching; before the client is closed."""
        self._closed.set()
        if self._thread is not None:
            self._thread.join()

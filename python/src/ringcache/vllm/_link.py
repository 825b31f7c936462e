"""What a process of an engine tells its log about the daemon: one line for each change of state."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from ..daemon import Client, Hello
from ..errors import ClosedError, DaemonError, RingcacheError

_logger: Final = logging.getLogger("vllm.ringcache")

_EVERY: Final = 1.0  # seconds between two looks at the connection
_OF_TIME: Final = 10  # or so many times what a look took, in which other calls wait for it
_REASONS: Final = 100  # that are logged once


class Link:
    """Whether the daemon answers this process, the ``part`` of an engine, and so whether ``what`` is
    shared. Threads may share it.

    The daemon is away from a call that failed and left no connection, to a call that was answered.
    Calls are in the order in which the client made them, whichever thread tells of its own first:
    so the state is the client's, and told here is only that it may have changed.
    """

    def __init__(
        self,
        client: Client,
        part: str,
        clock: Callable[[], float] = time.monotonic,
        what: str = "encoder outputs",
    ) -> None:
        self._client = client
        self._part = part
        self._what = what
        self._clock = clock
        self._lock = threading.Lock()  # held while a line is logged, so that lines are in order
        self._epoch = 0  # of the client, when the daemon answered last
        self._away_since: float | None = None
        self._refused: set[str] = set()  # what was logged
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def worked(self) -> None:
        """A call was answered, and this process can map the segment."""
        with self._lock:
            if self._client.away:  # another thread's call has failed since
                return
            since, self._away_since = self._away_since, None
            before, self._epoch = self._epoch, self._client.epoch
            if since is not None:
                # A log that shows the one change shows the other.
                _logger.warning(
                    "%s are shared again, after %.1f s: the daemon at %s answers the %s",
                    self._title,
                    self._clock() - since,
                    self._client.socket,
                    self._part,
                )
            elif before != self._epoch:
                _logger.info(
                    "The %s shares %s through %s", self._part, self._what, self._client.socket
                )

    def failed(self, error: RingcacheError, without: str) -> None:
        """A call failed; ``without`` says what is done instead."""
        if not isinstance(error, DaemonError) or not error.away:
            self.refused(f"{without}: {error}")
            return
        with self._lock:
            new = self._away_since is None and self._client.away
            if new:
                self._away_since = self._clock()
            level = logging.WARNING if new else logging.DEBUG
            _logger.log(level, "%s are not shared for now, %s: %s", self._title, without, error)

    @property
    def _title(self) -> str:
        return self._what[0].upper() + self._what[1:]

    def refused(self, text: str) -> None:
        """Something about one object, which is logged once; beyond so many texts nothing is."""
        with self._lock:
            known = text in self._refused or len(self._refused) == _REASONS
            if not known:
                self._refused.add(text)
        _logger.log(logging.DEBUG if known else logging.WARNING, "%s", text)

    def watch(self, without: str, use: Callable[[Hello], Any]) -> None:
        """Notice from now on, also without calls, that the connection ends, and that the daemon
        answers again. ``use`` raises if this process can't map the segment."""
        self._thread = threading.Thread(
            target=self._watch, name="ringcache-link", args=(without, use), daemon=True
        )
        self._thread.start()

    def _watch(self, without: str, use: Callable[[Hello], Any]) -> None:
        pause = 0.0
        while not self._closed.wait(pause):
            began = time.monotonic()
            try:
                # While all is well, nothing is asked, so that the daemon can tell who idles.
                if self._away_since is not None or not self._client.alive():
                    use(self._client.check())
                    self.worked()
            except ClosedError:
                return
            except RingcacheError as e:
                self.failed(e, without)
            pause = max(_EVERY, _OF_TIME * (time.monotonic() - began))

    def close(self) -> None:
        """End watching; before the client is closed."""
        self._closed.set()
        if self._thread is not None:
            self._thread.join()

"""What the scheduler of an engine has pinned, by one lease: pinned before vLLM hears of a hit, and
released when nobody needs it. If the engine dies or idles, pins end with the process or with the
time of the lease.

Nothing here needs torch or vLLM.
"""

# See docs/decisions.md, "The encoder connector answers only with what it has pinned".

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from ..daemon import Client, Items, Mapping, Segment
from ..errors import RingcacheError
from ._link import Link

_logger: Final = logging.getLogger("vllm.ringcache")


class Pins:
    """See the module. Each question extends the time of all pins. ``without`` says what is done
    while the daemon is away, and ``known`` whether a name may be pinned of before."""

    def __init__(
        self,
        client: Client,
        link: Link,
        lease: str,
        *,
        seconds: float,
        without: str,
        known: Callable[[str], bool],
        clock: Callable[[], float],
    ) -> None:
        self._client = client
        self._link = link
        self._lease = lease
        self._seconds = seconds
        self._without = without
        self._known = known
        self._clock = clock
        self._until = 0.0  # of the lease, the least
        self._ends = 0.0  # the most: the daemon may have done what it did not answer
        self._term = seconds  # as the daemon grants it
        self._segment: Segment | None = None
        #: Whether this process can map the segment: else nothing is to be a hit.
        self.mappable = False
        #: Names that are to be released.
        self.to_unpin: dict[str, None] = {}

    def ask(self, names: Sequence[str], *, prefix: bool = False) -> Items | None:
        """Pin what is there of names; None if the call failed. ``prefix`` is that of
        :meth:`Client.pin`. What is a hit is to be kept or dropped."""
        now = self._clock()
        alive, epoch = self._client.alive(), self._client.epoch
        try:
            items = self._client.pin(self._lease, names, seconds=int(self._seconds), prefix=prefix)
        except RingcacheError as e:
            self._link.failed(e, self._without)
            if getattr(e, "kind", "") == "away":
                # The daemon may have pinned them all the same, if it was asked, or have them
                # pinned of before.
                asked = alive or epoch != self._client.epoch
                if asked:
                    self._ends = self._clock() + self._seconds
                self.drop(name for name in names if asked or self._known(name))
            return None
        # Another thread may have connected the client anew by now, to another segment: what an
        # answer is about is in the answer.
        if (hello := items.hello) is not None:
            self._term = min(self._seconds, hello.limits.seconds or self._seconds)
            self._until = now + self._term
            self._ends = self._clock() + self._seconds
            self._seen(hello.segment)
            if self.mappable:
                self._link.worked()
        return items

    def sure(self, epoch: int) -> bool:
        """Whether a hit that was answered in an epoch of the client still holds."""
        # A restarted daemon keeps leases for a while. A client with a new epoch pins again.
        return self._clock() < self._until - self._term / 2 and epoch == self._client.current()

    def keep(self, names: Iterable[str]) -> None:
        """They are needed, whatever was said of them before."""
        for name in names:
            self.to_unpin.pop(name, None)

    def drop(self, names: Iterable[str]) -> None:
        """They are not needed, and released with the next :meth:`release`."""
        for name in names:
            self.to_unpin[name] = None

    def release(self, busy: Callable[[str], bool], *, last: bool = False) -> None:
        """Release what was dropped. What workers may be copying (``busy``) stays pinned, also if
        it was asked for anew in vain. With ``last`` nothing else is pinned, and the lease ends."""
        if not self.to_unpin:
            return
        if self._clock() >= self._ends:
            self.to_unpin.clear()  # the lease has ended
            return
        names = [name for name in self.to_unpin if not busy(name)]
        if not names:
            return
        try:
            self._client.release(self._lease, [] if last else names)
        except RingcacheError as e:
            if getattr(e, "kind", "") == "invalid":  # then it is again, the next time
                _logger.warning("The daemon refused a release: %s", e)
                self.to_unpin.clear()
            return
        self.keep(names)

    def leave(self, lease: str = "", *, busy: bool = False) -> None:
        """Give up all pins, and go on with another lease. What is busy stays until the time of
        the old one has passed."""
        if not busy and self._ends > self._clock() and self._client.alive():
            try:
                self._client.release(self._lease)
            except RingcacheError as e:
                _logger.debug("The lease %s was not released: %s", self._lease, e)
        self._lease = lease
        self.to_unpin.clear()

    def _seen(self, segment: Segment) -> None:
        if segment == self._segment:
            return
        if self._segment is not None:
            # What is in it is of an earlier epoch of the client, so it is not sure any more.
            _logger.warning("The daemon has a new segment: items of the old one are asked for anew")
        self._segment = segment
        # Nothing that can't be mapped is a hit: a worker that can't map the segment ends the engine.
        try:
            Mapping(segment).close()
            self.mappable = True
        except RingcacheError as e:
            self.mappable = False
            _logger.error("The daemon's segment can't be mapped, so nothing is loaded: %s", e)

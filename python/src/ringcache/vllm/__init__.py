"""A general plugin for vLLM: its workers read multimodal inputs in place, from pinned pages.
And :class:`EncoderCacheConnector`, by which engines share encoder outputs, in ``ringcache.vllm.encoder``,
and :class:`KVOffloadingSpec`, by which they share KV blocks, in ``ringcache.vllm.offloading``.

A stock worker copies every tensor out of the shared-memory ring, then into pinned
memory, then to the device. With the plugin the tensors of an item view the ring, whose
pages the worker has registered with the device's driver, and the device reads them from
there. It is off unless the environment of vLLM says ``RINGCACHE_VLLM_PIN=1``, and works
where vLLM runs with ``--mm-processor-cache-type shm``.

It replaces parts of vLLM, so it knows releases by name: :data:`RELEASES`. In any other
one, and in one whose classes are not as expected, it logs one error and changes nothing.
Where a worker cannot pin (no GPU, no driver, a refusal of the driver) it logs one
warning, and objects are copied as in a stock worker.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ..errors import UnknownVersionError
from ..generation import lookup

if TYPE_CHECKING:
    from .encoder import EncoderCacheConnector as EncoderCacheConnector
    from .offloading import KVOffloadingSpec as KVOffloadingSpec

#: Releases of vLLM whose receiver and whose fields were compared, class by class. Engines of
#: all but the newest, which has no wheel for CPUs, run in the tests.
RELEASES: Final = ("0.31.0", "0.32.0", "0.33.0")

#: The environment variable that asks for the plugin.
VARIABLE: Final = "RINGCACHE_VLLM_PIN"

# Below vLLM's logger, whose handlers its processes configure.
_logger: Final = logging.getLogger("vllm.ringcache")


@dataclass
class Statistics:
    """What the worker of this process did."""

    registrations: int = 0  # of a ring's mapping with the driver
    registered_bytes: int = 0
    in_place: int = 0  # objects whose tensors view the ring
    copied: int = 0  # objects that were copied to private memory, as a stock worker does
    device_copies: int = 0  # tensors copied by the driver, from the ring's pages
    spilled: int = 0  # objects read in place and copied later, to let the writer go on


_statistics: Final = Statistics()


def statistics() -> Statistics:
    """The counts of this process, which go on changing."""
    return _statistics


def __getattr__(name: str) -> Any:
    # The import needs vLLM and torch, so it comes only with the first use.
    if name == "EncoderCacheConnector":
        from .encoder import EncoderCacheConnector

        return EncoderCacheConnector
    if name == "KVOffloadingSpec":
        from .offloading import KVOffloadingSpec

        return KVOffloadingSpec
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def register() -> None:
    """Install the plugin, if the environment asks for it; vLLM calls this in every process.

    It never raises, since vLLM would end, and may be called again.
    """
    value = os.environ.get(VARIABLE, "")
    if value in ("", "0"):
        return
    if value != "1":
        _logger.error("%s must be 0 or 1, got %r; the plugin of ringcache is off", VARIABLE, value)
        return
    version = "unknown"
    try:
        import vllm

        version = vllm.__version__
        known = _known(version)
        if known:
            # Not before: a stock process does not pay for the import.
            from . import pinned

            problem = pinned.install(known)
        else:
            problem = "this release is not known"
    except Exception as e:
        problem = f"{type(e).__name__}: {e}"
    if problem:
        _logger.error(
            "The plugin of ringcache is off and vLLM reads as without it: %s (vLLM %s; known releases: %s)",
            problem,
            version,
            ", ".join(RELEASES),
        )


def _known(version: str) -> str:
    """The known release that ``version`` is, or nothing."""
    try:
        found = lookup(version).version
    except UnknownVersionError:
        return ""
    return found if found in RELEASES else ""

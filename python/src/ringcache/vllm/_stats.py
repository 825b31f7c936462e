"""What a connector did, for vLLM's log and its metrics.

Of encoder outputs, vLLM asks for counts in the scheduler, and only its newer model runner asks workers. Both runners hand a
worker's own report over to the scheduler with each step, so a worker's counts travel in that report and
in nothing else: no runner counts twice. The first rank counts what it loads for all ranks.
"""

# See docs/decisions.md, "Connectors count where vLLM serves".

from __future__ import annotations

import threading
from typing import Any, Final

#: What is counted of encoder outputs, and what it means.
NAMES: Final = {
    "hits": "encoder outputs that were loaded instead of computed",
    "misses": "encoder outputs that had to be computed",
    "late": "encoder outputs that were on their way from a lower level, and not waited for any longer",
    "loaded_bytes": "bytes of encoder outputs that were loaded, each once however many workers copy it",
    "saves": "encoder outputs that were stored",
    "saved_bytes": "bytes of encoder outputs that were stored",
    "skipped": "encoder outputs that were not stored, since they were there or had no room",
    "failures": "calls of the daemon that failed",
}

#: What is counted of KV blocks, in the scheduler. vLLM itself counts tokens and bytes:
#: ``vllm:external_prefix_cache_*`` and ``vllm:kv_offload_*``.
KV_NAMES: Final = {
    "hits": "KV blocks that were loaded instead of computed",
    "late": "KV blocks that were on their way from a lower level, and not waited for any longer",
    "failures": "calls of the daemon that failed",
}

#: Of the metric of a count of KV blocks.
KV_PREFIX: Final = "vllm:ringcache_kv_"


class Stats:
    """Counts since they were taken last. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[str, int] = {}

    def add(self, **counts: int) -> None:
        with self._lock:
            for name, count in counts.items():
                self._counts[name] = self._counts.get(name, 0) + count

    def take(self) -> dict[str, int]:
        with self._lock:
            counts, self._counts = self._counts, {}
        return counts


def vllm_stats(data: dict[str, Any]) -> Any:
    """The counts as vLLM's; nothing in a release that has no such."""
    try:
        from . import _metrics
    except ImportError:
        return None
    return _metrics.CacheStats(dict(data))  # aggregating changes it


def vllm_prometheus(*arguments: Any) -> Any:
    """The counts as vLLM's metrics of Prometheus."""
    from . import _metrics

    return _metrics.CacheMetrics(*arguments)

"""The counts of the encoder connector in vLLM's own forms, of releases that have them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from vllm.distributed.ec_transfer.ec_connector.metrics import (
    ECConnectorPromMetrics,
    ECConnectorStats,
)

from ._stats import NAMES


@dataclass
class CacheStats(ECConnectorStats):  # type: ignore[misc]
    """Counts of an interval."""

    def reset(self) -> None:
        self.data.clear()

    def aggregate(self, other: Any) -> CacheStats:
        for name, count in other.data.items():
            self.data[name] = self.data.get(name, 0) + count
        return self

    def reduce(self) -> dict[str, int | float]:
        return {name: self.data[name] for name in NAMES if name in self.data}

    def is_empty(self) -> bool:
        return not any(self.data.values())


class CacheMetrics(ECConnectorPromMetrics):  # type: ignore[misc]
    """A counter each, ``vllm:ringcache_encoder_hits`` and so on."""

    def __init__(
        self,
        vllm_config: Any,
        metric_types: Any,
        labelnames: list[str],
        per_engine_labelvalues: dict[int, list[object]],
    ) -> None:
        super().__init__(vllm_config, metric_types, labelnames, per_engine_labelvalues)
        self._counters: dict[int, dict[str, Any]] = {}
        families = {
            name: self._counter_cls(
                name=f"vllm:ringcache_encoder_{name}", documentation=text, labelnames=labelnames
            )
            for name, text in NAMES.items()
        }
        for engine, values in per_engine_labelvalues.items():
            self._counters[engine] = {n: f.labels(*values) for n, f in families.items()}

    def observe(self, transfer_stats_data: dict[str, Any], engine_idx: int = 0) -> None:
        for name, count in transfer_stats_data.items():
            counter = self._counters.get(engine_idx, {}).get(name)
            if counter is not None and count:
                counter.inc(count)

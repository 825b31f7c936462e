"""An encoder-cache connector for vLLM: engines share encoder outputs through ``ringcache serve``.

It needs no change of vLLM, only configuration::

    vllm serve MODEL --ec-transfer-config '{"ec_connector": "EncoderCacheConnector",
        "ec_connector_module_path": "ringcache.vllm", "ec_role": "ec_both",
        "ec_connector_extra_config": {"socket": "/run/ringcache/ringcache.sock"}}'

An output that the daemon has is loaded, and its item not encoded; what is encoded is stored.
With the role ``ec_consumer`` nothing is stored. With ``ec_producer`` vLLM only encodes, and does
not encode what is stored already.

A daemon that does not answer costs time-outs and misses, never a request. There is one exception:
the scheduler can't take back its answer that an item can be loaded. So the item is pinned before,
its offset is sent with the step, and each worker copies from its own mapping, which outlives the
daemon. Only if a worker can't map the segment (since it and the daemon were replaced at this
moment), and no lower level has the item either, the engine ends with an error that says so.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass, field
from typing import Any, Final

import torch
import vllm
from vllm.distributed.ec_transfer.ec_connector import base

from ..daemon import Client
from ._options import Options, check, fingerprint
from ._scheduling import Load, Scheduling
from ._stats import vllm_prometheus, vllm_stats
from ._working import Worker

_logger: Final = logging.getLogger("vllm.ringcache")

# Releases before 0.30 or so do not load in an engine that saves, too.
_LOADS_AND_SAVES: Final = hasattr(base.ECConnectorBase, "is_consumer")


@dataclass
class StepMetadata(base.ECConnectorMetadata):  # type: ignore[misc]
    """What the workers are to load in a step."""

    step: int = 0
    loads: list[Load] = field(default_factory=list)


_Report: Any = getattr(base, "ECConnectorWorkerMetadata", object)  # older releases have none


class StepReport(_Report):  # type: ignore[misc]
    """A worker's report that it has loaded what a step loads (0: nothing), and what it has counted since the last
    report. Only the newer of vLLM's model runners asks a worker for counts. The older one passes reports on, but not
    those of an engine that only encodes, and with pipeline parallelism none but the last rank's, which has no
    encoder (v1/worker/gpu_model_runner.py of 0.32.0)."""

    def __init__(self, step: int, counts: dict[str, int]) -> None:
        self.step = step
        self.counts = counts

    def aggregate(self, other: Any) -> StepReport:
        counts = dict(self.counts)
        for name, count in other.counts.items():
            counts[name] = counts.get(name, 0) + count
        return StepReport(max(self.step, other.step), counts)


class EncoderCacheConnector(base.ECConnectorBase):  # type: ignore[misc]
    """See the module. The options are those of ``ec_connector_extra_config``: ``socket``,
    ``space``, ``revision``, ``tenant``, ``timeout``, ``wait``, ``lease`` and ``pin``."""

    def __init__(self, vllm_config: Any, role: Any) -> None:
        super().__init__(vllm_config, role)
        transfer = vllm_config.ec_transfer_config
        try:
            options = Options.of(transfer.ec_connector_extra_config or {})
        except ValueError as e:
            raise ValueError(
                f"EncoderCacheConnector: {e}. `python -m ringcache.vllm check` tells that in a second"
            ) from None
        check(vllm_config)
        self._options = options
        self._produces = bool(transfer.is_ec_producer)
        self._consumes = bool(transfer.is_ec_consumer)
        if self._produces and self._consumes and not _LOADS_AND_SAVES:
            _logger.warning(
                "vLLM %s takes ec_both for ec_producer: this engine encodes, and answers nothing",
                vllm.__version__,
            )
            self._consumes = False
        self._scheduling: Scheduling | None = None
        self._worker: Worker | None = None
        self._loaded = 0  # the step whose loads are done and not reported
        client = Client(
            options.address,
            client=f"vllm {vllm.__version__} {role.name.lower()} {os.getpid()}",
            fingerprint=None if options.space else fingerprint(vllm_config, options, vllm.__version__),
            space=options.space,
            timeout=options.timeout,
        )
        if role is base.ECConnectorRole.SCHEDULER:
            self._scheduling = Scheduling(
                client,
                wait=options.wait,
                seconds=options.lease,
                depth=_depth(vllm_config),
                loads=self._consumes,
            )
            self._scheduling.watch()
        else:
            self._client = client

    # Of a worker.

    def start_worker_services(self) -> None:
        """Map the segment, and pin it, before the first request."""
        self._working().start()

    def start_load_caches(self, encoder_cache: dict[str, torch.Tensor], **kwargs: Any) -> None:
        metadata = self._get_connector_metadata()
        if metadata.loads:
            self._working().load(metadata.loads, encoder_cache)
            self._loaded = metadata.step

    def save_caches(
        self, encoder_cache: dict[str, torch.Tensor], mm_hash: str, **kwargs: Any
    ) -> None:
        if self._produces:
            self._working().save(mm_hash, encoder_cache[mm_hash])

    def build_connector_worker_meta(self) -> StepReport | None:
        step, self._loaded = self._loaded, 0
        counts = self._worker.stats.take() if self._worker is not None else {}
        return StepReport(step, counts) if step or counts else None

    # Of the scheduler.

    def ensure_cache_available(self, request: Any, num_computed_tokens: int) -> bool:
        return self._scheduler().available(request, num_computed_tokens)

    def has_cache_item(self, identifier: str) -> bool:
        return self._scheduler().has(identifier)

    def has_caches(self, request: Any) -> list[bool]:
        """:meth:`has_cache_item` of releases before 0.14 or so."""
        return self._scheduler().has_all(request)

    def update_state_after_alloc(self, request: Any, index: int) -> None:
        self._scheduler().allocated(request, index)

    def build_connector_meta(self, scheduler_output: Any) -> StepMetadata:
        step, loads = self._scheduler().step(scheduler_output.finished_req_ids)
        return StepMetadata(step, loads)

    def update_connector_output(self, connector_output: Any) -> None:
        report = getattr(connector_output, "ec_connector_worker_meta", None)
        if report is not None:
            self._scheduler().stats.add(**report.counts)
            self._scheduler().returned(report.step)

    def request_finished(self, request: Any) -> tuple[bool, dict[str, Any] | None]:
        self._scheduler().finished(request.request_id)
        return False, None

    # Of both.

    def get_ec_connector_stats(self) -> Any:
        """The scheduler's counts, and those that workers reported to it; a worker has none of its own."""
        counts = self._scheduling.stats.take() if self._scheduling is not None else {}
        return vllm_stats(counts) if counts else None

    @classmethod
    def build_ec_connector_stats(cls, data: dict[str, Any] | None = None) -> Any:
        return vllm_stats(data if data is not None else {})

    @classmethod
    def build_prom_metrics(
        cls,
        vllm_config: Any,
        metric_types: Any,
        labelnames: list[str],
        per_engine_labelvalues: dict[int, list[object]],
    ) -> Any:
        return vllm_prometheus(vllm_config, metric_types, labelnames, per_engine_labelvalues)

    def shutdown(self) -> None:
        if self._scheduling is not None:
            self._scheduling.close()
        elif self._worker is not None:
            self._worker.close()
        else:
            self._client.close()

    def _scheduler(self) -> Scheduling:
        assert self._scheduling is not None, "a hook of the scheduler was called in a worker"
        return self._scheduling

    def _working(self) -> Worker:
        """Made at the first use, when the worker has its rank and its device."""
        if self._worker is None:
            assert self._scheduling is None, "a hook of workers was called in the scheduler"
            self._worker = Worker(
                self._client,
                first=_first_rank(),
                saves=self._produces,
                wait=self._options.wait,
                tenant=self._options.tenant,
                pin=self._options.pin,
                device=_device(),
            )
        return self._worker


def _depth(config: Any) -> int:
    """The most steps that are under way at a time, and one more."""
    parallel = getattr(config.parallel_config, "pipeline_parallel_size", 1)
    return max(2, int(parallel)) + 1


def _first_rank() -> bool:
    """Whether this worker is the first of those that have the same outputs."""
    from vllm.distributed import parallel_state

    try:
        rank: int = parallel_state.get_tensor_model_parallel_rank()
        return rank == 0 and bool(parallel_state.get_pp_group().is_first_rank)
    except AssertionError:  # there are no groups, so there is one worker
        return True


def _device() -> torch.device:
    from vllm.platforms import current_platform

    kind = current_platform.device_type or "cpu"
    if kind == "cuda":
        return torch.device(kind, torch.cuda.current_device())
    return torch.device(kind)

"""Engines share KV blocks through ``ringcache serve``, by vLLM's own OffloadingConnector.

It needs no change of vLLM (0.32 or 0.33), only configuration::

    vllm serve MODEL --kv-transfer-config '{"kv_connector": "OffloadingConnector", "kv_role": "kv_both",
        "kv_connector_extra_config": {"spec_name": "KVOffloadingSpec", "spec_module_path": "ringcache.vllm"}}'

A prompt's blocks that the daemon has are loaded, and not computed; what is computed is stored.

A daemon that does not answer costs time-outs and misses, never a request. There is one exception:
vLLM ends if a block of a hit can't be loaded. So each is pinned before, its offset is
sent with the step, and each worker copies from its own mapping, which outlives the daemon.
"""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, Final

import vllm
from vllm.platforms import current_platform
from vllm.v1.core import kv_cache_utils
from vllm.v1.kv_offload import base

from ..daemon import Client
from ._block_worker import BlockWorker
from ._blocks import Blocks, Place, check, options_of, space_of
from ._stats import KV_NAMES, KV_PREFIX

_logger: Final = logging.getLogger("vllm.ringcache")


@dataclass
class LoadBlocks(base.LoadStoreSpec):  # type: ignore[misc]
    """Where the parts of blocks are, by rank."""

    places: list[tuple[Place, ...]]


@dataclass
class StoreBlocks(base.LoadStoreSpec):  # type: ignore[misc]
    """What blocks are called, and those in front of them."""

    names: list[str]
    parents: list[str]


class KVOffloadingSpec(base.OffloadingSpec):  # type: ignore[misc]
    """See the module. The options are those of ``kv_connector_extra_config``: ``socket``, ``space``,
    ``revision``, ``tenant``, ``timeout``, ``wait``, ``lease`` and ``pin``."""

    @classmethod
    def build_metric_definitions(cls, extra_config: dict[str, Any]) -> dict[str, Any]:
        return {
            KV_PREFIX + name: base.OffloadingCounterMetadata(documentation=text)
            for name, text in KV_NAMES.items()
        }

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        try:
            self._options = options_of(config.extra_config)
            check(config)
            self._space = space_of(config, self._options, vllm.__version__, current_platform.device_type)
        except ValueError as e:
            raise ValueError(f"KVOffloadingSpec: {e}") from None

    def get_manager(self) -> Manager:
        return self._manager

    def get_worker(self, kv_caches: Any) -> Worker:
        return Worker(self._client(f"worker {self.config.parallel.rank}"), self, kv_caches)

    # One for each engine: vLLM asks once, and may ask again.
    @functools.cached_property
    def _manager(self) -> Manager:
        return Manager(self._client("scheduler"), self)

    def _client(self, part: str) -> Client:
        options = self._options
        return Client(
            options.address,
            client=f"vllm {vllm.__version__} kv {part} {os.getpid()}",
            space=self._space,
            timeout=options.timeout,
        )


class Manager(base.OffloadingManager):  # type: ignore[misc]
    """The scheduler's side."""

    def __init__(self, client: Client, spec: KVOffloadingSpec) -> None:
        self._blocks = Blocks(
            client,
            size=spec.config.worker_kv_bytes_per_block,
            ranks=spec.config.parallel.world_size,
            wait=spec._options.wait,
            seconds=spec._options.lease,
        )
        self._blocks.watch()
        self._shares: bool | None = None
        # The first report has all names, since Prometheus does not see the first step of a counter that
        # comes with it.
        self._counted = dict.fromkeys(KV_NAMES, 0)

    def lookup(self, key: bytes, req_context: Any) -> Any:
        if not self._shares or not req_context.load_tier_filter.allows(base.Medium.CPU, base.Locality.LOCAL):
            return base.LookupResult.MISS
        answer = self._blocks.lookup(key, req_context.req_id, lambda: _behind(key, req_context))
        if answer == "hit":
            return base.LookupResult.HIT
        return base.LookupResult.RETRY if answer == "pending" else base.LookupResult.MISS

    def prepare_load(self, keys: Collection[bytes], req_context: Any) -> LoadBlocks:
        return LoadBlocks(self._blocks.load(keys, req_context.req_id))

    def complete_load(self, keys: Collection[bytes], req_context: Any) -> None:
        self._blocks.loaded(keys, req_context.req_id)

    def prepare_store(self, keys: Collection[bytes], req_context: Any) -> Any:
        stored = list(keys) if self._shares else []
        chain = _chain(req_context)
        before = dict(zip(chain[1:], chain))
        name = self._blocks.name
        return base.PrepareStoreOutput(
            keys_to_store=stored,
            store_spec=StoreBlocks(
                [name(key) for key in stored],
                [name(before[key]) if key in before else "" for key in stored],
            ),
            evicted_keys=[],
        )

    def on_new_request(self, req_context: Any) -> Any:
        if self._shares is None:
            # The seed is drawn after this object is made, and before there are requests.
            seed = kv_cache_utils.get_none_hash_seed()
            fixed = (kv_cache_utils.DEFAULT_NONE_HASH_SEED, os.environ.get("PYTHONHASHSEED"))
            self._shares = seed in fixed
            if not self._shares:
                _logger.error(
                    "KVOffloadingSpec: nothing is stored or loaded, since hashes of blocks begin with a random seed "
                    "in this process, and no other engine has them; start all engines with --prefix-caching-hash-algo "
                    "sha256, or with one value of PYTHONHASHSEED"
                )
        return base.RequestOffloadingContext()

    def on_request_finished(self, req_context: Any) -> None:
        self._blocks.finished(req_context.req_id)

    def on_schedule_end(self, context: Any) -> None:
        self._blocks.step()

    def reset_cache(self) -> None:
        self._blocks.reset()

    def get_stats(self) -> Any:
        counts = self._counted | self._blocks.stats.take()
        self._counted = {}
        if not counts:
            return None
        # Not above: vLLM imports this module while it imports that one.
        from vllm.distributed.kv_transfer.kv_connector.v1.offloading.metrics import OffloadingConnectorStats

        stats = OffloadingConnectorStats()
        for name, count in counts.items():
            stats.increase_counter(KV_PREFIX + name, count)
        return stats

    def shutdown(self) -> None:
        self._blocks.close()


class Worker(base.OffloadingWorker):  # type: ignore[misc]
    """A worker's side."""

    def __init__(self, client: Client, spec: KVOffloadingSpec, kv_caches: Any) -> None:
        (refs,) = kv_caches.group_data_refs
        tensors = [kv_caches.tensors[index] for index in dict.fromkeys(ref.tensor_idx for ref in refs)]
        self._worker = BlockWorker(
            client,
            tensors=[(tensor.tensor, tensor.page_size_bytes) for tensor in tensors],
            rank=spec.config.parallel.rank,
            tenant=spec._options.tenant,
            pin=spec._options.pin,
        )
        if self._worker.size != spec.config.worker_kv_bytes_per_block:
            raise ValueError(
                f"KVOffloadingSpec: a block of the KV cache has {self._worker.size} bytes, and vLLM says "
                f"{spec.config.worker_kv_bytes_per_block}: this model's cache is not supported; start vLLM without "
                "--kv-transfer-config"
            )
        self._worker.start()

    def submit_store(self, job_id: int, src_spec: Any, dst_spec: StoreBlocks) -> bool:
        self._worker.store(job_id, dst_spec.names, dst_spec.parents, src_spec.block_ids.tolist())
        return True

    def submit_load(self, job_id: int, src_spec: LoadBlocks, dst_spec: Any, expedited: bool = False) -> bool:
        self._worker.load(job_id, src_spec.places, dst_spec.block_ids.tolist())
        return True

    def get_finished(self) -> list[Any]:
        return [
            base.TransferResult(done.job, True, done.size, done.seconds) for done in self._worker.finished()
        ]

    def wait(self, job_ids: set[int]) -> None:
        self._worker.wait(job_ids)

    def shutdown(self) -> None:
        self._worker.close()


def _chain(req_context: Any) -> list[bytes]:
    """The keys of the request's blocks, in order. vLLM gives positions of keys only, so this looks
    where it keeps them; without it, blocks are asked for one by one, and have no parents."""
    return list(getattr(req_context, "_offload_key_positions", ()))


def _behind(key: bytes, req_context: Any) -> Iterator[bytes]:
    chain = iter(_chain(req_context))
    return chain if key in chain else iter(())  # which goes to behind the key

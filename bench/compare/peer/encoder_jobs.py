"""Saving and loading the output of an encoder with vLLM's own connectors, each operation timed here.

A load ends with the bytes in memory of the caller that was written to before, as a copy to a device's memory would: what
only maps a file has not loaded it. The connectors run without an engine, so the messages between its processes are left out.

The worker of the CPU connector copies by a kernel of CUDA. Here that is a copy on the host, and streams and events, which
have no meaning there, do nothing. Everything else of it is vLLM's.
"""

import ctypes
import itertools
import os
import shutil
import tempfile
import time
import types

import torch

clock = time.perf_counter_ns
COLUMNS, KEPT = 5376, 8  # columns of bfloat16, as of Gemma 3 27B; objects that are kept
names = itertools.count()


def versions():
    import safetensors
    import vllm
    return {"vLLM": vllm.__version__, "torch": torch.__version__, "safetensors": safetensors.__version__}


def warm(size, first=0):
    """A tensor in memory that was written to."""
    t = (torch.arange(first, first + size // 2, dtype=torch.int64) % 8191 + 1).to(torch.int16).view(torch.bfloat16)
    return t.view(-1, COLUMNS)


def config(role, name, **extra):
    from vllm.config import ECTransferConfig
    return types.SimpleNamespace(
        ec_transfer_config=ECTransferConfig(ec_connector=name, ec_role=role, ec_connector_extra_config=extra),
        model_config=types.SimpleNamespace(dtype=torch.bfloat16, get_inputs_embeds_size=lambda: COLUMNS),
        parallel_config=types.SimpleNamespace(data_parallel_index=0),
        instance_id="ringcache_compare_%d_%d" % (os.getpid(), next(names)))


class Files:
    """ECExampleConnector: a file for each output. It deletes nothing: what is too old is removed outside of the clock."""

    def __init__(self, more):
        from vllm.distributed.ec_transfer.ec_connector import example_connector as module
        from vllm.distributed.ec_transfer.ec_connector.base import ECConnectorRole
        self.module, self.folder = module, tempfile.mkdtemp(prefix="ringcache-compare-", dir=more["folder"])
        c = config("ec_both", "ECExampleConnector", shared_storage_path=self.folder)
        self.connector = module.ECExampleConnector(c, ECConnectorRole.WORKER)

    def save(self, key, output):
        self.connector.save_caches({key: output}, key)

    def load(self, key):
        if not self.connector.has_cache_item(key):
            raise KeyError(key)
        meta = self.module.ECExampleConnectorMetadata()
        meta.add_mm_data(self.module.MMMeta.make_meta(key, 1))
        self.connector.bind_connector_metadata(meta)
        cache = {}
        self.connector.start_load_caches(cache)
        return cache[key]

    def remove(self, key):
        shutil.rmtree(os.path.join(self.folder, key))

    def close(self):
        shutil.rmtree(self.folder)


class Event:
    def record(self, stream):
        pass

    def query(self):
        return True

    def elapsed_time(self, other):
        return 0.0

    synchronize = record


def cpu_worker():
    """The worker of the CPU connector, with copies on the host."""
    from vllm.distributed.ec_transfer.ec_connector.cpu import worker as module
    module.get_tensor_model_parallel_rank = lambda: 0  # there are no groups of processes
    module.get_pcp_group = lambda: types.SimpleNamespace(rank_in_group=0)
    torch.Tensor.record_stream = lambda tensor, stream: None  # torch has it for devices only

    class Worker(module.ECCPUWorker):
        def _acquire_event(self):
            return Event()

        def _submit_transfer(self, bufs, count, direction):
            for i in range(count):
                ctypes.memmove(int(bufs.dst_ptrs[i]), int(bufs.src_ptrs[i]), int(bufs.sizes[i]))

    return Worker


class Region:
    """ECCPUConnector: the scheduler's blocks, and the worker with its region. The oldest output goes for a new one."""

    def __init__(self, size):
        from vllm.distributed.ec_transfer.ec_connector.cpu import common
        from vllm.distributed.ec_transfer.ec_connector.cpu.scheduler.embedding_cache import EmbeddingCache
        self.common, self.blocks = common, size // (2 * COLUMNS)
        c = config("ec_both", "ECCPUConnector", ec_cpu_bytes=KEPT * size)
        self.worker, self.cache, self.transfers = cpu_worker()(c), EmbeddingCache(KEPT * self.blocks), itertools.count()

    def done(self):
        return self.worker.build_connector_worker_meta()

    def save(self, key, output):
        entry = self.cache.alloc(key, self.blocks, tuple(output.shape))
        meta = self.common.ECCPUConnectorMetadata(saves={key: list(entry.block_ids)})
        self.worker.save_caches({key: output}, key, meta)
        self.worker.flush_saves()
        for saved in self.done().completed_saves:
            self.cache.mark_ready(saved)

    def load(self, key):
        entry, cache = self.cache.pin_if_ready(key), {}
        meta = self.common.ECCPUConnectorMetadata(loads={key: (next(self.transfers), list(entry.block_ids),
                                                               entry.shape)})
        self.worker.start_load_caches(cache, meta)
        for _ in self.done().completed_loads:
            self.cache.unpin(key)
        return cache[key]

    def remove(self, key):
        pass

    def close(self):
        self.worker.shutdown()


class Job:
    """Saves new outputs, or loads those that were saved in turn."""

    def __init__(self, case, more):
        torch.set_num_threads(1)
        size = case["size"]
        self.connector = Region(size) if more["connector"] == "region" else Files(more)
        self.place = None if more["connector"] == "region" else warm(size, 1)
        self.saving, self.output, self.keys, self.at = case["job"] == "encoder-save", warm(size), [], 0
        for _ in range(2 * KEPT if self.saving else KEPT):  # a save makes something go
            self.save()
            loaded = self.connector.load(self.keys[-1])
            if not torch.equal(loaded.view(torch.int16), self.output.view(torch.int16)):
                raise AssertionError("the connector does not return what was saved")

    def save(self):
        key = "%064x" % (next(names) + 1)
        began = clock()
        self.connector.save(key, self.output)
        spent = clock() - began
        self.keys.append(key)
        if len(self.keys) > KEPT:
            self.connector.remove(self.keys.pop(0))
        return spent

    def load(self):
        key, self.at = self.keys[self.at % KEPT], self.at + 1
        began = clock()
        loaded = self.connector.load(key)
        if self.place is not None:  # the region's worker has copied
            self.place.copy_(loaded)
        return clock() - began

    def run(self, n):
        once = self.save if self.saving else self.load
        return [once() for _ in range(n)]

    def close(self):
        self.connector.close()


def make(case, shape, more):
    return Job(case, more)

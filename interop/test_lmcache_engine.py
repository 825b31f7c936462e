"""lmcache/engine beside LMCache's own engine, 0.5.6 or 0.5.7: what one stores the other retrieves, whole and layer by layer.

Both engines are in processes of their own and share a folder, by LMCache's FS connector, or a Redis, by its Redis connector.
LMCache's engine, its storage manager and backends are the released ones. Its connectors for GPUs need one; the connector
here moves the same bytes by LMCache's own copies for other devices.

Needs an environment of setup.sh and a release of lmcache of e2e/lmcache.sh; scripts/fetch-package.sh fetches Redis:

    PYTHONPATH=$lmcache "$env/bin/python" -m pytest interop/test_lmcache_engine.py -q -s
"""

import base64
import json
import os
import pathlib
import random
import shutil
import socket
import subprocess
import sys
import time
import traceback

import pytest
from lmcache_release import installed
from ports import free_ports

HERE = pathlib.Path(__file__).resolve().parent
CHUNK, BLOCK, BLOCKS, LAYERS, HEADS, HEAD = 8, 4, 24, 3, 2, 4
LAYOUTS = ("NL_X_TWO_NB_BS_NH_HS", "NL_X_NB_TWO_BS_NH_HS", "NL_X_NB_BS_HS")
PATIENCE = 600


@pytest.mark.parametrize("medium", ["folder", "redis"])
def test_both_ways(tmp_path, medium, request):
    if not installed():
        pytest.skip("no lmcache on PYTHONPATH; the top of this file has the commands")
    if shutil.which("go") is None:
        pytest.skip("no go on PATH to build the program with")
    program = tmp_path / "lmcacheengine"
    subprocess.run(["go", "build", "-o", program, "./interop/lmcacheengine"], cwd=HERE.parent, check=True)
    env = {**os.environ, "PYTHONHASHSEED": "0", "LMCACHE_LOG_LEVEL": "ERROR", "LMCACHE_TRACK_USAGE": "false", "VLLM_LOGGING_LEVEL": "ERROR"}
    address, redis = "", None
    if medium == "redis":
        address, redis = start_redis(request.getfixturevalue("redis_package"), tmp_path)
    try:
        with open(tmp_path / "log", "w") as log:
            done = subprocess.run([sys.executable, __file__, program, tmp_path, address], env=env, stdout=log, stderr=subprocess.STDOUT, timeout=PATIENCE)
    finally:
        if redis:
            redis.kill()
            redis.wait()
    text = (tmp_path / "log").read_text()
    print(text[-2000:])
    assert done.returncode == 0, text[-6000:]
    assert "retrieved: 12 of 12" in text


def start_redis(package, folder):
    programs, env = package
    [port] = free_ports(1)
    server = subprocess.Popen([programs / "usr/bin/redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", folder],
                              stdout=subprocess.DEVNULL, env=env)

    def listens():
        assert server.poll() is None, "redis-server has ended"
        with socket.socket() as s:
            return s.connect_ex(("127.0.0.1", port)) == 0
    wait_until(listens)
    return "redis://127.0.0.1:%d" % port, server


def load_lmcache():
    """Returns torch, and LMCache's engine with a connector for tensors of the CPU."""
    import torch
    try:
        from lmcache.inprocess.v1 import cache_engine, token_database
        from lmcache.inprocess.v1.gpu_connector import gpu_connectors
    except ImportError:  # before 0.5.7
        from lmcache.v1 import cache_engine, token_database
        from lmcache.v1.gpu_connector import gpu_connectors
    from lmcache.lmcache_native import EngineKVFormat, TransferDirection
    from lmcache.v1.config import LMCacheEngineConfig
    from lmcache.v1.metadata import LMCacheMetadata
    from lmcache.v1.platform.torch_ops.mem_kernels import multi_layer_kv_transfer, single_layer_kv_transfer

    class Whole(gpu_connectors.VLLMPagedMemGPUConnectorV2):
        def __init__(self, layout):
            self.layout = layout

        def move(self, o, start, end, direction, kvcaches, slot_mapping, **_):
            if self.layout == "NL_X_NB_BS_HS":
                flat = [t.view(BLOCKS * BLOCK, -1) for t in kvcaches]
            elif self.layout == "NL_X_TWO_NB_BS_NH_HS":
                flat = [t.view(2, BLOCKS * BLOCK, -1) for t in kvcaches]
            else:
                flat = [t.view(BLOCKS, 2, BLOCK, -1) for t in kvcaches]
            multi_layer_kv_transfer(o.tensor, flat, slot_mapping[start:end], torch.device("cpu"), BLOCKS * BLOCK, direction,
                                    getattr(EngineKVFormat, self.layout), block_size=BLOCK)

        def batched_to_gpu(self, objects, starts, ends, **k):
            for o, start, end in zip(objects, starts, ends):
                self.move(o, start, end, TransferDirection.H2D, **k)

        def batched_from_gpu(self, objects, starts, ends, **k):
            for o, start, end in zip(objects, starts, ends):
                self.move(o, start, end, TransferDirection.D2H, **k)

    class ByLayer(gpu_connectors.VLLMPagedMemLayerwiseGPUConnector):
        def __init__(self, layout):
            self.layout, self.use_mla = layout, layout == "NL_X_NB_BS_HS"
            self.hidden_dim_size = HEAD * (1 if self.use_mla else HEADS)

        def move(self, layer, objects, starts, ends, direction, kvcaches, slot_mapping, **_):
            for o, start, end in zip(objects, starts, ends):
                single_layer_kv_transfer(o.tensor, kvcaches[layer], slot_mapping[start:end], direction, getattr(EngineKVFormat, self.layout), True)

        def batched_to_gpu(self, starts, ends, **k):
            for layer in range(LAYERS):
                objects = yield
                self.move(layer, objects, starts, ends, TransferDirection.H2D, **k)
            yield
            yield

        def batched_from_gpu(self, objects, starts, ends, **k):
            from lmcache.v1.memory_management import MemoryFormat
            for layer in range(LAYERS):
                self.move(layer, objects[layer], starts, ends, TransferDirection.D2H, **k)
                if self.use_mla:
                    for o in objects[layer]:
                        o.metadata.fmt = MemoryFormat.KV_MLA_FMT
                yield
            yield

    class Engine:
        def __init__(self, layout, layered, dtype, algorithm, url):
            mla = layout == "NL_X_NB_BS_HS"
            config = LMCacheEngineConfig.from_defaults(
                chunk_size=CHUNK, local_cpu=False, max_local_cpu_size=0.05, remote_url=url, remote_serde="naive", use_layerwise=layered,
                save_unfull_chunk=True, pre_caching_hash_algorithm=algorithm, lmcache_instance_id="interop")
            metadata = LMCacheMetadata("org/model", 1, 1, 0, 0, dtype, (LAYERS, 1 if mla else 2, CHUNK, 1 if mla else HEADS, HEAD), mla)
            metadata.chunk_size = CHUNK
            if mla:
                config.extra_config = {"save_only_first_rank": False}
            self.engine = cache_engine.LMCacheEngine(
                config, metadata, token_database.ChunkedTokenDatabase(config, metadata), (ByLayer if layered else Whole)(layout), None, None)
            self.engine.post_init()
            self.layered = layered

        def store(self, tokens, slots, kvcaches):
            k = dict(kvcaches=kvcaches, slot_mapping=torch.tensor(slots), sync=True, req_id="r")
            if self.layered:
                for _ in self.engine.store_layer(tokens, **k):
                    pass
            else:
                self.engine.store(tokens, **k)

        def retrieve(self, tokens, slots, kvcaches):
            k = dict(kvcaches=kvcaches, slot_mapping=torch.tensor(slots), sync=True, req_id="r")
            if self.layered:
                mask = None
                for mask in self.engine.retrieve_layer(tokens, **k):
                    pass
                return int(mask.sum())
            return int(self.engine.retrieve(tokens, **k).sum())

        def lookup(self, tokens):
            return self.engine.lookup(tokens)

    return torch, Engine


def main(program, folder, redis):
    torch, Engine = load_lmcache()
    r = random.Random(32)
    shape = {"NL_X_TWO_NB_BS_NH_HS": (2, BLOCKS, BLOCK, HEADS, HEAD), "NL_X_NB_TWO_BS_NH_HS": (BLOCKS, 2, BLOCK, HEADS, HEAD), "NL_X_NB_BS_HS": (BLOCKS, BLOCK, HEAD)}

    def random_tensors(layout, dtype):
        n = torch.Size(shape[layout]).numel() * dtype.itemsize
        return [torch.tensor(list(r.randbytes(n)), dtype=torch.uint8).view(dtype).reshape(shape[layout]) for _ in range(LAYERS)]

    def slots_of(n):
        blocks = r.sample(range(BLOCKS), (n + BLOCK - 1) // BLOCK)
        return [b * BLOCK + i for b in blocks for i in range(BLOCK)][:n]

    def rows(layout, tensors, slots):
        """Returns the bytes of the tokens in their order."""
        out = []
        for t in tensors:
            t = t.contiguous().view(torch.uint8)
            for s in slots:
                b, i = divmod(s, BLOCK)
                out.append((t[b, i] if layout == "NL_X_NB_BS_HS" else t[:, b, i] if layout == "NL_X_TWO_NB_BS_NH_HS" else t[b, :, i]).numpy().tobytes())
        return out

    def ours(op, layout, layered, dtype, algorithm, tokens, slots, tensors):
        job = {"op": op, "layered": layered, "model": "org/model", "dtype": str(dtype).removeprefix("torch."), "algorithm": algorithm, "chunkTokens": CHUNK,
               "geometry": {"layout": layout, "layers": LAYERS, "blocks": BLOCKS, "blockTokens": BLOCK, "heads": 1 if layout == "NL_X_NB_BS_HS" else HEADS,
                            "headSize": HEAD, "elementSize": dtype.itemsize},
               "tokens": tokens, "slots": slots, "redis": redis, "folder": str(root),
               "tensors": [base64.b64encode(t.contiguous().view(-1).view(torch.uint8).numpy().tobytes()).decode() for t in tensors]}
        done = subprocess.run([program], input=json.dumps(job), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    compared = 0
    for n, (layout, layered) in enumerate((la, by) for la in LAYOUTS for by in (False, True)):
        dtype, algorithm = ((torch.bfloat16, "sha256_cbor"), (torch.float16, "builtin"))[n // 2 % 2]
        root = pathlib.Path(folder) / ("kv%d" % n)
        root.mkdir()
        url = redis or "fs://host:0/%s" % root
        tokens = [r.randrange(150_000) for _ in range(3 * CHUNK + 3)]  # with a tail
        kv, slots = random_tensors(layout, dtype), slots_of(len(tokens))

        theirs = Engine(layout, layered, dtype, algorithm, url)
        theirs.store(tokens, slots, kv)
        wait_until(lambda: theirs.lookup(tokens) == len(tokens))
        assert ours("look up", layout, layered, dtype, algorithm, tokens, slots, kv)["End"] == len(tokens)
        other = slots_of(len(tokens))
        answer = ours("load", layout, layered, dtype, algorithm, tokens, other, random_tensors(layout, dtype))
        assert answer["End"] == len(tokens), answer["End"]
        got = [torch.tensor(list(base64.b64decode(t)), dtype=torch.uint8).view(dtype).reshape(shape[layout]) for t in answer["Tensors"]]
        assert rows(layout, got, other) == rows(layout, kv, slots)
        compared += 1
        assert ours("look up", layout, not layered, dtype, algorithm, tokens, slots, kv)["End"] == 0, "whole and by layer are different objects"

        tokens = [r.randrange(150_000) for _ in range(2 * CHUNK + 5)]
        kv, slots = random_tensors(layout, dtype), slots_of(len(tokens))
        assert ours("save", layout, layered, dtype, algorithm, tokens, slots, kv)["Stored"]["New"] == len(tokens)
        theirs = Engine(layout, layered, dtype, algorithm, url)
        assert theirs.lookup(tokens) == len(tokens), theirs.lookup(tokens)
        other, got = slots_of(len(tokens)), random_tensors(layout, dtype)
        assert theirs.retrieve(tokens, other, got) == len(tokens)
        assert rows(layout, got, other) == rows(layout, kv, slots)
        compared += 1
        print(layout, "layered" if layered else "whole", dtype, algorithm, "equal", flush=True)
    print("stored by one and retrieved: %d of %d" % (compared, 2 * (n + 1)), flush=True)


def wait_until(done):
    end = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < end
        time.sleep(0.02)


if __name__ == "__main__":
    code = 1
    try:
        main(*sys.argv[1:])
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)  # threads of LMCache's would keep the process

"""Writes calls as a release of LMCache encodes them for gRPC and for ZMQ, to zmq_calls.RELEASE.json in this folder:

    PYTHONPATH=LMCACHE "$env/bin/python" daemon/internal/lmcache/testdata/gen_zmq.py

with the environment of interop/setup.sh and each of the folders that interop/e2e/lmcache.sh prints.
"""

import json
import pathlib
from importlib.metadata import version

from lmcache.v1.multiprocess import custom_types as types
from lmcache.v1.multiprocess.rpc import get_rpc_spec
from lmcache.v1.multiprocess.transport.grpc_impl.method_registry import get_method_codec_registry
from lmcache.v1.multiprocess.transport.zmq_impl.wire import encode_operation

RELEASE = version("lmcache")
LATER = RELEASE.startswith("0.5.7")


def key(tokens=range(40), **fields):
    fields = {"model_name": "org/model", "world_size": 1, "worker_id": None, "start": 0, "end": 32, "request_id": "r", "cache_salt": "",
              "num_kv_readers": 1, "request_configs": None, **fields}
    return types.IPCCacheServerKey.from_token_ids(token_ids=list(tokens), **fields)


def registration(**fields):
    return types.RegisterEngineDrivenContextPayload(
        **{"instance_id": (1 << 63) - 1, "model_name": "org/model", "world_size": 1, "block_size": 16, "num_layers": 2, "hidden_dim_size": 8,
           "dtype_str": "bfloat16", "use_mla": False, **fields})


EDGES = (0, 127, 128, 255, 256, 65535, 65536, 2**32 - 1)
CALLS = [
    ("get_chunk_size",), ("get_experimental",), ("noop",), ("ping", None), ("ping", 0), ("ping", (1 << 63) - 1), ("clear",), ("clear", True),
    ("register_kv_cache_engine_driven_context", registration()),
    ("register_kv_cache_engine_driven_context", registration(use_mla=True, num_physical_slots=64, dtype_str="float32")),
    ("unregister_kv_cache_engine_driven_context", 7),
    ("lookup", key(), 1), ("lookup", key(EDGES, start=4, end=8), 2), ("lookup", key((), end=0), 1), ("lookup", key(cache_salt="tenant", world_size=2), 1),
    ("lookup", key(request_configs={"lmcache.skip_load": True, "lmcache.tag.user": "alice"}), 1), ("lookup", key(request_configs={}), 1),
    ("query_prefetch_status", "r"), ("query_prefetch_status", ""), ("wait_prefetch_status", "r", 5.5), ("free_lookup_locks", key(end=24), 1),
    ("end_session", "r"),
    ("prepare_store", key(worker_id=0), 7), ("prepare_store", key(worker_id=1, world_size=2, start=16), 7),
    ("commit_store", key(worker_id=0), 7, b""), ("commit_store", key(worker_id=0), 7, bytes(300)),
    ("prepare_retrieve", key(worker_id=0), 7), ("commit_retrieve", key(worker_id=0), 7),
    ("report_block_allocation", 7, "org/model", [types.BlockAllocationRecord("r", [1, 2, 3], [5, 6, 300])]),
]
if LATER:
    GROUPS = [types.GroupLayout(2, 8, "bfloat16", 16, 16, 2, 0, False), types.GroupLayout(1, 4, "float32", 32, 0, 1, 1, True)]
    CALLS += [
        ("negotiate_chunk_size", 16), ("register_kv_cache_engine_driven_context", registration(group_layouts=GROUPS)),
        ("free_lookup_locks", key(end=0), 1, ((16, 32), (0, 16))), ("prepare_store", key(worker_id=0), 7, ((), (0,), (0, 1))),
    ]

codecs = {c.operation: c for c in get_method_codec_registry().by_full_name.values()}
out = []
for operation, *args in CALLS:
    spec = get_rpc_spec(operation)
    payloads = spec.bind_payloads(tuple(args), {})
    frames = [types.get_customized_encoder(t).encode(p) for p, t in zip(payloads, spec.payload_types)]
    codec = codecs[operation]
    out.append({
        "method": codec.full_name.removeprefix("lmcache.mp."),
        "grpc": codec.request_encoder(tuple(args), {}).SerializeToString(deterministic=True).hex(),
        "operation": encode_operation(operation).hex(), "arguments": [f.hex() for f in frames],
    })
path = pathlib.Path(__file__).with_name(f"zmq_calls.{RELEASE}.json")
path.write_text("[\n" + ",\n".join(" " + json.dumps(c) for c in out) + "\n]\n")
print(path, len(out))

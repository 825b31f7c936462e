"""Writes messages.json: what LMCache's own classes make of messages of its controller.

    PYTHONPATH=FOLDER_OF_LMCACHE_0.5.6 python golden.py > messages.json

Each message has its class, its fields, and its bytes as hexadecimal digits.
"""

import json

import msgspec

from lmcache.v1.cache_controller import message as m
from lmcache.v1.cache_controller.commands.full_sync import FullSyncCommand

BIG, LOW = 2**64 - 1, -(2**63)
ops = [m.KVOpEvent(op_type=m.OpType.ADMIT, key=k, seq_num=i) for i, k in enumerate((0, 127, 128, 65536, 2**32, 2**63, BIG, -1, -33, -32769, LOW))]
ops.append(m.KVOpEvent(op_type=m.OpType.EVICT, key=127, seq_num=11))
messages = [
    m.RegisterMsg(instance_id="instance-0", worker_id=0, ip="10.0.0.1", port=5555, peer_init_url=None),
    m.RegisterMsg(instance_id="ä" * 20, worker_id=7, ip="10.0.0.1", port=65535, peer_init_url="10.0.0.1:8200"),
    m.DeRegisterMsg(instance_id="instance-0", worker_id=0, ip="10.0.0.1", port=5555),
    m.KVAdmitMsg(instance_id="i", worker_id=0, key=BIG, location="LocalCPUBackend", seq_num=3),
    m.KVEvictMsg(instance_id="i", worker_id=0, key=LOW, location="LocalDiskBackend"),
    m.BatchedKVOperationMsg(instance_id="i", worker_id=1, location="LocalCPUBackend", operations=ops),
    m.BatchedKVOperationMsg(instance_id="i", worker_id=1, location="LocalCPUBackend", operations=[]),
    m.FullSyncStartMsg(instance_id="i", worker_id=0, location="LocalCPUBackend", sync_id="i_0_0123abcd", total_keys=4001, batch_count=3),
    m.FullSyncBatchMsg(instance_id="i", worker_id=0, location="LocalCPUBackend", sync_id="i_0_0123abcd", batch_id=2, keys=[1, BIG, LOW]),
    m.FullSyncEndMsg(instance_id="i", worker_id=0, location="LocalCPUBackend", sync_id="i_0_0123abcd", actual_total_keys=4001),
    m.FullSyncStatusMsg(instance_id="i", worker_id=0, sync_id="i_0_0123abcd"),
    m.HeartbeatMsg(instance_id="i", worker_id=0, ip="10.0.0.1", port=5555, peer_init_url=None),
    m.BatchedP2PLookupMsg(hashes=[1, 2, BIG, LOW], instance_id="i", worker_id=0),
    m.QueryInstMsg(event_id="e", ip="10.0.0.1"),
    m.LookupMsg(event_id="e", tokens=list(range(300))),
    m.ClearMsg(event_id="e", instance_id="i", location="LocalCPUBackend"),
    m.PinMsg(event_id="e", instance_id="i", location="LocalCPUBackend", tokens=[1, 2, 3]),
    m.CompressMsg(event_id="e", instance_id="i", method="cachegen", location="LocalCPUBackend"),
    m.DecompressMsg(event_id="e", instance_id="i", method="cachegen", location="LocalCPUBackend", tokens=[1]),
    m.MoveMsg(event_id="e", old_position=("i", "LocalCPUBackend"), new_position=("j", "LocalCPUBackend"), tokens=[1], copy=True),
    m.HealthMsg(event_id="e", instance_id="i"),
    m.CheckFinishMsg(event_id="e"),
    m.QueryWorkerInfoMsg(event_id="e", instance_id="i", worker_ids=[0, 1]),
    m.QueryWorkerInfoMsg(event_id="e", instance_id="all", worker_ids=None),
    # what the controller sends
    m.RegisterRetMsg(),
    m.RegisterRetMsg(extra_config={"heartbeat_url": "127.0.0.1:8082"}),
    m.HeartbeatRetMsg(),
    m.HeartbeatRetMsg(commands=[FullSyncCommand(reason="worker_re_registered")]),
    m.BatchedP2PLookupRetMsg(layout_info=[("", "", 0, "")]),
    m.BatchedP2PLookupRetMsg(layout_info=[("i", "LocalCPUBackend", 300, "10.0.0.1:8200")]),
    m.FullSyncStartRetMsg(sync_id="s", accepted=True),
    m.FullSyncStartRetMsg(sync_id="s", accepted=False, error_msg="why"),
    m.FullSyncStatusRetMsg(sync_id="s", is_complete=False, global_progress=0.5, can_exit_freeze=False, missing_batches=[0, 300]),
    m.FullSyncStatusRetMsg(sync_id="s", is_complete=True, global_progress=1.0, can_exit_freeze=True),
    m.QueryInstRetMsg(event_id="e", instance_id="i"),
    m.QueryInstRetMsg(event_id="e", instance_id=None),
    m.LookupRetMsg(event_id="e", layout_info={}),
    m.LookupRetMsg(event_id="e", layout_info={"i": ("LocalCPUBackend", 256)}),
    m.ClearRetMsg(event_id="e", num_tokens=512),
    m.PinRetMsg(event_id="e", num_tokens=512),
    m.HealthRetMsg(event_id="e", error_codes={0: 0, 1: -1001}),
    m.QueryWorkerInfoRetMsg(event_id="e", worker_infos=[m.WorkerInfo("i", 0, "10.0.0.1", 5555, None, 1700000000.5, 1700000001.25)]),
    m.ErrorMsg(error="why"),
    # between the controller and a worker
    m.ClearWorkerMsg(worker_event_id="Worker0e", location="LocalCPUBackend"),
    m.PinWorkerMsg(worker_event_id="Worker0e", location="LocalCPUBackend", tokens=[1, 2, 300]),
    m.HealthWorkerMsg(worker_event_id="HealthWorker0e"),
    m.ClearWorkerRetMsg(num_tokens=256),
    m.PinWorkerRetMsg(num_tokens=256),
    m.HealthWorkerRetMsg(error_code=-1),
]
out = []
for x in messages:
    data = msgspec.msgpack.encode(x)
    assert msgspec.msgpack.decode(data, type=m.Msg) == x
    out.append({"class": type(x).__name__, "fields": msgspec.to_builtins(x), "hex": data.hex()})
print("[\n" + ",\n".join(json.dumps(x) for x in out) + "\n]")

"""Writes exchanges.json: what LMCache's own coordinator answers.

    PYTHONPATH=FOLDER_OF_LMCACHE_0.5.7rc2 python record.py > exchanges.json

Requests are drawn from a seed, and each has the status and the body of the answer.
"""

import json
import random
import sys

from fastapi.testclient import TestClient

from lmcache.v1.mp_coordinator.app import create_app
from lmcache.v1.mp_coordinator.config import MPCoordinatorConfig
from lmcache.v1.multiprocess.token_hasher import TokenHasher

CHUNK, MODEL = 4, "org/model"
rng = random.Random(7)
app = create_app(MPCoordinatorConfig(chunk_size=CHUNK, health_check_interval=0, eviction_check_interval=0))
out = []


def draw_key(hashes):
    world = rng.choice([1, 1, 2])
    worker = rng.randrange(world)
    return {"chunk_hash_hex": rng.choice(hashes), "model_name": MODEL, "kv_rank": world << 24 | worker << 16 | world << 8 | worker,
            "object_group_id": rng.choice([0, 0, 0, 1]), "cache_salt": rng.choice(["", "", "salt"])}


with TestClient(app) as client:

    def call(method, path, body=None):
        answer = client.request(method, path, json=body)
        out.append({"method": method, "path": path, "body": body, "status": answer.status_code,
                    "answer": answer.json() if answer.content else None})

    prompts = [[rng.randrange(50_000) for _ in range(4 * CHUNK + 1)] for _ in range(3)]
    prompts.append(prompts[0][:2 * CHUNK] + prompts[1][:2 * CHUNK])
    hasher = TokenHasher(CHUNK, "blake3")
    tokens_of = {}
    for p in prompts:
        for i, h in enumerate(hasher.compute_chunk_hashes(p)):
            tokens_of[h.hex()] = (p[i * CHUNK:(i + 1) * CHUNK], i * CHUNK)
    hashes = sorted(tokens_of)
    streams = {}
    call("GET", "/healthz")
    call("POST", "/instances", {"instance_id": " a ", "ip": "10.0.0.1", "http_port": 8080, "chunk_size": CHUNK})
    for i in range(300):
        name = rng.choice("abc")
        kind = rng.choice(["events"] * 12 + ["lookup", "keys", "list", "stats", "instances", "register", "heartbeat", "leave", "wrong"])
        if kind == "events":
            inc, seq = streams.get(name, (1, 0))
            step = rng.choice([1] * 10 + [0, 2, "restart", "old"])
            if step == "restart":
                inc, seq = inc + 1, 1
            elif step != "old":
                seq += step
            if step == "old":
                send = (max(inc - 1, 0), seq + 1)
            else:
                streams[name] = send = (inc, seq)
            if send[1] < 1:
                continue
            event, tier = rng.choice(["store"] * 4 + ["delete", "delete", "access", "config"]), rng.choice(["l1", "l1", "l2"])
            entries = []
            for _ in range(0 if event == "config" else rng.randrange(5)):
                entry = {"key": draw_key(hashes)}
                if event == "store":
                    entry["size_bytes"] = rng.randrange(1000)
                    if rng.random() < 0.7:
                        entry["token_ids"], entry["token_offset"] = tokens_of[entry["key"]["chunk_hash_hex"]]
                    elif rng.random() < 0.2:
                        entry["token_ids"] = [1, -1]
                entries.append(entry)
            call("POST", "/events", {"batches": [{
                "instance_id": name, "incarnation": send[0], "seq": send[1], "event_type": event, "tier": tier,
                "backend": "" if event == "access" else rng.choice(["dram", "fs"]), "entries": entries, "shared": tier == "l2" and rng.random() < 0.5,
                "ts": float(i), "dropped_events": 0}]})
        elif kind == "lookup":
            call("POST", "/directory/lookup", {"token_ids": rng.choice(prompts), "model_name": MODEL, "world_size": rng.choice([1, 2]), "cache_salt": rng.choice(["", "salt"])})
        elif kind == "keys":
            call("POST", "/directory/lookup", {"keys": [draw_key(hashes) for _ in range(4)]})
        elif kind == "list":
            call("GET", "/directory/keys?" + rng.choice(["", "tier=l1", "tier=l2&backend=fs", "instance_id=a", "limit=10000&offset=100000", "limit=0", "tier=x"]))
        elif kind == "stats":
            call("GET", "/directory/stats")
        elif kind == "instances":
            call("GET", "/instances")
        elif kind == "register":
            call("POST", "/instances", {"instance_id": name, "ip": "10.0.0.2", "http_port": 1, "metadata": {"k": "v"}, "p2p_advertised_url": "u", "mq_port": 5})
        elif kind == "heartbeat":
            call("PUT", f"/instances/{name}/heartbeat")
        elif kind == "leave":
            call("DELETE", f"/instances/{name}")
        else:
            good = {"instance_id": "z", "incarnation": 0, "seq": 1, "event_type": "store", "tier": "l1", "backend": "dram", "entries": []}
            call("POST", "/events", {"batches": [good | rng.choice([
                {"instance_id": ""}, {"incarnation": -1}, {"seq": 0}, {"event_type": "x"}, {"tier": "all"}, {"backend": ""}, {"ts": -1.0},
                {"event_type": "config", "entries": [{"key": draw_key(hashes)}]}, {"entries": [{"key": draw_key(["zz"])}]},
                {"entries": [{"key": draw_key(hashes) | {"model_name": "a@b"}}]}, {"entries": [{"key": draw_key(hashes), "size_bytes": -1}]},
                {"entries": [{"size_bytes": 1}]}, {"entries": 3}])]})
            call("POST", "/directory/lookup", rng.choice([
                {}, {"token_ids": [1], "keys": [draw_key(hashes)]}, {"token_ids": [1]}, {"token_ids": [1], "model_name": "m", "world_size": 0},
                {"token_ids": [1, 2, 3, 4], "model_name": "m", "cache_salt": "a/b"}, {"keys": [draw_key(["zz"])]}, {"token_ids": [1], "model_name": "m"}]))
            call("POST", "/instances", rng.choice([{"ip": " ", "http_port": 1}, {"ip": "x", "http_port": 0}, {"ip": "x"}, {"ip": "x", "http_port": 1, "chunk_size": 8}]))
            call("PUT", "/config/chunk-size", {"chunk_size": rng.choice([0, CHUNK, 8])})
            call("POST", "/directory/blend-lookup", rng.choice([{}, {"tokens_b64": "AAAA"}, {"tokens_b64": "AAAAAA==", "model_name": "m"}, {"tokens_b64": "AAAAAA=="}]))
print("[\n" + ",\n".join(json.dumps(x) for x in out) + "\n]")
print(len(out), "exchanges", file=sys.stderr)

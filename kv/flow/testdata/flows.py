"""Random flows of requests through the scheduler's and the worker's half of the installed lmcache's connector, one a
line: what its methods were called with, and what they made of it.

    PYTHONHASHSEED=0 python kv/flow/testdata/flows.py 40 > kv/flow/testdata/flows.jsonl

The environment is that of kv/testdata/lmcache_golden.py. The engine is played here: blocks, prefills in parts, decoding,
preemption, loads that fail, aborts. interop/test_kv.py makes many more flows, with both releases.
"""

import json
import os
import random
import sys
from types import SimpleNamespace as Fake

os.environ.setdefault("LMCACHE_LOG_LEVEL", "CRITICAL")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("LMCACHE_TRACK_USAGE", "false")
import torch  # noqa: E402

from lmcache.v1.config import LMCacheEngineConfig  # noqa: E402
try:
    from lmcache.inprocess.integration.vllm import vllm_v1_adapter as A  # noqa: E402
except ImportError:  # before 0.5.7
    from lmcache.integration.vllm import vllm_v1_adapter as A  # noqa: E402

A.get_pp_group = lambda: Fake(is_last_rank=True)
Connector = A.LMCacheConnectorV1Impl


class Engine:
    """LMCache's engine: it writes down what it is asked for."""

    storage_manager = None

    def __init__(self):
        self.calls = {}

    @staticmethod
    def skipped(mask):
        return int((~mask).sum())

    def retrieve(self, tokens, mask, slot_mapping, req_id, **_):
        self.calls[req_id, "load"] = {"Tokens": list(tokens), "Slots": slot_mapping.tolist(), "Skip": self.skipped(mask)}
        return mask

    def store(self, tokens, mask, slot_mapping, req_id, **_):
        self.calls[req_id, "save"] = {"Tokens": list(tokens), "Slots": slot_mapping.tolist(), "Skip": self.skipped(mask)}

    def lookup_unpin(self, _):
        pass


class Client:
    """A look-up client: it answers what the flow has drawn."""

    def __init__(self):
        self.found, self.next, self.asked = {}, None, None

    def lookup_cache(self, lookup_id):
        return self.found.get(lookup_id, -1)

    def lookup(self, tokens, lookup_id, request_configs=None):
        self.asked = list(tokens)
        answer = self.next(len(self.asked))
        if answer is not None:
            self.found[lookup_id] = answer
        return answer

    def clear_lookup_status(self, lookup_id):
        self.found.pop(lookup_id, None)


def connector(options):
    """The connector as vLLM has it, without what its constructor starts."""
    c = Connector.__new__(Connector)
    config = LMCacheEngineConfig.from_defaults(
        chunk_size=options["ChunkTokens"], save_unfull_chunk=True, save_decode_cache=options["SaveDecodeCache"],
        min_retrieve_tokens=options["MinRetrieveTokens"], priority_limit=options["PriorityLimit"])
    engine, client = Engine(), Client()
    c.config, c._manager = config, Fake(lmcache_engine=engine, lookup_client=client)
    c.kv_role, c.force_skip_save = "kv_both", options["NeverSave"]
    c._block_size, c._lmcache_chunk_size = options["BlockTokens"], options["ChunkTokens"]
    c._discard_partial_chunks, c.skip_last_n_tokens = options["DiscardPartialChunks"], options["SkipLastTokens"]
    c._max_tokens_per_load = options["MaxTokensPerLoad"]
    c.load_specs, c._request_trackers, c._requests_priority, c._unfinished_requests = {}, {}, {}, {}
    c.async_loading = c.use_layerwise = c.enable_blending = False
    c._invalid_block_ids, c.kv_caches, c.device = set(), {"layer": torch.zeros(1)}, "cpu"
    c._stats_monitor = Fake(update_interval_vllm_hit_tokens=lambda _: None, update_interval_prompt_tokens=lambda _: None)
    return c, engine, client


class Flow:
    def __init__(self, r, most):
        self.r, self.most, self.ops, self.free, self.live, self.count = r, most, [], list(range(400)), [], 0
        r.shuffle(self.free)
        chunk = r.choice((1, 4, 4, 8, 8, 16))
        self.options = {
            "BlockTokens": r.choice((1, 2, 4, 4, 8, 16)), "ChunkTokens": chunk, "DiscardPartialChunks": r.random() < 0.5, "SaveDecodeCache": r.random() < 0.5,
            "NeverSave": r.random() < 0.05, "PriorityLimit": r.choice((None, None, None, 0, 2)), "MinRetrieveTokens": r.choice((0, 0, 0, chunk, 10)),
            "MaxTokensPerLoad": r.choice((0, 0, 0, chunk, 2 * chunk + 1)), "SkipLastTokens": r.choice((0, 0, 0, 0, 1, 3)),
        }
        self.c, self.engine, self.client = connector(self.options)
        self.budget = r.choice((8, 16, 64, 1000))

    def request(self):
        r = self.r
        self.count += 1
        n = r.randrange(1, self.most)
        tokens = [r.randrange(50) for _ in range(n)]
        media = [{"Identifier": r.choice(("a", "b", "\u00e9-1")), "Offset": r.randrange(n), "Length": r.randrange(0, 12)} for _ in range(r.choice((0, 0, 0, 1, 2)))]
        configs = r.choice((None, None, None, {"lmcache.tag.a": "1"}, {"lmcache.skip_save": r.choice((True, False, "x", "", 0, 1))}))
        other = {"other": 1} if r.random() < 0.2 else {}
        q = Fake(
            request_id=f"r{self.count}", prompt_token_ids=tokens, all_token_ids=list(tokens), num_computed_tokens=0, priority=r.randrange(4), kv_transfer_params=None,
            sampling_params=Fake(extra_args={"kv_transfer_params": {**configs, **other}} if configs else None), status=None,
            mm_features=[Fake(identifier=m["Identifier"], mm_position=Fake(offset=m["Offset"], length=m["Length"])) for m in media])
        q.media, q.configs, q.blocks, q.state = media, configs, [], "new"
        q.output = r.randrange(0, 12)
        return q

    def said(self, q):
        return {"ID": q.request_id, "Tokens": list(q.all_token_ids), "PromptTokens": len(q.prompt_token_ids), "Media": q.media,
                "Options": json.dumps(q.configs) if q.configs else "", "Priority": q.priority}

    def stored(self, n, prompt):
        """What a look-up finds among n tokens: whole chunks, or all of them with a tail, where LMCache can load it."""
        chunk = self.options["ChunkTokens"]
        tail = n < prompt or self.options["DiscardPartialChunks"]
        return self.r.choice((0, self.r.randrange(n // chunk + 1) * chunk, n // chunk * chunk, n // chunk * chunk if tail else n))

    def admit(self, q):
        """A look-up and blocks. It may have to wait: for the look-up, or for blocks."""
        r, block = self.r, self.options["BlockTokens"]
        q.num_tokens = len(q.all_token_ids)
        computed = r.choice((0, 0, r.randrange(q.num_tokens) // block * block))
        self.client.asked, waits = None, r.random() < 0.1
        self.client.next = lambda n: None if waits else self.stored(n, len(q.prompt_token_ids))
        n = self.c.get_num_new_matched_tokens(q, computed)
        op = {"Op": "matched", "Request": self.said(q), "Computed": computed, "Asked": self.client.asked, "Stored": self.client.found.get(q.request_id), "N": n}
        if n:
            # With lmcache.max_tokens_per_load it may say more than it asserts then.
            spec = self.c.load_specs[q.request_id]
            last = int(spec.lmcache_cached_tokens == q.num_tokens)
            exact = spec.lmcache_cached_tokens - spec.vllm_cached_tokens - last
            op["Capped"], n = n != exact, exact
        self.ops.append(op)
        if n is None or r.random() < 0.15:
            return False
        spec = self.c.load_specs[q.request_id]
        last = int(spec.lmcache_cached_tokens == q.num_tokens)
        if q.state == "preempted" and n == 0 and spec.lmcache_cached_tokens - last > computed:
            return False  # with min_retrieve_tokens LMCache ends its engine here
        external = 0 if r.random() < 0.05 else n
        self.c.update_state_after_alloc(q, external)
        self.ops.append({"Op": "allocated", "Request": self.said(q), "External": external})
        if external != n:  # only calls of a request that waits for its blocks again are different
            return False
        q.num_computed_tokens = computed + n
        return True

    def room(self, q, n):
        """The new blocks for the first n tokens."""
        new = []
        while (len(q.blocks) + len(new)) * self.options["BlockTokens"] < n:
            new.append(self.free.pop())
        return new

    def drop(self, q):
        self.free.extend(q.blocks)
        q.blocks = []

    def step(self):
        r, budget, first, running = self.r, self.budget, [], []
        for q in list(self.live):
            if q.state == "running" and r.random() < 0.08:  # preempted
                self.drop(q)
                q.state, q.num_computed_tokens = "preempted", 0
            if q.state == "running" and q.num_computed_tokens > 4 and r.random() < 0.05:  # a load failed
                q.num_computed_tokens -= r.randrange(1, 4)
            before = q.state
            if budget == 0 or before != "running" and not (len(self.free) > 60 and self.admit(q)):
                continue
            count = min(budget, len(q.all_token_ids) - q.num_computed_tokens)
            assert count > 0
            budget -= count
            new = self.room(q, q.num_computed_tokens + count + r.choice((0, 0, 3)))
            q.blocks = q.blocks + new
            q.state, q.now = "running", count
            entry = {"ID": q.request_id, "Tokens": list(q.all_token_ids), "Computed": q.num_computed_tokens, "Count": count, "Blocks": new,
                     "Resumed": before == "preempted"}
            (first if before == "new" else running).append((entry, q))
        output = Fake(
            finished_req_ids=set(), num_scheduled_tokens={e["ID"]: e["Count"] for e, _ in first + running},
            scheduled_new_reqs=[Fake(req_id=e["ID"], prompt_token_ids=q.prompt_token_ids, block_ids=(list(e["Blocks"]),), num_computed_tokens=e["Computed"],
                                     sampling_params=q.sampling_params, mm_features=q.mm_features) for e, q in first],
            scheduled_cached_reqs=Fake(req_ids=[e["ID"] for e, _ in running], new_block_ids=[(list(e["Blocks"]),) if e["Blocks"] else None for e, _ in running],
                                       resumed_req_ids={e["ID"] for e, _ in running if e["Resumed"]}))
        meta = self.c.build_connector_meta(output)
        self.ops.append({"Op": "build", "First": [e for e, _ in first], "Running": [e for e, _ in running], "Metas": self.worker(meta)})
        for _, q in first + running:
            q.num_computed_tokens += q.now
            if q.num_computed_tokens >= len(q.all_token_ids):
                q.all_token_ids.append(r.randrange(50))
                q.output -= 1
            if q.output < 0:
                self.finish(q)

    def worker(self, meta):
        out = []
        for m in meta.requests:
            load, save = m.load_spec, m.save_spec
            out.append({
                "ID": m.req_id, "Tokens": list(m.token_ids), "Slots": m.slot_mapping.tolist(), "LastPrefill": m.is_last_prefill,
                "Save": {"SkipTokens": save.skip_leading_tokens, "CanSave": bool(save.can_save)},
                "Load": load and {"EngineTokens": load.vllm_cached_tokens, "CacheTokens": load.lmcache_cached_tokens, "CanLoad": load.can_load},
                "Options": json.dumps(m.request_configs) if m.request_configs else ""})
        self.engine.calls = {}
        self.c._parent = Fake(_get_connector_metadata=lambda: meta)
        meta.requests = [m for m in meta.requests if len(m.slot_mapping) == len(m.token_ids)]  # others end the worker
        self.c.start_load_kv(Fake(attn_metadata=1))
        self.c.wait_for_save()
        return [{"Meta": m, "Load": self.engine.calls.get((m["ID"], "load")), "Save": self.engine.calls.get((m["ID"], "save"))} for m in out]

    def finish(self, q):
        tracker = self.c._request_trackers.get(q.request_id)
        self.ops.append({"Op": "finish", "ID": q.request_id, "N": tracker.num_lmcache_cached_tokens if tracker else 0})
        for kept in (self.c.load_specs, self.client.found):
            kept.pop(q.request_id, None)
        self.c.build_connector_meta(Fake(finished_req_ids={q.request_id}, scheduled_new_reqs=[],
                                         scheduled_cached_reqs=Fake(req_ids=[], new_block_ids=[], resumed_req_ids=set())))
        self.drop(q)
        self.live.remove(q)

    def run(self, steps):
        for _ in range(steps):
            if len(self.live) < 4 and self.r.random() < 0.5:
                self.live.append(self.request())
            self.step()
            if self.live and self.r.random() < 0.03:  # aborted
                self.finish(self.r.choice(self.live))
        return {"Options": self.options, "Ops": self.ops}


def flow(r, steps=20, most=40):
    return Flow(r, most).run(steps)


if __name__ == "__main__":
    torch.set_num_threads(1)
    r = random.Random(11)
    for _ in range(int(sys.argv[1])):
        print(json.dumps(flow(r), separators=(",", ":")))

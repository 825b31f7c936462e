"""vLLM's own encoder and decoder of EngineCore's messages, of whichever release:
python requests_peer.py RELEASE_DIR|- INPUTS OUTPUTS

INPUTS has a JSON list of jobs, OUTPUTS gets a list of results, or {"error": text} where vLLM raises. Values are in the
form that the agent's `request.encode` takes and replies (see docs/agent.md), arrays by their SHA-256.
"""

import dataclasses
import enum
import hashlib
import json
import os
import sys

import upstream


class Absent(Exception):
    """The release has no such thing."""


class Peer:
    def __init__(self, path):
        self.vllm = upstream.load(path)
        self.torch, self.inputs = self.vllm.torch, self.vllm.inputs
        import msgspec
        import numpy
        import vllm.lora.request
        import vllm.outputs
        import vllm.pooling_params
        import vllm.sampling_params
        import vllm.tasks
        import vllm.v1.engine
        import vllm.v1.metrics.stats
        import vllm.v1.outputs
        import vllm.v1.request
        import vllm.v1.serial_utils
        v1 = vllm.v1
        self.msgspec, self.numpy, self.sampling, self.engine = msgspec, numpy, vllm.sampling_params, v1.engine
        self.lists, self.stats, self.tasks = v1.outputs, v1.metrics.stats, vllm.tasks
        self.Request, self.Pooling, self.LoRA = v1.request.Request, vllm.pooling_params.PoolingParams, vllm.lora.request.LoRARequest
        self.RequestError = getattr(vllm.outputs, "RequestError", None)
        self.UtilityResult = getattr(v1.engine, "UtilityResult", None) or v1.serial_utils.UtilityResult
        self.encode = self.vllm.Encoder().encode
        self.decode_request = self.vllm.Decoder(v1.engine.EngineCoreRequest).decode
        self.decode_outputs = self.vllm.Decoder(v1.engine.EngineCoreOutputs).decode

    # -- the agent's form to Python -----------------------------------------------------------------------------------

    def tensor(self, x):
        raw, dtype = bytes.fromhex(x["hex"]), getattr(self.torch, x["dtype"])
        if not raw:
            return self.torch.empty(x["shape"], dtype=dtype)
        return self.torch.frombuffer(bytearray(raw), dtype=self.torch.uint8).view(dtype).view(x["shape"])

    def array(self, x):
        return self.numpy.frombuffer(bytes.fromhex(x["hex"]), dtype=x["dtype"]).reshape(x["shape"])

    def plain(self, v):
        if isinstance(v, list):
            return [self.plain(x) for x in v]
        if not isinstance(v, dict):
            return v
        if len(v) == 1:
            (tag, x), = v.items()
            if tag in ("$float", "$bytes", "$tensor", "$ndarray"):
                return {"$float": float, "$bytes": bytes.fromhex, "$tensor": self.tensor,
                        "$ndarray": self.array}[tag](x)
            if tag == "$map":
                return {self.plain(k): self.plain(e) for k, e in x}
        return {k: self.plain(x) for k, x in v.items()}

    def feature(self, j):
        data = None if j["data"] is None else self.vllm.build(j["data"])
        place = self.inputs.PlaceholderRange(offset=j["offset"], length=j["length"], is_embed=self.plain(j["is_embed"]))
        more = {"mm_hash": j["mm_hash"]} if "mm_hash" in self.inputs.MultiModalFeatureSpec.__dataclass_fields__ else {}
        return self.inputs.MultiModalFeatureSpec(data=data, modality=j["modality"], identifier=j["identifier"],
                                                 mm_position=place, **more)

    def params(self, j):
        p = self.plain(j)
        if (s := p.get("structured_outputs")) is not None:
            late = {k: s.pop(k) for k in ("_backend", "_backend_was_auto") if k in s}
            p["structured_outputs"] = self.sampling.StructuredOutputsParams(**s)
            for k, v in late.items():
                setattr(p["structured_outputs"], k, v)
        if p.get("repetition_detection") is not None:
            p["repetition_detection"] = self.sampling.RepetitionDetectionParams(**p["repetition_detection"])
        if "output_kind" in p:
            p["output_kind"] = self.sampling.RequestOutputKind(p["output_kind"])
        if p.get("logit_bias") is not None:
            p["logit_bias"] = {int(k): float(v) for k, v in p["logit_bias"].items()}
        if "_all_stop_token_ids" in p:
            p["_all_stop_token_ids"] = set(p["_all_stop_token_ids"])
        for k in ("presence_penalty", "frequency_penalty", "repetition_penalty", "temperature", "top_p", "min_p"):
            if k in p:
                p[k] = float(p[k])
        return self.sampling.SamplingParams(**p)

    def request(self, j):
        fields = self.engine.EngineCoreRequest.__struct_fields__
        r = {k: self.plain(v) for k, v in j.items() if k in fields}
        r["arrival_time"] = float(j["arrival_time"])
        for name in fields[:fields.index("prompt_embeds")]:
            r.setdefault(name, None)
        if j.get("mm_features") is not None:
            r["mm_features"] = [self.feature(f) for f in j["mm_features"]]
        if j.get("sampling_params") is not None:
            r["sampling_params"] = self.params(j["sampling_params"])
            if j.get("eos_token_id") is not None:
                # As vLLM's frontend does in every release.
                r["sampling_params"].update_from_generation_config({}, j["eos_token_id"])
        if j.get("pooling_params") is not None:
            r["pooling_params"] = self.Pooling(**self.plain(j["pooling_params"]))
            if self.none_is_no_bool() and r["pooling_params"].skip_reading_prefix_cache is None:
                r["pooling_params"].skip_reading_prefix_cache = False
        if j.get("lora_request") is not None:
            r["lora_request"] = self.LoRA(**{k: v for k, v in j["lora_request"].items()
                                             if k in self.LoRA.__struct_fields__})
        if j.get("kv_hints") is not None:
            from vllm.v1.kv_hints import KvHintAction, KvHintsEnvelope
            h = self.plain(j["kv_hints"])
            r["kv_hints"] = KvHintsEnvelope(**{**h, "actions": [KvHintAction(**a) for a in h["actions"]]})
        return self.engine.EngineCoreRequest(**r)

    def none_is_no_bool(self):
        """Whether the release can't decode its own default: None in a field of PoolingParams that is a bool."""
        try:
            self.msgspec.msgpack.decode(self.msgspec.msgpack.encode(self.Pooling()), type=self.Pooling)
        except self.msgspec.ValidationError:
            return True
        return False

    def output(self, j):
        fields, o = self.engine.EngineCoreOutput.__struct_fields__, {}
        made = {
            "new_logprobs": lambda v: self.lists.LogprobsLists(*v),
            "new_prompt_logprobs_tensors": lambda v: self.lists.LogprobsTensors(*v),
            "finish_reason": self.engine.FinishReason, "new_sampling_mask": lambda v: self.lists.SamplingMaskLists(*v),
            "events": lambda v: [self.engine.EngineCoreEvent(self.engine.EngineCoreEventType(e["type"]),
                                                             e["timestamp"]) for e in v],
            "prefill_stats": lambda v: self.stats.PrefillStats(**v), "error": lambda v: self.RequestError(**v),
        }
        for k, v in j.items():
            if k in fields:
                v = self.plain(v)
                o[k] = made[k](v) if v is not None and k in made else v
        return self.engine.EngineCoreOutput(**o)

    def outputs(self, j):
        m = {k: self.plain(v) for k, v in j.items() if k in self.engine.EngineCoreOutputs.__struct_fields__}
        m["outputs"] = [self.output(o) for o in j["outputs"]]
        if m.get("finished_requests") is not None:
            m["finished_requests"] = set(m["finished_requests"])
        if (u := m.get("utility_output")) is not None:
            result = None if u["failure_message"] is not None else self.UtilityResult(u["result"])
            m["utility_output"] = self.engine.UtilityOutput(u["call_id"], u["failure_message"], result)
        return self.engine.EngineCoreOutputs(**m)

    # -- Python to the agent's form -----------------------------------------------------------------------------------

    def shown(self, v):
        if v is None or isinstance(v, (bool, str)):
            return v
        if isinstance(v, enum.Enum):
            return v.value
        if isinstance(v, int):
            return v
        if isinstance(v, float):
            return {"$float": str(v)} if v != v or v in (float("inf"), float("-inf")) else v
        if isinstance(v, (bytes, memoryview)):
            return {"$bytes": bytes(v).hex()}
        if isinstance(v, self.torch.Tensor):
            raw = bytes(self.vllm.raw(v))
            return {"$tensor": {"dtype": str(v.dtype).removeprefix("torch."), "shape": list(v.shape),
                                "sha256": hashlib.sha256(raw).hexdigest()}}
        if isinstance(v, self.numpy.ndarray):
            return {"$ndarray": {"dtype": v.dtype.str, "shape": list(v.shape),
                                 "sha256": hashlib.sha256(v.tobytes()).hexdigest()}}
        if isinstance(v, self.inputs.MultiModalKwargsItem):
            return self.vllm.describe(v)
        if isinstance(v, self.UtilityResult):
            return self.shown(v.result)
        if isinstance(v, self.inputs.MultiModalFeatureSpec):
            place = v.mm_position
            return {"data": self.shown(v.data), "modality": v.modality, "identifier": v.identifier,
                    "offset": place.offset, "length": place.length,
                    "is_embed": self.shown(place.is_embed), "mm_hash": getattr(v, "mm_hash", None)}
        if isinstance(v, self.msgspec.Struct):
            return {k: self.shown(getattr(v, k)) for k in v.__struct_fields__}
        if dataclasses.is_dataclass(v):
            return {f.name: self.shown(getattr(v, f.name)) for f in dataclasses.fields(v)}
        if isinstance(v, (set, frozenset)):
            return sorted(self.shown(x) for x in v)
        if isinstance(v, (list, tuple)):
            return [self.shown(x) for x in v]
        if isinstance(v, dict):
            if all(isinstance(k, str) for k in v) and not (len(v) == 1 and next(iter(v)).startswith("$")):
                return {k: self.shown(x) for k, x in v.items()}
            return {"$map": [[self.shown(k), self.shown(x)] for k, x in v.items()]}
        raise TypeError("can't show a %s" % type(v))

    def frames(self, obj):
        return [bytes(f).hex() for f in self.encode(obj)]

    # -- jobs ---------------------------------------------------------------------------------------------------------

    def job_fields(self, _):
        def names(cls):
            if cls is None:
                return []
            return list(getattr(cls, "__struct_fields__", None) or [f.name for f in dataclasses.fields(cls)])
        ready = getattr(self.engine, "EngineCoreReadyResponse", None)
        return {"request": names(self.engine.EngineCoreRequest), "output": names(self.engine.EngineCoreOutput),
                "outputs": names(self.engine.EngineCoreOutputs), "ready": names(ready),
                "sampling": names(self.sampling.SamplingParams),
                "pooling": names(self.Pooling), "lora": names(self.LoRA),
                "pooling_tasks": list(self.tasks.POOLING_TASKS),
                "options": {"keep": self.vllm.keeps, "bare": not self.vllm.keyed},
                "defaults": self.shown(dict(zip(names(self.sampling.SamplingParams), self.raw_defaults())))}

    def raw_defaults(self):
        for d in self.sampling.SamplingParams.__struct_defaults__:
            yield d.factory() if hasattr(d, "factory") else d

    def job_request(self, job):
        """The request as built here and as decoded from the agent's frames, and the frames of the former."""
        built = self.request(job["request"])
        decoded = self.decode_request([bytes.fromhex(f) for f in job["frames"]])
        self.Request.from_engine_core_request(decoded, None)  # what the input thread does next
        return {"built": self.shown(built), "decoded": self.shown(decoded), "frames": self.frames(built)}

    def job_outputs(self, job):
        built = self.outputs(job["outputs"])
        decoded = self.decode_outputs([bytes.fromhex(f) for f in job["frames"]])
        shown = self.shown(built)
        if job["scheduler"]:
            built.scheduler_stats = self.stats.SchedulerStats()
        return {"built": shown, "decoded": self.shown(decoded), "frames": self.frames(built),
                "scheduler": self.shown(built.scheduler_stats)}

    def job_params(self, job):
        """Whether the engine takes these parameters: by the agent's frames, or as they stand where the agent refused."""
        if job["frames"] is not None:
            frames = [bytes.fromhex(f) for f in job["frames"]]
        else:
            fields = self.engine.EngineCoreRequest.__struct_fields__
            known = {"request_id": "r", "prompt_token_ids": [1], "sampling_params": self.plain(job["params"]),
                     "arrival_time": 1.0}
            frames = self.encode([known.get(f) for f in fields[:fields.index("prompt_embeds")]])
        self.Request.from_engine_core_request(self.decode_request(frames), None)
        return {}


def main(path, inputs, outputs):
    peer = Peer(None if path == "-" else path)
    with open(inputs) as f:
        jobs = json.load(f)
    results = []
    for job in jobs:
        try:
            results.append(getattr(peer, "job_" + job["kind"])(job))
        except Exception as e:
            results.append({"error": "%s: %s" % (type(e).__name__, e)})
    with open(outputs, "w") as f:
        json.dump({"version": peer.vllm.version, "results": results}, f)


if __name__ == "__main__":
    main(*sys.argv[1:])

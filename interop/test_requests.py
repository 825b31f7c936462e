"""The agent's requests, outputs and parameters against the classes of every vLLM release that is there.

Each release's own encoder and decoder, and what its engine does with a request next, run in a process of their own
(requests_peer.py). The direction that must hold without exception: what the library lets through, the engine takes.
"""

import collections
import hashlib
import json
import math
import os
import pathlib
import random
import subprocess
import sys

import objects
import pytest
from agent import AgentError
from conftest import SCALE, _older, _own

HERE = pathlib.Path(__file__).resolve().parent
REQUESTS = 400
OUTPUTS = 400
PARAMS = 2000
LETTERS = "ab.0/_ \u00e9\u4e2d\U0001f600\x00\""


class Draw:
    """Random messages. The seed and the release's fields alone decide on them."""

    def __init__(self, seed, fields, options):
        self.r, self.fields, self.options, self.seed = random.Random(seed), fields, options, seed

    def maybe(self, draw, p=0.5):
        return draw() if self.r.random() < p else None

    def text(self, most=12):
        return "".join(self.r.choice(LETTERS) for _ in range(self.r.randint(0, most)))

    def tokens(self, low=0, high=6):
        return [self.r.choice([0, 1, 127, 128, 255, 256, 65535, 65536, 2**31 - 1, self.r.randint(0, 200000)])
                for _ in range(self.r.randint(low, high))]

    def int(self):
        return self.r.choice([0, 1, -1, 127, 128, -32, -33, 2**31, -2**31 - 1, 2**63 - 1, -2**63, 2**63, 2**64 - 1,
                              self.r.randint(-10**6, 10**6)])

    def float(self):
        return self.r.choice([0.0, 1.5, -2.0, 1e300, 5e-324, self.r.random()])

    def plain(self, depth=2):
        kinds = [lambda: None, lambda: self.r.random() < 0.5, self.int, self.float,
                 lambda: {"$float": self.r.choice(["nan", "inf", "-inf"])},
                 lambda: self.text(40), lambda: {"$bytes": self.r.randbytes(self.r.choice([0, 3, 300])).hex()}]
        if depth:
            kinds += [lambda: [self.plain(depth - 1) for _ in range(self.r.randint(0, 18))],
                      lambda: self.map(depth - 1),
                      lambda: {"$map": [[i, self.plain(depth - 1)] for i in range(1, self.r.randint(2, 4))]}]
        return self.r.choice(kinds)()

    def map(self, depth=2):
        return {self.text() + str(i): self.plain(depth) for i in range(self.r.randint(0, 4))}

    def dense(self, tag, dtype, size, shape):
        return {tag: {"dtype": dtype, "shape": shape, "hex": self.r.randbytes(size * math.prod(shape)).hex()}}

    def tensor(self, shape=None):
        dtype, size = self.r.choice([("float32", 4), ("bfloat16", 2), ("uint8", 1), ("int64", 8)])
        return self.dense("$tensor", dtype, size, [self.r.choice([0, 1, 2, 70]), 2] if shape is None else shape)

    def array(self, shape, dtype="<i4"):
        return self.dense("$ndarray", dtype, 4, shape)

    # -- requests -------------------------------------------------------------------------------------------------

    def request(self, number):
        prompt = self.tokens(1, 40)
        out = {
            "request_id": self.text(40), "prompt_token_ids": prompt,
            "mm_features": self.maybe(lambda: self.features(number)), "arrival_time": self.float(),
            "lora_request": self.maybe(self.lora, 0.2), "cache_salt": self.maybe(self.text),
            "data_parallel_rank": self.maybe(lambda: self.r.randint(0, 300), 0.2),
            "client_index": self.r.choice([0, 0, 3, 200]), "current_wave": self.r.choice([0, 0, 70000]),
            "priority": self.r.choice([0, 0, -1, 5]),
            "trace_headers": self.maybe(lambda: {self.text() + "k": self.text() for _ in range(3)}, 0.2),
        }
        if self.r.random() < 0.3:
            out["prompt_embeds"] = self.tensor([len(prompt), 3])
            what = self.r.randint(0, 2)
            if what == 0:
                out["prompt_token_ids"] = None
            elif what == 1:
                out["prompt_is_token_ids"] = [self.r.random() < 0.5 for _ in prompt]
        if self.r.random() < 0.15:
            out["pooling_params"] = self.pooling()
        else:
            out["sampling_params"] = self.sampling()
            out["eos_token_id"] = self.maybe(lambda: self.r.randint(0, 2**31 - 1))
        out |= {"resumable": self.r.random() < 0.3, "external_req_id": self.maybe(self.text),
                "reasoning_ended": self.maybe(lambda: self.r.random() < 0.5),
                "reasoning_parser_kwargs": self.maybe(self.map, 0.3), "abort_immediately": self.r.random() < 0.2,
                "session_id": self.maybe(self.text),
                "kv_hints": self.maybe(self.hints, 0.3)}
        return {k: v for k, v in out.items() if k in self.fields["request"] or k == "eos_token_id"}

    def features(self, number):
        out = []
        for i in range(self.r.randint(0, 3)):
            # Of all kinds; items only, and of at most 64 KiB each.
            data = next(v for j in range(1000) if (v := objects.value("%s/%d/%d" % (self.seed, number, i), j, 64 << 10,
                **self.options))["type"] == "item")
            n = self.r.choice([1, 4, 300])
            out.append({"data": self.maybe(lambda data=data: data, 0.8), "modality": "image",
                        "identifier": self.text(70), "offset": self.r.randint(0, 70000),
                        "length": n, "is_embed": self.maybe(lambda n=n: {"$tensor": {"dtype": "bool", "shape": [n],
                            "hex": "01" * n}}, 0.4),
                        "mm_hash": self.maybe(lambda: self.text(70))})
        return out

    def lora(self):
        out = {"lora_name": self.text(), "lora_int_id": self.r.randint(1, 70000), "lora_path": self.text() + "/p",
               "base_model_name": self.maybe(self.text),
               "load_inplace": self.r.random() < 0.5, "is_3d_lora_weight": self.r.random() < 0.5}
        return {k: v for k, v in out.items() if k in self.fields["lora"]}

    def hints(self):
        return {"protocol_version": "1", "message_id": self.text(), "actions": [
            {"action_id": self.text(), "action_type": "t", "action_version": "2", "payload": self.map()}
            for _ in range(self.r.randint(0, 2))]}

    def pooling(self):
        out = {"task": self.r.choice(self.fields["pooling_tasks"]),
               "dimensions": self.maybe(lambda: self.r.randint(1, 5000)),
               "requires_token_ids": self.r.random() < 0.5, "returned_token_ids": self.maybe(self.tokens),
               "step_tag_id": self.maybe(lambda: 7),
               "use_activation": self.maybe(lambda: True), "normalize": self.maybe(lambda: False),
               "extra_kwargs": self.maybe(self.map),
               "skip_reading_prefix_cache": self.maybe(lambda: True)}
        return {k: v for k, v in out.items() if k in self.fields["pooling"] and v is not None}

    def value(self, name):
        """A value that the parameter can have."""
        r = self.r
        draws = {
            "n": lambda: 1, "presence_penalty": lambda: r.choice([-2, 0, 1.5, 2.0]),
            "frequency_penalty": lambda: r.uniform(-2, 2),
            "repetition_penalty": lambda: r.choice([0.1, 1, 3.5]),
            "temperature": lambda: r.choice([0, 0.0, 1e-6, 0.005, 0.7, 1, 2]),
            "watermarking": lambda: r.random() < 0.5, "top_p": lambda: r.choice([1, 0.5, 1e-9]),
            "top_k": lambda: r.choice([-1, 0, 1, 50, 2**31 - 1]),
            "min_p": lambda: r.choice([0, 0.3, 1]), "seed": self.int,
            "stop": lambda: r.choice(["x", ["x"], ["\u00e9" * 40, "b"], []]),
            "stop_token_ids": lambda: self.tokens() * r.choice([1, 2]), "ignore_eos": lambda: r.random() < 0.5,
            "max_tokens": lambda: r.choice([1, 16, 70000]),
            "logprobs": lambda: r.choice([-1, 0, 1, 20]), "prompt_logprobs": lambda: r.choice([-1, 0, 5]),
            "prompt_logprob_start": lambda: r.randint(0, 9),
            "flat_logprobs": lambda: r.random() < 0.5, "detokenize": lambda: True,
            "skip_special_tokens": lambda: r.random() < 0.5,
            "spaces_between_special_tokens": lambda: r.random() < 0.5,
            "include_stop_str_in_output": lambda: r.random() < 0.5,
            "output_kind": lambda: r.choice([0, 1, 2]), "stream_interval": lambda: r.randint(1, 9),
            "skip_clone": lambda: r.random() < 0.5,
            "_all_stop_token_ids": self.tokens, "logit_bias": lambda: {"$map": [[t, self.float()]
                for t in {*self.tokens()}]},
            "allowed_token_ids": lambda: self.tokens(1), "extra_args": self.map, "bad_words": lambda: ["a", "b", "a"],
            "_bad_words_token_ids": lambda: [self.tokens(1)],
            "skip_reading_prefix_cache": lambda: r.random() < 0.5,
            "thinking_token_budget": lambda: r.choice([-1, 0, 70000]),
            "routed_experts_prompt_start": lambda: r.randint(0, 9), "trace_decode_token_ids": lambda: self.tokens(1),
            "truncate_prompt_tokens": lambda: r.choice([-1, 1, 500]),
            "repetition_detection": lambda: {"max_pattern_size": 4, "min_pattern_size": r.randint(0, 4),
                                             "min_count": r.randint(2, 5)},
            "structured_outputs": lambda: {**r.choice([{"json": self.map()}, {"json": "{}"}, {"regex": "a+"},
                                                       {"choice": ["a", "b"]}, {"grammar": "g"}, {"json_object": True},
                                                       {"structural_tag": "t"}]),
                                           "_backend": r.choice(["xgrammar", "guidance", "outlines",
                                               "lm-format-enforcer"]), "_backend_was_auto": r.random() < 0.5,
                                           "disable_any_whitespace": r.random() < 0.5,
                                           "whitespace_pattern": self.maybe(lambda: " ")},
            "prompt_logprob_token_ids": lambda: self.array([2, 3]) if self.arrays() else self.tokens(),
        }
        return draws[name]() if name in draws else None

    def arrays(self):
        # 0.32.0 made an array of it, together with this field.
        return "_watermarking_skipped" in self.fields["sampling"]

    def sampling(self, p=0.2, clash=False):
        names = [n for n in self.fields["sampling"] if self.r.random() < p]
        if "trace_decode_token_ids" in names and not clash:
            names = [n for n in names if n not in ("prompt_logprobs", "prompt_logprob_token_ids", "structured_outputs",
                                                   "repetition_detection",
                                                   "thinking_token_budget", "bad_words")]
        return {n: v for n in names if (v := self.value(n)) is not None}

    # -- parameters, also wrong ones -------------------------------------------------------------------------------

    def params(self, everywhere):
        """Valid ones, of which a few are spoiled more often than not. everywhere: the names of all releases."""
        r, out = self.r, self.sampling(self.r.choice([0.05, 0.2, 0.5]), self.r.random() < 0.3)
        for _ in range(r.choice([0, 0, 1, 1, 1, 2, 3])):
            name = r.choice(everywhere) if r.random() < 0.9 else self.text() + "x"
            v = r.choice([
                lambda: self.plain(), lambda name=name: self.value(name), self.int, self.float,
                lambda: r.choice([-3, -2, -1, 0, 1, 2, 3]), self.tokens,
                lambda: {"$float": r.choice(["nan", "inf", "-inf"])}, lambda: r.choice([True, False]), lambda: None,
                lambda: [self.text()], lambda: [self.tokens()],
                lambda: r.choice([-0.1, 1.1, 2.1, -2.1, 3]), lambda: {"json": "{}"},
                lambda: {"max_pattern_size": r.randint(-1, 3), "min_count": r.randint(-1, 3)},
                lambda: {"regex": "a", "_backend": r.choice(["xgrammar", "x", None]), self.text() + "k": 1},
                lambda: {"$map": [[self.int(), self.plain(0)]]},
                lambda: self.array([1, 2], r.choice(["<i4", "<f4", ">i4", "<u4"])), lambda: "",
            ])()
            out[name] = v
        return out

    # -- outputs --------------------------------------------------------------------------------------------------

    def output(self):
        n = self.r.randint(1, 3)
        if "num_nans_in_logits" in self.fields["output"]:
            logprobs = [self.array([n, 2]), self.array([n, 2], "<f4"), self.array([n]), self.maybe(lambda: [0, n])]
        else:  # lists in 0.11.0
            logprobs = [[[1, 2]] * n, [[0.5, -1.5]] * n, [3] * n]
        i32 = lambda dtype, shape: self.dense("$tensor", dtype, 4, shape)
        out = {
            "request_id": self.text(40), "new_token_ids": self.tokens(),
            "new_logprobs": self.maybe(lambda: logprobs, 0.3),
            "new_prompt_logprobs_tensors": self.maybe(lambda: [i32("int32", [70, 2]), i32("float32", [70, 2]),
                                                               i32("int32", [70])], 0.3),
            "pooling_output": self.maybe(self.tensor, 0.2), "finish_reason": self.maybe(lambda: self.r.randint(0, 2)),
            "stop_reason": self.r.choice([None, self.text(), 5, -1]),
            "events": self.maybe(lambda: [{"type": self.r.randint(1, 3), "timestamp": self.float()}], 0.3),
            "kv_transfer_params": self.maybe(self.map, 0.3), "ec_transfer_params": self.maybe(self.map, 0.3),
            "trace_headers": self.maybe(lambda: {"a": self.text()}, 0.2), "num_cached_tokens": self.r.randint(0, 300),
            "num_external_computed_tokens": self.r.randint(0, 300), "num_nans_in_logits": self.r.randint(0, 300),
            "prefill_stats": self.maybe(lambda: {"num_prompt_tokens": self.r.randint(0, 300), "num_cached_tokens": 3},
                                        0.3),
            "routed_experts": self.maybe(lambda: self.array([30, 3]), 0.2),
            "mm_cache_miss_hashes": self.maybe(lambda: [self.text(), self.text()], 0.2),
            "new_sampling_mask": self.maybe(lambda: [self.array([5]), self.array([3]), None], 0.2),
            "prompt_token_id_logprobs": self.maybe(lambda: i32("float32", [2, 3]), 0.2),
            "error": self.maybe(lambda: {"code": self.text(), "message": self.text(),
                                         "retryable": self.r.random() < 0.5}, 0.2),
        }
        return {k: v for k, v in out.items() if k in self.fields["output"]}

    def outputs(self):
        out = {
            "engine_index": self.r.choice([0, 300]),
            "outputs": [self.output() for _ in range(self.r.choice([0, 1, 1, 3]))], "timestamp": self.r.uniform(1, 1e6),
            "utility_output": self.maybe(self.utility, 0.3),
            "finished_requests": self.maybe(lambda: [self.text()], 0.3),
            "wave_complete": self.maybe(lambda: 3, 0.2), "start_wave": self.maybe(lambda: 70000, 0.2),
            "weight_version": self.maybe(self.text),
        }
        return {k: v for k, v in out.items() if k in self.fields["outputs"]}

    def utility(self):
        failed = self.maybe(self.text, 0.3)
        return {"call_id": self.r.choice([0, 2**64 - 1, self.r.getrandbits(64)]), "failure_message": failed,
                "result": None if failed is not None else self.plain()}


def ran(release, jobs, folder):
    """The results of the release's process for these jobs."""
    path = "-" if release == _own() else os.path.join(sys.prefix, "releases", release)
    names = [str(folder / n) for n in ("inputs.json", "outputs.json")]
    (folder / "inputs.json").write_text(json.dumps(jobs))
    subprocess.run([sys.executable, str(HERE / "requests_peer.py"), path, *names], check=True, cwd=HERE, timeout=900)
    got = json.loads((folder / "outputs.json").read_text())
    assert got["version"].split("+")[0] == release
    return got["results"]


def normal(v):
    """A value in one form from either side: arrays by their hash, fields of items with all that they have."""
    if isinstance(v, list):
        return [normal(x) for x in v]
    if not isinstance(v, dict):
        return v
    if "dtype" in v and ("hex" in v or "sha256" in v):
        digest = v.get("sha256") or hashlib.sha256(bytes.fromhex(v["hex"])).hexdigest()
        return {"dtype": v["dtype"], "shape": v["shape"], "sha256": digest}
    if v.keys() == {"name", "data", "field"}:
        return {"name": v["name"], "data": normal(v["data"]), "field": objects.canonical_field(v["field"])}
    return {k: normal(x) for k, x in v.items() if not (k == "modality" and "type" in v)}


def check(want, got, at):
    want, got = normal(want), normal(got)
    # By their texts: 1 is not 1.0 and not True.
    a, b = (json.dumps(x, sort_keys=True) for x in (want, got))
    assert a == b, "%s: want %.3000s\ngot %.3000s" % (at, a, b)


def check_request(built, got, fields, at):
    """The agent's view of a request that vLLM encoded, against vLLM's own."""
    for name, v in got.items():
        if name not in fields["request"] and name != "eos_token_id":
            assert not v, "%s: %s of a release that has none: %s" % (at, name, v)
    for name in fields["request"]:
        want, have = built[name], got[name]
        if name == "sampling_params" and want is not None:
            want, have = dict(want), dict(have)
            if "eos_token_id" not in fields["request"]:
                check(want.pop("_eos_token_id"), got["eos_token_id"], at + " eos_token_id")
            if "_all_stop_token_ids" in have:
                have["_all_stop_token_ids"] = sorted(have["_all_stop_token_ids"])
            for k in want:
                check(want[k], have.get(k, fields["defaults"][k]), "%s %s" % (at, k))
            assert have.keys() <= want.keys()
            continue
        if name == "pooling_params" and want is not None:
            want = {k: v for k, v in want.items() if v is not None}
        if name == "lora_request" and want is not None:
            want, have = ({k: v for k, v in x.items() if k in fields["lora"] and x.get(k) is not None}
                          for x in (want, have))
        check(want, have, "%s %s" % (at, name))


@pytest.mark.parametrize("release", [_own(), *_older()])
def test_requests(release, agents, tmp_path, capsys):
    agent = agents[0]
    table = agent.call("request.fields", generation=release)
    (fields,) = ran(release, [{"kind": "fields"}], tmp_path)
    for name in ("request", "output", "outputs", "ready", "sampling", "pooling", "lora", "pooling_tasks"):
        assert table[name] == fields[name], name

    draw, jobs = Draw("requests", fields, fields["options"]), []
    for i in range(max(60, int(REQUESTS * SCALE))):
        request = draw.request(i)
        frames = agent.call("request.encode", request=request, generation=release)["frames"]
        jobs.append({"kind": "request", "request": request, "frames": frames})
    for _ in range(max(60, int(OUTPUTS * SCALE))):
        outputs = draw.outputs()
        frames = agent.call("outputs.encode", outputs=outputs, generation=release)["frames"]
        jobs.append({"kind": "outputs", "outputs": outputs, "frames": frames, "scheduler": draw.r.random() < 0.3})

    count = collections.Counter()
    for i, (job, r) in enumerate(zip(jobs, ran(release, jobs, tmp_path))):
        at = "%s %d" % (job["kind"], i)
        assert "error" not in r, "%s: %s\n%.3000s" % (at, r.get("error"), json.dumps(job))
        check(r["built"], r["decoded"], at + " from the agent")
        got = agent.call(job["kind"] + ".decode", frames=r["frames"], generation=release)[job["kind"]]
        if job["kind"] == "request":
            check_request(r["built"], got, fields, at + " from vLLM")
            count["features"] += len(job["request"]["mm_features"] or [])
        else:
            check_outputs(r, got, fields, at + " from vLLM")
            count["outputs of one request"] += len(job["outputs"]["outputs"])
        count[job["kind"]] += 1
    with capsys.disabled():
        print("\nrequests %s: %d requests with %d features and %d output messages with %d outputs, equal in both directions" % (
            release, count["request"], count["features"], count["outputs"], count["outputs of one request"]))


def check_outputs(r, got, fields, at):
    assert "unread" not in got, at
    built = r["built"]
    for name in fields["outputs"]:
        want, have = built[name], got[name]
        if name == "scheduler_stats":
            want = r["scheduler"]
        if name == "utility_output" and want is not None:
            assert have.pop("result_type") is None and "failed" not in have
        if name == "outputs":
            assert len(want) == len(have)
            for w, h in zip(want, have):
                assert "failed" not in h and "unread" not in h, at
                for k, v in h.items():
                    if k in fields["output"]:
                        check(w[k], v, "%s %s" % (at, k))
                    else:
                        assert not v, "%s: %s of a release that has none" % (at, k)
            continue
        check(want, have, "%s %s" % (at, name))


@pytest.mark.parametrize("release", [_own(), *_older()])
def test_parameters(release, agents, tmp_path, capsys):
    """No engine may die of what passes; the counts tell what the caution costs."""
    agent = agents[0]
    fields = agent.call("request.fields", generation=release)
    everywhere = sorted({n for v in [_own(), *_older()]
                         for n in agent.call("request.fields", generation=v)["sampling"]})
    draw = Draw("parameters", fields, {})
    jobs, reasons = [], []
    for _ in range(max(200, int(PARAMS * SCALE))):
        params = draw.params(everywhere)
        try:
            frames, reason = agent.call("request.encode",
                                        request={"request_id": "r", "prompt_token_ids": [1], "sampling_params": params},
                                        generation=release)["frames"], None
        except AgentError as e:
            assert e.kind == "invalid" and 'parameter "' in e.text, e
            frames, reason = None, e.text
        jobs.append({"kind": "params", "params": params, "frames": frames})
        reasons.append(reason)
    count, harmless = collections.Counter(), collections.Counter()
    for job, reason, r in zip(jobs, reasons, ran(release, jobs, tmp_path)):
        fine = "error" not in r
        if reason is None:
            assert fine, "passed, and vLLM raises %s\n%s" % (r["error"], json.dumps(job["params"]))
        elif fine:
            harmless["an unknown name" if "has none of that name" in reason else "a value"] += 1
        count[reason is None, fine] += 1
    assert count[True, True] >= len(jobs) // 5 and count[False, False] >= len(jobs) // 10, count
    with capsys.disabled():
        print("\nparameters %s: %d passed, all of them taken by vLLM; %d refused, of which vLLM raises for %d and takes %d (%s)" % (
            release, count[True, True], count[False, False] + count[False, True], count[False, False],
            count[False, True],
            ", ".join("%d for %s" % (n, k) for k, n in sorted(harmless.items()))))

"""The oracle of packages blend and blend/transformer, in numpy and float64, written apart from them:

    python blend/testdata/oracle.py

It draws the weights of small models and writes them, with what it computed, to golden-*.safetensors. The files are not
made again when the code changes.
"""

import json
import math
import pathlib

import numpy as np

HERE = pathlib.Path(__file__).parent
BASE = dict(vocab_size=64, hidden_size=32, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
            head_dim=8, intermediate_size=40, rms_norm_eps=1e-5, max_position_embeddings=8192)
MODELS = {
    "llama3": BASE | dict(rope_theta=500000.0, tie_word_embeddings=False, rope_scaling=dict(
        rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
        original_max_position_embeddings=64)),
    "yarn": BASE | dict(rope_theta=10000.0, tie_word_embeddings=True, partial_rotary_factor=0.75, rope_scaling=dict(
        rope_type="yarn", factor=4.0, original_max_position_embeddings=64)),
}
CHUNKS, CHUNK, PREFIX, GAP, QUERY = 3, 20, 12, 5, 6


def frequencies(c):
    rotary = int(c["head_dim"] * c.get("partial_rotary_factor", 1))
    f = c["rope_theta"] ** (-np.arange(0, rotary, 2) / rotary)
    s = c["rope_scaling"]
    if s["rope_type"] == "llama3":
        low, high, original = s["low_freq_factor"], s["high_freq_factor"], s["original_max_position_embeddings"]
        out = []
        for x in f:
            length = 2 * math.pi / x
            if length < original / high:
                out.append(x)
            elif length > original / low:
                out.append(x / s["factor"])
            else:
                smooth = (original / length - low) / (high - low)
                out.append((1 - smooth) * x / s["factor"] + smooth * x)
        return np.array(out), 1.0
    at = lambda turns: (rotary * math.log(s["original_max_position_embeddings"] / (turns * 2 * math.pi))
                        / (2 * math.log(c["rope_theta"])))
    low, high = max(math.floor(at(32)), 0), min(math.ceil(at(1)), rotary - 1)
    ramp = np.clip((np.arange(rotary // 2) - low) / ((high - low) or 0.001), 0, 1)
    return f / s["factor"] * ramp + f * (1 - ramp), 0.1 * math.log(s["factor"]) + 1


def rotate(x, angles, factor):
    """x has rows, heads and elements, angles rows and pairs."""
    half = angles.shape[1]
    cos, sin = np.cos(angles)[:, None] * factor, np.sin(angles)[:, None] * factor
    a, b = x[..., :half], x[..., half:2 * half]
    return np.concatenate((a * cos - b * sin, b * cos + a * sin, x[..., 2 * half:]), -1)


class Model:
    def __init__(self, config, rng):
        self.c = c = config
        d, q, k, m = (c["hidden_size"], c["num_attention_heads"] * c["head_dim"],
                      c["num_key_value_heads"] * c["head_dim"], c["intermediate_size"])
        self.w = {"model.embed_tokens.weight": (c["vocab_size"], d), "model.norm.weight": (d,)}
        if not c["tie_word_embeddings"]:
            self.w["lm_head.weight"] = (c["vocab_size"], d)
        for i in range(c["num_hidden_layers"]):
            for name, shape in {"input_layernorm": (d,), "post_attention_layernorm": (d,),
                                "self_attn.q_proj": (q, d), "self_attn.k_proj": (k, d), "self_attn.v_proj": (k, d),
                                "self_attn.o_proj": (d, q), "mlp.gate_proj": (m, d), "mlp.up_proj": (m, d),
                                "mlp.down_proj": (d, m)}.items():
                self.w[f"model.layers.{i}.{name}.weight"] = shape
        for name, shape in self.w.items():
            x = (1 + 0.1 * rng.standard_normal(shape) if len(shape) == 1
                 else rng.standard_normal(shape) * 1.5 / math.sqrt(shape[1]))
            self.w[name] = x.astype(np.float32)
        self.frequencies, self.factor = frequencies(c)

    def weight(self, layer, name):
        return self.w[f"model.layers.{layer}.{name}.weight"].astype(np.float64)

    def normalize(self, x, weight):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + self.c["rms_norm_eps"]) * weight

    def run(self, tokens, start=0, old=None, check=None, choose=None, keep_fresh=False):
        """Returns keys and values of all layers, the logits of the rows that are left, these rows, and the
        deviations."""
        c, n = self.c, len(tokens)
        size, heads, kv_heads = c["head_dim"], c["num_attention_heads"], c["num_key_value_heads"]
        rows, deviations = np.arange(n), None
        x = self.w["model.embed_tokens.weight"].astype(np.float64)[tokens]
        keys, values = (([np.array(a) for a in part] for part in old) if old
                        else ([None] * c["num_hidden_layers"] for _ in range(2)))
        for i in range(c["num_hidden_layers"]):
            y = self.normalize(x, self.weight(i, "input_layernorm"))
            q, k, v = (y @ self.weight(i, f"self_attn.{p}_proj").T for p in "qkv")
            angles = (start + rows)[:, None] * self.frequencies
            q = rotate(q.reshape(len(rows), heads, size), angles, self.factor)
            k, v = (rotate(k.reshape(len(rows), kv_heads, size), angles, self.factor),
                    v.reshape(len(rows), kv_heads, size))
            if old is None:
                keys[i], values[i] = k, v
            else:
                keep = np.arange(len(rows))
                if i == check:
                    deviations = ((k - keys[i][rows]) ** 2).sum((1, 2)), ((v - values[i][rows]) ** 2).sum((1, 2))
                    keep = np.searchsorted(rows, choose(deviations))
                write = np.arange(len(rows)) if keep_fresh else keep
                keys[i][rows[write]], values[i][rows[write]] = k[write], v[write]
                rows, q, x = rows[keep], q[keep], x[keep]
            group = heads // kv_heads
            scores = np.einsum("rhd,nhd->hrn", q, keys[i].repeat(group, 1)) / math.sqrt(size)
            scores = np.where(np.arange(n)[None, None] <= rows[None, :, None], scores, -np.inf)
            scores = np.exp(scores - scores.max(-1, keepdims=True))
            scores /= scores.sum(-1, keepdims=True)
            o = np.einsum("hrn,nhd->rhd", scores, values[i].repeat(group, 1)).reshape(len(rows), -1)
            x = x + o @ self.weight(i, "self_attn.o_proj").T
            y = self.normalize(x, self.weight(i, "post_attention_layernorm"))
            gate = y @ self.weight(i, "mlp.gate_proj").T
            x = x + ((gate / (1 + np.exp(-gate)) * (y @ self.weight(i, "mlp.up_proj").T))
                     @ self.weight(i, "mlp.down_proj").T)
        head = self.w.get("lm_head.weight", self.w["model.embed_tokens.weight"]).astype(np.float64)
        return keys, values, self.normalize(x, self.w["model.norm.weight"]) @ head.T, rows, deviations


def choose(n, ratio, always, measure):
    def by(deviations):
        d = deviations[measure].copy()
        d[always] = np.inf
        count = max(int(n * ratio), len(always))
        return np.sort(np.argsort(-d, kind="stable")[:count])
    return by


def write(path, tensors, metadata):
    header, data = {"__metadata__": metadata}, b""
    for name, t in sorted(tensors.items()):
        raw = t.tobytes()
        header[name] = {"dtype": {"float32": "F32", "int64": "I64"}[str(t.dtype)], "shape": list(t.shape),
                        "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def golden(name, config, rng):
    model = Model(config, rng)
    n = PREFIX + CHUNKS * CHUNK + GAP + QUERY
    tokens = rng.integers(config["vocab_size"], size=n)
    starts = [0, PREFIX, PREFIX + CHUNK, PREFIX + 2 * CHUNK + GAP]
    lengths = [PREFIX] + [CHUNK] * CHUNKS
    always = np.concatenate((np.arange(starts[2] + CHUNK, starts[3]), np.arange(n - QUERY, n)))
    keys, values, logits, _, _ = model.run(tokens)
    kv = lambda k, v: np.stack((np.stack(k), np.stack(v))).reshape(
        2, config["num_hidden_layers"], -1, config["num_key_value_heads"] * config["head_dim"])
    out = {"full": kv(keys, values), "full.logits": logits[-1:]}
    old = [[np.zeros_like(a) for a in part] for part in (keys, values)]
    for start, length in zip(starts, lengths):
        k, v, _, _, _ = model.run(tokens[start:start + length])
        for i, (a, b) in enumerate(zip(k, v)):
            old[0][i][start:start + length] = rotate(a, np.full((length, 1), start) * model.frequencies, 1.0)
            old[1][i][start:start + length] = b
    out["old"] = kv(*old)
    cases = []
    for measure in (0, 1):
        for ratio in (0.15, 0.3, 0.6, 1.0):
            for fresh in (False, True):
                k, v, logits, rows, deviations = model.run(
                    tokens, old=old, check=1, choose=choose(n, ratio, always, measure), keep_fresh=fresh)
                case = f"case{len(cases)}"
                cases.append(dict(measure=measure, ratio=ratio, keep_fresh=fresh))
                out[f"{case}.rows"], out[f"{case}.logits"] = rows.astype(np.int64), logits[-1:]
                if measure == 0 and ratio == 0.3 and not fresh:
                    out[f"{case}.kv"] = kv(k, v)
    out["deviations"] = np.stack(deviations)
    tensors = {k: v if v.dtype == np.int64 else v.astype(np.float32) for k, v in out.items()}
    tensors["tokens"] = tokens.astype(np.int64)
    metadata = dict(config=json.dumps(config), cases=json.dumps(cases), starts=json.dumps(starts),
                    lengths=json.dumps(lengths), query=str(QUERY), made_by=f"oracle.py with numpy {np.__version__}")
    write(HERE / f"golden-{name}.safetensors", model.w | tensors, metadata)


def main():
    for i, (name, config) in enumerate(MODELS.items()):
        golden(name, config, np.random.default_rng(20261127 + i))


if __name__ == "__main__":
    main()

"""Trains the tiny language models of retrieval-*.safetensors on a synthetic task, with torch:

    python blend/testdata/retrieval_train.py late
    python blend/testdata/retrieval_train.py early

A prompt has documents of one subject each, with facts about it. The subject of about half of them is only a pronoun:
it stands for the subject of the last document in front that has one by name. A question names subject and attribute:

    DOC subject attribute value filler attribute value filler attribute value filler   DOC same ...
    ASK subject attribute -> value

So the KV of a document with a pronoun depends on the documents in front of it. Auxiliary losses, of which nothing is
left in the weights, ask layers for the token in front and for the subject of a document, and a head where the answer
stands: without them so small a model needs far more steps. They also decide where the subject is known: "late" has it
at the pronoun behind layer 1 and at the values behind layer 2, "early" at the values behind layer 0, where a check at
layer 1 can see it. The test in Go makes prompts by the same rules.
"""

import json
import math
import pathlib
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F

HERE = pathlib.Path(__file__).parent
SEED = 1
DOC, SAME, ASK = 1, 2, 3
SUBJECTS, ATTRIBUTES, VALUES, FILLERS = (8, 32), (40, 16), (56, 64), (120, 8)  # first token, number
DOCUMENTS, FACTS, QUESTIONS = 8, 3, 8
MODEL = dict(vocab_size=128, hidden_size=64, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2,
             head_dim=16, intermediate_size=128, rms_norm_eps=1e-5, rope_theta=10000.0, tie_word_embeddings=True)
LATE = sys.argv[1:] != ["early"]
NAME = "retrieval-late" if LATE else "retrieval-early"
FRONT, SUBJECT, OWNED = (0, 1, 2) if LATE else (0, 0, 0)  # the layers that the auxiliary losses ask
if not LATE:
    MODEL |= dict(num_hidden_layers=3, intermediate_size=64)
STEPS, BATCH, RATE, HELP = 3000, 32, 3e-3, 0.5


def prompt(rng, documents, questions):
    tokens, owners, facts, named, run = [], [], {}, None, 0
    subjects = list(rng.permutation(SUBJECTS[1]) + SUBJECTS[0])
    for i in range(documents):
        pronoun = named is not None and run < 2 and rng.random() < 0.6
        run = run + 1 if pronoun else 0
        if not pronoun:
            named = int(subjects.pop())
            left = list(rng.permutation(ATTRIBUTES[1]) + ATTRIBUTES[0])
        tokens += [DOC, SAME if pronoun else named]
        for _ in range(FACTS):
            attribute, value = int(left.pop()), int(rng.integers(VALUES[1])) + VALUES[0]
            facts[named, attribute] = value, len(tokens) + 1
            tokens += [attribute, value, int(rng.integers(FILLERS[1])) + FILLERS[0]]
        owners += [-100] + [named] * (len(tokens) - len(owners) - 1)
    asked = list(facts.items())
    answers, sources = [], []
    for i in rng.permutation(len(asked))[:questions]:
        (subject, attribute), (value, source) = asked[i]
        answers.append(len(tokens) + 2)
        sources.append(source)
        tokens += [ASK, subject, attribute, value]
    return tokens, answers, sources, owners + [-100] * (len(tokens) - len(owners))


def batch(rng, documents, size):
    rows = [prompt(rng, documents, min(QUESTIONS, documents * FACTS)) for _ in range(size)]
    return [torch.tensor(column) for column in zip(*rows)]


def rope(x, cos, sin):
    half = x.shape[-1] // 2
    a, b = x[..., :half], x[..., half:]
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        m = MODEL
        d, h, k, s = m["hidden_size"], m["num_attention_heads"], m["num_key_value_heads"], m["head_dim"]
        linear = lambda a, b: torch.nn.Linear(a, b, bias=False)
        self.self_attn = torch.nn.ModuleDict(dict(
            q_proj=linear(d, h * s), k_proj=linear(d, k * s), v_proj=linear(d, k * s), o_proj=linear(h * s, d)))
        self.mlp = torch.nn.ModuleDict(dict(
            gate_proj=linear(d, m["intermediate_size"]), up_proj=linear(d, m["intermediate_size"]),
            down_proj=linear(m["intermediate_size"], d)))
        self.input_layernorm = torch.nn.RMSNorm(d, eps=m["rms_norm_eps"])
        self.post_attention_layernorm = torch.nn.RMSNorm(d, eps=m["rms_norm_eps"])

    def forward(self, x, cos, sin):
        m, (b, n, _) = MODEL, x.shape
        y = self.input_layernorm(x)
        heads = lambda w: w(y).view(b, n, -1, m["head_dim"]).transpose(1, 2)
        a = self.self_attn
        q, k, v = rope(heads(a["q_proj"]), cos, sin), rope(heads(a["k_proj"]), cos, sin), heads(a["v_proj"])
        group = m["num_attention_heads"] // m["num_key_value_heads"]
        self.matches = q[:, 0] @ k[:, 0].transpose(1, 2) / math.sqrt(m["head_dim"])
        o = F.scaled_dot_product_attention(
            q, k.repeat_interleave(group, 1), v.repeat_interleave(group, 1), is_causal=True)
        x = x + a["o_proj"](o.transpose(1, 2).reshape(b, n, -1))
        y = self.post_attention_layernorm(x)
        return x + self.mlp["down_proj"](F.silu(self.mlp["gate_proj"](y)) * self.mlp["up_proj"](y))


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed_tokens = torch.nn.Embedding(MODEL["vocab_size"], MODEL["hidden_size"])
        torch.nn.init.normal_(self.embed_tokens.weight, std=0.1)
        self.layers = torch.nn.ModuleList(Layer() for _ in range(MODEL["num_hidden_layers"]))
        self.norm = torch.nn.RMSNorm(MODEL["hidden_size"], eps=MODEL["rms_norm_eps"])

    def forward(self, tokens):
        half = MODEL["head_dim"] // 2
        angle = torch.arange(tokens.shape[1])[:, None] * MODEL["rope_theta"] ** (-torch.arange(half) / half)
        cos, sin = angle.cos(), angle.sin()
        x, states = self.embed_tokens(tokens), []
        for layer in self.layers:
            x = layer(x, cos, sin)
            states.append(x)
        return self.norm(x) @ self.embed_tokens.weight.T, states


def loss_of(model, helpers, tokens, answers, sources, owners):
    logits, states = model(tokens)
    rows = torch.arange(len(tokens))[:, None]
    at, want = logits[rows, answers], tokens[rows, answers + 1]
    right = (at.argmax(-1) == want).float().mean().item()
    # The values of the documents are random, so only answers are learnt from.
    loss = F.cross_entropy(at.reshape(-1, at.shape[-1]), want.reshape(-1))
    front = F.cross_entropy(helpers[0](states[FRONT][:, 1:]).flatten(0, 1), tokens[:, :-1].flatten())
    subject = torch.where((torch.arange(tokens.shape[1]) % (2 + 3 * FACTS) == 1)[None], owners, -100)
    subjects = F.cross_entropy(helpers[1](states[SUBJECT]).flatten(0, 1), subject.flatten())
    owned = F.cross_entropy(helpers[2](states[OWNED]).flatten(0, 1), owners.flatten())
    matches = model.layers[-1].matches[rows, answers]
    matches = matches.masked_fill(torch.arange(tokens.shape[1]) > answers[..., None], -math.inf)
    found = F.cross_entropy(matches.flatten(0, 1), sources.flatten())
    return (loss + HELP * (front + subjects + owned + found), loss.item(), right,
            (front.item(), subjects.item(), owned.item(), found.item()))


def save(model):
    tensors = {("model." + k): v.detach().to(torch.float16).contiguous() for k, v in model.state_dict().items()}
    header, data = {}, b""
    for name, t in sorted(tensors.items()):
        raw = t.numpy().tobytes()
        header[name] = {"dtype": "F16", "shape": list(t.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    (HERE / f"{NAME}.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + data)
    (HERE / f"{NAME}.json").write_text(json.dumps(MODEL, indent=1) + "\n")


def main():
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    rng = np.random.default_rng(SEED)
    model = Model()
    helpers = torch.nn.ModuleList(torch.nn.Linear(MODEL["hidden_size"], MODEL["vocab_size"]) for _ in range(3))
    optimizer = torch.optim.AdamW(
        [*model.parameters(), *helpers.parameters()], lr=RATE, betas=(0.9, 0.98), weight_decay=0.01)
    start, ema, documents = time.time(), 0.0, 2
    for step in range(STEPS):
        for g in optimizer.param_groups:
            g["lr"] = RATE * min(1, step / 100) * 0.5 * (1 + math.cos(math.pi * step / STEPS))
        # Prompts grow when short ones are answered. A quarter are of other lengths, so that all positions are learnt.
        size = documents if step % 4 else int(rng.integers(2, DOCUMENTS + 1))
        loss, answer, right, helped = loss_of(model, helpers, *batch(rng, size, BATCH))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        ema = 0.97 * ema + 0.03 * right if step % 4 else ema
        if ema > 0.8 and documents < DOCUMENTS:
            documents, ema = documents * 2, 0.0
        if step % 50 == 0:
            print(f"step {step} documents {documents} loss {answer:.3f} help {helped[0]:.3f} {helped[1]:.3f} "
                  f"{helped[2]:.3f} {helped[3]:.3f} right {ema:.3f} {time.time() - start:.0f} s", flush=True)
        if step % 500 == 499:
            save(model)
            if documents == DOCUMENTS and ema > 0.99:
                break
    model.half().float()
    with torch.no_grad():
        print("right with 16-bit weights:",
              np.mean([loss_of(model, helpers, *batch(rng, DOCUMENTS, 64))[2] for _ in range(8)]))


if __name__ == "__main__":
    main()

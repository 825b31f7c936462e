"""Writes tiny multimodal models with random weights, enough for a real vLLM engine on a CPU.

    make_model.py FOLDER [llava] [qwen2vl]      # FOLDER/llava, FOLDER/qwen2vl
    make_model.py FOLDER llava_large            # with a vision tower of 17 million weights, to measure what it costs
    make_model.py FOLDER llava_text             # with 25 million weights behind it, to measure what a prompt costs

Runs in the environment of setup.sh and downloads nothing. The weights are seeded and have a wide spread, so that
greedy tokens depend on the image; vLLM's own dummy weights give the same tokens for every input.
"""

import json
import os
import pathlib
import sys

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (CLIPVisionConfig, LlamaConfig, LlavaConfig, LlavaForConditionalGeneration,
                          PreTrainedTokenizerFast, Qwen2VLConfig, Qwen2VLForConditionalGeneration)

SEED = 7
VOCABULARY = 256
SPECIAL = ["<unk>", "<s>", "</s>", "<pad>", "<image>", "<vs>", "<ve>", "<video>"]  # their index is their token
TEXT = {"vocab_size": VOCABULARY, "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5,
        "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 3, "tie_word_embeddings": False}
PIXELS = {"do_resize": True, "do_rescale": True, "rescale_factor": 1 / 255, "do_normalize": True,
          "do_convert_rgb": True, "image_mean": [0.5, 0.5, 0.5], "image_std": [0.25, 0.25, 0.25]}


def tokenizer():
    words = {word: token for token, word in enumerate(SPECIAL)}
    words.update(("t%d" % token, token) for token in range(len(SPECIAL), VOCABULARY))
    made = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    # As special tokens they part without spaces; the processor repeats the placeholder before it makes tokens.
    made.add_special_tokens(SPECIAL)
    return PreTrainedTokenizerFast(
        tokenizer_object=made, unk_token="<unk>", bos_token="<s>", eos_token="</s>", pad_token="<pad>",
        extra_special_tokens={"image_token": "<image>", "video_token": "<video>", "vision_start_token": "<vs>",
                              "vision_end_token": "<ve>"})


def llava(hidden=64, layers=2, size=56, **text):
    """Images of 56x56, 16 image tokens, one float32 tensor [3, 56, 56]."""
    tokens = (size // 14) ** 2
    # vLLM's attention kernel for CPUs wants heads of 32.
    model = LlavaForConditionalGeneration(LlavaConfig(
        text_config=LlamaConfig(**{**TEXT, **text}, head_dim=32),
        vision_config=CLIPVisionConfig(hidden_size=hidden, intermediate_size=2 * hidden, num_hidden_layers=layers,
                                       num_attention_heads=hidden // 32, image_size=size, patch_size=14,
                                       projection_dim=64),
        image_token_index=4, image_seq_length=tokens, vision_feature_layer=-1,
        vision_feature_select_strategy="default", tie_word_embeddings=False))
    image = dict(PIXELS, image_processor_type="CLIPImageProcessor", processor_class="LlavaProcessor", resample=3,
                 size={"shortest_edge": size}, do_center_crop=True, crop_size={"height": size, "width": size})
    processor = {"processor_class": "LlavaProcessor", "image_token": "<image>", "patch_size": 14,
                 "vision_feature_select_strategy": "default", "num_additional_image_tokens": 1}
    return model, {"preprocessor_config.json": image, "processor_config.json": processor}


def qwen2vl():
    """Images of 56x56 to 112x112 pixels in all, 4 to 16 image tokens, patches [n, 1176] and a grid of int64."""
    model = Qwen2VLForConditionalGeneration(Qwen2VLConfig(
        text_config=dict(TEXT, rope_parameters={"rope_type": "default", "rope_theta": 10000.0,
                                                "mrope_section": [4, 6, 6]}),
        vision_config={"depth": 2, "embed_dim": 64, "hidden_size": 128, "num_heads": 2, "mlp_ratio": 2,
                       "patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2, "in_channels": 3},
        image_token_id=4, vision_start_token_id=5, vision_end_token_id=6, video_token_id=7,
        tie_word_embeddings=False))
    image = dict(PIXELS, image_processor_type="Qwen2VLImageProcessor", processor_class="Qwen2VLProcessor",
                 patch_size=14, temporal_patch_size=2, merge_size=2, min_pixels=56 * 56, max_pixels=112 * 112)
    video = {key: value for key, value in image.items() if key != "image_processor_type"}
    video["video_processor_type"] = "Qwen2VLVideoProcessor"
    return model, {"preprocessor_config.json": image, "video_preprocessor_config.json": video,
                   "processor_config.json": {"processor_class": "Qwen2VLProcessor"}}


def llava_large():
    """Images of 224x224, 256 image tokens."""
    return llava(hidden=512, layers=8, size=224)


def llava_text():
    """A language model of 8 layers x 512."""
    return llava(hidden_size=512, intermediate_size=1408, num_hidden_layers=8, num_attention_heads=16, num_key_value_heads=4)


KINDS = {"llava": llava, "qwen2vl": qwen2vl, "llava_large": llava_large, "llava_text": llava_text}
DEFAULT = "llava", "qwen2vl"


def spread(model):
    """Fills the weights. The order of names is fixed, so that a seed gives the same ones everywhere."""
    with torch.no_grad():
        for name, weight in sorted(model.named_parameters()):
            if weight.ndim > 1:
                fan_in = weight.shape[1] if weight.ndim == 2 else weight[0].numel()
                weight.copy_(torch.randn(weight.shape) * (1.0 if "embed" in name else 2.0 / fan_in ** 0.5))
            else:
                weight.fill_(0.0 if name.endswith("bias") else 1.0)


def write(kind, folder):
    torch.manual_seed(SEED)
    folder.mkdir(parents=True)
    model, configs = KINDS[kind]()
    spread(model)
    model.to(torch.float32).save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    for name, content in configs.items():
        (folder / name).write_text(json.dumps(content, indent=1))
    if kind.startswith("llava"):
        # transformers 5 leaves "vision_model." out of CLIP's names, and vLLM's loader wants it.
        prefix, file = "vision_tower.", folder / "model.safetensors"
        weights = {name if name.startswith(prefix + "vision_model.")
                   else name.replace(prefix, prefix + "vision_model."):
                   weight.clone() for name, weight in load_file(file).items()}
        save_file(weights, file, metadata={"format": "pt"})
    print("%s: %d parameters in %s" % (kind, sum(p.numel() for p in model.parameters()), folder), flush=True)


def main():
    if len(sys.argv) < 2 or not set(sys.argv[2:]) <= set(KINDS):
        sys.exit(__doc__)
    for kind in sys.argv[2:] or DEFAULT:
        write(kind, pathlib.Path(sys.argv[1]) / kind)


if __name__ == "__main__":
    main()

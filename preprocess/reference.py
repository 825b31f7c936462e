"""Asks vLLM's own processors what they make of images, for the tests of this folder.

    VENV/bin/python preprocess/reference.py OUT            # tensors, for PREPROCESS_REFERENCE
    VENV/bin/python preprocess/reference.py OUT --testdata # and the files in testdata anew

VENV is an environment with vLLM 0.32.0 (interop/setup.sh makes one). Images are
those of examples/media and testdata/images. OUT gets manifest.json and one raw
file for each tensor; then

    PREPROCESS_REFERENCE=OUT go test -v -run Reference ./preprocess
"""

import argparse
import base64
import hashlib
import io
import json
import os
import random
import shutil
import struct
import zlib
from pathlib import Path

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")

HERE = Path(__file__).resolve().parent
DATA = HERE / "testdata"
MEDIA = HERE.parent / "examples" / "media"

# name, model, engine's dtype, mm_device_do_normalize (None: the engine decides)
RUNS = [
    ("llava-56", "llava-56", "float32", None),
    ("llava-56-bfloat16", "llava-56", "bfloat16", None),
    ("llava-56-float16", "llava-56", "float16", None),
    ("llava-336", "llava-336", "float32", None),
    ("qwen2-vl", "qwen2-vl", "float32", None),
    ("qwen2-vl-normalized", "qwen2-vl", "float32", False),
    ("qwen2-vl-normalized-bfloat16", "qwen2-vl", "bfloat16", False),
    ("qwen2.5-vl", "qwen2.5-vl", "bfloat16", None),
]


def png(width, height, bits, color, lines, *chunks, after=()):
    """A PNG of unfiltered lines; Pillow can't write all kinds."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    out = [b"\x89PNG\r\n\x1a\n", chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, bits, color, 0, 0, 0))]
    out += [chunk(*c) for c in chunks]
    out.append(chunk(b"IDAT", zlib.compress(b"".join(b"\0" + line for line in lines), 9)))
    out += [chunk(*c) for c in after]
    return b"".join(out) + chunk(b"IEND", b"")


def exif(orientation, order="<", kind=3):
    head = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(order + "I", 8)
    value = struct.pack(order + ("HH" if kind == 3 else "I"), *((orientation, 0) if kind == 3 else (orientation,)))
    return head + struct.pack(order + "HHHI", 1, 0x0112, kind, 1) + value + struct.pack(order + "I", 0)


def xmp(orientation):
    return b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:Description tiff:Orientation="%d"/></x:xmpmeta>' % orientation


def refactor(jpeg, factors):
    """Another luma sampling factor with as many blocks: another picture, but a valid one."""
    at = jpeg.index(b"\xff\xc0")
    assert jpeg[at + 10] == 1
    return jpeg[: at + 11] + bytes([factors]) + jpeg[at + 12 :]


def make_images():
    """Awkward images, most of them parts of the photos, by file name."""
    import numpy as np
    from PIL import Image

    photo = {n: Image.open(MEDIA / f"{n}.png").convert("RGB") for n in ("astronaut", "chelsea", "coffee")}
    rng = np.random.default_rng(7)
    out = {}

    def cut(name, w, h, x=140, y=90, by=1):
        return photo[name].crop((x, y, x + by * w, y + by * h)).resize((w, h), Image.Resampling.BOX)

    def save(name, image, **options):
        buffer = io.BytesIO()
        image.save(buffer, "JPEG" if name.endswith(".jpg") else "PNG", **options)
        out[name] = buffer.getvalue()

    for w, h in ((1, 1), (5, 3), (1, 200), (1, 201), (201, 1), (57, 31), (56, 84), (19, 61), (300, 2)):
        save(f"rgb-{w}x{h}.png", cut("coffee", w, h, 20, 120))
    noise = rng.integers(0, 256, (37, 29, 3), dtype=np.uint8)
    save("noise.png", Image.fromarray(noise))
    save("extremes.png", Image.fromarray(np.where(noise > 127, 255, 0).astype(np.uint8)))

    part = cut("chelsea", 32, 24, by=4)
    alpha = Image.fromarray(np.add.outer(np.arange(24) * 5, np.arange(32) * 4).astype(np.uint8))
    rgba = part.copy()
    rgba.putalpha(alpha)
    save("rgba.png", rgba)
    save("la.png", rgba.convert("LA"))
    gray = part.convert("L")
    save("gray.png", gray)
    colors = part.quantize(50)
    save("palette.png", colors)
    save("palette-4bit.png", part.quantize(11))
    save("palette-alpha.png", colors, transparency=bytes(range(0, 250, 5)))
    save("palette-key.png", colors, transparency=7)
    g = np.asarray(gray)
    key = int(g[10, 10])
    lines = [bytes(r) for r in g]
    out["gray-key.png"] = png(32, 24, 8, 0, lines, (b"tRNS", struct.pack(">H", 0x300 + key)))
    for bits in (1, 2, 4):
        values = (g >> (8 - bits)).astype(int)
        packed = [
            bytes(
                sum(int(v) << (8 - bits - bits * i) for i, v in enumerate(r[x : x + 8 // bits]))
                for x in range(0, 32, 8 // bits)
            )
            for r in values
        ]
        out[f"gray-{bits}bit.png"] = png(32, 24, bits, 0, packed)
        out[f"gray-{bits}bit-key.png"] = png(32, 24, bits, 0, packed, (b"tRNS", struct.pack(">H", 1)))
        out[f"gray-{bits}bit-key255.png"] = png(32, 24, bits, 0, packed, (b"tRNS", struct.pack(">H", 255)))
    wide = [struct.pack(">32H", *(int(v) * 2 + i for i, v in enumerate(r))) for r in g]
    out["gray-16bit.png"] = png(32, 24, 16, 0, wide)
    out["gray-16bit-key.png"] = png(32, 24, 16, 0, wide, (b"tRNS", struct.pack(">H", 2 * int(g[0, 0]))))
    p = np.asarray(part)
    pixel = [int(v) for v in p[0, 0]]
    out["rgb-key.png"] = png(32, 24, 8, 2, [r.tobytes() for r in p], (b"tRNS", struct.pack(">3H", *pixel)))

    def deep(a):  # in 16 bits, with something in the low byte
        return (a.astype(">u2") * 256 + rng.integers(0, 256, a.shape)).astype(">u2")

    out["rgb-16bit.png"] = png(32, 24, 16, 2, [r.tobytes() for r in deep(p)])
    out["rgb-16bit-key.png"] = png(
        32, 24, 16, 2, [r.tobytes() for r in p.astype(">u2") * 257], (b"tRNS", struct.pack(">3H", *(257 * v for v in pixel)))
    )
    out["la-16bit.png"] = png(32, 24, 16, 4, [r.tobytes() for r in deep(np.asarray(rgba.convert("LA")))])
    out["rgba-16bit.png"] = png(32, 24, 16, 6, [r.tobytes() for r in deep(np.asarray(rgba))])
    small = np.asarray(cut("astronaut", 30, 21, by=4))
    lines = [r.tobytes() for r in small]
    out["exif-6.png"] = png(30, 21, 8, 2, lines, (b"eXIf", exif(6)))
    out["exif-8-behind.png"] = png(30, 21, 8, 2, lines, after=((b"eXIf", exif(8, ">", 4)),))
    out["exif-odd.png"] = png(30, 21, 8, 2, lines, (b"eXIf", exif(9)))
    text = b"XML:com.adobe.xmp\0\0\0\0\0" + xmp(3)
    out["xmp-3.png"] = png(30, 21, 8, 2, lines, (b"iTXt", text))

    big = cut("astronaut", 64, 64, 130, 60, by=2)
    odd = cut("astronaut", 61, 47, 130, 60, by=3)
    for mode, name in enumerate(("444", "422", "420")):
        save(f"{name}.jpg", big, quality=90, subsampling=mode)
        save(f"{name}-odd.jpg", odd, quality=75, subsampling=mode)
        for side in (1, 2, 3, 5):
            save(f"{name}-{side}x{side}.jpg", cut("coffee", side, side, 20, 120, by=20), quality=95, subsampling=mode)
    out["440.jpg"] = refactor(out["422.jpg"], 0x12)
    out["411.jpg"] = refactor(out["420.jpg"], 0x41)
    save("progressive.jpg", odd, quality=85, progressive=True)
    save("progressive-gray.jpg", odd.convert("L"), quality=85, progressive=True)
    save("gray.jpg", odd.convert("L"), quality=85)
    save("restarts.jpg", odd, quality=85, restart_marker_blocks=3)
    save("rgb.jpg", odd, quality=85, keep_rgb=True)
    save("coarse.jpg", big, quality=5)
    save("whole.jpg", big.resize((84, 56)), quality=92, subsampling=0)
    for mode in (0, 2):
        save(f"noise-{mode}.jpg", Image.fromarray(noise), quality=100, subsampling=mode)
        save(f"extremes-{mode}.jpg", Image.fromarray(np.where(noise > 127, 255, 0).astype(np.uint8)), quality=30, subsampling=mode)
    save("cmyk.jpg", big.convert("CMYK"))
    tiny = cut("astronaut", 24, 17, 130, 60, by=8)
    for o in range(2, 9):
        save(f"exif-{o}.jpg", tiny, quality=80, exif=b"Exif\0\0" + exif(o, "<>"[o % 2], 3 + o % 2))
    save("xmp-5.jpg", tiny, quality=80, xmp=xmp(5))
    save("exif-1-xmp-5.jpg", tiny, quality=80, xmp=xmp(5), exif=b"Exif\0\0" + exif(1))
    return out


def lcg(n):
    """Bytes that the Go test makes, too."""
    x, out = 1, bytearray()
    for _ in range(n):
        x = (x * 1664525 + 1013904223) % (1 << 32)
        out.append(x >> 24)
    return bytes(out)


def smart_resizes():
    """For each factor and limits of pixels: width, height, and the result in factors; 0 0 where it fails."""
    from transformers.models.qwen2_vl.image_processing_qwen2_vl import smart_resize

    rnd = random.Random(3)
    limits = [(28, 3136, 12544), (28, 3136, 1003520), (28, 3136, 12845056), (28, 200704, 1003520), (32, 65536, 16777216), (28, 1, 500)]
    out = {limit: ["%d %d %d\n" % limit] for limit in limits}
    for i in range(2000):
        factor, low, high = limit = limits[i // 4 % len(limits)]
        if i % 4 == 0:  # halves, which Python rounds to even
            w, h = (factor // 2 * rnd.randint(1, 60) for _ in range(2))
        elif i % 4 == 1:  # long
            w, h = rnd.randint(1, 40), rnd.randint(1, 9000)
        else:
            w, h = (int(2 ** rnd.uniform(0, 13.5)) for _ in range(2))
        if i % 3 == 0:
            w, h = h, w
        try:
            to_h, to_w = smart_resize(h, w, factor, low, high)
        except ValueError:
            to_h = to_w = 0
        out[limit].append(f"{w} {h} {to_w // factor} {to_h // factor}\n")
    return "".join("".join(lines) for lines in out.values())


def resizes():
    """What torch makes of bytes of lcg: [width, height, to width, to height, bytes]."""
    import torch
    from torchvision.transforms.v2 import InterpolationMode, functional

    rnd = random.Random(5)
    out = []
    for i in range(60):
        top = 90 if i % 3 == 0 else 24
        w, h, to_w, to_h = rnd.randint(1, top), rnd.randint(1, top), rnd.randint(1, 20), rnd.randint(1, 20)
        if i % 5 == 0:
            to_w = w = min(w, 20)
        if i % 7 == 0:
            to_h = h = min(h, 20)
        image = torch.frombuffer(bytearray(lcg(3 * w * h)), dtype=torch.uint8).reshape(h, w, 3).permute(2, 0, 1)
        result = functional.resize(image, [to_h, to_w], interpolation=InterpolationMode.BICUBIC, antialias=True)
        pixels = result.permute(1, 2, 0).contiguous().numpy().tobytes()
        out.append([w, h, to_w, to_h, base64.b64encode(pixels).decode()])
    return out


def processors(models):
    """vLLM's processor for every run, set up as the frontend does."""
    from transformers import PreTrainedTokenizerFast
    from tokenizers import Tokenizer, pre_tokenizers
    from tokenizers.models import WordLevel
    from vllm.engine.arg_utils import EngineArgs
    from vllm.multimodal import MULTIMODAL_REGISTRY
    from vllm.tokenizers import cached_tokenizer_from_config

    words = ["<unk>", "<s>", "</s>", "<pad>", "<image>", "<vs>", "<ve>", "<video>"]
    inner = Tokenizer(WordLevel({w: i for i, w in enumerate(words)}, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    inner.add_special_tokens(words)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner,
        unk_token="<unk>",
        bos_token="<s>",
        eos_token="</s>",
        pad_token="<pad>",
        extra_special_tokens={
            "image_token": "<image>",
            "video_token": "<video>",
            "vision_start_token": "<vs>",
            "vision_end_token": "<ve>",
        },
    )
    shutil.copytree(DATA / "models", models, dirs_exist_ok=True)
    for model in models.iterdir():
        tokenizer.save_pretrained(model)
        if model.name.startswith("qwen"):
            config = {"video_processor_type": "Qwen2VLVideoProcessor"}
            (model / "video_preprocessor_config.json").write_text(json.dumps(config))
    for name, model, dtype, normalize in RUNS:
        options = {} if normalize is None else {"mm_device_do_normalize": normalize}
        config = EngineArgs(model=str(models / model), dtype=dtype, max_model_len=32768, **options).create_model_config()
        yield name, MULTIMODAL_REGISTRY.create_processor(config, tokenizer=cached_tokenizer_from_config(config))


def process(processor, data):
    """One image's item with sorted keys, its placeholder tokens, and its encoding."""
    from vllm.multimodal.inputs import MultiModalKwargsItem
    from vllm.multimodal.media.image import ImageMediaIO
    from vllm.v1.serial_utils import MsgpackEncoder

    image = ImageMediaIO().load_bytes(data)
    items = processor.info.parse_mm_data({"image": [image]})
    result = processor([1, 4], items)
    (item,), (place,) = result["mm_kwargs"]["image"], result["mm_placeholders"]["image"]
    item = MultiModalKwargsItem({key: item[key] for key in sorted(item)})
    return image.media.size, item, place.length, bytes(MsgpackEncoder().encode(item)[0])


def shorten(cases):
    """What the tests need when there is no manifest."""
    for c in cases:
        # The others are slower, or have nothing but other numbers for the same bytes.
        if c["run"] not in ("llava-56", "qwen2-vl") and not c["image"].startswith("media/"):
            continue
        line = {k: c[k] for k in ("run", "image", "size", "tokens", "grid") if k in c}
        if "error" in c:
            line["error"] = "refused"
        else:
            line["sha256"] = c["tensors"]["pixel_values"]["sha256"]
        if c["image"] == "media/coffee.png":
            line["main"] = c["main"]
        yield line


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--testdata", action="store_true", help="make the files in testdata anew")
    args = parser.parse_args()
    import torch

    images = DATA / "images"
    if args.testdata:
        images.mkdir(exist_ok=True)
        made = make_images()
        for old in images.iterdir():
            old.unlink()
        for name, data in made.items():
            (images / name).write_bytes(data)
        (DATA / "smart_resize.txt").write_text(smart_resizes())
        (DATA / "resize.json").write_text("[\n" + ",\n".join(map(json.dumps, resizes())) + "\n]\n")
    files = sorted(p for d in (MEDIA, images) for p in d.iterdir() if p.suffix in (".png", ".jpg"))

    cases = []
    (args.out / "tensors").mkdir(parents=True, exist_ok=True)
    for run, processor in processors(args.out / "models"):
        for path in files:
            case = {"run": run, "image": f"{path.parent.name}/{path.name}"}
            cases.append(case)
            try:
                size, item, tokens, main_frame = process(processor, path.read_bytes())
            except ValueError as e:
                case["error"] = str(e.__cause__ or e).split("\n")[0][:100]
                continue
            case.update(size=size, tokens=tokens, main=main_frame.hex(), tensors={})
            for key, elem in item.items():
                data = elem.data.contiguous()
                raw = data.flatten().view(torch.uint8).numpy().tobytes()
                file = f"tensors/{run}.{path.parent.name}.{path.name}.{key}"
                (args.out / file).write_bytes(raw)
                case["tensors"][key] = {
                    "dtype": str(data.dtype).removeprefix("torch."),
                    "shape": list(data.shape),
                    "sha256": hashlib.sha256(raw).hexdigest(),
                    "file": file,
                }
                if key == "image_grid_thw":
                    case["grid"] = data.tolist()
    (args.out / "manifest.json").write_text(json.dumps(cases, indent=1) + "\n")
    print(len(cases), "cases")
    if args.testdata:
        text = ",\n".join(json.dumps(line, separators=(",", ":")) for line in shorten(cases))
        (DATA / "golden.json").write_text(f"[\n{text}\n]\n")


if __name__ == "__main__":
    main()

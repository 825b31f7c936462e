"""Writes a workload, with its image files, for python_frontend.py and its counterpart in Go.

    workload.py --kind new --model-kind llava --clients 8 --requests 400 --size 640x480 --out FOLDER

The file is described in README.md. Kinds: text (no images), new (every request a different image), repeat (few
images, in turn). Image files are parts of the photos in examples/media, so they cost what photos cost to decode.
"""

import argparse
import json
import pathlib

import common

MEDIA = pathlib.Path(__file__).resolve().parents[2] / "examples" / "media"
PLACEHOLDER = {"llava": [4], "qwen2vl": [5, 4, 6]}  # vision start, image, vision end


def photos():
    from PIL import Image
    return [Image.open(path).convert("RGB") for path in sorted(MEDIA.iterdir()) if path.suffix in (".png", ".jpg")]


def write_images(folder, count, size, form):
    """Image i is a part of photo i mod 6, enlarged, at a place of its own."""
    from PIL import Image
    sources, width, height, made = photos(), *size, []
    for i in range(count):
        source, n = sources[i % len(sources)], i // len(sources)
        # Half the photo's size leaves a quarter of its pixels as places, far more than are asked for.
        part = source.width // 2, source.height // 2
        left, top = n * 7 % part[0], n * 7 // part[0] * 5 + n % 3
        if top >= part[1]:
            raise SystemExit("workload: no more than %d distinct images of files; use --format pattern" % i)
        image = source.crop((left, top, left + part[0], top + part[1])).resize((width, height),
            Image.Resampling.BILINEAR)
        name = "image%05d.%s" % (i, {"jpeg": "jpg"}.get(form, form))
        image.save(folder / name, **({"quality": 90} if form == "jpeg" else {"compress_level": 6}))
        made.append(name)
    return made


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kind", required=True, choices=["text", "new", "repeat"])
    parser.add_argument("--model-kind", required=True, choices=sorted(PLACEHOLDER))
    parser.add_argument("--out", required=True, type=pathlib.Path, metavar="FOLDER")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--requests", type=int, default=400, help="measured ones (default 400)")
    parser.add_argument("--warmup", type=int, default=40, help="requests before those (default 40)")
    parser.add_argument("--distinct", type=int, default=8, help="images of kind repeat (default 8)")
    parser.add_argument("--size", default="640x480", metavar="WxH")
    parser.add_argument("--format", default="jpeg", choices=["jpeg", "png", "pattern"])
    parser.add_argument("--max-tokens", type=int, default=4)
    a = parser.parse_args()

    a.out.mkdir(parents=True, exist_ok=True)
    total, size = a.warmup + a.requests, [int(n) for n in a.size.split("x")]
    count = {"text": 0, "new": total, "repeat": a.distinct}[a.kind]
    if a.format == "pattern":
        images = [{"pattern": k, "size": size} for k in range(count)]
    else:
        images = write_images(a.out, count, size, a.format)
    requests = []
    for i in range(total):
        # The text differs, so that no two requests are the same even where images are.
        prompt = [1, *(PLACEHOLDER[a.model_kind] if images else []), *(8 + i // 248**n % 248 for n in range(4)), 30, 31]
        requests.append({"prompt_token_ids": prompt, "images": images and [images[i % count]]})
    (a.out / "workload.json").write_text(json.dumps({
        "kind": a.kind, "clients": a.clients, "warmup": a.warmup,
        "params": {**common.PARAMS, "max_tokens": a.max_tokens, "detokenize": False}, "requests": requests}))


if __name__ == "__main__":
    main()

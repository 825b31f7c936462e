"""vLLM's own hasher, of whichever release: python hash_peer.py RELEASE_DIR|- INPUTS OUTPUTS

INPUTS has a JSON list of calls, each a list of [name, value], the values in the form that the agent's `hash` takes (see
docs/agent.md) or {"file": hex, "form": ...}, an image file that PIL opens. OUTPUTS gets a list of {algorithm: hash}, or
{"error": text} where vLLM raises.
"""

import io
import json
import os
import sys
import uuid

import upstream

ALGORITHMS = ["blake3", "sha256", "sha512"]


class Absent(Exception):
    """The release has no such thing."""


class Builder:
    """Makes the Python objects."""

    def __init__(self, path):
        import inspect
        import numpy
        import PIL.Image
        self.vllm = upstream.load(path)
        self.torch, self.numpy, self.PIL = self.vllm.torch, numpy, PIL.Image
        import vllm.multimodal.hasher as hasher
        self.Media = getattr(hasher, "MediaWithBytes", None)
        self.hash = hasher.MultiModalHasher.hash_kwargs
        self.positional = "algorithm" in inspect.signature(self.hash).parameters
        self.environment = not self.positional and hasattr(__import__("vllm.envs").envs, "VLLM_MM_HASHER_ALGORITHM")
        self.config = self.Media is not None and "io_config" in inspect.signature(self.Media).parameters

    def digest(self, algorithm, kwargs):
        if self.positional:
            return self.hash(algorithm, **kwargs)
        if self.environment:
            os.environ["VLLM_MM_HASHER_ALGORITHM"] = algorithm
        return self.hash(**kwargs)

    def value(self, v):
        (kind, x), = v.items() if "file" not in v else [("file", v)]
        return getattr(self, "_" + kind)(x)

    def _str(self, x):
        return x

    def _bytes(self, x):
        return bytes.fromhex(x)

    def _int(self, x):
        return int(x)

    def _float(self, x):
        return float.fromhex(x)

    def _bool(self, x):
        return x

    def _none(self, _):
        return None

    def _list(self, x):
        return [self.value(e) for e in x]

    def _map(self, x):
        return {k: self.value(e) for k, e in x}

    def _ndarray(self, x):
        return self.numpy.frombuffer(bytes.fromhex(x["hex"]), dtype=x["dtype"]).reshape(x["shape"])

    def _tensor(self, x):
        raw, dtype = bytes.fromhex(x["hex"]), getattr(self.torch, x["dtype"])
        if not raw:
            return self.torch.empty(x["shape"], dtype=dtype)
        return self.torch.frombuffer(bytearray(raw), dtype=self.torch.uint8).view(dtype).view(x["shape"])

    def _image(self, x):
        image = self.PIL.frombytes(x["mode"], tuple(x["size"]), bytes.fromhex(x["hex"]))
        if "palette" in x:
            image.putpalette(bytes.fromhex(x["palette"]))
        return image

    def _wrap(self, image, data, config):
        if self.Media is None:
            if image.getexif().get(0x800D) is not None:
                return image  # which has a hash without its pixels, too
            raise Absent("MediaWithBytes")
        return self.Media(image, data, config) if self.config else self.Media(image, data)

    def _media(self, x):
        data = bytes.fromhex(x["bytes"])
        if x["kind"] == "video":
            frames = self._ndarray(x["frames"])
            # Before io_config came the loader gave frames without their file.
            return self.Media(frames, data) if self.config else frames
        image = self.PIL.frombytes("L", (1, 1), b"\x05")
        if "exif_uuid" in x:
            image.getexif()[0x800D] = uuid.UUID(hex=x["exif_uuid"])
        return self._wrap(image, data, self.value(x["io_config"]) if self.config and "io_config" in x else None)

    def _file(self, x):
        data = bytes.fromhex(x["file"])
        if x["form"] == "loaded":  # by the release's own loader
            if not self.config:
                raise Absent("io_config")
            from vllm.multimodal.media.image import ImageMediaIO
            return ImageMediaIO().load_bytes(data)
        image = self.PIL.open(io.BytesIO(data))
        if x["form"] == "pixels":
            return image
        return self._wrap(image, data, self.value(x["io_config"]) if self.config and "io_config" in x else None)


def main(path, inputs, outputs):
    builder = Builder(None if path == "-" else path)
    algorithms = ALGORITHMS if builder.positional or builder.environment else ALGORITHMS[:1]
    with open(inputs) as f:
        calls = json.load(f)
    out = []
    for call in calls:
        try:
            kwargs = {name: builder.value(v) for name, v in call}
            out.append({a: builder.digest(a, kwargs) for a in algorithms})
        except Exception as e:
            out.append({"error": "%s: %s" % (type(e).__name__, e)})
    with open(outputs, "w") as f:
        json.dump({"version": builder.vllm.version, "algorithms": algorithms, "hashes": out}, f)


if __name__ == "__main__":
    main(*sys.argv[1:])

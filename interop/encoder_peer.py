"""vLLM's own connector that keeps outputs of encoders in files, of whichever release:
python encoder_peer.py RELEASE_DIR|- JOB RESULT

JOB has JSON: a folder, tensors to load from it ("load": hashes), to ask for ("has": hashes) and to save into it ("save":
[{"name", "dtype", "shape", "hex"}]), in this order. RESULT gets what happened. No engine is needed: the classes read only
some fields of the configuration.
"""

import importlib
import json
import os
import sys
import types

import upstream

CLASSES = (("example_connector", "ECExampleConnector"), ("shared_storage_connector", "ECSharedStorageConnector"))
PACKAGE = "vllm.distributed.ec_transfer.ec_connector."


class Connector:
    def __init__(self, path, folder):
        self.torch = upstream.load(path).torch
        import safetensors.torch  # noqa: F401  (the connector uses it without an import of its own)
        from vllm.config import ECTransferConfig
        for module, self.name in CLASSES:
            try:
                self.module = importlib.import_module(PACKAGE + module)
                break
            except ModuleNotFoundError:
                continue
        base = importlib.import_module(PACKAGE + "base")
        self.module.PlaceholderMetadataResolver = lambda *_: None  # it would need a model
        # There is no GPU. Only the device that a tensor is loaded to changes, no byte of it.
        self.torch.Tensor.cuda = lambda tensor: tensor
        platform = importlib.import_module("vllm.platforms").current_platform
        platform.device_type = platform.device_type or "cpu"

        def make(role, kind):
            transfer = ECTransferConfig(ec_connector=self.name, ec_role=role, engine_id="fixed",
                                        ec_connector_extra_config={"shared_storage_path": folder})
            config = types.SimpleNamespace(ec_transfer_config=transfer, model_config=None)
            return getattr(self.module, self.name)(config, kind)

        self.producer = make("ec_producer", base.ECConnectorRole.WORKER)
        self.consumer = make("ec_consumer", base.ECConnectorRole.WORKER)
        self.scheduler = make("ec_consumer", base.ECConnectorRole.SCHEDULER)

    def has(self, name):
        if hasattr(self.scheduler, "has_cache_item"):
            return self.scheduler.has_cache_item(name)
        feature = types.SimpleNamespace(identifier=name, mm_hash=name)
        return self.scheduler.has_caches(types.SimpleNamespace(mm_features=[feature]))[0]

    def load(self, name):
        meta = getattr(self.module, self.name + "Metadata")()
        meta.add_mm_data(self.module.MMMeta.make_meta(name, 1))
        self.consumer.bind_connector_metadata(meta)
        loaded = {}
        try:
            self.consumer.start_load_caches(loaded)
        except Exception as e:
            return {"name": name, "error": "%s: %s" % (type(e).__name__, e)}
        t = loaded[name]
        raw = bytes(t.contiguous().reshape(-1).view(self.torch.uint8).numpy()) if t.numel() else b""
        return {"name": name, "dtype": str(t.dtype).removeprefix("torch."), "shape": list(t.shape), "hex": raw.hex()}

    def save(self, name, dtype, shape, hex):
        raw = bytearray.fromhex(hex)
        dtype = getattr(self.torch, dtype)
        t = self.torch.frombuffer(raw, dtype=dtype).reshape(shape) if raw else self.torch.empty(shape, dtype=dtype)
        try:
            self.producer.save_caches({name: t}, name)
        except Exception as e:
            return {"name": name, "error": "%s: %s" % (type(e).__name__, e)}
        return {"name": name}


def main(path, job, result):
    with open(job) as f:
        job = json.load(f)
    c = Connector(None if path == "-" else path, job["folder"])
    out = {"connector": c.name, "load": [c.load(n) for n in job["load"]], "has": [bool(c.has(n)) for n in job["has"]],
           "folders": [os.path.isdir(os.path.join(job["folder"], n)) for n in job["has"]],
           "save": [c.save(**t) for t in job["save"]]}
    with open(result, "w") as f:
        json.dump(out, f)


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Runs inputs through vLLM's own offline frontend and writes down what it sent to the engine and what came back.

    reference.py --model FOLDER --inputs inputs.json --out FOLDER [--tp N] [--cache lru|shm] ...

The files are described in README.md. One engine start serves all inputs, as one batch.
"""

import argparse
import hashlib
import json
import logging
import os
import pathlib
import resource
import time

import common
import supervise

if __name__ == "__mp_main__":
    supervise.die_with_parent()
    common.allow_async_scheduling()


class Recorder:
    """Keeps what vLLM's frontend sends: the requests, and each processed item before a cache replaces it."""

    def __init__(self, out):
        self._out, self._items, self.requests = out, {}, []
        (out / "tensors").mkdir(parents=True, exist_ok=True)

    def attach(self, processor):
        import vllm.multimodal.cache.lru  # for the classes to exist
        import vllm.multimodal.cache.shm
        from vllm.multimodal.cache.base import BaseMultiModalProcessorCache

        for kind in subclasses(BaseMultiModalProcessorCache):
            if "get_and_update_item" in vars(kind):
                kind.get_and_update_item = self._recorded(kind.get_and_update_item)
        process = processor.process_inputs

        def processed(*args, **kwargs):
            request = process(*args, **kwargs)
            self.requests.append(request)
            for feature in request.mm_features or []:
                # Without a cache, and where it had no room, the item is in the request itself.
                if feature.data is not None and "address" not in feature.data:
                    self._keep(feature.mm_hash or feature.identifier, feature.data)
            return request

        processor.process_inputs = processed

    def _recorded(self, update):
        def updated(cache, item, mm_hash):
            if item is not None:  # None: the frontend knows that it is cached and did not process it again
                self._keep(mm_hash, item[0])
            return update(cache, item, mm_hash)

        return updated

    def _keep(self, mm_hash, item):
        if mm_hash not in self._items:
            self._items[mm_hash] = {key: self._element(element) for key, element in item.items()}

    def _element(self, element):
        """One value of an item; its class of field tells the engine how to batch it with others."""
        field = element.field
        name = type(field).__name__.removeprefix("MultiModal").removesuffix("Field").lower()
        described = {"field": name, "keep_on_cpu": field.keep_on_cpu}
        if name == "flat":
            described.update(slices=plain(field.slices), dim=field.dim)
        elif name == "shared":
            described.update(batch_size=field.batch_size)
        return {**self._value(element.data), **described}

    def _value(self, value):
        if not hasattr(value, "numpy"):
            return {"value": plain(value)}
        import torch
        value = value.detach().cpu().contiguous()
        raw = value.reshape(-1).view(torch.uint8).numpy().tobytes()  # by bytes, since numpy has no bfloat16
        digest = hashlib.sha256(raw).hexdigest()
        (self._out / "tensors" / digest).write_bytes(raw)
        return {"dtype": str(value.dtype).removeprefix("torch."), "shape": list(value.shape), "nbytes": len(raw),
                "file": "tensors/" + digest}

    def features(self, request):
        return [{"modality": f.modality, "mm_hash": f.mm_hash, "identifier": f.identifier,
                 "offset": f.mm_position.offset, "length": f.mm_position.length,
                 "is_embed": None if f.mm_position.is_embed is None else f.mm_position.is_embed.tolist(),
                 "elems": self._items[f.mm_hash or f.identifier]} for f in request.mm_features or []]


def subclasses(kind):
    for sub in kind.__subclasses__():
        yield sub
        yield from subclasses(sub)


def plain(value):
    if isinstance(value, slice):
        return plain([value.start, value.stop, value.step])
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if hasattr(value, "numpy"):  # bounds of slices are scalar tensors with some processors
        return value.item()
    return value


def prompt(entry, folder):
    made = {"prompt_token_ids": entry["prompt_token_ids"]}
    if images := entry.get("images"):
        made["multi_modal_data"] = {"image": [load(spec, folder) for spec in images]}
    return made


def load(spec, folder):
    """Files go through vLLM's reader, as in its server: their hash is then of the file's bytes, not of the pixels."""
    path = common.image_file(spec, folder)
    if path is None:
        return common.load_image(spec, folder)
    from vllm.multimodal.media import ImageMediaIO
    return ImageMediaIO().load_file(path)


def tokens(output):
    return {"token_ids": list(output.token_ids), "finish_reason": output.finish_reason,
            "stop_reason": output.stop_reason}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--inputs", required=True, type=pathlib.Path)
    parser.add_argument("--out", required=True, type=pathlib.Path, metavar="FOLDER")
    common.add_engine_flags(parser, cache_gb=0.25)
    parser.set_defaults(cache_type="lru")
    a = parser.parse_args()
    supervise.run(lambda: work(a))


def work(a):
    entries, stdout, started = json.loads(a.inputs.read_text()), common.keep_stdout(), time.monotonic()
    executor = common.prepare_environment(a)
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    import vllm
    # With the worker in this process it complains about each image that is processed.
    logging.getLogger("vllm.v1.worker.cpu_worker").setLevel(logging.ERROR)
    # Before the engine starts, since that takes long and these may be wrong.
    params = [vllm.SamplingParams(**{**common.PARAMS, **entry.get("params", {})}) for entry in entries]
    prompts = [prompt(entry, a.inputs.parent) for entry in entries]
    imported = time.monotonic()

    engine = vllm.LLM(disable_log_stats=True, **common.engine_arguments(a))
    recorder = Recorder(a.out)
    recorder.attach(engine.llm_engine.input_processor)
    ready = time.monotonic()
    outputs = engine.generate(prompts, params, use_tqdm=False)
    done = time.monotonic()
    if len(recorder.requests) != len(entries):
        raise SystemExit("reference: %d inputs made %d requests" % (len(entries), len(recorder.requests)))

    inputs = [{"name": entry["name"], "prompt_token_ids": list(request.prompt_token_ids),
               "params": {**common.PARAMS, **entry.get("params", {})}, **tokens(output.outputs[0]),
               "outputs": [tokens(one) for one in output.outputs], "features": recorder.features(request)}
              for entry, request, output in zip(entries, recorder.requests, outputs)]
    seconds = {"import": imported - started, "start": ready - imported, "generate": done - ready}
    report = {"vllm_version": vllm.__version__, "model": pathlib.Path(a.model).name, "tp": a.tp, "cache": a.cache_type,
              "executor": executor, "settings": {**common.SETTINGS, **dict(a.set)},
              "seconds": {name: round(value, 2) for name, value in seconds.items()},
              "rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10}
    (a.out / "reference.json").write_text(json.dumps({**report, "inputs": inputs}))
    report["inputs"], report["distinct_outputs"] = len(inputs), len({tuple(i["token_ids"]) for i in inputs})
    print(json.dumps(report), file=stdout, flush=True)


if __name__ == "__main__":
    main()

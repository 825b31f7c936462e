"""What the programs of this folder share: engine settings, environment, images. No import of vLLM at module level."""

import argparse
import json
import os
import pathlib

# Small, and the same in every program: tokens can only be compared between engines with equal settings.
SETTINGS = {"dtype": "float32", "max_model_len": 4096, "max_num_seqs": 4, "max_num_batched_tokens": 512,
            "enforce_eager": True, "seed": 0, "enable_prefix_caching": False, "skip_mm_profiling": True,
            "limit_mm_per_prompt": {"image": 8, "video": 0},
            # Room for twice what max_num_seqs requests can need; else each worker fills a GiB with empty cache.
            "num_gpu_blocks_override": 256}

PARAMS = {"temperature": 0, "max_tokens": 8, "ignore_eos": True}


def add_engine_flags(parser, cache_gb):
    parser.add_argument("--model", required=True, metavar="FOLDER")
    parser.add_argument("--tp", type=int, default=1, metavar="N", help="tensor parallel size (default 1)")
    parser.add_argument("--cache-type", "--cache", default="shm", choices=["shm", "lru"], help="(default shm)")
    parser.add_argument("--cache-gb", type=float, default=cache_gb, metavar="GB",
                        help="size of the cache in GiB; take a binary fraction (default %(default)s)")
    parser.add_argument("--executor", choices=["uni", "mp"],
                        help="uni: the worker lives in the engine's process; mp: workers are processes of their own "
                             "(default uni, mp from --tp 2 on)")
    parser.add_argument("--async-scheduling", action="store_true",
                        help="schedule the next step before this one ends; vLLM turns that off on CPUs")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=JSON", type=setting,
                        help="any other field of vLLM's EngineArgs, or another value for one of these settings")


def setting(text):
    key, _, value = text.partition("=")
    try:
        return key, json.loads(value)
    except ValueError:
        raise argparse.ArgumentTypeError("want KEY=JSON, such as max_num_seqs=8, not %r" % text) from None


def engine_arguments(a):
    """The keyword arguments of EngineArgs, the same for every program and both frontends."""
    return {**SETTINGS, "model": a.model, "tensor_parallel_size": a.tp, "mm_processor_cache_type": a.cache_type,
            "mm_processor_cache_gb": a.cache_gb, **dict(a.set)}


def prepare_environment(a):
    """Sets the variables that vLLM and its processes read; call before its first import. Returns the executor taken."""
    executor = a.executor or ("uni" if a.tp == 1 and dict(a.set).get("pipeline_parallel_size", 1) == 1 else "mp")
    # vLLM takes the uniproc executor on a CPU only where its own multiprocessing is off.
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0" if executor == "uni" else "1"
    for name, value in (("VLLM_CPU_KVCACHE_SPACE", "1"),  # GiB for each worker, no fraction possible
                        ("VLLM_CPU_OMP_THREADS_BIND", "nobind"),  # other programs run on these cores
                        ("OMP_NUM_THREADS", "1"),
                        ("VLLM_WORKER_MULTIPROC_METHOD", "spawn"),
                        # Some helpers are compiled in spite of enforce_eager: 15 s at the first step of --tp 2.
                        ("TORCHDYNAMO_DISABLE", "1"),
                        ("HF_HUB_OFFLINE", "1"),
                        ("VLLM_NO_USAGE_STATS", "1"),
                        ("TOKENIZERS_PARALLELISM", "false")):
        os.environ.setdefault(name, value)
    if a.async_scheduling:
        os.environ[ASYNC_SCHEDULING] = "1"
    allow_async_scheduling()
    return executor


def keep_stdout():
    """Returns a file on stdout and lets everything else that is written there, by native code too, go to stderr."""
    kept = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    return kept


ASYNC_SCHEDULING = "RINGCACHE_E2E_ASYNC_SCHEDULING"


def allow_async_scheduling():
    """Puts back what vLLM's CPU platform removes, each time that the configuration is checked.

    Worker processes import the main program anew, so this runs there too: the setting comes with the environment.
    """
    if not os.environ.get(ASYNC_SCHEDULING):
        return
    from vllm.platforms.cpu import CpuPlatform
    check = CpuPlatform.check_and_update_config.__func__

    def checked(cls, config):
        check(cls, config)
        config.scheduler_config.async_scheduling = True

    CpuPlatform.check_and_update_config = classmethod(checked)


def pattern(k, width, height):
    """Pattern k, one of 2^32: cells of 8x8 pixels in colours of a linear congruential sequence."""
    from PIL import Image
    across, down, x = -(-width // 8), -(-height // 8), (k * 2654435761 + 12345) % 2**32
    cells = bytearray()
    for _ in range(across * down * 3):
        x = (x * 1664525 + 1013904223) % 2**32
        cells.append(x >> 24)
    small = Image.frombytes("RGB", (across, down), bytes(cells))
    return small.resize((across * 8, down * 8), Image.Resampling.NEAREST).crop((0, 0, width, height))


def image_file(spec, folder):
    """The path that an image of an input list names, or None if it's a pattern."""
    if isinstance(spec, dict) and "pattern" in spec:
        return None
    return pathlib.Path(folder) / (spec["file"] if isinstance(spec, dict) else spec)


def load_image(spec, folder):
    """An image of an input list: a path (relative to folder), {"file": path} or {"pattern": k, "size": [w, h]}."""
    from PIL import Image
    path = image_file(spec, folder)
    if path is None:
        return pattern(spec["pattern"], *spec["size"])
    with Image.open(path) as image:
        return image.convert("RGB")


def running(pid):
    """Whether the process lives: one that has ended and was not yet waited for does not."""
    try:
        with open("/proc/%d/stat" % pid) as f:
            return f.read().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False

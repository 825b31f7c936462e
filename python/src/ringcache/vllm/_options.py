"""What the encoder connector reads from the configuration of an engine: its options, whether it
can work at all, and the fingerprint of the model. The options are those for KV blocks, too."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import pathlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from ..daemon import Fingerprint, default_socket

#: The connector's name in ``--ec-transfer-config``.
CONNECTOR: Final = "EncoderCacheConnector"

#: The roles that it may have there.
ROLES: Final = ("ec_both", "ec_consumer", "ec_producer")

#: What ``--ec-transfer-config`` may have: the fields of ECTransferConfig of vLLM 0.11.2 to 0.32.0
#: (vllm/config/ec_transfer.py), of which 0.32.0 has no ec_rank and no ec_parallel_size any more.
FIELDS: Final = (
    "ec_connector",
    "ec_connector_module_path",
    "ec_role",
    "ec_connector_extra_config",
    "engine_id",
    "ec_buffer_device",
    "ec_buffer_size",
    "ec_rank",
    "ec_parallel_size",
    "ec_ip",
    "ec_port",
)

# The most bytes that the daemon takes, docs/daemon.md; of more it would refuse every call.
_LONGEST: Final = {"space": 255, "tenant": 255, "revision": 4096}

_logger: Final = logging.getLogger("vllm.ringcache")

#: Files of weights that are sampled. The first kind that a folder has is the one that engines load.
_WEIGHTS: Final = (".safetensors", ".bin", ".pt", ".pth", ".gguf")

# Of each tensor, and of each part of a file that is not made of tensors.
_SAMPLE: Final = 1024
_PARTS: Final = 64

_LONGEST_HEADER: Final = 64 << 20


@dataclass(frozen=True)
class Options:
    """``ec_connector_extra_config``, or what is ours of ``kv_connector_extra_config``."""

    socket: str = ""  # the daemon's; empty is RINGCACHE_SOCKET or /run/ringcache/ringcache.sock
    space: str = ""  # of the keys; empty is that of the model's fingerprint
    revision: str = ""  # of the weights; empty is what identifies them
    tenant: str = ""  # whose quota counts what is stored
    timeout: float = 0.2  # seconds that a call of the daemon may take
    wait: float = 2.0  # seconds that a request waits for what comes from a disk or the network
    lease: float = 300.0  # seconds that pinned items stay without renewal
    pin: bool = False  # register the mapping with the GPU's driver

    @staticmethod
    def of(extra: Mapping[str, Any], where: str = "ec_connector_extra_config") -> Options:
        """Raises :class:`ValueError` for an unknown option or an odd value; ``where`` it is."""
        known = {f.name: f.default for f in fields(Options)}
        if unknown := sorted(str(k) for k in extra if k not in known):
            raise ValueError(f"{where} has no option {unknown[0]!r}; there are {', '.join(known)}")
        checked = {name: _value(where, name, value, known[name]) for name, value in extra.items()}
        options = Options(**checked)
        for name, least, most in (("timeout", 0.001, 60), ("wait", 0, 600), ("lease", 10, 86400)):
            if not least <= getattr(options, name) <= most:
                raise ValueError(
                    f"{where}: {name} must be {least:g} to {most:g} seconds, got {getattr(options, name):g}"
                )
        return options

    @property
    def address(self) -> str:
        return self.socket or default_socket()


def of_transfer(transfer: Any) -> Options:
    """The options of ``--ec-transfer-config``, as JSON has it. Raises :class:`ValueError` also for what vLLM would find
    itself, or would not: another connector's configuration."""
    if not isinstance(transfer, dict):
        raise ValueError("--ec-transfer-config must be an object, in braces")
    for name, value in (("ec_connector", CONNECTOR), ("ec_connector_module_path", "ringcache.vllm")):
        if transfer.get(name) != value:
            raise ValueError(f"{name} must be {value!r}, got {transfer.get(name)!r}")
    if transfer.get("ec_role") not in ROLES:
        raise ValueError(f"ec_role must be {', '.join(ROLES[:-1])} or {ROLES[-1]}, got {transfer.get('ec_role')!r}")
    extra = transfer.get("ec_connector_extra_config", {})
    if not isinstance(extra, dict):
        raise ValueError(f"ec_connector_extra_config must be an object, in braces, got {extra!r}")
    for option in fields(Options):
        if option.name in transfer:
            raise ValueError(f"{option.name} belongs into ec_connector_extra_config: {{...}}")
    if unknown := sorted(name for name in transfer if name not in FIELDS):
        raise ValueError(f"vLLM has no {unknown[0]!r} there; it has {', '.join(FIELDS)}")
    return Options.of(extra)


def _value(where: str, name: str, value: Any, default: Any) -> Any:
    wanted = type(default)
    if wanted is float and type(value) is int:
        try:
            value = float(value)
        except OverflowError:
            value = float("inf")
    if name == "pin" and value in ("auto", "off", "on"):
        value = value != "off"
    if type(value) is not wanted:
        article = {"str": "a text", "float": "a number", "bool": "true or false"}[wanted.__name__]
        raise ValueError(f"{where}: {name} must be {article}, got {value!r}")
    if type(value) is str:
        _check_text(where, name, value)
    return value


def _check_text(where: str, name: str, text: str) -> None:
    try:
        # A path may have any bytes, which Python has as surrogates; what is sent is UTF-8.
        length = len(os.fsencode(text) if name == "socket" else text.encode())
    except UnicodeEncodeError:
        raise ValueError(f"{where}: {name} is no text: {text!r}") from None
    if "\0" in text:
        raise ValueError(f"{where}: {name} has a zero byte, got {text!r}")
    if length > (most := _LONGEST.get(name, length)):
        raise ValueError(f"{where}: {name} has {length} bytes, the most is {most}")


def check(config: Any) -> None:
    """Raise :class:`ValueError` where identifiers say nothing of contents, or nothing is loaded."""
    model = config.model_config
    if getattr(model, "is_encoder_decoder", False):
        raise ValueError(
            "EncoderCacheConnector: encoder-decoder models keep no encoder outputs between steps; "
            "start vLLM without --ec-transfer-config"
        )
    multimodal = getattr(model, "multimodal_config", None)
    if multimodal is None:
        raise ValueError(
            "EncoderCacheConnector: the model takes text alone, so there are no encoder outputs; "
            "start vLLM without --ec-transfer-config"
        )
    cache = getattr(multimodal, "mm_processor_cache_gb", None)
    prefix = getattr(config.cache_config, "enable_prefix_caching", None)
    if not cache and not prefix:
        raise ValueError(
            "EncoderCacheConnector: with the multimodal processor cache and prefix caching both off, "
            "vLLM counts items instead of hashing them, and another engine's item of the same number is another "
            "image; set --mm-processor-cache-gb above 0 or --enable-prefix-caching"
        )
    parallel = config.parallel_config
    hosts = getattr(parallel, "nnodes_within_dp", 1)
    tensor = getattr(parallel, "tensor_parallel_size", 1)
    if hosts > 1 and tensor > getattr(parallel, "local_world_size", tensor):
        raise ValueError(
            f"EncoderCacheConnector: {tensor} tensor-parallel workers on {hosts} hosts can't map one daemon's "
            "memory; keep a tensor-parallel group on one host or start vLLM without --ec-transfer-config"
        )
    lora = getattr(config, "lora_config", None)
    if getattr(lora, "enable_tower_connector_lora", False):
        raise ValueError(
            "EncoderCacheConnector: with LoRA in the encoder, outputs depend on adapters that are known "
            "by name alone; start vLLM without --enable-tower-connector-lora or without --ec-transfer-config"
        )


def fingerprint(config: Any, options: Options, version: str) -> Fingerprint:
    """The same in all processes of an engine, and in all engines with the same model."""
    model = config.model_config
    return Fingerprint(
        model=str(model.model),
        revision=options.revision or _revision(config),
        dtype=str(model.dtype).removeprefix("torch."),
        layout=_layout(model),
        engine=version,
    )


def _layout(model: Any) -> str:
    """The form of an output, and settings that are not part of its identifier and change it."""
    words = ["tokens"]
    for name in ("get_inputs_embeds_size", "get_hidden_size"):
        if (method := getattr(model, name, None)) is not None:
            words.append(str(method()))
            break
    multimodal = model.multimodal_config
    for name, value in (
        ("quantization", getattr(model, "quantization", None)),
        ("pruning", getattr(multimodal, "video_pruning_rate", None)),
        ("attention", getattr(multimodal, "mm_encoder_attn_dtype", None)),
        ("overrides", getattr(model, "hf_overrides", None)),
    ):
        if value:
            text = value if isinstance(value, (str, int, float)) else _digest_of(value)
            words.append(f"{name}={text}")
    return " ".join(words)


def _digest_of(value: Any) -> str:
    # A function has no text that another process would have, too.
    text = getattr(value, "__qualname__", None) or json.dumps(value, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _revision(config: Any) -> str:
    model = config.model_config
    if getattr(config.load_config, "load_format", "") == "dummy":
        return f"dummy {getattr(model, 'seed', 0)}"
    folder = pathlib.Path(str(model.model))
    if folder.exists():
        try:
            return "weights " + weights_digest(folder)
        except OSError as e:
            raise ValueError(
                f"EncoderCacheConnector: the weights of {folder} can't be read to tell checkpoints apart "
                f"({e}); give ec_connector_extra_config a revision"
            ) from e
    revision = getattr(model, "revision", None)
    commit = getattr(getattr(model, "hf_config", None), "_commit_hash", None)
    if found := commit or _commit(str(model.model), revision) or revision:
        return str(found)
    _logger.warning(
        "The revision of %s is not known, so encoder outputs of another one with this name would be taken for its "
        "own; give ec_connector_extra_config a revision when it changes",
        model.model,
    )
    return ""


def _commit(name: str, revision: str | None) -> str | None:
    """The commit of a model whose configuration does not say it, since it is in Mistral's form."""
    try:
        from huggingface_hub import try_to_load_from_cache  # type: ignore[import-not-found, unused-ignore]

        for file in ("params.json", "config.json"):
            found = try_to_load_from_cache(name, file, revision=revision)
            if isinstance(found, str) and (folder := pathlib.Path(found).parent).parent.name == "snapshots":
                return folder.name
    except (ImportError, ValueError):  # of a name that is no repository's
        pass
    return None


# See docs/decisions.md, "Weights are told apart by samples of every tensor".
def weights_digest(path: pathlib.Path) -> str:
    """A digest of a model's folder, or of its one file: of its configuration, and of samples of
    its weights, a kibibyte of every tensor.

    It depends on contents and names alone, so that copies on two hosts have the same one; and on values, since
    a checkpoint that was trained on has the names, shapes and sizes of the one before.
    """
    digest = hashlib.sha256(b"ringcache weights 1\0")
    files = _files(path)
    for file in files:
        if file.suffix == ".json":
            data = file.read_bytes()
            _add(digest, file.name, data)
        else:
            with open(file, "rb", buffering=0) as f:
                size = os.fstat(f.fileno()).st_size
                _add(digest, file.name, str(size).encode())
                for at, length in _places(f.fileno(), size, file.suffix):
                    _add(digest, str(at), os.pread(f.fileno(), length, at))
    return digest.hexdigest()[:32]


def _add(digest: Any, name: str, data: bytes) -> None:
    digest.update(f"{name}\0{len(data)}\0".encode(errors="surrogateescape"))
    digest.update(data)


def _files(path: pathlib.Path) -> list[pathlib.Path]:
    if path.is_file():
        return [path]
    found = sorted(p for p in path.iterdir() if p.is_file())
    # What the processor is told is part of an output, and not of an identifier.
    names = ("config.json", "params.json")  # the latter is Mistral's
    files = [p for p in found if p.name in names or p.name.endswith("processor_config.json")]
    for suffix in _WEIGHTS:
        if some := [p for p in found if p.suffix == suffix]:
            return files + some
    return files


def _places(fd: int, size: int, suffix: str) -> Iterator[tuple[int, int]]:
    """What of a file is sampled: offset and length."""
    if suffix == ".safetensors" and size >= 8:
        header = int.from_bytes(os.pread(fd, 8, 0), "little")
        if header <= min(size - 8, _LONGEST_HEADER):
            try:
                tensors = json.loads(os.pread(fd, header, 8))
                tensors.pop("__metadata__", None)
                spans = [(n, int(t["data_offsets"][0]), int(t["data_offsets"][1])) for n, t in tensors.items()]
            except (ValueError, TypeError, KeyError, IndexError, AttributeError):
                spans = []
            if spans:
                yield 0, 8 + header
                for _, begin, end in sorted(spans, key=lambda s: (s[1], s[0])):
                    # The middle: beginnings are zeros more often.
                    middle = (begin + end) // 2
                    at = 8 + header + max(begin, middle - _SAMPLE // 2)
                    yield at, max(0, min(_SAMPLE, 8 + header + end - at))
                return
    step = max(_SAMPLE, size // _PARTS)
    for at in range(0, size, step):
        yield at, _SAMPLE
    yield max(0, size - _SAMPLE), _SAMPLE

"""What one process of :mod:`ringcache.worker` does: resolve objects and hash them."""

from __future__ import annotations

import hashlib
import os
import signal
import sys
import threading
import types
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.process import parent_process
from multiprocessing.synchronize import Lock as ProcessLock
from typing import Any, Literal, Protocol

import msgspec

from .generation import lookup
from .items import Handle, Item, decode_item, parse_address
from .reader import Reader


class Config(msgspec.Struct, forbid_unknown_fields=True):
    """The first line of the protocol."""

    segment: str
    size: int
    max_object: int
    readers: int
    generation: str = ""
    peer: Literal["ringcache", "vllm"] = "ringcache"
    #: Seconds that start-up, and every batch, may take.
    timeout: float = 120.0


class Object(msgspec.Struct):
    key: str
    frames: list[bytes]
    #: Expected hash of every tensor; None to compare nothing.
    sha256: dict[str, str] | None = None


class Batch(msgspec.Struct):
    seq: int
    objects: list[Object]


class Result(msgspec.Struct):
    """A process's answer to a batch, and once to its start."""

    objects: int = 0
    bytes: int = 0
    errors: list[str] = []


class Resolver(Protocol):
    """Resolves a batch: touch every object, then get and verify each."""

    def __call__(self, batch: Batch) -> Result: ...


Tensors = Iterable[tuple[str, memoryview]]


def run(index: int, config: Config, lock: ProcessLock, conn: Connection) -> None:
    """The body of a worker process."""
    os.dup2(2, 1)  # a library that prints must not write into the protocol
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the supervisor ends us
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        resolver = _vllm(config, lock) if config.peer == "vllm" else _ringcache(config, lock)
    except Exception as e:
        _send(conn, Result(errors=[f"worker {index}: {type(e).__name__}: {e}"]))
        sys.exit(1)
    _send(conn, Result())
    decoder = msgspec.msgpack.Decoder(Batch)
    while True:
        try:
            message = conn.recv_bytes()
        except (EOFError, ConnectionResetError):
            return
        result = resolver(decoder.decode(message))
        result.errors = [f"worker {index}: {text}" for text in result.errors]
        _send(conn, result)


def _end_with_parent() -> None:
    # The main thread may wait for a lock whose holder died with the parent.
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _send(conn: Connection, result: Result) -> None:
    conn.send_bytes(msgspec.msgpack.encode(result))


def _compare(tensors: Tensors, want: dict[str, str] | None) -> int:
    """Number of bytes whose hashes are as expected; raises ValueError."""
    got, nbytes = {}, 0
    for place, data in tensors:
        got[place] = hashlib.sha256(data).hexdigest()
        nbytes += data.nbytes
    if want is None:
        return 0
    if got.keys() != want.keys():
        raise ValueError(f"tensors are {sorted(got)}, expected {sorted(want)}")
    for place, digest in got.items():
        if digest != want[place].lower():
            raise ValueError(f"{place}: sha256 is {digest}, expected {want[place]}")
    return nbytes


def _text(index: int, key: str, error: Exception) -> str:
    return f"object {index} (key {key!r}): {type(error).__name__}: {error}"


def _ringcache(config: Config, lock: ProcessLock) -> Resolver:
    reader = Reader(
        config.segment,
        config.size,
        generation=config.generation,
        max_object_size=config.max_object,
        n_readers=config.readers,
        lock=lock,
    )

    def touch(obj: Object) -> Handle | Item:
        item = decode_item(obj.frames, reader.generation.item_form)
        handle = parse_address(item, signed=reader.generation.signed)
        if handle is None:
            return item
        reader.touch(handle.address, handle.id, obj.key, handle.signature)
        return handle

    def get(obj: Object, found: Handle | Item) -> int:
        if isinstance(found, Item):
            return _compare(_views(found), obj.sha256)
        with reader.get(found.address, found.id, obj.key, found.signature) as view:
            return _compare(_views(view.item), obj.sha256)

    def resolve(batch: Batch) -> Result:
        result = Result(errors=[])
        touched: list[Handle | Item | None] = []
        for i, obj in enumerate(batch.objects):
            try:
                touched.append(touch(obj))
            except Exception as e:
                touched.append(None)
                result.errors.append(_text(i, obj.key, e))
        for i, (obj, found) in enumerate(zip(batch.objects, touched, strict=True)):
            if found is not None:
                _account(result, i, obj, partial(get, obj, found))
        return result

    return resolve


def _account(result: Result, index: int, obj: Object, verify: Callable[[], int]) -> None:
    try:
        nbytes = verify()
    except Exception as e:
        result.errors.append(_text(index, obj.key, e))
    else:
        result.objects += 1
        result.bytes += nbytes


def _views(item: Item) -> Tensors:
    return ((place, tensor.data) for place, tensor in item.tensors())


def _vllm(config: Config, lock: ProcessLock) -> Resolver:
    """The same with vLLM's own receiver classes."""
    # vLLM reads its environment when it is imported.
    os.environ["VLLM_OBJECT_STORAGE_SHM_BUFFER_NAME"] = config.segment.removeprefix("/")
    import torch
    import vllm
    from vllm.multimodal import inputs
    from vllm.multimodal.cache import ShmObjectStoreReceiverCache
    from vllm.v1.serial_utils import MsgpackDecoder

    installed = lookup(vllm.__version__)
    if config.generation and not lookup(config.generation).same_wire(installed):
        raise ValueError(
            f"the segment is of vLLM {config.generation}, installed is {vllm.__version__}: "
            "their wires differ"
        )
    # The config names the size as a float of GiB; a power of two divides exactly.
    gb = config.size / (1 << 30)
    assert int(gb * (1 << 30)) == config.size
    limit, rest = divmod(config.max_object, 1 << 20)
    multimodal = types.SimpleNamespace(
        mm_processor_cache_gb=gb,
        mm_processor_cache_type="shm",
        mm_shm_cache_max_object_size_mb=config.max_object / (1 << 20) if rest else limit,
    )
    vllm_config = types.SimpleNamespace(
        parallel_config=types.SimpleNamespace(world_size=config.readers),
        model_config=types.SimpleNamespace(get_multimodal_config=lambda: multimodal),
    )
    receiver = ShmObjectStoreReceiverCache(vllm_config, lock)
    decoder = MsgpackDecoder(inputs.MultiModalKwargsItem)

    def feature(obj: Object) -> Any:
        return inputs.MultiModalFeatureSpec(
            data=decoder.decode(obj.frames),
            modality="image",
            identifier=obj.key,
            mm_position=inputs.PlaceholderRange(offset=0, length=1),
            **({"mm_hash": obj.key} if installed.feature_hash else {}),
        )

    def views(place: str, data: Any) -> Iterator[tuple[str, memoryview]]:
        if isinstance(data, torch.Tensor):
            raw = data.detach().contiguous().reshape(-1).view(torch.uint8)
            yield place, memoryview(raw.numpy())
        elif isinstance(data, (list, tuple)):
            for i, inner in enumerate(data):
                yield from views(f"{place}.{i}", inner)

    def verify(obj: Object, item: Any) -> int:
        tensors = (found for key, elem in item.items() for found in views(key, elem.data))
        return _compare(tensors, obj.sha256)

    def resolve(batch: Batch) -> Result:
        result = Result(errors=[])
        try:
            features = receiver.get_and_update_features([feature(obj) for obj in batch.objects])
        except Exception as e:
            # As in an engine: one bad handle fails the whole batch.
            result.errors.append(f"batch of {len(batch.objects)}: {type(e).__name__}: {e}")
            return result
        for i, (obj, spec) in enumerate(zip(batch.objects, features, strict=True)):
            _account(result, i, obj, partial(verify, obj, spec.data))
        return result

    return resolve

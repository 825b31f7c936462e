"""Read vLLM's shared-memory multimodal cache, without torch.

A writer (vLLM's frontend, or the Go library ``ringcache``) puts the inputs of
multimodal requests into a segment of /dev/shm and sends handles; a worker
looks them up. :class:`Reader` is that worker's side, in place and checked::

    with Reader("mm0", size, generation="0.32.0", n_readers=2, lock=lock) as reader:
        handle = decode_address(frames)  # of an address item
        with reader.get(handle.address, handle.id, key, handle.signature) as view:
            pixels = view.item["pixel_values"].data.numpy()
            use(pixels)
            del pixels  # it views the segment

Everything in a segment is taken as hostile: it is bounds-checked, never
unpickled, and fails with a :class:`RingcacheError`.

:mod:`ringcache.pin` copies objects from the segment straight to a CUDA device. :mod:`ringcache.daemon`
is a client of ``ringcache serve``.
"""

from __future__ import annotations

from .errors import (
    ArgumentError,
    ClosedError,
    CorruptError,
    CounterError,
    DaemonError,
    DriverError,
    HandleError,
    LockTimeoutError,
    PinUnavailableError,
    RingcacheError,
    SegmentAccessError,
    SegmentBusyError,
    SegmentError,
    SegmentNotFoundError,
    SegmentSizeError,
    StaleError,
    UnknownVersionError,
)
from .generation import CountRule, Generation, ItemForm, lookup, newest, releases, treat_as
from .items import (
    Batched,
    Elem,
    Flat,
    Handle,
    Item,
    Shared,
    decode_address,
    decode_item,
    decode_tensor,
    parse_address,
)
from .reader import Lock, Reader, View
from .segment import Segment
from .signature import Signature, sign, verify
from .tensor import Tensor

__all__ = [
    "ArgumentError",
    "Batched",
    "ClosedError",
    "CorruptError",
    "CountRule",
    "CounterError",
    "DaemonError",
    "DriverError",
    "Elem",
    "Flat",
    "Generation",
    "Handle",
    "HandleError",
    "Item",
    "ItemForm",
    "Lock",
    "LockTimeoutError",
    "PinUnavailableError",
    "Reader",
    "RingcacheError",
    "Segment",
    "SegmentAccessError",
    "SegmentBusyError",
    "SegmentError",
    "SegmentNotFoundError",
    "SegmentSizeError",
    "Shared",
    "Signature",
    "StaleError",
    "Tensor",
    "UnknownVersionError",
    "View",
    "decode_address",
    "decode_item",
    "decode_tensor",
    "lookup",
    "newest",
    "parse_address",
    "releases",
    "sign",
    "treat_as",
    "verify",
]


def __getattr__(name: str) -> str:
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib.metadata

    try:
        return importlib.metadata.version("ringcache")
    except importlib.metadata.PackageNotFoundError:
        return "0.0.0+sources"  # run from a checkout, without an installation

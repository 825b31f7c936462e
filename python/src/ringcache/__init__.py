"""Shared memory of inference engines, from Python, without torch.

Two things keep objects there. ``ringcache serve`` is a daemon with objects by name, of anybody's: a
:class:`Client` reads and writes them, in place, under leases::

    with Client(client="example", space="photos") as client, client.lease() as lease:
        lease.put("cat", pixels)  # a numpy array
        found = lease.pin("cat")  # in any process of this user

and :class:`ringcache.aio.AsyncClient` is the same for asyncio. The other is vLLM's shared-memory
multimodal cache. A writer (vLLM's frontend, or the Go library ``ringcache``) puts the inputs of multimodal
requests into a segment of /dev/shm and sends handles; a worker looks them up.
:class:`Reader` is that worker's side, in place and checked::

    with Reader("mm0", size, generation="0.32.0", n_readers=2, lock=lock) as reader:
        handle = decode_address(frames)  # of an address item
        with reader.get(handle.address, handle.id, key, handle.signature) as view:
            pixels = view.item["pixel_values"].tensor.numpy()
            use(pixels)
            del pixels  # it views the segment

Everything in a segment is taken as hostile: it is bounds-checked, never
unpickled, and fails with a :class:`RingcacheError`.

:mod:`ringcache.pin` copies objects from the segment straight to a CUDA device. :mod:`ringcache.vllm` has
connectors for engines. :mod:`ringcache.daemon` has the daemon's protocol, operation by operation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .daemon import Client, Fingerprint
from .errors import (
    ArgumentError,
    ClosedError,
    CorruptError,
    CounterError,
    DaemonError,
    DriverError,
    ExpiredError,
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
from .lease import Lease, Pinned, Reservation
from .reader import Lock, Reader, View
from .segment import Segment
from .signature import Signature, sign, verify
from .tensor import Tensor

__all__ = [
    "ArgumentError",
    "Batched",
    "Client",
    "ClosedError",
    "CorruptError",
    "CountRule",
    "CounterError",
    "DaemonError",
    "DriverError",
    "Elem",
    "ExpiredError",
    "Fingerprint",
    "Flat",
    "Generation",
    "Handle",
    "HandleError",
    "Item",
    "ItemForm",
    "Lease",
    "Lock",
    "LockTimeoutError",
    "PinUnavailableError",
    "Pinned",
    "Reader",
    "Reservation",
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

if TYPE_CHECKING:
    __version__: str
else:  # a checker would take each name for one that is there

    def __getattr__(name: str) -> str:
        if name != "__version__":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        import importlib.metadata

        try:
            return importlib.metadata.version("ringcache")
        except importlib.metadata.PackageNotFoundError:
            return "0.0.0+sources"  # run from a checkout, without an installation

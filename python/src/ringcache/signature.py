"""Signatures of handles (vLLM 0.32 on).

A handle is bound to the cache key, the address and the id by HMAC-SHA256 under
the 32 secret bytes in front of the ring. It travels as a list of 32 integers.

The secret can be read by everyone who can map the segment: a signature keeps
requests from naming objects that they were not given, it does not keep out
another process of the same user.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from typing import Final

from .errors import HandleError

SECRET_BYTES: Final = 32
SIGNATURE_BYTES: Final = 32

# Upstream's texts.
MISSING: Final = "Missing SHM handle signature for cache key."
INVALID: Final = "Invalid SHM handle signature for cache key."


def payload(key: str, address: int, id: int) -> bytes:
    """The 44 signed bytes: SHA-256 of the key, address as u64, id as u32.

    Raises OverflowError for an address or id out of range and
    UnicodeEncodeError for a key that is not valid Unicode, as upstream.
    """
    return (
        hashlib.sha256(key.encode()).digest()
        + address.to_bytes(8, "little")
        + id.to_bytes(4, "little")
    )


def sign(secret: bytes, key: str, address: int, id: int) -> bytes:
    """The signature of a handle; ``list(sign(...))`` is what travels."""
    return hmac.digest(secret, payload(key, address, id), "sha256")


def verify(
    secret: bytes, key: str | None, address: int, id: int, signature: Sequence[int] | None
) -> None:
    """Check a signature as a reader does, in constant time.

    Only a list of 32 plain integers is accepted, as upstream. Raises
    :class:`HandleError` with upstream's texts.
    """
    if signature is None or key is None:
        raise HandleError(MISSING)
    # type() and not isinstance: True is an int, and upstream refuses it.
    if (
        type(signature) is not list
        or len(signature) != SIGNATURE_BYTES
        or not all(type(b) is int and 0 <= b <= 255 for b in signature)
        or type(key) is not str
    ):
        raise HandleError(INVALID)
    try:
        want = sign(secret, key, address, id)
    except (OverflowError, UnicodeEncodeError) as e:
        raise HandleError(INVALID) from e
    if not hmac.compare_digest(want, bytes(signature)):
        raise HandleError(INVALID)

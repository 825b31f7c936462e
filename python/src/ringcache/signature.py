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
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from ._arguments import integer, kind
from .errors import ArgumentError, HandleError

SECRET_BYTES: Final = 32
SIGNATURE_BYTES: Final = 32

#: 32 bytes, as :func:`sign` returns them or as the list of integers that travels.
Signature: TypeAlias = "bytes | bytearray | memoryview | npt.NDArray[np.uint8] | Sequence[int]"

_INT: Final = frozenset((int,))

# Of RFC 2104.
_BLOCK: Final = 64
_INNER: Final = bytes(b ^ 0x36 for b in range(256))
_OUTER: Final = bytes(b ^ 0x5C for b in range(256))

# Upstream's texts.
MISSING: Final = "Missing SHM handle signature for cache key."
INVALID: Final = "Invalid SHM handle signature for cache key."


def payload(key: str, address: int, id: int) -> bytes:
    """The 44 signed bytes: SHA-256 of the key, address as u64, id as u32.

    Raises OverflowError for an address or id out of range and
    UnicodeEncodeError for a key that is not valid Unicode, as upstream, and
    :class:`HandleError` for what is no key, address or id at all.
    """
    if not isinstance(key, str):
        raise HandleError(f"key of a handle must be a str, got {kind(key)}")
    return (
        _sha256(key.encode())
        + integer(address, "address of a handle", HandleError).to_bytes(8, "little")
        + integer(id, "id of a handle", HandleError).to_bytes(4, "little")
    )


_begun: Final = hashlib.sha256()  # to copy it is cheaper than to look the hash up by its name


def _sha256(data: bytes) -> bytes:
    hash = _begun.copy()
    hash.update(data)
    return hash.digest()


class Signer:
    """HMAC-SHA256 under one secret, whose two hashes are begun once. Threads may share it."""

    __slots__ = ("_inner", "_outer", "secret")

    def __init__(self, secret: bytes) -> None:
        self.secret: bytes = bytes(secret)
        block = self.secret if len(secret) <= _BLOCK else hashlib.sha256(secret).digest()
        block = block.ljust(_BLOCK, b"\0")
        self._inner = hashlib.sha256(block.translate(_INNER))
        self._outer = hashlib.sha256(block.translate(_OUTER))

    def sign(self, key: str, address: int, id: int) -> bytes:
        """As :func:`sign`."""
        inner, outer = self._inner.copy(), self._outer.copy()
        inner.update(payload(key, address, id))
        outer.update(inner.digest())
        return outer.digest()

    def verify(
        self, key: str | None, address: int, id: int, signature: Signature | None
    ) -> None:
        """As :func:`verify`."""
        if signature is None or key is None:
            raise HandleError(MISSING)
        given = _given(signature)
        try:
            want = self.sign(key, address, id)
        except (OverflowError, UnicodeEncodeError) as e:
            raise HandleError(INVALID) from e
        if not hmac.compare_digest(want, given):
            raise HandleError(INVALID)


def sign(secret: bytes, key: str, address: int, id: int) -> bytes:
    """The signature of a handle; ``list(sign(...))`` is what travels.

    Raises as :func:`payload`, and :class:`ArgumentError` for a secret that is not bytes.
    """
    if not isinstance(secret, (bytes, bytearray)):
        raise ArgumentError(f"secret must be bytes, got {kind(secret)}")
    return Signer(secret).sign(key, address, id)


def verify(
    secret: bytes, key: str | None, address: int, id: int, signature: Signature | None
) -> None:
    """Check a signature as a reader does, in constant time.

    It may be 32 bytes in any form, or a sequence of 32 plain integers. (Upstream
    takes a list only, which is all that can travel; :func:`parse_address` is as
    strict.) Raises :class:`HandleError`, with upstream's texts where it is the
    signature that is wrong.
    """
    if signature is None or key is None:  # whatever the secret is
        raise HandleError(MISSING)
    given = _given(signature)
    if not isinstance(secret, (bytes, bytearray)):
        raise ArgumentError(f"secret must be bytes, got {kind(secret)}")
    Signer(secret).verify(key, address, id, given)


def _given(signature: Any) -> bytes:
    if type(signature) is list and len(signature) == SIGNATURE_BYTES and _INT.issuperset(map(type, signature)):
        try:
            return bytes(signature)
        except ValueError:  # larger than a byte, or negative
            raise HandleError(INVALID) from None
    if isinstance(signature, Sequence) and not isinstance(
        signature, (str, bytes, bytearray, memoryview, range)
    ):
        # type() and not isinstance: True is an int, and upstream refuses it.
        if len(signature) != SIGNATURE_BYTES or not all(
            type(b) is int and 0 <= b <= 255 for b in signature
        ):
            raise HandleError(INVALID)
        return bytes(signature)
    try:
        view = memoryview(signature)
    except (TypeError, ValueError, BufferError) as e:
        raise HandleError(
            f"{INVALID} It must be {SIGNATURE_BYTES} bytes or integers, got {kind(signature)}"
        ) from e
    if view.ndim != 1 or view.itemsize != 1 or view.format not in ("B", "b", "c"):
        raise HandleError(f"{INVALID} It must be {SIGNATURE_BYTES} bytes, got {kind(signature)}")
    if len(view) != SIGNATURE_BYTES:
        raise HandleError(INVALID)
    return view.tobytes()

"""Tensors as views of raw bytes, without torch."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from . import _dlpack, _torch
from ._arguments import kind
from .errors import CorruptError

if TYPE_CHECKING:
    import torch

_NATIVE: Final = {
    "bool": "?",
    "uint8": "|u1",
    "uint16": "<u2",
    "uint32": "<u4",
    "uint64": "<u8",
    "int8": "|i1",
    "int16": "<i2",
    "int32": "<i4",
    "int64": "<i8",
    "float16": "<f2",
    "float32": "<f4",
    "float64": "<f8",
    "complex64": "<c8",
    "complex128": "<c16",
}

# torch's types that numpy has not, by bytes per element. Those narrower than a
# byte are stored packed, and the shape counts the packed bytes.
_FOREIGN: Final = {
    1: (
        "float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu float4_e2m1fn_x2 "
        "bits1x8 bits2x4 bits4x2 bits8 qint8 quint8 quint2x4 quint4x2 "
        "int1 int2 int3 int4 int5 int6 int7 uint1 uint2 uint3 uint4 uint5 uint6 uint7"
    ).split(),
    2: ["bfloat16", "bits16"],
    4: ["bcomplex32", "complex32", "qint32"],
}

_DTYPES: Final[dict[str, np.dtype[Any]]] = {
    **{name: np.dtype(code) for name, code in _NATIVE.items()},
    **{name: np.dtype(f"<u{width}") for width, names in _FOREIGN.items() for name in names},
}

MAX_DIMS: Final = 64

_set: Final = object.__setattr__


@dataclass(frozen=True, eq=False)
class Tensor:
    """A dense row-major tensor.

    ``data`` is a read-only view of its bytes. For a tensor that was read from a
    segment they are the segment's own: they may change when the writer reuses
    the memory, so copy what must outlive the :class:`~ringcache.reader.View`.
    """

    #: torch's name without ``torch.``, such as ``bfloat16``.
    dtype: str
    shape: tuple[int, ...]
    data: memoryview

    @classmethod
    def _unchecked(cls, dtype: str, shape: tuple[int, ...], data: memoryview) -> Tensor:
        """A tensor of what was found right before, for as many bytes."""
        tensor = cls.__new__(cls)
        _set(tensor, "dtype", dtype)
        _set(tensor, "shape", shape)
        _set(tensor, "data", data)
        return tensor

    def __post_init__(self) -> None:
        if not isinstance(self.dtype, str):
            raise CorruptError(f"tensor dtype must be a str, got {kind(self.dtype)}")
        if type(self.shape) is not tuple or any(type(n) is not int for n in self.shape):
            raise CorruptError(f"tensor shape must be a tuple of ints, got {kind(self.shape)}")
        if not isinstance(self.data, memoryview):
            raise CorruptError(f"tensor data must be a memoryview, got {kind(self.data)}")
        dtype = _DTYPES.get(self.dtype)
        if dtype is None:
            raise CorruptError(f"tensor has the unknown dtype {self.dtype[:64]!r}")
        if len(self.shape) > MAX_DIMS:
            raise CorruptError(f"tensor has {len(self.shape)} dimensions, at most {MAX_DIMS} fit")
        if any(n < 0 for n in self.shape):
            raise CorruptError(f"tensor has the negative shape {self.shape}")
        # Also with a zero among them the others must be a possible size.
        if math.prod(n for n in self.shape if n) * dtype.itemsize > sys.maxsize:
            raise CorruptError(f"tensor has the impossible shape {self.shape}")
        want = math.prod(self.shape) * dtype.itemsize
        if want != self.data.nbytes:
            raise CorruptError(
                f"tensor {self.dtype}{list(self.shape)} takes {want} bytes, has {self.data.nbytes}"
            )

    @property
    def nbytes(self) -> int:
        return self.data.nbytes

    @property
    def itemsize(self) -> int:
        """Bytes per element."""
        return _DTYPES[self.dtype].itemsize

    @property
    def is_native(self) -> bool:
        """Whether numpy has the type, so that :meth:`numpy` gives its values."""
        return self.dtype in _NATIVE

    def numpy(self) -> npt.NDArray[Any]:
        """The tensor as a read-only array over the same bytes.

        A type that numpy has not (bfloat16, the float8 types and other torch
        ones) comes as the unsigned integers of its bit patterns: bfloat16 as
        uint16, float8_e4m3fn as uint8; :attr:`is_native` is False then. The
        array may be unaligned.
        """
        array = self._array()
        array.flags.writeable = False
        return array

    def _array(self) -> npt.NDArray[Any]:
        """The same, which may be written to where the bytes may."""
        dtype = _DTYPES[self.dtype]
        if self.data.nbytes == 0:
            return np.empty(self.shape, dtype)
        # frombuffer and not ndarray(buffer=): only the former keeps the
        # memory exported, so that it cannot be unmapped under the array.
        array = np.frombuffer(self.data, dtype)
        return array if len(self.shape) == 1 else array.reshape(self.shape)

    def torch(self) -> torch.Tensor:
        """The tensor as torch's, over the same bytes, whatever its type. Never write to it: the
        bytes are the segment's, and may be mapped to read only, so that the process would end.

        Raises :class:`~ringcache.ArgumentError` if this torch has no such type.
        """
        return _torch.tensor(self.dtype, self.shape, self.data)

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """For ``from_dlpack`` of numpy, torch, jax and others: the same bytes, read-only, also of
        the types bfloat16 and float8 where the other side has them. It needs numpy 2.1.

        Raises :class:`BufferError` for what DLPack can't say.
        """
        return _dlpack.export(
            self, stream=stream, max_version=max_version, dl_device=dl_device, copy=copy
        )

    def __dlpack_device__(self) -> tuple[int, int]:
        return _dlpack.CPU

    def tobytes(self) -> bytes:
        """A copy of the bytes."""
        return self.data.tobytes()

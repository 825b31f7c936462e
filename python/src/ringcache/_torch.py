"""Bytes as torch's tensors, without a copy. Nothing else needs torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from .errors import ArgumentError

if TYPE_CHECKING:
    import torch


class TorchBytes:
    """Bytes of a tensor, for torch: they pass for writable, since it warns of others. This lives
    as long as any of torch's tensors over the bytes, and keeps what the bytes belong to."""

    def __init__(self, data: memoryview) -> None:
        self.array = np.frombuffer(data, np.uint8)
        self.address = address(self.array)
        self.__array_interface__ = {
            "version": 3,
            "typestr": "|u1",
            "shape": self.array.shape,
            "data": (self.address, False),
        }


def address(array: npt.NDArray[Any]) -> int:
    """Where the first byte of an array is in this process."""
    at: int = array.__array_interface__["data"][0]
    return at


def tensor(dtype: str, shape: tuple[int, ...], data: memoryview) -> torch.Tensor:
    """A tensor over the bytes, of torch's type of that name."""
    import torch

    found = getattr(torch, dtype, None)
    if not isinstance(found, torch.dtype):
        raise ArgumentError(f"torch {torch.__version__} has no dtype {dtype!r}")
    if not data.nbytes:
        return torch.empty(shape, dtype=found)
    raw = torch.from_numpy(np.asarray(TorchBytes(data)))
    return raw.view(found).view(shape)

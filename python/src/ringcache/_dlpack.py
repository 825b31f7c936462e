"""DLPack, by which numpy, torch, jax and others take each other's memory without a copy."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from .tensor import Tensor

#: DLPack's name of ordinary memory, and the number of its only device.
CPU: Final = (1, 0)

# DLPack's codes of the types that numpy has not, all of one lane (dlpack.h, DLDataTypeCode).
_CODES: Final = {
    "bfloat16": 4,
    "float8_e4m3fn": 10,
    "float8_e4m3fnuz": 11,
    "float8_e5m2": 12,
    "float8_e5m2fnuz": 13,
    "float8_e8m0fnu": 14,
}

# Where a DLManagedTensorVersioned has the code of the type: behind its version, context, deleter and flags,
# and DLTensor's data, device and number of dimensions.
_CODE_AT: Final = 52
_NAME: Final = b"dltensor_versioned"

_get = ctypes.pythonapi.PyCapsule_GetPointer
_get.restype = ctypes.c_void_p
_get.argtypes = [ctypes.py_object, ctypes.c_char_p]


def export(
    tensor: Tensor,
    *,
    stream: Any,
    max_version: tuple[int, int] | None,
    dl_device: tuple[int, int] | None,
    copy: bool | None,
) -> Any:
    """The capsule of a tensor that may only be read, which DLPack can say since its version 1.0."""
    if stream is not None:
        raise BufferError("the tensor is in ordinary memory, which has no streams: give no stream")
    if dl_device is not None and tuple(dl_device) != CPU:
        raise BufferError(
            "the tensor is in ordinary memory: take it there, and copy it to the device"
        )
    if max_version is None or max_version[0] < 1:
        raise BufferError(
            "the tensor may only be read, which the importing library can't be told: it is older than "
            "DLPack 1.0. Take numpy() or torch() of the tensor, or a copy"
        )
    code = _CODES.get(tensor.dtype)
    if code is None and not tensor.is_native:
        raise BufferError(
            f"DLPack has no type {tensor.dtype!r}: take numpy(), which gives the bit patterns"
        )
    array: Any = tensor.numpy()
    try:
        capsule = array.__dlpack__(max_version=(1, 0), copy=copy)
    except TypeError:
        raise BufferError("this needs numpy 2.1 or newer") from None
    if code is not None:
        at = _get(capsule, _NAME) + _CODE_AT
        ctypes.c_uint8.from_address(at).value = code  # in place of that of the unsigned integers
    return capsule

"""Checks of arguments, so that an odd one is named where it came in."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from .errors import ArgumentError


def integer(value: Any, what: str, error: type[Exception] = ArgumentError) -> int:
    """An int, or what stands for one, such as numpy's. A bool does not."""
    if type(value) is int:
        return value
    if not isinstance(value, (bool, np.bool_, np.ndarray)):
        try:
            return operator.index(value)
        except TypeError:
            pass
    raise error(f"{what} must be an int, got {kind(value)}")


def kind(value: Any) -> str:
    return type(value).__name__

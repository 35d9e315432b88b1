"""The array module of an array (NumPy for host arrays, CuPy for CUDA arrays), and moving between devices."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from .errors import missing_extra


def xp(*arrays: Any) -> Any:
    """The namespace that makes arrays like these: ``numpy``, or ``cupy`` if one of them lives on a CUDA device."""
    for array in arrays:
        if not isinstance(array, np.ndarray) and type(array).__module__.partition(".")[0] == "cupy":
            return sys.modules["cupy"]
    return np


def device_of(array: Any) -> str:
    """``"cpu"`` or ``"cuda:<n>"``."""
    return "cpu" if xp(array) is np else f"cuda:{array.device.id}"


def to_device(array: Any, device: str) -> Any:
    """``array`` on ``"cpu"``, ``"cuda"`` or ``"cuda:<n>"``; the array itself if it is there already.

    Raises ValueError for another name, ImportError if CuPy is not installed.
    """
    kind, _, number = str(device).partition(":")
    if kind == "cpu" and not number:
        return array if xp(array) is np else array.get()
    if kind != "cuda" or (number and not number.isdigit()):
        raise ValueError(f"unknown device {device!r}: expected 'cpu', 'cuda' or 'cuda:<n>'")
    try:
        import cupy
    except ImportError:
        raise missing_extra("CuPy", "cuda12", f"device {device!r}") from None
    with cupy.cuda.Device(int(number or 0)):
        return cupy.asarray(array)

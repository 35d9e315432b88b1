"""The array module of an array: NumPy for host arrays, CuPy for CUDA arrays."""
from __future__ import annotations

import sys
from typing import Any

import numpy as np


def xp(*arrays: Any) -> Any:
    """The namespace that makes arrays like these: ``numpy``, or ``cupy`` if one of them lives on a CUDA device."""
    for array in arrays:
        if not isinstance(array, np.ndarray) and type(array).__module__.partition(".")[0] == "cupy":
            return sys.modules["cupy"]
    return np


def device_of(array: Any) -> str:
    """``"cpu"`` or ``"cuda:<n>"``."""
    return "cpu" if xp(array) is np else f"cuda:{array.device.id}"

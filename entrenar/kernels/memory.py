"""Memory for what kernels and products return: arrays that are written in full before anybody reads them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..array import Array


def empty(shape: Any, dtype: Any) -> Array:
    """An array of unspecified content, C order."""
    return np.empty(shape, dtype)


def empty_like(x: Array) -> Array:
    """An array of the shape and dtype of ``x``, C order whatever the order of ``x``."""
    return empty(x.shape, x.dtype)

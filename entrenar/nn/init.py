"""Initialisers: overwrite a tensor's values in place, by counter-based random numbers, and return the tensor.

Names, formulas and defaults are PyTorch's ``nn.init``; the numbers are those of ``en.Generator`` (the default one
unless given), so that an initialisation depends on the seed and on the order of the draws, not on the machine.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

from ..array import Generator, default_generator, xp
from ..autograd import Tensor

_EMPTY: ContextVar[bool] = ContextVar("initialisers leave tensors as they are", default=False)


@contextlib.contextmanager
def left_empty() -> Iterator[None]:
    """Inside, initialisers draw and write nothing: for layers whose weights come from a file, or are drawn later."""
    token = _EMPTY.set(True)
    try:
        yield
    finally:
        _EMPTY.reset(token)


def constant_(tensor: Tensor, value: float) -> Tensor:
    """``value`` everywhere."""
    if not _EMPTY.get():
        tensor.write(value)
    return tensor


def zeros_(tensor: Tensor) -> Tensor:
    """0 everywhere."""
    return constant_(tensor, 0.0)


def ones_(tensor: Tensor) -> Tensor:
    """1 everywhere."""
    return constant_(tensor, 1.0)


def uniform_(tensor: Tensor, low: float = 0.0, high: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Uniform in [low, high).  Raises ValueError unless low <= high."""
    if not low <= high:
        raise ValueError(f"uniform_ needs low <= high, got low={low}, high={high}")
    if _EMPTY.get():
        return tensor
    values = (generator or default_generator).uniform(tensor.shape, tensor.dtype)
    _store(tensor, values * values.dtype.type(high - low) + values.dtype.type(low))
    return tensor


def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Normal with this mean and standard deviation.  Raises ValueError for a negative ``std``."""
    if std < 0:
        raise ValueError(f"normal_ needs std >= 0, got {std}")
    if _EMPTY.get():
        return tensor
    values = (generator or default_generator).normal(tensor.shape, tensor.dtype)
    _store(tensor, values * values.dtype.type(std) + values.dtype.type(mean))
    return tensor


def kaiming_uniform_(tensor: Tensor, a: float = 0.0, generator: Generator | None = None) -> Tensor:
    """Uniform in +-sqrt(6 / ((1 + a^2) fan_in)), for a leaky_relu of slope ``a`` (He et al. 2015, eq. 14)."""
    bound = math.sqrt(6.0 / ((1.0 + a * a) * max(fans(tensor)[0], 1)))
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(tensor: Tensor, a: float = 0.0, generator: Generator | None = None) -> Tensor:
    """Normal with std sqrt(2 / ((1 + a^2) fan_in)) (He et al. 2015, eq. 14)."""
    return normal_(tensor, 0.0, math.sqrt(2.0 / ((1.0 + a * a) * max(fans(tensor)[0], 1))), generator)


def xavier_uniform_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Uniform in +-gain sqrt(6 / (fan_in + fan_out)) (Glorot and Bengio 2010, eq. 16)."""
    bound = gain * math.sqrt(6.0 / max(sum(fans(tensor)), 1))
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Normal with std gain sqrt(2 / (fan_in + fan_out)) (Glorot and Bengio 2010, eq. 12)."""
    return normal_(tensor, 0.0, gain * math.sqrt(2.0 / max(sum(fans(tensor)), 1)), generator)


def fans(tensor: Tensor) -> tuple[int, int]:
    """(fan_in, fan_out) of a weight of layout (out, in, *kernel).  Raises ValueError for fewer than 2 axes."""
    if tensor.ndim < 2:
        raise ValueError(f"fan_in and fan_out need a weight of at least 2 axes, got shape {tensor.shape}")
    field = math.prod(tensor.shape[2:])
    return tensor.shape[1] * field, tensor.shape[0] * field


def _store(tensor: Tensor, values: Any) -> None:
    """Write host numbers into a tensor on any device."""
    tensor.write(xp(tensor.data).asarray(values))


__all__ = [
    "constant_",
    "fans",
    "kaiming_normal_",
    "kaiming_uniform_",
    "left_empty",
    "normal_",
    "ones_",
    "uniform_",
    "xavier_normal_",
    "xavier_uniform_",
    "zeros_",
]

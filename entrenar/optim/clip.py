"""Gradient clipping by global norm and by value."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np

from ..array import FLOAT64, Array, EntrenarError
from ..autograd import Tensor
from ..autograd.tape import wrote
from .optimizer import blocks
from .parameters import named


class NonFiniteGradient(EntrenarError, FloatingPointError):
    """A gradient is NaN or infinite; the message names its parameter."""


def grad_norm(params: Any) -> tuple[float, str | None]:
    """(2-norm over all gradients, name of the first parameter whose gradient is not finite).

    Summed in float64, and once more with scaling if float64 squares overflow, so a finite gradient has a finite norm.
    0 if no parameter has a gradient.
    """
    grads = [(name, t.grad.data) for name, t in named(params, "grad_norm") if t.grad is not None]
    total = 0.0
    with np.errstate(over="ignore", invalid="ignore"):
        total = sum(_squares(g) for _, g in grads)
        if math.isfinite(total):
            return math.sqrt(total), None
        for name, g in grads:
            if not all(bool(np.isfinite(part).all()) for (part,) in blocks(g)):
                return (math.nan if math.isnan(total) else math.inf), name
        largest = max(float(np.abs(g).max()) for _, g in grads if g.size)
        return largest * math.sqrt(sum(_squares(g, largest) for _, g in grads)), None


def _squares(g: Array, scale: float = 1.0) -> float:
    total = 0.0
    for (part,) in blocks(g):
        wide = part.astype(FLOAT64).reshape(-1)
        if scale != 1.0:
            wide /= scale
        total += float(wide @ wide)
    return total


def clip_grad_norm_(params: Any, max_norm: float, *, error_if_nonfinite: bool = False) -> float:
    """Scale all gradients by max_norm / norm if their global 2-norm is larger; returns the norm before.

    Pascanu et al. 2013, algorithm 1.

    params: tensors or (name, tensor) pairs; those without a gradient are skipped.  The norm is taken in float64.
    A norm that is not finite leaves every gradient as it is and names the parameter: in a NonFiniteGradient error if
    ``error_if_nonfinite``, else in a warning.  Raises ValueError for a ``max_norm`` that is not a positive number.
    """
    _positive("clip_grad_norm_", "max_norm", max_norm)
    pairs = list(named(params, "clip_grad_norm_"))
    norm, culprit = grad_norm(pairs)
    if culprit is not None:
        message = f"the gradient of {culprit} is not finite (norm {norm}): gradients were left as they are"
        if error_if_nonfinite:
            raise NonFiniteGradient(message)
        warnings.warn(message, RuntimeWarning, stacklevel=2)
    elif norm > max_norm:
        scale_grads(pairs, max_norm / norm)
    return np.float64(norm)  # a float that also has PyTorch's .item()


def scale_grads(params: Any, factor: float) -> None:
    """Multiply every gradient by ``factor`` in place."""
    for tensor in _graded(params):
        g = tensor.data
        tiny = factor != 0 and abs(factor) < float(np.finfo(np.float32).tiny)  # would lose bits as a float32
        for (part,) in blocks(g):
            if tiny:
                part[...] = part.astype(FLOAT64) * factor
            else:
                np.multiply(part, part.dtype.type(factor), out=part)
        wrote(g)


def clip_grad_value_(params: Any, clip_value: float) -> None:
    """Clip every element of every gradient to [-clip_value, clip_value] in place; NaN stays NaN.

    Raises ValueError for a ``clip_value`` that is not a positive number.
    """
    _positive("clip_grad_value_", "clip_value", clip_value)
    for tensor in _graded(params):
        low, high = (tensor.data.dtype.type(v) for v in (-clip_value, clip_value))
        np.clip(tensor.data, low, high, out=tensor.data)
        wrote(tensor.data)


def _graded(params: Any) -> list[Tensor]:
    return [t.grad for _, t in named(params, "clip") if t.grad is not None]


def _positive(who: str, name: str, value: float) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
        raise ValueError(f"{who}: {name} must be a positive number, got {value!r}")

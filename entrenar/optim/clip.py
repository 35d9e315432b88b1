"""Gradient clipping by global norm and by value."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np

from ..array import FLOAT64, Array, EntrenarError
from ..autograd import Tensor
from ..autograd.modes import mode
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
    arrays = [g for _, g in grads]
    with np.errstate(over="ignore", invalid="ignore"):
        total = _sum_squares(arrays)
        if math.isfinite(total):
            return math.sqrt(total), None
        for name, g in grads:
            if not all(bool(np.isfinite(part).all()) for (part,) in blocks(g)):
                return (math.nan if math.isnan(total) else math.inf), name
        largest = max(float(np.abs(g).max()) for g in arrays if g.size)
        return largest * math.sqrt(_sum_squares(arrays, largest)), None


def _sum_squares(arrays: list[Array], scale: float = 1.0) -> float:
    """The sum of (g / scale)**2 in float64."""
    if mode().backend in (None, "numba") and all(isinstance(g, np.ndarray) for g in arrays):
        from ..kernels.numba.optimizers import sum_squares

        return sum_squares(arrays, scale)
    total = 0.0
    for g in arrays:
        for (part,) in blocks(g):
            wide = part.astype(FLOAT64).reshape(-1)
            if scale != 1.0:
                wide /= scale
            total += float(wide @ wide)
    return total


def clip_factor(params: Any, max_norm: float, *, error_if_nonfinite: bool = False) -> tuple[float, float]:
    """(global 2-norm of the gradients, what to multiply them with so that it is at most ``max_norm``).

    For ``optimizer.step(scale=factor)``: what ``clip_grad_norm_`` does without a pass over the gradients, the same bits
    but for 16-bit gradients, which are not rounded once more.  Arguments and errors are those of ``clip_grad_norm_``.
    """
    _positive("clip_factor", "max_norm", max_norm)
    return _clipping(params, max_norm, error_if_nonfinite, "gradients are to be left as they are")


def clip_grad_norm_(params: Any, max_norm: float, *, error_if_nonfinite: bool = False) -> float:
    """Scale all gradients by max_norm / norm if their global 2-norm is larger; returns the norm before.

    Pascanu et al. 2013, algorithm 1.

    params: tensors or (name, tensor) pairs; those without a gradient are skipped.  The norm is taken in float64.
    A norm that is not finite leaves every gradient as it is and names the parameter: in a NonFiniteGradient error if
    ``error_if_nonfinite``, else in a warning.  Raises ValueError for a ``max_norm`` that is not a positive number.
    """
    _positive("clip_grad_norm_", "max_norm", max_norm)
    pairs = list(named(params, "clip_grad_norm_"))
    norm, factor = _clipping(pairs, max_norm, error_if_nonfinite, "gradients were left as they are")
    if factor != 1:
        scale_grads(pairs, factor)
    return norm


def _clipping(params: Any, max_norm: float, error: bool, outcome: str) -> tuple[float, float]:
    norm, culprit = grad_norm(params)
    if culprit is not None:
        message = f"the gradient of {culprit} is not finite (norm {norm}): {outcome}"
        if error:
            raise NonFiniteGradient(message)
        warnings.warn(message, RuntimeWarning, stacklevel=3)
    factor = max_norm / norm if culprit is None and norm > max_norm else 1.0
    return np.float64(norm), factor  # a float that also has PyTorch's .item()


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

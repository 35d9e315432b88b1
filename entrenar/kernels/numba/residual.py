"""The residual stream: x + residual and its normalisation in one pass, both cotangents back in one pass.

The sum is an output, so it lives on as the next block's residual: it is kept for backward by reference, at no cost.
"""

from __future__ import annotations

from typing import Any

from ...array import Array, is_low
from .. import kernel
from .norms import accepted, backward, forward
from .words import low


def fits(x: Array, residual: Array, w: Array | None = None, b: Array | None = None, *, eps: float = 0.0) -> bool:
    """x and residual of one shape and dtype, and what the normalisation takes."""
    return x.shape == residual.shape and x.dtype == residual.dtype and accepted(x, w, b, eps=eps)


@low()
def added(x: Array, residual: Array) -> Array:
    """Their sum."""
    return x + residual


def summed(x: Array, residual: Array, w: Array | None, b: Array | None, eps: float, centred: bool) -> Any:
    """(y, mean, rstd, sum); of 16-bit floats it is the rounded sum that is normalised, since backward has no other."""
    if is_low(x.dtype):
        total = added(x, residual)
        return *forward(total, w, b, None, eps, centred), total
    return forward(x, w, b, None, eps, centred, residual)


@kernel("add_layer_norm", backend="numba", when=fits, saves=("total", "mean", "rstd"))
def add_layer_norm(x: Array, residual: Array, w: Array | None, b: Array | None, *, eps: float) -> Any:
    """(sum, its layer_norm)."""
    y, mean, rstd, total = summed(x, residual, w, b, eps, True)
    return total, y, total, mean, rstd


@kernel("add_layer_norm.vjp", backend="numba")
def add_layer_norm_vjp(
    g0: Array,
    g1: Array,
    w: Array | None,
    b: Array | None,
    total: Array,
    mean: Array,
    rstd: Array,
    *,
    needs: tuple[bool, ...],
) -> tuple[Array, Array, Array, Array]:
    """Cotangents of x, residual (the same), w and b."""
    gx, gw, gb = backward(g1, total, w, b, None, mean, rstd, True, needs[2] or needs[3], g0)
    return gx, gx, gw, gb


@kernel("add_rms_norm", backend="numba", when=fits, saves=("total", "mean", "rstd"))
def add_rms_norm(x: Array, residual: Array, w: Array | None, *, eps: float) -> Any:
    """(sum, its rms_norm)."""
    y, mean, rstd, total = summed(x, residual, w, None, eps, False)
    return total, y, total, mean, rstd


@kernel("add_rms_norm.vjp", backend="numba")
def add_rms_norm_vjp(
    g0: Array, g1: Array, w: Array | None, total: Array, mean: Array, rstd: Array, *, needs: tuple[bool, ...]
) -> tuple[Array, Array, Array]:
    """Cotangents of x, residual (the same) and w."""
    gx, gw, _ = backward(g1, total, w, None, None, mean, rstd, False, needs[2], g0)
    return gx, gx, gw

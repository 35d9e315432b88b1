"""Projections after gelu and layer_norm.  What goes into the product is made once forward and once more backward.

bfloat16 operands are multiplied as they are; float16, for which no processor here has a product, is for the composites.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...array import Array, wide
from .. import kernel
from ..pool import split
from ..products import matmul
from . import activations, norms
from .jit import contiguous, floats, rows
from .words import low


def project(h: Array, w: Array, b: Array | None) -> Array:
    """h w^T + b over the last axis."""
    y = matmul(rows(h, h.shape[-1]), w.T, None if b is None else contiguous(wide(b)))
    return y.reshape(*h.shape[:-1], len(w))


def project_vjp(g: Array, h: Array, w: Array, needs: tuple[bool, bool, bool]) -> tuple[Array | None, ...]:
    """Cotangents of h, w (in the memory order of w) and b."""
    g, flat = rows(g, len(w)), rows(h, h.shape[-1])
    turned = w.flags.f_contiguous and not w.flags.c_contiguous
    return (
        matmul(g, w).reshape(h.shape) if needs[0] else None,
        None if not needs[1] else matmul(flat.T, g).T if turned else matmul(g.T, flat),
        column_sums(g) if needs[2] else None,
    )


@low()
def column_sums(x: Array) -> Array:
    """Sums over rows, each column by one thread from the first row to the last."""
    y = np.empty(x.shape[1], x.dtype)
    split(_column_sums, x.shape[1], len(x), x, y)
    return y


def _column_sums(x: Array, y: Array, start: int, stop: int) -> None:
    np.add.reduce(x[:, start:stop], axis=0, out=y[start:stop])


def fits(x: Array, w: Array, b: Array | None, *others: Array) -> bool:
    """One dtype that has products, and shapes of a projection; others are for the composite."""
    return (
        floats(x, w, b, *others)
        and x.dtype != np.float16
        and x.ndim > 0
        and w.ndim == 2
        and x.shape[-1] == w.shape[1]
        and (b is None or b.shape == w.shape[:1])
    )


@kernel(
    "gelu_linear",
    backend="numba",
    when=lambda x, w, b, *, approximate: fits(x, w, b) and approximate in ("none", "tanh"),
)
def gelu_linear(x: Array, w: Array, b: Array | None, *, approximate: str) -> Array:
    """gelu, then the product."""
    return project(activations.gelu(x, approximate=approximate), w, b)


@kernel("gelu_linear.vjp", backend="numba")
def gelu_linear_vjp(g: Array, x: Array, w: Array, *, approximate: str, needs: tuple[bool, ...]) -> Any:
    """Cotangents of x, w, b."""
    h = activations.gelu(x, approximate=approximate) if needs[1] else x
    gh, gw, gb = project_vjp(g, h, w, (needs[0], needs[1], needs[2]))
    return None if gh is None else activations.gelu_vjp(gh, x, approximate=approximate), gw, gb


@kernel(
    "norm_linear",
    backend="numba",
    when=lambda x, gain, shift, w, b, *, eps: fits(x, w, b, gain, shift) and gain.shape == shift.shape == x.shape[-1:],
    saves=("mean", "rstd"),
)
def norm_linear(x: Array, gain: Array, shift: Array, w: Array, b: Array | None, *, eps: float) -> Any:
    """layer_norm of the last axis, then the product."""
    h, mean, rstd = norms.forward(x, gain, shift, None, eps, True)
    return project(h, w, b), mean, rstd


@kernel("norm_linear.vjp", backend="numba")
def norm_linear_vjp(
    g: Array,
    x: Array,
    gain: Array,
    shift: Array,
    w: Array,
    mean: Array,
    rstd: Array,
    *,
    eps: float,
    needs: tuple[bool, ...],
) -> Any:
    """Cotangents of x, gain, shift, w, b."""
    h = norms.forward(x, gain, shift, None, eps, True)[0] if needs[3] else x
    gh, gw, gb = project_vjp(g, h, w, (any(needs[:3]), needs[3], needs[4]))
    if gh is None:
        return None, None, None, gw, gb
    inner = norms.backward(gh, x, gain, shift, None, mean, rstd, True, needs[1] or needs[2])
    return *inner, gw, gb

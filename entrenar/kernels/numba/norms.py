"""layer_norm and rms_norm over rows: one reading of x forward, one of x and g backward.

Both are y = (x - m) r w + b with r = 1 / sqrt(mean((x - m)^2) + eps); rms_norm has m = 0 and no b.  With
h = (x - m) r and u = g w the pullback is dx = r (u - mean(u) - h mean(u h)), without mean(u) for rms_norm,
dw = sum(g h), db = sum(g), both over rows.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...array import Array
from .. import kernel, memory
from ..pool import split
from .jit import dots_shifted, floats, jit, rows, total, total_squares, wide
from .words import low

BLOCK = 32  # rows per partial sum of dw and db: fixed, so that the number of threads changes nothing


@jit
def norm_rows(
    x: Any,
    residual: Any,
    w: Any,
    b: Any,
    eps: Any,
    over: Any,
    centred: Any,
    summed: Any,
    y: Any,
    mean: Any,
    rstd: Any,
    start: int,
    stop: int,
) -> None:
    """y, mean and 1 / standard deviation of rows start to stop; ``over`` is 1 / columns.

    If ``residual`` has rows, it is x + residual, left in ``summed``, that is normalised.
    """
    wide()
    one = x.dtype.type(1)
    for i in range(start, stop):
        row = x[i]
        if residual.size:
            row = summed[i]
            for j in range(row.size):
                row[j] = x[i, j] + residual[i, j]
        m = total(row) * over if centred else x.dtype.type(0)
        r = one / np.sqrt(total_squares(row, m) * over + eps)
        mean[i] = m
        rstd[i] = r
        for j in range(row.size):
            y[i, j] = (row[j] - m) * r * w[j] + b[j]


@jit
def norm_rows_vjp(
    g: Any,
    more: Any,
    x: Any,
    w: Any,
    mean: Any,
    rstd: Any,
    over: Any,
    centred: Any,
    weights: Any,
    gx: Any,
    gw: Any,
    gb: Any,
    start: int,
    stop: int,
) -> None:
    """gx of every row in blocks start to stop and, if ``weights``, the sums of each block into its row of gw and gb.

    If ``more`` has rows, they are added to gx: the cotangent that reaches x along another way.
    """
    wide()
    rows, n = x.shape
    for p in range(start, stop):
        for i in range(p * BLOCK, min(p * BLOCK + BLOCK, rows)):
            m, r = mean[i], rstd[i]
            a, c = dots_shifted(g[i], w, x[i], m)
            a = a * over if centred else x.dtype.type(0)
            c = c * r * over
            for j in range(n):
                gx[i, j] = r * (g[i, j] * w[j] - a - (x[i, j] - m) * r * c)
            if more.size:
                for j in range(n):
                    gx[i, j] += more[i, j]
            if weights:
                for j in range(n):
                    gw[p, j] += g[i, j] * ((x[i, j] - m) * r)
                for j in range(n):
                    gb[p, j] += g[i, j]


@low(exact=(1, 2))
def forward(
    x: Array,
    w: Array | None,
    b: Array | None,
    axes: int | None,
    eps: float,
    centred: bool,
    residual: Array | None = None,
) -> Any:
    """(y, mean, rstd) of x, or (y, mean, rstd, x + residual) of x + residual."""
    n = _columns(x, w, b, axes)
    over = rows(x, n)
    kind = x.dtype.type
    y, mean, rstd = memory.empty_like(over), np.empty(len(over), x.dtype), np.empty(len(over), x.dtype)
    none = np.empty((0, n), x.dtype)
    added, summed = (none, none) if residual is None else (rows(residual, n), memory.empty_like(over))
    split(
        norm_rows,
        len(over),
        n,
        over,
        added,
        _vector(w, n, 1, x.dtype),
        _vector(b, n, 0, x.dtype),
        kind(eps),
        kind(1 / n),
        centred,
        summed,
        y,
        mean,
        rstd,
    )
    y = y.reshape(x.shape)
    return (y, mean, rstd) if residual is None else (y, mean, rstd, summed.reshape(x.shape))


@low()
def backward(
    g: Array,
    x: Array,
    w: Array | None,
    b: Array | None,
    axes: int | None,
    mean: Array,
    rstd: Array,
    centred: bool,
    weights: bool,
    more: Array | None = None,
) -> tuple[Array, Array, Array]:
    """Cotangents of x (plus ``more``), w and b (zeros for w and b unless ``weights``)."""
    over = rows(x, _columns(x, w, b, axes))
    count, n = over.shape
    blocks = -(-count // BLOCK)
    gx, gw, gb = memory.empty_like(over), np.zeros((blocks, n), x.dtype), np.zeros((blocks, n), x.dtype)
    split(
        norm_rows_vjp,
        blocks,
        BLOCK * n,
        rows(g, n),
        np.empty((0, n), x.dtype) if more is None else rows(more, n),
        over,
        _vector(w, n, 1, x.dtype),
        mean,
        rstd,
        x.dtype.type(1 / n),
        centred,
        weights,
        gx,
        gw,
        gb,
    )
    shape = next((a.shape for a in (w, b) if a is not None), (n,))
    return gx.reshape(x.shape), gw.sum(0).reshape(shape), gb.sum(0).reshape(shape)


def _columns(x: Array, w: Array | None, b: Array | None, axes: int | None) -> int:
    """Elements of the trailing axes that are normalised together."""
    return math.prod(x.shape[x.ndim - _count(w, b, axes) :])


def _count(w: Array | None, b: Array | None, axes: int | None) -> int:
    return next((a.ndim for a in (w, b) if a is not None), 1) if axes is None else axes


def _vector(value: Array | None, n: int, fill: int, dtype: Any) -> Array:
    return np.full(n, fill, dtype) if value is None else rows(value, n)[0]


def accepted(
    x: Array, w: Array | None = None, b: Array | None = None, *, axes: int | None = None, eps: float = 0.0
) -> bool:
    """One dtype, shapes that fit; anything else is for the composite to compute or refuse."""
    count = _count(w, b, axes)
    if not floats(x, w, b) or not 0 < count <= x.ndim:
        return False
    return all(a.shape == x.shape[x.ndim - count :] for a in (w, b) if a is not None)


@kernel("layer_norm", backend="numba", when=accepted, saves=("mean", "rstd"))
def layer_norm(x: Array, w: Array | None, b: Array | None, *, axes: int | None, eps: float) -> Any:
    """Mean and variance of the last axes, then scale and shift."""
    return forward(x, w, b, axes, eps, True)


@kernel("layer_norm.vjp", backend="numba")
def layer_norm_vjp(
    g: Array,
    x: Array,
    w: Array | None,
    b: Array | None,
    mean: Array,
    rstd: Array,
    *,
    axes: int | None,
    needs: tuple[bool, ...],
) -> tuple[Array, Array, Array]:
    """Cotangents of x, w, b."""
    return backward(g, x, w, b, axes, mean, rstd, True, needs[1] or needs[2])


@kernel("rms_norm", backend="numba", when=accepted, saves=("rstd",))
def rms_norm(x: Array, w: Array | None, *, axes: int | None, eps: float) -> Any:
    """Mean square of the last axes, then scale."""
    y, _, rstd = forward(x, w, None, axes, eps, False)
    return y, rstd


@kernel("rms_norm.vjp", backend="numba")
def rms_norm_vjp(g: Array, x: Array, w: Array | None, rstd: Array, *, axes: int | None, needs: tuple[bool, ...]) -> Any:
    """Cotangents of x, w."""
    return backward(g, x, w, None, axes, np.zeros_like(rstd), rstd, False, needs[1])[:2]

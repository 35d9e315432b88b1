"""Cross entropy of logits with integer targets.  One number per row is kept, the log of its sum of exponentials."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...array import Array
from .. import kernel
from ..pool import split
from .jit import exp, floats, jit, row_max, rows, total_exp


@jit
def cross_entropy_rows(x: Any, targets: Any, ignored: int, loss: Any, lse: Any, start: int, stop: int) -> None:
    """loss = lse - x[target], lse = log(sum(e**x)); 0 for an ignored row."""
    zero = x.dtype.type(0)
    for i in range(start, stop):
        if targets[i] == ignored:
            loss[i] = zero
            continue
        top = row_max(x[i])
        if np.abs(top) == np.inf:
            top = zero
        lse[i] = np.log(total_exp(x[i], top)) + top
        loss[i] = lse[i] - x[i, targets[i]]


@jit
def cross_entropy_rows_vjp(
    g: Any, x: Any, targets: Any, ignored: int, lse: Any, gx: Any, start: int, stop: int
) -> None:
    """gx = g (e**(x - lse) - onehot(target)); exact zeros for an ignored row and for a zero cotangent."""
    zero = x.dtype.type(0)
    for i in range(start, stop):
        if targets[i] == ignored or g[i] == zero:
            gx[i] = zero
            continue
        if lse[i] == -np.inf:
            gx[i] = zero
        else:
            for j in range(x.shape[1]):
                gx[i, j] = g[i] * exp(x[i, j] - lse[i])
        gx[i, targets[i]] -= g[i]


def accepted(x: Array, targets: Array, weight: Array | None, *, label_smoothing: float, ignore_index: int) -> bool:
    """Plain targets; weights and smoothing are for the composite."""
    return floats(x) and x.ndim == 2 and weight is None and label_smoothing == 0


@kernel("row_losses", backend="numba", when=accepted, saves=("lse",))
def row_losses(x: Array, targets: Array, weight: None, *, label_smoothing: float, ignore_index: int) -> Any:
    """One loss per row."""
    x = rows(x, x.shape[1])
    loss, lse = np.empty(len(x), x.dtype), np.empty(len(x), x.dtype)
    split(cross_entropy_rows, *x.shape, x, _indices(targets), ignore_index, loss, lse)
    return loss, lse


@kernel("row_losses.vjp", backend="numba")
def row_losses_vjp(g: Array, x: Array, targets: Array, lse: Array, *, ignore_index: int) -> Any:
    """The cotangent of x."""
    x = rows(x, x.shape[1])
    gx = np.empty_like(x)
    split(cross_entropy_rows_vjp, *x.shape, rows(g, g.size)[0], x, _indices(targets), ignore_index, lse, gx)
    return gx, None, None


def _indices(targets: Array) -> Array:
    return rows(targets.astype(np.int64, copy=False), targets.size)[0]

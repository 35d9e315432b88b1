"""Cross entropy of logits with integer targets.  One number per row is kept, the log of its sum of exponentials.

Fused with the projection to the logits, it makes these for some rows at a time, turns them into their own cotangent
where they lie and multiplies this into the gradients: with the loss a scalar, they are known up to one factor.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...array import Array, is_low, wide
from .. import kernel
from ..memory import empty, empty_like
from ..pool import split
from ..products import add_matmul, matmul
from .jit import contiguous, exp, floats, jit, row_max, rows, total, total_exp
from .words import low as lowered, narrowed

ROOM = 1 << 26  # bytes of logits at a time


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
@lowered(exact=(1,))
def row_losses(x: Array, targets: Array, weight: None, *, label_smoothing: float, ignore_index: int) -> Any:
    """One loss per row."""
    x = rows(x, x.shape[1])
    loss, lse = np.empty(len(x), x.dtype), np.empty(len(x), x.dtype)
    split(cross_entropy_rows, *x.shape, x, _indices(targets), ignore_index, loss, lse)
    return loss, lse


@kernel("row_losses.vjp", backend="numba")
@lowered()
def row_losses_vjp(g: Array, x: Array, targets: Array, lse: Array, *, ignore_index: int) -> Any:
    """The cotangent of x."""
    x = rows(x, x.shape[1])
    gx = empty_like(x)
    split(cross_entropy_rows_vjp, *x.shape, rows(g, g.size)[0], x, _indices(targets), ignore_index, lse, gx)
    return gx, None, None


def _indices(targets: Array) -> Array:
    return rows(targets.astype(np.int64, copy=False), targets.size)[0]


# with the projection ------------------------------------------------------------------------------------------
@jit
def loss_rows(z: Any, targets: Any, ignored: int, over: Any, wanted: bool, loss: Any, start: int, stop: int) -> None:
    """loss as above and, if ``wanted``, z becomes its own cotangent times 1 / ``over``."""
    zero = z.dtype.type(0)
    for i in range(start, stop):
        if targets[i] == ignored:
            loss[i] = zero
            z[i] = zero
            continue
        row = z[i]
        top = row_max(row)
        if np.abs(top) == np.inf:
            top = zero
        picked = row[targets[i]]
        if not wanted:
            loss[i] = np.log(total_exp(row, top)) + top - picked
            continue
        for j in range(row.size):
            row[j] = exp(row[j] - top)
        s = total(row)
        loss[i] = np.log(s) + top - picked
        factor = zero if s == zero else over / s
        for j in range(row.size):
            row[j] *= factor
        row[targets[i]] -= over


class Made:
    """Gradients made on the way forward, given away once."""

    __slots__ = ("gradients",)

    def __init__(self, gradients: tuple[Array | None, ...] | None) -> None:
        self.gradients = gradients

    def take(self) -> tuple[Array | None, ...]:
        """They belong to whoever asks first."""
        taken, self.gradients = self.gradients, None
        assert taken is not None
        return taken


def linear_accepted(
    x: Array, w: Array, targets: Array, b: Array | None, *, ignore_index: int, over: float, gradients: bool
) -> bool:
    """One dtype that has products."""
    return floats(x, w, b) and x.dtype != np.float16


@kernel("linear_loss", backend="numba", when=linear_accepted, saves=("made",))
def linear_loss(
    x: Array, w: Array, targets: Array, b: Array | None, *, ignore_index: int, over: float, gradients: bool
) -> Any:
    """The loss and, if wanted, the cotangents of x, w and b for a cotangent of 1.

    The logits of bfloat16 operands, their loss and the sums over rows are float32; their cotangents are rounded.
    """
    dtype, low = wide(x[:0]).dtype, is_low(x.dtype)
    kind = dtype.type
    targets, loss = _indices(targets), empty(len(x), dtype)
    bias = None if b is None else contiguous(wide(b))
    gx = empty(x.shape, x.dtype) if gradients else None
    gw = gb = None
    step = max(1, min(len(x), ROOM // (len(w) * dtype.itemsize)))
    step = -(-len(x) // -(-len(x) // step))
    for i in range(0, len(x), step):
        some = slice(i, i + step)
        z = matmul(x[some], w.T, bias, dtype)
        split(loss_rows, *z.shape, z, targets[some], ignore_index, kind(1 / over), gradients, loss[some])
        if gx is None:
            continue
        sums = None if b is None else z.sum(0)
        z = narrowed(z, x.dtype) if low else z
        gx[some] = matmul(z, w)
        if gw is None:
            gw, gb = matmul(z.T, x[some], dtype=dtype), sums
            continue
        add_matmul(gw, z.T, x[some])
        if gb is not None:
            gb += sums
    if low:
        gw, gb = (None if a is None else narrowed(a, x.dtype) for a in (gw, gb))
    y = np.asarray(loss.sum() * kind(1 / over)).astype(x.dtype, copy=False)
    return y, Made((gx, gw, None, gb) if gradients else None)


def still_there(g: Array, made: Made) -> bool:
    """Whether the gradients were made, and not taken by an earlier backward."""
    return made.gradients is not None


@kernel("linear_loss.vjp", backend="numba", when=still_there)
def linear_loss_vjp(g: Array, made: Made) -> Any:
    """What was made, times the cotangent."""
    taken = made.take()
    if g != 1:
        for gradient in taken:
            if gradient is not None:
                flat = gradient.reshape(-1)
                split(_scale if g else _clear, flat.size, 1, flat, g)
    return taken


def _scale(x: Array, factor: Array, start: int, stop: int) -> None:
    np.multiply(x[start:stop], factor, out=x[start:stop])


def _clear(x: Array, factor: Array, start: int, stop: int) -> None:
    x[start:stop] = 0  # also where there is a NaN: a zero cotangent gives zeros

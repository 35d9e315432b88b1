"""glu and swiglu: a value times a function of a gate, in one pass; only the inputs are kept."""

from __future__ import annotations

import math
from typing import Any

from ...array import Array
from .. import kernel, memory
from ..pool import split
from .jit import floats, jit, rows, sigmoid, wide
from .words import low


@jit
def glu_rows(x: Any, y: Any, start: int, stop: int) -> None:
    """y = a sigmoid(b), a the first and b the second half of a row."""
    wide()
    n = y.shape[1]
    for i in range(start, stop):
        a, b, out = x[i, :n], x[i, n:], y[i]
        for j in range(out.size):
            out[j] = a[j] * sigmoid(b[j])[0]


@jit
def glu_rows_vjp(g: Any, x: Any, gx: Any, start: int, stop: int) -> None:
    """ga = g s and gb = g a s (1 - s) with s = sigmoid(b)."""
    wide()
    n = g.shape[1]
    for i in range(start, stop):
        a, b, cotangent, ga, gb = x[i, :n], x[i, n:], g[i], gx[i, :n], gx[i, n:]
        for j in range(cotangent.size):
            s, q = sigmoid(b[j])
            u = cotangent[j] * s
            ga[j] = u
            gb[j] = u * (a[j] * q)


def halves(x: Array, *, axis: int) -> bool:
    """An axis of even size; an odd one is for the composite to refuse."""
    return floats(x) and -x.ndim <= axis < x.ndim and x.shape[axis] % 2 == 0


@kernel("glu", backend="numba", when=halves)
@low()
def glu(x: Array, *, axis: int) -> Array:
    """Any axis: what lies behind it only makes the halves longer."""
    axis %= x.ndim
    matrix = rows(x, math.prod(x.shape[axis:]))
    count, width = len(matrix), matrix.shape[1] // 2
    y = memory.empty((count, width), x.dtype)
    split(glu_rows, count, width, matrix, y)
    return y.reshape(*x.shape[:axis], x.shape[axis] // 2, *x.shape[axis + 1 :])


@kernel("glu.vjp", backend="numba")
@low()
def glu_vjp(g: Array, x: Array, *, axis: int) -> Array:
    """The cotangents of both halves in one array."""
    matrix = rows(x, math.prod(x.shape[axis % x.ndim :]))
    gx = memory.empty_like(matrix)
    count, width = len(matrix), matrix.shape[1] // 2
    split(glu_rows_vjp, count, width, rows(g, width), matrix, gx)
    return gx.reshape(x.shape)


# As in activations.py a piece of a flat array is cut out first, so that its loop runs in vector registers.
@jit
def swiglu_flat(gate: Any, up: Any, y: Any, start: int, stop: int) -> None:
    """y = gate sigmoid(gate) up."""
    wide()
    gate, up, y = gate[start:stop], up[start:stop], y[start:stop]
    for i in range(y.size):
        y[i] = gate[i] * sigmoid(gate[i])[0] * up[i]


@jit
def swiglu_flat_vjp(g: Any, gate: Any, up: Any, ggate: Any, gup: Any, start: int, stop: int) -> None:
    """gup = g x s and ggate = g up s (1 + x (1 - s)) with x the gate, s = sigmoid(x)."""
    wide()
    one = g.dtype.type(1)
    g, gate, up, ggate, gup = g[start:stop], gate[start:stop], up[start:stop], ggate[start:stop], gup[start:stop]
    for i in range(g.size):
        s, q = sigmoid(gate[i])
        ggate[i] = g[i] * up[i] * s * (one + gate[i] * q)
        gup[i] = g[i] * (gate[i] * s)


@kernel("swiglu", backend="numba", when=lambda gate, up: floats(gate, up) and gate.shape == up.shape)
@low()
def swiglu(gate: Array, up: Array) -> Array:
    """silu(gate) up; shapes that broadcast are for the composite."""
    y = memory.empty_like(gate)
    split(swiglu_flat, y.size, 1, *(rows(a, a.size)[0] for a in (gate, up, y)))
    return y


@kernel("swiglu.vjp", backend="numba")
@low()
def swiglu_vjp(g: Array, gate: Array, up: Array) -> tuple[Array, Array]:
    """Cotangents of gate and up."""
    ggate, gup = memory.empty_like(gate), memory.empty_like(up)
    split(swiglu_flat_vjp, g.size, 1, *(rows(a, a.size)[0] for a in (g, gate, up, ggate, gup)))
    return ggate, gup

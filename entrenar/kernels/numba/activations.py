"""softmax, log_softmax and logsumexp over the last axis, gelu and silu elementwise."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...array import Array
from .. import kernel, memory
from ..pool import split
from .jit import dot, exp, floats, jit, normal, row_max, rows, sigmoid, total, total_exp, wide
from .words import low


# softmax ------------------------------------------------------------------------------------------------------
@jit
def softmax_rows(x: Any, y: Any, start: int, stop: int) -> None:
    """y = e**(x - max) / sum; a row of -inf gives zeros."""
    wide()
    zero = x.dtype.type(0)
    one = x.dtype.type(1)
    for i in range(start, stop):
        top = row_max(x[i])
        if top == -np.inf:
            top = zero
        for j in range(x.shape[1]):
            y[i, j] = exp(x[i, j] - top)
        s = total(y[i])
        r = one if s == zero else one / s
        for j in range(x.shape[1]):
            y[i, j] *= r


@jit
def softmax_rows_vjp(g: Any, y: Any, gx: Any, start: int, stop: int) -> None:
    """gx = y (g - sum(g y))."""
    wide()
    zero = y.dtype.type(0)
    for i in range(start, stop):
        s = dot(g[i], y[i])
        if s != s and not g[i].any():  # a NaN row: a zero cotangent still gives zeros
            gx[i] = zero
        else:
            for j in range(y.shape[1]):
                gx[i, j] = y[i, j] * (g[i, j] - s)


@jit
def log_softmax_rows(x: Any, y: Any, start: int, stop: int) -> None:
    """y = (x - max) - log(sum(e**(x - max)))."""
    wide()
    zero = x.dtype.type(0)
    for i in range(start, stop):
        top = row_max(x[i])
        if top == -np.inf:
            top = zero
        s = total_exp(x[i], top)
        shift = zero if s == zero else np.log(s)
        for j in range(x.shape[1]):
            y[i, j] = (x[i, j] - top) - shift


@jit
def log_softmax_rows_vjp(g: Any, y: Any, gx: Any, start: int, stop: int) -> None:
    """gx = g - e**y sum(g)."""
    wide()
    zero = y.dtype.type(0)
    for i in range(start, stop):
        s = total(g[i])
        if s == zero:
            gx[i] = g[i]
        else:
            for j in range(y.shape[1]):
                gx[i, j] = g[i, j] - exp(y[i, j]) * s


@jit
def logsumexp_rows(x: Any, y: Any, start: int, stop: int) -> None:
    """y = log(sum(e**(x - max))) + max; the maximum itself where that is infinite."""
    wide()
    zero = x.dtype.type(0)
    for i in range(start, stop):
        top = row_max(x[i])
        if np.abs(top) == np.inf:
            top = zero
        y[i] = np.log(total_exp(x[i], top)) + top


def last_axis(x: Array, *, axis: int) -> bool:
    """Rows are the last axis; other axes are for the composite."""
    return floats(x) and x.ndim > 0 and axis in (-1, x.ndim - 1)


@low()
def over_rows(run: Any, x: Array, *others: Array) -> Array:
    """``run(*others, x, out)`` over the rows of the last axis; the order of arguments is the kernel's."""
    matrices = [rows(a, x.shape[-1]) for a in (*others, x)]
    out = memory.empty_like(matrices[-1])
    split(run, *out.shape, *matrices, out)
    return out.reshape(x.shape)


@kernel("softmax", backend="numba", when=last_axis, saves=("y",))
def softmax(x: Array, *, axis: int) -> Array:
    """Rows of the last axis."""
    return over_rows(softmax_rows, x)


@kernel("softmax.vjp", backend="numba")
def softmax_vjp(g: Array, y: Array) -> Array:
    """From the output alone."""
    return over_rows(softmax_rows_vjp, y, g)


@kernel("log_softmax", backend="numba", when=last_axis, saves=("y",))
def log_softmax(x: Array, *, axis: int) -> Array:
    """Rows of the last axis."""
    return over_rows(log_softmax_rows, x)


@kernel("log_softmax.vjp", backend="numba")
def log_softmax_vjp(g: Array, y: Array) -> Array:
    """From the output alone."""
    return over_rows(log_softmax_rows_vjp, y, g)


def trailing(x: Array, axis: Any) -> int:
    """How many axes ``axis`` names if they are the last ones of x, all of them for None; 0 if they are not."""
    named = range(x.ndim) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    found = sorted(a + x.ndim if a < 0 else a for a in named)
    return len(found) if found == list(range(x.ndim - len(found), x.ndim)) else 0


@kernel("logsumexp", backend="numba", when=lambda x, axis, keepdims: floats(x) and trailing(x, axis) > 0)
@low()
def logsumexp(x: Array, axis: Any, keepdims: bool) -> Array:
    """One number per row of the last axes."""
    count = trailing(x, axis)
    left = x.shape[: x.ndim - count]
    matrix = rows(x, math.prod(x.shape[x.ndim - count :]))
    out = memory.empty(len(matrix), x.dtype)
    split(logsumexp_rows, *matrix.shape, matrix, out)
    return out.reshape(*left, *(1,) * count) if keepdims else out.reshape(left)


# gelu and silu ------------------------------------------------------------------------------------------------
# A piece of a flat array is cut out first: a loop from 0 over it runs in vector registers, one from ``start`` doesn't
# (Numba counts negative indices from the end and can't know that there are none).
@jit
def silu_flat(x: Any, y: Any, start: int, stop: int) -> None:
    """y = x sigmoid(x)."""
    wide()
    x, y = x[start:stop], y[start:stop]
    for i in range(x.size):
        y[i] = x[i] * sigmoid(x[i])[0]


@jit
def silu_flat_vjp(g: Any, x: Any, gx: Any, start: int, stop: int) -> None:
    """gx = g s (1 + x (1 - s)) with s = sigmoid(x)."""
    wide()
    one = x.dtype.type(1)
    g, x, gx = g[start:stop], x[start:stop], gx[start:stop]
    for i in range(x.size):
        s, q = sigmoid(x[i])
        gx[i] = g[i] * s * (one + x[i] * q)


@jit
def gelu_tanh(x: Any, y: Any, start: int, stop: int) -> None:
    """y = x sigmoid(p(x)), p(x) = 2 sqrt(2 / pi) (x + 0.044715 x**3): 1 + tanh(u) = 2 sigmoid(2 u)."""
    wide()
    first = x.dtype.type(2 * math.sqrt(2 / math.pi))
    third = x.dtype.type(2 * math.sqrt(2 / math.pi) * 0.044715)
    x, y = x[start:stop], y[start:stop]
    for i in range(x.size):
        v = x[i]
        y[i] = v * sigmoid((first + third * v * v) * v)[0]


@jit
def gelu_tanh_vjp(g: Any, x: Any, gx: Any, start: int, stop: int) -> None:
    """gx = g (s + x s (1 - s) p'(x)) with s = sigmoid(p(x))."""
    wide()
    first = x.dtype.type(2 * math.sqrt(2 / math.pi))
    third = x.dtype.type(2 * math.sqrt(2 / math.pi) * 0.044715)
    thrice = x.dtype.type(6 * math.sqrt(2 / math.pi) * 0.044715)
    g, x, gx = g[start:stop], x[start:stop], gx[start:stop]
    for i in range(x.size):
        v = x[i]
        s, q = sigmoid((first + third * v * v) * v)
        gx[i] = g[i] * (s + v * (s * q) * (first + thrice * v * v))


@jit
def gelu_exact(x: Any, y: Any, start: int, stop: int) -> None:
    """y = x Phi(x), Phi the normal distribution function."""
    wide()
    x, y = x[start:stop], y[start:stop]
    for i in range(x.size):
        y[i] = x[i] * normal(x[i])[0]


@jit
def gelu_exact_vjp(g: Any, x: Any, gx: Any, start: int, stop: int) -> None:
    """gx = g (Phi(x) + x phi(x)), phi the normal density."""
    wide()
    g, x, gx = g[start:stop], x[start:stop], gx[start:stop]
    for i in range(x.size):
        below, density = normal(x[i])
        gx[i] = g[i] * (below + x[i] * density)


@low()
def elementwise(run: Any, *arrays: Array) -> Array:
    """``run(*arrays, out)`` over flat arrays."""
    x = arrays[-1]
    flat = [rows(a, a.size)[0] for a in arrays]
    out = memory.empty_like(flat[-1])
    split(run, out.size, 1, *flat, out)
    return out.reshape(x.shape)


@kernel("gelu", backend="numba", when=lambda x, *, approximate: floats(x) and approximate in ("none", "tanh"))
def gelu(x: Array, *, approximate: str) -> Array:
    """By erfc or by tanh."""
    return elementwise(gelu_exact if approximate == "none" else gelu_tanh, x)


@kernel("gelu.vjp", backend="numba")
def gelu_vjp(g: Array, x: Array, *, approximate: str) -> Array:
    """By erfc or by tanh."""
    return elementwise(gelu_exact_vjp if approximate == "none" else gelu_tanh_vjp, g, x)


@kernel("silu", backend="numba", when=lambda x: floats(x))
def silu(x: Array) -> Array:
    """x sigmoid(x)."""
    return elementwise(silu_flat, x)


@kernel("silu.vjp", backend="numba")
def silu_vjp(g: Array, x: Array) -> Array:
    """g (s + x s (1 - s))."""
    return elementwise(silu_flat_vjp, g, x)

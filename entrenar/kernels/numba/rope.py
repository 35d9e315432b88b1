"""Rotary positions in one pass: each row is read where it lies (a transposed view is not copied first), once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ...array import Array
from .. import kernel
from ..memory import empty
from ..pool import split
from .jit import contiguous, floats, jit
from .words import low


@jit
def rotate_halves(x: Any, at: Any, cos: Any, sin: Any, table: Any, n: int, y: Any, start: int, stop: int) -> None:
    """Rows start to stop of y: (a cos - b sin, b cos + a sin, rest) of x's (a, b, rest), a and b of n elements.

    Row i of x begins at element at[i], its angles at element table[i] of cos and sin.
    """
    width = y.shape[1]
    for i in range(start, stop):
        u, v = x[at[i] : at[i] + width], y[i]
        c, s = cos[table[i] : table[i] + n], sin[table[i] : table[i] + n]
        a, b, p, q = u[:n], u[n : 2 * n], v[:n], v[n : 2 * n]
        for j in range(c.size):
            p[j] = a[j] * c[j] - b[j] * s[j]
            q[j] = b[j] * c[j] + a[j] * s[j]
        v[2 * n :] = u[2 * n :]


@jit
def rotate_pairs(x: Any, at: Any, cos: Any, sin: Any, table: Any, n: int, y: Any, start: int, stop: int) -> None:
    """The same with a and b alternating."""
    width = y.shape[1]
    for i in range(start, stop):
        u, v = x[at[i] : at[i] + width], y[i]
        c, s = cos[table[i] : table[i] + n], sin[table[i] : table[i] + n]
        for j in range(c.size):
            a, b = u[2 * j], u[2 * j + 1]
            v[2 * j] = a * c[j] - b * s[j]
            v[2 * j + 1] = b * c[j] + a * s[j]
        v[2 * n :] = u[2 * n :]


def accepted(x: Array, cos: Array, sin: Array, *, interleaved: bool) -> bool:
    """Tables whose rows fit; the composite says what is wrong with others."""
    return floats(x) and bool(x.ndim and cos.ndim and 0 < cos.shape[-1] == sin.shape[-1] <= x.shape[-1] // 2)


@kernel("rotate", backend="numba", when=accepted)
@low()
def rotate(x: Array, cos: Array, sin: Array, *, interleaved: bool) -> Array:
    """Pairs of elements turned by angles."""
    lead, n = x.shape[:-1], cos.shape[-1]
    cos, sin = (contiguous(t.astype(x.dtype, copy=False)) for t in np.broadcast_arrays(cos, sin))
    y = empty(x.shape, x.dtype)
    split(
        rotate_pairs if interleaved else rotate_halves,
        x.size // x.shape[-1],
        x.shape[-1],
        *in_place(x),
        cos.reshape(-1),
        sin.reshape(-1),
        starts(lead, np.broadcast_to(cos, (*lead, n)).strides, cos.itemsize),
        n,
        y.reshape(-1, x.shape[-1]),
    )
    return y


def in_place(x: Array) -> tuple[Array, Array]:
    """The memory that x lies in, flat, and where in it each row begins; of a copy if the rows are not contiguous."""
    size = x.itemsize
    if not x.flags.writeable or x.strides[-1] != size or any(s < 0 or s % size for s in x.strides):
        x = contiguous(x)
    at = starts(x.shape[:-1], x.strides, size)
    return np.lib.stride_tricks.as_strided(x, (int(at.max()) + x.shape[-1],), (size,)), at


def starts(shape: Iterable[int], strides: Iterable[int], itemsize: int) -> Array:
    """The elements at which rows begin, for sizes and strides (in bytes) of the axes before the last."""
    at = np.zeros(1, np.int64)
    for count, stride in zip(shape, strides, strict=False):
        at = np.add.outer(at, np.arange(count) * (stride // itemsize))
    return at.reshape(-1)

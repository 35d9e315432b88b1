"""Adagrad, RMSprop and Lion in one pass over parameter, gradient and state, Lamb in two; called by optimizers.py.

The rules of ``optim``, whose NumPy ``update`` is the reference: the same operations in the same order, the same bits.
But for Lamb's norms, whose sums of float64 squares are in another order, a few units in the last of 53 bits apart.
c: the numbers of the rule in the dtype it is computed in, gradient scale first, then ``constants`` of its class.
key: of random bits, which these rules do not draw.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from .jit import OPTIONS, jit, total_squares
from .words import U, narrow, widen

WIDE = 1 << 12  # float64 values that lie in an L1 cache


@njit(**OPTIONS)
def flushed(x: Any, tiny: Any, zero: Any) -> Any:
    """x, or 0 where it is subnormal."""
    return zero if np.abs(x) < tiny else x


@njit(**OPTIONS)
def sign(x: Any, one: Any, zero: Any) -> Any:
    """1, -1, 0 (without a sign), or NaN as x is."""
    return one if x > zero else (-one if x < zero else (zero if x == zero else x))


@jit
def adagrad(c: Any, key: Any, p: Any, g: Any, total: Any, start: int, stop: int) -> None:
    """Elements start to stop of Adagrad."""
    kind = c.dtype.type
    scale, lr, decay, eps = c[0], c[1], c[2], c[3]
    tiny, zero = kind(np.finfo(c.dtype).tiny), kind(0)
    p, g, total = p[start:stop], g[start:stop], total[start:stop]
    for i in range(p.size):
        w = widen(p[i])
        d = kind(widen(g[i])) * scale
        if decay != 0:
            d = w * decay + d
        s = flushed(total[i] + d * d, tiny, zero)
        total[i] = s
        p[i] = narrow(w - d / (np.sqrt(s) + eps) * lr, p[i], False, U(0))


@jit
def rmsprop(c: Any, key: Any, p: Any, g: Any, square: Any, start: int, stop: int) -> None:
    """Elements start to stop of RMSprop."""
    kind = c.dtype.type
    scale, lr, decay, alpha, rest, eps = c[0], c[1], c[2], c[3], c[4], c[5]
    tiny, zero = kind(np.finfo(c.dtype).tiny), kind(0)
    p, g, square = p[start:stop], g[start:stop], square[start:stop]
    for i in range(p.size):
        w = widen(p[i])
        d = kind(widen(g[i])) * scale
        if decay != 0:
            d = w * decay + d
        v = flushed(square[i] * alpha + d * d * rest, tiny, zero)
        square[i] = v
        p[i] = narrow(w - d / (np.sqrt(v) + eps) * lr, p[i], False, U(0))


@jit
def rmsprop_momentum(c: Any, key: Any, p: Any, g: Any, square: Any, buffer: Any, start: int, stop: int) -> None:
    """Elements start to stop of RMSprop with momentum."""
    kind = c.dtype.type
    scale, lr, decay, alpha, rest, eps, momentum = c[0], c[1], c[2], c[3], c[4], c[5], c[6]
    tiny, zero = kind(np.finfo(c.dtype).tiny), kind(0)
    p, g, square, buffer = p[start:stop], g[start:stop], square[start:stop], buffer[start:stop]
    for i in range(p.size):
        w = widen(p[i])
        d = kind(widen(g[i])) * scale
        if decay != 0:
            d = w * decay + d
        v = flushed(square[i] * alpha + d * d * rest, tiny, zero)
        square[i] = v
        b = flushed(buffer[i] * momentum + d / (np.sqrt(v) + eps), tiny, zero)
        buffer[i] = b
        p[i] = narrow(w - b * lr, p[i], False, U(0))


@njit(**OPTIONS)
def spread(v: Any, m: Any, zero: Any) -> Any:
    """The root of v - m**2, 0 where rounding makes that negative, NaN where it is."""
    x = v - m * m
    return np.sqrt(zero if x < zero else x)


@jit
def rmsprop_centered(c: Any, key: Any, p: Any, g: Any, square: Any, mean: Any, start: int, stop: int) -> None:
    """Elements start to stop of centered RMSprop."""
    kind = c.dtype.type
    scale, lr, decay, alpha, rest, eps = c[0], c[1], c[2], c[3], c[4], c[5]
    tiny, zero = kind(np.finfo(c.dtype).tiny), kind(0)
    p, g, square, mean = p[start:stop], g[start:stop], square[start:stop], mean[start:stop]
    for i in range(p.size):
        w = widen(p[i])
        d = kind(widen(g[i])) * scale
        if decay != 0:
            d = w * decay + d
        v = flushed(square[i] * alpha + d * d * rest, tiny, zero)
        square[i] = v
        m = flushed(mean[i] * alpha + d * rest, tiny, zero)
        mean[i] = m
        p[i] = narrow(w - d / (spread(v, m, zero) + eps) * lr, p[i], False, U(0))


@jit
def rmsprop_centered_momentum(
    c: Any, key: Any, p: Any, g: Any, square: Any, mean: Any, buffer: Any, start: int, stop: int
) -> None:
    """Elements start to stop of centered RMSprop with momentum."""
    kind = c.dtype.type
    scale, lr, decay, alpha, rest, eps, momentum = c[0], c[1], c[2], c[3], c[4], c[5], c[6]
    tiny, zero = kind(np.finfo(c.dtype).tiny), kind(0)
    p, g, square, mean, buffer = p[start:stop], g[start:stop], square[start:stop], mean[start:stop], buffer[start:stop]
    for i in range(p.size):
        w = widen(p[i])
        d = kind(widen(g[i])) * scale
        if decay != 0:
            d = w * decay + d
        v = flushed(square[i] * alpha + d * d * rest, tiny, zero)
        square[i] = v
        m = flushed(mean[i] * alpha + d * rest, tiny, zero)
        mean[i] = m
        b = flushed(buffer[i] * momentum + d / (spread(v, m, zero) + eps), tiny, zero)
        buffer[i] = b
        p[i] = narrow(w - b * lr, p[i], False, U(0))


@njit(**OPTIONS)
def direction(c: Any, w: Any, m: Any, v: Any) -> Any:
    """Lamb's u of one element."""
    u = m * c[6] / (np.sqrt(v * c[7]) + c[8])
    return u + w * c[1] if c[1] != 0 else u


@jit
def lion(c: Any, key: Any, p: Any, g: Any, m: Any, start: int, stop: int) -> None:
    """Elements start to stop of Lion."""
    kind = c.dtype.type
    scale, keep, beta1, rest1, beta2, rest2, lr = c[0], c[1], c[2], c[3], c[4], c[5], c[6]
    tiny, zero = kind(np.finfo(c.dtype).tiny), kind(0)
    p, g, m = p[start:stop], g[start:stop], m[start:stop]
    for i in range(p.size):
        d = kind(widen(g[i])) * scale
        p[i] = narrow(widen(p[i]) * keep - sign(m[i] * beta1 + d * rest1, kind(1), zero) * lr, p[i], False, U(0))
        m[i] = flushed(m[i] * beta2 + d * rest2, tiny, zero)


@jit
def lamb(c: Any, key: Any, p: Any, g: Any, m: Any, v: Any, start: int, stop: int) -> Any:
    """Lamb's moments of elements start to stop; the sums of squares of weights and update, in float64."""
    kind = c.dtype.type
    scale, beta1, rest1, beta2, rest2 = c[0], c[2], c[3], c[4], c[5]
    tiny, zero = kind(np.finfo(c.dtype).tiny), kind(0)
    p, g, m, v = p[start:stop], g[start:stop], m[start:stop], v[start:stop]
    weights, update = np.empty(min(WIDE, p.size), np.float64), np.empty(min(WIDE, p.size), np.float64)
    sum_weights = sum_update = 0.0
    for first in range(0, p.size, WIDE):
        w, d = p[first : first + WIDE], g[first : first + WIDE]
        a, b = m[first : first + WIDE], v[first : first + WIDE]
        for i in range(w.size):
            x = kind(widen(d[i])) * scale
            a[i] = flushed(a[i] * beta1 + x * rest1, tiny, zero)
            b[i] = flushed(b[i] * beta2 + x * x * rest2, tiny, zero)
            weights[i] = np.float64(widen(w[i]))
            update[i] = np.float64(direction(c, widen(w[i]), a[i], b[i]))
        sum_weights += total_squares(weights[: w.size], 0.0)
        sum_update += total_squares(update[: w.size], 0.0)
    return sum_weights, sum_update


@jit
def lamb_apply(c: Any, key: Any, p: Any, g: Any, m: Any, v: Any, start: int, stop: int) -> None:
    """Lamb's step of elements start to stop, moments being new."""
    rate = c[9]
    p, m, v = p[start:stop], m[start:stop], v[start:stop]
    for i in range(p.size):
        w = widen(p[i])
        p[i] = narrow(w - direction(c, w, m[i], v[i]) * rate, p[i], False, U(0))


KERNELS: dict[str, Any] = {
    "adagrad": adagrad,
    "rmsprop": rmsprop,
    "rmsprop_momentum": rmsprop_momentum,
    "rmsprop_centered": rmsprop_centered,
    "rmsprop_centered_momentum": rmsprop_centered_momentum,
    "lion": lion,
}
# a first pass that returns sums, and the second, which takes a number made of them
IN_TWO: dict[str, Any] = {"lamb": (lamb, lamb_apply)}

"""One pass of an optimizer over parameter, gradient and state, in place; and sums of squares for clipping.

The update rules are those of ``optim``, whose NumPy ``update`` is the reference: the same operations in the same order
in the same dtype, none contracted, so the bits are the same.  16-bit floats, which Numba lacks, come as words: uint16
for bfloat16 and int16 for float16.  They are widened exactly, computed in float32 and rounded once: to nearest even,
or stochastically, as state in bfloat16 always is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numba import njit, types
from numba.extending import overload

from ...array import Array, is_bfloat16
from ..pool import WORTHWHILE, each
from .jit import OPTIONS, contiguous, jit, total_squares

PIECE = 1 << 15  # elements at least: a piece of work costs Python some microseconds, and must be worth them
PIECES = 64  # of a large job, about: enough for the threads to end together
WIDE = 1 << 12  # float64 values that lie in an L1 cache

U = np.uint32
SIGN, INFINITY, QUIET = U(0x80000000), U(0x7F800000), U(0x00400000)
# float16 has its exponent 112 below float32's, and its mantissa 13 bits shorter
HALF_SCALE = np.float32(2.0**112)
HALF_NORMAL, HALF_LIMIT, HALF_REBIAS = U(0x38800000), U(0x47800000), U(0xC8000FFF)
HALF_MAGIC, HALF_MAGIC_BITS = np.float32(0.5), U(0x3F000000)  # adding 1/2 rounds a subnormal of float16


# 16-bit floats as words ---------------------------------------------------------------------------------------
def wide(w: Any) -> Any:
    """A stored value as a float, exactly: float32 for the words of 16-bit floats."""
    return w


@njit(**OPTIONS)
def from_bfloat16(w: Any) -> Any:
    """Its bits are the upper half of float32's."""
    return U(U(w) << U(16)).view(np.float32)


@njit(**OPTIONS)
def from_float16(w: Any) -> Any:
    """Shifted into place and scaled, which makes subnormals normal; infinities and NaN keep the largest exponent."""
    magnitude = U(U(w) & U(0x7FFF))
    x = U(magnitude << U(13)).view(np.float32)
    bits = np.float32(x * HALF_SCALE).view(np.uint32)
    bits = U(bits | INFINITY) if magnitude >= U(0x7C00) else bits
    return U(bits | U(U(U(w) & U(0x8000)) << U(16))).view(np.float32)


@overload(wide, strict=False)
def _wide(w: Any) -> Any:
    if w == types.uint16:
        return lambda w: from_bfloat16(w)
    if w == types.int16:
        return lambda w: from_float16(w)
    return lambda w: w


def narrow(x: Any, like: Any, dither: Any, noise: Any) -> Any:
    """x as it is stored in an array of values like ``like``.

    Rounded to nearest even, or if ``dither`` (bfloat16 only) up with the probability of the part that is cut off, by
    the 16 bits of ``noise``.
    """
    return x


@njit(**OPTIONS)
def to_bfloat16(x: Any, dither: Any, noise: Any) -> Any:
    """A carry out of the lower half rounds up, into the next exponent or infinity where that is next."""
    bits = np.float32(x).view(np.uint32)
    nearest = U(U(0x7FFF) + U(U(bits >> U(16)) & U(1)))
    rounded = U(U(bits + (noise if dither else nearest)) >> U(16))
    return np.uint16(U(U(bits | QUIET) >> U(16)) if x != x else rounded)


@njit(**OPTIONS)
def to_float16(x: Any) -> Any:
    """To nearest even, subnormal results too (F. Giesen's float_to_half_fast3_rtne)."""
    bits = np.float32(x).view(np.uint32)
    size = U(bits & U(0x7FFFFFFF))
    normal = U(U(size + HALF_REBIAS + U(U(size >> U(13)) & U(1))) >> U(13))
    small = U(np.float32(size.view(np.float32) + HALF_MAGIC).view(np.uint32) - HALF_MAGIC_BITS)
    half = small if size < HALF_NORMAL else normal
    half = U(0x7C00) if size >= HALF_LIMIT else half
    half = U(0x7E00) if size > INFINITY else half
    return np.int16(np.uint16(half | U(U(bits & SIGN) >> U(16))))


@overload(narrow, strict=False)
def _narrow(x: Any, like: Any, dither: Any, noise: Any) -> Any:
    if like == types.uint16:
        return lambda x, like, dither, noise: to_bfloat16(x, dither, noise)
    if like == types.int16:
        return lambda x, like, dither, noise: to_float16(x)
    return lambda x, like, dither, noise: x


@njit(**OPTIONS)
def hashed(i: Any, first: Any, second: Any) -> Any:
    """32 random bits for counter i under a key of two words: ``optim.rounding`` says which hash this is."""
    x = U(U(i) ^ first)
    x = U(U(x ^ U(x >> U(16))) * U(0x7FEB352D))
    x = U(x ^ U(x >> U(15)) ^ second)
    x = U(x * U(0x846CA68B))
    return U(x ^ U(x >> U(16)))


# the passes ---------------------------------------------------------------------------------------------------
# c: the numbers of the rule in the dtype it is computed in, gradient scale first, then ``constants`` of its class.
# key: uint32, two words of the hash and whether the parameter is rounded stochastically.
@jit
def sgd(c: Any, key: Any, p: Any, g: Any, start: int, stop: int) -> None:
    """Elements start to stop of gradient descent without momentum."""
    kind = c.dtype.type
    scale, lr, decay = c[0], c[1], c[2]
    p, g = p[start:stop], g[start:stop]
    for i in range(p.size):
        w = wide(p[i])
        d = kind(wide(g[i])) * scale
        if decay != 0:
            d = w * decay + d
        p[i] = narrow(w - d * lr, p[i], False, U(0))


@jit
def sgd_momentum(c: Any, key: Any, p: Any, g: Any, velocity: Any, start: int, stop: int) -> None:
    """Elements start to stop of gradient descent with momentum."""
    kind = c.dtype.type
    scale, lr, decay, momentum, nesterov = c[0], c[1], c[2], c[3], c[4]
    p, g, velocity = p[start:stop], g[start:stop], velocity[start:stop]
    for i in range(p.size):
        w = wide(p[i])
        d = kind(wide(g[i])) * scale
        if decay != 0:
            d = w * decay + d
        v = velocity[i] * momentum + d
        velocity[i] = v
        d = d + v * momentum if nesterov != 0 else v
        p[i] = narrow(w - d * lr, p[i], False, U(0))


@jit
def adam(c: Any, key: Any, p: Any, g: Any, m: Any, v: Any, start: int, stop: int) -> None:
    """Elements start to stop of Adam and AdamW."""
    kind = c.dtype.type
    scale, keep, decay, beta1, rest1 = c[0], c[1], c[2], c[3], c[4]
    beta2, rest2, unbias, eps, lr = c[5], c[6], c[7], c[8], c[9]
    first, second, dither = key[0], key[1], key[2] != 0
    p, g, m, v = p[start:stop], g[start:stop], m[start:stop], v[start:stop]
    for i in range(p.size):
        w = wide(p[i]) * keep
        d = kind(wide(g[i])) * scale
        if decay != 0:
            d = w * decay + d
        a = wide(m[i]) * beta1 + d * rest1
        b = wide(v[i]) * beta2 + d * d * rest2
        w = w - a / (np.sqrt(b * unbias) + eps) * lr
        noise = hashed(start + i, first, second)
        m[i] = narrow(a, m[i], True, U(noise & U(0xFFFF)))
        v[i] = narrow(b, v[i], True, U(noise >> U(16)))
        p[i] = narrow(w, p[i], dither, U(hashed(start + i, second, first) & U(0xFFFF)))


@jit
def squares(g: Any, scale: Any, start: int, stop: int) -> Any:
    """The sum of (g / scale)**2 from start to stop, in float64."""
    g = g[start:stop]
    part = np.empty(min(WIDE, g.size), np.float64)
    s = 0.0
    for first in range(0, g.size, WIDE):
        piece = g[first : first + WIDE]
        for i in range(piece.size):
            part[i] = np.float64(wide(piece[i]))
        if scale != 1:
            part /= scale
        s += total_squares(part[: piece.size], 0.0)
    return s


# over arrays --------------------------------------------------------------------------------------------------
def flat(x: Array) -> Array:
    """x as a contiguous vector of floats or of the words of 16-bit ones; a copy unless ``x.flags.carray``."""
    x = x.reshape(-1) if x.flags.carray else contiguous(x).reshape(-1)
    if x.dtype.itemsize == 2:
        return x.view(np.uint16 if is_bfloat16(x.dtype) else np.int16)
    return x


def pieces(sizes: Sequence[int]) -> list[tuple[int, int, int]]:
    """(array, start, stop) of the pieces of arrays of these sizes; the bounds depend on nothing else."""
    most = max(PIECE, sum(sizes) // PIECES)
    return [(n, start, min(start + most, size)) for n, size in enumerate(sizes) for start in range(0, size, most)]


def over(run: Callable[..., Any], sizes: Sequence[int]) -> list[Any]:
    """``run(array, start, stop)`` of every piece, in their order: the threads start once, however many arrays."""
    work = pieces(sizes)
    results: list[Any] = [None] * len(work)

    def at(i: int) -> None:
        results[i] = run(*work[i])

    if sum(sizes) < WORTHWHILE:
        for i in range(len(work)):
            at(i)
    else:
        each(at, len(work))
    return results


class Passes:
    """Updates that wait to be run together."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, tuple[Any, ...]]] = []
        self.sizes: list[int] = []
        self.strided: list[tuple[Array, Array]] = []

    def add(self, run: str, c: Array, key: Array, p: Array, g: Array, slots: Sequence[Array]) -> None:
        """One parameter, the kernel called ``run``: p and slots will change in place, g only read."""
        vector = flat(p)
        if not p.flags.carray:
            self.strided.append((p, vector))
        self.calls.append((KERNELS[run], (c, key, vector, flat(g), *map(flat, slots))))
        self.sizes.append(p.size)

    def run(self) -> None:
        """All of them."""

        calls = self.calls
        over(lambda n, start, stop: calls[n][0](*calls[n][1], start, stop), self.sizes)
        for p, vector in self.strided:
            p[...] = vector.view(p.dtype).reshape(p.shape)


KERNELS = {"sgd": sgd, "sgd_momentum": sgd_momentum, "adam": adam}


def sum_squares(grads: Sequence[Array], scale: float = 1.0) -> float:
    """The sum of (g / scale)**2 over all arrays: partial sums in float64 over fixed pieces, added in their order."""
    vectors = [flat(g) for g in grads]
    return sum(over(lambda n, start, stop: squares(vectors[n], scale, start, stop), [g.size for g in vectors]))

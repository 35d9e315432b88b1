"""One pass of an optimizer over parameter, gradient and state, in place; and sums of squares for clipping.

The update rules are those of ``optim``, whose NumPy ``update`` is the reference: the same operations in the same order
in the same dtype, none contracted, so the bits are the same.  16-bit floats come as words (words.py) and are rounded
once: to nearest even, or stochastically, as state in bfloat16 always is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numba import njit

from ...array import Array, is_low
from ..pool import WORTHWHILE, each
from .adaptive import IN_TWO, KERNELS as ADAPTIVE, WIDE
from .jit import OPTIONS, contiguous, jit, total_squares
from .words import U, narrow, widen, words

PIECE = 1 << 15  # elements at least: a piece of work costs Python some microseconds, and must be worth them
PIECES = 64  # of a large job, about: enough for the threads to end together


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
        w = widen(p[i])
        d = kind(widen(g[i])) * scale
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
        w = widen(p[i])
        d = kind(widen(g[i])) * scale
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
    tiny, zero = kind(np.finfo(c.dtype).tiny), kind(0)
    p, g, m, v = p[start:stop], g[start:stop], m[start:stop], v[start:stop]
    for i in range(p.size):
        w = widen(p[i]) * keep
        d = kind(widen(g[i])) * scale
        if decay != 0:
            d = w * decay + d
        a = widen(m[i]) * beta1 + d * rest1
        b = widen(v[i]) * beta2 + d * d * rest2
        a = zero if np.abs(a) < tiny else a
        b = zero if b < tiny else b
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
            part[i] = np.float64(widen(piece[i]))
        if scale != 1:
            part /= scale
        s += total_squares(part[: piece.size], 0.0)
    return s


# over arrays --------------------------------------------------------------------------------------------------
def flat(x: Array) -> Array:
    """x as a contiguous vector of floats or of the words of 16-bit ones; a copy unless ``x.flags.carray``."""
    x = x.reshape(-1) if x.flags.carray else contiguous(x).reshape(-1)
    return words(x) if is_low(x.dtype) else x


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
        self.seconds: dict[int, tuple[Any, Callable[..., float]]] = {}  # by the number of the call
        self.strided: list[tuple[Array, Array]] = []

    def add(
        self,
        run: str,
        c: Array,
        key: Array,
        p: Array,
        g: Array,
        slots: Sequence[Array],
        rate: Callable[..., float],
    ) -> None:
        """One parameter, the kernel called ``run``: p and slots will change in place, g only read.

        rate: of a kernel in two passes, the last constant from the sums of the first.
        """
        vector = flat(p)
        if not p.flags.carray:
            self.strided.append((p, vector))
        if run in IN_TWO:
            kernel, second = IN_TWO[run]
            self.seconds[len(self.calls)] = second, rate
        else:
            kernel = KERNELS[run]
        self.calls.append((kernel, (c, key, vector, flat(g), *map(flat, slots))))
        self.sizes.append(p.size)

    def run(self) -> None:
        """All of them."""
        calls = self.calls
        found = over(lambda n, start, stop: calls[n][0](*calls[n][1], start, stop), self.sizes)
        if self.seconds:
            self._second(found)
        for p, vector in self.strided:
            p[...] = vector.view(p.dtype).reshape(p.shape)

    def _second(self, found: list[Any]) -> None:
        """The second passes, with the numbers that follow from what the first ones summed."""
        sums: dict[int, list[Any]] = {n: [] for n in self.seconds}
        for (n, _, _), partial in zip(pieces(self.sizes), found, strict=True):
            if n in sums:
                sums[n].append(partial)
        calls, sizes = [], []
        for n, (second, rate) in self.seconds.items():
            if sums[n]:  # else it is empty
                c, *rest = self.calls[n][1]
                c = c.copy()
                c[-1] = rate(*(sum(column) for column in zip(*sums[n], strict=True)))
                calls.append((second, (c, *rest)))
                sizes.append(self.sizes[n])
        over(lambda n, start, stop: calls[n][0](*calls[n][1], start, stop), sizes)


KERNELS = {"sgd": sgd, "sgd_momentum": sgd_momentum, "adam": adam, **ADAPTIVE}


def sum_squares(grads: Sequence[Array], scale: float = 1.0) -> float:
    """The sum of (g / scale)**2 over all arrays: partial sums in float64 over fixed pieces, added in their order."""
    vectors = [flat(g) for g in grads]
    return sum(over(lambda n, start, stop: squares(vectors[n], scale, start, stop), [g.size for g in vectors]))

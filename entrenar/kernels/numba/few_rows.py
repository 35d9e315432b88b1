"""Products of a few rows with a matrix, as in generating: the matrix is read once, at the speed of memory.

BLAS reads some layouts of it at half that speed, packs it first, or has one thread read all of it.  Every element of
the result is summed in an order that the sizes set, whichever thread does it.  A matrix of 16-bit floats is widened
as it is read.
"""

from __future__ import annotations

from typing import Any

from numba import njit

from ...array import Array, is_low
from ..memory import empty
from ..pool import split
from .jit import OPTIONS, contiguous, wide
from .tiles import bare
from .words import widen, widened, words

FEW = 8  # rows at most, half of them where columns of float32 and float64 are added up: beyond, BLAS is faster
SHORT = 64  # elements along either axis of b, at least: loops over them run in vector registers
STRIP = 2048  # bytes of a row of b at a time: eight of them, and what they are added to, stay in the first-level cache
# sums may be reordered, as those of jit.py
_unordered = njit(**OPTIONS | {"_nrt": False}, fastmath={"reassoc", "contract"})
_fused = njit(**OPTIONS | {"_nrt": False}, fastmath={"contract"})


@_unordered
def dot(a: Any, b: Any) -> Any:
    """The sum of a b."""
    wide()
    s = a.dtype.type(0)
    for j in range(a.size):
        s += a[j] * widen(b[j])
    return s


@_unordered
def dots(a: Any, b: Any, c: Any, d: Any, x: Any) -> Any:
    """The sums of a x, b x, c x and d x."""
    wide()
    s = a.dtype.type(0)
    t = a.dtype.type(0)
    u = a.dtype.type(0)
    v = a.dtype.type(0)
    for j in range(a.size):
        w = widen(x[j])
        s += a[j] * w
        t += b[j] * w
        u += c[j] * w
        v += d[j] * w
    return s, t, u, v


@_fused
def add(y: Any, a: Any, b: Any) -> None:
    """y += a b, a a number."""
    wide()
    for j in range(y.size):
        y[j] += a * widen(b[j])


@_fused
def add_eight(y: Any, a: Any, b0: Any, b1: Any, b2: Any, b3: Any, b4: Any, b5: Any, b6: Any, b7: Any) -> None:
    """y += the sum of a[k] bk, in the order of k."""
    wide()
    a0, a1, a2, a3, a4, a5, a6, a7 = a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7]
    for j in range(y.size):
        s = y[j] + a0 * widen(b0[j]) + a1 * widen(b1[j]) + a2 * widen(b2[j]) + a3 * widen(b3[j])
        y[j] = s + a4 * widen(b4[j]) + a5 * widen(b5[j]) + a6 * widen(b6[j]) + a7 * widen(b7[j])


@bare
def by_columns(a: Any, b: Any, y: Any, start: int, stop: int) -> None:
    """Columns start to stop of y = a b, rows of b contiguous."""
    wide()
    rows, depth = a.shape
    whole = depth // 8 * 8
    strip = STRIP // b.itemsize if rows > 1 else 4 * STRIP // b.itemsize
    for first in range(start, stop, strip):
        last = min(first + strip, stop)
        for i in range(rows):
            y[i, first:last] = 0
        for k in range(0, whole, 8):
            b0, b1, b2, b3 = b[k, first:last], b[k + 1, first:last], b[k + 2, first:last], b[k + 3, first:last]
            b4, b5, b6, b7 = b[k + 4, first:last], b[k + 5, first:last], b[k + 6, first:last], b[k + 7, first:last]
            for i in range(rows):
                add_eight(y[i, first:last], a[i, k : k + 8], b0, b1, b2, b3, b4, b5, b6, b7)
        for k in range(whole, depth):
            for i in range(rows):
                add(y[i, first:last], a[i, k], b[k, first:last])


@bare
def by_dots(a: Any, b: Any, y: Any, start: int, stop: int) -> None:
    """Columns start to stop of y = a b^T, rows of b contiguous."""
    wide()
    rows = len(a)
    whole = rows // 4 * 4
    for j in range(start, stop):
        x = b[j]
        for i in range(0, whole, 4):
            y[i, j], y[i + 1, j], y[i + 2, j], y[i + 3, j] = dots(a[i], a[i + 1], a[i + 2], a[i + 3], x)
        for i in range(whole, rows):
            y[i, j] = dot(a[i], x)


def accepted(a: Array, b: Array) -> bool:
    """Matrices of one float dtype, b contiguous, so few rows of a that reading b is what takes the time."""
    if a.dtype != b.dtype or len(a) > FEW or min(b.shape) < SHORT:
        return False
    if b.flags.c_contiguous:
        return len(a) <= FEW // 2 or b.itemsize == 2
    return bool(b.flags.f_contiguous)


def product(a: Array, b: Array) -> Array:
    """a @ b of matrices that ``accepted`` takes; float32 for 16-bit operands, else their dtype."""
    low = is_low(b.dtype)
    a = contiguous(widened(a) if low else a)
    y = empty((len(a), b.shape[1]), a.dtype)
    matrix = words(b) if low else b
    if b.flags.c_contiguous:
        split(by_columns, b.shape[1], b.shape[0], a, matrix, y)
    else:
        split(by_dots, b.shape[1], b.shape[0], a, matrix.T, y)
    return y

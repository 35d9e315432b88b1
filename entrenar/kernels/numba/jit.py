"""What the Numba kernels share: how they are compiled, sums over a row, exp, erfc, the maximum of a row.

Nothing is compiled with ``fastmath``: NaN and infinities mean what they mean in the composites.  Only the sums below
may be reordered, so that they run in vector registers: this changes their last bits, never a NaN or an infinity.  They
store nothing, on purpose: a loop that stores is compiled twice, in vector registers and one by one, and which of the
two runs depends on where the arrays lie; elementwise both give the same bits, but a sum would depend on addresses.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numba import njit, types
from numba.extending import overload

from ...array import Array
from .compiling import keep

F = TypeVar("F", bound=Callable[..., Any])
# error_model: x / 0 is what NumPy says, not an exception (whose test would keep loops out of vector registers)
OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy"}


def jit(run: F) -> F:
    """Compile at first use, to run without the GIL, and keep the machine code on disk (compiling.py)."""
    return _compiled(run, **OPTIONS)


def _sum(run: F) -> F:
    """``jit`` for a sum that may be reordered."""
    return _compiled(run, **OPTIONS, fastmath={"reassoc"})


def _compiled(run: F, **options: Any) -> F:
    compiled: F = keep(njit(**options)(run))
    return compiled


# exp ----------------------------------------------------------------------------------------------------------
# e**x = 2**k e**r with k = round(x / ln 2), |r| <= ln(2) / 2: Cody and Waite's reduction in two steps, a polynomial.
# The coefficients are Cephes' expf (Moshier); the error is below 1 ulp, subnormal results included.
LOG2_E = np.float32(1.4426950408889634)
LN2_HIGH = np.float32(0.693359375)
LN2_LOW = np.float32(-2.12194440e-4)
ROUND = np.float32(12582912.0)  # 1.5 * 2**23: adding it leaves the nearest integer in the low bits of the word
ROUND_BITS = np.int32(0x4B400000)
P0, P1, P2 = np.float32(1.9875691500e-4), np.float32(1.3981999507e-3), np.float32(8.3334519073e-3)
P3, P4, P5 = np.float32(4.1665795894e-2), np.float32(1.6666665459e-1), np.float32(5.0000001201e-1)
ONE = np.float32(1.0)
ABOVE, BELOW = np.float32(89.0), np.float32(-104.0)  # e**x is inf, and 0, beyond these


def exp(x: Any) -> Any:
    """e**x of one float32 or float64 inside a kernel."""
    return math.exp(x)


@njit(**OPTIONS)
def exp32(x: Any) -> Any:
    """e**x in float32, without a branch or a call, so that loops over it run in vector registers."""
    x = ABOVE if x > ABOVE else x
    x = BELOW if x < BELOW else x
    t = np.float32(x * LOG2_E + ROUND)
    k = np.int32(t.view(np.int32) - ROUND_BITS)
    n = np.float32(t - ROUND)
    r = np.float32(x - n * LN2_HIGH)
    r = np.float32(r - n * LN2_LOW)
    p = ((((P0 * r + P1) * r + P2) * r + P3) * r + P4) * r + P5
    p = p * r * r + r + ONE
    # 2**k in two factors: k reaches from -150 (subnormal results) to 128
    half = np.int32(k >> np.int32(1))
    a = np.int32(np.int32(half + np.int32(127)) << np.int32(23)).view(np.float32)
    b = np.int32(np.int32(k - half + np.int32(127)) << np.int32(23)).view(np.float32)
    return p * a * b


@njit(**OPTIONS)
def exp64(x: Any) -> Any:
    """e**x in float64, by the C library, which raises for no overflow."""
    return np.exp(x)


@overload(exp, strict=False)
def _exp(x: Any) -> Any:
    if x == types.float32:
        return lambda x: exp32(x)
    return lambda x: exp64(x)


# sums over contiguous rows ------------------------------------------------------------------------------------
@_sum
def total(a: Any) -> Any:
    """The sum of a."""
    s = a.dtype.type(0)
    for j in range(a.size):
        s += a[j]
    return s


@_sum
def total_exp(a: Any, shift: Any) -> Any:
    """The sum of e**(a - shift)."""
    s = a.dtype.type(0)
    for j in range(a.size):
        s += exp(a[j] - shift)
    return s


@_sum
def total_squares(a: Any, shift: Any) -> Any:
    """The sum of (a - shift)**2."""
    s = a.dtype.type(0)
    for j in range(a.size):
        d = a[j] - shift
        s += d * d
    return s


@_sum
def dot(a: Any, b: Any) -> Any:
    """The sum of a b."""
    s = a.dtype.type(0)
    for j in range(a.size):
        s += a[j] * b[j]
    return s


@_sum
def dot_shifted(a: Any, b: Any, c: Any, shift: Any) -> Any:
    """The sum of a b (c - shift)."""
    s = a.dtype.type(0)
    for j in range(a.size):
        s += a[j] * b[j] * (c[j] - shift)
    return s


# erfc ---------------------------------------------------------------------------------------------------------
# erfc(z) = e**(-z**2) t p(t - 1/2) with t = 1 / (1 + 0.3 z) for z >= 0, p fitted here (Lawson's iteration, 2e-8 over
# [0, 10.2], beyond which float32 has only 0); the rounding of z**2 is found exactly (Dekker 1971) and put back.
T0, T1, T2 = np.float32(-0.12954062), np.float32(-0.03250619), np.float32(0.28052494)
T3, T4, T5 = np.float32(0.653432), np.float32(0.91128343), np.float32(0.94973385)
T6, T7, T8 = np.float32(0.7951261), np.float32(0.55304724), np.float32(0.32497993)
TILT, FAR, SPLIT, HALF, TWO = np.float32(0.3), np.float32(10.2), np.float32(4097.0), np.float32(0.5), np.float32(2.0)


def erfc(x: Any) -> Any:
    """1 - erf(x) of one float32 or float64 inside a kernel."""
    return math.erfc(x)


@njit(**OPTIONS)
def erfc32(x: Any) -> Any:
    """In float32, without a branch or a call; within 1e-6 of the value, relatively, as long as it is normal."""
    z = abs(x)
    z = FAR if z > FAR else z
    t = ONE / (ONE + TILT * z)
    u = t - HALF
    p = (((((((T0 * u + T1) * u + T2) * u + T3) * u + T4) * u + T5) * u + T6) * u + T7) * u + T8
    square = np.float32(z * z)
    big = np.float32(SPLIT * z)
    high = np.float32(big - np.float32(big - z))
    low = np.float32(z - high)
    rest = ((high * high - square) + TWO * high * low) + low * low
    y = exp32(-square) * (ONE - rest) * t * p
    return TWO - y if x < np.float32(0.0) else y


@njit(**OPTIONS)
def erfc64(x: Any) -> Any:
    """In float64, by the C library."""
    return math.erfc(x)


@overload(erfc, strict=False)
def _erfc(x: Any) -> Any:
    if x == types.float32:
        return lambda x: erfc32(x)
    return lambda x: erfc64(x)


# maximum of a row ---------------------------------------------------------------------------------------------
def row_max(row: Any) -> Any:
    """The largest value of a 1-d contiguous row, -inf for an empty one; a positive NaN counts as largest."""
    return row.max()


@njit(**OPTIONS)
def row_max32(row: Any) -> Any:
    """By the bits as sign-magnitude integers: an integer maximum runs in vector registers, a float one doesn't."""
    words = row.view(np.int32)
    best = np.int32(-2139095041)  # -inf
    for j in range(words.size):
        k = words[j]
        k = np.int32(k ^ np.int32(np.int32(k >> np.int32(31)) & np.int32(0x7FFFFFFF)))
        best = k if k > best else best
    best = np.int32(best ^ np.int32(np.int32(best >> np.int32(31)) & np.int32(0x7FFFFFFF)))
    return best.view(np.float32)


@njit(**OPTIONS)
def row_max64(row: Any) -> Any:
    """The plain loop."""
    best = -np.inf
    for j in range(row.size):
        best = row[j] if row[j] > best else best
    return best


@overload(row_max, strict=False)
def _row_max(row: Any) -> Any:
    if row.dtype == types.float32:
        return lambda row: row_max32(row)
    return lambda row: row_max64(row)


# arrays -------------------------------------------------------------------------------------------------------
def contiguous(x: Array) -> Array:
    """x in C order and writeable, the one layout kernels are compiled for; a copy unless it is so already."""
    x = np.ascontiguousarray(x)
    return x if x.flags.writeable else x.copy()


def rows(x: Array, columns: int) -> Array:
    """x as a contiguous matrix of so many columns."""
    return contiguous(x).reshape(x.size // columns, columns)


def floats(*arrays: Array | None) -> bool:
    """True if the arrays (None aside) are all float32 or all float64 and not empty: what kernels accept."""
    dtypes = {a.dtype for a in arrays if a is not None}
    return len(dtypes) == 1 and dtypes <= _SERVED and all(a.size for a in arrays if a is not None)


_SERVED = {np.dtype(np.float32), np.dtype(np.float64)}

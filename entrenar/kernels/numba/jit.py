"""What the Numba kernels share: how they are compiled, functions of one number, sums and the maximum of a row.

No kernel is compiled with ``fastmath``: NaN and infinities mean what they mean in the composites.  Only the sums below
may be reordered, so that they run in vector registers: this changes their last bits, never a NaN or an infinity.  They
store nothing, on purpose: a loop that stores is compiled twice, in vector registers and one by one, and which of the
two runs depends on where the arrays lie; elementwise both give the same bits, but a sum would depend on addresses.
The sums and the functions of one number may use fused multiply-adds, which are more exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numba import njit, types
from numba.extending import intrinsic, overload

from ...array import Array, is_float
from .compiling import keep

F = TypeVar("F", bound=Callable[..., Any])
# error_model: x / 0 is what NumPy says, not an exception (whose test would keep loops out of vector registers)
OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy"}


def jit(run: F) -> F:
    """Compile at first use, to run without the GIL, and keep the machine code on disk (compiling.py)."""
    return _compiled(run, **OPTIONS)


def _sum(run: F) -> F:
    """``jit`` for a sum that may be reordered."""
    return _compiled(run, **OPTIONS, fastmath={"reassoc", "contract"})


def _compiled(run: F, **options: Any) -> F:
    compiled: F = keep(njit(**options)(run))
    return compiled


_function = njit(**OPTIONS, fastmath={"contract"})  # a function of one number, compiled into the loops that call it


def _wide(context: Any) -> Any:
    def mark(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        attributes = builder.function.attributes
        if isinstance(attributes, set):  # past llvmlite's own ``add``, which refuses a target's attributes
            set.add(attributes, '"prefer-vector-width"="512"')
        return context.get_dummy_value()

    return types.none(), mark


# Called at the top of a kernel: its loops may use 512-bit registers where the CPU has them.  Of its own accord LLVM
# keeps to 256 bits, for the sake of code around a loop that a lower clock would slow down.
wide: Any = intrinsic(_wide)


# exp ----------------------------------------------------------------------------------------------------------
# e**x = 2**k e**r with k = round(x / ln 2), |r| <= ln(2) / 2: Cody and Waite's reduction in two steps, then
# 1 + r + r**2 p(r) with p fitted by Lawson's iteration, to 7e-9.
# k = -126 would be the first with subnormal results, of which one takes 150 cycles to make, and rows masked with -1e9
# are full of them.  There the factor 2**(k - 1) has the bits of 0: results below 2**-125.5 are 0.
LOG2_E = np.float32(1.4426950408889634)
LN2_HIGH = np.float32(0.693359375)
LN2_LOW = np.float32(-2.12194440e-4)
ROUND = np.float32(1.5 * 2**23 + 126)  # adding it leaves k + 126 in the low bits, the exponent of 2**(k - 1)
P0, P1, P2 = np.float32(0.49999988079), np.float32(0.16666433215), np.float32(0.041669417173)
P3, P4 = np.float32(0.0083780968562), np.float32(0.0013795231935)
ZERO, HALF, ONE, TWO = np.float32(0.0), np.float32(0.5), np.float32(1.0), np.float32(2.0)
ABOVE, BELOW = np.float32(89.0), np.float32(-87.3)  # where e**x is inf, and 0


def exp(x: Any) -> Any:
    """e**x of one float32 or float64 inside a kernel."""
    return math.exp(x)


@_function
def reduced(x: Any, rounding: Any) -> Any:
    """(e**r, 2**(k + bias - 127)) of float32, ``rounding`` is 1.5 * 2**23 + bias; the factor is 0 for k = -bias."""
    t = np.float32(x * LOG2_E + rounding)
    n = np.float32(t - rounding)
    r = np.float32(np.float32(x - n * LN2_HIGH) - n * LN2_LOW)
    p = (((P4 * r + P3) * r + P2) * r + P1) * r + P0
    p = p * (r * r) + r + ONE
    return p, np.int32(t.view(np.int32) << np.int32(23)).view(np.float32)


@_function
def exp32(x: Any) -> Any:
    """In float32 within 1.02 ulp, 0 below 2**-125.5; no branch and no call, so that loops run in vector registers."""
    c = BELOW if x < BELOW else x
    c = ABOVE if c > ABOVE else c
    p, half = reduced(c, ROUND)
    return p * TWO * half


@_function
def exp64(x: Any) -> Any:
    """e**x in float64, by the C library, which raises for no overflow."""
    return np.exp(x)


@overload(exp, strict=False)
def _exp(x: Any) -> Any:
    return (lambda x: exp32(x)) if x == types.float32 else (lambda x: exp64(x))


@_function
def sigmoid(x: Any) -> Any:
    """(s, 1 - s) with s = 1 / (1 + e**-x), neither by subtraction: within 3 ulp, and 0 where e**-|x| is."""
    t = exp(-abs(x))
    r = ONE / (ONE + t)  # the larger of the two
    return (r, t * r) if x > ZERO else (t * r, r)


# normal distribution ------------------------------------------------------------------------------------------
# P(X < -z) = e**(-z**2 / 2) t q(t - 1/2) with t = 1 / (1 + 0.3 z) for z >= 0; q fitted by Lawson's iteration, to 1.2e-7
# for z < 13.3.
Q0, Q1, Q2, Q3 = np.float32(0.221970589), np.float32(0.329158681), np.float32(0.3462049187), np.float32(0.222108514)
Q4, Q5, Q6 = np.float32(0.02879837159), np.float32(-0.07798563895), np.float32(-0.03258651499)
Q7, TILT, FAR = np.float32(0.03603620163), np.float32(0.3), np.float32(13.26)  # k is -127 at FAR
ROUND_SMALL = np.float32(1.5 * 2**23 + 127)  # nothing overflows here: 2**k itself
DENSITY = np.float32(1 / math.sqrt(2 * math.pi))
ROOT_HALF, DENSITY64 = math.sqrt(0.5), 1 / math.sqrt(2 * math.pi)


def normal(x: Any) -> Any:
    """(distribution function, density) of the standard normal distribution inside a kernel."""
    return math.erfc(-x * ROOT_HALF) / 2, math.exp(-x * x / 2) * DENSITY64


@_function
def normal32(x: Any) -> Any:
    """In float32, no branch and no call: within 5e-7 + 7e-8 x**2 / 2 of the values, relatively; 0 below 2**-126.5."""
    z = FAR if abs(x) > FAR else abs(x)
    p, factor = reduced(-HALF * (z * z), ROUND_SMALL)
    e = p * factor
    t = ONE / (ONE + TILT * z)
    u = t - HALF
    q = ((((((Q7 * u + Q6) * u + Q5) * u + Q4) * u + Q3) * u + Q2) * u + Q1) * u + Q0
    tail = e * t * q
    below = tail if x < ZERO else ONE - tail
    return below, e * DENSITY


@_function
def normal64(x: Any) -> Any:
    """In float64, by the C library."""
    return math.erfc(-x * ROOT_HALF) / 2, np.exp(-x * x / 2) * DENSITY64


@overload(normal, strict=False)
def _normal(x: Any) -> Any:
    return (lambda x: normal32(x)) if x == types.float32 else (lambda x: normal64(x))


# sums over contiguous rows ------------------------------------------------------------------------------------
@_sum
def total(a: Any) -> Any:
    """The sum of a."""
    wide()
    s = a.dtype.type(0)
    for j in range(a.size):
        s += a[j]
    return s


@_sum
def total_exp(a: Any, shift: Any) -> Any:
    """The sum of e**(a - shift)."""
    wide()
    s = a.dtype.type(0)
    for j in range(a.size):
        s += exp(a[j] - shift)
    return s


@_sum
def total_squares(a: Any, shift: Any) -> Any:
    """The sum of (a - shift)**2."""
    wide()
    s = a.dtype.type(0)
    for j in range(a.size):
        d = a[j] - shift
        s += d * d
    return s


@_sum
def dot(a: Any, b: Any) -> Any:
    """The sum of a b."""
    wide()
    s = a.dtype.type(0)
    for j in range(a.size):
        s += a[j] * b[j]
    return s


@_sum
def dots_shifted(a: Any, b: Any, c: Any, shift: Any) -> Any:
    """The sums of a b and of a b (c - shift)."""
    wide()
    s = a.dtype.type(0)
    t = a.dtype.type(0)
    for j in range(a.size):
        p = a[j] * b[j]
        s += p
        t += p * (c[j] - shift)
    return s, t


# maximum of a row ---------------------------------------------------------------------------------------------
def row_max(row: Any) -> Any:
    """The largest value of a 1-d contiguous row, -inf for an empty one; a positive NaN counts as largest."""
    return row.max()


@njit(**OPTIONS)
def row_max32(row: Any) -> Any:
    """By the bits as sign-magnitude integers: an integer maximum runs in vector registers, a float one doesn't."""
    wide()
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
    """True if the arrays (None aside) are of one float dtype and not empty: what kernels accept, 16 bits by ``low``."""
    dtypes = {a.dtype for a in arrays if a is not None}
    return len(dtypes) == 1 and is_float(*dtypes) and all(a.size for a in arrays if a is not None)

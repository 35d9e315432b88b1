"""16-bit floats in kernels, as words, since Numba lacks them: uint16 for bfloat16 and int16 for float16.

They are widened exactly, computed with in float32 and rounded once.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection
from typing import Any, TypeVar

import numpy as np
from numba import njit, types
from numba.extending import overload

from ...array import FLOAT32, Array, is_bfloat16, is_low
from ..memory import empty
from ..pool import split
from .jit import OPTIONS, jit

F = TypeVar("F", bound=Callable[..., Any])

U = np.uint32
SIGN, INFINITY, QUIET = U(0x80000000), U(0x7F800000), U(0x00400000)
# float16 has its exponent 112 below float32's, and its mantissa 13 bits shorter
HALF_SCALE = np.float32(2.0**112)
HALF_NORMAL, HALF_LIMIT, HALF_REBIAS = U(0x38800000), U(0x47800000), U(0xC8000FFF)
HALF_MAGIC, HALF_MAGIC_BITS = np.float32(0.5), U(0x3F000000)  # adding 1/2 rounds a subnormal of float16


# 16-bit floats as words ---------------------------------------------------------------------------------------
def widen(w: Any) -> Any:
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


@overload(widen, strict=False)
def _widen(w: Any) -> Any:
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


# over arrays --------------------------------------------------------------------------------------------------
@jit
def widen_flat(w: Any, x: Any, start: int, stop: int) -> None:
    """x = the floats that w stands for."""
    w, x = w[start:stop], x[start:stop]
    for i in range(w.size):
        x[i] = widen(w[i])


@jit
def narrow_flat(x: Any, w: Any, start: int, stop: int) -> None:
    """w = x rounded to nearest even."""
    x, w = x[start:stop], w[start:stop]
    for i in range(x.size):
        w[i] = narrow(x[i], w[i], False, U(0))


def words(x: Array) -> Array:
    """A 16-bit float array as what stands for it."""
    return x.view(np.uint16 if is_bfloat16(x.dtype) else np.int16)


def widened(x: Array) -> Array:
    """A 16-bit float array in float32, its axes in the same order in memory."""
    order = np.argsort([-s for s in x.strides], kind="stable")
    w = np.asarray(words(x).transpose(order), order="C")
    y = empty(w.shape, FLOAT32)
    split(widen_flat, w.size, 1, w.reshape(-1), y.reshape(-1))
    return y.transpose(np.argsort(order))


def narrowed(x: Array, dtype: Any) -> Array:
    """A float32 array rounded to a 16-bit dtype, its axes in the same order in memory."""
    order = np.argsort([-s for s in x.strides], kind="stable")
    values = np.asarray(x.transpose(order), order="C")
    y = empty(values.shape, dtype)
    split(narrow_flat, x.size, 1, values.reshape(-1), words(y).reshape(-1))
    return y.transpose(np.argsort(order))


def low(*, exact: Collection[int] = ()) -> Callable[[F], F]:
    """Let a function of float32 arrays take 16-bit ones: they are widened, and its results rounded to their dtype.

    exact: positions of results that stay float32, what a pullback will be computed from.
    """

    def wrap(run: F) -> F:
        @functools.wraps(run)
        def wider(*args: Any, **keywords: Any) -> Any:
            dtype = next((a.dtype for a in (*args, *keywords.values()) if _is_low(a)), None)
            if dtype is None:
                return run(*args, **keywords)
            args = tuple(widened(a) if _is_low(a) else a for a in args)
            made = run(*args, **{k: widened(a) if _is_low(a) else a for k, a in keywords.items()})
            if not isinstance(made, tuple):
                return narrowed(made, dtype)
            done: dict[int, Array] = {}  # a result that is returned twice is rounded once
            for i, y in enumerate(made):
                if i not in exact and y is not None and id(y) not in done:
                    done[id(y)] = narrowed(y, dtype)
            return tuple(y if i in exact or y is None else done[id(y)] for i, y in enumerate(made))

        return wider  # type: ignore[return-value]

    return wrap


def _is_low(value: Any) -> bool:
    return isinstance(value, np.ndarray) and is_low(value.dtype)

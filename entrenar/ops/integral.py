"""Arithmetic of whole numbers and truth: floor division, remainder, bitwise and logical operators."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..array import Array
from ..autograd import primitive
from ..autograd.samples import Sample, calls, edge, edges, pairs, reals

__all__ = [
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "floor_divide",
    "invert",
    "isfinite",
    "isinf",
    "isnan",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "remainder",
]
# quotients stay between whole numbers: no jump within reach of a difference
_SAMPLES = pairs(reals(2.45, 2.55), reals(0.99, 1.01))


@primitive(vjp=dict(a=lambda g: g * 0.0, b=lambda g: g * 0.0), samples=_SAMPLES, broadcasts=True)
def floor_divide(a: Array, b: Array) -> Array:
    """floor(a / b) elementwise, as Python's //; derivative 0.  a, b: any broadcastable shapes."""
    return np.floor_divide(a, b)


@primitive(
    vjp=dict(a=lambda g: g, b=lambda g, a, b: -(g * floor_divide(a, b))),
    samples=_SAMPLES + edges(edge([5.0, -5.0], [3.0, 3.0], value=[2.0, 1.0], grads=([1.0, 1.0], [-1.0, 2.0]))),
    broadcasts=True,
)
def remainder(a: Array, b: Array) -> Array:
    """a - b floor(a / b) elementwise, as Python's %: the sign is that of b.  a, b: any broadcastable shapes."""
    return np.remainder(a, b)


def _plain(function: Any, words: str, whole: bool, unary: bool = False) -> Any:
    """A function with boolean or integer results: never tracked."""

    def one(a: Array) -> Array:
        return function(a)

    def two(a: Array, b: Array) -> Array:
        return function(a, b)

    op = one if unary else two
    op.__name__ = op.__qualname__ = function.__name__
    op.__doc__ = f"{words}, elementwise{'' if unary else ' with broadcasting'}; carries no gradient."

    def draw(rng: np.random.Generator, *shape: int) -> Array:
        return rng.integers(0, 8, shape) if whole else rng.normal(size=shape).round()

    shapes: tuple[tuple[int, ...], ...] = ((2, 3), (0, 3), ())
    samples = calls(
        *(lambda rng, s=s: Sample((draw(rng, *s),) if unary else (draw(rng, *s), draw(rng, *s)), {}) for s in shapes)
    )
    return primitive(vjp=None, samples=samples, broadcasts=not unary)(op)


bitwise_and = _plain(np.bitwise_and, "Bits set in both (both true, for booleans)", True)
bitwise_or = _plain(np.bitwise_or, "Bits set in either (either true, for booleans)", True)
bitwise_xor = _plain(np.bitwise_xor, "Bits set in one of the two (one true, for booleans)", True)
invert = _plain(np.invert, "All bits changed (not, for booleans)", True, unary=True)
logical_and = _plain(np.logical_and, "True where both are not 0", False)
logical_or = _plain(np.logical_or, "True where one is not 0", False)
logical_xor = _plain(np.logical_xor, "True where exactly one is not 0", False)
logical_not = _plain(np.logical_not, "True where it is 0", False, unary=True)
isnan = _plain(np.isnan, "True where it is NaN", False, unary=True)
isinf = _plain(np.isinf, "True where it is infinite", False, unary=True)
isfinite = _plain(np.isfinite, "True where it is neither infinite nor NaN", False, unary=True)

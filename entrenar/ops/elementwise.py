"""Elementwise arithmetic and comparisons, all with NumPy's broadcasting."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..array import Array, wide, xp
from ..autograd import primitive
from ..autograd.linear import add, scale
from ..autograd.samples import Sample, calls, edge, edges, pairs, reals, unary
from ..autograd.tensor import raw
from . import exponential

__all__ = [
    "abs",
    "add",
    "ceil",
    "clip",
    "div",
    "equal",
    "floor",
    "greater",
    "greater_equal",
    "less",
    "less_equal",
    "logaddexp",
    "maximum",
    "minimum",
    "mul",
    "neg",
    "not_equal",
    "pow",
    "reciprocal",
    "round",
    "rsqrt",
    "sign",
    "sqrt",
    "square",
    "sub",
    "where",
    "xlogy",
]
NONZERO = reals(-2, 2, avoid=(0.0,), margin=0.3)
POSITIVE = reals(0.3, 3)
inf, nan = np.inf, np.nan


@primitive(vjp=dict(a=lambda g: g, b=lambda g: -g), samples=pairs(reals()), broadcasts=True)
def sub(a: Array, b: Array) -> Array:
    """Elementwise difference a - b.  a, b: any broadcastable shapes."""
    return np.subtract(a, b)


@primitive(vjp=dict(a=lambda g, b: g * b, b=lambda g, a: g * a), samples=pairs(reals()), broadcasts=True)
def mul(a: Array, b: Array) -> Array:
    """Elementwise product, plain IEEE arithmetic.  a, b: any broadcastable shapes."""
    return np.multiply(a, b)


@primitive(
    vjp=dict(a=lambda g, b: scale(g, reciprocal(b)), b=lambda g, b, y: scale(g, -y / b)),
    samples=pairs(reals(), NONZERO) + edges(edge([1.0], [0.0], grads=([0.0], [0.0]), cotangent=[0.0], label="1/0")),
    broadcasts=True,
)
def div(a: Array, b: Array) -> Array:
    """Elementwise quotient a / b (true division).  a, b: any broadcastable shapes."""
    return np.true_divide(a, b)


@primitive(vjp=dict(x=lambda g: -g), samples=unary(reals()))
def neg(x: Array) -> Array:
    """-x elementwise."""
    return np.negative(x)


@primitive(
    vjp=dict(x=lambda g, x: g * (x * 2.0)),
    samples=unary(reals()) + edges(edge([0.0, -3.0], value=[0.0, 9.0], grads=([0.0, -6.0],))),
)
def square(x: Array) -> Array:
    """x**2 elementwise."""
    return np.square(x)


@primitive(
    vjp=dict(x=lambda g, y: scale(g, 0.5 / y)),
    samples=unary(POSITIVE)
    + edges(edge([0.0, 4.0], value=[0.0, 2.0], grads=([inf, 0.25],)), edge([0.0], grads=([0.0],), cotangent=[0.0])),
)
def sqrt(x: Array) -> Array:
    """Square root elementwise; the derivative at 0 is +inf (0 for a zero cotangent)."""
    return np.sqrt(x)


@primitive(
    vjp=dict(x=lambda g, y: scale(g, -0.5 * (y * y * y))),
    samples=unary(POSITIVE)
    + edges(edge([0.0], value=[inf], grads=([-inf],)), edge([0.0], grads=([0.0],), cotangent=[0.0])),
)
def rsqrt(x: Array) -> Array:
    """1 / sqrt(x) elementwise."""
    return np.reciprocal(np.sqrt(x))


@primitive(
    vjp=dict(x=lambda g, y: scale(g, -(y * y))),
    samples=unary(NONZERO) + edges(edge([0.0], grads=([0.0],), cotangent=[0.0])),
)
def reciprocal(x: Array) -> Array:
    """1 / x elementwise.  Integers give floats, as division does."""
    return np.true_divide(np.ones((), x.dtype), x)


@primitive(
    vjp=dict(x=lambda g, x: g * sign(x)),
    samples=unary(NONZERO) + edges(edge([0.0, -2.0], value=[0.0, 2.0], grads=([0.0, -1.0],), label="kink")),
)
def abs(x: Array) -> Array:
    """Absolute value elementwise; derivative 0 at 0."""
    return np.abs(x)


@primitive(
    vjp=dict(x=lambda g: g * 0.0),
    samples=unary(NONZERO) + edges(edge([nan, 2.0, 0.0], value=[nan, 1.0, 0.0], grads=([0.0, 0.0, 0.0],))),
)
def sign(x: Array) -> Array:
    """-1, 0 or 1 elementwise; derivative 0."""
    return np.sign(x)


@primitive(
    vjp=dict(x=lambda g: g * 0.0),
    samples=unary(reals(0.1, 0.9)) + edges(edge([nan, 2.0, -0.5], value=[nan, 2.0, -1.0], grads=([0.0, 0.0, 0.0],))),
)
def floor(x: Array) -> Array:
    """The largest integer not above x, elementwise; derivative 0."""
    return np.floor(x)


@primitive(
    vjp=dict(x=lambda g: g * 0.0),
    samples=unary(reals(0.1, 0.9)) + edges(edge([nan, 2.0, 0.5], value=[nan, 2.0, 1.0], grads=([0.0, 0.0, 0.0],))),
)
def ceil(x: Array) -> Array:
    """The smallest integer not below x, elementwise; derivative 0."""
    return np.ceil(x)


@primitive(
    vjp=dict(x=lambda g: g * 0.0),
    samples=unary(reals(0.1, 0.4)) + edges(edge([nan, 2.5, -0.6], value=[nan, 2.0, -1.0], grads=([0.0, 0.0, 0.0],))),
)
def round(x: Array, decimals: int = 0) -> Array:
    """The nearest multiple of 10**-decimals, halves to even; derivative 0."""
    return wide(x).round(decimals).astype(x.dtype, copy=False) if decimals else np.rint(x)


def _wins(a: Array, b: Array, compare: Any, dtype: Any) -> Array:
    """1 where a wins, 1/2 at a tie, 0 where it loses: constant in a and b."""
    a, b = raw(a), raw(b)
    return (compare(a, b) + 0.5 * np.equal(a, b)).astype(dtype)


@primitive(
    vjp=dict(
        a=lambda g, a, b: g * _wins(a, b, np.greater, g.dtype), b=lambda g, a, b: g * _wins(b, a, np.greater, g.dtype)
    ),
    samples=pairs(reals(0, 1), reals(2, 3))
    + pairs(reals(2, 3), reals(0, 1))
    + edges(edge([1.0, 2.0], [1.0, 3.0], value=[1.0, 3.0], grads=([0.5, 0.0], [0.5, 1.0]), label="tie")),
    broadcasts=True,
)
def maximum(a: Array, b: Array) -> Array:
    """The larger of a and b elementwise; at equality each gets half the gradient.  NaN propagates."""
    return np.maximum(a, b)


@primitive(
    vjp=dict(a=lambda g, a, b: g * _wins(a, b, np.less, g.dtype), b=lambda g, a, b: g * _wins(b, a, np.less, g.dtype)),
    samples=pairs(reals(0, 1), reals(2, 3))
    + edges(edge([1.0, 2.0], [1.0, 3.0], value=[1.0, 2.0], grads=([0.5, 1.0], [0.5, 0.0]), label="tie")),
    broadcasts=True,
)
def minimum(a: Array, b: Array) -> Array:
    """The smaller of a and b elementwise; at equality each gets half the gradient.  NaN propagates."""
    return np.minimum(a, b)


def _inside(x: Array, low: Any, high: Any, dtype: Any) -> Array:
    """1 in the closed interval, 0 outside."""
    x = raw(x)
    inside = np.ones(x.shape, bool)
    if low is not None:
        inside = np.greater_equal(x, low)
    if high is not None:
        inside = inside & np.less_equal(x, high)
    return inside.astype(dtype)


@primitive(
    vjp=dict(x=lambda g, x, min, max: g * _inside(x, raw(min), raw(max), g.dtype)),
    samples=unary(reals(-2, 2, avoid=(-1.0, 1.0))).with_(min=-1.0, max=1.0)
    + edges(
        edge([-1.0, 1.0, 2.0, 0.0], value=[-1.0, 1.0, 1.0, 0.0], grads=([1.0, 1.0, 0.0, 1.0],), min=-1.0, max=1.0),
        edge([0.0, -1.0], value=[0.0, 0.0], grads=([1.0, 0.0],), min=0.0),
    ),
)
def clip(x: Array, min: Any = None, max: Any = None) -> Array:
    """x limited to [min, max]; a bound belongs to the interior (derivative 1 there).  Either bound may be None.

    Raises ValueError if both are None or min > max.
    """
    min, max = raw(min), raw(max)
    if min is None and max is None:
        raise ValueError("clip: expected min, max or both, got neither")
    if min is not None and max is not None and np.any(np.greater(min, max)):
        raise ValueError(f"clip: min={min} is above max={max}")
    y = np.clip(x, min, max)
    return y.astype(x.dtype, copy=False) if x.dtype.kind not in "iub" else y


@primitive(
    nondiff=("condition",),
    vjp=dict(
        a=lambda g, condition: where(condition, g, np.zeros((), g.dtype)),
        b=lambda g, condition: where(condition, np.zeros((), g.dtype), g),
    ),
    samples=calls(
        lambda rng: Sample((rng.random((2, 3)) > 0.5, rng.normal(size=(2, 3)), rng.normal(size=3)), label="row"),
        lambda rng: Sample(
            (rng.random((2, 1)) > 0.5, rng.normal(size=(1, 3)), rng.normal(size=())), label="all stretched"
        ),
        lambda rng: Sample((np.array(True), rng.normal(size=(0, 3)), rng.normal(size=(1, 3))), label="empty"),
        lambda rng: Sample((rng.random((4, 2)) > 0.5, rng.normal(size=(2, 4)).T, rng.normal(size=(4, 4))[::-1, ::2])),
    ),
    broadcasts=True,
)
def where(condition: Array, a: Array, b: Array) -> Array:
    """a where ``condition`` holds, b elsewhere; the branch not taken gets an exact zero.  All three broadcast."""
    return xp(a, b).where(condition, a, b)


def _log_base(x: Array, p: Array, y: Array) -> Array:
    """d x**p / dp = x**p log x, which at x = 0 is 0 for p >= 0 and NaN for p < 0."""
    zero = np.equal(raw(x), 0)
    at_zero = np.where(np.less(raw(p), 0), nan, 0.0).astype(raw(y).dtype)
    if not zero.any():
        return y * exponential.log(x)
    safe = where(zero, np.ones((), raw(x).dtype), x)
    return where(zero, at_zero, y * exponential.log(safe))


@primitive(
    vjp=dict(x=lambda g, x, p: scale(g, scale(p, pow(x, p - 1.0))), p=lambda g, x, p, y: scale(g, _log_base(x, p, y))),
    samples=pairs(POSITIVE, reals(-2, 2))
    + edges(
        edge([0.0, 2.0], [1.0, 1.0], value=[0.0, 2.0], grads=([1.0, 1.0], [0.0, 2 * np.log(2)])),
        *(
            edge([0.0], [p], grads=([d], [0.0 if p >= 0 else nan]), label=f"0**{p}")
            for p, d in ((2.0, 0.0), (1.5, 0.0), (1.0, 1.0), (0.5, inf), (0.0, 0.0), (-1.0, -inf))
        ),
    ),
    broadcasts=True,
)
def pow(x: Array, p: Array) -> Array:
    """x**p elementwise.  x**0 is constant: derivative 0 everywhere.  x, p: any broadcastable shapes."""
    return np.power(x, p)


@primitive(
    vjp=dict(
        a=lambda g, a, b: scale(g, exponential.sigmoid(_lead(a, b))),
        b=lambda g, a, b: scale(g, exponential.sigmoid(_lead(b, a))),
    ),
    samples=pairs(reals())
    + edges(edge([-inf, -inf], [-inf, 1.0], value=[-inf, 1.0], grads=([0.0, 0.0], [0.0, 1.0]), label="-inf")),
    broadcasts=True,
)
def logaddexp(a: Array, b: Array) -> Array:
    """log(exp(a) + exp(b)) without overflow.  Both -inf: value -inf, gradient 0."""
    return np.logaddexp(a, b)


def _lead(a: Array, b: Array) -> Array:
    """a - b, and -inf where both are -inf, so that both shares are 0 there."""
    none = np.isneginf(raw(a)) & np.isneginf(raw(b))
    return where(none, np.asarray(-inf, raw(a).dtype), a - b) if none.any() else a - b


def _finite(y: Array) -> Array:
    """y with its -inf replaced by 0, so that exp(-inf - y) is 0 there."""
    lowest = np.isneginf(raw(y))
    return where(lowest, np.zeros((), raw(y).dtype), y) if lowest.any() else y


@primitive(
    vjp=dict(x=lambda g, y_: scale(g, exponential.log(y_)), y_=lambda g, x, y_: scale(g, scale(x, reciprocal(y_)))),
    samples=pairs(POSITIVE, POSITIVE)
    + edges(edge([0.0, 0.0], [2.0, 0.0], value=[0.0, 0.0], grads=([np.log(2.0), -inf], [0.0, 0.0]), label="0 log")),
    broadcasts=True,
)
def xlogy(x: Array, y_: Array) -> Array:
    """x log(y), and 0 wherever x is 0 (0 log 0 = 0).  x, y: any broadcastable shapes."""
    return np.where(np.equal(x, 0), np.zeros((), np.result_type(x, y_)), x * np.log(np.where(np.equal(x, 0), 1, y_)))


def _comparison(function: Any, words: str) -> Any:
    """A comparison: booleans, never tracked."""

    def compare(a: Array, b: Array) -> Array:
        return function(a, b)

    compare.__name__ = compare.__qualname__ = function.__name__
    compare.__doc__ = f"True where a is {words} b, elementwise with broadcasting; carries no gradient."
    return primitive(vjp=None, samples=pairs(reals()), broadcasts=True)(compare)


equal, not_equal = _comparison(np.equal, "equal to"), _comparison(np.not_equal, "different from")
less, less_equal = _comparison(np.less, "less than"), _comparison(np.less_equal, "at most")
greater, greater_equal = _comparison(np.greater, "greater than"), _comparison(np.greater_equal, "at least")

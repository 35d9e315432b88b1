"""Trigonometric functions, angles in radians."""

from __future__ import annotations

import numpy as np

from ..array import Array
from ..autograd import primitive
from ..autograd.linear import scale
from ..autograd.samples import edge, edges, pairs, reals, unary
from . import elementwise as E

__all__ = ["acos", "asin", "atan", "atan2", "cos", "sin", "tan"]


@primitive(vjp=dict(x=lambda g, x: g * cos(x)), samples=unary(reals()))
def sin(x: Array) -> Array:
    """Sine elementwise."""
    return np.sin(x)


@primitive(vjp=dict(x=lambda g, x: g * -sin(x)), samples=unary(reals()))
def cos(x: Array) -> Array:
    """Cosine elementwise."""
    return np.cos(x)


@primitive(vjp=dict(x=lambda g, y: scale(g, y * y + 1.0)), samples=unary(reals(-1.2, 1.2)))
def tan(x: Array) -> Array:
    """Tangent elementwise."""
    return np.tan(x)


@primitive(
    vjp=dict(x=lambda g, x: scale(g, E.rsqrt((1.0 - x) * (x + 1.0)))),
    samples=unary(reals(-0.7, 0.7))
    + edges(edge([1.0], grads=([np.inf],)), edge([1.0], grads=([0.0],), cotangent=[0.0])),
)
def asin(x: Array) -> Array:
    """Inverse sine elementwise, in [-pi/2, pi/2]."""
    return np.arcsin(x)


@primitive(
    vjp=dict(x=lambda g, x: scale(g, -E.rsqrt((1.0 - x) * (x + 1.0)))),
    samples=unary(reals(-0.7, 0.7))
    + edges(edge([1.0], grads=([-np.inf],)), edge([1.0], grads=([0.0],), cotangent=[0.0])),
)
def acos(x: Array) -> Array:
    """Inverse cosine elementwise, in [0, pi]."""
    return np.arccos(x)


@primitive(vjp=dict(x=lambda g, x: g / (x * x + 1.0)), samples=unary(reals()))
def atan(x: Array) -> Array:
    """Inverse tangent elementwise, in [-pi/2, pi/2]."""
    return np.arctan(x)


@primitive(
    vjp=dict(a=lambda g, a, b: scale(g, b / (a * a + b * b)), b=lambda g, a, b: scale(g, -a / (a * a + b * b))),
    samples=pairs(reals(0.3, 2), reals(-2, 2))
    + edges(
        edge([0.0], [0.0], value=[0.0], grads=([np.nan], [np.nan]), label="origin"),
        edge([0.0], [0.0], grads=([0.0], [0.0]), cotangent=[0.0], label="origin, zero cotangent"),
        edge([0.0], [1.0], value=[0.0], grads=([1.0], [-0.0])),
    ),
    broadcasts=True,
)
def atan2(a: Array, b: Array) -> Array:
    """The angle of the point (b, a), in [-pi, pi].  At the origin: value 0, gradient NaN."""
    return np.arctan2(a, b)

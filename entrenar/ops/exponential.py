"""Exponentials, logarithms, hyperbolic functions and their kin."""

from __future__ import annotations

import numpy as np

from ..array import Array
from ..autograd import primitive
from ..autograd.linear import scale
from ..autograd.samples import edge, edges, reals, unary
from . import elementwise as E
from .errorfunction import erf, erfc

__all__ = [
    "acosh",
    "asinh",
    "atanh",
    "cosh",
    "erf",
    "erfc",
    "exp",
    "expm1",
    "log",
    "log1p",
    "log2",
    "sigmoid",
    "sinh",
    "softplus",
    "tanh",
]


@primitive(vjp=dict(x=lambda g, y: scale(g, y)), samples=unary(reals()))
def exp(x: Array) -> Array:
    """e**x elementwise."""
    return np.exp(x)


@primitive(vjp=dict(x=lambda g, x: scale(g, exp(x))), samples=unary(reals()))
def expm1(x: Array) -> Array:
    """e**x - 1 elementwise."""
    return np.expm1(x)


@primitive(vjp=dict(x=lambda g, x: scale(g, E.reciprocal(x))), samples=unary(reals(0.3, 3)))
def log(x: Array) -> Array:
    """Natural logarithm elementwise."""
    return np.log(x)


@primitive(vjp=dict(x=lambda g, x: scale(g, E.reciprocal(x + 1.0))), samples=unary(reals(-0.7, 3)))
def log1p(x: Array) -> Array:
    """log(1 + x) elementwise."""
    return np.log1p(x)


@primitive(vjp=dict(x=lambda g, x: scale(g, E.reciprocal(x * float(np.log(2))))), samples=unary(reals(0.3, 3)))
def log2(x: Array) -> Array:
    """Logarithm to base 2."""
    return np.log2(x)


@primitive(vjp=dict(x=lambda g, x: scale(g, cosh(x))), samples=unary(reals()))
def sinh(x: Array) -> Array:
    """Hyperbolic sine."""
    return np.sinh(x)


@primitive(vjp=dict(x=lambda g, x: scale(g, sinh(x))), samples=unary(reals()))
def cosh(x: Array) -> Array:
    """Hyperbolic cosine."""
    return np.cosh(x)


@primitive(vjp=dict(x=lambda g, y: g * ((1.0 - y) * (y + 1.0))), samples=unary(reals()))  # y * y would be rounded
def tanh(x: Array) -> Array:
    """Hyperbolic tangent."""
    return np.tanh(x)


@primitive(vjp=dict(x=lambda g, x: g * E.rsqrt(x * x + 1.0)), samples=unary(reals()))
def asinh(x: Array) -> Array:
    """Inverse hyperbolic sine."""
    return np.arcsinh(x)


@primitive(
    vjp=dict(x=lambda g, x: scale(g, E.rsqrt((x - 1.0) * (x + 1.0)))),
    samples=unary(reals(1.3, 3)) + edges(edge([1.0], value=[0.0], grads=([np.inf],))),
)
def acosh(x: Array) -> Array:
    """Inverse hyperbolic cosine."""
    return np.arccosh(x)


@primitive(
    vjp=dict(x=lambda g, x: scale(g, E.reciprocal((1.0 - x) * (x + 1.0)))),
    samples=unary(reals(-0.7, 0.7)) + edges(edge([0.5], grads=([0.0],), cotangent=[0.0])),
)
def atanh(x: Array) -> Array:
    """Inverse hyperbolic tangent."""
    return np.arctanh(x)


@primitive(
    vjp=dict(x=lambda g, x, y: g * (y * sigmoid(-x))),  # 1 - y would cancel for large x
    samples=unary(reals()) + edges(edge([-1000.0, 1000.0], value=[0.0, 1.0], grads=([0.0, 0.0],), label="saturated")),
)
def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x)), without overflow."""
    small = np.exp(-np.abs(x))
    small = small / (small + 1)
    return np.where(x >= 0, 1 - small, small)  # small is at most 1/2: nothing cancels


@primitive(
    vjp=dict(x=lambda g, x, beta: g * sigmoid(x * beta)), samples=unary(reals()) + unary(reals()).with_(beta=2.0)
)
def softplus(x: Array, *, beta: float = 1.0) -> Array:
    """log(1 + exp(beta x)) / beta, without overflow."""
    return np.logaddexp(x * beta, np.zeros((), x.dtype)) / beta

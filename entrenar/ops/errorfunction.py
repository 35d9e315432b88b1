"""erf and erfc by rational Chebyshev approximation.

W. J. Cody, "Rational Chebyshev approximations for the error function", Math. Comp. 23 (1969), the form of his CALERF:
|x| <= 0.46875 by erf itself, up to 4 and beyond 4 by exp(-x**2) times a rational function.  exp(-x**2) is split
(x rounded to sixteenths) so that the square loses nothing.
"""

from __future__ import annotations

import math

import numpy as np

from ..array import Array
from ..autograd import primitive
from ..autograd.linear import scale
from ..autograd.samples import edge, edges, reals, unary
from . import exponential

__all__ = ["erf", "erfc"]
A = (1.85777706184603153e-1, 3.16112374387056560e0, 1.13864154151050156e2, 3.77485237685302021e2, 3.20937758913846947e3)
B = (1.0, 2.36012909523441209e1, 2.44024637934444173e2, 1.28261652607737228e3, 2.84423683343917062e3)
C = (
    2.15311535474403846e-8,
    5.64188496988670089e-1,
    8.88314979438837594e0,
    6.61191906371416295e1,
    2.98635138197400131e2,
    8.81952221241769090e2,
    1.71204761263407058e3,
    2.05107837782607147e3,
    1.23033935479799725e3,
)
D = (
    1.0,
    1.57449261107098347e1,
    1.17693950891312499e2,
    5.37181101862009858e2,
    1.62138957456669019e3,
    3.29079923573345963e3,
    4.36261909014324716e3,
    3.43936767414372164e3,
    1.23033935480374942e3,
)
P = (
    1.63153871373020978e-2,
    3.05326634961232344e-1,
    3.60344899949804439e-1,
    1.25781726111229246e-1,
    1.60837851487422766e-2,
    6.58749161529837803e-4,
)
Q = (
    1.0,
    2.56852019228982242e0,
    1.87295284992346725e0,
    5.27905102951428412e-1,
    6.05183413124413191e-2,
    2.33520497626869185e-3,
)
TWO_OVER_ROOT_PI = 2 / math.sqrt(math.pi)


def _ratio(top: tuple[float, ...], bottom: tuple[float, ...], x: Array) -> Array:
    return np.polyval(top, x) / np.polyval(bottom, x)


def _tail(x: Array) -> Array:
    """erfc(x) for x > 0.46875, in float64."""
    sixteenths = np.trunc(x * 16) / 16
    bell = np.exp(-sixteenths * sixteenths) * np.exp(-(x - sixteenths) * (x + sixteenths))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore", under="ignore"):
        near = _ratio(C, D, np.minimum(x, 4.0))
        square = 1 / np.square(np.maximum(x, 4.0))
        far = (1 / math.sqrt(math.pi) - square * _ratio(P, Q, square)) / np.maximum(x, 4.0)
    return np.where(bell == 0, 0.0, bell * np.where(x <= 4, near, far))


def _parts(x: Array) -> tuple[Array, Array, Array]:
    """(x in float64, where |x| is small, erfc(|x|) where it is not)."""
    v = np.asarray(x, np.float64)
    size = np.abs(v)
    small = size <= 0.46875
    return v, small, _tail(np.where(small, 1.0, np.minimum(size, 40.0)))


def _core(v: Array) -> Array:
    square = np.square(np.clip(v, -0.46875, 0.46875))
    return v * _ratio(A, B, square)


def _bell(x: Array) -> Array:
    return exponential.exp(-(x * x)) * TWO_OVER_ROOT_PI


@primitive(
    vjp=dict(x=lambda g, x: scale(g, _bell(x))),
    samples=unary(reals(-3, 3)) + edges(edge([0.0, np.inf, -np.inf], value=[0.0, 1.0, -1.0])),
)
def erf(x: Array) -> Array:
    """The error function, 2/sqrt(pi) times the integral of exp(-t**2) from 0 to x.  A few ulp in float64."""
    v, small, tail = _parts(x)
    y = np.where(small, _core(v), np.copysign(1.0 - tail, v))
    return np.where(np.isnan(v), v, y).astype(x.dtype if x.dtype.kind not in "biu" else np.float64, copy=False)


@primitive(
    vjp=dict(x=lambda g, x: scale(g, -_bell(x))),
    samples=unary(reals(-3, 3)) + edges(edge([0.0, np.inf, -np.inf], value=[1.0, 0.0, 2.0])),
)
def erfc(x: Array) -> Array:
    """1 - erf(x), accurate where erf is close to 1."""
    v, small, tail = _parts(x)
    y = np.where(small, 1.0 - _core(v), np.where(v > 0, tail, 2.0 - tail))
    return np.where(np.isnan(v), v, y).astype(x.dtype if x.dtype.kind not in "biu" else np.float64, copy=False)

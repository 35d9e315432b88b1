"""Running sums and products along one axis."""

from __future__ import annotations

import numpy as np

from ..array import Array, floats, rounded, wide, xp
from ..autograd import primitive
from ..autograd.linear import scale
from ..autograd.samples import LAYOUTS, Draw, Sample, Samples, calls, edge, edges, reals
from ..autograd.tensor import raw
from . import elementwise as E, exponential, joining, shape as S

__all__ = ["cumprod", "cumsum", "logcumsumexp"]
inf = np.inf


def _along(draw: Draw) -> Samples:
    makers = [
        lambda rng: Sample((draw(rng, (2, 3)),), {"axis": 0}, "axis 0"),
        lambda rng: Sample((draw(rng, (2, 3)),), {"axis": -1}, "last"),
        lambda rng: Sample((draw(rng, (2, 1, 3)),), {"axis": 1}, "size 1"),
        lambda rng: Sample((draw(rng, (2, 0)),), {"axis": 1}, "empty"),
        lambda rng: Sample((draw(rng, (4,)),), {"axis": 0}, "1-d"),
        *(lambda rng, n=n, f=f: Sample((f(draw(rng, (3, 2))),), {"axis": 0}, n) for n, f in LAYOUTS.items()),
    ]
    return calls(*makers)


def _axis(x: Array, axis: int, name: str) -> int:
    if x.ndim == 0 or not -x.ndim <= axis < x.ndim:
        raise np.exceptions.AxisError(f"{name}: axis {axis} is out of bounds for an array of {x.ndim} dimensions")
    return axis % x.ndim


@primitive(vjp=dict(x=lambda g, axis: S.flip(cumsum(S.flip(g, axis), axis), axis)), samples=_along(reals()))
def cumsum(x: Array, axis: int = 0) -> Array:
    """Running sum along ``axis``."""
    y = wide(x).cumsum(axis=_axis(x, axis, "cumsum"))
    return y if x.dtype.kind in "biu" else y.astype(x.dtype, copy=False)


def _cut(x: Array, axis: int, first: int, last: int | None) -> Array:
    from . import index

    return index.getitem(x, (slice(None),) * (axis % x.ndim) + (slice(first, last),))


def _later(x: Array, axis: int, fill: float) -> Array:
    """x moved one place on along ``axis``, ``fill`` in the first place."""
    if x.shape[axis] == 0:
        return x
    head = tuple(1 if i == axis % x.ndim else n for i, n in enumerate(x.shape))
    return joining.concatenate([xp(raw(x)).full(head, fill, x.dtype), _cut(x, axis, 0, -1)], axis=axis)


def exclusive(x: Array) -> Array:
    """Products of all elements before each one, along the last axis."""
    return cumprod(_later(x, -1, 1.0), axis=-1)


@primitive(
    vjp=dict(
        c=lambda g, c, y, axis: _carried(g, c, axis) * _later(y, axis, 0.0), u=lambda g, c, axis: _carried(g, c, axis)
    ),
    samples=calls(
        lambda rng: Sample((rng.normal(size=(2, 3)), rng.normal(size=(2, 3))), {"axis": 1}, "last"),
        lambda rng: Sample((rng.normal(size=(4, 2)).T, rng.normal(size=(2, 8))[:, ::-2]), {"axis": 0}, "strided"),
        lambda rng: Sample((np.zeros((2, 0)), np.zeros((2, 0))), {"axis": 1}, "empty"),
    ),
)
def recur(c: Array, u: Array, *, axis: int) -> Array:
    """The linear recurrence s[i] = u[i] + c[i] s[i-1] along ``axis`` (s[-1] = 0): its pullback is one too."""
    s = np.array(u)
    rows, factors = np.moveaxis(s, axis, 0), np.moveaxis(c, axis, 0)
    for i in range(1, rows.shape[0]):
        rows[i] += factors[i] * rows[i - 1]
    return s


def _carried(g: Array, c: Array, axis: int) -> Array:
    """t[i] = g[i] + c[i+1] t[i+1]: the recurrence run backward."""
    return S.flip(recur(_later(S.flip(c, axis), axis, 0.0), S.flip(g, axis), axis=axis), axis)


@primitive(
    vjp=dict(x=lambda g, x, axis: _carried(g, x, axis) * cumprod(_later(x, axis, 1.0), axis)),
    samples=_along(reals(0.5, 2))
    + edges(edge([2.0, 0.0, 3.0], value=[2.0, 0.0, 0.0], grads=([1.0, 8.0, 0.0],), axis=0)),
)
def cumprod(x: Array, axis: int = 0) -> Array:
    """Running product along ``axis``; zeros are fine at every order (no division)."""
    y = wide(x).cumprod(axis=_axis(x, axis, "cumprod"))
    return y if x.dtype.kind in "biu" else y.astype(x.dtype, copy=False)


def _softened(g: Array, x: Array, y: Array, axis: int) -> Array:
    """sum over k >= i of g[k] exp(x[i] - y[k]), with every exponent at most 0."""
    safe = E._finite(y)
    steps = exponential.exp(_later(y, axis, 0.0) - safe)  # exp(y[i-1] - y[i]); the first is never read
    return scale(_carried(g, steps, axis), exponential.exp(x - safe))


@primitive(
    vjp=dict(x=_softened),
    samples=_along(reals())
    + edges(edge([-inf, -inf, 0.0], value=[-inf, -inf, 0.0], grads=([0.0, 0.0, 1.0],), axis=0, label="-inf prefix")),
)
def logcumsumexp(x: Array, axis: int = 0) -> Array:
    """log of the running sum of exp(x) along ``axis``, without overflow; a prefix of all -inf stays -inf."""
    return rounded(np.logaddexp.accumulate(floats(x), axis=_axis(x, axis, "logcumsumexp")), x.dtype)

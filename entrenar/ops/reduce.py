"""Reductions over axes.  16-bit floats accumulate in float32 and are rounded once."""

from __future__ import annotations

import math
import warnings
from functools import partial
from typing import Any

import numpy as np

from ..array import Array, floats, rounded, wide, xp
from ..autograd import fused, primitive
from ..autograd.linear import broadcast_to, cast, scale
from ..autograd.samples import LAYOUTS, Draw, Rng, Sample, Samples, calls, distinct, edge, edges, reals
from ..autograd.tensor import raw
from . import cumulative, elementwise as E, exponential, shape as S

__all__ = ["logsumexp", "max", "mean", "min", "nanmax", "nanmin", "norm", "normalize", "prod", "std", "sum", "var"]
Axis = int | tuple[int, ...] | None
inf, nan = np.inf, np.nan
_FMAX: Any = np.fmax.reduce
_FMIN: Any = np.fmin.reduce


def axes_of(axis: Axis, ndim: int, name: str) -> tuple[int, ...]:
    """Non-negative axes, in order; all of them for None.  Raises AxisError (a ValueError and IndexError)."""
    given = range(ndim) if axis is None else tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
    found = []
    for a in given:
        if isinstance(a, bool) or not isinstance(a, (int, np.integer)):
            raise TypeError(f"{name}: axis must be an integer, a tuple of integers or None, got {axis!r}")
        if not -ndim <= a < ndim:
            raise np.exceptions.AxisError(f"{name}: axis {a} is out of bounds for an array of {ndim} dimensions")
        found.append(int(a) % ndim)
    if len(set(found)) < len(found):
        raise ValueError(f"{name}: axis {axis} names an axis twice")
    return tuple(found)


def kept(shape: tuple[int, ...], axis: Axis) -> tuple[int, ...]:
    """The shape after a reduction with keepdims."""
    axes = axes_of(axis, len(shape), "axis")
    return tuple(1 if i in axes else n for i, n in enumerate(shape))


def restore(g: Array, shape: tuple[int, ...], axis: Axis, keepdims: bool) -> Array:
    """What a reduction gave, with the reduced axes back as size 1."""
    return g if keepdims else S.reshape(g, kept(shape, axis))


def spread(g: Array, shape: tuple[int, ...], axis: Axis, keepdims: bool) -> Array:
    """What a reduction gave, seen in the shape of its input."""
    return broadcast_to(restore(g, shape, axis, keepdims), shape)


def count(shape: tuple[int, ...], axis: Axis) -> int:
    """How many elements go into one result."""
    return math.prod(shape[a] for a in axes_of(axis, len(shape), "axis"))


def _viewed(draw: Draw, layout: Any, name: str, rng: Rng) -> Sample:
    return Sample((layout(draw(rng, (3, 2))),), {"axis": 0}, name)


def reduced(draw: Any, empty: bool = True) -> Samples:
    """Samples of a reduction: every kind of axis, keepdims, 0-d, size-1, empty, every layout."""
    makers = [
        lambda rng: Sample((draw(rng, (2, 3)),), {}, "all"),
        lambda rng: Sample((draw(rng, (2, 3)),), {"axis": 0}, "axis 0"),
        lambda rng: Sample((draw(rng, (2, 3, 2)),), {"axis": (0, -1), "keepdims": True}, "two axes, kept"),
        lambda rng: Sample((draw(rng, (2, 3)),), {"axis": -1, "keepdims": True}, "last, kept"),
        lambda rng: Sample((draw(rng, ()),), {}, "0-d"),
        lambda rng: Sample((draw(rng, (1, 4)),), {"axis": 0}, "size 1"),
        lambda rng: Sample((draw(rng, (0, 3)),), {"axis": 1}, "empty result"),
    ]
    if empty:
        makers.append(lambda rng: Sample((draw(rng, (0, 3)),), {"axis": 0}, "empty axis"))
    for name, layout in LAYOUTS.items():
        if name != "stride 0" or empty:
            makers.append(partial(_viewed, draw, layout, name))
    return calls(*makers)


@primitive(
    vjp=dict(x=lambda g, x_meta, axis, keepdims: spread(g, x_meta.shape, axis, keepdims)), samples=reduced(reals())
)
def sum(x: Array, axis: Axis = None, keepdims: bool = False) -> Array:
    """Sum over ``axis`` (int, tuple or None for all).  Booleans and small integers sum as integers, as NumPy does."""
    axes = axes_of(axis, x.ndim, "sum")
    y = wide(x).sum(axis=axes, keepdims=keepdims)
    return y if x.dtype.kind in "biu" else y.astype(x.dtype, copy=False)


@primitive(
    vjp=dict(
        x=lambda g, x_meta, axis, keepdims: spread(
            g / float(count(x_meta.shape, axis) or nan), x_meta.shape, axis, keepdims
        )
    ),
    samples=reduced(reals(), empty=False),
)
def mean(x: Array, axis: Axis = None, keepdims: bool = False) -> Array:
    """Arithmetic mean over ``axis``.  Integers give floats; the mean of nothing is NaN, with a warning."""
    y = wide(x).mean(axis=axes_of(axis, x.ndim, "mean"), keepdims=keepdims)
    return y if x.dtype.kind in "biu" else y.astype(x.dtype, copy=False)


def _others(x: Array, axis: Axis) -> Array:
    """For each element the product of all others that go into the same result: prefix times suffix, no division."""
    axes = axes_of(axis, x.ndim, "prod")
    rest = tuple(i for i in range(x.ndim) if i not in axes)
    order = (*rest, *axes)
    flat = S.reshape(S.transpose(x, order), (*(x.shape[i] for i in rest), count(x.shape, axes)))
    before = cumulative.exclusive(flat)
    after = S.flip(cumulative.exclusive(S.flip(flat, -1)), -1)
    back = S.reshape(before * after, tuple(x.shape[i] for i in order))
    return S.transpose(back, tuple(int(i) for i in np.argsort(order)))


@primitive(
    vjp=dict(x=lambda g, x, axis, keepdims: spread(g, x.shape, axis, keepdims) * _others(x, axis)),
    samples=reduced(reals(0.5, 2))
    + edges(
        edge([2.0, 0.0, 3.0], value=0.0, grads=([0.0, 6.0, 0.0],)),
        edge([0.0, 0.0, 3.0], value=0.0, grads=([0.0, 0.0, 0.0],)),
        edge([0.0], value=0.0, grads=([1.0],), axis=0),
    ),
)
def prod(x: Array, axis: Axis = None, keepdims: bool = False) -> Array:
    """Product over ``axis``; zeros are fine at every order (products of the others, no division)."""
    y = wide(x).prod(axis=axes_of(axis, x.ndim, "prod"), keepdims=keepdims)
    return y if x.dtype.kind in "biu" else y.astype(x.dtype, copy=False)


def _share(x: Array, y: Array, axis: Axis, keepdims: bool, dtype: Any) -> Array:
    """1/k at each of the k elements that equal the extreme (k counted in int64), 0 elsewhere: constant in x."""
    x, y = raw(x), restore(raw(y), raw(x).shape, axis, keepdims)
    chosen = np.equal(x, y) | (np.not_equal(y, y) & np.not_equal(x, x))
    k = chosen.sum(axis=axes_of(axis, x.ndim, "max"), keepdims=True, dtype=np.int64)
    return (chosen / np.maximum(k, 1)).astype(dtype)


def _extreme(g: Array, x: Array, y: Array, axis: Axis, keepdims: bool) -> Array:
    return restore(g, x.shape, axis, keepdims) * _share(x, y, axis, keepdims, g.dtype)


def _of_something(x: Array, axis: Axis, name: str) -> tuple[int, ...]:
    axes = axes_of(axis, x.ndim, name)
    if 0 in (x.shape[a] for a in axes):
        raise ValueError(f"{name} of an array of shape {x.shape} over axis {axis}: there is no element to choose")
    return axes


@primitive(
    vjp=dict(x=_extreme),
    samples=reduced(distinct(), empty=False)
    + edges(
        edge([1.0, 1.0], value=1.0, grads=([0.5, 0.5],), label="tie"), edge([1.0, nan], value=nan, grads=([0.0, 1.0],))
    ),
)
def max(x: Array, axis: Axis = None, keepdims: bool = False) -> Array:
    """Largest value over ``axis``; k equal ones share the gradient, NaN propagates.  Raises ValueError if empty."""
    return x.max(axis=_of_something(x, axis, "max"), keepdims=keepdims)


@primitive(
    vjp=dict(x=_extreme),
    samples=reduced(distinct(), empty=False)
    + edges(edge([1.0, 1.0, 2.0, 3.0], value=1.0, grads=([0.5, 0.5, 0.0, 0.0],), label="tie")),
)
def min(x: Array, axis: Axis = None, keepdims: bool = False) -> Array:
    """Smallest value over ``axis``; k equal ones share the gradient, NaN propagates.  Raises ValueError if empty."""
    return x.min(axis=_of_something(x, axis, "min"), keepdims=keepdims)


@primitive(
    vjp=dict(x=_extreme),
    samples=reduced(distinct(), empty=False)
    + edges(edge([1.0, nan, 1.0], value=1.0, grads=([0.5, 0.0, 0.5],), label="NaN left out")),
)
def nanmax(x: Array, axis: Axis = None, keepdims: bool = False) -> Array:
    """Largest value that is not NaN."""
    return _FMAX(x, axis=_of_something(x, axis, "nanmax"), keepdims=keepdims)


@primitive(
    vjp=dict(x=_extreme),
    samples=reduced(distinct(), empty=False)
    + edges(edge([1.0, nan, 3.0], value=1.0, grads=([1.0, 0.0, 0.0],), label="NaN left out")),
)
def nanmin(x: Array, axis: Axis = None, keepdims: bool = False) -> Array:
    """Smallest value that is not NaN."""
    return _FMIN(x, axis=_of_something(x, axis, "nanmin"), keepdims=keepdims)


def _freedom(x: Array, axis: Axis, ddof: float, name: str) -> float:
    """n - ddof; NaN, with a warning, where nothing is left."""
    left = count(x.shape, axis) - ddof
    if left > 0:
        return float(left)
    warnings.warn(
        f"{name}: no degrees of freedom left ({count(x.shape, axis)} elements, ddof={ddof}): the result is NaN",
        RuntimeWarning,
        stacklevel=4,
    )
    return nan


def _centered(v: Array, axes: tuple[int, ...]) -> Array:
    """v minus its mean over axes: an exact 0 where all are equal, though their mean, rounded, may be another number."""
    m = v.mean(axis=axes, keepdims=True)
    d = v - m
    first = v[tuple(slice(0, 1) if i in axes else slice(None) for i in range(v.ndim))]
    if (np.abs(first - m) <= np.abs(m) * (np.finfo(v.dtype).eps * count(v.shape, axes))).any():
        d = xp(v).where((v == first).all(axis=axes, keepdims=True), v.dtype.type(0), d)
    return d


@primitive(
    vjp=dict(x=lambda g, axis: centered(g, axis=axis)),
    samples=calls(
        *(
            lambda rng, axis=axis: Sample((rng.normal(size=(2, 3, 2)),), {"axis": axis}, f"axis {axis}")
            for axis in (None, 1, (0, 2))
        ),
        lambda rng: Sample((rng.normal(size=(0, 3)),), {"axis": 1}, "empty"),
        lambda rng: Sample((rng.normal(size=(4, 6)).T[::-2, ::2],), {"axis": 0}, "strided"),
    )
    + edges(edge([0.1, 0.1, 0.1], axis=0, value=[0.0, 0.0, 0.0], label="constant")),
)
def centered(x: Array, *, axis: Axis) -> Array:
    """x minus its mean over ``axis``: a symmetric linear map, its own transpose."""
    v = floats(x)
    return rounded(_centered(v, axes_of(axis, x.ndim, "centered")) if v.size else v, x.dtype)


def _variance(x: Array, axis: Axis, ddof: float, keepdims: bool, name: str) -> Array:
    axes = axes_of(axis, x.ndim, name)
    left = _freedom(x, axis, ddof, name)
    v = floats(x)
    if count(x.shape, axis) == 0:
        return v.sum(axis=axes, keepdims=keepdims) + nan
    d = _centered(v, axes) if v.size else v
    return np.multiply(d, d).sum(axis=axes, keepdims=keepdims) / left


@primitive(
    vjp=dict(
        x=lambda g, x, axis, ddof, keepdims: (
            restore(g * (2.0 / (count(x.shape, axis) - ddof)), x.shape, axis, keepdims) * centered(x, axis=axis)
        )
    ),
    samples=reduced(reals(), empty=False)
    + reduced(reals(), empty=False).with_(ddof=0.5)
    + edges(edge([1.0, 1.0], value=0.0, grads=([0.0, 0.0],), label="constant")),
)
def var(x: Array, axis: Axis = None, ddof: float = 0, keepdims: bool = False) -> Array:
    """Variance over ``axis``, of the population (ddof 0) unless given; NaN and a warning without degrees of freedom."""
    return rounded(_variance(x, axis, ddof, keepdims, "var"), x.dtype)


@primitive(
    vjp=dict(
        x=lambda g, x, y, axis, ddof, keepdims: scale(
            centered(x, axis=axis), restore(g / (y * float(count(x.shape, axis) - ddof)), x.shape, axis, keepdims)
        )
    ),
    samples=Samples(
        lambda rng: [s for s in reduced(reals(), empty=False)(rng) if s.args[0].ndim and s.label not in ("size 1",)]
    )
    + edges(edge([1.0, 1.0], value=0.0, grads=([0.0, 0.0],), label="constant"), edge([5.0], value=0.0, grads=([0.0],))),
)
def std(x: Array, axis: Axis = None, ddof: float = 0, keepdims: bool = False) -> Array:
    """Standard deviation over ``axis``, of the population (ddof 0) unless given; derivative 0 at constants."""
    return rounded(np.sqrt(_variance(x, axis, ddof, keepdims, "std")), x.dtype)


@primitive(
    vjp=dict(x=lambda g, x, y, axis, keepdims: scale(x, restore(g / y, x.shape, axis, keepdims))),
    samples=reduced(reals(0.3, 2))
    + edges(
        edge([0.0, 0.0], value=0.0, grads=([0.0, 0.0],), label="zero vector"),
        edge([[0.0, 0.0], [3.0, 4.0]], value=[0.0, 5.0], grads=([[0.0, 0.0], [0.6, 0.8]],), axis=1, label="zero row"),
    ),
)
def norm_2(x: Array, axis: Axis = None, keepdims: bool = False) -> Array:
    """Euclidean norm over ``axis``; derivative 0 at a zero vector."""
    v = floats(x)
    return rounded(np.sqrt(np.multiply(v, v).sum(axis=axes_of(axis, x.ndim, "norm"), keepdims=keepdims)), x.dtype)


@primitive(
    vjp=dict(
        x=lambda g, x, y, p, axis, keepdims: scale(
            E.sign(x) * E.abs(x) ** (p - 1.0), restore(g * y ** (1.0 - p), x.shape, axis, keepdims)
        )
    ),
    samples=reduced(reals(0.3, 2), empty=False).with_(p=3.0)
    + edges(edge([0.0, 0.0], value=0.0, grads=([0.0, 0.0],), p=3.0, label="zero vector")),
)
def norm_p(x: Array, *, p: float, axis: Axis = None, keepdims: bool = False) -> Array:
    """(sum |x|**p)**(1/p) over ``axis``; derivative 0 at a zero vector."""
    powers = np.power(np.abs(floats(x)), p).sum(axis=axes_of(axis, x.ndim, "norm"), keepdims=keepdims)
    return rounded(np.power(powers, 1.0 / p), x.dtype)


@fused(
    samples=reduced(reals(0.3, 2), empty=False)
    + edges(edge([2.0, -2.0, 1.0], value=2.0, grads=([0.5, -0.5, 0.0],), ord=inf, label="two maxima"))
)
def norm(x: Array, ord: float | str | None = None, axis: Axis = None, keepdims: bool = False) -> Array:
    """Vector norm of order ``ord`` (None or 2 Euclidean, 1, inf, -inf, p > 0) over ``axis``, or of all elements.

    At a zero vector the gradient is 0; with n equal maxima the inf-norm gives sign/n to each.  Raises ValueError for
    the matrix norms that NumPy computes when ``ord`` meets two axes.
    """
    if ord in (None, "fro"):
        return norm_2(x, axis, keepdims)
    axes = axes_of(axis, x.ndim, "norm")
    if isinstance(ord, str) or ord == 0 or (len(axes) > 1 and x.ndim > 1):
        raise ValueError(
            f"norm: ord={ord!r} over axes {axes} is a matrix norm or unknown, which is not supported: give one axis, "
            "or ord=None for the root of the sum of squares"
        )
    if ord == 2:
        return norm_2(x, axis, keepdims)
    if ord == 1:
        return sum(E.abs(x), axis, keepdims)
    if ord == inf:
        return max(E.abs(x), axis, keepdims)
    if ord == -inf:
        return min(E.abs(x), axis, keepdims)
    if ord < 0:
        raise ValueError(f"norm: expected ord > 0 or -inf, got {ord}")
    return norm_p(x, p=float(ord), axis=axis, keepdims=keepdims)


@fused(
    samples=calls(
        lambda rng: Sample((rng.normal(size=(2, 3)),), {}, "rows"),
        lambda rng: Sample((rng.normal(size=(2, 3)),), {"axis": 0}, "columns"),
        lambda rng: Sample((rng.normal(size=(2, 3)),), {"eps": 10.0}, "below eps"),
        lambda rng: Sample((np.zeros((0, 3)),), {}, "empty"),
        lambda rng: Sample((rng.normal(size=(4, 6))[::-1, ::2],), {}, "strided"),
    )
    + edges(edge([0.0, 0.0, 0.0], value=[0.0, 0.0, 0.0], grads=([2.0, 2.0, 2.0],), eps=0.5, label="zero vector"))
)
def normalize(x: Array, axis: int = -1, eps: float = 1e-12) -> Array:
    """x / max(norm(x), eps) along ``axis``; at 0 the value is 0 and the gradient that of x / eps."""
    v = wide(x)  # in float16 the square of a small norm is 0, and so is eps
    y = v / E.maximum(norm_2(v, axis, True), eps)
    return y if v.dtype == x.dtype else cast(y, dtype=x.dtype)


@primitive(
    vjp=dict(
        x=lambda g, x, y, axis, keepdims: scale(
            restore(g, x.shape, axis, keepdims), exponential.exp(x - E._finite(restore(y, x.shape, axis, keepdims)))
        )
    ),
    samples=reduced(reals(), empty=False)
    + edges(edge([-inf, -inf], value=-inf, grads=([0.0, 0.0],)), edge([-inf, 1.0], value=1.0, grads=([0.0, 1.0],))),
)
def logsumexp(x: Array, axis: Axis = None, keepdims: bool = False) -> Array:
    """log(sum(exp(x))) over ``axis``, without overflow.  All -inf: value -inf, gradient 0."""
    axes = axes_of(axis, x.ndim, "logsumexp")
    v = floats(x)
    m = np.maximum.reduce(v, axis=axes, keepdims=True, initial=-inf)
    m = np.where(np.isfinite(m), m, np.zeros((), v.dtype))
    with np.errstate(divide="ignore"):
        y = np.log(np.exp(v - m).sum(axis=axes, keepdims=True)) + m
    return rounded(y if keepdims else y.reshape([n for i, n in enumerate(x.shape) if i not in axes]), x.dtype)

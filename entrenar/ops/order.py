"""Order and truth: argmax, sort, topk, any, all."""

from __future__ import annotations

import numpy as np

from ..array import Array
from ..autograd import fused, primitive
from ..autograd.samples import LAYOUTS, Sample, calls, distinct
from ..autograd.tensor import Tensor, raw
from . import index

__all__ = ["all", "any", "argmax", "argmin", "argsort", "sort", "topk"]
Axis = int | tuple[int, ...] | None
_DRAW = distinct()
_SAMPLES = calls(
    lambda rng: Sample((_DRAW(rng, (2, 3)),), {"axis": -1}, "last"),
    lambda rng: Sample((_DRAW(rng, (3, 2)),), {"axis": 0}, "axis 0"),
    lambda rng: Sample((_DRAW(rng, (1, 4)),), {"axis": 0}, "size 1"),
    lambda rng: Sample((_DRAW(rng, (5,)),), {"axis": 0}, "1-d"),
    lambda rng: Sample((_DRAW(rng, (0, 3)),), {"axis": 1}, "empty"),
    *(lambda rng, n=n, f=f: Sample((f(_DRAW(rng, (3, 2))),), {"axis": -1}, n) for n, f in LAYOUTS.items()),
)


@primitive(vjp=None, samples=_SAMPLES)
def argmax(x: Array, axis: int | None = None, keepdims: bool = False) -> Array:
    """Index of the largest value (the first of equals), int64; never tracked."""
    return np.argmax(x, axis=axis, keepdims=keepdims)


@primitive(vjp=None, samples=_SAMPLES)
def argmin(x: Array, axis: int | None = None, keepdims: bool = False) -> Array:
    """Index of the smallest value (the first of equals), int64; never tracked."""
    return np.argmin(x, axis=axis, keepdims=keepdims)


@primitive(vjp=None, samples=_SAMPLES)
def any(x: Array, axis: Axis = None, keepdims: bool = False) -> Array:
    """True where some element over ``axis`` is not zero."""
    return np.any(x, axis=axis, keepdims=keepdims)


@primitive(vjp=None, samples=_SAMPLES)
def all(x: Array, axis: Axis = None, keepdims: bool = False) -> Array:
    """True where every element over ``axis`` is not zero."""
    return np.all(x, axis=axis, keepdims=keepdims)


@primitive(vjp=None, samples=_SAMPLES)
def argsort(x: Array, axis: int = -1) -> Array:
    """The stable order that sorts ``x`` along ``axis``, int64."""
    return np.argsort(x, axis=axis, kind="stable")


def _unsort(g: Array, x: Array, axis: int) -> Array:
    order = np.argsort(raw(x), axis=axis, kind="stable")
    return index.take_along_axis(g, np.argsort(order, axis=axis, kind="stable"), axis)


@primitive(vjp=dict(x=_unsort), samples=_SAMPLES)
def sort(x: Array, axis: int = -1) -> Array:
    """The values in ascending order along ``axis``; stable, NaN last."""
    return np.sort(x, axis=axis, kind="stable")


@fused(
    samples=calls(
        lambda rng: Sample((_DRAW(rng, (2, 5)), 3), {}, "largest"),
        lambda rng: Sample((_DRAW(rng, (2, 5)), 2), {"largest": False}),
        lambda rng: Sample((_DRAW(rng, (4, 2)), 1), {"axis": 0}),
        lambda rng: Sample((_DRAW(rng, (0, 3)), 2), {}, "empty"),
    )
)
def topk(x: Array, k: int, axis: int = -1, largest: bool = True, sorted: bool = True) -> tuple[Array, Array]:
    """(values, indices) of the k largest (or smallest) along ``axis``, best first, the first of equals first.

    Raises ValueError unless 0 <= k <= size of the axis.
    """
    size = x.shape[axis]
    if not 0 <= k <= size:
        raise ValueError(f"topk: expected 0 <= k <= {size}, the size of axis {axis}, got k={k}")
    values = raw(x)
    order = np.argsort(-values if largest else values, axis=axis, kind="stable")
    chosen = np.take(order, np.arange(k), axis=axis)
    picked = index.take_along_axis(x, chosen, axis)
    return picked, Tensor(chosen) if isinstance(x, Tensor) else chosen

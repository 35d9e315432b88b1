"""Joining arrays and taking them apart."""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from ..array import Array, device_of, xp
from ..autograd import primitive
from ..autograd.samples import Sample, calls
from ..autograd.tensor import raw
from ..kernels import pool
from ..kernels.memory import empty
from . import index
from .shape import axis_of, ravel, reshape

__all__ = ["concatenate", "hstack", "split", "stack", "vstack"]


def _cuts(xs: Any, axis: int) -> tuple[int, ...]:
    """Where arrays, or what is known of them, begin and end along an axis when they are joined."""
    return tuple(accumulate((x.shape[axis] for x in xs), initial=0))


@primitive(
    vjp=lambda g, xs_meta, axis: split_(g, axis=axis % g.ndim, cuts=_cuts(xs_meta, axis)),
    samples=calls(
        lambda rng: Sample((rng.normal(size=(2, 3)), rng.normal(size=(4, 3))), {"axis": 0}),
        lambda rng: Sample(
            (rng.normal(size=(2, 1)), rng.normal(size=(2, 0)), rng.normal(size=(2, 2))),
            {"axis": -1},
            "with an empty one",
        ),
        lambda rng: Sample((rng.normal(size=(3, 2)).T, rng.normal(size=(4, 6))[::-2, ::2]), {"axis": 1}, "strided"),
    ),
    promotes=True,
)
def concatenate_(*xs: Array, axis: int = 0) -> Array:
    """Arrays joined along an axis they have."""
    if sum(x.size for x in xs) < pool.WORTHWHILE or any(device_of(x) != "cpu" for x in xs) or xs[0].ndim < 2:
        return xp(*xs).concatenate(xs, axis=axis)
    return _side_by_side(xs, axis % xs[0].ndim)


def _side_by_side(xs: tuple[Array, ...], axis: int) -> Array:
    """numpy.concatenate by several threads."""
    cuts = _cuts(xs, axis)
    shape = (*xs[0].shape[:axis], cuts[-1], *xs[0].shape[axis + 1 :])
    y = empty(shape, np.result_type(*xs))
    quarters = 4

    def copy(i: int) -> None:
        k, q = divmod(i, quarters)
        part, x = y[_part(axis, cuts[k], cuts[k + 1])], xs[k]
        some = slice(len(x) * q // quarters, len(x) * (q + 1) // quarters)
        np.copyto(part[some], x[some])

    pool.each(copy, len(xs) * quarters)
    return y


def concatenate(arrays: Any, axis: int | None = 0) -> Array:
    """Arrays joined along ``axis`` (flattened first for None); every other size equal.  Raises ValueError."""
    xs = tuple(arrays)
    if axis is None:
        xs, axis = tuple(ravel(x if hasattr(x, "shape") else np.asarray(x)) for x in xs), 0
    if not xs:
        raise ValueError("concatenate: expected at least one array, got none")
    shapes = [np.shape(x) if not hasattr(x, "shape") else x.shape for x in xs]
    axis = axis_of(axis, len(shapes[0]), "concatenate")
    for s in shapes:
        if len(s) != len(shapes[0]) or any(
            a != b for i, (a, b) in enumerate(zip(s, shapes[0], strict=True)) if i != axis
        ):
            raise ValueError(f"concatenate: shapes {shapes} differ outside axis {axis}")
    return concatenate_(*xs, axis=axis)


@primitive(
    vjp=lambda g, xs_meta, axis: tuple(
        index.getitem(g, (slice(None),) * (axis % g.ndim) + (i,)) for i in range(len(xs_meta))
    ),
    samples=calls(
        lambda rng: Sample((rng.normal(size=(2, 3)), rng.normal(size=(2, 3))), {"axis": 0}),
        lambda rng: Sample((rng.normal(size=()), rng.normal(size=())), {"axis": 0}, "0-d"),
        lambda rng: Sample((rng.normal(size=(3, 2)).T, rng.normal(size=(2, 3)), rng.normal(size=(2, 3))), {"axis": -1}),
    ),
    promotes=True,
)
def stack_(*xs: Array, axis: int = 0) -> Array:
    """Arrays of one shape joined along a new axis."""
    return xp(*xs).stack(xs, axis=axis)


def stack(arrays: Any, axis: int = 0) -> Array:
    """Arrays of one shape joined along a new axis.  Raises ValueError naming the shapes if they differ."""
    xs = tuple(arrays)
    shapes = [x.shape if hasattr(x, "shape") else np.shape(x) for x in xs]
    if not xs or any(s != shapes[0] for s in shapes):
        raise ValueError(f"stack: expected arrays of one shape, got shapes {shapes}")
    return stack_(*xs, axis=axis_of(axis, len(shapes[0]) + 1, "stack"))


def vstack(arrays: Any) -> Array:
    """Arrays stacked as rows, as numpy.vstack."""
    return concatenate([reshape(x, (1, -1)) if x.ndim < 2 else x for x in arrays], axis=0)


def hstack(arrays: Any) -> Array:
    """Arrays joined along the second axis (the first for 1-d ones), as numpy.hstack."""
    xs = [reshape(x, (1,)) if x.ndim == 0 else x for x in arrays]
    return concatenate(xs, axis=0 if xs[0].ndim == 1 else 1)


def split(x: Array, sections: Any, axis: int = 0) -> list[Array]:
    """Parts along ``axis``: ``sections`` equal ones, or cut at the indices given, as numpy.split.

    Raises ValueError if the axis does not divide equally.
    """
    axis = axis_of(axis, x.ndim, "split")
    size = x.shape[axis]
    if isinstance(sections, (int, np.integer)):
        if sections < 1 or size % sections:
            raise ValueError(f"split: axis {axis} of size {size} does not divide into {sections} equal sections")
        cuts = list(range(0, size + 1, size // sections)) if size else [0] * (int(sections) + 1)
    else:
        cuts = [0, *(int(c) for c in sections), size]
    if any(a > b for a, b in pairwise(cuts)):  # parts that overlap, as NumPy has them
        return [index.getitem(x, _part(axis, a, b)) for a, b in pairwise(cuts)]
    return list(split_(x, axis=axis, cuts=tuple(cuts)))


def _part(axis: int, start: int, stop: int) -> tuple[slice, ...]:
    return (*(slice(None),) * axis, slice(start, stop))


def _joined(g: tuple[Any, ...], x_meta: Any, axis: int, cuts: tuple[int, ...]) -> Array:
    """The transpose of split: the parts side by side, zeros for those nobody asked for."""
    sizes = [(*x_meta.shape[:axis], b - a, *x_meta.shape[axis + 1 :]) for a, b in pairwise(cuts)]
    some = next(raw(u) for u in g if u is not None)
    parts = [xp(some).zeros(n, x_meta.dtype) if u is None else u for u, n in zip(g, sizes, strict=True)]
    return concatenate_(*parts, axis=axis)


@primitive(
    vjp=dict(x=lambda g, x_meta, axis, cuts: _joined(g, x_meta, axis, cuts)),
    samples=calls(
        lambda rng: Sample((rng.normal(size=(2, 6)),), {"axis": 1, "cuts": (0, 2, 2, 5, 6)}, "with an empty part"),
        lambda rng: Sample((rng.normal(size=(3, 2)).T,), {"axis": 0, "cuts": (0, 1, 2)}, "transposed"),
        lambda rng: Sample((rng.normal(size=(4, 6))[::-2, ::2],), {"axis": 1, "cuts": (0, 3)}, "one part"),
        lambda rng: Sample((rng.normal(size=(0, 2)),), {"axis": 1, "cuts": (0, 1, 2)}, "empty"),
    ),
)
def split_(x: Array, *, axis: int, cuts: tuple[int, ...]) -> tuple[Array, ...]:
    """The parts of x between the cuts along ``axis``; views."""
    return tuple(x[_part(axis, a, b)] for a, b in pairwise(cuts))

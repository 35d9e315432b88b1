"""Indexing: everything NumPy indexes with, gather and scatter, masks and triangles.

The transpose of reading by an index is adding by it: ``getitem_`` and ``index_add_`` are each other's pullback.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..array import Array, is_low, wide, xp
from ..autograd import primitive
from ..autograd.samples import LAYOUTS, Sample, calls
from ..autograd.tensor import Tensor, raw
from . import elementwise as E

__all__ = [
    "gather",
    "getitem",
    "index_add",
    "index_fill",
    "index_put",
    "masked_fill",
    "scatter",
    "scatter_add",
    "take",
    "take_along_axis",
    "tril",
    "triu",
]


def plain_index(index: Any) -> Any:
    """An index without tensors or lists: arrays are copied, so that a later change of them is not seen."""
    if isinstance(index, tuple):
        return tuple(plain_index(i) for i in index)
    if isinstance(index, (Tensor, np.ndarray, list)):
        array = (
            np.array(raw(index)) if not isinstance(index, list) else np.array(index if index else np.zeros(0, np.int64))
        )
        if array.dtype.kind not in "bui":
            raise IndexError(
                f"an index is made of integers, booleans, slices, None and ...; got an array of {array.dtype}"
            )
        return array
    return index


def _basic(index: Any) -> bool:
    """True if the index reads every element at most once, as a view."""
    parts = index if isinstance(index, tuple) else (index,)
    return all(
        p is None or p is Ellipsis or (isinstance(p, (slice, int, np.integer)) and not isinstance(p, bool))
        for p in parts
    )


def _one_axis(index: Any) -> tuple[int, Array] | None:
    """(axis, integers) of an index that is slices up to one integer array, or None."""
    parts = index if isinstance(index, tuple) else (index,)
    *lead, last = parts
    if (
        all(isinstance(p, slice) and p == slice(None) for p in lead)
        and isinstance(last, np.ndarray)
        and last.dtype.kind in "ui"
    ):
        return len(lead), last
    return None


_INDICES = (
    1,
    -1,
    slice(None, None, -1),
    (slice(None), 1),
    (Ellipsis, None, 0),
    (slice(0, 2), slice(1, None, 2)),
    np.array([0, 2, 0]),
    (slice(None), np.array([[1, 1], [0, 3]])),
    (np.array([0, 2, 2]), np.array([1, 1, 1])),
    np.array([True, False, True]),
    (np.array([1, 0]), slice(None, None, 2)),
    np.zeros(0, int),
)


def _add_at(total: Array, g: Array, index: Any) -> bool:
    """Add to what an index without repetitions reads; 16-bit floats, which would be rounded each time, are declined."""
    if is_low(total.dtype) or not _basic(index):
        return False
    total[index] += g
    return True


@primitive(
    vjp=dict(x=lambda g, x_meta, index: index_add_(g, index=index, shape=x_meta.shape)),
    into=dict(x=_add_at),
    samples=calls(
        *(lambda rng, i=i: Sample((rng.normal(size=(3, 4)),), {"index": i}) for i in _INDICES),
        lambda rng: Sample((rng.normal(size=(0, 3)),), {"index": (slice(None), 1)}, "empty"),
        lambda rng: Sample((rng.normal(size=()),), {"index": None}, "0-d"),
        *(
            lambda rng, n=n, f=f: Sample((f(rng.normal(size=(3, 2))),), {"index": np.array([2, 0, 2])}, n)
            for n, f in LAYOUTS.items()
        ),
    ),
)
def getitem_(x: Array, *, index: Any) -> Array:
    """x[index]; a view for basic indices."""
    return x[index]


def getitem(x: Array, index: Any) -> Array:
    """x[index] with all that NumPy indexes with; gradients of elements read twice add.  Raises IndexError."""
    return getitem_(x, index=plain_index(index))


@primitive(
    vjp=dict(u=lambda g, index: getitem_(g, index=index)),
    samples=calls(
        *(
            lambda rng, i=i: Sample((rng.normal(size=np.zeros((3, 4))[i].shape),), {"index": i, "shape": (3, 4)})
            for i in _INDICES
        )
    ),
)
def index_add_(u: Array, *, index: Any, shape: tuple[int, ...]) -> Array:
    """Zeros of ``shape`` with u added at ``index``, duplicates in index order: the transpose of ``getitem_``."""
    out = xp(u).zeros(shape, wide(u).dtype)
    single = _one_axis(index)
    if _basic(index) or (isinstance(index, np.ndarray) and index.dtype.kind == "b"):
        out[index] = u
    elif single is not None and single[1].size and u.size:
        _add_rows(out, wide(u), *single)
    else:
        np.add.at(out, index, wide(u))
    return out.astype(u.dtype, copy=False)


def _add_rows(out: Array, u: Array, axis: int, ids: Array) -> None:
    """Add rows of u at ``ids`` along ``axis``: sorted by id (stable), each run summed in order."""
    u = np.moveaxis(u.reshape(*u.shape[:axis], ids.size, *u.shape[axis + ids.ndim :]), axis, 0)
    flat = np.where(ids.ravel() < 0, ids.ravel().astype(np.int64) + out.shape[axis], ids.ravel().astype(np.int64))
    order = np.argsort(flat, kind="stable")
    sorted_ids = flat[order]
    starts = np.flatnonzero(np.concatenate([[True], sorted_ids[1:] != sorted_ids[:-1]]))
    rows = u if starts.size == flat.size and np.array_equal(order, np.arange(order.size)) else u[order]
    np.moveaxis(out, axis, 0)[sorted_ids[starts]] = np.add.reduceat(rows, starts, axis=0)


def _winners(shape: tuple[int, ...], index: Any) -> Array:
    """True where a write at ``index`` was the last one to its cell."""
    places = np.empty(shape, np.int64)[index].shape
    turns = np.arange(int(np.prod(places)), dtype=np.int64).reshape(places)
    cells = np.full(shape, -1, np.int64)
    cells[index] = turns
    return cells[index] == turns


def _written(g: Array, index: Any) -> Array:
    """The cotangent of what was written: g at the index, only where the write was the last to its cell."""
    read = getitem_(g, index=index)
    if _basic(index):
        return read
    return E.where(_winners(g.shape, index), read, np.zeros((), g.dtype))


@primitive(
    vjp=dict(
        x=lambda g, index: index_put_(g, np.zeros((), g.dtype), index=index), value=lambda g, index: _written(g, index)
    ),
    samples=calls(
        *(
            lambda rng, i=i: Sample((rng.normal(size=(3, 4)), rng.normal(size=np.zeros((3, 4))[i].shape)), {"index": i})
            for i in _INDICES
        ),
        lambda rng: Sample((rng.normal(size=(3, 4)), rng.normal(size=())), {"index": np.array([1, 1])}, "0-d value"),
        lambda rng: Sample((rng.normal(size=(4, 3)).T, rng.normal(size=(4,))[::-1]), {"index": 2}, "strided"),
        lambda rng: Sample(
            (rng.normal(size=(3, 4)), rng.normal(size=(3, 1))), {"index": slice(None)}, "stretched value"
        ),
    ),
    broadcasts=True,
)
def index_put_(x: Array, value: Array, *, index: Any) -> Array:
    """A copy of x with ``value`` (broadcast) at ``index``; of several writes to a cell the last one stays."""
    y = np.array(x) if isinstance(x, np.ndarray) else x.copy()
    y[index] = value
    return y


def index_put(x: Array, index: Any, value: Array) -> Array:
    """A copy of x with x[index] = value; with duplicates the last write stays and it alone gets the gradient."""
    return index_put_(x, value, index=plain_index(index))


def index_add(x: Array, axis: int, index: Any, source: Array) -> Array:
    """x with slices of ``source`` added at the places ``index`` along ``axis``; duplicates add (as PyTorch)."""
    at = (slice(None),) * (axis % x.ndim) + (plain_index(index),)
    return x + index_add_(source, index=at, shape=x.shape)


def take(x: Array, indices: Any, axis: int | None = None) -> Array:
    """Elements (slices) at ``indices`` along ``axis``, of the flattened array for None, as numpy.take."""
    from . import shape

    if axis is None:
        x, axis = shape.ravel(x), 0
    at = plain_index(np.asarray(raw(indices)) if not isinstance(indices, (int, np.integer)) else int(indices))
    return getitem_(x, index=(slice(None),) * shape.axis_of(axis, x.ndim, "take") + (at,))


def _along(shape: tuple[int, ...], index: Array, axis: int) -> tuple[Array, ...]:
    """The full integer index that reads ``index`` along ``axis`` and its own place along the others."""
    grid = [np.arange(n).reshape((1,) * i + (-1,) + (1,) * (len(shape) - i - 1)) for i, n in enumerate(index.shape)]
    grid[axis] = index
    return tuple(grid)


def _indices(x: Array, index: Any, axis: int, name: str) -> tuple[Array, int]:
    from . import shape

    at = plain_index(np.asarray(raw(index)))
    axis = shape.axis_of(axis, x.ndim, name)
    if at.ndim != x.ndim:
        raise ValueError(f"{name}: index has {at.ndim} dimensions, the input {x.ndim}; they must be equal")
    size = x.shape[axis]
    if at.size and (at.min() < -size or at.max() >= size):
        bad = at[(at < -size) | (at >= size)].flat[0]
        raise IndexError(f"{name}: index {bad} is out of bounds for axis {axis} of size {size}")
    return at, axis


def take_along_axis(x: Array, indices: Any, axis: int) -> Array:
    """x read at ``indices`` along ``axis``, the other axes matched (size 1 stretches), as numpy.take_along_axis."""
    at, axis = _indices(x, indices, axis, "take_along_axis")
    shape = tuple(
        at.shape[i] if i == axis else max(n, at.shape[i]) if min(n, at.shape[i]) else 0 for i, n in enumerate(x.shape)
    )
    at = np.broadcast_to(at, shape)
    grid = list(_along(x.shape, at, axis))
    for i, n in enumerate(x.shape):
        if i != axis and n == 1:
            grid[i] = np.zeros_like(grid[i])
    return getitem_(x, index=tuple(grid))


def gather(x: Array, axis: int, index: Any) -> Array:
    """out[i][j] = x[index[i][j]][j] for axis 0, and so on (PyTorch's gather); duplicates' gradients add."""
    at, axis = _indices(x, index, axis, "gather")
    return getitem_(x, index=_along(x.shape, at, axis))


def scatter(x: Array, axis: int, index: Any, source: Array) -> Array:
    """A copy of x with ``source`` written at ``index`` along ``axis`` (PyTorch's scatter); the last write stays."""
    at, axis = _indices(x, index, axis, "scatter")
    return index_put_(x, _cropped(source, at.shape), index=_along(x.shape, at, axis))


def scatter_add(x: Array, axis: int, index: Any, source: Array) -> Array:
    """x with ``source`` added at ``index`` along ``axis`` (PyTorch's scatter_add)."""
    at, axis = _indices(x, index, axis, "scatter_add")
    return x + index_add_(_cropped(source, at.shape), index=_along(x.shape, at, axis), shape=x.shape)


def _cropped(source: Any, shape: tuple[int, ...]) -> Any:
    """PyTorch reads the part of source that the index covers."""
    if not hasattr(source, "shape") or source.shape in (shape, ()):
        return source
    return getitem_(source, index=tuple(slice(0, n) for n in shape))


def index_fill(x: Array, axis: int, index: Any, value: Array) -> Array:
    """A copy of x with ``value`` in the slices ``index`` along ``axis``; a cell named twice counts once."""
    return index_put_(x, value, index=(slice(None),) * (axis % x.ndim) + (plain_index(np.asarray(raw(index))),))


def masked_fill(x: Array, mask: Any, value: Any) -> Array:
    """x with ``value`` where ``mask`` holds (broadcast)."""
    return E.where(mask, value, x)


_MATRICES = calls(
    lambda rng: Sample((rng.normal(size=(3, 4)),), {}),
    lambda rng: Sample((rng.normal(size=(3, 4)),), {"k": 1}),
    lambda rng: Sample((rng.normal(size=(2, 3, 2)),), {"k": -1}),
    lambda rng: Sample((rng.normal(size=(0, 3)),), {}),
    *(lambda rng, n=n, f=f: Sample((f(rng.normal(size=(3, 2))),), {}, n) for n, f in LAYOUTS.items()),
)


@primitive(vjp=dict(x=lambda g, k: tril(g, k)), samples=_MATRICES)
def tril(x: Array, k: int = 0) -> Array:
    """The lower triangle of the last two axes (up to diagonal k), zeros above."""
    return xp(x).tril(x, k).astype(x.dtype, copy=False)


@primitive(vjp=dict(x=lambda g, k: triu(g, k)), samples=_MATRICES)
def triu(x: Array, k: int = 0) -> Array:
    """The upper triangle of the last two axes (from diagonal k), zeros below."""
    return xp(x).triu(x, k).astype(x.dtype, copy=False)

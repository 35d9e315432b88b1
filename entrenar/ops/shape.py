"""Shapes: views where NumPy gives views, each a linear map whose transpose is one too."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..array import Array, xp
from ..autograd import primitive
from ..autograd.linear import broadcast_to
from ..autograd.samples import LAYOUTS, Sample, calls
from . import index

__all__ = [
    "broadcast_to",
    "expand",
    "expand_dims",
    "flatten",
    "flip",
    "moveaxis",
    "pad",
    "permute",
    "ravel",
    "repeat",
    "reshape",
    "roll",
    "squeeze",
    "swapaxes",
    "tile",
    "transpose",
    "unsqueeze",
]
Shape = int | tuple[int, ...]
Axes = int | tuple[int, ...] | None


def axis_of(axis: int, ndim: int, name: str) -> int:
    """A non-negative axis.  Raises AxisError naming the op."""
    if isinstance(axis, bool) or not isinstance(axis, (int, np.integer)):
        raise TypeError(f"{name}: axis must be an integer, got {axis!r}")
    if not -ndim <= axis < ndim:
        raise np.exceptions.AxisError(f"{name}: axis {axis} is out of bounds for an array of {ndim} dimensions")
    return int(axis) % ndim


def several(axis: Any) -> list[int]:
    """One axis or many, as a list."""
    return [int(axis)] if isinstance(axis, (int, np.integer)) else [int(a) for a in axis]


def _any_layout(size: tuple[int, ...], **kwargs: Any) -> Any:
    return calls(*(lambda rng, n=n, f=f: Sample((f(rng.normal(size=size)),), kwargs, n) for n, f in LAYOUTS.items()))


@primitive(
    vjp=dict(x=lambda g, x_meta: reshape(g, x_meta.shape)),
    samples=calls(
        lambda rng: Sample((rng.normal(size=(2, 3)),), {"shape": (3, 2)}),
        lambda rng: Sample((rng.normal(size=(2, 3)),), {"shape": -1}),
        lambda rng: Sample((rng.normal(size=()),), {"shape": (1, 1)}),
        lambda rng: Sample((rng.normal(size=(0, 3)),), {"shape": (3, 0)}),
    )
    + _any_layout((3, 2), shape=(2, -1)),
)
def reshape(x: Array, shape: Shape) -> Array:
    """The same elements, in C order, in another shape; one size may be -1.  A view where possible."""
    return x.reshape(shape)


def _inverse(axes: tuple[int, ...] | None, ndim: int) -> tuple[int, ...] | None:
    return None if axes is None else tuple(int(i) for i in np.argsort([a % ndim for a in axes]))


@primitive(
    vjp=dict(x=lambda g, axes: transpose(g, _inverse(axes, g.ndim))),
    samples=calls(
        lambda rng: Sample((rng.normal(size=(2, 3, 4)),), {}),
        lambda rng: Sample((rng.normal(size=(2, 3, 4)),), {"axes": (2, 0, 1)}),
        lambda rng: Sample((rng.normal(size=(2, 3, 1)),), {"axes": (-1, 0, 1)}),
        lambda rng: Sample((rng.normal(size=()),), {}),
        lambda rng: Sample((rng.normal(size=(0, 3)),), {}),
    )
    + _any_layout((3, 2)),
)
def transpose(x: Array, axes: tuple[int, ...] | None = None) -> Array:
    """Axes permuted (reversed for None), as numpy.transpose.  A view."""
    return x.transpose() if axes is None else x.transpose(axes)


def permute(x: Array, axes: tuple[int, ...]) -> Array:
    """Axes in the order given (PyTorch's name for transpose)."""
    return transpose(x, tuple(axes))


def moveaxis(x: Array, source: Axes, destination: Axes) -> Array:
    """Axes moved to other places, the rest in order, as numpy.moveaxis."""
    sources = [axis_of(a, x.ndim, "moveaxis") for a in several(source)]
    targets = [axis_of(a, x.ndim, "moveaxis") for a in several(destination)]
    if len(sources) != len(targets):
        raise ValueError(f"moveaxis: {len(sources)} source axes and {len(targets)} destinations")
    order = [i for i in range(x.ndim) if i not in sources]
    for target, src in sorted(zip(targets, sources, strict=True)):
        order.insert(target, src)
    return transpose(x, tuple(order))


def swapaxes(x: Array, axis1: int, axis2: int) -> Array:
    """Two axes exchanged."""
    order = list(range(x.ndim))
    a, b = axis_of(axis1, x.ndim, "swapaxes"), axis_of(axis2, x.ndim, "swapaxes")
    order[a], order[b] = b, a
    return transpose(x, tuple(order))


def squeeze(x: Array, axis: Axes = None) -> Array:
    """Without the axes of size 1 (all, or those named).  Raises ValueError for an axis of another size."""
    axes = (
        tuple(i for i, n in enumerate(x.shape) if n == 1)
        if axis is None
        else tuple(axis_of(a, x.ndim, "squeeze") for a in several(axis))
    )
    for a in axes:
        if x.shape[a] != 1:
            raise ValueError(f"squeeze: axis {a} has size {x.shape[a]}, only axes of size 1 can go (shape {x.shape})")
    return reshape(x, tuple(n for i, n in enumerate(x.shape) if i not in axes))


def expand_dims(x: Array, axis: Axes) -> Array:
    """With new axes of size 1 at the places ``axis`` of the result, as numpy.expand_dims."""
    places = several(axis)
    ndim = x.ndim + len(places)
    at = {axis_of(a, ndim, "expand_dims") for a in places}
    sizes = iter(x.shape)
    return reshape(x, tuple(1 if i in at else next(sizes) for i in range(ndim)))


def unsqueeze(x: Array, axis: int) -> Array:
    """With a new axis of size 1 at ``axis`` (PyTorch's name for expand_dims)."""
    return expand_dims(x, axis)


def flatten(x: Array, start_dim: int = 0, end_dim: int = -1) -> Array:
    """Axes ``start_dim`` to ``end_dim`` joined into one (all by default)."""
    if x.ndim == 0:
        return reshape(x, (1,))
    a, b = axis_of(start_dim, x.ndim, "flatten"), axis_of(end_dim, x.ndim, "flatten")
    return reshape(x, (*x.shape[:a], math.prod(x.shape[a : b + 1]), *x.shape[b + 1 :]))


def ravel(x: Array) -> Array:
    """All elements in C order, 1-d."""
    return reshape(x, (-1,)) if x.size else reshape(x, (0,))


def expand(x: Array, shape: Shape) -> Array:
    """Size-1 axes stretched to ``shape`` as a view, as PyTorch's expand: -1 keeps a size."""
    sizes = (shape,) if isinstance(shape, (int, np.integer)) else tuple(shape)
    lead = len(sizes) - x.ndim
    if lead < 0 or any(n == -1 for n in sizes[:lead]):
        raise ValueError(f"expand: cannot stretch shape {x.shape} to {sizes}")
    return broadcast_to(x, tuple(x.shape[i - lead] if n == -1 else n for i, n in enumerate(sizes)))


# moving and repeating -----------------------------------------------------------------------------------------
def flip(x: Array, axis: Axes = None) -> Array:
    """Reversed along ``axis`` (all by default); a view."""
    axes = range(x.ndim) if axis is None else [axis_of(a, x.ndim, "flip") for a in several(axis)]
    return index.getitem(x, tuple(slice(None, None, -1) if i in axes else slice(None) for i in range(x.ndim)))


@primitive(
    vjp=dict(x=lambda g, shift, axis: roll(g, _negative(shift), axis)),
    samples=calls(
        lambda rng: Sample((rng.normal(size=(2, 3)),), {"shift": 1}),
        lambda rng: Sample((rng.normal(size=(2, 3)),), {"shift": -1, "axis": 1}),
        lambda rng: Sample((rng.normal(size=(2, 3)),), {"shift": (1, 2), "axis": (0, 1)}),
        lambda rng: Sample((rng.normal(size=(0, 2)),), {"shift": 1}),
    )
    + _any_layout((3, 2), shift=2, axis=0),
)
def roll(x: Array, shift: int | tuple[int, ...], axis: Axes = None) -> Array:
    """Elements moved on by ``shift`` places along ``axis`` (of the flattened array for None), round the end."""
    return np.roll(x, shift, axis)


def _negative(shift: Any) -> Any:
    return tuple(-s for s in shift) if isinstance(shift, tuple) else -shift


def tile(x: Array, reps: Shape) -> Array:
    """The array repeated as a whole ``reps`` times along each axis, as numpy.tile."""
    times = (reps,) if isinstance(reps, (int, np.integer)) else tuple(reps)
    ndim = max(len(times), x.ndim)
    times = (1,) * (ndim - len(times)) + times
    shape = (1,) * (ndim - x.ndim) + tuple(x.shape)
    spread = broadcast_to(
        reshape(x, tuple(v for n in shape for v in (1, n))),
        tuple(v for t, n in zip(times, shape, strict=True) for v in (t, n)),
    )
    return reshape(spread, tuple(t * n for t, n in zip(times, shape, strict=True)))


def repeat(x: Array, repeats: Any, axis: int | None = None) -> Array:
    """Each element repeated along ``axis`` (of the flattened array for None), as numpy.repeat; repeats may differ."""
    if axis is None:
        x, axis = ravel(x), 0
    size = x.shape[axis_of(axis, x.ndim, "repeat")]
    return index.take(x, np.repeat(np.arange(size), repeats), axis)


def pad(x: Array, pad_width: Any, mode: Any = "constant", constant_values: float = 0.0) -> Array:
    """x with a border, as numpy.pad: mode constant, edge, reflect or wrap.

    pad_width: one number, (before, after), or one such pair per axis.  Raises ValueError for another mode.
    """
    widths = np.broadcast_to(np.asarray(pad_width), (x.ndim, 2)).tolist()
    if mode not in ("constant", "edge", "reflect", "wrap"):
        raise ValueError(f"pad: mode {mode!r} is not known; expected constant, edge, reflect or wrap")
    if any(n < 0 for w in widths for n in w):
        raise ValueError(f"pad: pad_width must not be negative, got {pad_width}")
    if mode == "constant":
        return pad_(x, widths=tuple(map(tuple, widths)), value=float(constant_values))
    for axis, width in enumerate(widths):
        if any(width):
            x = index.take(x, np.pad(np.arange(x.shape[axis]), width, mode=mode), axis)
    return x


@primitive(
    vjp=dict(
        x=lambda g, x_meta, widths: index.getitem(
            g, tuple(slice(a, a + n) for (a, _), n in zip(widths, x_meta.shape, strict=True))
        )
    ),
    samples=calls(
        lambda rng: Sample((rng.normal(size=(2, 3)),), {"widths": ((1, 0), (0, 2)), "value": 1.5}),
        lambda rng: Sample((rng.normal(size=(0, 2)),), {"widths": ((1, 1), (0, 0)), "value": 0.0}, "empty"),
    )
    + _any_layout((3, 2), widths=((0, 1), (1, 1)), value=0.0),
)
def pad_(x: Array, *, widths: tuple[tuple[int, int], ...], value: float) -> Array:
    """x with a border of ``value``."""
    y = xp(x).full(tuple(a + n + b for (a, b), n in zip(widths, x.shape, strict=True)), value, x.dtype)
    y[tuple(slice(a, a + n) for (a, _), n in zip(widths, x.shape, strict=True))] = x
    return y

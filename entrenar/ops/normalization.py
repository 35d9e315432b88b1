"""Normalisations: composites over rows (layer_norm, rms_norm), groups of channels and batches."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..array import Array, is_float, wide
from ..autograd.fused import fused
from ..autograd.samples import Sample, Samples, calls, normals
from . import elementwise as E, reduce, shape
from .activations import narrow

__all__ = [
    "add_layer_norm",
    "add_rms_norm",
    "batch_norm",
    "batch_statistics",
    "group_norm",
    "layer_norm",
    "rms_norm",
]


def _axes(name: str, x: Array, w: Array | None, b: Array | None, axes: int | None) -> tuple[int, ...]:
    """The trailing axes to normalise: as many as said, else as many as w or b has, else one."""
    count = next((a.ndim for a in (w, b) if a is not None), 1) if axes is None else axes
    if not 0 < count <= x.ndim:
        raise ValueError(f"{name}: cannot normalise the last {count} axes of an input of shape {x.shape}")
    for label, a in (("w", w), ("b", b)):
        if a is not None and a.shape != x.shape[x.ndim - count :]:
            raise ValueError(
                f"{name}: {label} has shape {a.shape}, expected {x.shape[x.ndim - count :]}, "
                f"the last {count} axes of x, whose shape is {x.shape}"
            )
    return tuple(range(-count, 0))


def _affine(y: Array, w: Array | None, b: Array | None, x: Array) -> Array:
    """y w + b, rounded once to the common dtype of x, w and b."""
    target = np.result_type(*(a.dtype for a in (x, w, b) if a is not None))
    if w is not None:
        y = E.mul(y, wide(w))
    if b is not None:
        y = E.add(y, wide(b))
    return narrow(y, target) if is_float(target) else y


def _norm_samples(bias: bool) -> Samples:
    count = 2 if bias else 1

    def viewed(label: str, x: Any, n: int, view: Any = lambda a: a) -> Any:
        return lambda rng: Sample((x(rng), *(view(rng.normal(size=n)) for _ in range(count))), {}, label)

    return calls(
        normals("rows", (2, 5), *[(5,)] * count),
        normals("3-d", (3, 2, 4), *[(4,)] * count),
        normals("two axes", (3, 2, 4), *[(2, 4)] * count),
        normals("two axes, no weight", (3, 2, 4), axes=2, eps=0.1),
        normals("no weight", (2, 5), eps=0.5),
        normals("weight alone", (2, 5), (5,), eps=0.2),
        normals("one row", (5,), *[(5,)] * count),
        normals("size-1 rows", (3, 1), *[(1,)] * count, eps=0.5),
        normals("no rows", (0, 4), *[(4,)] * count),
        viewed("transposed, reversed", lambda rng: rng.normal(size=(5, 3)).T, 5, lambda a: a[::-1]),
        viewed("strided", lambda rng: rng.normal(size=(4, 10))[::2, ::2], 10, lambda a: a[::2]),
        viewed("stride 0", lambda rng: np.broadcast_to(rng.normal(size=(1, 4)), (3, 4)), 4),
    )


@fused(samples=_norm_samples(True))
def layer_norm(x: Array, w: Array = None, b: Array = None, *, axes: int | None = None, eps: float = 1e-5) -> Array:
    """(x - mean) / sqrt(var + eps) w + b over the last axes (Ba et al. 2016, eq. 4), var the population variance.

    x: any shape of at least one axis.  w, b: the shape of the last axes, or None; ``axes`` says how many these are
    where neither is given (one by default).  Raises ValueError for shapes that do not fit.
    """
    over = _axes("layer_norm", x, w, b, axes)
    x32 = wide(x)
    xc = E.sub(x32, reduce.mean(x32, axis=over, keepdims=True))
    return _affine(E.mul(xc, E.rsqrt(E.add(reduce.mean(E.square(xc), axis=over, keepdims=True), eps))), w, b, x)


@fused(samples=_norm_samples(False))
def rms_norm(x: Array, w: Array = None, *, axes: int | None = None, eps: float = 1e-6) -> Array:
    """x / sqrt(mean(x^2) + eps) w over the last axes (Zhang and Sennrich 2019, eq. 4).

    x: any shape of at least one axis.  w: the shape of the last axes, or None; ``axes`` as in ``layer_norm``.
    Raises ValueError for shapes that do not fit.
    """
    over = _axes("rms_norm", x, w, None, axes)
    x32 = wide(x)
    return _affine(E.mul(x32, E.rsqrt(E.add(reduce.mean(E.square(x32), axis=over, keepdims=True), eps))), w, None, x)


def _residual_samples(bias: bool) -> Samples:
    count = 2 if bias else 1
    return calls(
        normals("rows", (2, 5), (2, 5), *[(5,)] * count),
        normals("3-d, two axes", (3, 2, 4), (3, 2, 4), *[(2, 4)] * count),
        normals("no weight", (3, 5), (3, 5), eps=0.5),
        normals("size-1 rows", (3, 1), (3, 1), *[(1,)] * count, eps=0.5),
        normals("no rows", (0, 4), (0, 4), *[(4,)] * count),
        lambda rng: Sample(
            (
                rng.normal(size=(5, 3)).T,
                np.broadcast_to(rng.normal(size=(1, 5)), (3, 5)),
                *(rng.normal(size=5)[::-1] for _ in range(count)),
            ),
            {},
            "transposed, stride 0, reversed",
        ),
    )


@fused(samples=_residual_samples(True))
def add_layer_norm(
    x: Array, residual: Array, w: Array = None, b: Array = None, *, eps: float = 1e-5
) -> tuple[Array, Array]:
    """(s, layer_norm(s, w, b)) with s = x + residual: the step between two blocks of a transformer.

    x, residual: one shape of at least one axis.  w, b: the shape of the last axes, or None.
    """
    s = E.add(x, residual)
    return s, layer_norm(s, w, b, eps=eps)


@fused(samples=_residual_samples(False))
def add_rms_norm(x: Array, residual: Array, w: Array = None, *, eps: float = 1e-6) -> tuple[Array, Array]:
    """(s, rms_norm(s, w)) with s = x + residual; shapes as in ``add_layer_norm``."""
    s = E.add(x, residual)
    return s, rms_norm(s, w, eps=eps)


# over channels ------------------------------------------------------------------------------------------------
def _channels(name: str, x: Array, **vectors: Array | None) -> tuple[int, ...]:
    """The shape that lines a vector over channels (axis 1) up with x.  Raises ValueError for other sizes."""
    if x.ndim < 2:
        raise ValueError(f"{name}: expected an input (batch, channels, ...), got shape {x.shape}")
    for label, a in vectors.items():
        if a is not None and a.shape != (x.shape[1],):
            raise ValueError(f"{name}: {label} has shape {a.shape}, expected ({x.shape[1]},): one per channel of x")
    return int(x.shape[1]), *(1 for _ in x.shape[2:])


def _along(a: Array | None, form: tuple[int, ...]) -> Array | None:
    return None if a is None else shape.reshape(a, form)


@fused(
    samples=calls(
        normals("3 of 6", (2, 6, 3), (6,), (6,), num_groups=3),
        normals("images", (2, 4, 3, 2), (4,), (4,), num_groups=2),
        normals("no weight", (3, 4), num_groups=2, eps=0.1),
        normals("one group", (2, 3, 4), (3,), num_groups=1),
        normals("empty", (0, 4, 2), (4,), (4,), num_groups=2),
    ),
)
def group_norm(x: Array, w: Array = None, b: Array = None, *, num_groups: int, eps: float = 1e-5) -> Array:
    """Each group of channels of each example normalised, then scaled and shifted by channel (Wu and He 2018, eq. 7).

    x: (batch, channels, ...).  w, b: (channels,) or None.  Raises ValueError unless num_groups divides the channels.
    """
    form = _channels("group_norm", x, w=w, b=b)
    if num_groups < 1 or x.shape[1] % num_groups:
        raise ValueError(f"group_norm: num_groups={num_groups} does not divide the {x.shape[1]} channels of x")
    size = x.shape[1] // num_groups * math.prod(x.shape[2:])
    y = layer_norm(shape.reshape(wide(x), (x.shape[0], num_groups, size)), eps=eps)
    return _affine(shape.reshape(y, x.shape), _along(w, form), _along(b, form), x)


def batch_statistics(x: Array) -> tuple[Array, Array]:
    """(mean, population variance) of each channel (axis 1) over all other axes, the running statistics' raw material.

    x: (batch, channels, ...).
    """
    _channels("batch_statistics", x)
    over = (0, *range(2, x.ndim))
    return reduce.mean(x, axis=over), reduce.var(x, axis=over)


@fused(
    samples=calls(
        normals("training", (4, 3), None, None, (3,), (3,), training=True),
        normals("no weight", (3, 2, 4), eps=0.1),
        normals("images", (2, 3, 2, 2), None, None, (3,), (3,)),
        lambda rng: Sample(
            (
                rng.normal(size=(2, 3, 4)),
                rng.normal(size=3),
                rng.uniform(0.5, 2, 3),
                rng.normal(size=3),
                rng.normal(size=3),
            ),
            {},
            "given statistics",
        ),
        lambda rng: Sample(
            (
                rng.normal(size=(0, 3, 4)),
                rng.normal(size=3),
                rng.uniform(0.5, 2, 3),
                rng.normal(size=3),
                rng.normal(size=3),
            ),
            {},
            "given statistics, empty",
        ),
    ),
)
def batch_norm(
    x: Array,
    mean: Array = None,
    var: Array = None,
    w: Array = None,
    b: Array = None,
    *,
    training: bool = False,
    eps: float = 1e-5,
) -> Array:
    """(x - mean) / sqrt(var + eps) w + b by channel (Ioffe and Szegedy 2015, algorithm 1).

    x: (batch, channels, ...).  mean, var, w, b: (channels,) or None.  With ``training``, or without mean and var, the
    statistics are the batch's own (population variance); running ones are the caller's (``batch_statistics``).
    Raises ValueError for shapes that do not fit and for one of mean and var without the other.
    """
    form = _channels("batch_norm", x, mean=mean, var=var, w=w, b=b)
    if (mean is None) != (var is None):
        raise ValueError("batch_norm: mean and var come together: got one without the other")
    x32 = wide(x)
    if training or mean is None:
        over = (0, *range(2, x.ndim))
        xc = E.sub(x32, reduce.mean(x32, axis=over, keepdims=True))
        spread = reduce.mean(E.square(xc), axis=over, keepdims=True)
    else:
        xc = E.sub(x32, _along(wide(mean), form))
        spread = _along(wide(var), form)
    y = E.mul(xc, E.rsqrt(E.add(spread, eps)))
    return _affine(y, _along(w, form), _along(b, form), x)

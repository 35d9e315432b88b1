"""Pooling over two spatial axes: a reduction over windows.  The windows are a linear map with its transpose."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..array import Array
from ..autograd.fused import fused
from ..autograd.primitive import primitive
from ..autograd.samples import Sample, calls, distinct, edge, edges, normals
from . import elementwise as E, reduce
from .convolution import Pads, Sizes, out_sizes, sizes, unwindow, windows

__all__ = ["avg_pool2d", "max_pool2d"]


_KINDS: tuple[tuple[str, tuple[int, ...], dict[str, Any]], ...] = (
    ("2-d", (2, 3, 4, 5), dict(window=(2, 3), stride=(1, 2), pads=((0, 0), (0, 0)), dilation=(1, 1))),
    ("all", (1, 2, 5, 4), dict(window=(2, 2), stride=(2, 1), pads=((1, 0), (1, 1)), dilation=(2, 1))),
    ("size 1", (1, 1, 1, 1), dict(window=(1, 1), stride=(1, 1), pads=((0, 0), (0, 0)), dilation=(1, 1))),
    ("empty", (0, 2, 3, 3), dict(window=(2, 2), stride=(1, 1), pads=((0, 0), (0, 0)), dilation=(1, 1))),
)


@primitive(
    vjp=dict(
        x=lambda g, x_meta, window, stride, pads, dilation: fold(
            g, space=x_meta.shape[2:], window=window, stride=stride, pads=pads, dilation=dilation
        )
    ),
    samples=calls(
        *(normals(label, x, **how) for label, x, how in _KINDS),
        lambda rng: Sample((rng.normal(size=(5, 4, 3, 2)).T[:, ::-1],), _KINDS[0][2], "strided"),
    ),
)
def unfold(
    x: Array,
    *,
    window: tuple[int, ...],
    stride: tuple[int, ...],
    pads: Pads,
    dilation: tuple[int, ...],
    fill: float = 0.0,
) -> Array:
    """The windows of x (N, C, *space), padded with ``fill``, as a view (N, C, *out, *window)."""
    return windows(x, window, stride, pads, dilation, fill)


def _cols(x: tuple[int, ...], how: dict[str, Any]) -> tuple[int, ...]:
    """The shape of the windows of x."""
    return (*x[:2], *out_sizes("fold", x[2:], **how), *how["window"])


@primitive(
    vjp=dict(
        cols=lambda g, window, stride, pads, dilation: unfold(
            g, window=window, stride=stride, pads=pads, dilation=dilation
        )
    ),
    samples=calls(*(normals(label, _cols(x, how), **how, space=x[2:]) for label, x, how in _KINDS)),
)
def fold(
    cols: Array,
    *,
    space: tuple[int, ...],
    window: tuple[int, ...],
    stride: tuple[int, ...],
    pads: Pads,
    dilation: tuple[int, ...],
) -> Array:
    """The transpose of ``unfold``: every window added back to where it was taken from."""
    n = len(window)
    moved = np.moveaxis(cols, range(2, 2 + n), range(-n, 0))
    low = moved.astype(np.float32) if moved.dtype.itemsize == 2 else moved
    return unwindow(low, space, window, stride, pads, dilation).astype(cols.dtype, copy=False)


def _geometry(
    name: str, x: Array, kernel_size: Sizes, stride: Sizes | None, padding: Sizes, dilation: Sizes
) -> dict[str, Any]:
    """What unfold takes, from PyTorch's numbers.  Raises ValueError for those that do not fit."""
    if x.ndim != 4:
        raise ValueError(f"{name}: x has shape {x.shape}: expected (batch, channels, height, width)")
    window = sizes(name, "kernel_size", kernel_size, 2, 1)
    steps = window if stride is None else sizes(name, "stride", stride, 2, 1)
    pad = sizes(name, "padding", padding, 2, 0)
    if any(2 * p > k for p, k in zip(pad, window, strict=True)):
        raise ValueError(
            f"{name}: padding={padding!r} is more than half of kernel_size={kernel_size!r}: a window may see nothing"
        )
    apart = sizes(name, "dilation", dilation, 2, 1)
    how: dict[str, Any] = dict(window=window, stride=steps, pads=tuple((p, p) for p in pad), dilation=apart)
    out_sizes(name, x.shape[2:], **how)
    return how


_DRAW = distinct()


@fused(
    samples=calls(
        lambda rng: Sample((_DRAW(rng, (2, 1, 4, 5)), 2), {}, "plain"),
        lambda rng: Sample((_DRAW(rng, (1, 2, 4, 3)), (2, 3)), {"stride": (1, 2), "padding": 1}, "overlapping, padded"),
        lambda rng: Sample((_DRAW(rng, (1, 1, 5, 4)), 2), {"stride": 1, "dilation": 2}, "dilated"),
        lambda rng: Sample((_DRAW(rng, (4, 5, 1, 2)).T, 2), {}, "transposed"),
        lambda rng: Sample((_DRAW(rng, (0, 1, 2, 2)), 2), {}, "empty"),
    )
    + edges(
        edge(
            [[[[1.0, 1.0], [0.0, 1.0]]]],
            2,
            value=[[[[1.0]]]],
            grads=([[[[1 / 3, 1 / 3], [0.0, 1 / 3]]]],),
            label="ties",
        ),
    ),
)
def max_pool2d(
    x: Array, kernel_size: Sizes, *, stride: Sizes | None = None, padding: Sizes = 0, dilation: Sizes = 1
) -> Array:
    """The largest value of each window; k equal ones share its gradient.  x (N, C, H, W) gives (N, C, H', W').

    stride: kernel_size unless given.  padding: -inf, at most half the window.  H' = (H + 2p - d(k-1) - 1) // s + 1.
    Raises ValueError for shapes and numbers that do not fit.
    """
    how = _geometry("max_pool2d", x, kernel_size, stride, padding, dilation)
    return reduce.max(unfold(x, **how, fill=-math.inf), axis=(-2, -1))


@fused(
    samples=calls(
        normals("plain", (2, 1, 4, 5), 2),
        normals("empty", (0, 1, 2, 2), 2),
        normals("overlapping, padded", (1, 2, 4, 3), kernel_size=(2, 3), stride=(1, 2), padding=1),
        normals("padding not counted", (1, 2, 4, 3), 2, padding=1, count_include_pad=False),
    ),
)
def avg_pool2d(
    x: Array, kernel_size: Sizes, *, stride: Sizes | None = None, padding: Sizes = 0, count_include_pad: bool = True
) -> Array:
    """The mean of each window.  x (N, C, H, W) gives (N, C, H', W').

    stride: kernel_size unless given.  padding: zeros, at most half the window, counted unless ``count_include_pad`` is
    False.  Raises ValueError for shapes and numbers that do not fit.
    """
    how = _geometry("avg_pool2d", x, kernel_size, stride, padding, 1)
    total = reduce.sum(unfold(x, **how), axis=(-2, -1))
    if count_include_pad:
        return total * (1.0 / math.prod(how["window"]))
    seen = windows(np.ones((1, 1, *x.shape[2:])), **how).sum(axis=(-2, -1))
    return E.mul(total, (1.0 / seen).astype(total.dtype))

"""Convolution (cross-correlation, as PyTorch has it) over one or two spatial axes, channels second.

conv(x, w) is linear in each argument, so one trilinear form <g, conv(x, w)> gives all its derivatives: ``convolve`` and
its two transposes are each other's pullbacks, at every order.  All three are one matrix product with the windows of x
(im2col, Chellapilla et al. 2006) or back to them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..array import Array, wide
from ..autograd.fused import fused
from ..autograd.primitive import primitive
from ..autograd.samples import Sample, Samples, calls, normals
from . import elementwise as E, shape

__all__ = ["conv1d", "conv2d"]

Sizes = int | Sequence[int]
Pads = tuple[tuple[int, int], ...]


# geometry -----------------------------------------------------------------------------------------------------
def sizes(name: str, what: str, value: Any, count: int, least: int) -> tuple[int, ...]:
    """``count`` integers of at least ``least`` from one or several.  Raises ValueError."""
    whole = (int, np.integer)
    given = (value,) * count if isinstance(value, whole) else tuple(value)
    if len(given) != count or any(isinstance(n, bool) or not isinstance(n, whole) or n < least for n in given):
        raise ValueError(f"{name}: {what}={value!r}: expected {count} integers of at least {least}, or one for all")
    return tuple(int(n) for n in given)


def out_sizes(
    name: str,
    space: tuple[int, ...],
    window: tuple[int, ...],
    stride: tuple[int, ...],
    pads: Pads,
    dilation: tuple[int, ...],
) -> tuple[int, ...]:
    """Windows along each axis.  Raises ValueError where not even one fits."""
    found = tuple(
        (n + sum(p) - d * (k - 1) - 1) // s + 1
        for n, k, s, p, d in zip(space, window, stride, pads, dilation, strict=True)
    )
    if any(n < 1 for n in found):
        raise ValueError(f"{name}: a window of {window} (dilation {dilation}) exceeds {space} padded by {pads}")
    return found


def windows(
    x: Array, window: tuple[int, ...], stride: tuple[int, ...], pads: Pads, dilation: tuple[int, ...], fill: float = 0.0
) -> Array:
    """x (N, C, *space) as a read-only view (N, C, *out, *window) of its padded copy."""
    n = len(window)
    if any(any(p) for p in pads):
        big = np.full((*x.shape[:2], *(m + sum(p) for m, p in zip(x.shape[2:], pads, strict=True))), fill, x.dtype)
        big[(slice(None), slice(None), *_inner(x.shape[2:], pads))] = x
        x = big
    reach = tuple(d * (k - 1) + 1 for k, d in zip(window, dilation, strict=True))
    view = np.lib.stride_tricks.sliding_window_view(x, reach, axis=tuple(range(2, 2 + n)))
    return view[(slice(None), slice(None), *(slice(None, None, step) for step in (*stride, *dilation)))]


def _inner(space: tuple[int, ...], pads: Pads) -> tuple[slice, ...]:
    """Where the unpadded array lies in the padded one."""
    return tuple(slice(p[0], p[0] + m) for p, m in zip(pads, space, strict=True))


def unwindow(
    cols: Array,
    space: tuple[int, ...],
    window: tuple[int, ...],
    stride: tuple[int, ...],
    pads: Pads,
    dilation: tuple[int, ...],
) -> Array:
    """The transpose of ``windows``: (N, C, *window, *out) added up where each element came from, (N, C, *space)."""
    n = len(window)
    out = cols.shape[2 + n :]
    big = np.zeros((*cols.shape[:2], *(m + sum(p) for m, p in zip(space, pads, strict=True))), cols.dtype)
    for at in itertools.product(*map(range, window)):  # one strided addition per position in the window
        starts = [i * d for i, d in zip(at, dilation, strict=True)]
        where = tuple(slice(i, i + s * (m - 1) + 1, s) for i, s, m in zip(starts, stride, out, strict=True))
        big[(slice(None), slice(None), *where)] += cols[(slice(None), slice(None), *at)]
    return big[(slice(None), slice(None), *_inner(space, pads))]


# convolution --------------------------------------------------------------------------------------------------
def _columns(x: Array, w_space: tuple[int, ...], stride: Any, pads: Any, dilation: Any, groups: int) -> Array:
    """Windows of x as (N, groups, C / groups * window, out), a copy with the positions innermost."""
    n = len(w_space)
    view = windows(x, w_space, stride, pads, dilation)
    out = view.shape[2 : 2 + n]
    view = np.moveaxis(view, range(2, 2 + n), range(-n, 0))
    return view.reshape(x.shape[0], groups, x.shape[1] // groups * math.prod(w_space), math.prod(out))


_GEOMETRIES: tuple[tuple[str, tuple[int, ...], tuple[int, ...], dict[str, Any]], ...] = (
    ("1-d", (2, 3, 7), (4, 3, 2), dict(stride=(1,), pads=((0, 0),), dilation=(1,), groups=1)),
    ("1-d all", (2, 4, 9), (6, 2, 3), dict(stride=(2,), pads=((1, 2),), dilation=(2,), groups=2)),
    ("2-d", (2, 3, 4, 5), (2, 3, 2, 3), dict(stride=(1, 1), pads=((0, 0), (0, 0)), dilation=(1, 1), groups=1)),
    ("2-d all", (1, 2, 6, 5), (4, 1, 2, 3), dict(stride=(2, 1), pads=((1, 0), (0, 2)), dilation=(1, 2), groups=2)),
    ("size 1", (1, 1, 1), (1, 1, 1), dict(stride=(1,), pads=((0, 0),), dilation=(1,), groups=1)),
    ("stride above window", (1, 2, 8), (3, 2, 2), dict(stride=(3,), pads=((0, 0),), dilation=(1,), groups=1)),
    ("no examples", (0, 2, 5), (3, 2, 2), dict(stride=(1,), pads=((1, 1),), dilation=(1,), groups=1)),
)


def _out_shape(x: tuple[int, ...], w: tuple[int, ...], how: dict[str, Any]) -> tuple[int, ...]:
    return (x[0], w[0], *out_sizes("convolve", x[2:], w[2:], how["stride"], how["pads"], how["dilation"]))


def _drawn(x: bool, w: bool, g: bool) -> Samples:
    """Samples of the trilinear form in two of x, w and the output's shape."""

    def make(label: str, xs: tuple[int, ...], ws: tuple[int, ...], how: dict[str, Any]) -> Any:
        def sample(rng: np.random.Generator) -> Sample:
            gs = _out_shape(xs, ws, how)
            args = [rng.normal(size=s) for s, used in ((gs, g), (xs, x), (ws, w)) if used]
            extra = {} if x and w else {"space": ws[2:]} if x else {"space": xs[2:]}
            return Sample(tuple(args), {**how, **extra}, label)

        return sample

    def views(rng: np.random.Generator) -> Sample:
        _, xs, ws, how = _GEOMETRIES[0]
        gs = _out_shape(xs, ws, how)
        args = [
            np.moveaxis(rng.normal(size=s[::-1]), range(3), (2, 1, 0))[..., ::-1]
            for s, used in ((gs, g), (xs, x), (ws, w))
            if used
        ]
        extra = {} if x and w else {"space": ws[2:]} if x else {"space": xs[2:]}
        return Sample(tuple(args), {**how, **extra}, "strided")

    return calls(*(make(*row) for row in _GEOMETRIES), views)


@primitive(
    vjp=dict(
        x=lambda g, w, x_meta, stride, pads, dilation, groups: convolve_input(
            g, w, space=x_meta.shape[2:], stride=stride, pads=pads, dilation=dilation, groups=groups
        ),
        w=lambda g, x, w_meta, stride, pads, dilation, groups: convolve_weight(
            g, x, space=w_meta.shape[2:], stride=stride, pads=pads, dilation=dilation, groups=groups
        ),
    ),
    samples=_drawn(True, True, False),
    promotes=True,
    autocast=True,
)
def convolve(
    x: Array, w: Array, *, stride: tuple[int, ...], pads: Pads, dilation: tuple[int, ...], groups: int
) -> Array:
    """x (N, C, *space) with w (O, C / groups, *window): (N, O, *out).  16-bit floats: sums in float32, rounded once."""
    out = out_sizes("convolve", x.shape[2:], w.shape[2:], stride, pads, dilation)
    cols = _columns(wide(x), w.shape[2:], stride, pads, dilation, groups)
    y = np.matmul(wide(w).reshape(groups, w.shape[0] // groups, math.prod(w.shape[1:])), cols)
    return y.reshape(x.shape[0], w.shape[0], *out).astype(np.result_type(x.dtype, w.dtype), copy=False)


@primitive(
    vjp=dict(
        y_=lambda g, w, stride, pads, dilation, groups: convolve(
            g, w, stride=stride, pads=pads, dilation=dilation, groups=groups
        ),
        w=lambda g, y_, w_meta, stride, pads, dilation, groups: convolve_weight(
            y_, g, space=w_meta.shape[2:], stride=stride, pads=pads, dilation=dilation, groups=groups
        ),
    ),
    samples=_drawn(False, True, True),
    promotes=True,
    autocast=True,
)
def convolve_input(
    y_: Array,
    w: Array,
    *,
    space: tuple[int, ...],
    stride: tuple[int, ...],
    pads: Pads,
    dilation: tuple[int, ...],
    groups: int,
) -> Array:
    """The transpose of ``convolve`` in x (a transposed convolution): y (N, O, *out) with w to (N, C, *space)."""
    n, window = y_.shape[0], w.shape[2:]
    flat = wide(y_).reshape(n, groups, y_.shape[1] // groups, math.prod(y_.shape[2:]))
    cols = np.matmul(wide(w).reshape(groups, w.shape[0] // groups, math.prod(w.shape[1:])).swapaxes(1, 2), flat)
    x = unwindow(cols.reshape(n, groups * w.shape[1], *window, *y_.shape[2:]), space, window, stride, pads, dilation)
    return x.astype(np.result_type(y_.dtype, w.dtype), copy=False)


@primitive(
    vjp=dict(
        y_=lambda g, x, stride, pads, dilation, groups: convolve(
            x, g, stride=stride, pads=pads, dilation=dilation, groups=groups
        ),
        x=lambda g, y_, x_meta, stride, pads, dilation, groups: convolve_input(
            y_, g, space=x_meta.shape[2:], stride=stride, pads=pads, dilation=dilation, groups=groups
        ),
    ),
    samples=_drawn(True, False, True),
    promotes=True,
    autocast=True,
)
def convolve_weight(
    y_: Array,
    x: Array,
    *,
    space: tuple[int, ...],
    stride: tuple[int, ...],
    pads: Pads,
    dilation: tuple[int, ...],
    groups: int,
) -> Array:
    """The transpose of ``convolve`` in w: y (N, O, *out) with x (N, C, *space of x) to (O, C / groups, *space)."""
    cols = _columns(wide(x), space, stride, pads, dilation, groups)
    flat = wide(y_).reshape(y_.shape[0], groups, y_.shape[1] // groups, math.prod(y_.shape[2:]))
    w = np.matmul(flat, cols.swapaxes(-1, -2)).sum(0)
    return w.reshape(y_.shape[1], x.shape[1] // groups, *space).astype(np.result_type(y_.dtype, x.dtype), copy=False)


def _pads(name: str, padding: Any, window: tuple[int, ...], stride: tuple[int, ...], dilation: tuple[int, ...]) -> Pads:
    """(before, after) of each axis from numbers, "valid" or "same"."""
    if padding == "valid":
        return ((0, 0),) * len(window)
    if padding == "same":
        if any(s != 1 for s in stride):
            raise ValueError(f'{name}: padding="same" needs stride 1, got {stride}')
        totals = [d * (k - 1) for k, d in zip(window, dilation, strict=True)]
        return tuple((t // 2, t - t // 2) for t in totals)
    if isinstance(padding, str):
        raise ValueError(f'{name}: padding={padding!r}: expected numbers, "valid" or "same"')
    return tuple((p, p) for p in sizes(name, "padding", padding, len(window), 0))


def _convolution(
    name: str, x: Array, w: Array, b: Array | None, stride: Any, padding: Any, dilation: Any, groups: int, count: int
) -> Array:
    if x.ndim != count + 2 or w.ndim != count + 2:
        raise ValueError(
            f"{name}: x has shape {x.shape} and w {w.shape}: expected {count + 2} axes each, "
            "(batch, channels, ...) and (out, channels / groups, ...)"
        )
    if groups < 1 or x.shape[1] % groups or w.shape[0] % groups or w.shape[1] * groups != x.shape[1]:
        raise ValueError(
            f"{name}: groups={groups} does not fit {x.shape[1]} channels of x and w of shape {w.shape}: "
            "expected w (out, channels / groups, ...), both divisible by groups"
        )
    if b is not None and b.shape != w.shape[:1]:
        raise ValueError(f"{name}: b has shape {b.shape}, expected {w.shape[:1]}")
    strides = sizes(name, "stride", stride, count, 1)
    dilations = sizes(name, "dilation", dilation, count, 1)
    pads = _pads(name, padding, w.shape[2:], strides, dilations)
    out_sizes(name, x.shape[2:], w.shape[2:], strides, pads, dilations)
    y = convolve(x, w, stride=strides, pads=pads, dilation=dilations, groups=groups)
    return y if b is None else E.add(y, shape.reshape(b, (-1,) + (1,) * count))


@fused(
    samples=calls(
        normals("plain", (2, 3, 6), (4, 3, 2), (4,)),
        normals("same, no bias", (1, 2, 5), (3, 2, 2), padding="same"),
        normals("all", (2, 4, 5), (2, 2, 3), (2,), stride=2, padding=2, dilation=2, groups=2),
        normals("empty", (0, 2, 5), (3, 2, 2), (3,)),
    ),
)
def conv1d(
    x: Array,
    w: Array,
    b: Array = None,
    *,
    stride: Sizes = 1,
    padding: Sizes | str = 0,
    dilation: Sizes = 1,
    groups: int = 1,
) -> Array:
    """Cross-correlation over one axis: x (N, C, L), w (O, C / groups, k), b (O,) give (N, O, L').

    L' = (L + 2 padding - dilation (k - 1) - 1) // stride + 1.  padding: a number, "valid", or "same" (with stride 1).
    Raises ValueError for shapes and numbers that do not fit.
    """
    return _convolution("conv1d", x, w, b, stride, padding, dilation, groups, 1)


@fused(
    samples=calls(
        normals("plain", (2, 3, 4, 5), (2, 3, 2, 3), (2,)),
        normals("empty", (0, 1, 3, 3), (2, 1, 2, 2), (2,)),
        normals("all", (1, 4, 4, 5), (2, 2, 2, 3), (2,), stride=(2, 1), padding=(1, 2), dilation=(1, 2), groups=2),
        normals("same, no bias", (1, 2, 4, 3), (3, 2, 2, 3), padding="same"),
    ),
)
def conv2d(
    x: Array,
    w: Array,
    b: Array = None,
    *,
    stride: Sizes = 1,
    padding: Sizes | str = 0,
    dilation: Sizes = 1,
    groups: int = 1,
) -> Array:
    """Cross-correlation over two axes: x (N, C, H, W), w (O, C / groups, kh, kw), b (O,) give (N, O, H', W').

    Each number may be a pair; sizes as in ``conv1d``.  Raises ValueError for shapes and numbers that do not fit.
    """
    return _convolution("conv2d", x, w, b, stride, padding, dilation, groups, 2)

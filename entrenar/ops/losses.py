"""Losses, with PyTorch's meaning and defaults (kl_div averages over the batch)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..array import Array, is_float, wide
from ..autograd.fused import fused
from ..autograd.linear import scale
from ..autograd.samples import Draw, Sample, Samples, calls, edge, edges, normals, reals
from ..autograd.tensor import raw
from . import elementwise as E, exponential, index, reduce, shape
from .activations import log_softmax, narrow

__all__ = [
    "binary_cross_entropy_with_logits",
    "cross_entropy",
    "huber_loss",
    "kl_div",
    "l1_loss",
    "mse_loss",
    "nll_loss",
]

REDUCTIONS = ("mean", "sum", "none")


def reduced(loss: Array, reduction: str, name: str, over: float | None = None) -> Array:
    """Losses as they are ("none"), their "sum", or that divided by ``over``, by default how many there are ("mean")."""
    if reduction == "none":
        return loss
    if reduction not in (*REDUCTIONS, "batchmean"):
        raise ValueError(f"{name}: reduction={reduction!r}: expected one of {', '.join(map(repr, REDUCTIONS))}")
    total = reduce.sum(loss)
    return total if reduction == "sum" else total * (1.0 / (over or max(loss.size, 1)))


# between two arrays of one shape ------------------------------------------------------------------------------
def _alike(name: str, x: Array, target: Array) -> None:
    if x.shape != target.shape:
        raise ValueError(
            f"{name}: x has shape {x.shape} and target {target.shape}: expected equal shapes; "
            "use broadcast_to if one of them is meant to be stretched"
        )


def _common(loss: Array, x: Array, target: Array) -> Array:
    """The loss in the common dtype of its two inputs."""
    dtype = np.result_type(x.dtype, target.dtype)
    return narrow(loss, dtype) if is_float(dtype) else loss


def between(draw: Draw, target: Draw) -> Samples:
    """Two arrays of one shape and layout, for every reduction."""

    def sample(form: tuple[int, ...], reduction: str, view: Callable[[Any], Any] = lambda a: a) -> Any:
        return lambda rng: Sample(
            (view(draw(rng, form)), view(target(rng, form))), {"reduction": reduction}, f"{form} {reduction}"
        )

    return calls(
        *(sample((2, 3), r) for r in REDUCTIONS),
        sample((), "mean"),
        sample((0, 3), "sum"),
        sample((0, 3), "mean"),
        sample((1,), "mean"),
        sample((4, 6), "mean", lambda a: a[::-2, ::2]),
        sample((3, 2), "none", lambda a: a.T),
        sample((1, 3), "sum", lambda a: np.broadcast_to(a, (2, 3))),
    )


NEAR, FAR = reals(-0.4, 0.4), reals(1.6, 2.4)


@fused(samples=between(reals(), reals()))
def mse_loss(x: Array, target: Array, *, reduction: str = "mean") -> Array:
    """(x - target)^2, reduced.  x, target: one shape, float.  Raises ValueError for shapes that differ."""
    _alike("mse_loss", x, target)
    return _common(reduced(E.square(E.sub(wide(x), wide(target))), reduction, "mse_loss"), x, target)


@fused(
    samples=between(reals(-1, 0.8), FAR)
    + edges(edge([1.0, 3.0], [1.0, 2.0], reduction="sum", value=1.0, grads=([0.0, 1.0], [0.0, -1.0]), label="equal"))
)
def l1_loss(x: Array, target: Array, *, reduction: str = "mean") -> Array:
    """|x - target|, reduced; derivative 0 where they are equal.  x, target: one shape, float."""
    _alike("l1_loss", x, target)
    return _common(reduced(E.abs(E.sub(wide(x), wide(target))), reduction, "l1_loss"), x, target)


@fused(
    samples=between(NEAR, NEAR)
    + between(NEAR, FAR)
    + between(NEAR, FAR).with_(delta=3.0)
    + edges(
        edge(
            [0.0, 3.0], [0.0, 1.0], reduction="sum", value=1.5, grads=([0.0, 1.0], [0.0, -1.0]), label="equal, and far"
        )
    )
)
def huber_loss(x: Array, target: Array, *, reduction: str = "mean", delta: float = 1.0) -> Array:
    """d^2 / 2 for |d| <= delta, else delta (|d| - delta / 2), with d = x - target (Huber 1964, eq. 1.3), reduced.

    x, target: one shape, float.  Raises ValueError unless delta > 0.
    """
    _alike("huber_loss", x, target)
    if not delta > 0:
        raise ValueError(f"huber_loss: delta={delta} must be positive")
    d = E.sub(wide(x), wide(target))
    c = E.clip(d, -float(delta), float(delta))
    return _common(reduced(E.mul(c, E.sub(d, c * 0.5)), reduction, "huber_loss"), x, target)


@fused(
    samples=between(reals(-2, 0), reals(0.1, 1))
    + between(reals(-2, 0), reals(-2, 0)).with_(log_target=True)
    + calls(lambda rng: Sample((rng.normal(size=(2, 3)), rng.random((2, 3))), {}, "mean over the batch"))
    + edges(
        edge([[-math.inf, 0.0]], [[0.0, 1.0]], value=0.0, grads=([[0.0, -1.0]], None), label="0 log 0"),
        edge(
            [[-math.inf, 0.0]],
            [[-math.inf, 0.0]],
            log_target=True,
            value=0.0,
            grads=([[0.0, -1.0]], None),
            label="log of 0",
        ),
    ),
)
def kl_div(x: Array, target: Array, *, reduction: str = "batchmean", log_target: bool = False) -> Array:
    """target (log target - x), reduced: KL(target || e^x) (Kullback and Leibler 1951, eq. 2.4), with 0 log 0 = 0.

    x: log-probabilities; target: probabilities of the same shape, or their logarithms with ``log_target``.
    reduction: "batchmean" (the sum over the size of the first axis), "mean" (over elements), "sum" or "none".
    """
    _alike("kl_div", x, target)
    x32, t = wide(x), wide(target)
    with np.errstate(invalid="ignore"):  # 0 times an infinity, which scale makes 0
        loss = scale(exponential.exp(t), E.sub(t, x32)) if log_target else E.sub(E.xlogy(t, t), scale(t, x32))
    over = max(x.shape[0], 1) if reduction == "batchmean" and x.ndim else None
    return _common(reduced(loss, reduction, "kl_div", over), x, target)


@fused(
    samples=between(reals(-3, 3), reals(0.1, 0.9))
    + calls(
        lambda rng: Sample((rng.normal(size=(2, 3)), *rng.random((2, 2, 3)), rng.uniform(0.5, 2, 3)), {}, "weighted"),
        lambda rng: Sample((rng.normal(size=(2, 3)), rng.random((2, 3)), None, rng.random(3)), {}, "positives"),
    )
    + edges(
        edge(
            [-math.inf, math.inf, 1000.0],
            [0.0, 1.0, 1.0],
            reduction="none",
            value=[0.0, 0.0, 0.0],
            grads=([0.0, 0.0, 0.0], None),
            label="certain and right",
        ),
        edge([-1e3, 1e3], [1.0, 0.0], reduction="none", value=[1e3, 1e3], grads=([-1.0, 1.0], None), label="wrong"),
    ),
)
def binary_cross_entropy_with_logits(
    x: Array, target: Array, weight: Array = None, pos_weight: Array = None, *, reduction: str = "mean"
) -> Array:
    """-(pos_weight t log s + (1 - t) log(1 - s)) weight with s = sigmoid(x), reduced; both logs by softplus.

    x, target: one shape, float.  weight, pos_weight: broadcast to it, or None.
    """
    _alike("binary_cross_entropy_with_logits", x, target)
    x32, t = wide(x), wide(target)
    with np.errstate(invalid="ignore"):  # 0 times an infinity, which scale makes 0
        yes, no = scale(t, exponential.softplus(-x32)), scale(1.0 - t, exponential.softplus(x32))
    loss = E.add(yes if pos_weight is None else E.mul(yes, wide(pos_weight)), no)
    if weight is not None:
        loss = E.mul(loss, wide(weight))
    return _common(reduced(loss, reduction, "binary_cross_entropy_with_logits"), x, target)


# class targets ------------------------------------------------------------------------------------------------
def _kept(targets: Array, ignore_index: int) -> tuple[Array, Array]:
    """(rows that count, their targets with 0 in place of the ignored ones)."""
    keep = targets != ignore_index
    return keep, np.where(keep, targets, 0)


def _row_samples(smoothed: bool) -> Samples:
    plain, some = np.array([2, 0, 3]), np.array([2, -100, 3])
    weight = np.array([0.5, 2.0, 1.25, 0.75])
    smoothing = (
        normals("smoothed", (3, 4), some, label_smoothing=0.2),
        normals("smoothed, weighted", (3, 4), some, weight, label_smoothing=0.2),
    )
    return calls(
        normals("plain", (3, 4), plain),
        normals("one ignored", (3, 4), some),
        normals("ignored by its class", (3, 4), np.array([2, 1, 3]), ignore_index=1),
        normals("weighted", (3, 4), plain, weight),
        *(smoothing if smoothed else ()),
        normals("one class", (2, 1), np.array([0, 0])),
        normals("no rows", (0, 3), np.zeros(0, np.int64)),
        lambda rng: Sample((rng.normal(size=(4, 3)).T, plain.astype(np.int32)), {}, "transposed"),
        lambda rng: Sample((rng.normal(size=(6, 8))[::2, ::-2], plain), {}, "strided"),
    )


@fused(
    samples=_row_samples(True)
    + edges(
        edge([[-math.inf, 1.0]], np.array([1]), value=[0.0], grads=([[0.0, 0.0]], None), label="certain"),
        edge([[math.nan, 1.0]], np.array([-100]), value=[0.0], grads=([[0.0, 0.0]], None), label="ignored NaN"),
    ),
    nondiff=("targets", "weight"),
)
def row_losses(
    x: Array, targets: Array, weight: Array = None, *, label_smoothing: float = 0.0, ignore_index: int = -100
) -> Array:
    """(1 - s) w[t] (lse - x[t]) + s / C sum_c w[c] (lse - x[c]) per row, lse = log(sum(e^x)); 0 for an ignored row.

    x: (rows, C) logits; targets: (rows,) integers, already checked; weight: (C,) or None (Szegedy et al. 2016,
    section 7, with the class weights where PyTorch has them).
    """
    keep, target = _kept(raw(targets), ignore_index)
    x32 = wide(x)
    lse = reduce.logsumexp(x32, axis=-1)
    picked = shape.reshape(index.take_along_axis(x32, target[:, None], axis=-1), lse.shape)
    loss = E.sub(lse, picked)
    w = None if weight is None else raw(weight).astype(raw(x32).dtype)
    if w is not None:
        loss = E.mul(loss, w[target])
    if label_smoothing:
        classes = x.shape[-1]
        each = E.sub(shape.reshape(lse, (*lse.shape, 1)), x32)
        uniform = reduce.sum(each if w is None else E.mul(each, w), axis=-1)
        loss = E.add(loss * (1.0 - label_smoothing), uniform * (label_smoothing / classes))
    return narrow(E.where(keep, loss, 0.0), x.dtype)


def check_classes(name: str, x: Array, targets: Array, axis: int, ignore_index: int, weight: Array | None) -> None:
    """Raise unless the targets are class indices that fit x."""
    classes = x.shape[axis]
    rows = tuple(n for i, n in enumerate(x.shape) if i != axis % x.ndim)
    if targets.dtype.kind not in "iu":
        raise TypeError(f"{name}: targets must be class indices (integers), got dtype {targets.dtype}")
    if targets.shape != rows:
        raise ValueError(
            f"{name}: targets have shape {targets.shape}, expected {rows}: that of x, {x.shape}, without "
            f"its class axis {axis}"
        )
    _check_weight(name, weight, classes)
    wrong = ((targets < 0) | (targets >= classes)) & (targets != ignore_index)
    if wrong.any():
        at = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise IndexError(
            f"{name}: target {int(targets[at])} at index {at} is outside [0, {classes}) and is not "
            f"ignore_index={ignore_index}"
        )


def _check_weight(name: str, weight: Array | None, classes: int) -> None:
    if weight is None:
        return
    if getattr(weight, "tracked", False):
        raise TypeError(f"{name}: weight is a constant, and this one requires a gradient: use weight.detach()")
    if weight.shape != (classes,):
        raise ValueError(f"{name}: weight has shape {weight.shape}, expected ({classes},), one number per class")


def _rows(x: Array, axis: int) -> Array:
    """x as (rows, classes)."""
    if axis % x.ndim != x.ndim - 1:
        x = shape.moveaxis(x, axis, -1)
    return x if x.ndim == 2 else shape.reshape(x, (-1, x.shape[-1]))


def _axis(name: str, x: Array, axis: int) -> None:
    if x.ndim < 1 or not -x.ndim <= axis < x.ndim or (x.shape[axis] == 0):
        raise ValueError(f"{name}: x of shape {x.shape} has no classes along axis {axis}")


def cross_entropy(
    x: Array,
    targets: Array,
    *,
    axis: int = -1,
    weight: Array | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Array:
    """-log softmax(x)[target], reduced (Bishop 2006, eq. 4.108).

    x: logits, classes along ``axis``: the last, or 1 as PyTorch has it with axis=1.  targets: class indices of x's
    shape without that axis, or probabilities of x's shape.  weight: (classes,) or None, a constant.  Rows whose target
    is ``ignore_index`` count nothing: the mean is over the weights of the others, 0 with zero gradient if there are
    none.  label_smoothing: the share spread evenly over all classes.
    Raises IndexError naming a target outside [0, classes), ValueError for shapes that do not fit.
    """
    x = x if hasattr(x, "dtype") else np.asarray(x)
    _axis("cross_entropy", x, axis)
    if not 0 <= label_smoothing <= 1:
        raise ValueError(f"cross_entropy: label_smoothing={label_smoothing} is outside [0, 1]")
    plain = np.asarray(raw(targets))
    if is_float(plain.dtype) and plain.shape == x.shape:
        return _soft_cross_entropy(x, targets, axis, weight, reduction, label_smoothing)
    check_classes("cross_entropy", x, plain, axis, ignore_index, weight)
    flat = plain.reshape(-1)
    loss = row_losses(_rows(wide(x), axis), flat, weight, label_smoothing=label_smoothing, ignore_index=ignore_index)
    return _finished(loss, x, plain, weight, ignore_index, reduction, "cross_entropy")


def _finished(
    loss: Array, x: Array, targets: Array, weight: Array | None, ignore_index: int, reduction: str, name: str
) -> Array:
    """Losses of rows, reduced: the mean is over the weights of the rows that count."""
    if reduction == "none":
        return narrow(shape.reshape(loss, targets.shape), x.dtype)
    over = None
    if reduction == "mean":
        keep, target = _kept(targets, ignore_index)
        over = float(np.count_nonzero(keep) if weight is None else wide(raw(weight))[target][keep].sum())
    return narrow(reduced(loss, reduction, name, over), x.dtype)


def _soft_cross_entropy(
    x: Array, targets: Array, axis: int, weight: Array | None, reduction: str, smoothing: float
) -> Array:
    """-sum_c w[c] t[c] log softmax(x)[c] per row, t smoothed; the mean is over rows."""
    _check_weight("cross_entropy", weight, x.shape[axis])
    t = wide(targets)
    if smoothing:
        t = t * (1.0 - smoothing) + smoothing / x.shape[axis]
    with np.errstate(invalid="ignore"):  # 0 times an infinity, which scale makes 0
        loss = -scale(t, log_softmax(wide(x), axis))
    if weight is not None:
        along = tuple(-1 if i == axis % x.ndim else 1 for i in range(x.ndim))
        loss = E.mul(loss, wide(raw(weight)).reshape(along))
    return narrow(reduced(reduce.sum(loss, axis=axis), reduction, "cross_entropy"), x.dtype)


@fused(samples=_row_samples(False), nondiff=("targets", "weight"))
def row_picks(x: Array, targets: Array, weight: Array = None, *, ignore_index: int = -100) -> Array:
    """-w[t] x[t] per row; 0 for an ignored row.  As ``row_losses``, of log-probabilities."""
    keep, target = _kept(raw(targets), ignore_index)
    loss = -shape.reshape(index.take_along_axis(x, target[:, None], axis=-1), target.shape)
    if weight is not None:
        loss = E.mul(loss, raw(weight).astype(raw(x).dtype)[target])
    return E.where(keep, loss, 0.0)


def nll_loss(
    x: Array,
    targets: Array,
    *,
    axis: int = -1,
    weight: Array | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Array:
    """-x[target] of log-probabilities x, reduced.  Shapes, weights and ignored rows as in ``cross_entropy``."""
    x = x if hasattr(x, "dtype") else np.asarray(x)
    _axis("nll_loss", x, axis)
    plain = np.asarray(raw(targets))
    check_classes("nll_loss", x, plain, axis, ignore_index, weight)
    loss = row_picks(_rows(wide(x), axis), plain.reshape(-1), weight, ignore_index=ignore_index)
    return _finished(loss, x, plain, weight, ignore_index, reduction, "nll_loss")

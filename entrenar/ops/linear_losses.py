"""Cross entropy fused with the projection to logits: the logits of all rows never exist at once."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..array import Array, wide
from ..autograd.fused import fused
from ..autograd.modes import mode
from ..autograd.runtime import cast_low
from ..autograd.samples import Sample, Samples, calls, normals
from ..autograd.tensor import raw
from . import losses, reduce, shape
from .activations import narrow
from .layers import linear

__all__ = ["linear_cross_entropy"]


def _samples() -> Samples:
    plain, some = np.array([2, 0, 3]), np.array([2, -100, 3])
    return calls(
        normals("plain", (3, 5), (4, 5), plain),
        normals("with a bias", (3, 5), (4, 5), plain, (4,)),
        normals("one ignored", (3, 5), (4, 5), some, (4,), over=2.0),
        normals("ignored by its class", (3, 5), (4, 5), np.array([2, 1, 3]), ignore_index=1),
        normals("one class", (2, 1), (1, 1), np.array([0, 0])),
        normals("no rows", (0, 3), (4, 3), np.zeros(0, np.int64)),
        normals("gradients on the way", (3, 5), (4, 5), some, (4,), over=2.0, gradients=True),
        lambda rng: Sample((rng.normal(size=(5, 3)).T, rng.normal(size=(5, 4)).T, plain), {}, "transposed"),
        lambda rng: Sample((rng.normal(size=(6, 9))[::2, ::-2], rng.normal(size=(4, 5)), plain), {}, "strided"),
    )


@fused(samples=_samples(), nondiff=("targets",))
def linear_loss(
    x: Array,
    w: Array,
    targets: Array,
    b: Array = None,
    *,
    ignore_index: int = -100,
    over: float = 1.0,
    gradients: bool = False,
) -> Array:
    """The sum of the cross entropies of the rows of x w^T + b, divided by ``over``.

    x: (rows, in); w: (classes, in); targets: (rows,) integers, already checked; b: (classes,) or None.
    gradients: whether a kernel is to compute them together with the loss, while it has the logits.
    """
    rows = losses.row_losses(linear(x, w, b), raw(targets), None, ignore_index=ignore_index)
    return narrow(reduce.sum(wide(rows)) * (1.0 / over), rows.dtype)


def linear_cross_entropy(
    x: Array,
    w: Array,
    targets: Array,
    b: Array | None = None,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Array:
    """``cross_entropy(linear(x, w, b), targets)`` in little memory: logits are made, and used up, some rows at a time.

    x: (..., in); w: (classes, in); targets: integers of shape (...); b: (classes,) or None.  The gradients are computed
    in the same go.  reduction: "mean" over the rows that are not ``ignore_index``, "sum", or "none" (which makes all
    logits).  Raises what ``linear`` and ``cross_entropy`` raise.
    """
    x, w = (a if hasattr(a, "dtype") else np.asarray(a) for a in (x, w))
    if reduction not in ("mean", "sum") or x.ndim < 1 or w.ndim != 2 or x.shape[-1] != w.shape[1]:
        return losses.cross_entropy(linear(x, w, b), targets, ignore_index=ignore_index, reduction=reduction)
    plain = np.asarray(raw(targets))
    logits = np.broadcast_to(np.zeros((), x.dtype), (*x.shape[:-1], w.shape[0]))  # a shape to check against
    losses.check_classes("linear_cross_entropy", logits, plain, -1, ignore_index, None)
    inputs: tuple[Any, ...] = (x, w) if b is None else (x, w, b)
    wanted = mode().grad and any(getattr(a, "tracked", False) for a in inputs)
    if mode().autocast is not None:
        x, w, *rest = cast_low(linear_loss.op, inputs)  # type: ignore[attr-defined]
        b = rest[0] if rest else None
    rows = math.prod(x.shape[:-1])
    kept = int(np.count_nonzero(plain != ignore_index))
    return linear_loss(
        shape.reshape(x, (rows, x.shape[-1])),
        w,
        plain.reshape(-1),
        b,
        ignore_index=ignore_index,
        over=float(max(kept, 1)) if reduction == "mean" else 1.0,
        gradients=bool(wanted),
    )

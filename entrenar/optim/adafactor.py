"""Adafactor: Adam's second moment of a matrix from the means of its rows and columns alone."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ..array import FLOAT64, Array, wide, xp
from .averages import average, flush, squares
from .optimizer import BLOCK, Optimizer, optimizer


@optimizer("adafactor")
class Adafactor(Optimizer):
    """p = (1 - lr weight_decay) p - max(eps2, RMS(p)) min(lr, 1 / sqrt(step)) u / max(1, RMS(u) / d).

    u = g / sqrt(v), v the average of g^2 with 1 - b2 = step**beta2_decay and at least eps1^2; of a parameter of 2 axes
    or more v is R C / mean(R), with R and C the averages of the row and column means of g^2 over the last two axes.

    Shazeer and Stern 2018, algorithms 4 and 5, in the form of torch.optim.Adafactor: no first moment, decay decoupled,
    lr the largest relative step (their rho), so that a schedule rules once it is below 1 / sqrt(step).  The step is
    relative to the size of the parameter, RMS(p) as it was before the step: an lr of 1e-2 moves weights of 0.02 by
    2e-4.  transformers' Adafactor is this one with scale_parameter.  R, C and v below the smallest normal number are 0.

    eps: (eps1, eps2); None for eps1 is the precision of the dtype that is computed in.
    """

    slots = ("row_var", "col_var", "variance")
    ranges = {"beta2_decay": (-math.inf, 0.0), "d": (1.0, math.inf), "weight_decay": (0.0, math.inf)}

    def __init__(
        self,
        params: Any,
        lr: float = 1e-2,
        beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3),
        d: float = 1.0,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, lr=lr, beta2_decay=beta2_decay, eps=eps, d=d, weight_decay=weight_decay)

    def _check(self, group: Mapping[str, Any]) -> None:
        super()._check(group)
        eps = group["eps"]
        if not isinstance(eps, (tuple, list)) or len(eps) != 2:
            raise ValueError(f"Adafactor: eps must be two numbers, the first may be None, got {eps!r}")
        for name, value in zip(("eps[0]", "eps[1]"), eps, strict=True):
            if value is None and name == "eps[0]":
                continue
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < math.inf:
                raise ValueError(f"Adafactor: {name} must be a number in [0, inf), got {value!r}")

    def slots_of(self, group: Mapping[str, Any], shape: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
        """Means of rows and of columns over the last two axes; of a vector the variance itself."""
        if len(shape) < 2:
            return {"variance": shape}
        return {"row_var": (*shape[:-1], 1), "col_var": (*shape[:-2], 1, shape[-1])}

    def apply(
        self,
        p: Array,
        g: Array,
        step: int,
        group: Mapping[str, Any],
        slots: Mapping[str, Array],
        scale: float,
        key: Array,
    ) -> None:
        """One parameter: sums of g^2 and RMS(p), then RMS(u), then the step, each block by block."""
        if not p.size:
            return
        # blocks of a strided parameter would sum in another order
        whole, g = (x if x.flags.c_contiguous else x.copy() for x in (p, g))
        w, g = (x.reshape(-1, *x.shape[-2:]) if p.ndim > 1 else x.reshape(1, 1, -1) for x in (whole, g))
        rest = float(step) ** group["beta2_decay"]
        size = math.sqrt(self._moments(w, g, slots, 1.0 - rest, rest, scale) / p.size)
        eps1, eps2 = group["eps"]
        rows, columns = self._factors(slots, eps1)
        keep = 1.0 - group["lr"] * group["weight_decay"]
        total = sum(squares(u) for _, u in self._updates(w, g, rows, columns, eps1, scale))
        rate = max(eps2, size) * min(group["lr"], 1.0 / math.sqrt(step))
        rate /= max(1.0, math.sqrt(total / p.size) / group["d"])
        for part, u in self._updates(w, g, rows, columns, eps1, scale):
            x = wide(part)
            np.multiply(u, rate, out=u)
            if keep != 1:
                np.multiply(x, keep, out=x)
            np.subtract(x, u, out=x)
            if x is not part:
                part[...] = x
        if whole is not p:
            p[...] = whole

    def _moments(self, w: Array, g: Array, slots: Mapping[str, Array], keep: float, rest: float, scale: float) -> float:
        """Average the squares of g into the state; the sum of squares of w."""
        total = 0.0
        count, height, width = w.shape
        variance = slots.get("variance")
        rows = xp(w).zeros((count, height, 1), FLOAT64)
        columns = xp(w).zeros((count, 1, width), FLOAT64)
        for tile in _tiles(w.shape):
            part = wide(w[tile])
            d, x = self.gradient(g[tile], part.dtype, scale), self.scratch(part, 0)
            total += squares(part)
            np.multiply(d, d, out=x)
            if variance is None:
                rows[tile[:2]] += np.sum(x, axis=-1, keepdims=True)
                columns[tile[0], :, tile[2]] += np.sum(x, axis=-2, keepdims=True)
            else:
                average(variance.reshape(w.shape)[tile], x, keep, rest, x)
        if variance is None:
            for name, sums, length in (("row_var", rows, width), ("col_var", columns, height)):
                state = slots[name].reshape(sums.shape)
                state[...] = keep * state + rest * (sums / length)
                flush(state)
        return total

    def _factors(self, slots: Mapping[str, Array], eps1: float | None) -> tuple[Array, Array]:
        """Two arrays whose product is v: one value per row and matrix, and one per column."""
        if "variance" in slots:
            variance = slots["variance"]
            return np.ones((1, 1, 1), variance.dtype), variance.reshape(1, 1, -1)
        rows, columns = slots["row_var"], slots["col_var"]
        rows = rows / np.maximum(rows.mean(axis=-2, keepdims=True), _precision(rows, eps1))
        return rows.reshape(-1, *rows.shape[-2:]), columns.reshape(-1, *columns.shape[-2:])

    def _updates(
        self, w: Array, g: Array, rows: Array, columns: Array, eps1: float | None, scale: float
    ) -> Iterator[tuple[Array, Array]]:
        """(block of w, its u), one after the other; u lies in scratch memory."""
        least = _precision(rows, eps1) ** 2
        for tile in _tiles(w.shape):
            d = self.gradient(g[tile], rows.dtype, scale)
            u = self.scratch(d, 0)
            np.multiply(rows[tile[:2]], columns[tile[0], :, tile[2]], out=u)
            np.maximum(u, least, out=u)
            np.sqrt(u, out=u)
            np.divide(d, u, out=u)
            yield w[tile], u


def _precision(like: Array, eps1: float | None) -> float:
    return float(np.finfo(like.dtype).eps) if eps1 is None else eps1


def _tiles(shape: tuple[int, int, int]) -> Iterator[tuple[slice, slice, slice]]:
    """Blocks of about BLOCK elements of matrices one after the other: several, rows of one, or parts of a row."""
    count, height, width = shape
    several = max(1, BLOCK // max(1, height * width))
    some = max(1, BLOCK // max(1, width))
    step = BLOCK if height == 1 else width
    for i in range(0, count, several):
        for j in range(0, height, some):
            for k in range(0, width, step):
                yield slice(i, i + several), slice(j, j + some), slice(k, k + step)

"""Lamb: Adam's direction, with the length that a parameter's own norm gives it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..array import Array, wide
from .averages import average, squares
from .optimizer import Optimizer, blocks, optimizer


@optimizer("lamb")
class Lamb(Optimizer):
    """u = m^ / (sqrt(v^) + eps) + weight_decay p;  p = p - lr (|p| / |u|) u, m^ and v^ Adam's, freed of bias.

    You et al. 2020, algorithm 2, with the bias correction it has there and phi the identity; norms are those of whole
    parameters, taken in float64, before the step.  Where |p| or |u| is 0 the ratio is 1 (so a parameter may start at
    0).  A moment below the smallest normal number is 0.

    adapt: False leaves the ratio at 1, in a group of its own for biases and gains, as the authors train BERT.
    """

    slots = ("exp_avg", "exp_avg_sq")
    ranges = {"betas": (0.0, 1.0), "eps": (0.0, math.inf), "weight_decay": (0.0, math.inf)}
    several = {"betas": 2}
    flags = ("adapt",)

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.01,
        adapt: bool = True,
    ) -> None:
        super().__init__(params, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, adapt=adapt)

    def constants(self, group: Mapping[str, Any], step: int) -> tuple[float, ...]:
        """Decay, b1, 1 - b1, b2, 1 - b2, what frees m and v of bias, eps, and lr, for ``rate`` to replace."""
        beta1, beta2 = group["betas"]
        unbias = 1.0 / (1.0 - beta1**step), 1.0 / (1.0 - beta2**step)
        return group["weight_decay"], beta1, 1.0 - beta1, beta2, 1.0 - beta2, *unbias, group["eps"], group["lr"]

    def kernel(self, group: Mapping[str, Any], shape: tuple[int, ...]) -> str | None:
        """Two passes."""
        return "lamb"

    def rate(self, group: Mapping[str, Any], *sums: float) -> float:
        """What u is multiplied with, from the sums of squares of p and u."""
        weights, update = sums
        if group["adapt"] and weights > 0 and update > 0:
            return group["lr"] * math.sqrt(weights) / math.sqrt(update)
        return group["lr"]

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
        """One parameter: moments and norms block by block, then u again, which nobody keeps, and the step."""
        decay, beta1, rest1, beta2, rest2, *numbers, _ = self.constants(group, step)
        m, v = slots["exp_avg"], slots["exp_avg_sq"]
        # blocks of a strided parameter would sum in another order
        whole, g = (x if x.flags.c_contiguous else x.copy() for x in (p, g))
        weights = update = 0.0
        for part, d, a, b in blocks(whole, g, m, v):
            w = wide(part)
            d, x = self.gradient(d, w.dtype, scale), self.scratch(w, 0)
            average(a, d, beta1, rest1, x)
            np.multiply(d, d, out=x)
            average(b, x, beta2, rest2, x)
            weights += squares(w)
            update += squares(self._direction(w, a, b, decay, *numbers))
        rate = self.rate(group, weights, update)
        for part, a, b in blocks(whole, m, v):
            w = wide(part)
            u = self._direction(w, a, b, decay, *numbers)
            np.multiply(u, rate, out=u)
            np.subtract(w, u, out=w)
            if w is not part:
                part[...] = w
        if whole is not p:
            p[...] = whole

    def _direction(
        self, w: Array, m: Array, v: Array, decay: float, unbias1: float, unbias2: float, eps: float
    ) -> Array:
        """u of a block."""
        u, x = self.scratch(w, 0), self.scratch(w, 1)
        np.multiply(v, unbias2, out=x)
        np.sqrt(x, out=x)
        np.add(x, eps, out=x)
        np.multiply(m, unbias1, out=u)
        np.divide(u, x, out=u)
        if decay:
            np.multiply(w, decay, out=x)
            np.add(u, x, out=u)
        return u

"""Lion: the sign of an interpolated momentum."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..array import Array
from .averages import average
from .optimizer import Optimizer, optimizer


@optimizer("lion")
class Lion(Optimizer):
    """p = (1 - lr weight_decay) p - lr sign(b1 m + (1-b1) g);  then m = b2 m + (1-b2) g.

    Chen et al. 2023, algorithm 2; decay decoupled, on the old weights.  Every weight moves by lr: the paper takes 3 to
    10 times less of it than for AdamW, and as much more decay.  A momentum below the smallest normal number is 0, and
    then a weight without gradient stands still.
    """

    slots = ("exp_avg",)
    ranges = {"betas": (0.0, 1.0), "weight_decay": (0.0, math.inf)}
    several = {"betas": 2}

    def __init__(
        self,
        params: Any,
        lr: float = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, lr=lr, betas=betas, weight_decay=weight_decay)

    def constants(self, group: Mapping[str, Any], step: int) -> tuple[float, ...]:
        """Factor of p, b1, 1 - b1, b2, 1 - b2, lr."""
        lr, (beta1, beta2) = group["lr"], group["betas"]
        return 1.0 - lr * group["weight_decay"], beta1, 1.0 - beta1, beta2, 1.0 - beta2, lr

    def kernel(self, group: Mapping[str, Any], shape: tuple[int, ...]) -> str | None:
        """One."""
        return "lion"

    def update(self, p: Array, g: Array, step: int, group: Mapping[str, Any], **slots: Array) -> None:
        """One block of one parameter, in place."""
        m = slots["exp_avg"]
        keep, beta1, rest1, beta2, rest2, lr = self.constants(group, step)
        a, b = self.scratch(p, 0), self.scratch(p, 1)
        if keep != 1:
            np.multiply(p, keep, out=p)
        np.multiply(m, beta1, out=a)
        np.multiply(g, rest1, out=b)
        np.add(a, b, out=a)
        np.sign(a, out=a)
        np.multiply(a, lr, out=a)
        np.subtract(p, a, out=p)
        average(m, g, beta2, rest2, b)

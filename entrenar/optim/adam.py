"""Adam and AdamW."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..array import Array
from .optimizer import Optimizer, optimizer


@optimizer("adam")
class Adam(Optimizer):
    """m = b1 m + (1-b1) g;  v = b2 v + (1-b2) g^2;  p = p - lr m^ / (sqrt(v^) + eps), m^ and v^ freed of bias.

    Kingma and Ba 2015, algorithm 1: eps stands outside the bias-corrected root.  weight_decay p is added to g.
    """

    slots = ("exp_avg", "exp_avg_sq")
    ranges = {"betas": (0.0, 1.0), "eps": (0.0, math.inf), "weight_decay": (0.0, math.inf)}
    decoupled = False

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        if len(tuple(betas)) != 2:
            raise ValueError(f"{type(self).__name__}: betas are two numbers, got {betas!r}")
        super().__init__(params, lr=lr, betas=tuple(betas), eps=eps, weight_decay=weight_decay)

    def update(self, p: Array, g: Array, step: int, group: Mapping[str, Any], **slots: Array) -> None:
        """One block of one parameter, in place."""
        m, v = slots["exp_avg"], slots["exp_avg_sq"]
        lr, (beta1, beta2), decay = group["lr"], group["betas"], group["weight_decay"]
        a, b = self.scratch(p, 0), self.scratch(p, 1)
        if decay and self.decoupled:
            np.multiply(p, 1.0 - lr * decay, out=p)
        elif decay:
            np.multiply(p, decay, out=a)
            g = np.add(a, g, out=a)
        np.multiply(m, beta1, out=m)
        np.multiply(g, 1.0 - beta1, out=b)
        np.add(m, b, out=m)
        np.multiply(v, beta2, out=v)
        np.multiply(g, g, out=b)
        np.multiply(b, 1.0 - beta2, out=b)
        np.add(v, b, out=v)
        np.multiply(v, 1.0 / (1.0 - beta2**step), out=b)
        np.sqrt(b, out=b)
        np.add(b, group["eps"], out=b)
        np.divide(m, b, out=b)
        np.multiply(b, lr / (1.0 - beta1**step), out=b)
        np.subtract(p, b, out=p)


@optimizer("adamw")
class AdamW(Adam):
    """Adam with decoupled decay: p = (1 - lr weight_decay) p first, on the old weights, then Adam's step.

    Loshchilov and Hutter 2019, algorithm 2 (as PyTorch has it, decay scaled by lr).
    """

    decoupled = True

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay)

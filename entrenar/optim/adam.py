"""Adam and AdamW."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from ..array import FLOAT64, Array, is_bfloat16, is_low
from .averages import average
from .optimizer import Optimizer, optimizer


@optimizer("adam")
class Adam(Optimizer):
    """m = b1 m + (1-b1) g;  v = b2 v + (1-b2) g^2;  p = p - lr m^ / (sqrt(v^) + eps), m^ and v^ freed of bias.

    Kingma and Ba 2015, algorithm 1: eps stands outside the bias-corrected root.  weight_decay p is added to g.

    A moment below the smallest normal number becomes 0: arithmetic with subnormal ones takes many times as long, and a
    weight without gradient gets there in some 800 steps (``averages.flush``).

    state_dtype: "bfloat16" keeps m and v in half the memory, rounded stochastically; None in the parameter's dtype,
    float32 for a 16-bit one.  stochastic_rounding: round bfloat16 parameters so too.  seed: of the random bits.
    """

    slots: ClassVar[tuple[str, ...]] = ("exp_avg", "exp_avg_sq")
    ranges = {"betas": (0.0, 1.0), "eps": (0.0, math.inf), "weight_decay": (0.0, math.inf)}
    several = {"betas": 2}
    flags: ClassVar[tuple[str, ...]] = ("stochastic_rounding",)
    decoupled = False

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        *,
        state_dtype: str | None = None,
        stochastic_rounding: bool = False,
        seed: int = 0,
    ) -> None:
        rounding = dict(state_dtype=state_dtype, stochastic_rounding=stochastic_rounding, seed=seed)
        super().__init__(params, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, **rounding)

    def _check(self, group: Mapping[str, Any]) -> None:
        super()._check(group)
        who, named, seed = type(self).__name__, group["state_dtype"], group["seed"]
        if named not in (None, "bfloat16"):
            raise ValueError(f"{who}: state_dtype must be None or 'bfloat16', got {named!r}")
        if isinstance(seed, bool) or not isinstance(seed, int):
            raise ValueError(f"{who}: seed must be an integer, got {seed!r}")
        for name, p in zip(group["names"], group["params"], strict=True):
            if named and p.dtype == FLOAT64:
                raise ValueError(
                    f"{who}: state_dtype {named!r} is for parameters of at most 32 bits, {name} is float64"
                )
            if group["stochastic_rounding"] and is_low(p.dtype) and not is_bfloat16(p.dtype):
                raise ValueError(f"{who}: stochastic_rounding is for bfloat16 parameters, {name} is {p.dtype}")

    def constants(self, group: Mapping[str, Any], step: int) -> tuple[float, ...]:
        """Factor of p, decay within g, b1, 1 - b1, b2, 1 - b2, what frees v of bias, eps, lr that frees m of bias."""
        lr, (beta1, beta2), decay = group["lr"], group["betas"], group["weight_decay"]
        keep, coupled = (1.0 - lr * decay, 0.0) if self.decoupled else (1.0, decay)
        unbias = 1.0 / (1.0 - beta2**step)
        return keep, coupled, beta1, 1.0 - beta1, beta2, 1.0 - beta2, unbias, group["eps"], lr / (1.0 - beta1**step)

    def kernel(self, group: Mapping[str, Any], shape: tuple[int, ...]) -> str | None:
        """One for both."""
        return "adam"

    def update(self, p: Array, g: Array, step: int, group: Mapping[str, Any], **slots: Array) -> None:
        """One block of one parameter, in place."""
        m, v = slots["exp_avg"], slots["exp_avg_sq"]
        keep, decay, beta1, rest1, beta2, rest2, unbias, eps, lr = self.constants(group, step)
        a, b = self.scratch(p, 0), self.scratch(p, 1)
        if keep != 1:
            np.multiply(p, keep, out=p)
        if decay:
            np.multiply(p, decay, out=a)
            g = np.add(a, g, out=a)
        average(m, g, beta1, rest1, b)
        np.multiply(g, g, out=b)
        average(v, b, beta2, rest2, b)
        np.multiply(v, unbias, out=b)
        np.sqrt(b, out=b)
        np.add(b, eps, out=b)
        np.divide(m, b, out=b)
        np.multiply(b, lr, out=b)
        np.subtract(p, b, out=p)


@optimizer("adamw")
class AdamW(Adam):
    """Adam with decoupled decay: p = (1 - lr weight_decay) p first, on the old weights, then Adam's step.

    Loshchilov and Hutter 2019, algorithm 2 (as PyTorch has it, decay scaled by lr).  rounding: as Adam's options.
    """

    decoupled = True
    state_tag = "aprender-train:adamw:optstate:v1"
    state_labels = {"exp_avg": "m", "exp_avg_sq": "v"}

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
        **rounding: Any,
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay, **rounding)

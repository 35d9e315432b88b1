"""Adagrad and RMSprop: the learning rate divided by the root of a sum, or an average, of squared gradients."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..array import Array
from .averages import average, flush
from .optimizer import Optimizer, optimizer


@optimizer("adagrad")
class Adagrad(Optimizer):
    """s = s + g^2;  p = p - lr / (1 + (step - 1) lr_decay) g / (sqrt(s) + eps), where g includes weight_decay p.

    Duchi, Hazan and Singer 2011, figure 1 with diagonal matrices, as torch.optim.Adagrad.  A sum below the smallest
    normal number is 0.

    initial_accumulator_value: what s starts from.
    """

    slots = ("sum",)
    ranges = {
        "lr_decay": (0.0, math.inf),
        "weight_decay": (0.0, math.inf),
        "initial_accumulator_value": (0.0, math.inf),
        "eps": (0.0, math.inf),
    }

    def __init__(
        self,
        params: Any,
        lr: float = 1e-2,
        lr_decay: float = 0.0,
        weight_decay: float = 0.0,
        initial_accumulator_value: float = 0.0,
        eps: float = 1e-10,
    ) -> None:
        super().__init__(
            params,
            lr=lr,
            lr_decay=lr_decay,
            weight_decay=weight_decay,
            initial_accumulator_value=initial_accumulator_value,
            eps=eps,
        )

    def initial(self, slot: str, group: Mapping[str, Any]) -> float:
        """The option of that name."""
        return group["initial_accumulator_value"]

    def constants(self, group: Mapping[str, Any], step: int) -> tuple[float, ...]:
        """lr of this step, decay, eps."""
        return group["lr"] / (1.0 + (step - 1) * group["lr_decay"]), group["weight_decay"], group["eps"]

    def kernel(self, group: Mapping[str, Any], shape: tuple[int, ...]) -> str | None:
        """One."""
        return "adagrad"

    def update(self, p: Array, g: Array, step: int, group: Mapping[str, Any], **slots: Array) -> None:
        """One block of one parameter, in place."""
        total = slots["sum"]
        lr, decay, eps = self.constants(group, step)
        a, b = self.scratch(p, 0), self.scratch(p, 1)
        if decay:
            np.multiply(p, decay, out=a)
            g = np.add(a, g, out=a)
        np.multiply(g, g, out=b)
        np.add(total, b, out=total)
        flush(total)
        np.sqrt(total, out=b)
        np.add(b, eps, out=b)
        np.divide(g, b, out=b)
        np.multiply(b, lr, out=b)
        np.subtract(p, b, out=p)


@optimizer("rmsprop")
class RMSprop(Optimizer):
    """v = alpha v + (1 - alpha) g^2;  p = p - lr g / (sqrt(v) + eps), where g includes weight_decay p.

    Tieleman and Hinton 2012, lecture 6.5, as torch.optim.RMSprop, eps outside the root.  An average below the smallest
    normal number is 0.

    momentum: b = momentum b + g / (sqrt(v) + eps);  p = p - lr b.
    centered: sqrt(v - m^2) for the root, m the average of g (Graves 2013, eq. 38-41); where rounding makes the
    difference negative, and PyTorch's root NaN, it is 0.
    """

    slots = ("square_avg", "grad_avg", "momentum_buffer")
    ranges = {
        "alpha": (0.0, 1.0),
        "eps": (0.0, math.inf),
        "weight_decay": (0.0, math.inf),
        "momentum": (0.0, 1.0),
    }
    flags = ("centered",)

    def __init__(
        self,
        params: Any,
        lr: float = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum: float = 0.0,
        centered: bool = False,
    ) -> None:
        super().__init__(
            params, lr=lr, alpha=alpha, eps=eps, weight_decay=weight_decay, momentum=momentum, centered=centered
        )

    def slots_of(self, group: Mapping[str, Any], shape: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
        """The average of gradients if centered, the buffer if there is momentum."""
        wanted = (True, group["centered"], group["momentum"])
        return {slot: shape for slot, asked in zip(self.slots, wanted, strict=True) if asked}

    def constants(self, group: Mapping[str, Any], step: int) -> tuple[float, ...]:
        """lr, decay, alpha, 1 - alpha, eps, momentum."""
        alpha = group["alpha"]
        return group["lr"], group["weight_decay"], alpha, 1.0 - alpha, group["eps"], group["momentum"]

    def kernel(self, group: Mapping[str, Any], shape: tuple[int, ...]) -> str | None:
        """One for each set of state arrays."""
        return "rmsprop" + ("_centered" if group["centered"] else "") + ("_momentum" if group["momentum"] else "")

    def update(self, p: Array, g: Array, step: int, group: Mapping[str, Any], **slots: Array) -> None:
        """One block of one parameter, in place."""
        v = slots["square_avg"]
        lr, decay, alpha, rest, eps, momentum = self.constants(group, step)
        a, b = self.scratch(p, 0), self.scratch(p, 1)
        if decay:
            np.multiply(p, decay, out=a)
            g = np.add(a, g, out=a)
        np.multiply(g, g, out=b)
        average(v, b, alpha, rest, b)
        if "grad_avg" in slots:
            m = slots["grad_avg"]
            average(m, g, alpha, rest, b)
            np.multiply(m, m, out=b)
            np.subtract(v, b, out=b)
            np.maximum(b, 0, out=b)
            np.sqrt(b, out=b)
        else:
            np.sqrt(v, out=b)
        np.add(b, eps, out=b)
        np.divide(g, b, out=b)
        if "momentum_buffer" in slots:
            buffer = slots["momentum_buffer"]
            average(buffer, b, momentum, 1.0, b)
            np.multiply(buffer, lr, out=b)
        else:
            np.multiply(b, lr, out=b)
        np.subtract(p, b, out=p)

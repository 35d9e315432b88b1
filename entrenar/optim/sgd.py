"""Stochastic gradient descent, with momentum."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..array import Array
from .optimizer import Optimizer, optimizer


@optimizer("sgd")
class SGD(Optimizer):
    """v = momentum v + g;  p = p - lr v  (Nesterov: p - lr (g + momentum v)), where g includes weight_decay p.

    As torch.optim.SGD with dampening 0 (Sutskever et al. 2013, in the form of PyTorch: lr outside the velocity).
    """

    slots = ("momentum_buffer",)
    ranges = {"momentum": (0.0, 1.0), "weight_decay": (0.0, float("inf"))}
    flags = ("nesterov",)

    def __init__(
        self, params: Any, lr: float = 1e-3, momentum: float = 0.0, weight_decay: float = 0.0, nesterov: bool = False
    ) -> None:
        super().__init__(params, lr=lr, momentum=momentum, weight_decay=weight_decay, nesterov=nesterov)

    def _check(self, group: Mapping[str, Any]) -> None:
        super()._check(group)
        if group["nesterov"] and group["momentum"] == 0:
            raise ValueError("SGD: nesterov=True needs a momentum > 0")

    def slots_of(self, group: Mapping[str, Any], shape: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
        """No velocity without momentum."""
        return dict.fromkeys(self.slots, shape) if group["momentum"] else {}

    def constants(self, group: Mapping[str, Any], step: int) -> tuple[float, ...]:
        """lr, decay, momentum, and 1 for Nesterov's form."""
        return group["lr"], group["weight_decay"], group["momentum"], float(group["nesterov"])

    def kernel(self, group: Mapping[str, Any], shape: tuple[int, ...]) -> str | None:
        """With a velocity or without."""
        return "sgd_momentum" if group["momentum"] else "sgd"

    def update(self, p: Array, g: Array, step: int, group: Mapping[str, Any], **slots: Array) -> None:
        """One block of one parameter, in place."""
        lr, decay, momentum, nesterov = self.constants(group, step)
        a, b = self.scratch(p, 0), self.scratch(p, 1)
        if decay:
            np.multiply(p, decay, out=a)
            g = np.add(a, g, out=a)
        if "momentum_buffer" in slots:
            v = slots["momentum_buffer"]
            np.multiply(v, momentum, out=v)
            np.add(v, g, out=v)
            if nesterov:
                np.multiply(v, momentum, out=b)
                g = np.add(g, b, out=b)
            else:
                g = v
        np.multiply(g, lr, out=b)
        np.subtract(p, b, out=p)

"""Parameter groups: which parameters decay, and one learning rate for all of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .optimizer import Optimizer
from .parameters import named


def set_lr(target: Optimizer, lr: float, peak: float | None = None) -> None:
    """Set the learning rate of every group; a group that began with another than ``peak`` keeps its ratio to it."""
    for group in target.param_groups:
        own = group["initial_lr"]
        group["lr"] = lr if peak is None or own == peak or peak == 0 else own * (lr / peak)


def decay_groups(params: Iterable[Any], weight_decay: float) -> list[dict[str, Any]]:
    """Matrices, which decay, and biases and gains (fewer than 2 axes), which do not; an empty group is left out."""
    pairs = list(named(params, "decay_groups"))
    parts = [
        ([pair for pair in pairs if pair[1].ndim >= 2], weight_decay),
        ([pair for pair in pairs if pair[1].ndim < 2], 0.0),
    ]
    return [{"params": members, "weight_decay": decay} for members, decay in parts if members]

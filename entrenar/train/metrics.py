"""What a run remembers of itself, as plain lists."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any


@dataclass
class MetricsTracker:
    """Losses, validation losses, learning rates and steps so far.

    losses, learning_rates: one per update, ``steps`` its number (from 1).  val_losses: (step, loss).  best: the lowest
    validation loss, infinite before the first; best_step: where.  skipped: updates left out for a non-finite gradient.
    """

    losses: list[float] = field(default_factory=list)
    learning_rates: list[float] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    val_losses: list[tuple[int, float]] = field(default_factory=list)
    epoch: int = 0
    best: float = math.inf
    best_step: int = 0
    skipped: int = 0

    def record(self, step: int, loss: float, lr: float) -> None:
        """Note one update."""
        self.steps.append(step)
        self.losses.append(loss)
        self.learning_rates.append(lr)

    def record_validation(self, step: int, loss: float) -> bool:
        """Note a validation; True if it is the best so far."""
        self.val_losses.append((step, loss))
        better = loss < self.best
        if better:
            self.best, self.best_step = loss, step
        return better

    def avg(self, n: int) -> float:
        """Mean of the last n losses (of all, if there are fewer); NaN without any.  Raises ValueError for n < 1."""
        if n < 1:
            raise ValueError(f"avg needs at least one loss, got n={n}")
        last = self.losses[-n:]
        return sum(last) / len(last) if last else math.nan

    def is_improving(self, patience: int = 1) -> bool:
        """True unless the last ``patience`` validations were all worse than the best before them."""
        if patience < 1:
            raise ValueError(f"is_improving needs a patience of at least 1, got {patience}")
        before, last = self.val_losses[:-patience], self.val_losses[-patience:]
        return not before or min(loss for _, loss in last) < min(loss for _, loss in before)

    def summary(self) -> dict[str, Any]:
        """What the log does not hold, JSON-ready: epoch, best, skipped."""
        return {
            "epoch": self.epoch,
            "best": None if math.isinf(self.best) else self.best,
            "best_step": self.best_step,
            "skipped": self.skipped,
        }

    def load_summary(self, saved: dict[str, Any]) -> None:
        """Start from what ``summary`` gave; the lists are empty until the log is read."""
        self.losses, self.learning_rates, self.steps, self.val_losses = [], [], [], []
        self.epoch, self.best_step, self.skipped = saved["epoch"], saved["best_step"], saved["skipped"]
        self.best = math.inf if saved["best"] is None else saved["best"]

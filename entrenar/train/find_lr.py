"""The learning rate range test (Smith 2017, "Cyclical learning rates for training neural networks", section 3.3)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from .checkpoint import as_if_never
from .options import TrainingFailed
from .plot import plot_sweep, smoothed
from .trainer import Trainer

FAILED = 4.0  # times the best smoothed loss: the sweep ends there
FEWEST = 10  # steps that a slope is read from


class LRSweep(NamedTuple):
    """What ``find_lr`` found.  suggested: the rate of the steepest fall.  lrs, losses: of each step, unsmoothed."""

    suggested: float
    lrs: list[float]
    losses: list[float]

    def plot(self, *paths: str | Path) -> None:
        """Draw loss against rate; the suffix picks PNG or SVG.  Raises ImportError without matplotlib."""
        plot_sweep(self.lrs, self.losses, self.suggested, [Path(path) for path in paths])


@dataclass(frozen=True)
class _Exponential:
    """The schedule of the sweep.  peak: the optimizer's own rate, so that groups keep their ratios to it."""

    low: float
    high: float
    steps: int
    peak: float

    def lr(self, step: int) -> float:
        return self.low * (self.high / self.low) ** (step / (self.steps - 1))


def find_lr(
    trainer: Trainer, min_lr: float = 1e-7, max_lr: float = 1.0, steps: int = 100, smoothing: float = 0.9
) -> LRSweep:
    """Train a few steps at exponentially growing rates and suggest the one where the loss falls the steepest.

    Losses are smoothed by a moving average of weight ``smoothing``, corrected for its start; the sweep ends early where
    that is above 4 times its best, or is not finite.  Slopes are taken against log(rate).
    The trainer and the default generator are left as they were: nothing is trained, logged or written.
    Raises ValueError for a range that is empty, fewer than 10 steps, a smoothing outside [0, 1), and for a loss that
    fails within 10 steps (min_lr is too high).
    """
    if not (0 < min_lr < max_lr < math.inf):
        raise ValueError(f"find_lr: expected 0 < min_lr < max_lr, got {min_lr} and {max_lr}")
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < FEWEST:
        raise ValueError(f"find_lr: steps must be an integer of at least {FEWEST}, got {steps!r}")
    if not 0 <= smoothing < 1:
        raise ValueError(f"find_lr: smoothing must be in [0, 1), got {smoothing}")
    if trainer.batches is None:
        raise ValueError("find_lr: the Trainer has no batches")
    lrs: list[float] = []
    losses: list[float] = []
    with as_if_never(trainer):
        trainer.step = 0
        trainer.schedule = _Exponential(min_lr, max_lr, steps, trainer.optimizer.param_groups[0]["initial_lr"])  # type: ignore[assignment]
        stream = iter(trainer.batches)
        for _ in range(steps):
            try:
                record = trainer.train_step([next(stream) for _ in range(trainer.config.accumulation)])
            except TrainingFailed:
                break
            if record.skipped:
                break
            lrs.append(record.lr)
            losses.append(record.loss)
            curve = smoothed(losses, smoothing)
            if curve[-1] > FAILED * min(curve):
                break
    if len(losses) < FEWEST:
        raise ValueError(f"find_lr: the loss fails after {len(losses)} steps from min_lr={min_lr} on: lower it")
    return LRSweep(steepest(lrs, losses, smoothing), lrs, losses)


def steepest(lrs: list[float], losses: list[float], smoothing: float) -> float:
    """The rate at which the smoothed loss falls the fastest per factor of the rate."""
    slopes = np.gradient(smoothed(losses, smoothing), np.log(lrs))
    return lrs[int(slopes.argmin())]

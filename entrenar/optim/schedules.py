"""Learning-rate schedules: pure functions of the number of updates done, one row each in SCHEDULES.

The first updates warm up linearly, update k (from 0) at peak (k + 1) / warmup: the first is never 0, and warm-up ends
on the peak.  Then a row's curve takes over, a function of progress 0..1 giving 1..0; ``floor`` is the fraction of the
peak where it ends, and stays.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from ..array import nearest

Curve = Callable[[float], float]
SCHEDULES: dict[str, Curve] = {}


def schedule(name: str) -> Callable[[Curve], Curve]:
    """Enter the decorated curve (progress 0..1 -> 1..0) in the table under ``name``."""

    def register(curve: Curve) -> Curve:
        SCHEDULES[name] = curve
        return curve

    return register


@schedule("constant")
def constant(progress: float) -> float:
    """1 throughout."""
    return 1.0


@schedule("linear")
def linear(progress: float) -> float:
    """A straight line."""
    return 1.0 - progress


@schedule("cosine")
def cosine(progress: float) -> float:
    """Half a cosine (Loshchilov and Hutter 2017, eq. 5)."""
    return 0.5 * (1.0 + math.cos(math.pi * progress))


@dataclass(frozen=True)
class Schedule:
    """A curve of the table between ``peak`` and ``floor * peak``.

    warmup_steps, decay_steps: updates each part takes; decay_steps may be 0 (the floor follows the warm-up at once).
    Raises ValueError for an unknown name or a number out of range.
    """

    name: str
    peak: float
    decay_steps: int
    warmup_steps: int = 0
    floor: float = 0.0

    def __post_init__(self) -> None:
        if self.name not in SCHEDULES:
            raise ValueError(
                f"unknown schedule {self.name!r}: known are {sorted(SCHEDULES)}.{nearest(self.name, SCHEDULES)}"
            )
        for field in ("decay_steps", "warmup_steps"):
            value = getattr(self, field)
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise ValueError(f"schedule: {field} must be an integer of at least 0, got {value!r}")
        if not 0 <= self.peak < math.inf:
            raise ValueError(f"schedule: peak must be a finite number of at least 0, got {self.peak!r}")
        if not 0 <= self.floor <= 1:
            raise ValueError(f"schedule: floor is a fraction of the peak, from 0 to 1, got {self.floor!r}")

    def lr(self, step: int) -> float:
        """The learning rate of update ``step`` (from 0).  Raises ValueError for a negative one."""
        if step < 0:
            raise ValueError(f"schedule: updates count from 0, got {step}")
        if step < self.warmup_steps:
            return self.peak * (step + 1) / self.warmup_steps
        after = step - self.warmup_steps
        progress = min(after / self.decay_steps, 1.0) if self.decay_steps else 1.0
        return self.peak * (self.floor + (1.0 - self.floor) * SCHEDULES[self.name](progress))

    __call__ = lr


def run_schedule(name: str, peak: float, total_steps: int, warmup_steps: int = 0, floor: float = 0.0) -> Schedule:
    """The schedule of a run of ``total_steps`` updates, warm-up included.

    Raises ValueError if warm-up takes more than 30 % of the run.
    """
    if warmup_steps > 0.3 * total_steps:
        raise ValueError(
            f"warm-up of {warmup_steps} steps is more than 30 % of the run's {total_steps}: at most "
            f"{int(0.3 * total_steps)}"
        )
    return Schedule(name, peak, total_steps - warmup_steps, warmup_steps, floor)

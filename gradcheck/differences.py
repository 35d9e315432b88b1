"""Numeric derivatives along a path, each with its own error bar.

A path is a function t -> vector.  Its slope at 0 is a central difference, extrapolated to step 0 (Richardson) over
halved steps, with the error read off the extrapolation as Ridders does ("Accurate computation of F'(x) and
F'(x) F''(x)", Adv. Eng. Software 4, 1982): of all entries of the table the one that moved least against its two
neighbours is kept, output by output.  The bar also holds what rounding of the function's values must cost.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from .arrays import DOUBLE, Array

Path: TypeAlias = Callable[[float], Array]

LEVELS = 4  # steps h, h/2, h/4, h/8: the error falls as h**8
BLOCKS = 4  # a block that does not settle is tried again from a sixteenth of its step
SHRINK = 16.0
RETREATS = 12  # shrinkings allowed only to get back into the function's domain
NOISE_SPACING = 1e-6  # of the first step: so close that neither a curve nor a kink looks like noise
TARGET = 1e-10  # a slope known to this part of itself is good enough
CONTRADICTION = 10.0  # two estimates farther apart than so many of their bars contradict each other
ROUNDING = 2.0  # how many roundings of its value a function is granted


@dataclass(frozen=True)
class Noise:
    """What a function's values are uncertain by: rounding to their dtype, and what was measured."""

    eps: float
    measured: Array | float = 0.0  # per output, absolute

    def of_slope(self, size: Array, slope: Array, step: float) -> Array:
        """The error this makes in a slope, from values of this size and inputs rounded to ``eps``."""
        rounding = ROUNDING * self.eps * (size + np.abs(slope))
        return np.asarray(np.maximum(rounding, ROUNDING * self.measured) / step)


@dataclass
class Slope:
    """A derivative of every output, its error bar, and the step it was taken with."""

    value: Array
    bar: Array
    step: float
    settled: bool  # good enough; smaller steps would not help
    noisy: bool  # rounding is what limits it: a larger step may help


def first_step(eps: float) -> float:
    """The first step, in units of the input's magnitude: wide where values are coarse, so rounding stays small."""
    return 0.05 if eps <= DOUBLE else 0.25 if eps < 1e-5 else 0.5


def slope_along(path: Path, noise: Noise, *, step: float, adapt: bool = True, widest: float = 64.0) -> Slope | None:
    """The slope of ``path`` at 0, or None where the function is not finite on both sides of it.

    step: the first step.  adapt: look for a better one if it does not settle.  widest: up to how many times the first
    step to look where rounding is what limits the slope.
    """
    best = extrapolate(path, step, noise)
    if not adapt or (best is not None and best.settled and not best.noisy):
        return best
    best, step = _descend(path, noise, step, best)
    for wider in (step * 8.0**i for i in range(1, 1 + round(np.log(widest) / np.log(8.0)))):
        if best is None or not best.noisy:
            break
        best = _sharper(best, extrapolate(path, wider, noise))
    return best


def _descend(path: Path, noise: Noise, step: float, best: Slope | None) -> tuple[Slope | None, float]:
    """Smaller and smaller steps until the slope settles; also the largest step at which the function is finite."""
    finite = step if best is not None else 0.0
    tried, retreats = int(best is not None), 0
    while (best is None or not best.settled) and tried < BLOCKS and retreats < RETREATS:
        step /= SHRINK
        found = extrapolate(path, step, noise)
        if found is None:
            retreats += 1
            continue
        tried += 1
        finite = finite or step
        best = found if best is None else _sharper(best, found)
    return best, finite


def _sharper(far: Slope, near: Slope | None) -> Slope:
    """Output by output the slope with the smaller bar; where the two contradict each other, that of smaller steps."""
    if near is None:
        return far
    if near.step > far.step:
        far, near = near, far
    better = _better(near.value, near.bar, far.value, far.bar)
    return Slope(
        np.where(better, near.value, far.value),
        np.where(better, near.bar, far.bar),
        near.step if better.any() else far.step,
        far.settled or near.settled,
        far.noisy and near.noisy,
    )


def _better(value: Array, bar: Array, old: Array, old_bar: Array) -> Array:
    """Where an estimate from smaller steps is to be preferred.

    It is if its bar is smaller, or if the two can't both be right: among kinks a table over wide steps may converge
    by coincidence, to the slope of another piece.
    """
    return np.asarray((bar < old_bar) | (np.abs(value - old) > CONTRADICTION * (bar + old_bar)))


def extrapolate(path: Path, step: float, noise: Noise) -> Slope | None:
    """One Richardson table from ``step`` downward; stops at the first level that settles."""
    rows: list[Array] = []
    value = bar = np.zeros(0)
    settled = noisy = False
    for level in range(LEVELS):
        down, up = path(-step), path(step)
        if not (np.isfinite(down).all() and np.isfinite(up).all()):
            return None
        slope = (up - down) / (2 * step)
        least = noise.of_slope(np.maximum(np.abs(up), np.abs(down)), slope, step)
        new = [slope]
        for order, older in enumerate(rows, start=1):
            new.append(new[-1] + (new[-1] - older) / (4.0**order - 1))
            moved = np.maximum(np.abs(new[-1] - new[-2]), np.abs(new[-1] - older))
            error = np.maximum(moved, least)
            first = level == 1 and order == 1
            better = np.ones(error.shape, bool) if first else _better(new[-1], error, value, bar)
            value = new[-1] if first else np.where(better, new[-1], value)
            bar = error if first else np.where(better, error, bar)
        rows = new
        if level:
            scale = float(np.abs(value).max(initial=0.0))
            settled = bool((bar <= np.maximum(TARGET * scale, 2 * least)).all())
            noisy = bool((bar > TARGET * scale).any())
            if settled:
                break
        step /= 2
    return Slope(value, bar, step, settled, noisy and settled)


def noise_of(path: Path, spacing: float) -> Array:
    """The rounding noise really present in a function's values, output by output, from a table of differences.

    More and Wild, "Estimating computational noise", SIAM J. Sci. Comput. 33 (2011): high differences over small,
    equal steps cancel everything smooth and leave the noise.
    """
    table = np.stack([path(spacing * k) for k in range(-4, 5)])
    level, worst, weight = table, np.zeros(table.shape[1:]), 1.0
    for order in range(1, 7):
        level = np.diff(level, axis=0)
        weight *= order / (2.0 * (2 * order - 1))  # (order!)^2 / (2 order)!
        if order >= 4:
            worst = np.maximum(worst, np.sqrt(weight * np.mean(level**2, axis=0)))
    return worst

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

from .arrays import Array

Path: TypeAlias = Callable[[float], Array]

LEVELS = 4  # steps h, h/2, h/4, h/8: the error falls as h**8
BLOCKS = 4  # a block that does not settle is tried again from a sixteenth of its step
SHRINK = 16.0
WIDEN = 8.0
RETREATS = 12  # shrinkings allowed only to get back into the function's domain
NOISE_SPACING = 1e-8  # between the points that noise is read off, in first steps: no curve or kink looks like noise
NOISE_PLACES = (0.35, 0.6, -0.8)  # where they lie, in first steps: not at the point, which may be a kink
NOISE_WIDER = 6  # how often the spacing is widened for values that stand still
INNER = 1e3  # how many inner roundings the noise of an output may be
JUMP = 1e-2  # a change by more than this part, from one such point to the next, is a jump
TARGET = 1e-10  # a slope known to this part of itself is good enough
COARSE = 1e-12  # where values are coarser than this, two entries of a table may agree by luck ...
LUCK = 1 / 64  # ... so a bar is taken to shrink by no more than this from one level to the next
CONTRADICTION = 10.0  # two estimates farther apart than so many of their bars contradict each other
ROUNDING = 2.0  # how many roundings of its value a function is granted


@dataclass(frozen=True)
class Noise:
    """What a function's values are uncertain by: rounding to their dtype, and what was measured."""

    eps: float
    measured: Array | float = 0.0  # per output, absolute

    def of_slope(self, up: Array, down: Array, slope: Array, step: float) -> Array:
        """The error this makes in a slope between two values; what was measured is for outputs that move."""
        rounding = self.eps * (np.maximum(np.abs(up), np.abs(down)) + np.abs(slope))
        return np.asarray(ROUNDING * np.maximum(rounding, np.where(up == down, 0.0, self.measured)) / step)


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
    return 0.05 if eps < COARSE else 0.25 if eps < 1e-5 else 0.5


def slope_along(path: Path, noise: Noise, *, step: float, adapt: bool = True, widest: float = 1.0) -> Slope | None:
    """The slope of ``path`` at 0, or None where the function is not finite on both sides of it.

    step: the first step.  adapt: look for a better one if it does not settle.  widest: the largest to try where
    rounding is what limits the slope.
    """
    best = extrapolate(path, step, noise)
    if not adapt or (best is not None and best.settled and not best.noisy):
        return best
    best, step = _descend(path, noise, step, best)
    while best is not None and best.noisy and step < widest:
        step = min(step * WIDEN, widest)
        best = _sharper(best, extrapolate(path, step, noise))
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
        least = noise.of_slope(up, down, slope, step)
        new, before = [slope], bar
        for order, older in enumerate(rows, start=1):
            new.append(new[-1] + (new[-1] - older) / (4.0**order - 1))
            moved = np.maximum(np.abs(new[-1] - new[-2]), np.abs(new[-1] - older))
            error = np.maximum(moved, least)
            if noise.eps > COARSE and level > 1:
                error = np.maximum(error, before * LUCK)
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


def noise_of(path: Path, step: float, inner: float, *, widen: bool) -> Array:
    """The noise really present in a function's values, output by output, from tables of differences.

    More and Wild, "Estimating computational noise", SIAM J. Sci. Comput. 33 (2011): high differences over small,
    equal steps cancel everything smooth and leave the noise.  Values rounded to a coarse grid may stand still where
    they are looked at: so three places are, and for outputs that stand still at all of them, wider and wider steps.

    step: the first step of a difference.  inner: the rounding of numbers as large as the inputs; outputs that cancel to
    nothing carry noise of that size, however small they are.  widen: whether an output that stands still may do so
    because it is coarse; along a single coordinate it is rather that it does not depend on it.
    """
    spacing = step * NOISE_SPACING
    tables = [_third_differences(path, step * place, spacing, inner) for place in NOISE_PLACES]
    noise = np.max([seen for seen, _ in tables], axis=0)
    moved = np.any([changed for _, changed in tables], axis=0)
    for _ in range(NOISE_WIDER if widen else 0):
        if moved.all():
            break
        spacing *= SHRINK
        wider, moved_now = _third_differences(path, step * NOISE_PLACES[0], spacing, inner)
        noise, moved = np.where(moved, noise, wider), moved | moved_now
    return noise


def _third_differences(path: Path, place: float, spacing: float, inner: float) -> tuple[Array, Array]:
    """The noise seen in five values around ``place``, and which outputs moved at all; a jump is no noise."""
    values = np.stack([path(place + spacing * k) for k in range(-2, 3)])
    third = np.abs(np.diff(values, n=3, axis=0)).max(axis=0) / 3
    quiet = third <= np.maximum(JUMP * np.abs(values).max(axis=0), INNER * inner)
    return np.where(quiet, third, 0.0), np.asarray(np.ptp(values, axis=0) > 0)

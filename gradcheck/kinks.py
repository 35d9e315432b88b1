"""Kinks: one-sided slopes around a point, and which slopes a function that bends there may claim."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from .arrays import Array, from_real
from .differences import LEVELS, first_step
from .reference import Line, Point

# Where to look for a bend: a difference in float64 over a smaller step, relative to the input, has less than 9 digits.
NEAREST = 1e-6
STEPS = 9  # distances looked at beyond it, each 4 times the last
NEAR = 4  # of these distances, how many count as near by
NEIGHBOURS = 40  # points around a kink whose slopes count as its slopes
FIRST_NEIGHBOURS = 20  # of which so many are looked at to see whether there is one
SMOOTH = 1e-3  # slopes that differ by less than this part are those of a smooth function
SUPPORT = 1e-4  # how closely slopes agree that mean the same
MARGIN = 1e-3  # of the range of slopes, granted at its ends


@dataclass(frozen=True)
class Sides:
    """One-sided slopes around a point, for one combination of the outputs."""

    left: float
    right: float
    slopes: tuple[float, float]  # the least and the largest slope seen around the point
    kink: bool  # the function bends within the step that its slope was measured with
    bend: bool  # or near by
    distance: float

    def allows(self, slope: float) -> bool:
        """True if ``slope`` lies between the slopes around the kink, so that it may be meant."""
        low, high = self.slopes
        margin = MARGIN * (high - low) if np.isfinite([low, high]).all() else 0.0
        return low - margin <= slope <= high + margin

    def support(self, slope: float, other: float) -> bool:
        """True if both sides agree on ``slope``, and by far not on the ``other``: then it is that one which errs.

        Among many kinks a table over wider steps may settle on a slope that is nobody's.
        """
        miss = max(abs(slope - self.left), abs(slope - self.right))
        return miss <= SUPPORT * min(abs(slope), 100 * abs(slope - other))


def sides_of(point: Point, line: Line, cotangent: Array, *, used: float) -> Sides:
    """Look left and right of the point, from near to far; ``used`` is the least step its slope was measured with."""
    path, unit = point.path(line), line.length
    nearest, noise = _nearest(point, line, cotangent)
    steps = [nearest * 4.0**i for i in range(STEPS) if i < 2 or nearest * 4.0**i <= first_step(point.eps)]
    centre = float(cotangent @ path(0.0))
    right = np.array([(float(cotangent @ path(step)) - centre) / (step * unit) for step in steps])
    left = np.array([(centre - float(cotangent @ path(-step))) / (step * unit) for step in steps])
    sides = Sides(float(left[0]), float(right[0]), (-np.inf, np.inf), True, True, nearest * abs(unit))
    if not np.isfinite([sides.left, sides.right]).all():
        return sides
    # Where values are coarse, not so near as to see only noise.
    inside = nearest * (1e-2 if nearest == NEAREST else 0.3)
    slope = _small_slope(point, line, cotangent, inside)
    noises = noise / (np.array([inside, *steps]) * abs(unit))
    bends = _bends(left, right, slope, noises)
    within = max(1, int(np.searchsorted(steps, used * 2 ** (LEVELS - 1) / abs(unit))))
    kink, bend = bool(bends[:within].any()), bool(bends[: max(within, NEAR)].any())
    around = _neighbouring_slopes(point, line, cotangent, nearest, inside, NEIGHBOURS if bend else FIRST_NEIGHBOURS)
    # Among ties a coordinate may move without a bend, while the slope depends on how the tie is broken.
    tie = np.ptp([*around, slope]) > max(SMOOTH * max(abs(sides.left), abs(sides.right)), 20 * noises[0])
    if tie and not bend:
        around = _neighbouring_slopes(point, line, cotangent, nearest, inside, NEIGHBOURS)
    seen = np.array([*right, *left, slope, *around])
    seen = seen[np.isfinite(seen)]
    return replace(sides, slopes=(float(seen.min()), float(seen.max())), kink=bool(kink or tie), bend=bool(bend or tie))


def _nearest(point: Point, line: Line, cotangent: Array) -> tuple[float, float]:
    """The smallest step worth taking, relative to the input, and the noise of the combined outputs."""
    weights = np.abs(cotangent)
    size = float(weights @ np.abs(point.packed))
    measured = 2 * float(weights @ point.noise_along(line))
    nearest = max(NEAREST, 100 * point.eps, 100 * measured / size if size else 0.0)
    return nearest, max(4 * point.eps * size, measured)


def _bends(left: Array, right: Array, slope: float, noise: Array) -> Array:
    """At which distances the slopes differ for good: from side to side, or from the ``slope`` at the point itself.

    Around a smooth point they close in on each other as fast as the step shrinks.
    """
    gaps = np.max(np.abs([right - left, right - slope, left - slope]), axis=0)
    farther = np.append(gaps[1:], np.inf)  # of the farthest distance nothing can be said
    seen = np.maximum(SMOOTH * (np.abs(right) + np.abs(left) + abs(slope)), 30 * noise[1:] + 10 * noise[0])
    return np.asarray((gaps > seen) & (gaps > 0.5 * farther))


def _neighbouring_slopes(
    point: Point, line: Line, cotangent: Array, near: float, step: float, count: int
) -> list[float]:
    """Slopes along ``line`` at random points close by.

    Their limits span the generalised gradient (Clarke, "Generalized gradients and applications", 1975).
    """
    rng = np.random.default_rng(0)
    slopes = []
    for _ in range(count):
        arrays = tuple(
            from_real(x + near * rng.uniform(-1, 1, x.size) * sizes, like)
            for x, sizes, like in zip(point.base, point.magnitudes, point.arrays, strict=True)
        )
        slopes.append(_small_slope(Point(point.function, arrays), line, cotangent, step))
    return [slope for slope in slopes if np.isfinite(slope)]


def _small_slope(point: Point, line: Line, cotangent: Array, step: float) -> float:
    path = point.path(line)
    return float(cotangent @ (path(step) - path(-step))) / (2 * step * line.length)

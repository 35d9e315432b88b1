"""Looking closer at one entry: one-sided slopes for kinks, measured noise, where along a direction it goes wrong."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .arrays import Array, from_real, place
from .compare import SAFETY, Held
from .differences import Noise, first_step, slope_along
from .reference import Line, Point
from .report import Finding, Where

# Where to look for a bend: a difference in float64 over a smaller step, relative to the input, has less than 9 digits.
NEAREST = 1e-6
STEPS = 9  # distances looked at beyond it, each 4 times the last
NEAR = 4  # of these distances, how many count as near by
NEIGHBOURS = 30  # points around a kink whose slopes count as its slopes
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


def sides_of(point: Point, line: Line, cotangent: Array, *, used: float) -> Sides:
    """Look left and right of the point, from near to far; ``used`` is the step the slope was measured with."""
    path, unit = point.path(line), line.length
    weights = np.abs(cotangent)
    size = float(weights @ np.abs(point.packed))
    measured = 2 * float(weights @ point.noise_along(line))
    noise = max(4 * point.eps * size, measured)
    nearest = max(NEAREST, 100 * point.eps, 100 * measured / size if size else 0.0)
    steps = [nearest * 4.0**i for i in range(STEPS) if i < 2 or nearest * 4.0**i <= first_step(point.eps)]
    centre = float(cotangent @ path(0.0))
    right = [(float(cotangent @ path(step)) - centre) / (step * unit) for step in steps]
    left = [(centre - float(cotangent @ path(-step))) / (step * unit) for step in steps]
    distance = nearest * abs(unit)
    if not np.isfinite([right[0], left[0]]).all():
        return Sides(left[0], right[0], (-np.inf, np.inf), True, True, distance)
    bends = _bends(np.array(left), np.array(right), noise / (np.array(steps) * abs(unit)))
    seen = [s for s in (*right, *left) if np.isfinite(s)]
    within = max(1, int(np.searchsorted(steps, used / abs(unit))))
    kink, bend = bool(bends[:within].any()), bool(bends[: max(within, NEAR)].any())
    if bend:
        seen += _neighbouring_slopes(point, line, cotangent, nearest)
    return Sides(left[0], right[0], (min(seen), max(seen)), kink, bend, distance)


def _bends(left: Array, right: Array, noise: Array) -> Array:
    """At which distances the slopes on the two sides differ for good.

    Around a smooth point they close in on each other as fast as the step shrinks.
    """
    gaps = np.abs(right - left)
    farther = np.append(gaps[1:], np.inf)  # of the farthest distance nothing can be said
    return np.asarray((gaps > np.maximum(1e-3 * (np.abs(right) + np.abs(left)), 30 * noise)) & (gaps > 0.5 * farther))


def _neighbouring_slopes(point: Point, line: Line, cotangent: Array, near: float) -> list[float]:
    """Slopes along ``line`` at the point and at random points close by.

    Their limits span the generalised gradient (Clarke, "Generalized gradients and applications", 1975).
    """
    rng = np.random.default_rng(0)
    step = near * (1e-2 if near == NEAREST else 0.3)  # where values are coarse, not so near as to see only noise
    slopes = [_small_slope(point, line, cotangent, step)]
    for _ in range(NEIGHBOURS):
        arrays = tuple(
            from_real(x + near * rng.uniform(-1, 1, x.size) * sizes, like)
            for x, sizes, like in zip(point.base, point.magnitudes, point.arrays, strict=True)
        )
        slopes.append(_small_slope(Point(point.function, arrays), line, cotangent, step))
    return [slope for slope in slopes if np.isfinite(slope)]


def _small_slope(point: Point, line: Line, cotangent: Array, step: float) -> float:
    path = point.path(line)
    return float(cotangent @ (path(step) - path(-step))) / (2 * step * line.length)


def describe(point: Point, line: Line, held: Held, at: int, label: str) -> Where:
    """The entry ``at`` of ``held`` in words and numbers."""
    k = line.input
    element = "a random direction" if line.coordinate is None else place(line.coordinate, point.arrays[k])
    return Where(
        point.function.inputs[k],
        k,
        point.arrays[k].shape,
        element,
        float(held.analytic[at]),
        float(held.numeric[at]),
        float(SAFETY * held.bar[at]),
        float(held.error[at]),
        label,
    )


def kink_finding(point: Point, line: Line, sides: Sides, where: Where) -> Finding:
    """The finding for a gradient that differs only because the function bends here."""
    if not np.isfinite([sides.left, sides.right]).all():
        why = f"the function is not finite on one side of {where.element}: the edge of its domain"
    else:
        low, high = sides.slopes
        why = (
            f"crosses a kink at {where.element}, within {sides.distance:.1g} of it: slope {sides.left:.6g} on the "
            f"left, {sides.right:.6g} on the right; the gradient is one of the slopes around it, {low:.6g} to "
            f"{high:.6g}"
        )
    advice = "move the input away from the kink, or state the value agreed for it as an edge point"
    return Finding("kink", why, advice=advice, where=where)


def precision_finding(point: Point, line: Line, where: Where) -> Finding:
    """The finding for a difference that rounding drowns, with the step that would do best."""
    noise = float(np.max(point.noise_along(line), initial=0.0))
    dtype = point.arrays[line.input].dtype
    step = _better_step(point, line)
    used = f"with the step {point.step:.1g} " if point.step is not None else ""
    why = (
        f"{used}in {dtype} the difference can't tell: its values carry noise of about "
        f"{max(noise, point.eps * float(np.abs(point.packed).max(initial=0.0))):.1e}"
    )
    if point.step is not None:
        advice = f"leave the step to the check, or set step={step:.1g}"
    else:
        what = "take away what the output is offset by" if dtype == np.float64 else "evaluate in float64"
        advice = f"{what}; the best step found is {step:.1g}"
    return Finding("precision-limited", why, advice=advice, where=where)


def _better_step(point: Point, line: Line) -> float:
    """The step an adaptive search settles on."""
    unit = abs(line.length) if line.coordinate is not None else point.typical[line.input]
    slope = slope_along(point.path(line), Noise(point.eps, point.noise_along(line)), step=first_step(point.eps))
    return (slope.step if slope is not None else first_step(point.eps)) * unit


def locate(point: Point, line: Line, gradient: Array, cotangent: Array) -> Line:
    """The coordinate at which a direction goes wrong, by halving it where the two sides differ most."""
    places = np.flatnonzero(line.direction)
    while places.size > 1:
        halves = np.array_split(places, 2)
        off = [_mismatch(point, line, half, gradient, cotangent) for half in halves]
        places = halves[int(off[1] > off[0])]
    return point.coordinate(line.input, int(places[0]))


def _mismatch(point: Point, line: Line, places: Array, gradient: Array, cotangent: Array) -> float:
    part = np.zeros_like(line.direction)
    part[places] = line.direction[places]
    slope = point.slope(Line(line.input, part))
    if slope is None:
        return np.inf
    return float(max(abs(part @ gradient - cotangent @ slope.value), np.abs(cotangent) @ slope.bar))

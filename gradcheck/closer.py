"""Looking closer at one entry: in words and numbers, as a kink, as beyond precision, and where along a direction."""

from __future__ import annotations

import numpy as np

from .arrays import Array, place
from .compare import SAFETY, Held
from .differences import Noise, first_step, slope_along
from .kinks import Sides
from .reference import Line, Point
from .report import Finding, Where


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

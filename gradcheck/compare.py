"""A gradient held against the numeric derivative, entry by entry, with the tolerance each entry has earned.

The tolerance of an entry is its error bar, plus a small part (``rtol``) of what is added up there, plus rounding on the
scale of the whole gradient.  An entry whose bar is too wide to judge anything is *unresolved*: neither right nor wrong.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .arrays import DOUBLE, Array
from .reference import InputReference, Point

SAFETY = 5.0  # error bars are estimates: this many of them
RTOL = 1e-8  # the sharpest a difference in float64 is trusted to be
TINY = 1e-13  # rounding of the gradient itself, of its own scale
ZERO = 100.0  # so many roundings of the natural size of a derivative are nothing


@dataclass(frozen=True)
class Held:
    """One gradient of one input, for one cotangent, along every line of the reference."""

    analytic: Array
    numeric: Array
    bar: Array
    tolerance: Array
    scale: Array
    rounding: Array  # one rounding, of the natural size of a derivative there
    limit: float  # the widest bar, relative to the scale, that still is evidence

    @property
    def wrong(self) -> Array:
        """Where the two differ by more than the tolerance, and the bar allows to say so."""
        off = ~(np.abs(self.analytic - self.numeric) <= self.tolerance)
        return np.asarray(off & ~np.isinf(self.bar))

    def unresolved(self, bar: Array | None = None) -> Array:
        """Where the bar (its own, or a better one) is too wide to tell a right gradient from a wrong one."""
        bar = self.bar if bar is None else np.maximum(bar, self.bar)
        wide = bar * SAFETY > self.limit * np.maximum(self.size, self.scale)
        return np.asarray(wide & ~self.nothing(bar))

    def nothing(self, bar: Array) -> Array:
        """Where gradient and bar are no larger than rounding makes them: zero, and seen to be zero."""
        return np.asarray((np.abs(self.analytic) <= ZERO * self.rounding) & (bar <= ZERO**2 * self.rounding))

    @property
    def size(self) -> Array:
        """The larger of the two."""
        return np.maximum(np.abs(self.analytic), np.abs(self.numeric))

    @property
    def error(self) -> Array:
        """Relative errors; 0 where both sides are nothing but rounding."""
        size = np.maximum(self.size, self.scale)
        visible = (size > SAFETY * self.bar) & (size > ZERO * self.rounding)
        with np.errstate(invalid="ignore", divide="ignore"):
            relative = np.abs(self.analytic - self.numeric) / size
        return np.where(visible | self.wrong, relative, 0.0)

    @property
    def checks(self) -> int:
        """How many entries could be compared."""
        return int((~self.unresolved()).sum())

    @property
    def worst(self) -> float:
        """The largest relative error among the entries that could be compared and are not wrong."""
        return float(np.max(self.error[~self.unresolved() & ~self.wrong], initial=0.0))

    def agrees(self) -> bool:
        """True if no entry is wrong."""
        return not bool(self.wrong.any())


def resolution(eps: float) -> float:
    """The widest bar, relative to the gradient's scale, that still is evidence."""
    return float(min(0.25, max(1e-3, 20 * np.sqrt(eps))))


def hold(
    point: Point, reference: InputReference, k: int, gradient: Array | None, cotangent: Array, rtol: float = RTOL
) -> Held:
    """Hold ``gradient`` of input ``k``, pulled from the packed ``cotangent``, against ``reference``."""
    zeros = np.zeros(len(reference.lines))
    analytic = zeros if gradient is None else reference.project(gradient)
    span = zeros if gradient is None else reference.span(gradient)
    weights = np.abs(cotangent)
    with np.errstate(invalid="ignore", over="ignore"):
        numeric = cotangent @ reference.value
        bar = weights @ reference.bar
        summed = weights @ np.abs(reference.value)
    bar = np.where(np.isnan(bar), np.inf, bar)
    size = np.maximum(np.abs(analytic), np.abs(numeric))
    scale = _scales(reference, np.maximum(summed - SAFETY * bar, 0.0), span)
    tolerance = SAFETY * bar + rtol * np.maximum(size, np.maximum(summed, span)) + TINY * scale
    rounding = point.eps * _natural(point, reference, k, weights)
    return Held(analytic, numeric, bar, tolerance, scale, rounding, resolution(point.eps))


def _scales(reference: InputReference, summed: Array, span: Array) -> Array:
    """The Jacobian's scale at each line: coordinates share theirs, a direction has that of its own terms."""
    if reference.full:
        return np.full(summed.shape, summed.max(initial=0.0))
    single = np.array([line.coordinate is not None for line in reference.lines], dtype=bool)
    shared = summed[single].max(initial=0.0)
    return np.where(single, shared, np.maximum(summed, span))


def _natural(point: Point, reference: InputReference, k: int, weights: Array) -> Array:
    """How large a derivative would be that is neither large nor small: |g| max(|y|, |x|) / |x|."""
    sizes = point.magnitudes[k]
    units = np.array([sizes[line.coordinate] if line.coordinate is not None else 1.0 for line in reference.lines])
    total = float(weights.sum()) * float(sizes.max(initial=0.0)) + float(weights @ np.abs(point.packed))
    return np.asarray(total / np.maximum(units, DOUBLE))

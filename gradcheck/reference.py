"""The numeric derivative of a function at a point: the oracle every gradient is held against.

Small inputs get their full Jacobian, one coordinate at a time.  Large ones get a few random directions, which see
every element at once, and a few single coordinates.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from .arrays import Array, Arrays, coarsest, coordinates_of, from_real, pack, to_real
from .differences import Noise, Path, Slope, first_step, noise_of, slope_along
from .function import Differentiable

SMALLEST = 1e-13  # of the array's typical size: a smaller element is a zero
MOST_NOISE = 1e-2  # noise is less than this part of a value, or the value is nothing but noise
WIDEST = 0.5  # the widest step, of the element moved ...
WIDEST_OF_ALL = 0.05  # ... or of its array's typical size, if that is more
DIRECTIONS = 4  # random directions for a large input
SPOTS = 8  # single coordinates looked at besides


@dataclass(frozen=True)
class Line:
    """A straight path through one input: along a single coordinate, or along a direction through all of them."""

    input: int
    direction: Array  # real coordinates; its length is the input's own magnitude, so that a step is relative
    coordinate: int | None = None

    @property
    def length(self) -> float:
        """What the slope along the line is divided by: coordinates are reported per unit."""
        return 1.0 if self.coordinate is None else float(self.direction[self.coordinate])


class Point:
    """A function and contiguous copies of the arrays it is looked at."""

    def __init__(self, function: Differentiable, arrays: Arrays, step: float | None = None) -> None:
        self.function = function
        self.arrays = tuple(np.array(a, order="C") for a in arrays)
        self.base = tuple(to_real(a) for a in self.arrays)
        outputs = function.forward(*self.arrays)
        self.outputs = tuple(np.array(y, order="C") for y in outputs)
        self.packed = pack(self.outputs)
        self.step = step  # absolute, as the user gave it, or None to adapt
        self.typical = tuple(_typical(x) for x in self.base)
        self.magnitudes = tuple(_magnitudes(x, t) for x, t in zip(self.base, self.typical, strict=True))

    def path(self, line: Line) -> Path:
        """The packed outputs as a function of the distance along ``line``."""
        k, base, like = line.input, self.base[line.input], self.arrays[line.input]

        def values(t: float) -> Array:
            moved = from_real(base + t * line.direction, like)
            # Fresh copies for every call: a function that writes into its inputs must not move the point.
            others = (a.copy() for a in self.arrays)
            return pack(self.function.forward(*(moved if i == k else a for i, a in enumerate(others))))

        return values

    def coordinate(self, k: int, c: int) -> Line:
        """The line that moves coordinate ``c`` of input ``k`` alone."""
        direction = np.zeros_like(self.base[k])
        direction[c] = self.magnitudes[k][c]
        return Line(k, direction, c)

    @cached_property
    def noise(self) -> Array:
        """The noise of the outputs; measured once, with all inputs moving at random."""
        rng = np.random.default_rng(0)
        directions = [random_direction(self, k, rng).direction for k in range(len(self.base))]

        def path(t: float) -> Array:
            moved = (from_real(x + t * d, a) for x, d, a in zip(self.base, directions, self.arrays, strict=True))
            return pack(self.function.forward(*moved))

        return noise_of(path, first_step(self.dtype_eps), self.inner_rounding, widen=True)

    def noise_along(self, line: Line) -> Array:
        """The noise of the outputs along ``line``."""
        return np.maximum(self.noise, noise_of(self.path(line), first_step(self.eps), self.inner_rounding, widen=False))

    @property
    def inner_rounding(self) -> float:
        """One rounding of a number as large as the inputs."""
        return self.dtype_eps * max(self.typical, default=1.0)

    @cached_property
    def dtype_eps(self) -> float:
        """The spacing of the coarsest dtype in sight."""
        return max(coarsest(self.arrays), coarsest(self.outputs))

    @cached_property
    def eps(self) -> float:
        """How coarse the function's values are, relative to their size: by their dtype, or as coarse as is seen.

        A function may compute in float32 whatever its inputs are.  Outputs that are small by cancellation are coarser
        than the others; they do not count.
        """
        noisy = (self.noise > 0) & (self.noise < MOST_NOISE * np.abs(self.packed))
        seen = self.noise[noisy] / np.abs(self.packed[noisy])
        return max(self.dtype_eps, float(np.median(seen)) if seen.size else 0.0)

    def slope(self, line: Line, *, closely: bool = False) -> Slope | None:
        """The derivative of every output along ``line``, per unit for a coordinate line.

        closely: the noise is measured along this very line too, which makes for a more reliable bar.
        """
        noise = self.noise_along(line) if closely else self.noise
        typical = self.typical[line.input]
        unit = line.length if line.coordinate is not None else typical
        step = self.step / unit if self.step is not None else first_step(self.eps)
        slope = slope_along(
            self.path(line),
            Noise(self.eps, noise),
            step=step,
            adapt=self.step is None,
            widest=max(WIDEST, WIDEST_OF_ALL * typical / unit),
        )
        if slope is None:
            return None
        return Slope(slope.value / line.length, slope.bar / line.length, slope.step * unit, slope.settled, slope.noisy)


def _typical(x: Array) -> float:
    """The size of an array's elements (root mean square); 1 where that says nothing."""
    size = float(np.sqrt(np.mean(x**2))) if x.size else 1.0
    return size if 0.0 < size < np.inf else 1.0


def _magnitudes(x: Array, typical: float) -> Array:
    """The natural length of a step in each coordinate: its size, or the array's where it is zero but for rounding."""
    return np.where(np.abs(x) > SMALLEST * typical, np.abs(x), typical)


@dataclass
class InputReference:
    """Slopes of all outputs along the lines through one input."""

    lines: list[Line]
    value: Array  # (outputs, lines)
    bar: Array
    steps: list[float]
    full: bool  # every coordinate has its line

    def project(self, gradient: Array) -> Array:
        """A gradient of this input (any dtype and layout) as seen along the lines."""
        real = to_real(gradient)
        if self.full:
            return real
        return np.array([_along(real, line) for line in self.lines])

    def span(self, gradient: Array) -> Array:
        """How large the terms are that ``project`` adds up, per line; for coordinates the entry itself."""
        real = to_real(gradient)
        if self.full:
            return np.abs(real)
        single = [line.coordinate is not None for line in self.lines]
        sizes = [
            np.abs(_along(real, line)) if one else float(np.linalg.norm(real * line.direction))
            for line, one in zip(self.lines, single, strict=True)
        ]
        return np.array(sizes)


def _along(real: Array, line: Line) -> float:
    return float(real[line.coordinate]) if line.coordinate is not None else float(real @ line.direction)


def measure(point: Point, k: int, *, full_limit: int, rng: np.random.Generator) -> InputReference:
    """The numeric derivative with respect to input ``k``, as many lines as its size affords."""
    count = coordinates_of(point.arrays[k])
    full = count <= full_limit
    if full:
        return along(point, (point.coordinate(k, c) for c in range(count)), full=True)
    spots = rng.choice(count, size=min(SPOTS, count), replace=False)
    lines = [point.coordinate(k, int(c)) for c in sorted(spots)]
    lines += [random_direction(point, k, rng) for _ in range(DIRECTIONS)]
    return along(point, lines)


def random_direction(point: Point, k: int, rng: np.random.Generator) -> Line:
    """A direction through every coordinate of input ``k``, each moved in proportion to its own size."""
    size = point.magnitudes[k].size
    signs = np.where(rng.random(size) < 0.5, -1.0, 1.0)
    return Line(k, signs * rng.uniform(0.5, 1.0, size) * point.magnitudes[k])


def along(point: Point, lines: Iterable[Line], *, full: bool = False, closely: bool = False) -> InputReference:
    """Slopes along ``lines``; one that can't be taken at all has an infinite bar."""
    kept = list(lines)
    outputs = sum(coordinates_of(y) for y in point.outputs)
    value, bar, steps = np.zeros((outputs, len(kept))), np.full((outputs, len(kept)), np.inf), []
    for i, line in enumerate(kept):
        slope = point.slope(line, closely=closely)
        if slope is not None:
            value[:, i], bar[:, i] = slope.value, slope.bar
        steps.append(slope.step if slope is not None else 0.0)
    return InputReference(kept, value, bar, steps, full)


def joined(references: Sequence[InputReference]) -> InputReference:
    """The lines of several references of one input as one."""
    return InputReference(
        [line for r in references for line in r.lines],
        np.concatenate([r.value for r in references], axis=1),
        np.concatenate([r.bar for r in references], axis=1),
        [step for r in references for step in r.steps],
        False,
    )

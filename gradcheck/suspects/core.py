"""The evidence against one input's gradient, and the experiments a hypothesis may make with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias, TypeVar

import numpy as np

from ..arrays import Array, Arrays, coordinates_of, from_real, pack, to_real, unpack
from ..compare import Held, hold
from ..cotangents import Cotangent
from ..pulls import pull
from ..reference import InputReference, Point, along, random_direction
from ..report import Kind

T = TypeVar("T")
Change: TypeAlias = Callable[[Arrays], Arrays]

ROWS = 512  # the most outputs whose rows of the Jacobian are pulled one by one
LENIENCE = 4.0  # a mistake is known to be there: an explanation may miss by so many times the usual tolerance ...
GAIN = 0.1  # ... if that is only this part of what was missed before
PERTURBATION = 0.03  # how far the second point lies from the first, relative to each element


@dataclass(frozen=True)
class Guess:
    """A suspected mistake, why it is suspected, and what to do about it."""

    kind: Kind
    why: str
    advice: str


@dataclass(frozen=True)
class Evidence:
    """One pull with a contiguous cotangent: what went in, and the gradients of all inputs that came out."""

    cotangent: Cotangent
    gradients: tuple[Array | None, ...]


@dataclass
class Suspect:
    """One input whose gradient is wrong."""

    point: Point
    k: int
    reference: InputReference
    evidence: Sequence[Evidence]
    accused: frozenset[int]  # all inputs whose gradients are wrong
    rtol: float
    rng: np.random.Generator

    @property
    def name(self) -> str:
        """The input's name."""
        return self.point.function.inputs[self.k]

    @property
    def input(self) -> Array:
        """The input's value."""
        return self.point.arrays[self.k]

    @property
    def gradients(self) -> list[Array | None]:
        """The claimed gradients, one per pull."""
        return [e.gradients[self.k] for e in self.evidence]

    @property
    def shaped(self) -> bool:
        """True if every gradient has the shape of its input."""
        return all(g is None or g.shape == self.input.shape for g in self.gradients)

    def held(self, at: int, gradient: Array | None) -> Held:
        """``gradient`` held against the numeric one for pull ``at``."""
        packed = pack(self.evidence[at].cotangent.arrays)
        return hold(self.point, self.reference, self.k, gradient, packed, self.rtol)

    def agrees(self, repaired: Sequence[Array | None]) -> bool:
        """True if these gradients, one per pull, are right in every measured number."""
        for at, gradient in enumerate(repaired):
            if gradient is None or gradient.shape != self.input.shape:
                return False
            claimed = self.gradients[at]
            held = self.held(at, gradient)
            allowed = held.tolerance
            if claimed is not None and claimed.shape == gradient.shape:
                before = np.abs(self.held(at, claimed).analytic - held.numeric)
                allowed = np.maximum(allowed, np.minimum(LENIENCE * allowed, GAIN * before))
            if not (np.abs(held.analytic - held.numeric) <= allowed).all():
                return False
        return True

    def agrees_with(self, expected: Sequence[Array]) -> bool:
        """True if the claimed gradients are these, one per pull, as closely as they were measured."""
        for gradient, other in zip(self.gradients, expected, strict=True):
            scale = float(np.abs(other).max(initial=0.0))
            if gradient is None or not np.allclose(gradient, other, rtol=1e-6, atol=1e-6 * scale):
                return False
        return True

    def mended(self, repair: Callable[[Array], Array]) -> bool:
        """True if ``repair``, applied to every claimed gradient, makes all of them right."""
        return all(g is not None for g in self.gradients) and self.agrees(
            [repair(g) for g in self.gradients if g is not None]
        )

    def pulled(self, arrays: Arrays, cotangents: Arrays) -> tuple[Array | None, ...] | None:
        """The gradients at other arrays or for other cotangents, or None if the function won't take them."""
        return attempt(lambda: pull(self.point.function, arrays, cotangents).gradients)

    def repulled(
        self, arrays: Change | None = None, cotangents: Change | None = None, pick: int | None = None
    ) -> list[Array | None] | None:
        """Gradients of this input (or ``pick``) with arrays or cotangents changed; None if that isn't possible."""
        found: list[Array | None] = []
        for e in self.evidence:
            xs = self.point.arrays if arrays is None else attempt(partial(arrays, self.point.arrays))
            gs = e.cotangent.arrays if cotangents is None else attempt(partial(cotangents, e.cotangent.arrays))
            gradients = None if xs is None or gs is None else self.pulled(xs, gs)
            if gradients is None:
                return None
            found.append(gradients[self.k if pick is None else pick])
        return found

    def claimed_jacobian(self) -> Array | None:
        """The claimed Jacobian (outputs, real coordinates), row by row from cotangents with a single entry.

        None where the outputs are too many, or a pull gives nothing.
        """
        outputs = self.point.packed.size
        rows: list[Array] = []
        for r in range(outputs if outputs <= ROWS else 0):
            packed = np.zeros(outputs)
            packed[r] = 1.0
            gradients = self.pulled(self.point.arrays, unpack(packed, self.point.outputs))
            gradient = None if gradients is None else gradients[self.k]
            if gradient is None:
                return None
            rows.append(to_real(gradient))
        return np.stack(rows) if rows else None

    def elsewhere(self, factor: float) -> bool:
        """True if the gradient is ``factor`` times the numeric one at a second point too."""
        arrays = nearby(self.point, self.rng)
        second = attempt(lambda: Point(self.point.function, arrays, self.point.step))
        if second is None or not all(np.isfinite(y).all() for y in second.outputs):
            return True
        cotangents = self.evidence[0].cotangent.arrays
        gradients = self.pulled(second.arrays, cotangents)
        gradient = None if gradients is None else gradients[self.k]
        if gradient is None:
            return True
        line = along(second, [random_direction(second, self.k, self.rng)])
        return hold(second, line, self.k, gradient / factor, pack(cotangents), max(self.rtol, 1e-6)).agrees()


def attempt(experiment: Callable[[], T]) -> T | None:
    """The result of an experiment, or None if it raised.

    A function under suspicion is called with arrays it was not made for; whatever it then raises only means that the
    experiment says nothing.
    """
    try:
        return experiment()
    except Exception:
        return None


def nearby(point: Point, rng: np.random.Generator) -> Arrays:
    """Other arrays close to the point's, every element moved by a few percent of its size."""
    moved = []
    for base, sizes, like in zip(point.base, point.magnitudes, point.arrays, strict=True):
        shift = rng.uniform(0.5, 1.0, coordinates_of(like)) * np.where(rng.random(base.size) < 0.5, -1, 1)
        moved.append(from_real(base + PERTURBATION * sizes * shift, like))
    return tuple(moved)

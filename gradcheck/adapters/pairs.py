"""A plain pair of NumPy functions: ``(f, vjp)``, or ``(f, vjp, vjp2)`` for order 2.

f(*arrays) -> y or a tuple.  vjp(g, *arrays) -> one gradient, or a tuple with one per array; g is a tuple if f returns
one.  vjp2(c, g, *arrays) is the vjp of ``vjp``: it gives (gradient of g, gradient of each float array); c is a tuple if
vjp returns one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..arrays import Array, Arrays, is_float
from ..function import (
    Case,
    Differentiable,
    Pullback,
    Subject,
    as_outputs,
    cotangent_names,
    floats_of,
    input_names,
    name_of,
    pulled_forward,
)


def subject(target: Any, arrays: tuple[Any, ...], *, order: int, seed: int) -> Subject:
    """The pair at ``arrays``.  Raises TypeError for a malformed pair, ValueError for order 2 without a vjp2."""
    if not 2 <= len(target) <= 3 or not all(callable(part) for part in target):
        raise TypeError("a pair is (f, vjp) or (f, vjp, vjp2), all functions")
    if order > 1 and len(target) == 2:
        raise ValueError("order 2 of a pair needs the vjp of its vjp: (f, vjp, vjp2)")
    pair = Pair(*target, arrays=tuple(np.asarray(a) for a in arrays))
    return Subject(pair.name, (Case(pair.differentiable(), pair.floats(), order=order),))


class Pair:
    """A pair at certain arrays; those that are not floats are passed along unmoved."""

    def __init__(self, f: Any, vjp: Any, vjp2: Any = None, *, arrays: Arrays) -> None:
        self.f, self.vjp, self.vjp2, self.arrays = f, vjp, vjp2, arrays
        self.name = name_of(f)
        self.moved = [i for i, a in enumerate(arrays) if is_float(a.dtype)]
        if not self.moved:
            raise TypeError(f"{self.name}: none of the {len(arrays)} arrays is float or complex")
        names = input_names(f, len(arrays))
        self.names = tuple(names[i] for i in self.moved)

    def floats(self) -> Arrays:
        """The arrays with a gradient."""
        return tuple(self.arrays[i] for i in self.moved)

    def filled(self, floats: Sequence[Array]) -> list[Array]:
        """All arrays, these floats in their places."""
        full = list(self.arrays)
        for i, array in zip(self.moved, floats, strict=True):
            full[i] = array
        return full

    def differentiable(self) -> Differentiable:
        """The pair as gradcheck sees functions."""
        return Differentiable(self.name, self.forward, self.linearize, self.names, self.second)

    def forward(self, *floats: Array) -> Arrays:
        """The float outputs of f."""
        outputs, _ = as_outputs(self.f(*self.filled(floats)))
        return floats_of(outputs, self.name)

    def linearize(self, *floats: Array) -> Pullback:
        """Call f, as a vjp may rely on what f kept, and return the vjp at these arrays."""
        full = self.filled(floats)
        outputs, several = as_outputs(self.f(*full))

        def pullback(cotangents: Arrays) -> Sequence[Any]:
            given = iter(cotangents)
            gs = tuple(next(given) if is_float(y.dtype) else None for y in outputs)
            return self._picked(self.vjp(gs if several else gs[0], *full))

        return pullback

    def _picked(self, returned: Any) -> Sequence[Any]:
        """One gradient per float array, from a vjp that may give one for every array."""
        gradients = returned if isinstance(returned, tuple | list) else (returned,)
        if len(gradients) == len(self.arrays) != len(self.moved):
            return [gradients[i] for i in self.moved]
        return gradients

    def second(self, outputs: Arrays) -> Differentiable:
        """The vjp as a function of (g, *arrays), with vjp2 as its pullback."""
        count = len(outputs)

        def linearize(*arrays: Array) -> Pullback:
            gs, full = arrays[:count], self.filled(arrays[count:])
            several_outputs = isinstance(self.f(*full), tuple | list)
            g = gs if several_outputs else gs[0]
            several = isinstance(self.vjp(g, *full), tuple | list)

            def pullback(cotangents: Arrays) -> Sequence[Any]:
                of_g, *of_arrays = self.vjp2(cotangents if several else cotangents[0], g, *full)
                return [*(of_g if several_outputs else (of_g,)), *self._picked(tuple(of_arrays))]

            return pullback

        names = (*cotangent_names(count), *self.names)
        return Differentiable(f"{self.name}, vjp", pulled_forward(self.differentiable(), count), linearize, names)

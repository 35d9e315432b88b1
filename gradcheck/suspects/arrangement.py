"""Mistakes of order: the right numbers in another input's place, across the diagonal, or in the wrong shape."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial

import numpy as np

from ..arrays import Array, Arrays
from .core import Guess, Suspect


def swapped(s: Suspect) -> Guess | None:
    """The gradient belongs to another input, or the pullback took its inputs or cotangents in another order."""
    names = s.point.function.inputs
    for j in s.accused - {s.k}:
        pair = f"{s.name} and {names[j]}"
        advice = f"exchange {pair} in the pullback"
        if s.agrees([e.gradients[j] for e in s.evidence]):
            return Guess("swapped-inputs", f"the gradient returned for {names[j]} is that of {s.name}", advice)
        for pick in (s.k, j):
            exchanged = s.repulled(arrays=partial(_exchange, i=s.k, j=j), pick=pick)
            if exchanged is not None and s.agrees(exchanged):
                return Guess("swapped-inputs", f"the gradient is right when {pair} are handed over exchanged", advice)
    for i, j in itertools.combinations(range(len(s.point.outputs)), 2):
        crossed = s.repulled(cotangents=partial(_exchange, i=i, j=j))
        if crossed is not None and s.agrees(crossed):
            return Guess(
                "swapped-inputs",
                f"the gradient of {s.name} is right when the cotangents of outputs {i} and {j} are exchanged",
                f"take the cotangents in the order of the outputs in the pullback of {s.name}",
            )
    return None


def _exchange(arrays: Arrays, i: int, j: int) -> Arrays:
    order = list(range(len(arrays)))
    order[i], order[j] = j, i
    return tuple(arrays[o] for o in order)


def right_numbers_wrong_shape(s: Suspect) -> Guess | None:
    """All numbers are right and in order, only the shape isn't the input's."""
    if s.shaped or any(g is None or g.size != s.input.size for g in s.gradients):
        return None
    if not s.mended(lambda g: g.reshape(s.input.shape)):
        return None
    found = next(g.shape for g in s.gradients if g is not None)
    return Guess(
        "shape",
        f"the numbers are right but the gradient of {s.name} has shape {found}, not {s.input.shape}",
        "keep the reduced axes (keepdims=True) or reshape the gradient to the input's shape",
    )


def transposed(s: Suspect) -> Guess | None:
    """Right after exchanging axes: of the gradient, of a factor in it, or of the cotangent."""
    advice = f"look for a missing or superfluous transpose in the pullback of {s.name}"
    for order in _orders(s.input.ndim):
        for text, candidate in _rearranged(s, order):
            if s.agrees(candidate):
                return Guess("transposed", f"the gradient of {s.name} is right with its axes {text}", advice)
    for j, name in enumerate(s.point.function.inputs):
        flipped = s.repulled(arrays=partial(_flip, j=j))
        if flipped is not None and s.agrees(flipped):
            why = f"the gradient of {s.name} is right when {name} is handed over transposed"
            return Guess("transposed", why, advice)
    for i in range(len(s.point.outputs)):
        flipped = s.repulled(cotangents=partial(_flip, j=i))
        if flipped is not None and s.agrees(flipped):
            return Guess("transposed", f"the gradient of {s.name} is right when the cotangent is transposed", advice)
    return None


def _orders(ndim: int) -> list[tuple[int, ...]]:
    """The orders of axes to try: all for up to three axes, else exchanges of two."""
    usual = tuple(range(ndim))
    if ndim <= 3:
        return [p for p in itertools.permutations(usual) if p != usual]
    return [_exchanged(usual, i, j) for i, j in itertools.combinations(usual, 2)]


def _exchanged(usual: tuple[int, ...], i: int, j: int) -> tuple[int, ...]:
    order = list(usual)
    order[i], order[j] = order[j], order[i]
    return tuple(order)


def _rearranged(s: Suspect, order: tuple[int, ...]) -> Iterator[tuple[str, list[Array | None]]]:
    """The claimed gradients with axes in another order, read in the ways a wrong transpose can come about."""
    shape = s.input.shape
    read = tuple(shape[i] for i in order)
    gradients = [g for g in s.gradients if g is not None]
    if len(gradients) < len(s.gradients) or any(g.size != s.input.size for g in gradients):
        return
    if all(g.ndim == len(order) for g in gradients):
        yield f"in the order {order}", [g.transpose(order) for g in gradients]
        yield f"in the order {order}, reshaped", [g.transpose(order).reshape(shape) for g in gradients]
    yield f"read in the order {order}", [g.reshape(read).transpose(np.argsort(order)) for g in gradients]


def _flip(arrays: Arrays, j: int) -> Arrays:
    """The same arrays with the last two axes of one of them exchanged.  Raises ValueError if it has no two axes."""
    if arrays[j].ndim < 2 or arrays[j].shape[-1] != arrays[j].shape[-2]:
        raise ValueError("only square matrices can be exchanged with their transpose")
    return tuple(np.swapaxes(a, -1, -2).copy() if i == j else a for i, a in enumerate(arrays))

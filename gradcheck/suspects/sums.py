"""Mistakes of addition: a broadcast that is not summed back, contributions that overwrite each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from ..arrays import Array, Arrays, from_real, pack, to_real
from ..reference import Point, measure
from .core import Guess, Suspect, attempt

TERMS = 512  # the largest stretched input whose terms are measured one by one
SMALL = 1e-6  # of a column's largest entry: less is nothing, and equal to this part is equal


def broadcast(s: Suspect) -> Guess | None:
    """The input was stretched to another shape; its gradient was not, or not rightly, summed back."""
    advice = f"sum the gradient of {s.name} over the broadcast axes, back to shape {s.input.shape}"
    found = next((g.shape for g in s.gradients if g is not None), None)
    if found is not None and found != s.input.shape:
        sums = [None if g is None else attempt(partial(_summed, g, s.input.shape)) for g in s.gradients]
        if s.agrees(sums):
            why = f"the gradient of {s.name} has shape {found}, and is right once summed to {s.input.shape}"
            return Guess("missing-broadcast-sum", why, advice)
        return None
    for shape in _stretched_shapes(s):
        terms = _terms(s, shape)
        what = None if terms is None else _what_was_taken(s, terms)
        if what is not None:
            why = f"{s.name} is broadcast from {s.input.shape} to {shape}; its gradient is {what}, not their sum"
            return Guess("missing-broadcast-sum", why, advice)
    return None


def _terms(s: Suspect, shape: tuple[int, ...]) -> list[Array] | None:
    """What has to be added up, one array per pull: the numeric gradient of the input stretched to ``shape``."""
    arrays = attempt(partial(_stretch, s.point.arrays, k=s.k, shape=shape))
    point = None if arrays is None else attempt(partial(Point, s.point.function, arrays, s.point.step))
    if point is None or point.packed.shape != s.point.packed.shape or not np.allclose(point.packed, s.point.packed):
        return None
    reference = measure(point, s.k, full_limit=TERMS, rng=s.rng)
    if not reference.full:
        return None
    return [from_real(pack(e.cotangent.arrays) @ reference.value, point.arrays[s.k]) for e in s.evidence]


def _summed(gradient: Array, shape: tuple[int, ...]) -> Array:
    """A gradient of a broadcast array summed back to ``shape``.  Raises ValueError if that isn't a broadcast."""
    if np.broadcast_shapes(gradient.shape, shape) != gradient.shape:
        raise ValueError(f"{shape} does not broadcast to {gradient.shape}")
    extra = gradient.ndim - len(shape)
    axes = tuple(i + extra for i, n in enumerate(shape) if n == 1 and gradient.shape[i + extra] != 1)
    return np.asarray(gradient.sum(axis=(*range(extra), *axes), keepdims=True)).reshape(shape)


def _stretch(arrays: Arrays, k: int, shape: tuple[int, ...]) -> Arrays:
    return tuple(np.broadcast_to(a, shape).copy() if i == k else a for i, a in enumerate(arrays))


def _stretched_shapes(s: Suspect) -> Iterator[tuple[int, ...]]:
    """Shapes this input may have been broadcast to."""
    shapes = [y.shape for y in s.point.outputs]
    common = attempt(lambda: np.broadcast_shapes(*(a.shape for a in s.point.arrays)))
    for shape in dict.fromkeys([*shapes, *([common] if common is not None else [])]):
        if shape != s.input.shape and attempt(partial(np.broadcast_to, s.input, shape)) is not None:
            yield shape


def _what_was_taken(s: Suspect, terms: list[Array]) -> str | None:
    """What the pullback made of the terms it should have added up, if that can be told."""
    extra = terms[0].ndim - s.input.ndim
    axes = tuple(i for i, n in enumerate(terms[0].shape) if i < extra or n != s.input.shape[i - extra])
    ways: dict[str, Callable[[Array], Array]] = {
        "the first of the terms": lambda t: _corner(t, axes, 0),
        "the last of the terms": lambda t: _corner(t, axes, -1),
        "the mean of the terms": lambda t: t.mean(axis=axes, keepdims=True),
        "the largest of the terms": lambda t: t.max(axis=axes, keepdims=True),
    }
    for axis in axes if len(axes) > 1 else ():
        ways[f"their sum over axis {axis} only"] = partial(_partial_sum, axes=axes, axis=axis)
    for text, take in ways.items():
        if s.agrees_with([take(t).reshape(s.input.shape) for t in terms]):
            return text
    return None


def _partial_sum(terms: Array, axes: tuple[int, ...], axis: int) -> Array:
    """The sum over one axis alone, the first along the others."""
    return _corner(terms.sum(axis=axis, keepdims=True), tuple(a for a in axes if a != axis), 0)


def _corner(terms: Array, axes: tuple[int, ...], at: int) -> Array:
    """The terms at position ``at`` of each of these axes, which are kept with length 1."""
    for axis in axes:
        terms = terms.take([at], axis=axis)
    return terms


def duplicates(s: Suspect) -> Guess | None:
    """Several outputs read one element, and in the gradient one contribution overwrites the others."""
    lines = [(i, line.coordinate) for i, line in enumerate(s.reference.lines) if line.coordinate is not None]
    claimed = s.claimed_jacobian() if s.shaped and lines else None
    if claimed is None:
        return None
    columns = [c for _, c in lines]
    numeric, analytic = s.reference.value[:, [i for i, _ in lines]], claimed[:, columns]
    scale = np.maximum(np.abs(numeric).max(axis=0, initial=0.0), np.finfo(float).tiny)
    there = np.abs(numeric) > SMALL * scale
    equal = np.abs(analytic - numeric) <= SMALL * scale
    lost = there & ~equal & (np.abs(analytic) <= SMALL * scale)
    if (~equal & ~lost).any():
        return None
    if lost.any():
        which = _survivor(there, equal, lost)
    else:
        several = there.sum(axis=0) > 1
        off = _unequal_to_sum(s, analytic, columns)
        which = "each alone is right, but they do not add up" if off.any() and several[off].all() else None
    if which is None:
        return None
    readers = int(there[:, int(np.argmax(lost.sum(axis=0)))].sum())
    return Guess(
        "overwritten-duplicates",
        f"elements of {s.name} that several outputs read (one by {readers}) get less than the sum of their "
        f"contributions: {which}",
        "accumulate where indices repeat: np.add.at(grad, index, g), not grad[index] = g or grad[index] += g",
    )


def _survivor(there: Array, equal: Array, lost: Array) -> str | None:
    """Which contribution survives in each column with losses, if one rule tells: else this is another mistake."""
    rules = []
    for c in np.flatnonzero(lost.any(axis=0)):
        readers = np.flatnonzero(there[:, c])
        alive = equal[readers, c]
        if not alive.any():
            return None
        rules.append((bool(alive[-1]) and not alive[0], bool(alive[0]) and not alive[-1]))
    if all(last for last, _ in rules):
        return "the last one is kept"
    # An assignment drops an output's contribution as a whole; a forgotten coupling drops a part of every output's.
    if (lost.any(axis=1) & (there & equal).any(axis=1)).any():
        return None
    return "the first one is kept" if all(first for _, first in rules) else "only one is kept"


def _unequal_to_sum(s: Suspect, analytic: Array, columns: list[int]) -> Array:
    """The columns whose gradient for a dense cotangent is not the sum over its entries, although each is right."""
    off = np.zeros(len(columns), dtype=bool)
    for e in s.evidence:
        gradient = e.gradients[s.k]
        if gradient is not None:
            expected = pack(e.cotangent.arrays) @ analytic
            scale = np.abs(expected).max(initial=0.0)
            off |= ~np.isclose(to_real(gradient)[columns], expected, rtol=SMALL, atol=SMALL * scale)
    return off

"""The cotangents a pullback is tried with: never ones.

A cotangent of ones hides every fault of softmax and of normalisation (their gradients are blind to constants), a
dense one hides what goes wrong beside zeros, a contiguous one hides kernels that read it with the input's strides.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .arrays import (
    Arrays,
    Layout,
    backward,
    column_major,
    constant,
    coordinates_of,
    from_real,
    repeated_rows,
    strided,
)


@dataclass(frozen=True)
class Cotangent:
    """One cotangent per output, and what is special about it."""

    label: str
    arrays: Arrays
    layout: bool = False  # only its place in memory is unusual


def random(outputs: Arrays, rng: np.random.Generator) -> Arrays:
    """Entries of either sign, in magnitude between 1/2 and 3/2: none so small that it would hide a fault."""
    drawn = []
    for y in outputs:
        count = coordinates_of(y)
        signs = np.where(rng.random(count) < 0.5, -1.0, 1.0)
        drawn.append(from_real(signs * rng.uniform(0.5, 1.5, count), y))
    return tuple(drawn)


def contiguous(outputs: Arrays, rng: np.random.Generator) -> list[Cotangent]:
    """Two dense ones, one with zeros in about half of its places, and a single one among zeros."""
    made = [Cotangent("random", random(outputs, rng)), Cotangent("random", random(outputs, rng))]
    if sum(y.size for y in outputs) > 1:
        half = tuple(g * (rng.random(g.shape) < 0.5).astype(g.dtype) for g in random(outputs, rng))
        made.append(Cotangent("random with zeros", tuple(np.asarray(g) for g in half)))
        made.append(Cotangent("one entry among zeros", _single(outputs, rng)))
    return made


def _single(outputs: Arrays, rng: np.random.Generator) -> Arrays:
    """Zeros but for one entry of one output."""
    drawn = tuple(np.zeros(g.shape, g.dtype) for g in outputs)
    sizes = [g.size for g in outputs]
    flat = int(rng.integers(sum(sizes)))
    for g, size in zip(drawn, sizes, strict=True):
        if 0 <= flat < size:
            g.reshape(-1)[flat] = rng.uniform(0.5, 1.5)
        flat -= size
    return drawn


LAYOUTS: dict[str, Layout] = {
    "strided": strided,
    "reversed": backward,
    "column-major": column_major,
    "stride-0": constant,
    "stride-0 along the first axis": repeated_rows,
}


def laid_out(outputs: Arrays, rng: np.random.Generator) -> list[Cotangent]:
    """Random cotangents as views: strided, reversed, transposed, and broadcast (stride 0)."""
    most = max((y.ndim for y in outputs if y.size > 1), default=0)
    if most == 0:
        return []
    names = ["strided", "reversed", "stride-0"]
    if most > 1:
        names += ["column-major", "stride-0 along the first axis"]
    made = []
    for name in names:
        views = tuple(LAYOUTS[name](g, rng) if g.ndim else g for g in random(outputs, rng))
        made.append(Cotangent(f"random, {name}", views, layout=True))
    return made

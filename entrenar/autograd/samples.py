"""Inputs that exercise an op: every declaration lists its own, and the contract tests and gradcheck run over them.

>>> import numpy as np
>>> for sample in list(pairs(reals(-1, 1))(np.random.default_rng(0)))[:2]:
...     print(sample.label, [a.shape for a in sample.args])
same shape [(2, 3), (2, 3)]
row [(2, 3), (3,)]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..array import Array

Rng = np.random.Generator
Draw = Callable[[Rng, tuple[int, ...]], Array]


@dataclass(frozen=True)
class Sample:
    """One call of an op.  Where ``value`` or ``grads`` is given they are exact expectations (an edge point)."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)
    label: str = ""
    cotangent: Any = None  # ones if None
    value: Any = None
    grads: tuple[Any, ...] | None = None
    second: bool = True  # whether the second derivative is defined here


class Samples:
    """A recipe ``rng -> samples``; recipes add up with ``+``."""

    def __init__(self, make: Callable[[Rng], Iterable[Sample]]) -> None:
        self._make = make

    def __call__(self, rng: Rng) -> Iterator[Sample]:
        yield from self._make(rng)

    def __add__(self, other: Samples) -> Samples:
        return Samples(lambda rng: [*self(rng), *other(rng)])

    def with_(self, **kwargs: Any) -> Samples:
        """The same inputs with these keywords added to each call."""
        return Samples(
            lambda rng: [
                Sample(
                    s.args,
                    {**s.kwargs, **kwargs},
                    f"{s.label} {_shown(kwargs)}".strip(),
                    s.cotangent,
                    s.value,
                    s.grads,
                    s.second,
                )
                for s in self(rng)
            ]
        )


def _shown(kwargs: dict[str, Any]) -> str:
    return " ".join(f"{k}={v}" for k, v in kwargs.items())


# how values are drawn -----------------------------------------------------------------------------------------
def reals(low: float = -2.0, high: float = 2.0, avoid: Iterable[float] = (), margin: float = 0.1) -> Draw:
    """Uniform float64 in [low, high], at least ``margin`` away from every point of ``avoid`` (the kinks)."""
    points = tuple(avoid)

    def draw(rng: Rng, shape: tuple[int, ...]) -> Array:
        values = rng.uniform(low, high, shape)
        for point in points:
            close = np.abs(values - point) < margin
            values = np.where(
                close, point + np.where(values < point, -1, 1) * (margin + np.abs(values - point)), values
            )
        return np.asarray(values)

    return draw


def distinct(spacing: float = 0.25) -> Draw:
    """Values that all differ by at least half of ``spacing``, in random order: no ties for max, sort and the like."""

    def draw(rng: Rng, shape: tuple[int, ...]) -> Array:
        count = int(np.prod(shape))
        grid = (np.arange(count) - count / 2 + rng.uniform(-0.25, 0.25, count)) * spacing
        return rng.permutation(grid).reshape(shape)

    return draw


# layouts ------------------------------------------------------------------------------------------------------
def strided(x: Array) -> Array:
    """The same values as every second element of a larger array, along each axis."""
    big = np.full(tuple(2 * n for n in x.shape), np.nan)
    view = big[tuple(slice(None, None, 2) for _ in x.shape)]
    view[...] = x
    return view


def reversed_(x: Array) -> Array:
    """The same values with negative strides along each axis."""
    back = tuple(slice(None, None, -1) for _ in x.shape)
    return np.ascontiguousarray(x[back])[back]


def fortran(x: Array) -> Array:
    """The same values in column-major order."""
    return np.asfortranarray(x)


def stretched(x: Array, axis: int = 0, size: int = 3) -> Array:
    """Stride 0: the first slice along ``axis`` seen ``size`` times."""
    first = np.ascontiguousarray(np.take(x, [0], axis))
    return np.broadcast_to(first, tuple(size if i == axis % x.ndim else n for i, n in enumerate(x.shape)))


LAYOUTS: dict[str, Callable[[Array], Array]] = {
    "strided": strided,
    "reversed": reversed_,
    "fortran": fortran,
    "stride 0": stretched,
}


# recipes ------------------------------------------------------------------------------------------------------
def unary(draw: Draw, shapes: Iterable[tuple[int, ...]] = ((2, 3), (), (0, 3), (1,), (2, 1, 3))) -> Samples:
    """One array: usual, 0-d, empty and size-1 shapes, then every layout."""
    shapes = tuple(shapes)

    def make(rng: Rng) -> Iterator[Sample]:
        for shape in shapes:
            yield Sample((draw(rng, shape),), label=f"shape {shape}")
        for name, layout in LAYOUTS.items():
            yield Sample((layout(draw(rng, (3, 2))),), label=name)

    return Samples(make)


PAIRS = (
    ("same shape", (2, 3), (2, 3)),
    ("row", (2, 3), (3,)),
    ("column and row", (2, 1), (1, 3)),
    ("0-d left", (), (2, 3)),
    ("0-d right", (4,), ()),
    ("size-1 left", (1,), (5, 4)),
    ("inner axis", (2, 1, 3, 5), (2, 1, 3, 1)),
    ("both 0-d", (), ()),
    ("empty", (0, 3), (1, 3)),
    ("empty by size-1", (2, 0), (2, 1)),
)


def pairs(draw: Draw, draw_b: Draw | None = None) -> Samples:
    """Two arrays that broadcast in every way, then every layout against a plain one, on either side."""
    second = draw_b or draw

    def make(rng: Rng) -> Iterator[Sample]:
        for label, a, b in PAIRS:
            yield Sample((draw(rng, a), second(rng, b)), label=label)
        for name, layout in LAYOUTS.items():
            yield Sample((layout(draw(rng, (3, 2))), second(rng, (3, 2))), label=f"{name} left")
            yield Sample((draw(rng, (3, 2)), layout(second(rng, (3, 2)))), label=f"{name} right")

    return Samples(make)


def calls(*made: Callable[[Rng], Sample]) -> Samples:
    """Samples made one by one: ``calls(lambda rng: Sample((rng.normal(size=(2, 3)),), {"axis": 0}))``."""
    return Samples(lambda rng: [make(rng) for make in made])


def normals(label: str, *args: Any, **kwargs: Any) -> Callable[[Rng], Sample]:
    """For ``calls``: a call with a standard normal array for every shape among args, the rest as it is."""
    return lambda rng: Sample(tuple(rng.normal(size=a) if isinstance(a, tuple) else a for a in args), kwargs, label)


def edges(*fixed: Sample) -> Samples:
    """Edge points with the values that are decided for them."""
    return Samples(lambda rng: fixed)


def edge(
    *args: Any,
    value: Any = None,
    grads: Iterable[Any] | None = None,
    cotangent: Any = None,
    label: str = "",
    **kwargs: Any,
) -> Sample:
    """An edge point: args and keywords of the call, the output and the gradients expected (None: not compared)."""
    arrays = tuple(np.asarray(a, np.float64) if isinstance(a, (list, float)) else a for a in args)
    expected = None if grads is None else tuple(None if g is None else np.asarray(g, np.float64) for g in grads)
    if value is not None and not isinstance(value, tuple):  # a tuple has one per output
        value = np.asarray(value, np.float64)
    if cotangent is not None and not isinstance(cotangent, tuple):
        cotangent = np.asarray(cotangent, np.float64)
    return Sample(arrays, kwargs, label or "edge", cotangent, value, expected)

"""What gradcheck knows of a function, whichever library it comes from: its values and its pullback."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from .arrays import Array, Arrays, is_float

Pullback: TypeAlias = Callable[[Arrays], Sequence[Any]]


@dataclass(frozen=True)
class Differentiable:
    """A function of float arrays together with the gradient it claims.

    forward(*arrays): the outputs, a tuple of float arrays.
    linearize(*arrays): evaluates the function afresh and returns its pullback, which takes one cotangent per output
        and gives one gradient per input (None means zero).
    inputs: names of the inputs, for messages.
    second(outputs): the vjp itself as a function of (*cotangents, *inputs), for order 2; None where it has none.
    """

    name: str
    forward: Callable[..., Arrays]
    linearize: Callable[..., Pullback]
    inputs: tuple[str, ...]
    second: Callable[[Arrays], Differentiable] | None = None


@dataclass(frozen=True)
class Edge:
    """What is agreed at a point where differences say nothing: exact values instead of a numeric derivative."""

    cotangents: Arrays | None
    value: Arrays | None
    gradients: tuple[Array | None, ...] | None


@dataclass(frozen=True)
class Case:
    """One thing to check: a function at a point, to an order, or against the values agreed for an edge."""

    function: Differentiable
    arrays: Arrays
    label: str = ""
    order: int = 1
    edge: Edge | None = None


@dataclass(frozen=True)
class Subject:
    """A target taken apart by its adapter."""

    name: str
    cases: tuple[Case, ...]
    notes: tuple[str, ...] = field(default=())


def as_outputs(result: Any) -> tuple[Arrays, bool]:
    """A function's result as a tuple of arrays, and whether it was one already."""
    several = isinstance(result, tuple | list)
    return tuple(np.asarray(part) for part in (result if several else (result,))), several


def floats_of(outputs: Arrays, name: str) -> Arrays:
    """The outputs a gradient can be taken of.  Raises TypeError if there are none."""
    kept = tuple(y for y in outputs if is_float(y.dtype))
    if not kept:
        found = ", ".join(str(y.dtype) for y in outputs) or "nothing"
        raise TypeError(f"{name} returns {found}: only float and complex outputs have a gradient")
    return kept


def gradient_arrays(gradients: Sequence[Any], inputs: Arrays, name: str) -> tuple[Array | None, ...]:
    """What a vjp returned, as arrays.  Raises TypeError if it isn't one gradient for each input."""
    if len(gradients) != len(inputs):
        raise TypeError(f"the vjp of {name} returned {len(gradients)} gradients for {len(inputs)} inputs")
    return tuple(None if g is None else np.array(g) for g in gradients)


def pulled_forward(function: Differentiable, outputs: int) -> Callable[..., Arrays]:
    """The vjp as a function of its own: ``(*cotangents, *inputs) -> gradients``, zeros where one is None."""

    def forward(*arrays: Array) -> Arrays:
        cotangents, inputs = arrays[:outputs], arrays[outputs:]
        gradients = function.linearize(*inputs)(cotangents)
        return tuple(
            np.zeros(x.shape, x.dtype) if g is None else np.asarray(g) for g, x in zip(gradients, inputs, strict=True)
        )

    return forward


def cotangent_names(outputs: int) -> tuple[str, ...]:
    """What the cotangents are called as inputs of a vjp."""
    return ("g",) if outputs == 1 else tuple(f"g[{i}]" for i in range(outputs))


def input_names(function: Any, count: int) -> tuple[str, ...]:
    """The names of a function's first ``count`` positional inputs; ``xs[0], xs[1] ...`` for ``*xs``."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    names: list[str] = []
    for p in parameters:
        if p.kind is p.VAR_POSITIONAL:
            names += [f"{p.name}[{i}]" for i in range(count - len(names))]
        elif p.kind is not p.KEYWORD_ONLY and p.kind is not p.VAR_KEYWORD:
            names.append(p.name)
    names += [f"x{i}" for i in range(len(names), count)]
    return tuple(names[:count])


def name_of(function: Any) -> str:
    """A function's name for messages; ``function`` for a lambda."""
    name = str(getattr(function, "__name__", type(function).__name__))
    return "function" if name == "<lambda>" else name

"""One call of a pullback under observation: what it returned, and what it changed that was not its own."""

from __future__ import annotations

from dataclasses import dataclass

from .arrays import Array, Arrays
from .function import Differentiable, Pullback, gradient_arrays


@dataclass(frozen=True)
class Pulled:
    """The gradients for one cotangent, and the names of the arrays that were changed by the call."""

    gradients: tuple[Array | None, ...]
    changed: tuple[str, ...] = ()


def pull(function: Differentiable, arrays: Arrays, cotangents: Arrays) -> Pulled:
    """Evaluate, pull ``cotangents`` back, and compare the bytes of everything handed over before and after."""
    arrays_before = [_bytes(a) for a in arrays]
    pullback = function.linearize(*arrays)
    changed = _changed(arrays_before, arrays, [f"input {name}" for name in function.inputs], "in the forward")
    pulled = pull_through(function, pullback, arrays, cotangents)
    return Pulled(pulled.gradients, (*changed, *(c for c in pulled.changed if c not in changed)))


def pull_through(function: Differentiable, pullback: Pullback, arrays: Arrays, cotangents: Arrays) -> Pulled:
    """Pull ``cotangents`` through a pullback made earlier."""
    arrays_before = [_bytes(a) for a in arrays]
    before = [_bytes(g) for g in cotangents]
    gradients = gradient_arrays(pullback(cotangents), arrays, function.name)
    names = ["the cotangent"] if len(cotangents) == 1 else [f"cotangent {i}" for i in range(len(cotangents))]
    changed = _changed(before, cotangents, names, "in the pullback")
    changed += _changed(arrays_before, arrays, [f"input {name}" for name in function.inputs], "in the pullback")
    return Pulled(gradients, changed)


def _bytes(array: Array) -> bytes:
    return array.tobytes()


def _changed(before: list[bytes], arrays: Arrays, names: list[str], when: str) -> tuple[str, ...]:
    now = zip(before, arrays, names, strict=True)
    return tuple(f"{name} ({when})" for old, array, name in now if _bytes(array) != old)

"""Mistakes that change all entries alike: nothing came back, the wrong sign, a constant factor, the conjugate."""

from __future__ import annotations

import math

import numpy as np

from ..arrays import Arrays
from .core import Guess, Suspect


def detached(s: Suspect) -> Guess | None:
    """No gradient at all, although the output moves with the input."""
    if not all(g is None or not np.any(g) for g in s.gradients):
        return None
    what = "None" if s.gradients[0] is None else "zero"
    return Guess(
        "detached",
        f"the gradient of {s.name} is {what} in all {len(s.gradients)} pulls although the output depends on it",
        f"look where {s.name} leaves the graph: a detach or stop_gradient, a conversion to a plain array, a pullback "
        "that returns None",
    )


def sign(s: Suspect) -> Guess | None:
    """Exactly the negative."""
    if not (s.shaped and s.mended(np.negative) and s.elsewhere(-1.0)):
        return None
    return Guess(
        "sign",
        f"every entry of the gradient of {s.name} is minus the numeric one",
        f"change the sign in the pullback of {s.name}",
    )


def constant_factor(s: Suspect) -> Guess | None:
    """The same multiple everywhere, here and at a second point."""
    if not s.shaped or any(g is None for g in s.gradients):
        return None
    helds = [s.held(at, g) for at, g in enumerate(s.gradients)]
    seen = [(h.analytic[~h.unresolved()], h.numeric[~h.unresolved()]) for h in helds]
    analytic, numeric = (np.concatenate(part) for part in zip(*seen, strict=True))
    square = float(numeric @ numeric)
    factor = float(analytic @ numeric) / square if square else 0.0
    if factor == 0.0 or not math.isfinite(factor):
        return None
    if not (s.mended(lambda g: np.asarray(g / factor)) and s.elsewhere(factor)):
        return None
    return Guess(
        "constant-factor",
        f"every entry of the gradient of {s.name} is {factor:.10g} times the numeric one{_origin(s, factor)}",
        f"divide the pullback of {s.name} by {factor:.6g}",
    )


def _origin(s: Suspect, factor: float) -> str:
    """Where a factor like that usually comes from, or nothing."""
    sizes = {"the number of elements of the input": s.input.size}
    sizes.update({f"the length of its axis {i}": n for i, n in enumerate(s.input.shape)})
    sizes.update({"the number of elements of the output": s.point.outputs[0].size})
    for text, n in sizes.items():
        for value, shown in ((float(n), "n"), (1 / max(n, 1), "1/n"), (math.sqrt(n), "sqrt(n)")):
            if n > 2 and math.isclose(factor, value, rel_tol=1e-7):
                return f"; {shown} with n = {n}, {text}: a mean for a sum, or the reverse"
    known = {
        2.0: "2",
        0.5: "1/2",
        math.log(2): "log 2",
        1 / math.log(2): "1 / log 2",
        math.log(10): "log 10",
        1 / math.log(10): "1 / log 10",
        math.pi: "pi",
        math.pi / 180: "pi / 180",
    }
    return next((f" ({text})" for value, text in known.items() if math.isclose(factor, value, rel_tol=1e-7)), "")


def _conjugates(cotangents: Arrays) -> Arrays:
    return tuple(np.asarray(np.conj(g)) for g in cotangents)


def conjugated(s: Suspect) -> Guess | None:
    """Right but for a complex conjugate: of the gradient, or of both cotangent and gradient."""
    if not any(np.iscomplexobj(a) for a in (*s.point.arrays, *s.point.outputs)) or not s.shaped:
        return None
    both = s.repulled(cotangents=_conjugates)
    if s.mended(np.conj):
        what = "is the complex conjugate of the numeric one"
    elif both is not None and s.agrees([None if g is None else np.conj(g) for g in both]):
        what = "is right by the other convention, dL/d(re) - i dL/d(im)"
    else:
        return None
    return Guess(
        "conjugated",
        f"the gradient of {s.name} {what}; here gradients are dL/d(re) + i dL/d(im), and the pairing is "
        "Re(sum(conj(g) * y))",
        "conjugate the local derivative: for y = f(z), f complex differentiable, the pullback is g * conj(f'(z))",
    )

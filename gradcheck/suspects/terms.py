"""When nothing simpler explains it: what the difference between the two gradients looks like."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..arrays import Array
from .core import Guess, Suspect

CLOSE = 1e-5


def missing_term(s: Suspect) -> Guess:
    """The fallback: a term is missing or wrong, with whatever pattern the residual shows."""
    advice = f"derive the pullback of {s.name} again, term by term"
    if not s.shaped:
        found = next(g.shape for g in s.gradients if g is not None)
        why = f"the gradient of {s.name} has shape {found}, its input {s.input.shape}; no rearrangement makes it right"
        return Guess("missing-term", why, advice)
    if _nonlinear(s):
        why = f"the gradient of {s.name} is not linear in the cotangent: twice the cotangent does not give it twice"
        return Guess("missing-term", why, "a pullback only multiplies and adds cotangents; find where it does more")
    hint = next(_residual_hints(s))
    return Guess("missing-term", f"a term of the gradient of {s.name} is missing or wrong: {hint}", advice)


def _nonlinear(s: Suspect) -> bool:
    doubled = s.repulled(cotangents=lambda g: tuple(np.asarray(2 * x) for x in g))
    if doubled is None:
        return False
    pairs = [(g, d) for g, d in zip(s.gradients, doubled, strict=True) if g is not None and d is not None]
    return any(not np.allclose(d, 2 * g, rtol=CLOSE, atol=CLOSE * np.abs(g).max(initial=0.0)) for g, d in pairs)


def _residual_hints(s: Suspect) -> Iterator[str]:
    """What can be said about numeric minus analytic, the most telling first."""
    wrong = np.zeros(len(s.reference.lines), dtype=bool)
    helds = [s.held(at, g) for at, g in enumerate(s.gradients)]
    for held in helds:
        wrong |= held.wrong
    only = [e.cotangent.label for e, held in zip(s.evidence, helds, strict=True) if held.agrees()]
    dense = helds[0]
    yield from _coupling_hints(s)
    if s.reference.full and not np.iscomplexobj(s.input):
        residual = (dense.numeric - dense.analytic).reshape(s.input.shape)
        yield from _shape_hints(s, residual)
    if wrong.any() and not wrong.all() and all(line.coordinate is not None for line in s.reference.lines):
        ratio = dense.analytic[wrong] / np.where(dense.numeric[wrong] == 0, np.nan, dense.numeric[wrong])
        same = bool(np.allclose(ratio, ratio[0], rtol=CLOSE))
        by = f", by the factor {ratio[0]:.6g}" if same and np.isfinite(ratio[0]) else ""
        yield f"{int(wrong.sum())} of {wrong.size} entries are wrong{by}, the others right"
    if only and len(only) < len(helds):
        yield f"it is right for the cotangent '{only[0]}'"
    size = float(np.abs(dense.numeric).max(initial=0.0))
    part = float(np.abs(dense.numeric - dense.analytic).max(initial=0.0)) / size if size else np.inf
    yield f"the rest is up to {part:.2g} of the gradient and follows no simple pattern"


def _coupling_hints(s: Suspect) -> Iterator[str]:
    """Is each element's own term right and the coupling between elements wrong, or the reverse?"""
    square = s.reference.full and len(s.reference.lines) == s.point.packed.size > 1
    claimed = s.claimed_jacobian() if square else None
    if claimed is None:
        return
    right = np.abs(claimed - s.reference.value) <= CLOSE * np.abs(s.reference.value).max(initial=0.0)
    own = np.eye(len(right), dtype=bool)
    if right[own].all():
        which = "missing" if not claimed[~own].any() else "wrong"
        yield (
            f"the derivative of each output by its own element is right, the coupling between elements is {which}: "
            "a sum over an axis"
        )
    elif right[~own].all():
        yield "the coupling between elements is right, the derivative of each output by its own element is not"


def _shape_hints(s: Suspect, residual: Array) -> Iterator[str]:
    """Is the residual constant along an axis, or a multiple of the output, the input or the cotangent along one?"""
    output, cotangent = s.point.outputs[0], s.evidence[0].cotangent.arrays[0]
    for axis in reversed(range(residual.ndim)):
        if residual.shape[axis] < 3:
            continue
        if _proportional(residual, np.ones_like(residual), axis):
            yield (
                f"what is missing is constant along axis {axis}: a sum over that axis, as a mean or a normaliser "
                "makes it"
            )
        for text, other in (("the output", output), ("the input", s.input), ("the cotangent", cotangent)):
            if other.shape == residual.shape and _proportional(residual, other, axis):
                yield f"what is missing is {text} times one number per slice along axis {axis}: a sum over that axis"


def _proportional(residual: Array, pattern: Array, axis: int) -> bool:
    """True if, along ``axis``, the residual is a multiple of the pattern (one multiple per slice)."""
    square = (pattern * pattern).sum(axis=axis, keepdims=True)
    factor = (residual * pattern).sum(axis=axis, keepdims=True) / np.where(square == 0, 1.0, square)
    size = float(np.abs(residual).max(initial=0.0))
    return size > 0 and bool((np.abs(residual - factor * pattern) <= CLOSE * size).all())

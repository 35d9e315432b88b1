"""A gradient that is right only as far as a coarser dtype goes."""

from __future__ import annotations

import numpy as np

from ..arrays import Array, Arrays, pack
from ..compare import hold
from ..function import Differentiable
from ..reference import Point, along
from .core import Guess, Suspect, attempt

COARSER = (np.dtype(np.float32), np.dtype(np.float16))
ROUNDINGS = 16.0  # how many roundings in the coarser dtype a pullback is granted


def low_precision(s: Suspect) -> Guess | None:
    """Rounded to float32 or float16 on the way: the result, the cotangent, or the saved inputs."""
    if not s.shaped or any(g is None for g in s.gradients) or s.input.dtype in COARSER:
        return None
    for dtype in COARSER:
        how = _how(s, dtype)
        if how is not None:
            return Guess(
                "dtype",
                f"the gradient of {s.name} is right only to the precision of {dtype}: {how}",
                f"compute the pullback in {s.input.dtype}; look for an array or a constant made with dtype {dtype}",
            )
    return None


def _how(s: Suspect, dtype: np.dtype[np.floating]) -> str | None:
    eps = float(np.finfo(dtype).eps)
    if not all(g is not None and _close(s, at, g, ROUNDINGS * eps) for at, g in enumerate(s.gradients)):
        return None
    if all(g is not None and np.array_equal(g, _rounded((g,), dtype)[0]) for g in s.gradients):
        return f"all its entries are {dtype} numbers"
    if _right_at_rounded_values(s, dtype):
        return f"it is right at inputs and cotangents that are {dtype} numbers"
    return "its errors are of that size everywhere" if dtype == COARSER[0] else None


def _close(s: Suspect, at: int, gradient: Array, relative: float) -> bool:
    held = s.held(at, gradient)
    size = np.maximum(np.maximum(np.abs(held.numeric), held.scale), held.tolerance)
    return bool((np.abs(held.analytic - held.numeric) <= relative * size + held.tolerance).all())


def _rounded(arrays: Arrays, dtype: np.dtype[np.floating]) -> Arrays:
    """The nearest values that ``dtype`` holds, in the arrays' own dtypes."""
    out = []
    with np.errstate(over="ignore", under="ignore"):
        for a in arrays:
            if np.iscomplexobj(a):
                near = a.real.astype(dtype).astype(a.real.dtype) + 1j * a.imag.astype(dtype).astype(a.real.dtype)
                out.append(np.asarray(near))
            else:
                out.append(a.astype(dtype).astype(a.dtype))
    return tuple(out)


def _right_at_rounded_values(s: Suspect, dtype: np.dtype[np.floating]) -> bool:
    """True if the gradient is exact where the inputs and the cotangent are numbers of the coarser dtype."""
    function: Differentiable = s.point.function
    point = attempt(lambda: Point(function, _rounded(s.point.arrays, dtype), s.point.step))
    if point is None:
        return False
    reference = along(
        point, [point.coordinate(s.k, line.coordinate) for line in s.reference.lines if line.coordinate is not None]
    )
    for e in s.evidence:
        cotangents = _rounded(e.cotangent.arrays, dtype)
        gradients = s.pulled(point.arrays, cotangents)
        if gradients is None or gradients[s.k] is None:
            return False
        if not hold(point, reference, s.k, gradients[s.k], pack(cotangents), s.rtol).agrees():
            return False
    return True

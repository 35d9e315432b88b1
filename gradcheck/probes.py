"""Experiments around a gradient that is right in the plain case: other layouts, calls in between, other dtypes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .arrays import Array, Arrays, backward, doubled, epsilon, pack, strided, to_real
from .cotangents import laid_out, random
from .function import Differentiable
from .judge import Trial, judge
from .pulls import Pulled, pull, pull_through
from .reference import InputReference, Point, along, random_direction
from .report import Finding, Kind, Where
from .suspects.core import nearby

INPUT_LAYOUTS = {"strided": strided, "reversed": backward}
SAME = 1e-9  # two results of one computation differ by less, whatever the order of additions
COARSE = 1000.0  # how many roundings a gradient in a coarse dtype is granted, of its scale ...
COARSE_MOST = 0.1  # ... but never more than this part


@dataclass
class Oracle:
    """What was measured at a point, as a judge of further gradients; counts what it compares."""

    point: Point
    references: list[InputReference | None]
    rtol: float
    checks: int = 0
    worst: float = 0.0

    def wrong_entry(self, pulled: Pulled, cotangents: Arrays, label: str) -> Where | None:
        """The worst entry of the first input whose gradient is wrong."""
        packed = pack(cotangents)
        for k, (reference, gradient) in enumerate(zip(self.references, pulled.gradients, strict=True)):
            if reference is None:
                continue
            like = self.point.arrays[k]
            if gradient is not None and gradient.shape != like.shape:
                return Where(self.point.function.inputs[k], k, like.shape, f"a gradient of shape {gradient.shape}")
            result = judge(self.point, k, reference, [Trial(label, packed, gradient)], self.rtol)
            self.checks += result.checks
            if result.wrong:
                return max(result.wrong, key=lambda w: w.error or 0.0)
            self.worst = max(self.worst, result.worst)
        return None


def mutation(pulled: Pulled, label: str = "") -> Finding | None:
    """The finding for a pull that changed arrays that are not its own."""
    if not pulled.changed:
        return None
    names = ", ".join(pulled.changed)
    of = f" for the cotangent '{label}'" if label else ""
    return _wrong(
        "mutated-cotangent",
        f"these arrays were changed{of}: {names}",
        "the caller still owns them: write into a copy (g = g.copy()), or use g * x instead of g *= x",
    )


def cotangent_layouts(oracle: Oracle, rng: np.random.Generator) -> Finding | None:
    """Cotangents that are views must give what their copies give."""
    function, arrays = oracle.point.function, oracle.point.arrays
    for cotangent in laid_out(oracle.point.outputs, rng):
        pulled = pull(function, arrays, cotangent.arrays)
        changed = mutation(pulled, cotangent.label)
        where = oracle.wrong_entry(pulled, cotangent.arrays, cotangent.label)
        if changed or where is None:
            if changed:
                return changed
            continue
        copies = tuple(np.array(g, order="C") for g in cotangent.arrays)
        if oracle.wrong_entry(pull(function, arrays, copies), copies, "") is None:
            layout = cotangent.label.removeprefix("random, ")
            why = f"right for the contiguous copy of the cotangent, wrong for the same values {layout}"
            return _wrong(
                "stride-assumption",
                why,
                "index the cotangent by its own strides, or make it contiguous "
                "first (np.ascontiguousarray); never by the input's strides or by flat position",
                where,
            )
        return _wrong(
            "missing-term",
            f"wrong for the cotangent '{cotangent.label}', in any layout",
            "derive the pullback again for cotangents with equal entries",
            where,
        )
    return None


def input_layouts(oracle: Oracle, given: Arrays, rng: np.random.Generator) -> Finding | None:
    """Inputs that are views must give what their copies give, forward and back."""
    point = oracle.point
    views = {
        name: tuple(layout(a, rng) if a.ndim else a for a in point.arrays)
        for name, layout in INPUT_LAYOUTS.items()
        if any(a.size > 1 for a in point.arrays)
    }
    same_dtype = all(a.dtype == b.dtype for a, b in zip(given, point.arrays, strict=True))
    if same_dtype and not all(a.flags.c_contiguous for a in given):
        views = {"as given": given, **views}
    advice = "index the input by its own strides, or make it contiguous first (np.ascontiguousarray)"
    for name, arrays in views.items():
        outputs = pack(point.function.forward(*arrays))
        if outputs.shape != point.packed.shape or not _same(outputs, point.packed):
            return _wrong(
                "stride-assumption", f"the output changes when the inputs are views ({name}) of the same values", advice
            )
        cotangents = random(point.outputs, rng)
        pulled = pull(point.function, arrays, cotangents)
        changed = mutation(pulled)
        where = oracle.wrong_entry(pulled, cotangents, f"random; inputs {name}")
        if changed or where:
            return changed or _wrong(
                "stride-assumption", f"right for contiguous inputs, wrong for the same values {name}", advice, where
            )
    return None


def staleness(oracle: Oracle, rng: np.random.Generator) -> Finding | None:
    """A pullback must give the same answer late, twice, and its own answer at another point."""
    point, function = oracle.point, oracle.point.function
    cotangents, arrays = random(point.outputs, rng), nearby(point, rng)
    function.forward(*point.arrays)
    first = pull(function, point.arrays, cotangents)
    other = pull(function, arrays, cotangents)
    after = pull(function, point.arrays, cotangents)
    pullback = function.linearize(*point.arrays)
    function.forward(*arrays)
    late = pull_through(function, pullback, point.arrays, cotangents)
    again = pull_through(function, pullback, point.arrays, cotangents)
    advice = "save what the pullback needs with the call it belongs to, and don't write into it"
    for pulled, what in (
        (after, "another call came before"),
        (late, "another forward ran in between"),
        (again, "the pullback is called a second time"),
    ):
        if not _same_gradients(pulled, first):
            whose = "; it then gives the answer of the other values" if _same_gradients(pulled, other) else ""
            where = oracle.wrong_entry(pulled, cotangents, "random")
            return _wrong("stale-saved-value", f"right at first, wrong when {what}{whose}", advice, where)
    if _same_gradients(other, first) and not _right(function, arrays, other, cotangents, rng, point):
        why = "at another input the gradient is still that of the first one"
        return _wrong("stale-saved-value", why, advice)
    return None


def repeatability(function: Differentiable, arrays: Arrays, cotangents: Arrays) -> Finding | None:
    """The same pull again and again must give the same gradients."""
    first, second = pull(function, arrays, cotangents), pull(function, arrays, cotangents)
    for name, a, b in zip(function.inputs, first.gradients, second.gradients, strict=True):
        if a is not None and b is not None and a.shape == b.shape and not _same(to_real(a), to_real(b)):
            spread = float(np.abs(to_real(a) - to_real(b)).max())
            why = f"the same pull, made twice, gives gradients of {name} that differ by up to {spread:.3g}"
            return Finding(
                "nondeterministic",
                why,
                advice="look for random numbers or unordered additions in the pullback, or for state that it changes",
            )
    return None


def coarse_dtypes(given: Arrays, twin: Point, rng: np.random.Generator) -> Finding | None:
    """With float32 or coarser inputs: the gradient's dtype, and its values held against those in float64."""
    function = twin.function
    outputs = function.forward(*given)
    cotangents = random(tuple(np.asarray(y) for y in outputs), rng)
    pulled = pull(function, given, cotangents)
    wrong = wrong_dtype(function, given, pulled) or mutation(pulled)
    if wrong is not None:
        return wrong
    exact = pull(function, twin.arrays, tuple(doubled(g) for g in cotangents))
    for k, (claimed, right) in enumerate(zip(pulled.gradients, exact.gradients, strict=True)):
        if claimed is None or right is None or not claimed.size:
            continue
        allowed = min(COARSE_MOST, COARSE * epsilon(given[k].dtype))
        off = np.abs(to_real(claimed) - to_real(right)) / max(float(np.abs(to_real(right)).max()), 1e-300)
        if not (off <= allowed).all():
            why = (
                f"in {given[k].dtype} the gradient of {function.inputs[k]} is off by {float(off.max()):.2g} of its "
                "scale, in float64 it is right"
            )
            return _wrong("dtype", why, "accumulate sums and counts in float32 or wider, and round once at the end")
    return None


def wrong_dtype(function: Differentiable, arrays: Arrays, pulled: Pulled, *, parts: bool = False) -> Finding | None:
    """The finding for a gradient whose dtype is not its input's; ``parts``: only complex for real, or the reverse."""
    for k, (gradient, array) in enumerate(zip(pulled.gradients, arrays, strict=True)):
        if gradient is None or (parts and np.iscomplexobj(gradient) == np.iscomplexobj(array)):
            continue
        if gradient.dtype != array.dtype:
            where = Where(function.inputs[k], k, array.shape, "")
            why = f"the input is {array.dtype}, its gradient {gradient.dtype}"
            advice = f"cast once at the end: gradient.astype({array.dtype}); a NumPy scalar or array constant promotes"
            return _wrong("dtype", why, advice, where)
    return None


def _right(
    function: Differentiable, arrays: Arrays, pulled: Pulled, cotangents: Arrays, rng: np.random.Generator, near: Point
) -> bool:
    """True if the gradients are right at ``arrays`` along one random direction each, as far as can be told."""
    point = Point(function, arrays, near.step)
    if not np.isfinite(point.packed).all():
        return True
    for k, gradient in enumerate(pulled.gradients):
        if gradient is not None and gradient.size:
            reference = along(point, [random_direction(point, k, rng)])
            if judge(point, k, reference, [Trial("", pack(cotangents), gradient)], 1e-6).wrong:
                return False
    return True


def _same_gradients(one: Pulled, other: Pulled) -> bool:
    for a, b in zip(one.gradients, other.gradients, strict=True):
        if (a is None) != (b is None) or (a is not None and b is not None and not _same(to_real(a), to_real(b))):
            return False
    return True


def _same(one: Array, other: Array) -> bool:
    """Equal but for the order of additions."""
    if one.shape != other.shape:
        return False
    scale = float(np.abs(other[np.isfinite(other)]).max(initial=0.0))
    return bool(np.allclose(one, other, rtol=SAME, atol=SAME * scale, equal_nan=True))


def _wrong(kind: Kind, why: str, advice: str, where: Where | None = None) -> Finding:
    return Finding("wrong", why, kind, advice, where)

"""One function at one point, first to last: what may stop a check, the measurement, the verdict, the probes."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np

from .arrays import DOUBLE, Arrays, coarsest, coordinates_of, doubled, overlaps_itself, pack
from .compare import RTOL
from .cotangents import contiguous
from .differences import COARSE
from .function import Differentiable
from .judge import Judgement, Trial, judge
from .probes import (
    Oracle,
    coarse_dtypes,
    cotangent_layouts,
    input_layouts,
    mutation,
    repeatability,
    staleness,
    wrong_dtype,
)
from .pulls import Pulled, pull
from .reference import InputReference, Point, measure
from .report import Blind, Finding, Report, Where
from .suspects import Suspect, diagnose
from .suspects.core import Evidence

FULL_LIMIT = 24  # up to so many real coordinates an input gets its full Jacobian
SPREAD = 1e-10  # repeated values that differ by more, relative to their size, are not those of a function


@dataclass(frozen=True)
class Options:
    """How a check is made."""

    seed: int = 0
    full_limit: int = FULL_LIMIT
    rtol: float = RTOL
    step: float | None = None


def examine(function: Differentiable, given: Arrays, options: Options) -> Report:
    """Check the gradient of ``function`` at ``given``, in whatever dtype and layout those arrays come."""
    report = Report(function.name, seed=options.seed, by_order={1: 0})
    report.blind, report.sighted = _shapes(function, given)
    report.notes += tuple(
        f"input {name} is a stride-0 view: its elements were moved one by one, on a copy"
        for name, a in zip(function.inputs, given, strict=True)
        if overlaps_itself(a)
    )
    stop = _shared_memory(function, given)
    if stop is None:
        with np.errstate(all="ignore"):
            stop = _examine(function, given, options, report)
    if stop is not None:
        report.findings += (stop,)
    return report


def _examine(function: Differentiable, given: Arrays, options: Options, report: Report) -> Finding | None:
    rng = np.random.default_rng(options.seed)
    point, twin = _point(function, given, options.step)
    stop = _not_a_function(point) or _non_finite(point, given)
    if stop is not None:
        return stop
    report.notes += _precision_notes(point, given, twin)
    evidence, stop = _pull_all(point, rng)
    if stop is not None:
        return stop
    stop = repeatability(function, point.arrays, evidence[0].cotangent.arrays)
    if stop is not None:
        return stop
    judgements = [_judged(point, k, evidence, options, rng, report) for k in range(len(point.arrays))]
    accused = frozenset(k for k, j in enumerate(judgements) if j is not None and j.wrong)
    for k, judgement in enumerate(judgements):
        if judgement is None:
            continue
        report.by_order[1] += judgement.checks
        report.worst = max(report.worst, judgement.worst)
        report.findings += tuple(judgement.findings)
        if judgement.wrong:
            suspect = Suspect(point, k, judgement.reference, evidence, accused, options.rtol, rng)
            guess = diagnose(suspect)
            where = max(judgement.wrong, key=lambda w: w.error if w.error is not None else np.inf)
            report.findings += (Finding("wrong", guess.why, guess.kind, guess.advice, where),)
    dtype = wrong_dtype(function, point.arrays, Pulled(evidence[0].gradients))
    if dtype is not None:
        return dtype
    if accused:
        return None
    return _probe(point, given, [j.reference if j else None for j in judgements], twin, options, rng, report)


def _point(function: Differentiable, given: Arrays, step: float | None) -> tuple[Point, bool]:
    """The point to measure at: in float64 even where the inputs are coarser, if the function computes so there."""
    point = Point(function, given, step)
    if coarsest(given) > DOUBLE and step is None:
        twin = Point(function, tuple(doubled(a) for a in given), step)
        if coarsest(twin.outputs) == DOUBLE:
            return twin, True
    return point, False


def _precision_notes(point: Point, given: Arrays, twin: bool) -> tuple[str, ...]:
    """What coarse dtypes mean for the check."""
    dtypes = ", ".join(sorted({str(a.dtype) for a in given}))
    coarse = f"values are as coarse as {point.eps:.1g}: nothing finer than about that can be seen"
    seen = (coarse,) if point.eps > COARSE else ()
    if twin:
        return (f"inputs are {dtypes}: compared in float64, and in {dtypes} for dtype and rough size", *seen)
    return seen


def _probe(
    point: Point,
    given: Arrays,
    references: list[InputReference | None],
    twin: bool,
    options: Options,
    rng: np.random.Generator,
    report: Report,
) -> Finding | None:
    """The experiments beyond the plain case; the first that fails is the finding."""
    oracle = Oracle(point, references, options.rtol)
    found = (
        staleness(oracle, rng)
        or cotangent_layouts(oracle, rng)
        or input_layouts(oracle, given, rng)
        or (coarse_dtypes(given, point, rng) if twin else None)
    )
    report.by_order[1] += oracle.checks
    report.worst = max(report.worst, oracle.worst)
    return found


# what may stop a check -------------------------------------------------------------------------------------------
def _shared_memory(function: Differentiable, given: Arrays) -> Finding | None:
    """Two inputs in one memory: moving one would move the other."""
    for i, j in combinations(range(len(given)), 2):
        if np.shares_memory(given[i], given[j]):
            names = function.inputs
            why = f"inputs {i} ({names[i]}) and {j} ({names[j]}) share memory: moving one moves the other"
            return Finding("aliased-input", why, advice=f"pass a copy of {names[j]}")
    return None


def _not_a_function(point: Point) -> Finding | None:
    """Repeated calls at one point must give one result."""
    function, arrays = point.function, point.arrays
    before = [a.tobytes() for a in arrays]
    values = [point.packed] + [pack(function.forward(*arrays)) for _ in range(2)]
    changed = [
        f"input {n} (in the forward)"
        for n, a, b in zip(function.inputs, arrays, before, strict=True)
        if a.tobytes() != b
    ]
    if changed:
        return mutation(Pulled((), tuple(changed)))
    if any(v.shape != values[0].shape for v in values):
        return Finding("nondeterministic", "repeated calls give outputs of different shapes")
    spread = np.ptp(np.stack(values), axis=0)
    if not spread.size or not (spread > SPREAD * np.abs(values[0])).any():
        return None
    at = int(np.nanargmax(spread))
    why = (
        f"three calls at the same input differ by up to {spread[at]:.3g} "
        f"(output {at} of {spread.size}: {', '.join(f'{v[at]:.6g}' for v in values)})"
    )
    return Finding(
        "nondeterministic",
        why,
        advice="fix the random state inside the function, or pass the mask or noise as an input",
    )


def _non_finite(point: Point, given: Arrays) -> Finding | None:
    """Nothing is compared where the function itself is not finite."""
    for i, y in enumerate(point.outputs):
        bad = np.argwhere(~np.isfinite(y))
        if len(bad):
            shown = ", ".join(f"{tuple(int(n) for n in at)}: {y[tuple(at)]}" for at in bad[:4])
            more = f" and {len(bad) - 4} more" if len(bad) > 4 else ""
            inputs = ", ".join(f"{n} {a.shape} {a.dtype}" for n, a in zip(point.function.inputs, given, strict=True))
            why = (
                f"output non-finite at input: output {i}, shape {y.shape}, {y.dtype}, has {len(bad)} of {y.size} "
                f"elements not finite ({shown}{more}); inputs: {inputs}. Nothing was compared"
            )
            return Finding("non-finite", why, advice="check at inputs inside the domain, or state the edge's values")
    return None


def _pull_all(point: Point, rng: np.random.Generator) -> tuple[list[Evidence], Finding | None]:
    """The gradients for every contiguous cotangent, unless a pull changes its arguments or gives infinities."""
    evidence = []
    for cotangent in contiguous(point.outputs, rng):
        pulled = pull(point.function, point.arrays, cotangent.arrays)
        evidence.append(Evidence(cotangent, pulled.gradients))
        stop = (
            mutation(pulled)
            or _non_finite_gradient(point, pulled, cotangent.label)
            or wrong_dtype(point.function, point.arrays, pulled, parts=True)
        )
        if stop is not None:
            return evidence, stop
    return evidence, None


def _non_finite_gradient(point: Point, pulled: Pulled, label: str) -> Finding | None:
    for k, gradient in enumerate(pulled.gradients):
        if gradient is None or not gradient.size or np.isfinite(gradient).all():
            continue
        bad = np.argwhere(~np.isfinite(gradient))
        at = tuple(int(n) for n in bad[0])
        name = point.function.inputs[k]
        why = (
            f"the output is finite, the gradient of {name} is not: {gradient[at]} at element {at}, {len(bad)} of "
            f"{gradient.size} elements, {gradient.dtype}"
        )
        where = Where(name, k, gradient.shape, f"element {at}", cotangent=label)
        return Finding(
            "non-finite",
            why,
            where=where,
            advice="look for 0 * inf, 0 / 0 or inf - inf in the pullback; "
            "at the edge of the domain state the value agreed for it",
        )
    return None


# the measurement -------------------------------------------------------------------------------------------------
def _judged(
    point: Point, k: int, evidence: list[Evidence], options: Options, rng: np.random.Generator, report: Report
) -> Judgement | None:
    """Measure and judge input ``k``; None if it is empty."""
    array, name = point.arrays[k], point.function.inputs[k]
    count = coordinates_of(array)
    gradients = [e.gradients[k] for e in evidence]
    if count == 0:
        report.notes += (f"input {name} is empty, shape {array.shape}: 0 elements checked",)
        bad = next((g for g in gradients if g is not None and g.shape != array.shape), None)
        return None if bad is None else _misshapen(point, k, options, rng)
    if any(g is not None and g.shape != array.shape for g in gradients):
        return _misshapen(point, k, options, rng)
    reference = measure(point, k, full_limit=options.full_limit, rng=rng)
    trials = [Trial(e.cotangent.label, pack(e.cotangent.arrays), g) for e, g in zip(evidence, gradients, strict=True)]
    result = judge(point, k, reference, trials, options.rtol)
    report.coverage += (_coverage(reference, name, count),)
    return result


def _misshapen(point: Point, k: int, options: Options, rng: np.random.Generator) -> Judgement:
    """A gradient of the wrong shape: nothing to compare, but the reference is needed to find out why."""
    reference = measure(point, k, full_limit=options.full_limit, rng=rng)
    where = Where(point.function.inputs[k], k, point.arrays[k].shape, "")
    return Judgement(reference, wrong=[where])


def _coverage(reference: InputReference, name: str, count: int) -> str:
    if reference.full:
        return f"{name}: full Jacobian, {count} coordinates"
    spots = sum(line.coordinate is not None for line in reference.lines)
    return f"{name}: {len(reference.lines) - spots} random directions and {spots} of {count} coordinates"


def _shapes(function: Differentiable, given: Arrays) -> tuple[tuple[Blind, ...], frozenset[str]]:
    """Which inputs have a shape that would hide a missing transpose, and which would show it."""
    blind, sighted = [], set()
    for name, array in zip(function.inputs, given, strict=True):
        if array.ndim < 2 or array.size == 0:
            continue
        if len(set(array.shape)) < array.ndim or 1 in array.shape:
            blind.append(Blind(name, array.shape))
        else:
            sighted.add(name)
    return tuple(blind), frozenset(sighted)

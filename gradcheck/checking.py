"""``check``: take the target apart, examine each of its cases at every order, and put the reports together."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from .adapters import subject_of
from .arrays import DOUBLE, Array, Arrays, coarsest, doubled, place
from .compare import RTOL
from .cotangents import random
from .examine import FULL_LIMIT, Options, examine
from .function import Case, Edge
from .report import Finding, Report, Where, merged

ULPS = 4.0  # how far a value agreed for an edge point may be missed
HIGHEST = 2


def check(
    target: Any,
    *arrays: Any,
    order: int | None = None,
    seed: int = 0,
    full_limit: int = FULL_LIMIT,
    rtol: float | None = None,
    step: float | None = None,
    library: str | None = None,
) -> Report:
    """Check the gradient of ``target`` against numeric derivatives and return a report.

    target: one of
        (f, vjp) or (f, vjp, vjp2): plain NumPy functions, f(a, b) -> y or a tuple, vjp(g, a, b) -> one gradient or a
            tuple; vjp2(c, g, a, b) -> (gradient of g, gradients of a and b) is the vjp of vjp, for order 2;
        an entrenar op: at its own samples (and against its surrogate, if it names one), or at ``arrays``;
        a function of entrenar Tensors; an ``entrenar.Function``;
        a torch function or ``torch.autograd.Function``; a jax function or ``custom_vjp``.
    arrays: where to check it.  Those of a float or complex dtype are differentiated, others passed along.  float32,
        float16 and bfloat16 are checked in float64 too where the function computes so.
    order: 1, or 2 to check the vjp's own derivatives as well; default: 2 for an op with samples, else 1.
    seed: of the random cotangents and directions; the same seed gives the same report.
    full_limit: an input of up to so many real coordinates gets its full Jacobian, a larger one random directions.
    rtol: the relative difference always granted, on top of the numeric error bars (default 1e-8).
    step: an absolute step for the differences instead of the adaptive one.
    library: "pair", "entrenar", "torch" or "jax", where the target alone doesn't tell.

    Complex arrays: a gradient is dL/d(re) + i dL/d(im), so that g and y pair as Re(sum(conj(g) * y)); both the real
    and the imaginary part of every element are checked.  (This is PyTorch's convention; JAX's is the conjugate.)

    Raises TypeError and ValueError for a target or arguments it can't make sense of; what the function itself raises
    passes through.
    """
    if order is None:
        order = HIGHEST if not arrays and not isinstance(target, tuple | list) else 1
    if order not in range(1, HIGHEST + 1):
        raise ValueError(f"order={order!r}: expected 1 or {HIGHEST}")
    if step is not None and not step > 0:
        raise ValueError(f"step={step!r}: expected a positive number")
    if rtol is not None and not rtol >= 0:
        raise ValueError(f"rtol={rtol!r}: expected a number >= 0")
    options = Options(seed, full_limit, RTOL if rtol is None else rtol, step)
    subject = subject_of(target, arrays, library=library, order=order, seed=seed)
    reports = [check_case(case, options) for case in subject.cases]
    return merged(subject.name, reports, seed=seed, notes=subject.notes)


def assert_gradients(target: Any, *arrays: Any, **options: Any) -> Report:
    """``check`` for tests: raises AssertionError with the whole report unless it passed, and returns it."""
    __tracebackhide__ = True
    report = check(target, *arrays, **options)
    report.raise_if_failed()
    return report


def check_case(case: Case, options: Options) -> Report:
    """One case at all its orders; a higher order is looked at only if the lower one is right."""
    if case.edge is not None:
        return check_edge(case, case.edge, options)
    report = _labelled(examine(case.function, case.arrays, options), 1, case.label)
    if case.order > 1 and report.passed and case.function.second is not None:
        second = _second(case, options)
        report = merged(report.name, [report, _labelled(second, 2, case.label)], seed=options.seed)
        report.samples = 1
    return report


def _second(case: Case, options: Options) -> Report:
    """The vjp of the case, as a function of cotangents and inputs, examined like any other."""
    if case.function.second is None:
        raise TypeError(f"{case.function.name} has no second derivative to check")
    arrays = case.arrays
    if coarsest(arrays) > DOUBLE:
        arrays = tuple(doubled(a) for a in arrays)
    with np.errstate(all="ignore"):
        outputs = tuple(np.asarray(y) for y in case.function.forward(*arrays))
    rng = np.random.default_rng([options.seed, HIGHEST])
    vjp = case.function.second(outputs)
    half = replace(options, full_limit=max(1, options.full_limit // 2))
    report = examine(vjp, (*random(outputs, rng), *arrays), half)
    report.blind = ()  # the first order has warned already
    return report


def _labelled(report: Report, order: int, label: str) -> Report:
    """The report with its order and sample written on everything found."""
    report.findings = tuple(replace(f, order=order, sample=label) for f in report.findings)
    report.by_order = {order: sum(report.by_order.values())}
    if order > 1:
        report.coverage = tuple(f"order {order}, {line}" for line in report.coverage)
    return report


def check_edge(case: Case, edge: Edge, options: Options) -> Report:
    """Compare with the values agreed for an edge point, NaN for NaN, to a few units in the last place."""
    report = Report(case.function.name, seed=options.seed, by_order={1: 0})
    function = case.function
    with np.errstate(all="ignore"):
        pairs: list[tuple[str, int | None, Array, Array]] = []
        outputs = function.forward(*case.arrays)
        if edge.value is not None:
            pairs += [("the output", None, y, v) for y, v in zip(outputs, edge.value, strict=True)]
        if edge.gradients is not None:
            cotangents = edge.cotangents or tuple(np.ones(y.shape, y.dtype) for y in outputs)
            cotangents = tuple(
                np.array(np.broadcast_to(g, y.shape), y.dtype) for g, y in zip(cotangents, outputs, strict=True)
            )
            gradients = function.linearize(*case.arrays)(cotangents)
            for k, (g, agreed) in enumerate(zip(gradients, edge.gradients, strict=True)):
                if agreed is not None:
                    like = case.arrays[k]
                    claimed = np.zeros(like.shape, like.dtype) if g is None else np.asarray(g)
                    pairs.append((f"the gradient of {function.inputs[k]}", k, claimed, agreed))
        for what, at, found, agreed in pairs:
            report.by_order[1] += int(agreed.size)
            finding = _edge_finding(case, what, at, found, agreed)
            report.findings += (finding,) if finding else ()
    return _labelled(report, 1, case.label)


def _edge_finding(case: Case, what: str, k: int | None, found: Array, agreed: Array) -> Finding | None:
    advice = "see the table of conventions for what is agreed at this point"
    if found.shape != agreed.shape:
        why = f"{what} has shape {found.shape}, agreed is {agreed.shape}"
        return Finding("wrong", why, "edge-value", advice)
    off = ~_equal(found, agreed)
    if not off.any():
        return None
    at = tuple(int(i) for i in np.argwhere(off)[0])
    why = (
        f"{what} at element {at} is {found[at]}, agreed is {agreed[at]} ({int(off.sum())} of {off.size} elements "
        f"differ); inputs {_shown(case.arrays)}"
    )
    where = None
    if k is not None:
        name, shape = case.function.inputs[k], case.arrays[k].shape
        flat = int(np.ravel_multi_index(at, found.shape)) if at else 0
        where = Where(name, k, shape, place(flat, found))
    return Finding("wrong", why, "edge-value", advice, where)


def _equal(found: Array, agreed: Array) -> Array:
    """Entry by entry: both NaN, or the same within a few units in the last place of the found dtype."""
    eps = coarsest((found,))
    a, b = np.asarray(found, np.float64), np.asarray(agreed, np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    return np.asarray(same | (np.abs(a - b) <= ULPS * eps * np.abs(b)))


def _shown(arrays: Arrays) -> str:
    return ", ".join(np.array2string(a, threshold=6, precision=4) for a in arrays)

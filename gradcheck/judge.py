"""The verdict on one input's gradient: right, wrong, excused by a kink, or beyond what differences can tell.

A kink excuses only a gradient that lies between the slopes seen around it: a wrong one does not hide there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

import numpy as np

from .arrays import Array, coordinates_of, to_real
from .closer import describe, kink_finding, locate, precision_finding
from .compare import Held, hold
from .kinks import sides_of
from .reference import InputReference, Line, Point, along, joined
from .report import Finding, Where

Outcome: TypeAlias = Literal["wrong", "excused", "unclear"]

EXCUSED = 6  # kinks taken out of the random directions before giving up


@dataclass(frozen=True)
class Trial:
    """What came back for one input from one pull."""

    label: str
    cotangent: Array  # packed
    gradient: Array | None


@dataclass
class Judgement:
    """What is known about one input's gradient."""

    reference: InputReference  # the lines that count as evidence
    checks: int = 0
    worst: float = 0.0
    wrong: list[Where] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    doubts: list[Finding] = field(default_factory=list)  # lines of which nothing can be told
    pinned: list[InputReference] = field(default_factory=list)  # elements named by a direction that went wrong


def judge(point: Point, k: int, reference: InputReference, trials: Sequence[Trial], rtol: float) -> Judgement:
    """Hold every trial's gradient of input ``k`` against the reference, and look closer where they part."""
    result = Judgement(reference)
    excused: list[int] = []
    while True:
        helds = [hold(point, reference, k, t.gradient, t.cotangent, rtol) for t in trials]
        kink = _examine(point, reference, trials, helds, result, rtol)
        if kink is None or len(excused) == EXCUSED:
            break
        excused.append(kink)
        reference = _without_coordinate(point, reference, kink)
    result.checks += sum(h.checks for h in helds)
    # Of a small input every coordinate matters; of a large one the others speak for those that can't be resolved.
    if result.doubts and (reference.full or not result.reference.lines):
        result.findings += result.doubts
    if result.pinned:
        result.reference = joined([result.reference, *result.pinned])
    if not result.wrong:
        result.worst = max((h.worst for h in helds), default=0.0)
    return result


def _examine(
    point: Point,
    reference: InputReference,
    trials: Sequence[Trial],
    helds: Sequence[Held],
    result: Judgement,
    rtol: float,
) -> int | None:
    """Sort the lines that are not simply right.  Returns a coordinate at a kink that spoils the directions."""
    result.wrong, result.doubts, result.pinned = [], [], []
    dropped: list[int] = []
    for i, line in enumerate(reference.lines):
        at = _worst_trial(helds, i)
        if at is None:
            continue
        held, trial = helds[at], trials[at]
        if line.coordinate is not None:
            outcome = _coordinate(point, reference, i, held, trial, result, rtol)
        elif held.wrong[i]:
            outcome, coordinate = _direction(point, line, trial, result, rtol)
            if outcome == "excused":
                return coordinate
        else:
            outcome = "unclear"  # too many kinks along it at every step: the single coordinates have to do
        if outcome != "wrong":
            dropped.append(i)
    kept = [i for i in range(len(reference.lines)) if i not in dropped]
    result.reference = reference if not dropped else _subset(reference, kept)
    return None


def _worst_trial(helds: Sequence[Held], i: int) -> int | None:
    """The trial in which line ``i`` is wrong by most, else one in which it is unresolved as in most, else None."""
    wrong = [t for t, held in enumerate(helds) if held.wrong[i]]
    if wrong:
        return max(wrong, key=lambda t: float(helds[t].error[i]))
    unresolved = [t for t, held in enumerate(helds) if held.unresolved()[i]]
    return unresolved[0] if 2 * len(unresolved) > len(helds) else None


def _coordinate(
    point: Point, reference: InputReference, i: int, held: Held, trial: Trial, result: Judgement, rtol: float
) -> Outcome:
    """Settle one coordinate."""
    line = reference.lines[i]
    closer = along(point, [line], closely=True)
    looked = hold(point, closer, line.input, trial.gradient, trial.cotangent, rtol)
    looked = replace(looked, scale=held.scale[i : i + 1])
    beyond = bool(held.wrong[i] and looked.wrong[0])
    if not (beyond or looked.unresolved()[0]):
        return "unclear"  # the two agree within the noise of the function's values
    where = describe(point, line, looked, 0, trial.label)
    sides = sides_of(point, line, trial.cotangent, used=closer.steps[0])
    if beyond and sides.support(float(looked.analytic[0]), float(looked.numeric[0])):
        return "unclear"
    excused = sides.allows(float(looked.analytic[0]))
    if beyond and not (sides.kink and excused):
        result.wrong.append(where)
        return "wrong"
    if beyond:
        result.findings.append(kink_finding(point, line, sides, where))
        return "excused"
    bent = sides.bend and excused
    result.doubts.append(kink_finding(point, line, sides, where) if bent else precision_finding(point, line, where))
    return "unclear"


def _direction(point: Point, line: Line, trial: Trial, result: Judgement, rtol: float) -> tuple[Outcome, int]:
    """Settle a random direction that looks wrong, by the coordinate where it goes wrong; also returns that one."""
    like = point.arrays[line.input]
    gradient = np.zeros(coordinates_of(like)) if trial.gradient is None else to_real(trial.gradient)
    single = locate(point, line, gradient, trial.cotangent)
    reference = along(point, [single])
    held = hold(point, reference, line.input, trial.gradient, trial.cotangent, rtol)
    # Where no single coordinate is wrong, several kinks met along the direction, and it is the difference that errs.
    suspicious = held.wrong[0] or held.unresolved()[0]
    outcome = _coordinate(point, reference, 0, held, trial, result, rtol) if suspicious else "unclear"
    if outcome == "wrong":
        result.pinned.append(reference)
    return outcome, single.coordinate or 0


def _without_coordinate(point: Point, reference: InputReference, coordinate: int) -> InputReference:
    """The same lines with ``coordinate`` held still, measured again."""
    lines = []
    for line in reference.lines:
        if line.coordinate == coordinate:
            continue
        direction = line.direction.copy()
        direction[coordinate] = 0.0
        lines.append(line if line.coordinate is not None else replace(line, direction=direction))
    return along(point, lines)


def _subset(reference: InputReference, kept: list[int]) -> InputReference:
    return InputReference(
        [reference.lines[i] for i in kept],
        reference.value[:, kept],
        reference.bar[:, kept],
        [reference.steps[i] for i in kept],
        False,
    )

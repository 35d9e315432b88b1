"""What a benchmark case is: the same work in entrenar and in its peers, and how alike the results have to be."""

from __future__ import annotations

import dataclasses
import fnmatch
import importlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

MODULES = ("overhead", "kernels", "optimizers", "mlp", "models", "llama", "startup")
OURS = "entrenar"


class Unavailable(Exception):
    """A peer is installed but can't work on this machine; the message says why."""


@dataclasses.dataclass(frozen=True)
class Side:
    """One library's half of a case, ready to run.

    run: the work that is timed; it returns when the work is done.
    result: arrays or numbers by name, compared with the other side's; called once, before the first ``run``.
    """

    run: Callable[[], object]
    result: Callable[[], Mapping[str, Any]]


@dataclasses.dataclass(frozen=True)
class Peer:
    """What entrenar is compared with.

    target: the ratio of times aimed at, entrenar's over the peer's.  memory: the same for peak resident memory.
    tolerance: instead of the case's, for a peer that computes with fewer digits.  extra: only with ``--all``.
    """

    prepare: Callable[[], Side]
    target: float | None = None
    memory: float | None = None
    tolerance: float | None = None
    extra: bool = False


@dataclasses.dataclass(frozen=True)
class Case:
    """A row of the table.

    peers: by label, whose first word is the package.  tolerance: see ``deviation``.
    flops: floating-point operations of one run.  traffic: bytes that a run has to move at the least, every input read
    once and every output written once.  share: the part of the machine's rate aimed at.
    items: what one run holds, where times are told per item.  pairs: how often the two sides take turns.
    threads: a number of threads that belongs to the case.  memory: tell the peak.  timed: False to compare only.
    """

    name: str
    ours: Callable[[], Side]
    peers: Mapping[str, Peer]
    tolerance: float
    flops: float = 0.0
    traffic: float = 0.0
    share: float | None = None
    items: int = 1
    pairs: int = 15
    threads: int | None = None
    memory: bool = False
    timed: bool = True

    def side(self, label: str) -> Callable[[], Side]:
        """The half that ``label`` names."""
        return self.ours if label == OURS else self.peers[label].prepare


def table(modules: Iterable[str] = MODULES) -> dict[str, Case]:
    """All cases of these modules by name: names of this package's modules, or of others with ``CASES``."""
    found: dict[str, Case] = {}
    for name in modules:
        module = importlib.import_module(f"{__package__}.{name}" if name in MODULES else name)
        for case in module.CASES:
            if case.name in found:
                raise ValueError(f"{name}: a second case is called {case.name!r}")
            found[case.name] = case
    return found


def select(cases: Mapping[str, Case], patterns: Sequence[str]) -> list[Case]:
    """The cases whose names match one of the patterns (part of a name, or a glob); all without patterns.

    Raises ValueError for a pattern that matches none.
    """
    chosen: set[str] = set()
    for pattern in patterns:
        glob = pattern.lower() if any(sign in pattern for sign in "*?[") else f"*{pattern.lower()}*"
        matching = [name for name in cases if fnmatch.fnmatchcase(name.lower(), glob)]
        if not matching:
            raise ValueError(f"no case matches {pattern!r}: --list shows all")
        chosen.update(matching)
    return [case for name, case in cases.items() if name in chosen or not patterns]


def deviation(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> float:
    """The largest |a - b| / max(|b|, rms(b)) over all arrays of both sides: relative to an element where it is large,
    to the array's size where it is small.

    NaN and infinities have to be the same in both.  inf where names or shapes differ.
    """
    if not ours or set(ours) != set(theirs):
        return math.inf
    worst = 0.0
    for name in ours:
        a, b = (np.asarray(side[name], np.float64) for side in (ours, theirs))
        if a.shape != b.shape:
            return math.inf
        with np.errstate(invalid="ignore"):
            same = (a == b) | (np.isnan(a) & np.isnan(b))
        a, b = a[~same], b[~same]
        if not a.size:
            continue
        if not (np.isfinite(a).all() and np.isfinite(b).all()):
            return math.inf
        finite = np.asarray(theirs[name], np.float64)
        finite = finite[np.isfinite(finite)]
        scale = np.maximum(np.abs(b), math.sqrt(float(np.mean(finite * finite))))
        with np.errstate(divide="ignore"):
            worst = max(worst, float(np.max(np.abs(a - b) / scale)))
    return worst

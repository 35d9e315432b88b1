"""Clocks: one side's turn, and what many pairs of turns say."""

from __future__ import annotations

import dataclasses
import gc
import math
import statistics
import time
from collections.abc import Callable

TURN = 0.1  # seconds that a turn lasts at least
MOST = 50  # runs in a turn
QUIET = 0.02  # seconds over which an idle process is watched


def seconds(run: Callable[[], object]) -> float:
    """Wall time of one call."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def turn(run: Callable[[], object]) -> float:
    """Seconds a run takes: the median over a turn that lasts at least ``TURN``.

    The first run brings back what the other side has pushed out of the caches, and counts only if it fills the turn.
    """
    gc.collect()
    first = seconds(run)
    if first >= TURN:
        return first
    return statistics.median(seconds(run) for _ in range(min(MOST, math.ceil(TURN / first))))


def settle(longest: float = 2.0) -> None:
    """Wait until no thread of this process computes: idle threads of BLAS and OpenMP spin for a while, and would take
    a core from the side whose turn is next.
    """
    end = time.perf_counter() + longest
    while time.perf_counter() < end:
        before = time.process_time()
        time.sleep(QUIET)
        if time.process_time() - before < QUIET / 10:
            return


@dataclasses.dataclass(frozen=True)
class Times:
    """Seconds of both sides (medians), and entrenar's over the peer's: median and quartiles over pairs of turns."""

    ours: float
    theirs: float
    ratio: float
    low: float
    high: float
    pairs: int


def in_turn(ours: Callable[[], float], theirs: Callable[[], float], pairs: int) -> Times:
    """Let both sides take ``pairs`` turns (functions that return seconds), each going first in every other pair."""
    ours(), theirs()  # warm up: some of what a library prepares, it prepares at its second call
    found = []
    for i in range(pairs):
        if i % 2:
            b = theirs()
            a = ours()
        else:
            a = ours()
            b = theirs()
        found.append((a, b))
    ratios = [a / b for a, b in found]
    low, ratio, high = quartiles(ratios)
    a, b = (statistics.median(side) for side in zip(*found, strict=True))
    return Times(a, b, ratio, low, high, pairs)


def quartiles(values: list[float]) -> tuple[float, float, float]:
    """First quartile, median, third quartile; of a single value, that value."""
    if len(values) == 1:
        return values[0], values[0], values[0]
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, middle, high

"""Timing two sides in turn: pairs in one process, the median of the pairs' ratios, the result validated first."""
from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

# they halve NumPy's speed where they are set, so the timed child does not inherit them
DROPPED = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


@dataclass
class Result:
    """Medians of one pair of sides; ``ratio`` is ours over theirs, by pairs."""

    name: str
    peer: str
    ours: float  # seconds
    theirs: float
    ratio: float
    target: float | None = None

    def line(self, unit: float = 1.0, unit_name: str = "s") -> str:
        """One line of the table."""
        verdict = "" if self.target is None else f"  target {self.target:.2f} {'met' if self.ratio <= self.target else 'MISSED'}"
        return (f"{self.name:<24} {self.peer:<14} ours {self.ours / unit:9.3f} {unit_name}  "
                f"theirs {self.theirs / unit:9.3f} {unit_name}  ratio {self.ratio:.3f}{verdict}")


def seconds(run: Callable[[], object]) -> float:
    """Wall time of one call."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def compare(name: str, peer: str, ours: Callable[[], object], theirs: Callable[[], object], *, repeats: int = 31,
            target: float | None = None) -> Result:
    """Run both sides in turn ``repeats`` times (after a warm-up), swapping who goes first."""
    for side in (ours, theirs):
        side()
    pairs = []
    for i in range(repeats):
        first, second = (ours, theirs) if i % 2 == 0 else (theirs, ours)
        a, b = seconds(first), seconds(second)
        pairs.append((a, b) if i % 2 == 0 else (b, a))
    ratio = statistics.median(a / b for a, b in pairs)
    return Result(name, peer, statistics.median(a for a, _ in pairs), statistics.median(b for _, b in pairs), ratio, target)


def in_clean_child(module: str, arguments: list[str], threads: int) -> int:
    """Run ``python -m module`` with a clean environment and a fixed number of threads; its exit status."""
    env = {k: v for k, v in os.environ.items() if k not in DROPPED}
    env.update(dict.fromkeys(THREADS, str(threads)))
    return subprocess.run([sys.executable, "-m", module, *arguments], env=env, check=False).returncode

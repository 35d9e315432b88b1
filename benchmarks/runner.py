"""Validate, then time two sides in turn: the ratio is the median over pairs of runs that lie next to each other.

A benchmark is a module of this package with ``results(repeats)``, an iterator of `Result` that raises AssertionError
where a side computes something else than it should.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import importlib
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

BENCHMARKS = ("overhead",)
# where these are set, NumPy computes with the kernels of an older processor
DROPPED = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
DONE, INVALID = 0, 1


@dataclasses.dataclass(frozen=True)
class Result:
    """Median seconds per item of both sides; ``ratio`` is ours over theirs, the median of the pairs' ratios."""

    name: str
    peer: str
    ours: float
    theirs: float
    ratio: float
    target: float | None = None

    @property
    def met(self) -> bool | None:
        """Whether the ratio is within the target; None without one."""
        return None if self.target is None else self.ratio <= self.target

    def __str__(self) -> str:
        verdict = "" if self.target is None else f"  target {self.target:.2f} {'met' if self.met else 'MISSED'}"
        times = f"ours {duration(self.ours)}  theirs {duration(self.theirs)}"
        return f"{self.name:<24} {self.peer:<18} {times}  ratio {self.ratio:.3f}{verdict}"


def duration(seconds: float) -> str:
    """Seconds in the unit that suits them, ten characters wide."""
    unit, size = next((u for u in (("s", 1.0), ("ms", 1e-3)) if seconds >= u[1]), ("us", 1e-6))
    return f"{seconds / size:7.3f} {unit:<2}"


def seconds(run: Callable[[], object]) -> float:
    """Wall time of one call, which starts without another's garbage."""
    gc.collect()
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def compare(
    name: str,
    peer: str,
    ours: Callable[[], object],
    theirs: Callable[[], object],
    *,
    repeats: int,
    items: int = 1,
    target: float | None = None,
) -> Result:
    """Run both sides in turn ``repeats`` times, each going first in every other pair; one run holds ``items`` items."""
    ours(), theirs()  # warm up
    pairs = []
    for i in range(repeats):
        if i % 2:
            b = seconds(theirs)
            a = seconds(ours)
        else:
            a = seconds(ours)
            b = seconds(theirs)
        pairs.append((a / items, b / items))
    a, b = (statistics.median(side) for side in zip(*pairs, strict=True))
    return Result(name, peer, a, b, statistics.median(a / b for a, b in pairs), target)


def clean_environment(threads: int) -> dict[str, str]:
    """This environment without what slows NumPy down, and with a fixed number of threads."""
    kept = {k: v for k, v in os.environ.items() if k not in DROPPED}
    return kept | dict.fromkeys(THREADS, str(threads))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run benchmarks in a child with a clean environment; 0 if every result was valid, else 1.

    Whether a target was met is printed and does not change the exit status: that depends on the machine.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Time entrenar beside its peers.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which: {', '.join(BENCHMARKS)} (default: all)")
    parser.add_argument("--repeats", type=int, default=31, metavar="N", help="pairs of runs (default %(default)s)")
    parser.add_argument("--threads", type=int, default=1, metavar="N", help="threads a side (default %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results as JSON")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)  # this process is the child
    options = parser.parse_args(given)
    for name in options.names:
        if name not in BENCHMARKS:
            parser.error(f"unknown benchmark {name!r}: known are {', '.join(BENCHMARKS)}")
    for option in ("repeats", "threads"):
        if getattr(options, option) < 1:
            parser.error(f"--{option} {getattr(options, option)}: expected at least 1")
    if not options.here:
        child = [sys.executable, "-m", "benchmarks", *given, "--here"]
        return subprocess.run(child, env=clean_environment(options.threads), check=False).returncode
    found: list[Result] = []
    status = DONE
    for name in options.names or BENCHMARKS:
        try:
            for result in importlib.import_module(f"benchmarks.{name}").results(options.repeats):
                print(result, flush=True)
                found.append(result)
        except AssertionError as error:
            print(f"{name}: wrong result, not timed: {error}", file=sys.stderr)
            status = INVALID
    if options.json:
        options.json.write_text(json.dumps(report(found, options.threads), indent=2) + "\n")
    return status


def report(results: Sequence[Result], threads: int) -> dict[str, Any]:
    """Results with what they depend on."""
    versions = {name: importlib.import_module(name).__version__ for name in ("entrenar", "numpy")}
    machine = {"python": platform.python_version(), "machine": platform.machine(), "threads": threads, **versions}
    return {"machine": machine, "results": [dataclasses.asdict(r) | {"met": r.met} for r in results]}

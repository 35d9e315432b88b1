"""Validate, then time two sides in turn: the ratio is the median over pairs of turns that lie next to each other."""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from . import child, machine
from .case import MODULES, OURS, Case, Peer, deviation, select, table
from .process import Failed, Process, Skipped
from .table import Row, markdown, report
from .timing import in_turn

DONE, INVALID = 0, 1
QUICK = 3  # pairs


def main(arguments: Sequence[str] | None = None) -> int:
    """Run cases; 0 if every result was valid, else 1.

    Whether a target was met is told and does not change the exit status: that depends on the machine.
    """
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Time entrenar beside its peers.")
    parser.add_argument(
        "patterns", nargs="*", metavar="PATTERN", help="a part of a case's name, or a glob (default: all)"
    )
    parser.add_argument("--case", action="append", dest="named", default=[], metavar="PATTERN", help="one more PATTERN")
    parser.add_argument("--list", action="store_true", help="print the names of the cases, and run none")
    parser.add_argument("--all", action="store_true", help="the slow peers too")
    parser.add_argument("--repeats", type=int, metavar="N", help="pairs of turns (default: by case, 5 to 15)")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK} pairs")
    parser.add_argument("--threads", type=int, default=2, metavar="N", help="threads a side (default %(default)s)")
    parser.add_argument("--against", type=Path, metavar="DIR", help="the peer is the entrenar of this checkout")
    parser.add_argument("--out", type=Path, metavar="DIR", help="write DIR/bench.json and DIR/bench.md")
    parser.add_argument("--modules", default=",".join(MODULES), metavar="NAMES", help="where the cases are from")
    options = parser.parse_args(arguments)
    for option in ("repeats", "threads"):
        if (value := getattr(options, option)) is not None and value < 1:
            parser.error(f"--{option} {value}: expected at least 1")
    if options.against and not (options.against / "entrenar" / "__init__.py").is_file():
        parser.error(f"--against {options.against}: no checkout of entrenar, there is no entrenar/__init__.py in it")
    modules = options.modules.split(",")
    try:
        cases = select(table(modules), [*options.patterns, *options.named])
    except ValueError as error:
        parser.error(str(error))
    if options.list:
        print(*(f"{case.name:<32} {', '.join(case.peers)}" for case in cases), sep="\n")
        return DONE
    runner = Runner(modules, options.threads, options.against)
    rows = list(runner.rows(cases, pairs_of(options), options.all))
    if options.out:
        write(options.out, rows, runner.about(cases))
    return INVALID if any(row.failed for row in rows) else DONE


def pairs_of(options: argparse.Namespace) -> Callable[[Case], int]:
    """How many pairs a case gets."""
    if options.repeats:
        return lambda case: options.repeats
    return (lambda case: min(QUICK, case.pairs)) if options.quick else (lambda case: case.pairs)


class Runner:
    """Cases on this machine.  against: compare with that checkout of entrenar instead of the peers."""

    def __init__(self, modules: Sequence[str], threads: int, against: Path | None = None) -> None:
        self.modules, self.threads = modules, threads
        self.against = against.resolve() if against else None
        self.rates: dict[str, float] = {}

    def rows(self, cases: Sequence[Case], pairs: Callable[[Case], int], extra: bool = False) -> Iterator[Row]:
        """The outcome of every case with every peer, printed as it comes."""
        if any(case.timed and (case.flops or case.traffic) for case in cases):
            self.rates = self.measured()
            print(
                f"GEMM peak {self.rates['gemm'] / 1e9:.0f} GFLOP/s, copy {self.rates['copy'] / 1e9:.1f} GB/s, ", end=""
            )
            print(f"{self.threads} threads", flush=True)
        for case in cases:
            for row in self.compared(case, pairs(case), extra):
                print(row, flush=True)
                yield row

    def measured(self) -> dict[str, float]:
        """The machine's rates.  Raises Failed."""
        with self.process(machine.CASE, OURS, child.ROOT) as process:
            return {name: float(value) for name, value in process.result().items()}

    def process(self, case: Case, label: str, tree: Path) -> Process:
        """A side in a new process."""
        return Process(case.name, label, case.threads or self.threads, tree, self.modules)

    def peers(self, case: Case, extra: bool) -> Mapping[str, Peer]:
        """What the case is compared with in this run, by label."""
        if self.against:
            return {f"{OURS} at {self.against.name}": Peer(case.ours)}
        return {label: peer for label, peer in case.peers.items() if extra or not peer.extra}

    def compared(self, case: Case, pairs: int, extra: bool) -> Iterator[Row]:
        """One row per peer; entrenar's process is the same for all of them."""
        peers = self.peers(case, extra)
        with contextlib.ExitStack() as stack:
            try:
                ours = stack.enter_context(self.process(case, OURS, child.ROOT))
                expected = ours.result()
            except Failed as error:
                for label in peers:
                    yield Row(case.name, label, "failed", note=f"{OURS}: {error}")
                return
            for label, peer in peers.items():
                try:
                    with self.process(case, OURS if self.against else label, self.against or child.ROOT) as theirs:
                        yield self.pair(case, label, peer, ours, expected, theirs, pairs)
                except Skipped as reason:
                    yield Row(case.name, label, "skipped", note=str(reason))
                except Failed as error:
                    yield Row(case.name, label, "failed", note=str(error))

    def pair(
        self,
        case: Case,
        label: str,
        peer: Peer,
        ours: Process,
        expected: dict[str, Any],
        theirs: Process,
        pairs: int,
    ) -> Row:
        """Validate against one peer, then time."""
        tolerance = case.tolerance if peer.tolerance is None else peer.tolerance
        found = deviation(expected, theirs.result())
        if not found <= tolerance:
            note = f"the results differ by {found:.3g}, more than {tolerance:.3g}"
            return Row(case.name, label, "invalid", deviation=found, tolerance=tolerance, note=note)
        if not case.timed:
            return Row(case.name, label, "valid", deviation=found, tolerance=tolerance)
        before = others(ours, theirs)
        start = time.perf_counter()
        times = in_turn(lambda: ours.turn() / case.items, lambda: theirs.turn() / case.items, pairs)
        wall = time.perf_counter() - start
        after = others(ours, theirs)
        return Row(
            case.name,
            label,
            "valid",
            deviation=found,
            tolerance=tolerance,
            times=times,
            others=None if before is None or after is None else max(0.0, after - before) / wall,
            target=peer.target,
            work=("gemm", case.flops / case.items) if case.flops else ("copy", case.traffic / case.items),
            machine=self.rates.get("gemm" if case.flops else "copy", math.nan),
            share_target=case.share,
            memory=(ours.peak(), theirs.peak()) if case.memory else None,
            memory_target=peer.memory,
        )

    def about(self, cases: Sequence[Case]) -> dict[str, Any]:
        """The machine, its rates and the libraries of these cases."""
        libraries = sorted({label.split()[0] for case in cases for label in case.peers})
        about = machine.described(libraries, self.threads) | {"rates": self.rates}
        return about | {"against": str(self.against)} if self.against else about


def others(*sides: Process) -> float | None:
    """Seconds that all processes but these have computed so far."""
    total, known = machine.busy(), [side.cpu() for side in sides]
    return None if total is None or None in known else total - sum(filter(None, known))


def write(folder: Path, rows: Sequence[Row], about: Mapping[str, Any]) -> None:
    """The table as JSON and as Markdown."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "bench.json").write_text(json.dumps(report(rows, about), indent=2) + "\n")
    (folder / "bench.md").write_text(markdown(rows, about))
    print(f"written: {folder / 'bench.json'}, {folder / 'bench.md'}", file=sys.stderr)

"""``python -m gradcheck``: check one op, or all of entrenar's."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import time
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

from .adapters import entrenar
from .checking import HIGHEST, check
from .export import write_json, write_junit
from .report import Report
from .sweep import Job, Row, sweep, totals

PASSED, FAILED, USAGE = 0, 1, 2


class UsageError(Exception):
    """A command line that asks for something that isn't there."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.  Returns 0 if every check passed, 1 if one did not, 2 for a usage error."""
    parser = _parser()
    try:
        options = parser.parse_args(argv)
    except SystemExit as stop:
        return int(stop.code or 0)
    try:
        return _sweep(options) if options.all or options.op else _single(options)
    except UsageError as error:
        print(f"gradcheck: {error}", file=sys.stderr)
        return USAGE


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("gradcheck", description="Is this gradient right, and if not, what is wrong?")
    parser.add_argument("target", nargs="?", metavar="module:op", help="an op that declares samples")
    parser.add_argument("--all", action="store_true", help="every op of entrenar, with its own samples, as a table")
    parser.add_argument("--op", action="append", default=[], metavar="NAME", help="only this op; repeatable")
    parser.add_argument(
        "--order",
        type=int,
        choices=range(1, HIGHEST + 1),
        default=HIGHEST,
        help="highest order of derivative to check (default %(default)s)",
    )
    parser.add_argument("--seed", type=int, default=0, help="of samples, cotangents and directions (default 0)")
    parser.add_argument("--backend", metavar="B", help="use the kernels of this backend only")
    parser.add_argument(
        "--jobs",
        type=int,
        metavar="N",
        default=os.cpu_count() or 1,
        help="processes for the table (default: one per core)",
    )
    parser.add_argument("--json", metavar="FILE", help="also write the reports as JSON")
    parser.add_argument("--junit", metavar="FILE", help="also write them as JUnit XML")
    return parser


def _single(options: argparse.Namespace) -> int:
    """Check one op and read out the report."""
    if options.target is None:
        raise UsageError("give an op as module:op, or --all; --help tells more")
    target = _find(options.target)
    try:
        if options.backend:
            with entrenar.using(_backend(options.backend)):
                report = check(target, order=options.order, seed=options.seed)
        else:
            report = check(target, order=options.order, seed=options.seed)
    except TypeError as error:
        if entrenar.is_op(target) and target.op.samples is not None:
            raise
        raise UsageError(str(error)) from error
    print(report)
    return _finished([report], options)


def _find(name: str) -> Any:
    """The object that ``module:op`` names."""
    module_name, colon, attribute = name.partition(":")
    if not colon or not attribute:
        raise UsageError(f"{name!r} is not of the form module:op")
    if module_name == "entrenar" and name in entrenar.ops():
        return entrenar.ops()[name]
    sys.path.insert(0, os.getcwd())
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not module_name.startswith(error.name):
            raise
        raise UsageError(f"there is no module {error.name!r}") from error
    finally:
        sys.path.pop(0)
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise UsageError(f"{name!r}: no {part!r} there{_nearest(part, dir(found))}")
        found = getattr(found, part)
    if not callable(found):
        raise UsageError(f"{name!r} is a {type(found).__name__}, not an op")
    return found


def _sweep(options: argparse.Namespace) -> int:
    """Check the ops of entrenar and print the table."""
    if options.target is not None:
        raise UsageError("give either module:op or --all, not both")
    if options.jobs < 1:
        raise UsageError(f"--jobs {options.jobs}: expected at least 1")
    backend = _backend(options.backend) if options.backend else None
    jobs = [Job(key, options.order, options.seed, backend) for key in _chosen(options.op)]
    start = time.perf_counter()
    rows: list[Row] = []
    print(Row.HEADER)
    for row in sweep(jobs, options.jobs):
        rows.append(row)
        print(row, flush=True)
    seconds = time.perf_counter() - start
    for row in rows:
        if not row.report.passed:
            print(f"\n{row.report}")
    print(f"\n{totals(rows, seconds)}")
    return _finished([row.report for row in rows], options, seconds)


def _chosen(names: Sequence[str]) -> list[str]:
    """The keys of the ops to check: entrenar's own, or those named."""
    known = entrenar.ops()
    if not names:
        return [key for key in known if key.startswith("entrenar:")]
    keys = [name if ":" in name else f"entrenar:{name}" for name in names]
    for name, key in zip(names, keys, strict=True):
        if key not in known:
            raise UsageError(f"there is no op {name!r}{_nearest(key, known)}")
    return list(dict.fromkeys(keys))


def _backend(name: str) -> str:
    if name not in entrenar.backends():
        raise UsageError(f"there is no backend {name!r}: known are {', '.join(entrenar.backends())}")
    return name


def _nearest(name: str, known: Sequence[str] | dict[str, Any]) -> str:
    close = get_close_matches(name, list(known), 1)
    return f"; did you mean {close[0].removeprefix('entrenar:')!r}?" if close else ""


def _finished(reports: Sequence[Report], options: argparse.Namespace, seconds: float = 0.0) -> int:
    """Write the files asked for; the exit status."""
    if options.json:
        write_json(options.json, reports, seconds=seconds)
    if options.junit:
        write_junit(options.junit, reports, seconds=seconds)
    return PASSED if all(r.passed for r in reports) else FAILED

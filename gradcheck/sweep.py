"""Every op of entrenar, at its own samples, at orders 1 and 2: one row each."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from multiprocessing import get_context

from .adapters import entrenar
from .checking import check
from .report import Finding, Report, merged

# Variables by which numeric libraries size their thread pools: in parallel processes one thread each is best.
THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
PORTABLE = "numpy"


@dataclass(frozen=True)
class Job:
    """One op to check, and how."""

    key: str
    order: int
    seed: int
    backend: str | None = None


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    report: Report
    served: tuple[str, ...]

    HEADER = f"{'op':<34}{'samples':>8}{'order 1':>9}{'order 2':>9}{'worst':>10}  {'kernels':<14}verdict"

    def __str__(self) -> str:
        r = self.report
        verdict = r.verdict + (f", {r.kind}" if r.kind else "")
        name = r.name.removeprefix("entrenar:")
        return (
            f"{name:<34}{r.samples:>8}{r.by_order.get(1, 0):>9}{r.by_order.get(2, 0):>9}{r.worst:>10.1e}  "
            f"{','.join(self.served):<14}{verdict}"
        )


def check_op(job: Job) -> Row:
    """Check one op: as it is served by default, then with each of its kernels' backends, then without any kernel."""
    op = entrenar.ops()[job.key]
    kernels = entrenar.kernels_of(job.key) if op.op.differentiable else set()
    if job.backend is not None:
        kernels = {(key, backend) for key, backend in kernels if backend == job.backend}
    with entrenar.using(job.backend) if job.backend else nullcontext():
        reports = [check(op, order=job.order, seed=job.seed)]
    used = sorted({backend for _, backend in entrenar.served(kernels)})
    if job.backend is None and kernels:
        unused = {backend for _, backend in kernels - entrenar.served(kernels)} - set(used)
        for backend in [*sorted(unused), PORTABLE]:
            with entrenar.using(backend):
                reports.append(check(op, order=job.order, seed=job.seed))
            used.append(backend)
    report = merged(job.key, reports, seed=job.seed)
    report.findings += tuple(_unreached(*kernel) for kernel in sorted(kernels - entrenar.served(kernels)))
    return Row(report, tuple(used) or (PORTABLE,))


def _unreached(key: str, backend: str) -> Finding:
    return Finding(
        "wrong",
        f"the {backend} kernel of {key} was never reached: no sample is one it accepts",
        advice="add a sample that meets the kernel's `when`, or drop the kernel",
    )


def sweep(jobs: Sequence[Job], processes: int) -> Iterator[Row]:
    """Check all, in the order given, in as many processes; rows come as they are ready."""
    if processes <= 1 or len(jobs) <= 1:
        yield from map(check_op, jobs)
        return
    with _single_threaded(), ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        yield from pool.map(check_op, jobs)


@contextmanager
def _single_threaded() -> Iterator[None]:
    """Let processes started in the body use one thread each, whatever this one uses."""
    before = {name: os.environ.get(name) for name in THREADS}
    os.environ.update({name: value or "1" for name, value in before.items()})
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]


def totals(rows: Sequence[Row], seconds: float) -> str:
    """The last lines of the table."""
    reports = [row.report for row in rows]
    failed = [r.name for r in reports if not r.passed]
    worst = max((r.worst for r in reports), default=0.0)
    counts = f"{len(rows)} ops, {sum(r.samples for r in reports)} samples, {sum(r.checks for r in reports)} checks"
    outcome = f"failed: {', '.join(failed)}" if failed else "all passed"
    return f"{counts}, worst relative error {worst:.1e}, {seconds:.1f} s\n{outcome}"

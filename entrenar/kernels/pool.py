"""The thread pool of the host kernels: rows split over threads that sleep when there is nothing to do.

A kernel takes part only with code that releases the GIL.  Every row is computed the same way whoever computes it, so
the number of threads never changes a result.  Not OpenMP, on purpose: its idle threads spin and take BLAS's cores.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

WORTHWHILE = 1 << 16  # below this many elements waking a thread costs more than it saves
_lock = threading.Lock()
_executor: ThreadPoolExecutor | None = None
_limit = 0


def threads() -> int:
    """Threads a kernel may use: what ``limit`` said, else OMP_NUM_THREADS, else the cores this process may run on."""
    if _limit:
        return _limit
    asked = os.environ.get("OMP_NUM_THREADS", "")
    if asked.isdigit() and int(asked):
        return int(asked)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def limit(count: int) -> None:
    """Use ``count`` threads from now on."""
    global _limit
    _limit = count
    _forget()


def split(run: Callable[..., Any], rows: int, width: int, *args: Any) -> None:
    """Call ``run(*args, start, stop)`` so that together the calls cover ``range(rows)``.

    width: elements per row; a small job runs here, a large one in one even piece per thread.
    """
    pieces = min(threads(), rows) if rows * width >= WORTHWHILE else 1
    if pieces <= 1:
        run(*args, 0, rows)
        return
    bounds = [rows * i // pieces for i in range(pieces + 1)]
    pool = _pool()
    waiting = [pool.submit(run, *args, a, b) for a, b in itertools.pairwise(bounds[1:])]
    run(*args, 0, bounds[1])
    for job in waiting:
        job.result()


def _pool() -> ThreadPoolExecutor:
    global _executor
    with _lock:
        if _executor is None:
            _executor = ThreadPoolExecutor(max(1, threads() - 1), thread_name_prefix="entrenar-kernel")
        return _executor


def _forget() -> None:
    """Make a new pool at the next use; threads of the old one end when they are idle."""
    global _executor
    with _lock:
        old, _executor = _executor, None
    if old is not None:
        old.shutdown(wait=False)


def _after_fork() -> None:
    # the child has none of the parent's threads, and perhaps a lock that one of them held
    global _executor, _lock
    _executor, _lock = None, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

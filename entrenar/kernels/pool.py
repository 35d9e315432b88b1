"""The thread pool of the host kernels: rows split over threads that sleep when there is nothing to do.

A kernel takes part only with code that releases the GIL.  ``split`` is for rows that are computed the same way whoever
computes them, ``each`` for pieces whose bounds depend on sizes alone: so the number of threads never changes a bit.
Not OpenMP, on purpose: its idle threads spin and take BLAS's cores, and its pool does not survive a fork.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

WORTHWHILE = 1 << 15  # below this many elements waking a thread costs more than it saves
_lock = threading.Lock()
_executor: ThreadPoolExecutor | None = None
_limit = 0
_inside = threading.local()


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
    each(lambda i: run(*args, bounds[i], bounds[i + 1]), pieces)


def each(run: Callable[[int], Any], count: int) -> None:
    """Call ``run(i)`` for i in range(count), every i once, by whichever thread is free; the first error is raised.

    Inside a piece the calls run one after the other, so nested use can't wait for itself.
    """
    helpers = min(threads(), count) - 1
    if helpers <= 0 or getattr(_inside, "piece", False):
        for i in range(count):
            run(i)
        return
    numbers = itertools.count()  # next() on it is atomic: no number is taken twice

    def work() -> None:
        _inside.piece = True
        try:
            while (i := next(numbers)) < count:
                run(i)
        except BaseException:
            while next(numbers) < count:  # the others find nothing left
                pass
            raise
        finally:
            _inside.piece = False

    pool = _pool()
    waiting = [pool.submit(work) for _ in range(helpers)]
    try:
        work()
    finally:
        for job in waiting:
            if not job.cancel():
                job.exception()
    for job in waiting:
        if not job.cancelled():
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

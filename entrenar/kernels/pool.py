"""The thread pool of the host kernels: rows split over threads that sleep when there is nothing to do for a while.

A kernel takes part only with code that releases the GIL.  ``split`` is for rows that are computed the same way whoever
computes them, ``each`` for pieces whose bounds depend on sizes alone: so the number of threads never changes a bit.
Not OpenMP, on purpose: its idle threads spin and take BLAS's cores, and its pool does not survive a fork.
"""

from __future__ import annotations

import atexit
import itertools
import os
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from ..array import Array
from .cpp import native

WORTHWHILE = 1 << 15  # below this many elements waking a thread costs more than it saves
PATIENCE = 1000  # microseconds that a thread looks for work before it sleeps: waking it takes up to 100
DELAY = 6  # microseconds from a job's start until its leader is likely to compute without the GIL
_lock = threading.Lock()
_crew: _Crew | None = None
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
    """Use ``count`` threads from now on, new ones."""
    global _limit
    _limit = count
    _dismiss()


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


def add_to(y: Array, x: Array) -> None:
    """y += x by the threads, along the first axis of y; x has the shape of y or is a row for every row of it."""
    split(_add_rows, len(y), y.size // max(1, len(y)), y, x)


def _add_rows(y: Array, x: Array, start: int, stop: int) -> None:
    np.add(y[start:stop], x[start:stop] if x.ndim == y.ndim else x, out=y[start:stop])


def each(run: Callable[[int], Any], count: int) -> None:
    """Call ``run(i)`` for i in range(count), every i once, by whichever thread is free; the first error is raised.

    Inside a piece, and while another thread's pieces are under way, the calls run one after the other.
    """
    crew = _free_crew(min(threads(), count) - 1)
    if crew is None or not crew.lead(run, count):
        for i in range(count):
            run(i)


def together(job: Any) -> None:
    """Carry out a job of the C++ code, by as many threads as there are; none of them needs the GIL for it."""
    crew = _free_crew(threads() - 1)
    if crew is None or not crew.carry_out(job):
        job.run()


class _Crew:
    """Threads that help with one job at a time."""

    def __init__(self, helpers: int) -> None:
        self.helpers = helpers
        self.team: Any = native.Team(PATIENCE, DELAY) if native is not None else _Team()
        self.busy = threading.Lock()
        self.run: Callable[[int], Any] = int
        self.count, self.numbers, self.ended = 0, itertools.count(), False
        self.error: BaseException | None = None
        self.threads = [
            threading.Thread(target=self._help, name="entrenar-kernel", daemon=True) for _ in range(helpers)
        ]
        for thread in self.threads:
            thread.start()

    def lead(self, run: Callable[[int], Any], count: int) -> bool:
        """Carry out a job with the others' help; False if they are at another one."""
        if not self.busy.acquire(blocking=False):
            return False
        try:
            self.run, self.count, self.error = run, count, None
            self.numbers = itertools.count()  # next() on it is atomic: no number is taken twice
            self.team.start()
            try:
                self._work()
            finally:
                self.team.finish()
            error, self.run, self.error = self.error, int, None
        finally:
            self.busy.release()
        if error is not None:
            raise error
        return True

    def carry_out(self, job: Any) -> bool:
        """The same for a job of the C++ code."""
        if not self.busy.acquire(blocking=False):
            return False
        try:
            self.team.carry_out(job)
        finally:
            self.busy.release()
        return True

    def _work(self) -> None:
        numbers, run, count = self.numbers, self.run, self.count
        _inside.piece = True
        try:
            while (i := next(numbers)) < count:
                run(i)
        except BaseException as error:
            self.error = self.error or error
            while next(numbers) < count:  # the others find nothing left
                pass
        finally:
            _inside.piece = False

    def _help(self) -> None:
        seen, inside = 0, False
        while not self.ended:
            seen = self.team.wait(seen, inside)
            inside = self.team.enter()
            if inside:
                self._work()
        if inside:
            self.team.wait(seen - 1, True)

    def end(self) -> None:
        """Let the threads go."""
        self.ended = True
        self.team.start()


class _Team:
    """csrc/team.cpp in Python: helpers that sleep at once."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.job = self.inside = 0
        self.open = False

    def wait(self, seen: int, leaving: bool) -> int:
        with self.changed:
            self.inside -= leaving
            self.changed.notify_all()
            self.changed.wait_for(lambda: self.job != seen)
            return self.job

    def enter(self) -> bool:
        with self.changed:
            self.inside += self.open
            return self.open

    def start(self) -> None:
        with self.changed:
            self.job, self.open = self.job + 1, True
            self.changed.notify_all()

    def finish(self) -> None:
        with self.changed:
            self.open = False
            self.changed.wait_for(lambda: self.inside == 0)


def _free_crew(helpers: int) -> _Crew | None:
    """At least so many threads that may help with a job of this one; None: it does everything itself."""
    global _crew
    if helpers <= 0 or getattr(_inside, "piece", False):
        return None
    wanted = max(helpers, threads() - 1)
    with _lock:
        if _crew is None or _crew.helpers < wanted:
            old, _crew = _crew, _Crew(wanted)
            if old is not None:
                old.end()
        return _crew


def _dismiss() -> list[threading.Thread]:
    """Let the threads go; those that are about to leave."""
    global _crew
    with _lock:
        old, _crew = _crew, None
    if old is None:
        return []
    old.end()
    return old.threads


@atexit.register
def _wait_for_threads() -> None:
    # a helper that comes out of C++ once the interpreter is going down would take the process with it
    for thread in _dismiss():
        thread.join()


def _after_fork() -> None:
    # the child has none of the parent's threads, and perhaps a lock that one of them held
    global _crew, _lock
    _crew, _lock, _inside.piece = None, threading.Lock(), False


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

"""The thread pool of the host kernels: every row once, errors come back, a forked child gets threads of its own."""

import os
import subprocess
import sys
import threading

import numpy as np
import pytest

from entrenar.kernels import pool


@pytest.fixture(autouse=True)
def three_threads():
    before = pool.threads()
    pool.limit(3)
    yield
    pool.limit(before)


@pytest.mark.parametrize("rows", [0, 1, 2, 3, 7, 100])
def test_every_row_once(rows):
    seen = np.zeros(rows, int)

    def run(seen, start, stop):
        seen[start:stop] += 1

    pool.split(run, rows, pool.WORTHWHILE, seen)
    assert (seen == 1).all()


def test_a_large_job_is_split_and_a_small_one_is_not():
    pieces = []
    pool.split(lambda start, stop: pieces.append((start, stop)), 9, pool.WORTHWHILE)
    assert sorted(pieces) == [(0, 3), (3, 6), (6, 9)]
    names = []
    pool.split(lambda start, stop: names.append(threading.current_thread()), 9, 2)
    assert names == [threading.current_thread()]


def test_an_error_comes_back():
    def run(start, stop):
        if start:
            raise ZeroDivisionError("in a thread")

    with pytest.raises(ZeroDivisionError, match="in a thread"):
        pool.split(run, 9, pool.WORTHWHILE)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_has_threads_of_its_own():
    seen = np.zeros(9, int)

    def run(start, stop):
        seen[start:stop] += 1

    pool.split(run, 9, pool.WORTHWHILE)
    child = os.fork()
    if child == 0:
        pool.split(run, 9, pool.WORTHWHILE)
        os._exit(0 if (seen == 2).all() else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_a_program_may_end_right_after_a_job():
    """A helper on its way out of C++ then met an interpreter that was going down, and the process was aborted."""
    program = "from entrenar.kernels import pool; pool.limit(3); [pool.each(id, 3) for _ in range(100)]"
    ended = [subprocess.run([sys.executable, "-c", program], check=False).returncode for _ in range(5)]
    assert ended == [0] * 5

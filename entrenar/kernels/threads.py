"""How many threads the native libraries below us use (BLAS, OpenMP, Numba)."""

from __future__ import annotations

import os
import sys

from . import pool


def set_num_threads(count: int) -> None:
    """Use ``count`` threads in BLAS, OpenMP and Numba kernels.  Raises ValueError unless 1 <= count."""
    import threadpoolctl

    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise ValueError(f"set_num_threads needs an integer of at least 1, got {count!r}")
    threadpoolctl.threadpool_limits(limits=count)
    pool.limit(count)
    if "numba" in sys.modules:
        numba = sys.modules["numba"]
        numba.set_num_threads(min(count, numba.config.NUMBA_NUM_THREADS))


def get_num_threads() -> int:
    """Threads that BLAS uses now (the machine's cores if no BLAS is loaded)."""
    import threadpoolctl

    found = [library["num_threads"] for library in threadpoolctl.threadpool_info() if library["user_api"] == "blas"]
    return max(found, default=os.cpu_count() or 1)

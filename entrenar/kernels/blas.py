"""BLAS under the library's own threads: each of them calls it for a piece, and it starts none itself.

BLAS's own pool spins for a while after every product and takes cores from the kernels; and how it cuts a product, and
so the last bits, depends on the number of its threads.  Here the pieces depend on the sizes alone.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from ..array import Array
from . import pool
from .memory import empty

ALONE = 1 << 18  # multiply-adds up to which OpenBLAS uses one thread of its own accord
PIECE = 1 << 22  # multiply-adds worth a piece of their own
PIECES = 16  # at most; fixed, as the bits depend on it


class single:
    """``with single():`` BLAS uses one thread, in the whole process, until the last such block has ended.

    Products of other threads that run meanwhile are slower for it, and right all the same.
    """

    _lock = threading.Lock()
    _depth = 0
    _before: tuple[int, ...] = ()

    def __enter__(self) -> None:
        with single._lock:
            if single._depth == 0:
                single._before = tuple(get() for get, _ in controls())
                for (_, set_), before in zip(controls(), single._before, strict=True):
                    if before != 1:
                        set_(1)
            single._depth += 1

    def __exit__(self, *exc: object) -> None:
        with single._lock:
            single._depth -= 1
            if single._depth == 0:
                for (_, set_), before in zip(controls(), single._before, strict=True):
                    if before != 1:
                        set_(before)


Control = tuple[Callable[[], int], Callable[[int], Any]]
_controls: list[Control] | None = None


def controls() -> list[Control]:
    """(number of threads, set it) of every OpenBLAS or MKL in the process that NumPy may call; found once."""
    global _controls
    if _controls is None:
        import threadpoolctl

        np.dot(np.ones(2), np.ones(2))
        found = []
        for library in threadpoolctl.ThreadpoolController().lib_controllers:
            if library.user_api == "blas":
                found.append(_fast(library))
        _controls = found
    return _controls


def _fast(library: Any) -> Control:
    """The two functions of an OpenBLAS called without a detour (0.2 us); those of threadpoolctl for any other."""
    if library.internal_api == "openblas":
        without_gil = ctypes.PyDLL(library.filepath)
        for affix in ("", "64_", "_64"):
            for prefix in ("", "scipy_"):
                get = getattr(without_gil, f"{prefix}openblas_get_num_threads{affix}", None)
                set_ = getattr(without_gil, f"{prefix}openblas_set_num_threads{affix}", None)
                if get is not None and set_ is not None:
                    get.restype, set_.argtypes, set_.restype = ctypes.c_int, [ctypes.c_int], None
                    return get, set_
    return library.get_num_threads, library.set_num_threads


def matmul(a: Array, b: Array, out: Array | None = None) -> Array:
    """np.matmul of float arrays with at least two axes, large products cut into pieces for the thread pool.

    The bits are the same for every number of threads, also those of products too small to be cut.
    """
    rows, inner, columns = a.shape[-2], a.shape[-1], b.shape[-1]
    work = rows * inner * columns
    if a.ndim > 2 or b.ndim > 2:
        return _batched(a, b, out, work)
    if out is None:
        out = empty((rows, columns), np.result_type(a, b))
    if work <= ALONE:
        return np.matmul(a, b, out=out)
    count = min(PIECES, work // PIECE)
    with single():
        if count <= 1:
            return np.matmul(a, b, out=out)
        bounds = cuts(max(rows, columns), count)
        if columns >= rows:
            pool.each(
                lambda i: np.matmul(a, b[:, bounds[i] : bounds[i + 1]], out=out[:, bounds[i] : bounds[i + 1]]),
                len(bounds) - 1,
            )
        else:
            pool.each(
                lambda i: np.matmul(a[bounds[i] : bounds[i + 1]], b, out=out[bounds[i] : bounds[i + 1]]),
                len(bounds) - 1,
            )
    return out


def _batched(a: Array, b: Array, out: Array | None, work: int) -> Array:
    """The matrices of a batch one by one, whole ranges of the first axis to a thread."""
    lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    if out is None:
        out = empty((*lead, a.shape[-2], b.shape[-1]), np.result_type(a, b))
    count = lead[0] if lead else 1
    total = work * out.size // max(1, a.shape[-2] * b.shape[-1])
    if total <= ALONE:
        return np.matmul(a, b, out=out)
    with single():
        if count == 1 or total < PIECE:
            return np.matmul(a, b, out=out)
        a, b = (np.broadcast_to(x, (*lead, *x.shape[-2:])) for x in (a, b))
        pool.each(lambda i: np.matmul(a[i], b[i], out=out[i]), count)
    return out


def cuts(size: int, count: int) -> list[int]:
    """Bounds of ``count`` pieces of an axis, in multiples of 16 elements (a vector register, a cache line)."""
    step = -(-size // count)
    step = -(-step // 16) * 16
    return [*range(0, size, step), size]

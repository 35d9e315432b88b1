"""BLAS under the library's own threads: each of them calls it for a piece, and it starts none itself.

BLAS's own pool spins for a while after every product and takes cores from the kernels; and how it cuts a product, and
so the last bits, depends on the number of its threads.  Here the pieces depend on the sizes alone.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from ..array import Array
from . import pool
from .cpp import native
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
                single._before = tuple(x.get_num_threads() for x in libraries())
                for x, before in zip(libraries(), single._before, strict=True):
                    if before != 1:
                        x.set_num_threads(1)
            single._depth += 1

    def __exit__(self, *exc: object) -> None:
        with single._lock:
            single._depth -= 1
            if single._depth == 0:
                for x, before in zip(libraries(), single._before, strict=True):
                    if before != 1:
                        x.set_num_threads(before)


class Library(NamedTuple):
    """A BLAS in this process.  gemms: addresses by dtype character, empty where it is not known to be NumPy's own."""

    get_num_threads: Callable[[], int]
    set_num_threads: Callable[[int], Any]
    gemms: Mapping[str, int] = {}
    wide: bool = False  # its integers have 64 bits


@functools.cache
def libraries() -> tuple[Library, ...]:
    """Every OpenBLAS and MKL that NumPy may call."""
    import threadpoolctl

    np.dot(np.ones(2), np.ones(2))
    found = threadpoolctl.ThreadpoolController().lib_controllers
    return tuple(_library(x) for x in found if x.user_api == "blas")


def _library(found: Any) -> Library:
    """OpenBLAS's functions called without a detour (0.2 us); those of threadpoolctl for any other."""
    if found.internal_api == "openblas":
        with_gil = ctypes.PyDLL(found.filepath)

        def function(name: str) -> Any:
            names = (f"{prefix}{name}{affix}" for affix in ("", "64_", "_64") for prefix in ("", "scipy_"))
            return next((f for f in (getattr(with_gil, n, None) for n in names) if f is not None), None)

        get, set_, config = map(
            function, ("openblas_get_num_threads", "openblas_set_num_threads", "openblas_get_config")
        )
        if get is not None and set_ is not None:
            get.restype, set_.argtypes, set_.restype = ctypes.c_int, [ctypes.c_int], None
            if config is None or "scipy.libs" in found.filepath:
                return Library(get, set_)
            config.restype = ctypes.c_char_p
            gemms = {c: function(f"cblas_{kind}gemm") for c, kind in (("f", "s"), ("d", "d"))}
            addresses = {c: ctypes.cast(f, ctypes.c_void_p).value or 0 for c, f in gemms.items() if f is not None}
            return Library(get, set_, addresses, b"USE64BITINT" in config())
    return Library(found.get_num_threads, found.set_num_threads)


@functools.cache
def _own() -> Library | None:
    return next((x for x in libraries() if x.gemms), None)


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
    count = min(PIECES, 1 << (work // PIECE).bit_length() >> 1)  # a power of 2: even shares for most machines
    with single():
        if count <= 1:
            return np.matmul(a, b, out=out)
        step = -(-max(rows, columns) // (16 * count)) * 16  # a vector register, a cache line
        own = _own()
        if native is not None and own is not None and a.dtype == b.dtype == out.dtype and out.dtype.char in own.gemms:
            a, b = _laid(a), _laid(b)
            pool.together(native.Pieces(own.gemms[out.dtype.char], own.wide, a, b, out, step))
        elif columns >= rows:
            pool.each(
                lambda i: np.matmul(a, b[:, i * step : (i + 1) * step], out=out[:, i * step : (i + 1) * step]),
                -(-columns // step),
            )
        else:
            pool.each(
                lambda i: np.matmul(a[i * step : (i + 1) * step], b, out=out[i * step : (i + 1) * step]),
                -(-rows // step),
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


def _laid(x: Array) -> Array:
    """x, or a copy of it that BLAS can read."""
    (rows, columns), (down, along), item = x.shape, x.strides, x.itemsize
    fits = (along == item and down >= columns * item) or (down == item and along >= rows * item)
    return x if fits and down % item == along % item == 0 else np.ascontiguousarray(x)

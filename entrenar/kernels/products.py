"""Matrix products: on the processor's bfloat16 units where they win (csrc/gemm.cpp), else by BLAS.

float32 operands are split into three bfloat16 numbers each and six products are added up: twice as fast as an SGEMM
on AMX, and nearer to the exact product.  Elements below 2^-110 or so lose bits (an absolute error of 2^-126); operands
with infinities, NaN or numbers of 2^127 and more go to BLAS.  bfloat16 operands are multiplied as they are, summed in
float32 and rounded once.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..array import FLOAT32, Array, is_bfloat16
from . import blas, pool
from .cpp import native
from .memory import empty

UNIT: str = native.gemm_unit() if native is not None else ""
"""What multiplies bfloat16 numbers here: "amx", "avx512" or "" (BLAS, in float32)."""

SMALL = blas.ALONE  # multiply-adds up to which nothing here is better than numpy.matmul
LARGE = 1 << 27  # and below which packing costs more than it saves
ASPECT = 192  # and the least rows * columns / (rows + columns): how often a packed number is used
PANEL = 32  # rows of a panel and numbers of a step, as csrc/panels.hpp has it
CACHE = 1 << 20  # bytes of packed B that stay in the second-level cache
CHUNK = 4096  # rows and columns that are packed at a time: bounds the memory


def matmul(a: Array, b: Array, bias: Array | None = None, dtype: Any = None) -> Array:
    """a @ b (+ bias) for at least two axes each; ``dtype`` is that of the result, by default that of the operands.

    a, b: of one float dtype; bias: (columns,), float32 for bfloat16 operands, else their dtype.
    """
    dtype = a.dtype if dtype is None else dtype
    if a.ndim == 2 and b.ndim == 2 and _worthwhile(a, b):
        # what is summed in several goes is kept in float32 meanwhile
        y = empty((len(a), b.shape[1]), dtype if a.shape[1] <= CHUNK else FLOAT32)
        if _packed(a, b, bias, y):
            return y.astype(dtype, copy=False)
    if is_bfloat16(a.dtype):
        a, b = a.astype(FLOAT32), b.astype(FLOAT32)
    y = blas.matmul(a, b)
    if bias is not None:
        pool.split(_add_rows, len(y), y.shape[-1], y, bias)
    return y.astype(dtype, copy=False)


def add_matmul(y: Array, a: Array, b: Array) -> None:
    """y += a @ b for matrices, a share of the rows at a time."""
    for i in range(0, len(a), CHUNK):
        part = y[i : i + CHUNK]
        pool.split(_add_rows, len(part), part.shape[1], part, matmul(a[i : i + CHUNK], b, dtype=y.dtype))


def _add_rows(y: Array, x: Array, start: int, stop: int) -> None:
    np.add(y[start:stop], x if x.ndim == 1 else x[start:stop], out=y[start:stop])


def _worthwhile(a: Array, b: Array) -> bool:
    (rows, inner), columns = a.shape, b.shape[1]
    large = LARGE if a.itemsize == 4 else LARGE >> 3
    if UNIT == "" or rows * inner * columns < large or rows * columns < ASPECT * (rows + columns):
        return False
    return (a.dtype == b.dtype == FLOAT32 and UNIT == "amx") or (is_bfloat16(a.dtype) and is_bfloat16(b.dtype))


def _packed(a: Array, b: Array, bias: Array | None, y: Array) -> bool:
    """y = a b (+ bias) from packed panels; False, and y unspecified, if an operand holds what a split can't."""
    for i in range(0, len(a), CHUNK):
        for k in range(0, a.shape[1], CHUNK):
            rows = _Panels(a[i : i + CHUNK, k : k + CHUNK])
            last = k + CHUNK >= a.shape[1]
            for j in range(0, b.shape[1], CHUNK):
                columns = _Panels(b[k : k + CHUNK, j : j + CHUNK].T)
                product = native.Product(
                    UNIT == "amx",
                    a.dtype == FLOAT32,
                    k > 0,
                    *(address(rows.x), rows.layout, rows.address, j == 0),
                    *(address(columns.x), columns.layout, columns.address),
                    *(address(y[i:, j:]), y.dtype != FLOAT32, y.strides[0] // y.itemsize),
                    address(bias[j:]) if bias is not None and last else 0,
                    CACHE,
                )
                if not _run(product):
                    return False
    return True


def _run(product: Any) -> bool:
    """Carry it out, by as many threads as there are."""
    fit = [True] * pool.threads()

    def run(n: int) -> None:
        fit[n] = product.run()

    pool.each(run, len(fit))
    return all(fit)


class _Panels:
    """An operand, outer axis first, and room for its packed panels."""

    __slots__ = ("address", "layout", "memory", "x")

    def __init__(self, x: Array) -> None:
        if x.itemsize not in x.strides or min(x.strides) < 0:
            x = np.ascontiguousarray(x)
        self.x = x
        self.layout = (*(s // x.itemsize for s in x.strides), *x.shape)
        panels, steps = (-(-n // PANEL) for n in x.shape)
        self.memory = empty(panels * steps * PANEL * PANEL * 2 * (3 if x.dtype == FLOAT32 else 1) + 64, np.uint8)
        self.address = -(-address(self.memory) // 64) * 64


def address(x: Array) -> int:
    """Where the first element lies."""
    return int(x.__array_interface__["data"][0])

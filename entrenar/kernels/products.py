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
    if a.ndim == 2 and b.ndim == 2 and _worthwhile(a, b):
        y = _packed(a, b, bias, a.dtype if dtype is None else dtype)
        if y is not None:
            return y
    if is_bfloat16(a.dtype):
        a, b, dtype = a.astype(FLOAT32), b.astype(FLOAT32), a.dtype if dtype is None else dtype
    y = blas.matmul(a, b)
    if bias is not None:
        pool.split(_add_rows, len(y), y.shape[-1], y, bias)
    return y if dtype is None else y.astype(dtype, copy=False)


def _add_rows(y: Array, bias: Array, start: int, stop: int) -> None:
    np.add(y[start:stop], bias, out=y[start:stop])


def _worthwhile(a: Array, b: Array) -> bool:
    (rows, inner), columns = a.shape, b.shape[1]
    large = LARGE if a.itemsize == 4 else LARGE >> 3
    if UNIT == "" or rows * inner * columns < large or rows * columns < ASPECT * (rows + columns):
        return False
    return (a.dtype == b.dtype == FLOAT32 and UNIT == "amx") or (is_bfloat16(a.dtype) and is_bfloat16(b.dtype))


def _packed(a: Array, b: Array, bias: Array | None, dtype: Any) -> Array | None:
    """The product from packed panels; None if an operand holds what a split can't."""
    y = empty((len(a), b.shape[1]), dtype)
    split = a.dtype == FLOAT32
    for i in range(0, len(a), CHUNK):
        rows = _Panels(a[i : i + CHUNK])
        for j in range(0, b.shape[1], CHUNK):
            columns = _Panels(b[:, j : j + CHUNK].T)
            product = native.Product(
                UNIT == "amx",
                split,
                *(address(rows.x), rows.layout, rows.address, j == 0),
                *(address(columns.x), columns.layout, columns.address),
                *(address(y[i:, j:]), not split and dtype != FLOAT32, y.shape[1]),
                0 if bias is None else address(bias[j:]),
                CACHE,
            )
            fit = [True] * pool.threads()

            def run(n: int, product: Any = product, fit: list[bool] = fit) -> None:
                fit[n] = product.run()

            pool.each(run, pool.threads())
            if not all(fit):
                return None
    return y


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

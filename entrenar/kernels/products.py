"""Matrix products: on the processor's bfloat16 units where they win (csrc/gemm.cpp), else by BLAS.

A few rows are multiplied at the speed of memory instead (numba/few_rows.py).

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
FEW = 8  # rows up to which numba/few_rows.py is asked first
LARGE = 1 << 23  # and below which packing costs more than it saves
ASPECT = 64  # and the least rows * columns / (rows + columns): how often a packed number is used
CHUNK, DEPTH = 2048, 3072  # what is packed in advance at a time: bounds the memory


def matmul(a: Array, b: Array, bias: Array | None = None, dtype: Any = None) -> Array:
    """a @ b (+ bias) for at least two axes each; ``dtype`` is that of the result, by default that of the operands.

    a, b: of one float dtype; bias: (columns,), float32 for bfloat16 operands, else their dtype.
    """
    dtype = a.dtype if dtype is None else dtype
    if a.ndim == 2 and b.ndim == 2 and len(a) <= FEW and a.size * b.shape[1] > SMALL:
        from .numba import few_rows  # compiled code, loaded with the first such product

        if few_rows.accepted(a, b):
            y = few_rows.product(a, b)
            if bias is not None:
                pool.add_to(y, bias)
            return y.astype(dtype, copy=False)
    if a.ndim == 2 and b.ndim == 2 and _worthwhile(a, b):
        # what is summed in several goes is kept in float32 meanwhile
        y = empty((len(a), b.shape[1]), dtype if a.shape[1] <= DEPTH else FLOAT32)
        if _packed(a, b, bias, y):
            return y.astype(dtype, copy=False)
    if is_bfloat16(a.dtype):
        a, b = a.astype(FLOAT32), b.astype(FLOAT32)
    y = blas.matmul(a, b)
    if bias is not None:
        pool.add_to(y, bias)
    return y.astype(dtype, copy=False)


def add_matmul(y: Array, a: Array, b: Array) -> None:
    """y += a @ b for matrices, a share of the rows at a time."""
    for i in range(0, len(a), CHUNK):
        pool.add_to(y[i : i + CHUNK], matmul(a[i : i + CHUNK], b, dtype=y.dtype))


def _worthwhile(a: Array, b: Array) -> bool:
    (rows, inner), columns = a.shape, b.shape[1]
    large = LARGE if a.itemsize == 4 else LARGE >> 3
    if UNIT == "" or rows * inner * columns < large or rows * columns < ASPECT * (rows + columns):
        return False
    return (a.dtype == b.dtype == FLOAT32 and UNIT == "amx") or (is_bfloat16(a.dtype) and is_bfloat16(b.dtype))


def _packed(a: Array, b: Array, bias: Array | None, y: Array) -> bool:
    """y = a b (+ bias); False, and y unspecified, if an operand holds what a split can't.

    The operand with fewer rows, or columns, is packed in advance, the other one piece by piece into the caches.
    """
    turned = len(a) < b.shape[1]
    large, small = (_laid(b.T), _laid(a)) if turned else (_laid(a), _laid(b.T))
    for k in range(0, a.shape[1], DEPTH):
        last = k + DEPTH >= a.shape[1]
        for j in range(0, len(small), CHUNK):
            first, second = large[:, k : k + DEPTH], small[j : j + CHUNK, k : k + DEPTH]
            part = slice(j, j + CHUNK)
            target = y[part] if turned else y[:, part]
            add = None if bias is None or not last else bias if turned else bias[part]
            memory = empty(native.Product.room(second), np.uint8)
            product = native.Product(UNIT == "amx", turned, k > 0, first, second, memory, target, add, pool.threads())
            pool.together(product)
            if not product.fit:
                return False
    return True


def _laid(x: Array) -> Array:
    """x, or a copy of it, with steps of one element along one axis and none backward."""
    return x if x.itemsize in x.strides and min(x.strides) >= 0 else np.ascontiguousarray(x)

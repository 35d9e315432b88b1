"""Rows of a table and, backward, their sums: each sum is one thread's, in the order of ids."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...array import Array, is_low
from .. import kernel, pool
from ..memory import empty
from .jit import floats, jit, rows
from .words import low, words


@jit
def gather_rows(ids: Any, weight: Any, y: Any, start: int, stop: int) -> None:
    """y[i] = weight[ids[i]]."""
    for i in range(start, stop):
        row, out = weight[ids[i]], y[i]
        for j in range(out.size):
            out[j] = row[j]


@jit
def sum_rows(ids: Any, values: Any, table: Any, start: int, stop: int) -> None:
    """Rows start to stop of the table: values[i] is added for one i after the other."""
    for i in range(ids.size):
        if start <= ids[i] < stop:
            out, row = table[ids[i]], values[i]
            for j in range(out.size):
                out[j] += row[j]


def inside(ids: Array, count: int) -> bool:
    """True for integers in [0, count); for others the composites have their own words."""
    return ids.dtype.kind in "iu" and ids.size > 0 and int(ids.min()) >= 0 and int(ids.max()) < count


@kernel(
    "embedding",
    backend="numba",
    when=lambda ids, weight: floats(weight) and weight.flags.carray and inside(ids, len(weight)),
)
def embedding(ids: Array, weight: Array) -> Array:
    """weight[ids]; ``when`` declines strided and read-only tables, which would be copied as a whole."""
    width = math.prod(weight.shape[1:])
    y, table = empty((ids.size, width), weight.dtype), rows(weight, width)
    pool.split(gather_rows, ids.size, width, _flat(ids), *((words(table), words(y)) if is_low(y.dtype) else (table, y)))
    return y.reshape(*ids.shape, *weight.shape[1:])


@kernel("embedding_sum", backend="numba", when=lambda ids, rows, *, count: floats(rows) and inside(ids, count))
@low()
def embedding_sum(ids: Array, values: Array, *, count: int) -> Array:
    """Added up in zeros."""
    table = empty((count, values.shape[-1]), values.dtype)
    pool.split(_clear, *table.shape, table)
    add_rows(table, ids, values)
    return table


@kernel("embedding.into", backend="numba", when=lambda total, ids, values: floats(total, values))
def add_rows(total: Array, ids: Array, values: Array) -> None:
    """Added up in ``total``, a table in C order: a piece of it per thread, with as many ids as the others have."""
    count, width = total.shape
    ids, values = _flat(ids), rows(values, width)
    pieces = pool.threads() if values.size >= pool.WORTHWHILE else 1
    done = np.cumsum(np.bincount(ids, minlength=count))
    ends = [0, *np.searchsorted(done, done[-1] * np.arange(1, pieces) // pieces).tolist(), count]
    pool.each(lambda i: sum_rows(ids, values, total, ends[i], ends[i + 1]), pieces)


def _clear(table: Array, start: int, stop: int) -> None:
    table[start:stop] = 0


def _flat(ids: Array) -> Array:
    return np.ascontiguousarray(ids, np.int64).reshape(-1)

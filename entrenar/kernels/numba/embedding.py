"""Rows of a table and, backward, their sums: threads share the columns, so each sum is taken in the order of ids."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...array import Array
from .. import kernel
from ..memory import empty
from ..pool import split
from .jit import floats, jit, rows

COLUMNS = 16  # threads get multiples of this: whole cache lines of float32


@jit
def gather_rows(ids: Any, weight: Any, y: Any, start: int, stop: int) -> None:
    """y[i] = weight[ids[i]]."""
    for i in range(start, stop):
        row, out = weight[ids[i]], y[i]
        for j in range(out.size):
            out[j] = row[j]


@jit
def zero_rows(table: Any, start: int, stop: int) -> None:
    """Rows start to stop = 0."""
    table[start:stop] = table.dtype.type(0)


@jit
def add_columns(ids: Any, values: Any, table: Any, start: int, stop: int) -> None:
    """table[ids[i]] += values[i] for one i after the other, in blocks start to stop of the columns."""
    low, high = COLUMNS * start, min(COLUMNS * stop, table.shape[1])
    for i in range(ids.size):
        out, row = table[ids[i], low:high], values[i, low:high]
        for j in range(out.size):
            out[j] += row[j]


def inside(ids: Array, count: int) -> bool:
    """True for integers in [0, count); for others the composites have their own words."""
    return ids.dtype.kind in "iu" and ids.size > 0 and int(ids.min()) >= 0 and int(ids.max()) < count


@kernel(
    "embedding",
    backend="numba",
    when=lambda ids, weight: floats(weight) and weight.flags.c_contiguous and inside(ids, len(weight)),
)
def embedding(ids: Array, weight: Array) -> Array:
    """weight[ids]; ``when`` declines a strided table, which would be copied as a whole."""
    width = math.prod(weight.shape[1:])
    y = empty((ids.size, width), weight.dtype)
    split(gather_rows, ids.size, width, _flat(ids), rows(weight, width), y)
    return y.reshape(*ids.shape, *weight.shape[1:])


@kernel("embedding_sum", backend="numba", when=lambda ids, rows, *, count: floats(rows) and inside(ids, count))
def embedding_sum(ids: Array, values: Array, *, count: int) -> Array:
    """Zeros, to which rows are added."""
    width = values.shape[-1]
    table = empty((count, width), values.dtype)
    split(zero_rows, count, width, table)
    split(add_columns, -(-width // COLUMNS), ids.size * COLUMNS, _flat(ids), rows(values, width), table)
    return table


def _flat(ids: Array) -> Array:
    return np.ascontiguousarray(ids, np.int64).reshape(-1)

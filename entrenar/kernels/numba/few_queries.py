"""The loops of attention for a few queries at many keys, as in generating.

Keys and values are read once, where they lie.  Nothing is packed: with so few rows that would take
longer than using it.  ``attention.py`` says what is computed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from .attention_rows import mask, seen
from .few_rows import add, add_eight, dot, dots
from .jit import OPTIONS, exp, row_max, total, wide
from .tiles import bare


@njit(**OPTIONS, inline="always")  # a function compiled without reference counts returns no slice
def line(a: Any, which: int, r: int, columns: int) -> Any:
    """Row r of a matrix."""
    at = a.begin[which] + r * a.step
    return a.memory[at : at + columns]


@bare
def few_scores(size: Any, q: Any, k: Any, shared: int, low: int, high: int, s: Any) -> None:
    """s = q k^T for the rows of q that use one head of k."""
    wide()
    rows = len(q)
    whole = rows // 4 * 4
    for j in range(low, high):
        x = line(k, shared, j, size.width)
        for i in range(0, whole, 4):
            s[i, j], s[i + 1, j], s[i + 2, j], s[i + 3, j] = dots(q[i], q[i + 1], q[i + 2], q[i + 3], x)
        for i in range(whole, rows):
            s[i, j] = dot(q[i], x)


@bare
def few_values(size: Any, s: Any, v: Any, shared: int, low: int, high: int, y: Any) -> None:
    """y += s v over keys low to high, for the same rows."""
    wide()
    n, whole = size.values, low + (high - low) // 8 * 8
    for j in range(low, whole, 8):
        v0, v1, v2, v3 = (
            line(v, shared, j, n),
            line(v, shared, j + 1, n),
            line(v, shared, j + 2, n),
            line(v, shared, j + 3, n),
        )
        v4, v5, v6, v7 = (
            line(v, shared, j + 4, n),
            line(v, shared, j + 5, n),
            line(v, shared, j + 6, n),
            line(v, shared, j + 7, n),
        )
        for i in range(len(y)):
            add_eight(y[i], s[i, j : j + 8], v0, v1, v2, v3, v4, v5, v6, v7)
    for j in range(whole, high):
        for i in range(len(y)):
            add(y[i], s[i, j], line(v, shared, j, n))


@bare
def attend_few(
    size: Any, q: Any, k: Any, v: Any, bias: Any, see: Any, s: Any, sums: Any, y: Any, lse: Any, start: int, stop: int
) -> None:
    """y and lse of the rows of q that use heads start to stop of k and v.

    q: scaled, a row per head and query.  s, sums: room for scores and for results, a row for each of q.
    """
    wide()
    zero, nothing = s.dtype.type(0), s.dtype.type(-np.inf)
    many = size.share * size.rows
    low, high = seen(size, 0, size.rows - 1)
    for shared in range(start, stop):
        begin, end = shared * many, (shared + 1) * many
        few_scores(size, q[begin:end], k, shared, low, high, s[begin:end])
        sums[begin:end] = zero
        for i in range(begin, end):
            head, r = i // size.rows, i % size.rows
            first, last = seen(size, r, r)
            mask(s[i, first:last], bias, see, head, r, first)
            s[i, low:first] = nothing
            s[i, last:high] = nothing
            row = s[i, low:high]
            top = row_max(row)
            if top == nothing:
                top = zero
            for j in range(row.size):
                row[j] = exp(row[j] - top)
            lse[i] = np.log(total(row)) + top
        few_values(size, s[begin:end], v, shared, low, high, sums[begin:end])
        for i in range(begin, end):
            of = total(s[i, low:high])
            over = s.dtype.type(1) / of if of != zero else zero
            out, source = line(y, i // size.rows, i % size.rows, size.values), sums[i]
            for c in range(out.size):
                out[c] = source[c] * over

"""The loops of attention over heads, blocks of rows and rows; ``attention.py`` says what they compute.

Row r of a head sees the keys r + offset - behind < j < r + offset + ahead; tiles outside of that are never computed.
A row's part of a buffer is cut out first: a loop from 0 over a slice runs in vector registers, one from a number that
might be negative doesn't (Numba counts negative indices from the end).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .jit import dot, exp, row_max, total, wide as wide_registers
from .tiles import ROWS, bare, pack, pack_panels, tile, unpack, up


class Sizes(NamedTuple):
    """Rows and keys of a head; columns of q and v; heads of q per head of k; what a row sees; and how to go about it.

    height: rows per block.  line: elements from one row of scores to the next.  columns: of a tile.
    """

    rows: int
    keys: int
    width: int
    values: int
    share: int
    offset: int
    behind: int
    ahead: int
    height: int
    line: int
    columns: int


@bare
def seen(size: Any, first: int, last: int) -> Any:
    """(low, high): keys that any of the rows from first to last sees."""
    low = min(max(0, first + size.offset - size.behind + 1), size.keys)
    return low, max(min(size.keys, last + size.offset + size.ahead), low)


# products of a block ------------------------------------------------------------------------------------------
@bare
def to_scores(size: Any, first: int, rows: int, a: Any, wide: int, panels: Any, depth: int, out: Any) -> None:
    """out = a b^T where a row sees a key: a packed rows, b panels of ``depth`` rows."""
    low, high = seen(size, first, first + rows - 1)
    for j in range(low // size.columns * size.columns, high, size.columns):
        for r in range(0, rows, ROWS):
            start, stop = seen(size, first + r, min(first + r + ROWS, first + rows) - 1)
            if j < stop and j + size.columns > start:
                tile(
                    out,
                    r * size.line + j,
                    size.line,
                    a,
                    r * wide,
                    wide,
                    1,
                    panels,
                    j * depth,
                    size.columns,
                    depth,
                    False,
                )


@bare
def from_scores(size: Any, first: int, rows: int, s: Any, b: Any, wide: int, out: Any) -> None:
    """out = s b over the keys that are seen: b and out packed rows."""
    for c in range(0, wide, size.columns):
        for r in range(0, rows, ROWS):
            j, stop = seen(size, first + r, min(first + r + ROWS, first + rows) - 1)
            tile(out, r * wide + c, wide, s, r * size.line + j, size.line, 1, b, j * wide + c, wide, stop - j, False)


@bare
def to_keys(size: Any, first: int, rows: int, s: Any, b: Any, wide: int, out: Any) -> None:
    """out += s^T b over the tiles of rows that see a key: b and out packed rows."""
    low, high = seen(size, first, first + rows - 1)
    for j in range(low // ROWS * ROWS, high, ROWS):
        start = max(0, j - size.offset - size.ahead + 1 - first) // ROWS * ROWS
        stop = min(rows, up(j + ROWS - 1 - size.offset + size.behind - first, ROWS))
        at, depth = start * size.line + j, stop - start
        for c in range(0, wide, size.columns):
            tile(out, j * wide + c, wide, s, at, 1, size.line, b, start * wide + c, wide, depth, True)


# rows ---------------------------------------------------------------------------------------------------------
@bare
def row_bounds(size: Any, first: int, rows: int, r: int) -> Any:
    """Of row r of a block: the keys it sees, and the wider part of its scores, whole registers, that products read."""
    low, high = seen(size, first + r, first + r)
    tile_first = first + r // ROWS * ROWS
    start, stop = seen(size, tile_first, min(tile_first + ROWS, first + rows) - 1)
    return low, high, start // size.columns * size.columns, up(stop, size.columns)


@bare
def hide(row: Any, low: int, high: int, start: int, stop: int, value: Any) -> None:
    """Set what a row does not see."""
    row[start:low] = value
    row[high:stop] = value


@bare
def mask(row: Any, bias: Any, see: Any, head: int, r: int, low: int) -> None:
    """Add to scores, or make them -inf."""
    if bias.memory.size:
        at = bias.begin[head] + r * bias.step + low
        add = bias.memory[at : at + row.size]
        for j in range(row.size):
            row[j] += add[j]
    if see.memory.size:
        choose(row, see, head, r, low, row.dtype.type(-np.inf))


@bare
def choose(row: Any, which: Any, head: int, r: int, low: int, other: Any) -> None:
    """Set the elements that are not chosen."""
    at = which.begin[head] + r * which.step + low
    chosen = which.memory[at : at + row.size]
    for j in range(row.size):
        row[j] = row[j] if chosen[j] else other


@bare
def softmax(
    size: Any,
    first: int,
    rows: int,
    s: Any,
    lse: Any,
    over: Any,
    head: int,
    bias: Any,
    see: Any,
    keep: Any,
    factor: Any,
) -> None:
    """Scores to dropped-out e**(score - max), in place; ``over``, times these, are the probabilities.

    lse: the log of each row's sum of exponentials.
    """
    wide_registers()
    zero = s.dtype.type(0)
    for r in range(rows):
        low, high, start, stop = row_bounds(size, first, rows, r)
        whole = s[r * size.line : r * size.line + size.line]
        mask(whole[low:high], bias, see, head, first + r, low)
        hide(whole, low, high, start, stop, s.dtype.type(-np.inf))
        row = whole[start:stop]
        top = row_max(row)
        if top == -np.inf:
            top = zero
        for j in range(row.size):
            row[j] = exp(row[j] - top)
        sum_ = total(row)
        lse[head * size.rows + first + r] = np.log(sum_) + top
        over[r] = factor / sum_ if sum_ != zero else zero
        if keep.memory.size:
            choose(whole[low:high], keep, head, first + r, low, zero)


@bare
def scale_rows(a: Any, wide: int, rows: int, scales: Any) -> None:
    """Packed rows times a number each."""
    for r in range(rows):
        row, scale = a[r * wide : r * wide + wide], scales[r]
        for c in range(row.size):
            row[c] *= scale


@bare
def softmax_vjp(
    size: Any, first: int, rows: int, s: Any, d: Any, lse: Any, head: int, bias: Any, see: Any, keep: Any, factor: Any
) -> None:
    """In place: scores to what was kept of the probabilities, cotangents d of that to cotangents of the scores."""
    wide_registers()
    zero = s.dtype.type(0)
    for r in range(rows):
        low, high, start, stop = row_bounds(size, first, rows, r)
        whole, dwhole = s[r * size.line : r * size.line + size.line], d[r * size.line : r * size.line + size.line]
        row, drow = whole[start:stop], dwhole[start:stop]
        shift = lse[head * size.rows + first + r]
        if shift == -np.inf:  # nothing to see: the output was zeros
            row[:] = zero
            drow[:] = zero
            continue
        mask(whole[low:high], bias, see, head, first + r, low)
        hide(whole, low, high, start, stop, s.dtype.type(-np.inf))
        hide(dwhole, low, high, start, stop, zero)
        end = min(stop, size.keys)
        if keep.memory.size:
            choose(dwhole[start:end], keep, head, first + r, start, zero)
        for j in range(row.size):
            row[j] = exp(row[j] - shift)
        sum_ = dot(row, drow)
        if shift == shift or drow.any():  # in a NaN row too a zero cotangent gives zeros
            for j in range(row.size):
                drow[j] = row[j] * (drow[j] - sum_)
        if sum_ - sum_ != zero:  # what is not seen is 0 but for the NaN or infinity
            hide(dwhole, low, high, start, stop, zero)
            if see.memory.size:
                choose(dwhole[low:high], see, head, first + r, low, zero)
        if keep.memory.size:
            choose(whole[start:end], keep, head, first + r, start, zero)


# heads --------------------------------------------------------------------------------------------------------
@bare
def attend(
    size: Any,
    q: Any,
    k: Any,
    v: Any,
    bias: Any,
    see: Any,
    keep: Any,
    scale: Any,
    factor: Any,
    y: Any,
    lse: Any,
    scratch: Any,
    head: int,
    last_head: int,
    begin: int,
    end: int,
) -> None:
    """y and lse of rows ``begin`` to ``end`` of some heads of q."""
    keys, panels, values, s, block, out, over = scratch
    wide, other = up(size.width, size.columns), up(size.values, size.columns)
    high = seen(size, begin, end - 1)[1]
    one, packed = s.dtype.type(1), -1
    for h in range(head, last_head):
        if h // size.share != packed:
            packed = h // size.share
            pack(k, packed, 0, high, size.width, one, keys, wide)
            pack_panels(keys, wide, high, size.width, size.columns, panels)
            pack(v, packed, 0, high, size.values, one, values, other)
        for first in range(begin, end, size.height):
            rows = min(size.height, end - first)
            pack(q, h, first, rows, size.width, scale, block, wide)
            to_scores(size, first, rows, block, wide, panels, size.width, s)
            softmax(size, first, rows, s, lse, over, h, bias, see, keep, factor)
            from_scores(size, first, rows, s, values, other, out)
            scale_rows(out, other, rows, over)
            unpack(out, other, rows, size.values, one, y, h, first)


@bare
def attend_vjp(
    size: Any,
    g: Any,
    q: Any,
    k: Any,
    v: Any,
    bias: Any,
    see: Any,
    keep: Any,
    scale: Any,
    factor: Any,
    lse: Any,
    gq: Any,
    gk: Any,
    gv: Any,
    scratch: Any,
    head: int,
    last_head: int,
) -> None:
    """Cotangents of some heads of k and v and of the heads of q that share them."""
    keys, panels, values, s, block, out, gvalues, d, gblock, gkeys, packed = scratch
    wide, other = up(size.width, size.columns), up(size.values, size.columns)
    zero, one = s.dtype.type(0), s.dtype.type(1)
    for shared in range(head, last_head):
        pack(k, shared, 0, size.keys, size.width, one, keys, wide)
        pack_panels(keys, wide, size.keys, size.width, size.columns, panels)
        pack(v, shared, 0, size.keys, size.values, one, packed, other)
        pack_panels(packed, other, size.keys, size.values, size.columns, values)
        gkeys[:] = zero
        gvalues[:] = zero
        for h in range(shared * size.share, (shared + 1) * size.share):
            for first in range(0, size.rows, size.height):
                rows = min(size.height, size.rows - first)
                pack(q, h, first, rows, size.width, scale, block, wide)
                pack(g, h, first, rows, size.values, factor, gblock, other)
                to_scores(size, first, rows, block, wide, panels, size.width, s)
                to_scores(size, first, rows, gblock, other, values, size.values, d)
                softmax_vjp(size, first, rows, s, d, lse, h, bias, see, keep, factor)
                from_scores(size, first, rows, d, keys, wide, out)
                unpack(out, wide, rows, size.width, scale, gq, h, first)
                to_keys(size, first, rows, s, gblock, other, gvalues)
                to_keys(size, first, rows, d, block, wide, gkeys)
        unpack(gkeys, wide, size.keys, size.width, one, gk, shared, 0)
        unpack(gvalues, other, size.keys, size.values, one, gv, shared, 0)

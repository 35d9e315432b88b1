"""Attention in blocks of rows: the scores of a block live in one small buffer and only the log-sum of each row is kept.

Dao et al. 2022 (FlashAttention), section 3, with the two matrix products of a block left to BLAS.  Backward computes
the scores again: P = e**(S - lse), dV = P^T g, dP = g V^T, dS = P (dP - rowsum(P dP)), dQ = dS K, dK = dS^T Q.  Keys
that no row of a block can see are skipped.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from ...array import Array
from .. import kernel
from ..pool import split
from .jit import contiguous, dot, exp, floats, jit, row_max, total

BUFFER = 1 << 19  # scores per block: 2 MiB of float32 stay in the second-level cache
LARGE = 1 << 62


@jit
def drop(row: Any, keep: Any, factor: Any) -> None:
    """row times factor where kept, else 0."""
    zero = row.dtype.type(0)
    for j in range(row.size):
        row[j] = row[j] * factor if keep[j] else zero


# Row r of a head sees the keys r + first - behind < j < r + first + ahead.  That part of a row is cut out first: a loop
# from 0 over a slice runs in vector registers, one from a number that might be negative doesn't (Numba counts negative
# indices from the end).
@jit
def attend_rows(
    s: Any, lse: Any, keep: Any, factor: Any, first: int, behind: int, ahead: int, start: int, stop: int
) -> None:
    """Scores to dropped-out probabilities, in place; lse is the log of each row's sum of exponentials."""
    zero = s.dtype.type(0)
    one = s.dtype.type(1)
    heights, keys = s.shape[1], s.shape[2]
    for i in range(start, stop):
        head, r = i // heights, i % heights
        low = min(max(0, r + first - behind + 1), keys)
        high = max(min(keys, r + first + ahead), low)
        s[head, r, :low] = zero
        s[head, r, high:] = zero
        row = s[head, r, low:high]
        top = row_max(row)
        if top == -np.inf:
            top = zero
        for j in range(row.size):
            row[j] = exp(row[j] - top)
        sum_ = total(row)
        lse[head, r] = np.log(sum_) + top
        over = one if sum_ == zero else one / sum_
        for j in range(row.size):
            row[j] *= over
        if sum_ != sum_:  # NaN, which the composite has in all of the row
            low, high = 0, keys
            s[head, r] = sum_
        if keep.size:
            drop(s[head, r, low:high], keep[head, r, low:high], factor)


@jit
def attend_rows_vjp(
    s: Any, d: Any, lse: Any, keep: Any, factor: Any, first: int, behind: int, ahead: int, start: int, stop: int
) -> None:
    """In place: scores to dropped-out probabilities, the cotangents d of these to cotangents of the scores."""
    zero = s.dtype.type(0)
    heights, keys = s.shape[1], s.shape[2]
    for i in range(start, stop):
        head, r = i // heights, i % heights
        low = min(max(0, r + first - behind + 1), keys)
        high = max(min(keys, r + first + ahead), low)
        shift = lse[head, r]
        if shift == -np.inf:  # nothing to see: the output was zeros
            high = low
        s[head, r, :low] = zero
        s[head, r, high:] = zero
        d[head, r, :low] = zero
        d[head, r, high:] = zero
        row, drow = s[head, r, low:high], d[head, r, low:high]
        if keep.size:
            drop(drow, keep[head, r, low:high], factor)
        for j in range(row.size):
            row[j] = exp(row[j] - shift)
        sum_ = dot(row, drow)
        if shift == shift or drow.any():  # in a NaN row too a zero cotangent gives zeros
            for j in range(row.size):
                drow[j] = row[j] * (drow[j] - sum_)
        if shift != shift:
            low, high = 0, keys
            s[head, r] = shift
        if keep.size:
            drop(s[head, r, low:high], keep[head, r, low:high], factor)


class Block(NamedTuple):
    """Some heads of one batch entry and some of their rows; ``keys`` are those that any of the rows can see."""

    batch: int
    heads: slice
    rows: slice
    keys: slice


class Plan:
    """The arrays as (batch, heads of k, heads of q per head of k, rows, columns), and how they are cut into blocks."""

    def __init__(
        self,
        q: Array,
        k: Array,
        v: Array,
        mask: Array | None,
        keep: Array | None,
        scale: float,
        causal: bool,
        window: int | None,
        offset: int,
        dropout: float,
    ) -> None:
        heads = k.shape[-3] if k.ndim > 2 else 1
        self.share = (q.shape[-3] if q.ndim > 2 else 1) // heads
        self.q, self.k, self.v = (self.apart(a, heads) for a in (q * q.dtype.type(scale), k, v))
        self.rows, self.keys, self.heads = q.shape[-2], k.shape[-2], heads
        full = (*q.shape[:-1], self.keys)
        self.mask = None if mask is None else self.apart(np.broadcast_to(mask, full), heads)
        self.keep = None if keep is None else self.apart(np.broadcast_to(keep, full), heads)
        self.factor = q.dtype.type(1 / (1 - dropout) if dropout < 1 else 0)
        self.behind = LARGE if window is None else window
        self.ahead = 1 if causal else self.behind
        self.offset = offset
        # rows per block, then heads per block, as many as the buffer holds
        high = self.rows if self.ahead == LARGE else 256
        self.height = max(1, min(self.rows, BUFFER // (self.share * self.keys), high))
        self.several = max(1, min(heads, BUFFER // (self.share * self.keys * self.height)))

    @staticmethod
    def apart(a: Array, heads: int) -> Array:
        """A view where the layout allows it."""
        return a.reshape(-1, heads, max(1, (a.shape[-3] if a.ndim > 2 else 1) // heads), *a.shape[-2:])

    def blocks(self) -> Iterator[Block]:
        """Blocks that cover every row of every head once."""
        for n in range(len(self.q)):
            for h in range(0, self.heads, self.several):
                for i in range(0, self.rows, self.height):
                    last = min(i + self.height, self.rows)
                    low = min(max(0, i + self.offset - self.behind + 1), self.keys)
                    high = max(min(self.keys, last - 1 + self.offset + self.ahead), low)
                    yield Block(n, slice(h, min(h + self.several, self.heads)), slice(i, last), slice(low, high))

    def buffer(self) -> Array:
        """Room for the scores of the largest block."""
        return np.empty(self.several * self.share * self.height * self.keys, self.q.dtype)

    def view(self, buffer: Array, at: Block) -> Array:
        """The buffer in the shape of a block's scores."""
        shape = (at.heads.stop - at.heads.start, self.share, at.rows.stop - at.rows.start, at.keys.stop - at.keys.start)
        return buffer[: math.prod(shape)].reshape(shape)

    def scores(self, at: Block, buffer: Array) -> Array:
        """scale q k^T of a block, masked, in the buffer."""
        n, h, i, j = at
        s = np.matmul(self.q[n, h, :, i], self.k[n, h, :, j].swapaxes(-1, -2), out=self.view(buffer, at))
        if self.mask is not None:
            mask = self.mask[n, h, :, i, j]
            if mask.dtype.kind == "b":
                np.copyto(s, -np.inf, where=~mask)
            else:
                s += mask
        return s

    def run(self, kernel: Any, at: Block, lse: Array, *scores: Array) -> None:
        """A row kernel over the scores of a block."""
        n, h, i, j = at
        heads, height, keys = (h.stop - h.start) * self.share, i.stop - i.start, j.stop - j.start
        logs = lse[n, h, :, i].reshape(heads, height)
        keep = NOTHING if self.keep is None else self.keep[n, h, :, i, j].reshape(heads, height, keys).view(np.uint8)
        split(
            kernel,
            heads * height,
            keys,
            *(s.reshape(heads, height, keys) for s in scores),
            logs,
            contiguous(keep),
            self.factor,
            i.start + self.offset - j.start,
            self.behind,
            self.ahead,
        )
        lse[n, h, :, i] = logs.reshape(-1, self.share, height)


NOTHING = np.empty((0, 0, 0), np.uint8)


def accepted(
    q: Array,
    k: Array,
    v: Array,
    mask: Array | None,
    keep: Array | None,
    *,
    scale: float,
    causal: bool,
    window: int | None,
    offset: int,
    dropout: float,
) -> bool:
    """Batch axes are alike, heads of k and v divide those of q; a float mask has q's dtype."""
    if not floats(q, k, v) or not q.ndim == k.ndim == v.ndim >= 2:
        return False
    if k.shape[:-1] != v.shape[:-1] or q.shape[-1] != k.shape[-1]:
        return False
    if mask is not None and mask.dtype.kind != "b" and mask.dtype != q.dtype:
        return False
    return q.ndim == 2 or bool(q.shape[:-3] == k.shape[:-3] and q.shape[-3] % k.shape[-3] == 0)


@kernel("attention", backend="numba", when=accepted, saves=("lse",))
def attention(
    q: Array,
    k: Array,
    v: Array,
    mask: Array | None,
    keep: Array | None,
    *,
    scale: float,
    causal: bool,
    window: int | None,
    offset: int,
    dropout: float,
) -> Any:
    """softmax(scale q k^T, masked) v."""
    plan = Plan(q, k, v, mask, keep, scale, causal, window, offset, dropout)
    y = np.empty_like(plan.q, shape=(*plan.q.shape[:-1], v.shape[-1]))  # in memory order of q
    lse, buffer = np.empty(plan.q.shape[:-1], q.dtype), plan.buffer()
    for at in plan.blocks():
        p = plan.scores(at, buffer)
        plan.run(attend_rows, at, lse, p)
        np.matmul(p, plan.v[at.batch, at.heads, :, at.keys], out=y[at.batch, at.heads, :, at.rows])
    return y.reshape(*q.shape[:-1], v.shape[-1]), lse


@kernel("attention.vjp", backend="numba", when=lambda needs, **_: not needs[3])
def attention_vjp(
    g: Array,
    q: Array,
    k: Array,
    v: Array,
    mask: Array | None,
    keep: Array | None,
    lse: Array,
    *,
    scale: float,
    causal: bool,
    window: int | None,
    offset: int,
    dropout: float,
    needs: tuple[bool, ...],
) -> Any:
    """Cotangents of q, k and v, block by block."""
    plan = Plan(q, k, v, mask, keep, scale, causal, window, offset, dropout)
    g = plan.apart(g, plan.heads)
    gq, gk, gv = np.empty_like(plan.q), np.zeros_like(plan.k), np.zeros_like(plan.v)
    buffers = plan.buffer(), plan.buffer()
    for at in plan.blocks():
        n, h, i, j = at
        p = plan.scores(at, buffers[0])
        d = np.matmul(g[n, h, :, i], plan.v[n, h, :, j].swapaxes(-1, -2), out=plan.view(buffers[1], at))
        plan.run(attend_rows_vjp, at, lse, p, d)
        if plan.mask is not None and plan.mask.dtype.kind == "b":  # zero already, but in rows with a NaN
            np.copyto(d, 0, where=~plan.mask[n, h, :, i, j])
        np.matmul(d, plan.k[n, h, :, j], out=gq[n, h, :, i])
        gv[n, h, :, j] += np.matmul(p.swapaxes(-1, -2), g[n, h, :, i]).sum(1, keepdims=True)
        gk[n, h, :, j] += np.matmul(d.swapaxes(-1, -2), plan.q[n, h, :, i]).sum(1, keepdims=True)
    gq *= q.dtype.type(scale)
    return gq.reshape(q.shape), gk.reshape(k.shape), gv.reshape(v.shape), None, None

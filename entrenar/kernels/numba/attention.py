"""Attention in blocks of rows: the scores of a block live in one small buffer and only the log-sum of each row is kept.

Dao et al. 2022 (FlashAttention), section 3.  Backward computes the scores again: P = e**(S - lse), dV = P^T g,
dP = g V^T, dS = P (dP - rowsum(P dP)), dQ = dS K, dK = dS^T Q.  Tiles of keys that no row can see are skipped.

A piece of work is some rows of a head forward, a head of k and v with all its rows backward: sums are added up in one
order and are the same bits for any number of threads.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from ...array import Array, is_low
from .. import kernel
from ..memory import empty
from ..pool import each, split
from .attention_rows import Sizes, attend, attend_vjp
from .few_queries import attend_few
from .jit import floats
from .tiles import ROWS, Matrices, columns, up
from .words import low, narrowed, widened, words

PIECE = 512  # rows of a piece forward: it packs the keys for itself
HEIGHT = 64  # rows of a block
BUFFER = 1 << 18  # scores of a block, at most: 1 MiB of float32 stay in the second-level cache
FEW = 16  # queries at most that use keys without packing them, if there are more than 16 times as many of these
LARGE = 1 << 62
NONE = np.zeros(0, np.int64)


def matrices(a: Array, shape: tuple[int, ...] | None = None) -> Matrices:
    """The last two axes of a, broadcast to ``shape`` if given, as matrices in flat memory.

    A view if elements of a row are adjacent and nothing runs backwards.  Never of read-only memory, for which Numba
    would compile everything again.
    """
    size = a.itemsize
    if not a.flags.writeable or a.strides[-1] != size or any(s < 0 or s % size for s in a.strides):
        a = np.array(a, order="C")
    span = 1 + sum([(n - 1) * s for n, s in zip(a.shape, a.strides, strict=True)]) // size
    wide = a if shape is None else np.broadcast_to(a, shape)
    *steps, step, _ = (s // size for s in wide.strides)
    return Matrices(np.lib.stride_tricks.as_strided(a, (span,), (size,)), begins(wide.shape[:-2], tuple(steps)), step)


@lru_cache(maxsize=64)
def begins(counts: tuple[int, ...], steps: tuple[int, ...]) -> Array:
    """Where the matrices of an array begin, from the lengths and strides of its leading axes."""
    at = np.zeros(1, np.int64)
    for count, step in zip(counts, steps, strict=True):
        at = np.add.outer(at, np.arange(count) * step).ravel()
    return at


def per_score(a: Array | None, full: tuple[int, ...], dtype: Any) -> Matrices:
    """Something that broadcasts to the scores; no memory for None."""
    if a is None:
        return Matrices(np.empty(0, dtype), NONE, 0)
    if a.ndim == 0 or a.shape[-1] != full[-1]:  # the keys of a row have to be adjacent
        a = np.broadcast_to(a, (*a.shape[:-1], full[-1]))
    return matrices(a, full)


def across(a: Array, width: int) -> Array:
    """An array for rows of that width beside those of ``a``, its heads next to each other in memory.

    So the heads of y are one row of the projection that follows, and nobody has to copy them there.
    """
    if a.ndim == 2:
        return empty((len(a), width), a.dtype)
    *batch, heads, rows, _ = a.shape
    return empty((*batch, rows, heads, width), a.dtype).swapaxes(-2, -3)


class Plan:
    """The arrays as the loops take them, the pieces of work, and the buffers of a thread."""

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
        rows, keys = q.shape[-2:-1] + k.shape[-2:-1]
        self.heads, self.shared = (math.prod(a.shape[:-2]) for a in (q, k))
        behind = LARGE if window is None else window
        tile = columns(q.itemsize)
        self.size = Sizes(
            rows=rows,
            keys=keys,
            width=q.shape[-1],
            values=v.shape[-1],
            share=self.heads // self.shared,
            offset=offset,
            behind=behind,
            ahead=1 if causal else behind,
            height=up(max(1, min(rows, HEIGHT, BUFFER // keys)), ROWS),
            line=up(keys, tile) + tile,  # rarely a power of two, so that rows spread over the sets of the cache
            columns=tile,
        )
        full = (*q.shape[:-1], keys)
        boolean = mask is not None and mask.dtype.kind == "b"
        self.inputs = (
            *(matrices(a) for a in (q, k, v)),
            per_score(None if boolean else mask, full, q.dtype),
            per_score(mask if boolean else None, full, np.bool_),
            per_score(keep, full, np.bool_),
            q.dtype.type(scale),
            q.dtype.type(1 if keep is None else 1 / (1 - dropout) if dropout < 1 else 0),
        )
        self.dtype, self.local = q.dtype, threading.local()

    def each(self, run: Callable[..., None], pieces: list[tuple[int, ...]], *sizes: int) -> None:
        """``run(buffers, *piece)`` for every piece by whichever thread is free, with buffers of those sizes."""
        line = 64 // self.dtype.itemsize
        lengths = [up(size, line) for size in sizes]
        ends = np.cumsum(lengths)

        def one(i: int) -> None:
            if not hasattr(self.local, "buffers"):
                whole = empty(ends[-1] + line, self.dtype)
                whole = whole[-whole.ctypes.data % 64 // whole.itemsize :]  # from the beginning of a cache line
                self.local.buffers = tuple(whole[e - n : e] for e, n in zip(ends, lengths, strict=True))
            run(self.local.buffers, *pieces[i])

        each(one, len(pieces))

    def buffers(self) -> tuple[int, ...]:
        """Sizes for both directions: keys, their panels and values; scores, queries and results of a block."""
        size = self.size
        wide, other = up(size.width, size.columns), up(size.values, size.columns)
        keys, widest = up(up(size.keys, size.columns), ROWS), max(wide, other)
        return (keys * wide, keys * size.width, keys * other, *(size.height * n for n in (size.line, wide, widest)))


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
    rows, keys = q.shape[-2], k.shape[-2]
    if keep is None and rows <= FEW and rows * 16 < keys:
        return few(q, k, v, mask, scale=scale, causal=causal, window=window, offset=offset)
    return blocks(q, k, v, mask, keep, scale=scale, causal=causal, window=window, offset=offset, dropout=dropout)


def few(
    q: Array,
    k: Array,
    v: Array,
    mask: Array | None,
    *,
    scale: float,
    causal: bool,
    window: int | None,
    offset: int,
) -> Any:
    """The same for a few queries, which use keys and values where they lie, 16-bit ones too."""
    dtype, (rows, width), (keys, values) = q.dtype, q.shape[-2:], v.shape[-2:]
    if is_low(dtype):
        q, k, v = widened(q), words(k), words(v)
        mask = widened(mask) if mask is not None and mask.dtype == dtype else mask
    heads, shared = (math.prod(a.shape[:-2]) for a in (q, k))
    behind = LARGE if window is None else window
    ahead = 1 if causal else behind
    size = Sizes(rows, keys, width, values, heads // shared, offset, behind, ahead, height=rows, line=keys, columns=1)
    full = (*q.shape[:-1], keys)
    boolean = mask is not None and mask.dtype.kind == "b"
    y, lse = across(q, values), np.empty(heads * rows, q.dtype)
    split(
        attend_few,
        shared,
        size.share * rows * keys * (width + values),
        size,
        np.multiply(q, q.dtype.type(scale), order="C").reshape(heads * rows, width),
        matrices(k),
        matrices(v),
        per_score(None if boolean else mask, full, q.dtype),
        per_score(mask if boolean else None, full, np.bool_),
        empty((heads * rows, keys), q.dtype),
        empty((heads * rows, values), q.dtype),
        matrices(y),
        lse,
    )
    return (narrowed(y, dtype) if is_low(dtype) else y), lse


@low(exact=(1,))
def blocks(
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
    """The same block by block."""
    plan = Plan(q, k, v, mask, keep, scale, causal, window, offset, dropout)
    rows, heads = plan.size.rows, plan.heads
    y, lse = across(q, v.shape[-1]), np.empty(heads * rows, q.dtype)
    out = matrices(y)
    several = max(1, PIECE // rows)
    plan.each(
        lambda scratch, *piece: attend(plan.size, *plan.inputs, out, lse, scratch, *piece),
        [
            (h, min(h + several, heads), i, min(i + PIECE, rows))
            for h in range(0, heads, several)
            for i in range(0, rows, PIECE)
        ],
        *plan.buffers(),
        plan.size.height,
    )
    return y, lse


@kernel("attention.vjp", backend="numba", when=lambda needs, **_: not needs[3])
@low()
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
    results = [empty(a.shape, a.dtype) if a.flags.c_contiguous else across(a, a.shape[-1]) for a in (q, k, v)]
    cotangents, outs = matrices(g), [matrices(a) for a in results]
    several = max(1, PIECE // (plan.size.rows * plan.size.share))
    keys, _, values, scores, _, block = sizes = plan.buffers()
    plan.each(
        lambda scratch, *piece: attend_vjp(plan.size, cotangents, *plan.inputs, lse, *outs, scratch, *piece),
        [(h, min(h + several, plan.shared)) for h in range(0, plan.shared, several)],
        *sizes,
        values,
        scores,
        block,
        keys,
        values,
    )
    return *results, None, None

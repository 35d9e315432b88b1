"""Philox4x64-10 in vector registers: sixteen blocks, 64 words, at a time, from any counter on, so in any order.

Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011), section 3.3; the words are those of
``array/random.py``.  A round is two products of 64 bits by a constant with all 128 bits of the result, which vector
units don't have: each is four products of 32 bits.  Numba's loops would not keep the four words of sixteen blocks in
registers, so these two functions are written in LLVM's own terms, where a vector is a type; where the machine's
registers are shorter LLVM cuts them up.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import extending, types

from ...array import Array
from ...array.random import MULTIPLIERS, ROUNDS, WEYL, State, serve_draws
from ..memory import empty
from ..pool import split
from .jit import jit

LANES = 16  # blocks per step: two chains of zmm registers, which hide each other's latency
STEP = 4 * LANES  # words per step; ``keep_word`` holds one bit of each
intrinsic: Any = extending.intrinsic  # whose own type has callers pass the typing context too
I32, I64 = ir.IntType(32), ir.IntType(64)
WORD = ir.VectorType(I64, LANES)  # one word of each block


# the generator ------------------------------------------------------------------------------------------------
def _all(value: int) -> Any:
    return ir.Constant(WORD, [value] * LANES)


def _shuffled(b: Any, x: Any, y: Any, order: Iterable[int]) -> Any:
    lanes = list(order)
    return b.shuffle_vector(x, y, ir.Constant(ir.VectorType(I32, len(lanes)), lanes))


def _broadcast(b: Any, x: Any, lanes: int = LANES) -> Any:
    one = b.insert_element(ir.Constant(ir.VectorType(x.type, lanes), ir.Undefined), x, ir.Constant(I32, 0))
    return _shuffled(b, one, one, [0] * lanes)


def _product(b: Any, x: Any, m: int) -> tuple[Any, Any]:
    """(high, low) 64 bits of x m, from products of 32 bits; no sum overflows."""
    low_half, half = _all(2**32 - 1), _all(32)
    m0, m1 = _all(m & 2**32 - 1), _all(m >> 32)
    x0, x1 = b.and_(x, low_half), b.lshr(x, half)
    bottom = b.mul(x0, m0)
    t = b.add(b.mul(x1, m0), b.lshr(bottom, half))
    u = b.add(b.mul(x0, m1), b.and_(t, low_half))
    high = b.add(b.add(b.mul(x1, m1), b.lshr(t, half)), b.lshr(u, half))
    return high, b.or_(b.shl(u, half), b.and_(bottom, low_half))


def _blocks(b: Any, first: Any, seed: Any, stream: Any) -> Any:
    """The four words of the blocks with counters first, first + 1, ..., one vector each."""
    c0, c1, c2, c3 = b.add(_broadcast(b, first), ir.Constant(WORD, list(range(LANES)))), _all(0), _all(0), _all(0)
    for r in range(ROUNDS):
        keys = (b.add(k, ir.Constant(I64, r * w % 2**64)) for k, w in zip((seed, stream), WEYL, strict=True))
        k0, k1 = (_broadcast(b, k) for k in keys)
        (high0, low0), (high1, low1) = (_product(b, c, m) for c, m in zip((c0, c2), MULTIPLIERS, strict=True))
        c0, c1, c2, c3 = b.xor(b.xor(high1, c1), k0), low1, b.xor(b.xor(high0, c3), k1), low0
    return c0, c1, c2, c3


def _in_order(b: Any, c0: Any, c1: Any, c2: Any, c3: Any) -> Any:
    """Four vectors as one: word w of block j at 4 j + w."""
    alternate = [i for j in range(LANES) for i in (j, LANES + j)]
    first, second = _shuffled(b, c0, c1, alternate), _shuffled(b, c2, c3, alternate)
    return _shuffled(
        b, first, second, (i + k for i in range(0, STEP // 2, 2) for k in (0, 1, STEP // 2, STEP // 2 + 1))
    )


@intrinsic
def store_words(typing: Any, out: Any, at: Any, first: Any, seed: Any, stream: Any) -> Any:
    """out[at : at + STEP] = the words of the blocks with counters first, first + 1, ..."""

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        array, index, *key = args
        words = _in_order(b, *_blocks(b, *key))
        data = context.make_array(signature.args[0])(context, b, array).data
        b.store(words, b.bitcast(b.gep(data, [index]), words.type.as_pointer())).align = 8
        return context.get_dummy_value()

    return types.none(out, types.intp, types.uint64, types.uint64, types.uint64), generate


@intrinsic
def keep_word(typing: Any, first: Any, seed: Any, stream: Any, limit: Any) -> Any:
    """Bit i is set where the top 24 bits of word i are at least ``limit``, for the STEP words that begin at first."""

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        *key, limit = args
        tops = (b.trunc(b.lshr(c, _all(40)), ir.VectorType(I32, LANES)) for c in _blocks(b, *key))
        kept = b.icmp_unsigned(">=", _in_order(b, *tops), _broadcast(b, limit, STEP))
        return b.bitcast(kept, I64)

    return types.uint64(types.uint64, types.uint64, types.uint64, types.uint32), generate


# filling arrays -----------------------------------------------------------------------------------------------
@jit
def fill_words(first: Any, seed: Any, stream: Any, out: Any, start: int, stop: int) -> None:
    """Steps start to stop of the words from the block with counter ``first`` on."""
    for i in range(start, stop):
        at = first + np.uint64(LANES * i)
        if STEP * i + STEP <= out.size:
            store_words(out, STEP * i, at, seed, stream)
        else:
            last = np.empty(STEP, np.uint64)
            store_words(last, 0, at, seed, stream)
            out[STEP * i :] = last[: out.size - STEP * i]


@jit
def fill_keep(first: Any, seed: Any, stream: Any, limit: Any, out: Any, start: int, stop: int) -> None:
    """1 where a word's top 24 bits are at least ``limit``, else 0; steps as in ``fill_words``."""
    for i in range(start, stop):
        word = keep_word(first + np.uint64(LANES * i), seed, stream, limit)
        piece = out[STEP * i : STEP * i + STEP]
        for j in range(piece.size):
            piece[j] = (word >> np.uint64(j)) & np.uint64(1)


def key(state: State) -> tuple[Any, Any, Any]:
    """(counter of the first block, seed, stream) as kernels take them."""
    seed, stream, block = state
    return np.uint64(block + 1), np.uint64(seed), np.uint64(stream)


def words(state: State, count: int) -> Array:
    """``count`` words from a state on, uint64."""
    out = empty(count, np.uint64)
    split(fill_words, -(-count // STEP), STEP, *key(state), out)
    return out


def keep(state: State, limit: int, count: int) -> Array:
    """Booleans: whether the top 24 bits of each of ``count`` words are at least ``limit``."""
    out = empty(count, np.uint8)
    split(fill_keep, -(-count // STEP), STEP, *key(state), np.uint32(limit), out)
    return out.view(np.bool_)


serve_draws(words, keep)

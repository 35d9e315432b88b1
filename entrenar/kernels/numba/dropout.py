"""Dropout in one pass.  The bits are made on the way, forward and again backward: no mask is written, read or kept."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...array import Array
from ...array.random import State, keep_limit
from .. import kernel
from ..memory import empty_like
from ..pool import split
from .jit import floats, jit, rows
from .random import LANES, STEP, keep_word, key
from .words import low


@jit
def drop_steps(
    x: Any, first: Any, seed: Any, stream: Any, limit: Any, factor: Any, y: Any, start: int, stop: int
) -> None:
    """y = factor x where a word's top 24 bits are at least ``limit``, else 0; STEP words to a step, start to stop."""
    zero = x.dtype.type(0)
    for i in range(start, stop):
        word = keep_word(first + np.uint64(LANES * i), seed, stream, limit)
        u, v = x[STEP * i : STEP * i + STEP], y[STEP * i : STEP * i + STEP]
        for j in range(u.size):
            v[j] = u[j] * factor if (word >> np.uint64(j)) & np.uint64(1) else zero


@kernel("drop", backend="numba", when=lambda x, *, p, state: floats(x) and state[2] + x.size < 2**64)
@low()
def drop(x: Array, *, p: float, state: State) -> Array:
    """x / (1 - p) or 0; it is its own pullback."""
    flat = rows(x, x.size)[0]
    y, limit = empty_like(flat), np.uint32(keep_limit(p))
    split(drop_steps, -(-x.size // STEP), STEP, flat, *key(state), limit, x.dtype.type(1 / (1 - p)), y)
    return y.reshape(x.shape)

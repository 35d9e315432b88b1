"""State in bfloat16: rounding to 8 bits that is right on average, by random bits that repeat.

A moment that moves by less than half a unit of its last place would stand still under rounding to nearest.
Stochastic rounding goes up with the probability of the part that is cut off, so that the mean of many roundings is the
value (Gupta et al. 2015, "Deep learning with limited numerical precision", section 3).

The random bits are a function of (seed, step, parameter, element) alone: a run repeats, and neither threads nor blocks
change it.  The hash of an element's number is Wellons' lowbias32 with a word of the key before each multiplication.
"""

from __future__ import annotations

import hashlib

import numpy as np

from ..array import Array, bfloat16

NO_KEY = np.zeros(3, np.uint32)  # of a step that rounds nothing stochastically


def key(seed: int, step: int, parameter: int, weights: bool) -> Array:
    """Two words of key, uint32, and 1 if the parameter itself is rounded stochastically."""
    digest = hashlib.sha256(f"{seed}/{step}/{parameter}".encode()).digest()
    return np.array([int.from_bytes(digest[:4], "little"), int.from_bytes(digest[4:8], "little"), weights], np.uint32)


def noise(key: Array, start: int, count: int) -> tuple[Array, Array, Array]:
    """16 random bits, as uint32, per element from ``start``: of the first state array, the second, the weights.

    Elements are numbered modulo 2**32.
    """
    i = np.arange(start, start + count).astype(np.uint32)
    state, weights = _hash(i, key[0], key[1]), _hash(i, key[1], key[0])
    return state & np.uint32(0xFFFF), state >> np.uint32(16), weights & np.uint32(0xFFFF)


def _hash(i: Array, first: np.uint32, second: np.uint32) -> Array:
    x = i ^ first
    x = (x ^ (x >> np.uint32(16))) * np.uint32(0x7FEB352D)
    x = (x ^ (x >> np.uint32(15)) ^ second) * np.uint32(0x846CA68B)
    return x ^ (x >> np.uint32(16))


def stochastic(x: Array, bits: Array) -> Array:
    """float32 x in bfloat16: up if the 16 random ``bits`` and the part that is cut off carry; NaN and infinity stay."""
    words = np.ascontiguousarray(x).view(np.uint32) + bits.reshape(x.shape)
    rounded = (words >> np.uint32(16)).astype(np.uint16).view(bfloat16())
    return np.where(np.isfinite(x), rounded, x.astype(bfloat16()))

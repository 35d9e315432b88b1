"""Random numbers by counter: Philox4x64-10, so that element i of a draw is a pure function of (seed, stream, i).

Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).  ``numpy.random.Philox`` makes the words, or,
once a backend has loaded, faster code that makes the same ones.  The key is (seed, stream); word i is word i mod 4 of
block i // 4, and block b has counter b + 1, as NumPy has it.  A draw takes whole blocks, so a generator's state is
three integers, and whoever knows the state from before a draw can draw it again.
"""

from __future__ import annotations

import hashlib
import math
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from .dtypes import FLOAT32, Array, as_dtype, default_dtype, is_float

_U64 = 2**64
# table 2 and section 3.3 of the paper, for those who make the words themselves
ROUNDS = 10
MULTIPLIERS = (0xD2E7470EE14C6C93, 0xCA5A826395121157)
WEYL = (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)

State = tuple[int, int, int]  # (seed, stream, block)
WORTHWHILE = 1 << 12  # below this many words NumPy is as fast
_served: tuple[Callable[[State, int], Array], Callable[[State, int, int], Array]] | None = None


def serve_draws(words: Callable[[State, int], Array], keep: Callable[[State, int, int], Array]) -> None:
    """Draw by ``words(state, count)`` and ``keep(state, limit, count)`` from now on; the bits must be the same."""
    global _served
    _served = words, keep


def _by(state: State, count: int) -> Any:
    """What serves a draw; None for NumPy, which also carries into the upper words of the counter."""
    return _served if count >= WORTHWHILE and state[2] + count < _U64 else None


def words_at(state: State, count: int) -> Array:
    """The ``count`` 64-bit words that a generator in this state draws next, uint64."""
    if served := _by(state, count):
        return served[0](state, count)
    seed, stream, block = state
    key = np.array([seed, stream], np.uint64)
    counter = np.array([(block >> (64 * i)) % _U64 for i in range(4)], np.uint64)
    return np.random.Philox(key=key, counter=counter).random_raw(count)


def keep_limit(p: float) -> int:
    """The least 24 bits that are kept: u / 2**24 >= p."""
    return math.ceil(p * 2**24)


def keep_at(state: State, p: float, shape: tuple[int, ...]) -> Array:
    """Booleans, True with probability 1 - p: where the float32 uniforms of the next words are at least p."""
    count, limit = math.prod(shape), keep_limit(p)
    if served := _by(state, count):
        return served[1](state, limit, count).reshape(shape)
    return (words_at(state, count) >> np.uint64(40) >= np.uint64(limit)).reshape(shape)


class Generator:
    """A stream of random numbers with a three-integer state (seed, stream, block).

    Safe to share between threads: a draw claims its blocks under a lock.
    """

    __slots__ = ("_lock", "block", "seed", "stream")

    def __init__(self, seed: int = 0, stream: int = 0) -> None:
        for name, value in (("seed", seed), ("stream", stream)):
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
                raise TypeError(f"{name} must be an integer, got {value!r}")
            if not 0 <= value < _U64:
                raise ValueError(f"{name} must be in [0, 2**64), got {value}")
        self.seed, self.stream, self.block = int(seed), int(stream), 0
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"Generator(seed={self.seed}, stream={self.stream}, block={self.block})"

    def state(self) -> State:
        """(seed, stream, block): all there is to save."""
        return self.seed, self.stream, self.block

    def set_state(self, state: State) -> None:
        """Go back (or on) to a state that ``state()`` gave."""
        seed, stream, block = (int(v) for v in state)
        with self._lock:
            self.seed, self.stream, self.block = seed, stream, block

    def fork(self, name: str) -> Generator:
        """An independent generator of the same seed whose stream is derived from ``name``: order does not matter."""
        digest = hashlib.sha256(f"{self.stream}/{name}".encode()).digest()
        return Generator(self.seed, int.from_bytes(digest[:8], "little"))

    def claim(self, count: int) -> State:
        """The state to draw ``count`` words from, whose blocks nobody else gets."""
        with self._lock:
            state = self.state()
            self.block += (count + 3) // 4
        return state

    def words(self, count: int) -> Array:
        """``count`` 64-bit words, uint64."""
        return words_at(self.claim(count), count)

    def uniform(self, shape: Any, dtype: Any = None) -> Array:
        """Uniform in [0, 1): the top 53 bits of a word in float64, the top 24 in every other float dtype."""
        dtype, shape = _float(dtype), _shape(shape)
        words = self.words(math.prod(shape)).reshape(shape)
        if dtype == np.float64:
            return (words >> np.uint64(11)) * 2.0**-53
        exact = (words >> np.uint64(40)).astype(FLOAT32) * FLOAT32.type(2.0**-24)
        return exact.astype(dtype, copy=False)

    def normal(self, shape: Any, dtype: Any = None) -> Array:
        """Standard normal by Box and Muller (1958): elements 2j and 2j+1 come from words 2j and 2j+1, in float64."""
        dtype, shape = _float(dtype), _shape(shape)
        count = math.prod(shape)
        u = (self.words(count + count % 2) >> np.uint64(11)) * 2.0**-53
        radius = np.sqrt(-2.0 * np.log1p(-u[0::2]))
        angle = 2.0 * math.pi * u[1::2]
        out = np.empty(count + count % 2)
        np.multiply(radius, np.cos(angle), out=out[0::2])
        np.multiply(radius, np.sin(angle), out=out[1::2])
        return out[:count].reshape(shape).astype(dtype, copy=False)

    def integers(self, low: int, high: int, shape: Any, dtype: Any = np.int64) -> Array:
        """Integers in [low, high).  Raises ValueError if the range is empty or wider than 2**53."""
        shape = _shape(shape)
        if not 0 < high - low <= 2**53:
            raise ValueError(f"integers needs 0 < high - low <= 2**53, got low={low}, high={high}")
        u = (self.words(math.prod(shape)) >> np.uint64(11)) * 2.0**-53
        return (np.floor(u * (high - low)).astype(np.int64) + low).reshape(shape).astype(dtype, copy=False)

    def permutation(self, count: int) -> Array:
        """A random order of ``range(count)``, int64."""
        return np.argsort(self.words(count), kind="stable")


def _float(dtype: Any) -> Any:
    found = default_dtype() if dtype is None else as_dtype(dtype)
    if not is_float(found):
        raise TypeError(f"random floats need a float dtype, got {found}")
    return found


def _shape(shape: Any) -> tuple[int, ...]:
    sizes = (shape,) if isinstance(shape, (int, np.integer)) else tuple(shape)
    if any(n < 0 for n in sizes):
        raise ValueError(f"a shape has no negative sizes, got {sizes}")
    return tuple(int(n) for n in sizes)


default_generator = Generator()


def manual_seed(seed: int) -> Generator:
    """Restart the default generator from ``seed`` and return it."""
    default_generator.set_state(Generator(seed).state())
    return default_generator

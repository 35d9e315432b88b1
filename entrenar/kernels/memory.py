"""Memory for what kernels and products return, and the pool behind it: large blocks are kept when they are freed.

A fresh block costs the system a page fault and a zeroing per page, so filling a new array takes twice as long as
filling one from the pool.  NumPy asks a memory handler for the memory of its arrays (NEP 49), and the handler in
charge is a context variable: entrenar sets its own around its own allocations only, so other users of NumPy in the
process see nothing of it.  An array from the pool is an array like any other, however long it lives.

Without the C++ extension the system's allocator serves everything, and what is here to steer the pool does nothing.
ENTRENAR_MEMORY_POOL=0 in the environment starts with the pool off.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ..array import Array
from .cpp import native

empty: Callable[[Any, Any], Array] = np.empty if native is None else native.empty
"""``empty(shape, dtype)``: an array of unspecified content, C order."""


def empty_like(x: Array) -> Array:
    """An array of the shape and dtype of ``x``, C order whatever the order of ``x``."""
    return empty(x.shape, x.dtype)


class Stats(NamedTuple):
    """What the pool holds, in bytes, and how often it had what was asked for.  Blocks below 64 KiB do not count."""

    live: int
    """in arrays, rounded up to the pool's block sizes (by an eighth at most)"""
    idle: int
    """freed, and kept to be used again"""
    peak: int
    """the highest ``live`` so far, or since ``trim``"""
    limit: int
    """what ``idle`` may come to"""
    hits: int
    """requests served with an idle block"""
    misses: int
    """requests that went to the system"""


def available() -> bool:
    """Whether there is a pool at all: whether the C++ extension was built.  ``enable`` switches it on and off."""
    return native is not None


def stats() -> Stats:
    """What the pool holds now and how it has fared; all zero where there is none."""
    return Stats(0, 0, 0, 0, 0, 0) if native is None else Stats(*native.pool_counts())


def set_limit(bytes: int) -> None:
    """Keep at most so many idle bytes from now on (at first an eighth of the machine's memory); 0 keeps none.

    What is over goes back to the system at once, the blocks freed longest ago first.
    """
    if bytes < 0:
        raise ValueError(f"the limit of idle memory is {bytes} bytes; expected 0 or more")
    if native is not None:
        native.pool_set_limit(bytes)


def trim() -> None:
    """Give all idle memory back to the system, and count ``peak`` afresh from what is live."""
    if native is not None:
        native.pool_trim()


def enable(on: bool = True) -> None:
    """Switch the pool on or off.  Off, new arrays come from NumPy's allocator, and idle memory goes to the system."""
    if native is not None:
        native.pool_enable(bool(on))
    elif on:
        raise RuntimeError(
            "there is no memory pool: entrenar's C++ extension was not built; reinstall with a compiler at hand"
        )


class pooled:
    """``with pooled():`` NumPy takes the memory of large arrays from the pool, in this thread, up to the end.

    For results of NumPy's own functions.  Threads started inside have their own setting.  Does nothing where the pool
    is off or not available.
    """

    __slots__ = ("_previous",)

    def __enter__(self) -> None:
        on = native is not None and native.pool_enabled()
        self._previous = native.set_handler(native.handler) if on else None

    def __exit__(self, *exc: object) -> None:
        if self._previous is not None:
            native.set_handler(self._previous)


def _from_environment() -> None:
    asked = os.environ.get("ENTRENAR_MEMORY_POOL", "")
    if asked not in ("", "0", "1"):
        raise ValueError(f"ENTRENAR_MEMORY_POOL is {asked!r}; expected 0 (off) or 1 (on, as without it)")
    if asked == "0":
        enable(False)


_from_environment()

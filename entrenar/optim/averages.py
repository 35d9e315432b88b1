"""What rules are made of, on blocks: running averages of gradients, sums of squares."""

from __future__ import annotations

import numpy as np

from ..array import FLOAT64, Array


def average(x: Array, new: Array, keep: float, rest: float, scratch: Array) -> None:
    """x = keep x + rest new in place; ``scratch`` may be ``new``."""
    np.multiply(x, keep, out=x)
    np.multiply(new, rest, out=scratch)
    np.add(x, scratch, out=x)
    flush(x)


def flush(x: Array) -> None:
    """Values below the smallest normal number become 0: arithmetic with subnormal ones takes many times as long.

    An average that no gradient feeds gets there in some hundred steps.
    """
    np.copyto(x, 0, where=np.abs(x) < np.finfo(x.dtype).tiny)


def squares(x: Array) -> float:
    """The sum of x**2 in float64."""
    x = x.astype(FLOAT64).reshape(-1)
    return float(x @ x)

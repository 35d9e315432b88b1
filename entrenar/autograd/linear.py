"""The few ops the engine itself needs, all linear in each input: cast, sum_to, broadcast_to, add, scale, identity.

They are ops like any other (recorded, checked), declared here because fitting a cotangent to its input uses them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..array import Array, wide, xp
from .primitive import primitive
from .samples import Sample, calls, edge, edges, pairs, reals, unary
from .tensor import Tensor


@primitive(vjp=dict(a=lambda g: g, b=lambda g: g), samples=pairs(reals()), broadcasts=True)
def add(a: Array, b: Array) -> Array:
    """Elementwise sum with broadcasting.  a, b: any broadcastable shapes."""
    return np.add(a, b)


@primitive(vjp=dict(x=lambda g: g), samples=unary(reals()))
def identity(x: Array) -> Array:
    """x itself, as a new step on the tape."""
    return x


@primitive(
    vjp=dict(x=lambda g, x_meta: cast(g, dtype=x_meta.dtype)), samples=unary(reals()).with_(dtype=np.dtype(np.float64))
)
def cast(x: Array, *, dtype: Any) -> Array:
    """x in another float dtype (rounded to nearest even); its cotangent is cast back."""
    return x.astype(dtype, copy=False)


@primitive(
    vjp=dict(x=lambda g, x_meta: broadcast_to(g, shape=x_meta.shape)),
    samples=calls(
        lambda rng: Sample((rng.normal(size=(2, 3)),), {"shape": (3,)}, "leading axis"),
        lambda rng: Sample((rng.normal(size=(4, 2, 3)),), {"shape": (2, 1)}, "leading and last"),
        lambda rng: Sample((rng.normal(size=(2, 3)),), {"shape": ()}, "to 0-d"),
        lambda rng: Sample((rng.normal(size=(0, 3)),), {"shape": (1, 3)}, "empty"),
    ),
)
def sum_to(x: Array, shape: tuple[int, ...]) -> Array:
    """x summed over the axes that broadcasting ``shape`` to x.shape adds or stretches (transpose of broadcast_to)."""
    lead = x.ndim - len(shape)
    axes = (*range(lead), *(lead + i for i, n in enumerate(shape) if n == 1 and x.shape[lead + i] != 1))
    if not axes:
        return x.reshape(shape)
    return wide(x).sum(axis=axes, keepdims=True).astype(x.dtype, copy=False).reshape(shape)


@primitive(
    vjp=dict(x=lambda g, x_meta: sum_to(g, shape=x_meta.shape)),
    samples=calls(
        lambda rng: Sample((rng.normal(size=(3,)),), {"shape": (2, 3)}, "new axis"),
        lambda rng: Sample((rng.normal(size=(2, 1)),), {"shape": (4, 2, 3)}, "new and stretched"),
        lambda rng: Sample((rng.normal(size=()),), {"shape": (2, 3)}, "from 0-d"),
        lambda rng: Sample((rng.normal(size=(1, 3)),), {"shape": (0, 3)}, "to empty"),
    ),
)
def broadcast_to(x: Array, shape: tuple[int, ...]) -> Array:
    """x seen in a larger shape, as numpy.broadcast_to (a read-only view)."""
    return xp(x).broadcast_to(x, shape)


@primitive(
    vjp=dict(u=lambda g, d: scale(g, d), d=lambda g, u: scale(g, u)),
    samples=pairs(reals(avoid=(0.0,)))
    + edges(
        edge(
            [0.0, 0.0, 2.0],
            [np.inf, np.nan, np.inf],
            value=[0.0, 0.0, np.inf],
            grads=([np.inf, np.nan, np.inf], None),
            label="zero times infinity",
        ),
    ),
    broadcasts=True,
)
def scale(u: Array, d: Array) -> Array:
    """u d, and exactly 0 where u is 0, whatever d is: how a pullback multiplies by a derivative that may be infinite.

    A pullback is linear, so a zero cotangent gives a zero; ``where`` would give that too but lose the derivative with
    respect to u (jvp is the vjp of the vjp).
    """
    y = np.multiply(u, d)
    if not np.isfinite(d).all():
        y = np.where(np.equal(u, 0), np.zeros((), y.dtype), y)
    return y


def stop_gradient(x: Any) -> Any:
    """x as a constant: the value, no gradient."""
    return x.detach() if isinstance(x, Tensor) else x

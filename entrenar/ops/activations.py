"""Activation functions and softmax.  gelu, silu, softmax and log_softmax are composites that kernels may serve."""

from __future__ import annotations

import math

import numpy as np

from ..array import Array, DType, floats, wide, xp
from ..autograd.fused import fused
from ..autograd.linear import cast
from ..autograd.primitive import primitive
from ..autograd.samples import Sample, Samples, calls, edge, edges, normals, pairs, reals, unary
from ..autograd.tensor import raw
from . import elementwise as E, exponential, joining, reduce

__all__ = [
    "gelu",
    "glu",
    "leaky_relu",
    "log_softmax",
    "relu",
    "silu",
    "softmax",
    "swiglu",
    "swish",
]

INF, NAN = math.inf, math.nan


def narrow(y: Array, dtype: DType) -> Array:
    """y rounded once to a dtype, the other half of ``wide``; what was computed from integers stays the float it is."""
    return y if y.dtype == dtype or dtype.kind in "biu" else cast(y, dtype=dtype)


# elementwise --------------------------------------------------------------------------------------------------
@primitive(
    vjp=dict(x=lambda g, y: E.where(raw(y) > 0, g, 0.0)),
    samples=unary(reals(avoid=(0.0,)))
    + edges(
        edge([-1.0, 0.0, 2.0], value=[0.0, 0.0, 2.0], grads=([0.0, 0.0, 1.0],), label="0 at the kink"),
        edge([-INF, INF], value=[0.0, INF], grads=([0.0, 1.0],), label="infinite"),
    ),
)
def relu(x: Array) -> Array:
    """max(x, 0) elementwise; its derivative at 0 is 0.  x: any shape, float."""
    return np.maximum(x, x.dtype.type(0))


@primitive(
    vjp=dict(x=lambda g, x, negative_slope: E.where(raw(x) > 0, g, E.mul(g, negative_slope))),
    samples=unary(reals(avoid=(0.0,)))
    + unary(reals(avoid=(0.0,)), shapes=((2, 3),)).with_(negative_slope=0.2)
    + edges(
        edge([-1.0, 0.0, 2.0], negative_slope=0.5, value=[-0.5, 0.0, 2.0], grads=([0.5, 0.5, 1.0],), label="kink"),
    ),
)
def leaky_relu(x: Array, negative_slope: float = 0.01) -> Array:
    """x where positive, else negative_slope x (Maas et al. 2013); the derivative at 0 is negative_slope."""
    return np.where(x > 0, x, x * negative_slope)


@fused(
    samples=unary(reals(-4, 4))
    + unary(reals(-4, 4)).with_(approximate="tanh")
    + edges(
        edge([0.0], value=[0.0], grads=([0.5],), label="0"),
        edge([0.0], approximate="tanh", value=[0.0], grads=([0.5],), label="0 by tanh"),
    ),
)
def gelu(x: Array, *, approximate: str = "none") -> Array:
    """x Phi(x), Phi the normal distribution function (Hendrycks and Gimpel 2016, section 2).  x: any shape, float.

    approximate: "none" for erf, "tanh" for Phi(x) ~ (1 + tanh(u)) / 2 = sigmoid(2 u) with
    u = sqrt(2 / pi) (x + 0.044715 x^3), as GPT-2 has it.  Raises ValueError for another name.
    """
    x32 = floats(x)
    if approximate == "none":
        return narrow(x32 * (exponential.erfc(x32 * -math.sqrt(0.5)) * 0.5), x.dtype)
    if approximate != "tanh":
        raise ValueError(f'gelu: approximate={approximate!r}: expected "none" or "tanh"')
    twice = 2.0 * math.sqrt(2.0 / math.pi)
    return narrow(x32 * exponential.sigmoid(x32 * (E.square(x32) * (0.044715 * twice) + twice)), x.dtype)


@fused(samples=unary(reals(-4, 4)) + edges(edge([0.0], value=[0.0], grads=([0.5],), label="0")))
def silu(x: Array) -> Array:
    """x sigmoid(x), also called swish (Elfwing et al. 2017, eq. 3).  x: any shape, float."""
    return narrow(silu_(floats(x)), x.dtype)


@primitive(
    # one factor in brackets: about the zero at x = -1.28 two terms would cancel
    vjp=dict(x=lambda g, x: g * exponential.sigmoid(x) * (x * exponential.sigmoid(-x) + 1.0)),
    samples=unary(reals(-4, 4)),
)
def silu_(x: Array) -> Array:
    """x sigmoid(x), x of a dtype that accumulates."""
    return x * exponential.sigmoid(x)


def swish(x: Array) -> Array:
    """Another name of ``silu``."""
    return silu(x)


@fused(
    samples=calls(
        normals("last axis", (2, 6)),
        normals("first axis", (4, 3), axis=0),
        normals("empty", (0, 4)),
        lambda rng: Sample((rng.normal(size=(2, 2, 3)).transpose(2, 1, 0),), {"axis": 1}, "strided"),
    ),
)
def glu(x: Array, axis: int = -1) -> Array:
    """a sigmoid(b) for the halves a, b of x along ``axis`` (Dauphin et al. 2017, eq. 1).

    Raises ValueError if the axis has an odd size.
    """
    if x.shape[axis] % 2:
        raise ValueError(f"glu: axis {axis} of shape {x.shape} has odd size {x.shape[axis]}: it is cut into two halves")
    a, b = joining.split(x, 2, axis=axis)
    return narrow(wide(a) * exponential.sigmoid(wide(b)), x.dtype)


@fused(samples=pairs(reals(-3, 3)))
def swiglu(gate: Array, up: Array) -> Array:
    """silu(gate) up, the gated unit of Llama's MLP (Shazeer 2020, eq. 6).  Any broadcastable shapes."""
    return silu(gate) * up


# softmax ------------------------------------------------------------------------------------------------------
def _peak(x: Array, axis: int) -> Array:
    """The maximum along an axis, as a constant: subtracting it changes no value.  0 where all are -inf, or none are."""
    x = raw(x)
    top = xp(x).max(x, axis=axis, keepdims=True, initial=-INF)
    return xp(x).where(top == -INF, x.dtype.type(0), top)


def _empty(total: Array) -> Array:
    """1 where a sum of exponentials is 0 (a row all -inf), else 0: keeps the row finite."""
    total = raw(total)
    return (total == 0).astype(total.dtype)


def rowwise() -> Samples:
    """A few shapes and axes, strided and empty ones among them."""
    return calls(
        normals("last axis", (2, 3)),
        normals("middle axis", (4, 2, 3), axis=1),
        normals("first axis", (3, 2), axis=0),
        normals("1-d", (5,)),
        normals("size-1 axis", (3, 1)),
        normals("no rows", (0, 3)),
        normals("no columns", (2, 0)),
        lambda rng: Sample((rng.normal(size=(3, 4)).T,), {}, "transposed"),
        lambda rng: Sample((rng.normal(size=(6, 8))[::2, ::-2],), {}, "strided and reversed"),
        lambda rng: Sample((np.broadcast_to(rng.normal(size=(1, 4)), (3, 4)),), {}, "stride 0"),
    )


# e^x overflows here; by differences a shift of 1000 would only cost digits, so the values are stated
LARGE, SHARES = [1000.0, 1001.0, 1003.0], np.exp([0.0, 1.0, 3.0]) / np.exp([0.0, 1.0, 3.0]).sum()


@fused(
    samples=rowwise()
    + edges(
        edge(
            LARGE,
            value=SHARES,
            grads=(SHARES * ([0.0, 0.0, 1.0] - SHARES[2]),),
            cotangent=[0.0, 0.0, 1.0],
            label="large",
        ),
        edge([-INF, -INF], value=[0.0, 0.0], grads=([0.0, 0.0],), cotangent=[1.0, 2.0], label="a row all -inf"),
        edge([-INF, 1.0], value=[0.0, 1.0], grads=([0.0, 0.0],), cotangent=[3.0, 2.0], label="some -inf"),
        edge([2.0], value=[1.0], grads=([0.0],), label="one element"),
    ),
)
def softmax(x: Array, axis: int = -1) -> Array:
    """e^x / sum(e^x) along an axis.  x: any shape of at least one axis, float.

    A row that is all -inf (fully masked) gives zeros, with zero gradient.
    """
    x32 = floats(x)
    e = exponential.exp(E.sub(x32, _peak(x32, axis)))
    total = reduce.sum(e, axis=axis, keepdims=True)
    return narrow(E.div(e, E.add(total, _empty(total))), x.dtype)


@fused(
    samples=rowwise()
    + edges(
        edge(LARGE, value=np.log(SHARES), grads=([1.0, 1.0, 1.0] - 3.0 * SHARES,), label="large"),
        edge([-INF, -INF], value=[-INF, -INF], grads=([0.0, 0.0],), cotangent=[0.0, 0.0], label="a row all -inf"),
        edge([-INF, 1.0], value=[-INF, 0.0], grads=([0.0, 0.0],), cotangent=[0.0, 2.0], label="some -inf"),
        edge([2.0], value=[0.0], grads=([0.0],), label="one element"),
    ),
)
def log_softmax(x: Array, axis: int = -1) -> Array:
    """x - log(sum(e^x)) along an axis, computed from the maximum.  x: any shape of at least one axis, float.

    A row that is all -inf stays so.
    """
    x32 = floats(x)
    z = E.sub(x32, _peak(x32, axis))
    total = reduce.sum(exponential.exp(z), axis=axis, keepdims=True)
    return narrow(E.sub(z, exponential.log(E.add(total, _empty(total)))), x.dtype)

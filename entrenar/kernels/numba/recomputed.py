"""Projections after gelu, swiglu, layer_norm and rms_norm.

What goes into the product is made once forward and once more backward.
bfloat16 operands are multiplied as they are; float16, for which no processor here has a product, is for the composites.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...array import FLOAT32, Array, is_low, wide
from .. import kernel
from ..pool import split
from ..products import add_matmul, matmul
from . import activations, gated, norms
from .jit import contiguous, floats, rows
from .words import low


def project(h: Array, w: Array, b: Array | None) -> Array:
    """h w^T + b over the last axis."""
    y = matmul(rows(h, h.shape[-1]), w.T, None if b is None else contiguous(wide(b)))
    return y.reshape(*h.shape[:-1], len(w))


def project_vjp(g: Array, h: Array, w: Array, needs: tuple[bool, bool, bool]) -> tuple[Array | None, ...]:
    """Cotangents of h, w (in the memory order of w) and b."""
    g, flat = rows(g, len(w)), rows(h, h.shape[-1])
    return (
        matmul(g, w).reshape(h.shape) if needs[0] else None,
        weight_cotangent(g, flat, w) if needs[1] else None,
        column_sums(g) if needs[2] else None,
    )


def weight_cotangent(g: Array, h: Array, w: Array) -> Array:
    """Rows of g and h to the cotangent of w, in the memory order of w."""
    turned = w.flags.f_contiguous and not w.flags.c_contiguous
    return matmul(h.T, g).T if turned else matmul(g.T, h)


@low()
def column_sums(x: Array) -> Array:
    """Sums over rows, each column by one thread from the first row to the last."""
    y = np.empty(x.shape[1], x.dtype)
    split(_column_sums, x.shape[1], len(x), x, y)
    return y


def _column_sums(x: Array, y: Array, start: int, stop: int) -> None:
    np.add.reduce(x[:, start:stop], axis=0, out=y[start:stop])


def fits(x: Array, w: Array, b: Array | None, *others: Array) -> bool:
    """One dtype that has products, and shapes of a projection; others are for the composite."""
    return (
        floats(x, w, b, *others)
        and x.dtype != np.float16
        and x.ndim > 0
        and w.ndim == 2
        and x.shape[-1] == w.shape[1]
        and (b is None or b.shape == w.shape[:1])
    )


@kernel(
    "gelu_linear",
    backend="numba",
    when=lambda x, w, b, *, approximate: fits(x, w, b) and approximate in ("none", "tanh"),
)
def gelu_linear(x: Array, w: Array, b: Array | None, *, approximate: str) -> Array:
    """gelu, then the product."""
    return project(activations.gelu(x, approximate=approximate), w, b)


@kernel("gelu_linear.vjp", backend="numba")
def gelu_linear_vjp(g: Array, x: Array, w: Array, *, approximate: str, needs: tuple[bool, ...]) -> Any:
    """Cotangents of x, w, b."""
    h = activations.gelu(x, approximate=approximate) if needs[1] else x
    gh, gw, gb = project_vjp(g, h, w, (needs[0], needs[1], needs[2]))
    return None if gh is None else activations.gelu_vjp(gh, x, approximate=approximate), gw, gb


@kernel(
    "norm_linear",
    backend="numba",
    when=lambda x, gain, shift, w, b, *, eps: fits(x, w, b, gain, shift) and gain.shape == shift.shape == x.shape[-1:],
    saves=("mean", "rstd"),
)
def norm_linear(x: Array, gain: Array, shift: Array, w: Array, b: Array | None, *, eps: float) -> Any:
    """layer_norm of the last axis, then the product."""
    h, mean, rstd = norms.forward(x, gain, shift, None, eps, True)
    return project(h, w, b), mean, rstd


@kernel("norm_linear.vjp", backend="numba")
def norm_linear_vjp(
    g: Array,
    x: Array,
    gain: Array,
    shift: Array,
    w: Array,
    mean: Array,
    rstd: Array,
    *,
    eps: float,
    needs: tuple[bool, ...],
) -> Any:
    """Cotangents of x, gain, shift, w, b."""
    h = norms.forward(x, gain, shift, None, eps, True)[0] if needs[3] else x
    gh, gw, gb = project_vjp(g, h, w, (any(needs[:3]), needs[3], needs[4]))
    if gh is None:
        return None, None, None, gw, gb
    inner = norms.backward(gh, x, gain, shift, None, mean, rstd, True, needs[1] or needs[2])
    return *inner, gw, gb


@kernel(
    "swiglu_linear",
    backend="numba",
    when=lambda gate, up, w, b: fits(gate, w, b, up) and gate.shape == up.shape,
)
def swiglu_linear(gate: Array, up: Array, w: Array, b: Array | None) -> Array:
    """swiglu, then the product; shapes that broadcast are for the composite."""
    return project(gated.swiglu(gate, up), w, b)


@kernel("swiglu_linear.vjp", backend="numba")
def swiglu_linear_vjp(g: Array, gate: Array, up: Array, w: Array, *, needs: tuple[bool, ...]) -> Any:
    """Cotangents of gate, up, w, b."""
    gw = weight_cotangent(rows(g, len(w)), rows(gated.swiglu(gate, up), w.shape[1]), w) if needs[2] else None
    gh, _, gb = project_vjp(g, gate, w, (needs[0] or needs[1], False, needs[3]))
    return *((None, None) if gh is None else gated.swiglu_vjp(gh, gate, up)), gw, gb


# several projections of one normalised input ------------------------------------------------------------------
def normed(x: Array, gain: Array, eps: float, ws: Sequence[Array], bs: Sequence[Array | None]) -> tuple[Array, ...]:
    """The projections of rms_norm(x, gain), and 1 / the root mean square of every row."""
    h, _, rstd = norms.forward(x, gain, None, None, eps, False)
    return *(project(h, w, b) for w, b in zip(ws, bs, strict=True)), rstd


def normed_vjp(
    gs: Sequence[Array],
    x: Array,
    gain: Array,
    eps: float,
    ws: Sequence[Array],
    rstd: Array,
    needs: tuple[bool, ...],
) -> tuple[Array | None, ...]:
    """Cotangents of x, gain, every w and every b; x is normalised once more if a w needs one."""
    count = len(ws)
    for_w, for_b = needs[2 : 2 + count], needs[2 + count :]
    g2 = [rows(g, len(w)) for g, w in zip(gs, ws, strict=True)]
    made: list[Array | None] = [None] * (2 * count)
    if any(for_w):
        h = rows(norms.forward(x, gain, None, None, eps, False)[0], x.shape[-1])
        made[:count] = [weight_cotangent(g, h, w) if n else None for g, w, n in zip(g2, ws, for_w, strict=True)]
        del h
    made[count:] = [column_sums(g) if n else None for g, n in zip(g2, for_b, strict=True)]
    if not (needs[0] or needs[1]):
        return None, None, *made
    # 16-bit cotangents are added up in float32 and rounded with the result
    gh = matmul(g2[0], ws[0], dtype=FLOAT32 if count > 1 and is_low(x.dtype) else None)
    for g, w in zip(g2[1:], ws[1:], strict=True):
        add_matmul(gh, g, w)
    gx, ggain, _ = norms.backward(gh, x, gain, None, None, np.zeros_like(rstd), rstd, False, needs[1])
    return gx, ggain, *made


def normed_fits(x: Array, gain: Array, ws: Sequence[Array], bs: Sequence[Array | None]) -> bool:
    """One dtype that has products, shapes of projections of a row of x."""
    return gain.shape == x.shape[-1:] and all(fits(x, w, b, gain) for w, b in zip(ws, bs, strict=True))


@kernel(
    "rms_norm_linear",
    backend="numba",
    when=lambda x, gain, w, b, *, eps: normed_fits(x, gain, (w,), (b,)),
    saves=("rstd",),
)
def rms_norm_linear(x: Array, gain: Array, w: Array, b: Array | None, *, eps: float) -> Any:
    """rms_norm of the last axis, then the product."""
    return normed(x, gain, eps, (w,), (b,))


@kernel("rms_norm_linear.vjp", backend="numba")
def rms_norm_linear_vjp(
    g: Array, x: Array, gain: Array, w: Array, rstd: Array, *, eps: float, needs: tuple[bool, ...]
) -> Any:
    """Cotangents of x, gain, w, b."""
    return normed_vjp((g,), x, gain, eps, (w,), rstd, needs)


@kernel(
    "rms_norm_linear_pair",
    backend="numba",
    when=lambda x, gain, w1, w2, b1, b2, *, eps: normed_fits(x, gain, (w1, w2), (b1, b2)),
    saves=("rstd",),
)
def rms_norm_linear_pair(
    x: Array, gain: Array, w1: Array, w2: Array, b1: Array | None, b2: Array | None, *, eps: float
) -> Any:
    """rms_norm of the last axis, then two products."""
    return normed(x, gain, eps, (w1, w2), (b1, b2))


@kernel("rms_norm_linear_pair.vjp", backend="numba")
def rms_norm_linear_pair_vjp(
    g0: Array,
    g1: Array,
    x: Array,
    gain: Array,
    w1: Array,
    w2: Array,
    rstd: Array,
    *,
    eps: float,
    needs: tuple[bool, ...],
) -> Any:
    """Cotangents of x, gain, w1, w2, b1, b2."""
    return normed_vjp((g0, g1), x, gain, eps, (w1, w2), rstd, needs)


@kernel(
    "rms_norm_linear_triple",
    backend="numba",
    when=lambda x, gain, w1, w2, w3, b1, b2, b3, *, eps: normed_fits(x, gain, (w1, w2, w3), (b1, b2, b3)),
    saves=("rstd",),
)
def rms_norm_linear_triple(
    x: Array,
    gain: Array,
    w1: Array,
    w2: Array,
    w3: Array,
    b1: Array | None,
    b2: Array | None,
    b3: Array | None,
    *,
    eps: float,
) -> Any:
    """rms_norm of the last axis, then three products."""
    return normed(x, gain, eps, (w1, w2, w3), (b1, b2, b3))


@kernel("rms_norm_linear_triple.vjp", backend="numba")
def rms_norm_linear_triple_vjp(
    g0: Array,
    g1: Array,
    g2: Array,
    x: Array,
    gain: Array,
    w1: Array,
    w2: Array,
    w3: Array,
    rstd: Array,
    *,
    eps: float,
    needs: tuple[bool, ...],
) -> Any:
    """Cotangents of x, gain, w1, w2, w3, b1, b2, b3."""
    return normed_vjp((g0, g1, g2), x, gain, eps, (w1, w2, w3), rstd, needs)

"""Scaled dot-product attention and rotary positions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..array import Array, Generator, floats, nearest, rounded, xp
from ..autograd.fused import fused
from ..autograd.modes import Changed, mode
from ..autograd.primitive import primitive
from ..autograd.runtime import cast_low
from ..autograd.samples import Sample, Samples, calls
from ..autograd.tensor import raw
from . import elementwise as E, linalg, shape
from .activations import narrow, softmax
from .layers import check_rate, keep_scaled, kept

__all__ = ["rope", "scaled_dot_product_attention"]


# attention ----------------------------------------------------------------------------------------------------
def visible(rows: int, keys: int, causal: bool, window: int | None, offset: int) -> Array | None:
    """(rows, keys) booleans: which keys the query at key position row + offset sees; None for all."""
    if not causal and window is None:
        return None
    ahead = np.arange(keys) - (np.arange(rows)[:, None] + offset)
    seen = ahead <= 0 if causal else np.ones(ahead.shape, bool)
    return seen if window is None else seen & (ahead > -window) & (ahead < window)


def _grouped(a: Array, heads: int) -> Array:
    """(..., heads * share, T, D) as (..., heads, share, T, D); an axis of size 1 becomes two."""
    count = a.shape[-3]
    split = (1, 1) if count == 1 else (heads, count // heads)
    return shape.reshape(a, (*a.shape[:-3], *split, *a.shape[-2:]))


def _attention_samples() -> Samples:
    plain = {"scale": 0.7, "causal": False, "window": None, "offset": 0, "dropout": 0.0}

    def sample(
        label: str, q: tuple[int, ...], kv: tuple[int, ...], width: int = 2, mask: Any = None, **how: Any
    ) -> Any:
        def make(rng: np.random.Generator) -> Sample:
            full = (*q[:-1], kv[-2])
            args: list[Any] = [rng.normal(size=q), rng.normal(size=kv), rng.normal(size=(*kv[:-1], width))]
            args += [mask(rng, full)] if mask else [None] if "dropout" in how else []
            args += [rng.random(full) > how["dropout"]] if "dropout" in how else []
            return Sample(tuple(args), {**plain, **how}, label)

        return make

    return calls(
        sample("one head", (3, 2), (4, 2), 3),
        sample("batch and heads", (2, 1, 2, 3), (2, 1, 3, 3)),
        sample("causal", (2, 3, 2), (2, 3, 2), causal=True),
        sample("causal, rows that see nothing", (1, 3, 2), (1, 2, 2), causal=True, offset=-1),
        sample("causal with earlier keys", (1, 2, 2), (1, 4, 2), causal=True, offset=2),
        sample("few queries at many keys", (2, 1, 2), (1, 40, 2), causal=True, offset=38),
        sample("window", (1, 4, 2), (1, 4, 2), causal=True, window=2),
        sample("window both ways", (1, 4, 2), (1, 4, 2), window=2),
        sample("grouped heads", (1, 4, 2, 2), (1, 2, 3, 2)),
        sample("one shared head, causal", (3, 2, 2), (1, 2, 2), causal=True),
        sample("boolean mask", (2, 2, 2), (2, 3, 2), 2, lambda rng, full: rng.random(full[-2:]) > 0.4),
        sample("additive mask", (2, 2, 2), (2, 3, 2), 2, lambda rng, full: rng.normal(size=full)),
        sample("one mask, grouped", (4, 2, 2), (2, 3, 2), 2, lambda rng, full: rng.normal(size=(1, *full[-2:]))),
        sample("dropout", (2, 3, 2), (2, 3, 2), dropout=0.3, causal=True),
        sample("size 1", (1, 1, 1), (1, 1, 1), 1),
        sample("empty batch", (0, 2, 2), (0, 3, 2)),
        lambda rng: Sample(
            tuple(rng.normal(size=(2, 3, 4, 2)).transpose(0, 2, 3, 1)[:, :, ::-1] for _ in range(3)),
            {**plain, "causal": True},
            "strided",
        ),
    )


@fused(samples=_attention_samples(), nondiff=("keep",))
def attention(
    q: Array,
    k: Array,
    v: Array,
    mask: Array = None,
    keep: Array = None,
    *,
    scale: float,
    causal: bool,
    window: int | None,
    offset: int,
    dropout: float,
) -> Array:
    """softmax(scale q k^T, masked) v, the weights dropped out by ``keep``; see ``scaled_dot_product_attention``."""
    rows, keys = q.shape[-2], k.shape[-2]
    grouped = q.ndim > 2 and k.ndim > 2 and q.shape[-3] != k.shape[-3]
    if grouped:
        heads = k.shape[-3]
        q, k, v = _grouped(q, heads), shape.expand_dims(k, -3), shape.expand_dims(v, -3)
        mask, keep = (a if a is None or a.ndim < 3 else _grouped(a, heads) for a in (mask, keep))
    dtype = np.result_type(q.dtype, k.dtype, v.dtype)
    q, k, v = floats(q), floats(k), floats(v)
    scores = linalg.matmul(q * scale, shape.swapaxes(k, -1, -2))
    seen = visible(rows, keys, causal, window, offset)
    if mask is not None and raw(mask).dtype.kind == "b":
        seen = raw(mask) if seen is None else seen & raw(mask)
    elif mask is not None:
        scores = E.add(scores, mask)
    if seen is not None:
        scores = E.where(seen, scores, -math.inf)
    weights = softmax(scores)
    if keep is not None:
        weights = keep_scaled(weights, raw(keep), factor=1.0 / (1.0 - dropout) if dropout < 1 else 0.0)
    y = narrow(linalg.matmul(weights, v), dtype)
    return shape.reshape(y, (*y.shape[:-4], y.shape[-4] * y.shape[-3], *y.shape[-2:])) if grouped else y


def scaled_dot_product_attention(
    q: Array,
    k: Array,
    v: Array,
    mask: Array | None = None,
    dropout_p: float = 0.0,
    causal: bool = False,
    scale: float | None = None,
    *,
    window: int | None = None,
    offset: int = 0,
    generator: Generator | None = None,
    **aliases: Any,
) -> Array:
    """softmax(q k^T scale, masked) v (Vaswani et al. 2017, eq. 1).

    q: (..., H, T, D); k: (..., H', S, D); v: (..., H', S, E); the result is (..., H, T, E).  H' may be a divisor of H:
    each head of k and v serves H / H' heads of q (Ainslie et al. 2023).  2-d arrays are one head.
    mask: booleans (True: attend) or floats to add to the scores, broadcast to (..., H, T, S).
    causal: query i sees keys up to i + offset; window: and only keys less than ``window`` away (itself included).
    A row that sees nothing gives zeros.  dropout_p: the weights are dropped out with this probability (0 outside
    training).  scale: 1 / sqrt(D) unless given.  PyTorch's attn_mask, is_causal and enable_gqa are accepted.
    Raises ValueError for shapes and numbers that do not fit.
    """
    for alias, value in aliases.items():
        if alias == "attn_mask" and mask is None:
            mask = value
        elif alias == "is_causal" and not causal:
            causal = value
        elif alias != "enable_gqa":
            known = ("mask", "attn_mask", "causal", "is_causal", "enable_gqa", "window", "offset", "generator")
            raise TypeError(
                f"scaled_dot_product_attention() got an unknown or repeated keyword {alias}={value!r}."
                f"{nearest(alias, known)}"
            )
    check_rate("scaled_dot_product_attention", dropout_p)
    if window is not None and window < 1:
        raise ValueError(f"scaled_dot_product_attention: window={window} must be at least 1 (the query itself)")
    full = _scores_shape(q, k, v)
    if mode().autocast is not None:  # 16-bit inputs and output, float32 in between
        q, k, v = cast_low(None, (q, k, v))
        with Changed(autocast=None):
            return scaled_dot_product_attention(
                q, k, v, mask, dropout_p, causal, scale, window=window, offset=offset, generator=generator
            )
    if mask is not None:
        mask = mask if hasattr(mask, "dtype") else np.asarray(mask)
        try:
            fits = np.broadcast_shapes(mask.shape, full) == full
        except ValueError:
            fits = False
        if not fits or raw(mask).dtype.kind in "iu":
            raise ValueError(
                f"scaled_dot_product_attention: mask has shape {mask.shape} and dtype {mask.dtype}, "
                f"expected booleans or floats that broadcast to {full}"
            )
    keep = None if dropout_p == 0 else kept(full, dropout_p, generator)
    return attention(
        q,
        k,
        v,
        mask,
        keep,
        scale=float(1.0 / math.sqrt(q.shape[-1] or 1) if scale is None else scale),
        causal=bool(causal),
        window=window,
        offset=int(offset),
        dropout=float(dropout_p),
    )


def _scores_shape(q: Array, k: Array, v: Array) -> tuple[int, ...]:
    """(..., H, T, S).  Raises ValueError for shapes that do not fit."""
    try:
        if min(q.ndim, k.ndim, v.ndim) >= 2 and q.shape[-1] == k.shape[-1] and k.shape[-2:-1] == v.shape[-2:-1]:
            heads, shared, values = (a.shape[-3] if a.ndim > 2 else 1 for a in (q, k, v))
            batch = np.broadcast_shapes(q.shape[:-3], k.shape[:-3], v.shape[:-3])
            if shared == values and shared and heads % shared == 0:
                return (*batch, heads, q.shape[-2], k.shape[-2])[0 if max(q.ndim, k.ndim, v.ndim) > 2 else 1 :]
    except ValueError:
        pass
    raise ValueError(
        f"scaled_dot_product_attention: q has shape {q.shape}, k {k.shape} and v {v.shape}: expected "
        "(..., H, T, D), (..., H', S, D) and (..., H', S, E), H divisible by H'"
    )


# rotary positions ---------------------------------------------------------------------------------------------
def _rotation_samples() -> Samples:
    def sample(
        label: str, x: tuple[int, ...], angles: tuple[int, ...], interleaved: bool, view: Any = lambda a: a
    ) -> Any:
        def make(rng: np.random.Generator) -> Sample:
            a = rng.uniform(-3, 3, angles)
            return Sample((view(rng.normal(size=x)), np.cos(a), np.sin(a)), {"interleaved": interleaved}, label)

        return make

    return calls(
        sample("halves", (2, 3, 4), (3, 2), False),
        sample("pairs", (2, 3, 4), (3, 2), True),
        sample("part, halves", (3, 6), (3, 2), False),
        sample("part, pairs", (3, 5), (1, 2), True),
        sample("strided", (4, 3, 2), (3, 2), False, lambda a: a.T[:, ::-1]),
        sample("empty", (0, 4), (0, 2), False),
    )


@primitive(
    vjp=dict(x=lambda g, cos, sin, interleaved: rotate(g, cos, -sin, interleaved=interleaved)),
    nondiff=("cos", "sin"),
    samples=_rotation_samples(),
)
def rotate(x: Array, cos: Array, sin: Array, *, interleaved: bool) -> Array:
    """Pairs of elements of the last axis turned by angles; the transpose turns them back.

    cos, sin: (..., n), broadcast to x's leading axes; the first 2n elements turn, the rest stays.  A pair is
    (i, i + n), or (2i, 2i + 1) if ``interleaved``.
    """
    v = floats(x)
    cos, sin = cos.astype(v.dtype, copy=False), sin.astype(v.dtype, copy=False)
    n = cos.shape[-1]
    first, second = (slice(0, 2 * n, 2), slice(1, 2 * n, 2)) if interleaved else (slice(0, n), slice(n, 2 * n))
    a, b = v[..., first], v[..., second]
    y = xp(x).empty(v.shape, v.dtype)
    y[..., 2 * n :] = v[..., 2 * n :]
    y[..., first] = a * cos - b * sin
    y[..., second] = b * cos + a * sin
    return rounded(y, x.dtype)


def rotary_tables(positions: Array, dims: int, base: float = 10000.0) -> tuple[Array, Array]:
    """(cos, sin) of position * base^(-2i / dims) for i < dims / 2, float64: positions' shape + (dims / 2,)."""
    if dims < 0 or dims % 2:
        raise ValueError(f"rope: {dims} elements cannot be paired: expected an even number")
    angles = np.asarray(positions, np.float64)[..., None] * float(base) ** (-np.arange(0, dims, 2) / max(dims, 1))
    return np.cos(angles), np.sin(angles)


def rope(
    x: Array,
    positions: Array | None = None,
    *,
    cos: Array | None = None,
    sin: Array | None = None,
    base: float = 10000.0,
    dims: int | None = None,
    interleaved: bool = False,
) -> Array:
    """Rotary position embedding (Su et al. 2021, eq. 34): pair i at position m is turned by m base^(-2i / dims).

    x: (..., T, D).  positions: (T,) or anything that broadcasts to x's shape without its last axis; 0 to T - 1 if None.
    cos, sin: tables (..., n) to use instead (``rotary_tables``, perhaps rescaled).  dims: how many elements turn (D).
    interleaved: pairs (2i, 2i + 1) as in the paper; otherwise (i, i + dims / 2) as Llama's weights have them.
    Raises ValueError for an odd number of dims or shapes that do not fit.
    """
    x = x if hasattr(x, "dtype") else np.asarray(x)
    if (cos is None) != (sin is None):
        raise ValueError("rope: cos and sin come together: got one without the other")
    if cos is None:
        at = np.arange(x.shape[-2]) if positions is None else np.asarray(raw(positions))
        cos, sin = rotary_tables(at, x.shape[-1] if dims is None else dims, base)
    if any(getattr(a, "tracked", False) for a in (positions, cos, sin)):
        raise TypeError("rope: positions, cos and sin are constants, one of them requires a gradient: use .detach()")
    cos, sin = np.asarray(raw(cos)), np.asarray(raw(sin))
    turned = (*x.shape[:-1], *cos.shape[-1:])
    try:
        fits = 2 * turned[-1] <= x.shape[-1] and np.broadcast_shapes(cos.shape, sin.shape, turned) == turned
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(
            f"rope: tables of shapes {cos.shape} and {sin.shape} do not fit x of shape {x.shape}: "
            f"expected (..., n) with n at most {x.shape[-1] // 2}, broadcast to {x.shape[:-1]}"
        )
    return rotate(x, cos, sin, interleaved=interleaved)

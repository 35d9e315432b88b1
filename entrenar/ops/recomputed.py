"""Projections that keep what goes into the cheap op before them, not what comes out: backward computes it again."""

from __future__ import annotations

from typing import Any

from ..array import Array
from ..autograd.fused import fused
from ..autograd.samples import Sample, Samples, calls, normals
from .activations import gelu, swiglu
from .layers import linear
from .normalization import layer_norm, rms_norm

__all__ = [
    "gelu_linear",
    "norm_linear",
    "rms_norm_linear",
    "rms_norm_linear_pair",
    "rms_norm_linear_triple",
    "swiglu_linear",
]


def _gelu_samples() -> Samples:
    return calls(
        normals("rows", (2, 3), (4, 3), (4,)),
        normals("tanh", (2, 3), (4, 3), (4,), approximate="tanh"),
        normals("no bias", (2, 3), (4, 3)),
        normals("3-d", (3, 2, 4), (5, 4), (5,)),
        normals("no rows", (0, 3), (2, 3), (2,)),
    )


@fused(samples=_gelu_samples())
def gelu_linear(x: Array, w: Array, b: Array = None, *, approximate: str = "none") -> Array:
    """linear(gelu(x), w, b) that keeps x alone.  x: (..., in); w: (out, in); b: (out,) or None."""
    return linear(gelu(x, approximate=approximate), w, b)


def _norm_samples() -> Samples:
    return calls(
        normals("rows", (2, 3), (3,), (3,), (4, 3), (4,)),
        normals("no bias", (2, 3), (3,), (3,), (4, 3)),
        normals("3-d", (3, 2, 4), (4,), (4,), (5, 4), (5,)),
        normals("no rows", (0, 3), (3,), (3,), (2, 3), (2,)),
    )


@fused(samples=_norm_samples())
def norm_linear(x: Array, gain: Array, shift: Array, w: Array, b: Array = None, *, eps: float = 1e-5) -> Array:
    """linear(layer_norm(x, gain, shift), w, b) that keeps x alone.

    x: (..., in); gain, shift: (in,); w: (out, in); b: (out,) or None.
    """
    return linear(layer_norm(x, gain, shift, eps=eps), w, b)


def _swiglu_samples() -> Samples:
    return calls(
        normals("rows", (2, 3), (2, 3), (4, 3), (4,)),
        normals("no bias", (2, 3), (2, 3), (4, 3)),
        normals("3-d", (3, 2, 4), (3, 2, 4), (5, 4), (5,)),
        normals("one gate for all", (3,), (2, 3), (4, 3)),
        normals("no rows", (0, 3), (0, 3), (2, 3), (2,)),
        lambda rng: Sample(
            (rng.normal(size=(3, 2)).T, rng.normal(size=(2, 6))[:, ::2], rng.normal(size=(3, 4)).T), {}, "strided"
        ),
    )


@fused(samples=_swiglu_samples())
def swiglu_linear(gate: Array, up: Array, w: Array, b: Array = None) -> Array:
    """linear(silu(gate) up, w, b), the end of Llama's MLP (Shazeer 2020, eq. 6), that keeps gate and up alone.

    gate, up: (..., in), or shapes that broadcast to it; w: (out, in); b: (out,) or None.
    """
    return linear(swiglu(gate, up), w, b)


# several projections of one normalised input ------------------------------------------------------------------
def _rms_samples(count: int) -> Samples:
    def sample(label: str, x: tuple[int, ...], biases: tuple[int, ...] = (), **how: Any) -> Any:
        n = x[-1]
        weights = [(n + 1 + i, n) for i in range(count)]
        return normals(
            label, x, (n,), *weights, *((w[0],) if i in biases else None for i, w in enumerate(weights)), **how
        )

    return calls(
        sample("rows", (2, 3), tuple(range(count))),
        sample("no bias", (2, 3), eps=0.1),
        sample("3-d, the last with a bias", (3, 2, 4), (count - 1,)),
        sample("no rows", (0, 3)),
        lambda rng: Sample(
            (
                rng.normal(size=(3, 2)).T,
                rng.normal(size=6)[::-2],
                *(rng.normal(size=(3, 4 + i)).T if i else rng.normal(size=(4, 6))[:, ::2] for i in range(count)),
            ),
            {},
            "strided",
        ),
    )


@fused(samples=_rms_samples(1))
def rms_norm_linear(x: Array, gain: Array, w: Array, b: Array = None, *, eps: float = 1e-6) -> Array:
    """linear(rms_norm(x, gain), w, b) that keeps x alone.

    x: (..., in); gain: (in,); w: (out, in); b: (out,) or None.
    """
    return linear(rms_norm(x, gain, eps=eps), w, b)


@fused(samples=_rms_samples(2))
def rms_norm_linear_pair(
    x: Array, gain: Array, w1: Array, w2: Array, b1: Array = None, b2: Array = None, *, eps: float = 1e-6
) -> tuple[Array, Array]:
    """Two projections of rms_norm(x, gain), as gate and up of Llama's MLP, that keep x alone.

    x: (..., in); gain: (in,); w1, w2: (out, in), each with its own out; b1, b2: (out,) or None.
    """
    h = rms_norm(x, gain, eps=eps)
    return linear(h, w1, b1), linear(h, w2, b2)


@fused(samples=_rms_samples(3))
def rms_norm_linear_triple(
    x: Array,
    gain: Array,
    w1: Array,
    w2: Array,
    w3: Array,
    b1: Array = None,
    b2: Array = None,
    b3: Array = None,
    *,
    eps: float = 1e-6,
) -> tuple[Array, Array, Array]:
    """Three projections of rms_norm(x, gain), as queries, keys and values, that keep x alone.

    Shapes as in ``rms_norm_linear_pair``.
    """
    h = rms_norm(x, gain, eps=eps)
    return linear(h, w1, b1), linear(h, w2, b2), linear(h, w3, b3)

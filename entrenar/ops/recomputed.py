"""Projections that keep what goes into the cheap op before them, not what comes out: backward computes it again."""

from __future__ import annotations

from ..array import Array
from ..autograd.fused import fused
from ..autograd.samples import Samples, calls, normals
from .activations import gelu
from .layers import linear
from .normalization import layer_norm

__all__ = ["gelu_linear", "norm_linear"]


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

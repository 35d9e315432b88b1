"""Kernels in Numba: the fused ops of training on a CPU.  Imported when one of their ops is first called."""

from . import activations, attention, dropout, embedding, gated, losses, norms, random, recomputed, residual, rope

__all__ = [
    "activations",
    "attention",
    "dropout",
    "embedding",
    "gated",
    "losses",
    "norms",
    "random",
    "recomputed",
    "residual",
    "rope",
]

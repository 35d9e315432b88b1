"""F1: the registry of kernels and, below it, one package per backend."""

from .registry import (
    BACKENDS,
    KERNELS,
    REFERENCE,
    SERVED,
    Backend,
    Kernel,
    backend_table,
    find,
    has_kernels,
    kernel,
    on_change,
    op_key,
    served,
    unregister,
)

__all__ = [
    "BACKENDS",
    "KERNELS",
    "REFERENCE",
    "SERVED",
    "Backend",
    "Kernel",
    "backend_table",
    "find",
    "has_kernels",
    "kernel",
    "on_change",
    "op_key",
    "served",
    "unregister",
]

backend_table(
    "numba",
    priority=20,
    module="entrenar.kernels.numba",
    ops=[
        "attention",
        "drop",
        "embedding",
        "embedding_sum",
        "gelu",
        "layer_norm",
        "log_softmax",
        "logsumexp",
        "rms_norm",
        "rotate",
        "row_losses",
        "silu",
        "softmax",
    ],
)

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
    unregister,
)

__all__ = [
    "BACKENDS", "KERNELS", "REFERENCE", "SERVED", "Backend", "Kernel", "backend_table", "find", "has_kernels",
    "kernel", "on_change", "op_key", "unregister",
]

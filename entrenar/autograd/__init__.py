"""F2: the tape and everything that walks it."""

from . import func, samples
from .anomaly import detect_anomaly
from .backward import backward, grad
from .checkpoint import checkpoint
from .codegen import source
from .function import Function
from .fused import fused
from .modes import autocast, backend, enable_grad, is_grad_enabled, no_grad, scope, set_grad_enabled
from .primitive import OPS, primitive
from .tensor import Tensor

__all__ = [
    "OPS",
    "Function",
    "Tensor",
    "autocast",
    "backend",
    "backward",
    "checkpoint",
    "detect_anomaly",
    "enable_grad",
    "func",
    "fused",
    "grad",
    "is_grad_enabled",
    "no_grad",
    "primitive",
    "samples",
    "scope",
    "set_grad_enabled",
    "source",
]

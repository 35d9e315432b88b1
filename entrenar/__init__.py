"""entrenar: NumPy with gradients that you can read, check and train with.

``import entrenar as en`` loads NumPy and nothing else; the packages for models and training load on first use.
"""

import importlib as _importlib
from typing import Any as _Any

from .array import (
    AnomalyError,
    EntrenarError,
    Generator,
    GraphError,
    default_dtype,
    default_generator,
    manual_seed,
    set_default_dtype,
)
from .autograd import (
    Function,
    Tensor,
    autocast,
    backend,
    backward,
    checkpoint,
    detect_anomaly,
    enable_grad,
    func,
    fused,
    grad,
    is_grad_enabled,
    no_grad,
    primitive,
    samples,
    scope,
    set_grad_enabled,
)
from .kernels import kernel
from .ops import PUBLIC as _PUBLIC

__version__ = "0.1.0"
globals().update(_PUBLIC)

# loaded on first use: package -> the name it is known by here
_LAZY = ("cli", "config", "data", "inspect", "io", "models", "nn", "optim", "train")
_LAZY_NAMES = {
    "tape": "inspect",
    "conventions": "inspect",
    "set_num_threads": "kernels.threads",
    "get_num_threads": "kernels.threads",
    "bfloat16": "array.dtypes",
    "memory": "kernels",
}

__all__ = [
    "AnomalyError",
    "EntrenarError",
    "Function",
    "Generator",
    "GraphError",
    "Tensor",
    "autocast",
    "backend",
    "backward",
    "checkpoint",
    "default_dtype",
    "default_generator",
    "detect_anomaly",
    "enable_grad",
    "func",
    "fused",
    "grad",
    "is_grad_enabled",
    "kernel",
    "manual_seed",
    "no_grad",
    "primitive",
    "samples",
    "scope",
    "set_default_dtype",
    "set_grad_enabled",
    *_PUBLIC,
    *_LAZY,
    *_LAZY_NAMES,
]


def __getattr__(name: str) -> _Any:
    if name in _LAZY:
        return _importlib.import_module(f"{__name__}.{name}")
    if name == "bfloat16":
        from .array import bfloat16

        return bfloat16()
    if name in _LAZY_NAMES:
        return getattr(_importlib.import_module(f"{__name__}.{_LAZY_NAMES[name]}"), name)
    from .array import nearest

    raise AttributeError(f"module 'entrenar' has no attribute {name!r}.{nearest(name, __all__)}")


def __dir__() -> list[str]:
    return sorted(__all__)

"""F3: every op, declared once.  Importing this package installs operators and methods on Tensor."""

from types import ModuleType
from typing import Any

from ..autograd.linear import cast, scale, stop_gradient
from . import (
    activations,
    attention,
    convolution,
    creation,
    cumulative,
    elementwise,
    exponential,
    index,
    integral,
    joining,
    layers,
    linalg,
    linear_losses,
    losses,
    methods,
    normalization,
    order,
    pooling,
    protocols,
    recomputed,
    reduce,
    shape,
    solve,
    trigonometric,
)

FAMILIES: tuple[ModuleType, ...] = (
    creation,
    elementwise,
    integral,
    exponential,
    trigonometric,
    reduce,
    cumulative,
    order,
    shape,
    joining,
    index,
    linalg,
    solve,
    activations,
    normalization,
    convolution,
    pooling,
    losses,
    linear_losses,
    attention,
    layers,
    recomputed,
)
PUBLIC: dict[str, Any] = {"cast": cast, "scale": scale, "stop_gradient": stop_gradient}
for _family in FAMILIES:
    PUBLIC.update({name: getattr(_family, name) for name in _family.__all__})

methods.install()
protocols.install()

__all__ = ["FAMILIES", "PUBLIC"]

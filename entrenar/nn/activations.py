"""Layers without weights: activations, dropout, reshaping."""

from __future__ import annotations

from typing import Any

from ..array import Generator
from ..autograd import Tensor
from ..ops import activations, exponential, layers, shape
from .module import Module


class Identity(Module):
    """x itself."""

    def forward(self, x: Any) -> Any:
        """x unchanged."""
        return x


class ReLU(Module):
    """max(x, 0)."""

    def forward(self, x: Any) -> Tensor:
        """x: any shape."""
        return activations.relu(x)


class LeakyReLU(Module):
    """x, or negative_slope x below 0."""

    def __init__(self, negative_slope: float = 0.01) -> None:
        self.negative_slope = negative_slope

    def forward(self, x: Any) -> Tensor:
        """x: any shape."""
        return activations.leaky_relu(x, self.negative_slope)


class GELU(Module):
    """x Phi(x), or its tanh approximation (Hendrycks and Gimpel 2016).  approximate: "none" or "tanh"."""

    def __init__(self, approximate: str = "none") -> None:
        self.approximate = approximate

    def forward(self, x: Any) -> Tensor:
        """x: any shape."""
        return activations.gelu(x, approximate=self.approximate)


class SiLU(Module):
    """x sigmoid(x)."""

    def forward(self, x: Any) -> Tensor:
        """x: any shape."""
        return activations.silu(x)


class Tanh(Module):
    """tanh(x)."""

    def forward(self, x: Any) -> Tensor:
        """x: any shape."""
        return exponential.tanh(x)


class Sigmoid(Module):
    """1 / (1 + e^-x)."""

    def forward(self, x: Any) -> Tensor:
        """x: any shape."""
        return exponential.sigmoid(x)


class Softplus(Module):
    """log(1 + e^x)."""

    def forward(self, x: Any) -> Tensor:
        """x: any shape."""
        return exponential.softplus(x)


class Softmax(Module):
    """e^x over its sum along ``axis``."""

    def __init__(self, axis: int = -1) -> None:
        self.axis = axis

    def forward(self, x: Any) -> Tensor:
        """x: any shape."""
        return activations.softmax(x, axis=self.axis)


class LogSoftmax(Module):
    """log of Softmax, without the detour."""

    def __init__(self, axis: int = -1) -> None:
        self.axis = axis

    def forward(self, x: Any) -> Tensor:
        """x: any shape."""
        return activations.log_softmax(x, axis=self.axis)


class Dropout(Module):
    """Zeroes elements with probability p and divides the rest by 1 - p, in training; x itself in evaluation.

    generator: where the random bits come from, the default one if None.  Raises ValueError for p outside [0, 1].
    """

    def __init__(self, p: float = 0.5, generator: Generator | None = None) -> None:
        layers.check_rate("Dropout", p)
        self.p, self.generator = p, generator

    def forward(self, x: Any) -> Any:
        """x: any shape."""
        return layers.dropout(x, self.p, training=self.training, generator=self.generator)

    def extra_repr(self) -> str:
        """The rate."""
        return f"p={self.p}"


class Flatten(Module):
    """Axes ``start`` to ``end`` as one."""

    def __init__(self, start: int = 1, end: int = -1) -> None:
        self.start, self.end = start, end

    def forward(self, x: Any) -> Tensor:
        """x: at least ``start + 1`` axes."""
        return shape.flatten(x, self.start, self.end)

"""Layers with weights: Linear, Embedding, and the normalisations.  Shapes and initialisation as in PyTorch."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..array import default_dtype
from ..autograd import Tensor
from ..ops import layers, normalization
from . import init
from .module import Module, Parameter


def empty(*shape: int, dtype: Any = None) -> Parameter:
    """A parameter whose values are still to be set, in the default dtype.  Raises ValueError for a size below 1."""
    for n in shape:
        if isinstance(n, bool) or not isinstance(n, (int, np.integer)) or n < 1:
            raise ValueError(f"a layer's sizes are positive integers, got {shape}")
    return Parameter(np.empty(shape, default_dtype() if dtype is None else dtype))


class Linear(Module):
    """y = x W^T + b.  weight (out, in), bias (out,): both uniform in +-1/sqrt(in), as PyTorch."""

    def __init__(self, in_features: int, out_features: int, bias: bool = True) -> None:
        self.in_features, self.out_features = in_features, out_features
        self.weight = empty(out_features, in_features)
        self.bias = empty(out_features) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw weight and bias anew."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5.0))
        if self.bias is not None:
            bound = 1.0 / math.sqrt(self.in_features)
            init.uniform_(self.bias, -bound, bound)

    def forward(self, x: Any) -> Tensor:
        """x: (..., in) -> (..., out)."""
        return layers.linear(x, self.weight, self.bias)

    def extra_repr(self) -> str:
        """Sizes and bias."""
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


class Embedding(Module):
    """Rows of a table by id.  weight (num_embeddings, embedding_dim), standard normal.

    weight: start from this tensor instead of drawing one (its memory is used).
    """

    def __init__(self, num_embeddings: int, embedding_dim: int, weight: Tensor | None = None) -> None:
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.weight = empty(num_embeddings, embedding_dim) if weight is None else Parameter(weight)
        if self.weight.shape != (num_embeddings, embedding_dim):
            raise ValueError(
                f"Embedding: weight has shape {self.weight.shape}, expected {(num_embeddings, embedding_dim)}"
            )
        if weight is None:
            self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the table anew."""
        init.normal_(self.weight)

    def forward(self, ids: Any) -> Tensor:
        """ids: integers of any shape S -> (*S, embedding_dim).  Raises IndexError for an id outside the table."""
        return layers.embedding(ids, self.weight)

    def extra_repr(self) -> str:
        """Sizes."""
        return f"{self.num_embeddings}, {self.embedding_dim}"


class LayerNorm(Module):
    """(x - mean) / sqrt(var + eps) * weight + bias over the last axes (Ba et al. 2016); weight 1, bias 0.

    normalized_shape: the size of the last axis, or of the last several.
    """

    def __init__(
        self,
        normalized_shape: int | tuple[int, ...],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
    ) -> None:
        self.normalized_shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.eps = eps
        self.weight = empty(*self.normalized_shape) if elementwise_affine else None
        self.bias = empty(*self.normalized_shape) if elementwise_affine and bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """weight 1, bias 0."""
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(self, x: Any) -> Tensor:
        """x: (..., *normalized_shape), the same shape out.  Raises ValueError for another shape."""
        count = len(self.normalized_shape)
        if tuple(x.shape[-count:]) != self.normalized_shape:
            raise ValueError(f"LayerNorm({self.normalized_shape}) got an input of shape {tuple(x.shape)}")
        return normalization.layer_norm(
            x, self.weight, self.bias, axes=None if self.weight is not None else count, eps=self.eps
        )

    def extra_repr(self) -> str:
        """Shape and eps."""
        return f"{self.normalized_shape}, eps={self.eps}"


class RMSNorm(Module):
    """x / sqrt(mean(x^2) + eps) * weight over the last axis (Zhang and Sennrich 2019, eq. 4); weight 1."""

    def __init__(self, dim: int, eps: float = 1e-6) -> None:
        self.eps = eps
        self.weight = init.ones_(empty(dim))

    def forward(self, x: Any) -> Tensor:
        """x: (..., dim), the same shape out."""
        return normalization.rms_norm(x, self.weight, eps=self.eps)

    def extra_repr(self) -> str:
        """Size and eps."""
        return f"{self.weight.shape[0]}, eps={self.eps}"

"""Convolutions, pooling, and the normalisations that go by channel.  Shapes and initialisation as in PyTorch."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..autograd import Tensor
from ..ops import convolution, normalization, pooling
from . import init
from .layers import empty
from .module import Module


class _Conv(Module):
    """What Conv1d and Conv2d share: weight (out, in / groups, *kernel) and bias (out,), uniform in +-1/sqrt(fan_in)."""

    axes = 0

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        bias: bool = True,
    ) -> None:
        if groups < 1 or in_channels % groups or out_channels % groups:
            raise ValueError(
                f"{type(self).__name__}: groups={groups} must divide in_channels={in_channels} and "
                f"out_channels={out_channels}"
            )
        window = (kernel_size,) * self.axes if isinstance(kernel_size, int) else tuple(kernel_size)
        if len(window) != self.axes:
            raise ValueError(f"{type(self).__name__}: kernel_size has {self.axes} numbers, got {kernel_size!r}")
        self.options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
        self.weight = empty(out_channels, in_channels // groups, *window)
        self.bias = empty(out_channels) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw weight and bias anew."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5.0))
        if self.bias is not None:
            bound = 1.0 / math.sqrt(init.fans(self.weight)[0])
            init.uniform_(self.bias, -bound, bound)

    def extra_repr(self) -> str:
        """Weight shape and options."""
        return ", ".join([f"weight {self.weight.shape}", *(f"{k}={v}" for k, v in self.options.items())])


class Conv1d(_Conv):
    """Cross-correlation over one axis."""

    axes = 1

    def forward(self, x: Any) -> Tensor:
        """x: (N, C, L) -> (N, O, L')."""
        return convolution.conv1d(x, self.weight, self.bias, **self.options)


class Conv2d(_Conv):
    """Cross-correlation over two axes."""

    axes = 2

    def forward(self, x: Any) -> Tensor:
        """x: (N, C, H, W) -> (N, O, H', W')."""
        return convolution.conv2d(x, self.weight, self.bias, **self.options)


class MaxPool2d(Module):
    """The largest value of each window."""

    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1) -> None:
        self.kernel_size = kernel_size
        self.options = {"stride": stride, "padding": padding, "dilation": dilation}

    def forward(self, x: Any) -> Tensor:
        """x: (N, C, H, W) -> (N, C, H', W')."""
        return pooling.max_pool2d(x, self.kernel_size, **self.options)


class AvgPool2d(Module):
    """The mean of each window."""

    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0, count_include_pad: bool = True) -> None:
        self.kernel_size = kernel_size
        self.options = {"stride": stride, "padding": padding, "count_include_pad": count_include_pad}

    def forward(self, x: Any) -> Tensor:
        """x: (N, C, H, W) -> (N, C, H', W')."""
        return pooling.avg_pool2d(x, self.kernel_size, **self.options)


class GroupNorm(Module):
    """Normalisation over groups of channels (Wu and He 2018); weight 1, bias 0 by channel."""

    def __init__(self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True) -> None:
        if num_groups < 1 or num_channels % num_groups:
            raise ValueError(f"GroupNorm: num_groups={num_groups} must divide num_channels={num_channels}")
        self.num_groups, self.eps = num_groups, eps
        self.weight = init.ones_(empty(num_channels)) if affine else None
        self.bias = init.zeros_(empty(num_channels)) if affine else None

    def forward(self, x: Any) -> Tensor:
        """x: (N, C, ...), the same shape out."""
        return normalization.group_norm(x, self.weight, self.bias, num_groups=self.num_groups, eps=self.eps)


class BatchNorm(Module):
    """Normalisation by channel over the batch (Ioffe and Szegedy 2015), with running statistics for evaluation.

    In training the batch's mean and population variance are used, and the running ones move to (1 - momentum) old +
    momentum new, the new variance with ddof 1 as in PyTorch.  ``num_batches_tracked`` counts.
    """

    axes: tuple[int, ...] = ()  # the numbers of axes an input may have; any if empty
    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float = 0.1, affine: bool = True) -> None:
        if not 0 <= momentum <= 1:
            raise ValueError(f"BatchNorm: momentum must be in [0, 1], got {momentum!r}")
        self.eps, self.momentum = eps, momentum
        self.weight = init.ones_(empty(num_features)) if affine else None
        self.bias = init.zeros_(empty(num_features)) if affine else None
        self.register_buffer("running_mean", init.zeros_(empty(num_features)).detach())
        self.register_buffer("running_var", init.ones_(empty(num_features)).detach())
        self.register_buffer("num_batches_tracked", np.zeros((), np.int64))

    def forward(self, x: Any) -> Tensor:
        """x: (N, C) or (N, C, ...), the same shape out.  Raises ValueError for another number of axes or channels."""
        if (self.axes and x.ndim not in self.axes) or x.shape[1] != self.running_mean.shape[0]:
            raise ValueError(
                f"{type(self).__name__}({self.running_mean.shape[0]}) got an input of shape {tuple(x.shape)}"
            )
        if self.training:
            self._track(x)
        return normalization.batch_norm(
            x, self.running_mean, self.running_var, self.weight, self.bias, training=self.training, eps=self.eps
        )

    def _track(self, x: Any) -> None:
        count = x.size // x.shape[1]
        if count < 2:
            raise ValueError(
                f"{type(self).__name__} needs more than one value per channel in training, got shape {x.shape}"
            )
        mean, var = normalization.batch_statistics(Tensor(x))
        m, unbiased = self.momentum, count / (count - 1)
        self.running_mean.write(self.running_mean.data * (1 - m) + mean.data * m)
        self.running_var.write(self.running_var.data * (1 - m) + var.data * (m * unbiased))
        self.num_batches_tracked.write(self.num_batches_tracked.data + 1)

    def extra_repr(self) -> str:
        """Size and rates."""
        return f"{self.running_mean.shape[0]}, eps={self.eps}, momentum={self.momentum}"


class BatchNorm1d(BatchNorm):
    """BatchNorm of (N, C) or (N, C, L)."""

    axes = (2, 3)


class BatchNorm2d(BatchNorm):
    """BatchNorm of (N, C, H, W)."""

    axes = (4,)

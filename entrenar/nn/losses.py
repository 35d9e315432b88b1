"""Losses as modules: the ops of ``entrenar.ops.losses`` with their options kept."""

from __future__ import annotations

from typing import Any

from ..autograd import Tensor
from ..ops import losses
from .module import Module


class _Loss(Module):
    """Keeps the options; ``op`` is called with (x, target)."""

    op: Any = None

    def __init__(self, **options: Any) -> None:
        self.options = options

    def forward(self, x: Any, target: Any) -> Tensor:
        """The reduced loss; shapes and dtypes as the op of the same name."""
        return type(self).op(x, target, **self.options)

    def extra_repr(self) -> str:
        """The options."""
        return ", ".join(f"{k}={v}" for k, v in self.options.items() if v is not None)


class CrossEntropyLoss(_Loss):
    """``cross_entropy``: logits (..., C) against class indices (or probabilities); classes last, or along ``axis``."""

    op = staticmethod(losses.cross_entropy)

    def __init__(
        self,
        weight: Any = None,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
        axis: int = -1,
    ) -> None:
        super().__init__(
            weight=weight, ignore_index=ignore_index, reduction=reduction, label_smoothing=label_smoothing, axis=axis
        )


class NLLLoss(_Loss):
    """``nll_loss``: log-probabilities (..., C) against class indices."""

    op = staticmethod(losses.nll_loss)

    def __init__(self, weight: Any = None, ignore_index: int = -100, reduction: str = "mean", axis: int = -1) -> None:
        super().__init__(weight=weight, ignore_index=ignore_index, reduction=reduction, axis=axis)


class MSELoss(_Loss):
    """``mse_loss``: (x - target)^2."""

    op = staticmethod(losses.mse_loss)

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__(reduction=reduction)


class L1Loss(_Loss):
    """``l1_loss``: |x - target|."""

    op = staticmethod(losses.l1_loss)

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__(reduction=reduction)


class HuberLoss(_Loss):
    """``huber_loss``: quadratic within ``delta``, linear beyond."""

    op = staticmethod(losses.huber_loss)

    def __init__(self, reduction: str = "mean", delta: float = 1.0) -> None:
        super().__init__(reduction=reduction, delta=delta)


class KLDivLoss(_Loss):
    """``kl_div``: log-probabilities against probabilities; "batchmean" unless told otherwise."""

    op = staticmethod(losses.kl_div)

    def __init__(self, reduction: str = "batchmean", log_target: bool = False) -> None:
        super().__init__(reduction=reduction, log_target=log_target)


class BCEWithLogitsLoss(_Loss):
    """``binary_cross_entropy_with_logits``."""

    op = staticmethod(losses.binary_cross_entropy_with_logits)

    def __init__(self, weight: Any = None, reduction: str = "mean", pos_weight: Any = None) -> None:
        super().__init__(weight=weight, reduction=reduction, pos_weight=pos_weight)

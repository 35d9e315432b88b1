"""Callbacks: what is told to whoever watches a run, and how one may end it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .trainer import Trainer


@dataclass(frozen=True)
class StepRecord:
    """One update.  loss: mean over the window's tokens; grad_norm: before clipping; tokens: trained in this window.

    val_loss: set if this step was followed by a validation.  skipped: the gradient was not finite, nothing was changed.
    """

    step: int
    loss: float
    lr: float
    grad_norm: float
    tokens: int
    seconds: float
    skipped: bool = False
    val_loss: float | None = None


class Callback:
    """Base: override what you need.  ``on_step`` and ``on_validation`` may return "stop" to end the run there."""

    def on_start(self, trainer: Trainer) -> None:
        """Before the first step of this process."""

    def on_step(self, trainer: Trainer, record: StepRecord) -> str | None:
        """After each step, its validation included."""
        return None

    def on_validation(self, trainer: Trainer, loss: float) -> str | None:
        """After each validation."""
        return None

    def on_checkpoint(self, trainer: Trainer, path: str, digest: str) -> None:
        """After a checkpoint is in place; ``digest`` is its state hash."""

    def on_end(self, trainer: Trainer) -> None:
        """After the last step, also when the run was stopped."""


class EarlyStopping(Callback):
    """Stop when ``patience`` validations in a row were not better than the best before by at least ``min_delta``."""

    def __init__(self, patience: int, min_delta: float = 0.0) -> None:
        if patience < 1 or min_delta < 0:
            raise ValueError(f"EarlyStopping needs patience >= 1 and min_delta >= 0, got {patience} and {min_delta}")
        self.patience, self.min_delta = patience, min_delta

    def on_validation(self, trainer: Trainer, loss: float) -> str | None:
        """Counted from the validations so far, so that a resumed run stops where an unbroken one does."""
        best, waited = float("inf"), 0
        for _, value in trainer.metrics.val_losses:
            waited = 0 if value < best - self.min_delta else waited + 1
            best = min(best, value) if waited == 0 else best
        return "stop" if waited >= self.patience else None

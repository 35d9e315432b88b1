"""Callbacks: what is told to whoever watches a run, and how one may end it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .trainer import Trainer

CONTINUE, SKIP_EPOCH, STOP = "continue", "skip-epoch", "stop"  # what a callback may answer; None is "continue"


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
    """Base: override what you need.

    ``on_step`` and ``on_validation`` may return "stop" to end the run there, "skip-epoch" to leave out the rest of the
    epoch, "continue" or None.
    """

    @property
    def name(self) -> str:
        """How messages call it."""
        return type(self).__name__

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


class FunctionCallback(Callback):
    """A function (trainer, record), called after each update; what it returns is its answer."""

    def __init__(self, function: Callable[[Trainer, StepRecord], str | None]) -> None:
        self.function = function

    @property
    def name(self) -> str:
        """The function's."""
        return getattr(self.function, "__qualname__", repr(self.function))

    def on_step(self, trainer: Trainer, record: StepRecord) -> str | None:
        """Ask the function."""
        return self.function(trainer, record)


def callback(given: Any) -> Callback:
    """A Callback as it is, a function as one.  Raises TypeError for anything else."""
    if isinstance(given, Callback):
        return given
    if isinstance(given, type) or not callable(given):
        raise TypeError(f"callbacks are Callback objects or functions (trainer, record), got {given!r}")
    return FunctionCallback(given)


class EarlyStopping(Callback):
    """Stop when ``patience`` validations in a row were not better than the best before by at least ``min_delta``.

    restore_best: leave the model with the weights of the best validation when the run ends, for this reason or another
    (checkpoints keep those of the last step, so that the run can go on).
    """

    def __init__(self, patience: int, min_delta: float = 0.0, restore_best: bool = False) -> None:
        if patience < 1 or not 0 <= min_delta < math.inf:
            raise ValueError(f"EarlyStopping needs patience >= 1 and min_delta >= 0, got {patience} and {min_delta}")
        self.patience, self.min_delta, self.restore_best = patience, min_delta, restore_best
        self._best: dict[str, Any] | None = None

    def on_validation(self, trainer: Trainer, loss: float) -> str | None:
        """Counted from the validations so far, so that a resumed run stops where an unbroken one does."""
        if self.restore_best and trainer.folder is None and trainer.metrics.best_step == trainer.step:
            self._best = {name: tensor.numpy().copy() for name, tensor in trainer.model.state_dict().items()}
        best, waited = math.inf, 0
        for _, value in trainer.metrics.val_losses:
            waited = 0 if value < best - self.min_delta else waited + 1
            best = min(best, value) if waited == 0 else best
        return STOP if waited >= self.patience else None

    def on_end(self, trainer: Trainer) -> None:
        """Put the best weights back: from the run folder, or from memory where there is none."""
        if self.restore_best and trainer.metrics.val_losses:
            best = self._best if trainer.folder is None else trainer.folder.weights("best")[0]
            if best is not None:
                trainer.model.load_state_dict(best)

"""What a run is asked for, and how it ended."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..array import EntrenarError, nearest

PRECISIONS = ("bfloat16", "float16")


class TrainingFailed(EntrenarError, FloatingPointError):
    """A run cannot go on: its gradients stay NaN or infinite.  The message names the parameter."""


@dataclass(frozen=True)
class TrainConfig:
    """How long, how often, how carefully.

    max_steps: updates.  accumulation: micro-batches per update.  max_grad_norm: 0 leaves gradients unclipped.
    eval_every, save_every: updates between validations and checkpoints, 0 only at the end.  keep: checkpoints to keep.
    max_skipped: so many skipped updates in a row end the run with TrainingFailed.
    max_tokens: end after the update that brings the tokens trained on to this; 0 for no such end.
    precision: "bfloat16" or "float16" runs products in it (``en.autocast``), the latter with a GradScaler; weights stay
    as they are.  gradient_checkpointing: backward runs the layers again instead of keeping what they computed.
    Raises ValueError for a number out of range.
    """

    max_steps: int
    accumulation: int = 1
    max_grad_norm: float = 1.0
    eval_every: int = 0
    save_every: int = 0
    keep: int = 3
    max_skipped: int = 20
    max_tokens: int = 0
    precision: str | None = None
    gradient_checkpointing: bool = False

    def __post_init__(self) -> None:
        for name, low in (
            ("max_steps", 1),
            ("accumulation", 1),
            ("eval_every", 0),
            ("save_every", 0),
            ("keep", 1),
            ("max_skipped", 1),
            ("max_tokens", 0),
        ):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < low:
                raise ValueError(f"TrainConfig: {name} must be an integer of at least {low}, got {value!r}")
        if not 0 <= self.max_grad_norm < math.inf:
            raise ValueError(f"TrainConfig: max_grad_norm must be a number of at least 0, got {self.max_grad_norm!r}")
        if self.precision not in (None, *PRECISIONS):
            raise ValueError(
                f"TrainConfig: precision must be one of {PRECISIONS} or None, got {self.precision!r}."
                f"{nearest(str(self.precision), PRECISIONS)}"
            )


@dataclass(frozen=True)
class TrainResult:
    """How a run ended.  val_loss is None without validation data; stopped: why before max_steps, or None."""

    step: int
    train_loss: float
    val_loss: float | None
    best_val_loss: float | None
    skipped: int
    state_hash: str
    stopped: str | None = None

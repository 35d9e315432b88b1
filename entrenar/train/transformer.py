"""A trainer that builds what it needs from one configuration: model, AdamW, schedule; for causal language models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..array import manual_seed
from ..autograd import Tensor
from ..autograd.tensor import raw
from ..data.batch import Batch
from ..io import save_tensors
from ..models import build
from ..optim import AdamW, decay_groups, run_schedule
from .callbacks import StepRecord
from .options import TrainConfig
from .trainer import Given, Trainer


@dataclass(frozen=True)
class TransformerTrainConfig(TrainConfig):
    """A TrainConfig, and what is trained with which optimizer.

    model: an architecture or a preset (``en.models.build``), with ``model_options`` and weights of ``dtype``.
    lr, betas, eps, weight_decay: AdamW's; biases and gains do not decay.  scheduler: a row of SCHEDULES, with
    ``warmup_steps`` before it and ``min_lr_ratio`` of the peak at its end.  seed: of the default generator, before the
    weights are drawn.  max_seq_len: a longer text is refused; None leaves it to the model.
    Everything here is deterministic: there is no switch for it.
    """

    model: str = "gpt2"
    model_options: Mapping[str, Any] = field(default_factory=dict)
    dtype: str | None = None
    lr: float = 1e-4
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.01
    scheduler: str = "cosine"
    warmup_steps: int = 0
    min_lr_ratio: float = 0.0
    seed: int = 0
    max_seq_len: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_seq_len is not None and self.max_seq_len < 1:
            raise ValueError(f"TransformerTrainConfig: max_seq_len must be at least 1, got {self.max_seq_len}")


class TransformerTrainer(Trainer):
    """``TransformerTrainer(config)`` builds the model; ``TransformerTrainer.with_model(model, config)`` takes one.

    Further keywords (batches, val_batches, folder, callbacks) are the Trainer's.
    """

    config: TransformerTrainConfig

    def __init__(self, config: TransformerTrainConfig, *, model: Any = None, **rest: Any) -> None:
        manual_seed(config.seed)
        if model is None:
            model = build(config.model, config.model_options, config.dtype)
        optimizer = AdamW(
            decay_groups(model.named_parameters(), config.weight_decay),
            lr=config.lr,
            betas=config.betas,
            eps=config.eps,
        )
        schedule = run_schedule(config.scheduler, config.lr, config.max_steps, config.warmup_steps, config.min_lr_ratio)
        super().__init__(model, optimizer, config, schedule=schedule, **rest)
        self._waiting: list[Batch] = []

    @classmethod
    def with_model(cls, model: Any, config: TransformerTrainConfig, **rest: Any) -> TransformerTrainer:
        """A trainer of a model that is there already: ``config``'s model, model_options and dtype do not matter."""
        return cls(config, model=model, **rest)

    @property
    def is_mixed_precision(self) -> bool:
        """Whether products run in a 16-bit float."""
        return self.config.precision is not None

    @property
    def is_checkpointing(self) -> bool:
        """Whether backward runs layers again."""
        return bool(getattr(self.model, "is_gradient_checkpointing", False))

    def forward_single(self, input_ids: Any, target_ids: Any) -> tuple[float, Tensor, Tensor]:
        """(mean loss, the same as a tensor with its tape, logits (T, vocab_size)) of one text.

        input_ids, target_ids: (T,) integers, the targets already shifted; -100 is ignored.
        """
        ids, targets = (np.asarray(raw(a))[None] for a in (input_ids, target_ids))
        self._check_length(ids)
        with self._precision():
            loss = self.model.loss(ids, targets)
            logits = self.model(ids)[0]
        return float(loss.item()), loss, logits

    def train_batch(self, batch: Given) -> StepRecord | None:
        """Take one micro-batch: every ``accumulation``-th call makes an update and returns its record, others None."""
        self._waiting.append(Batch(*batch))
        return self.flush() if len(self._waiting) == self.config.accumulation else None

    def flush(self) -> StepRecord | None:
        """Make an update of the micro-batches that ``train_batch`` holds; None if there are none."""
        window, self._waiting = self._waiting, []
        return self.train_step(window) if window else None

    def train_step(self, window: Sequence[Given]) -> StepRecord:
        """As the Trainer's; texts longer than max_seq_len are refused with a ValueError."""
        for batch in window:
            self._check_length(batch[0])
        return super().train_step(window)

    def save_checkpoint(self) -> Path | None:
        """As the Trainer's.  Raises ValueError while ``train_batch`` holds micro-batches, which it would lose."""
        if self._waiting:
            raise ValueError(
                f"{len(self._waiting)} micro-batches wait for their update: call flush() before a checkpoint is written"
            )
        return super().save_checkpoint()

    def save(self, path: str | Path, name: str | None = None, architecture: str | None = None) -> Path:
        """Write the weights to a safetensors file, atomically; ``name`` and ``architecture`` are in its metadata.

        A folder that other libraries load is written by ``model.save_pretrained``.
        """
        given = {"name": name, "architecture": architecture or type(self.model).__name__, "step": str(self.step)}
        state = {key: raw(tensor) for key, tensor in self.model.state_dict().items()}
        save_tensors(path, state, {"format": "pt", **{key: value for key, value in given.items() if value}})
        return Path(path)

    def _check_length(self, ids: Any) -> None:
        limit = self.config.max_seq_len
        if limit is not None and np.shape(raw(ids))[-1] > limit:
            raise ValueError(f"a text has {np.shape(raw(ids))[-1]} tokens, max_seq_len is {limit}: cut or split it")

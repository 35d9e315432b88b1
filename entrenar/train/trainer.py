"""The training loop: windows of micro-batches, one update each, validation, checkpoints, and an end in good order."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ..array import Array, EntrenarError, default_generator
from ..autograd import no_grad
from ..nn import Module
from ..optim import Optimizer, Schedule, grad_norm, set_lr
from .callbacks import Callback, StepRecord
from .checkpoint import load_checkpoint, save_checkpoint, state_hash
from .metrics import MetricsTracker
from .run_folder import RunFolder
from .signals import Interrupted, SignalWatch

IGNORED = -100  # a target that does not count, as in cross_entropy
Batch = tuple[Array, Array]  # ids and targets, both (B, T), integers; the targets already shifted


class Stream(Protocol):
    """Endless training batches whose position can be saved."""

    def __iter__(self) -> Iterator[Batch]: ...
    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: dict[str, Any]) -> None: ...


class TrainingFailed(EntrenarError, FloatingPointError):
    """A run cannot go on: its gradients stay NaN or infinite.  The message names the parameter."""


@dataclass(frozen=True)
class TrainConfig:
    """How long, how often, how carefully.

    max_steps: updates.  accumulation: micro-batches per update.  max_grad_norm: 0 leaves gradients unclipped.
    eval_every, save_every: updates between validations and checkpoints, 0 only at the end.  keep: checkpoints to keep.
    max_skipped: so many skipped updates in a row end the run with TrainingFailed.
    Raises ValueError for a number out of range.
    """

    max_steps: int
    accumulation: int = 1
    max_grad_norm: float = 1.0
    eval_every: int = 0
    save_every: int = 0
    keep: int = 3
    max_skipped: int = 20

    def __post_init__(self) -> None:
        for name, low in (
            ("max_steps", 1),
            ("accumulation", 1),
            ("eval_every", 0),
            ("save_every", 0),
            ("keep", 1),
            ("max_skipped", 1),
        ):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < low:
                raise ValueError(f"TrainConfig: {name} must be an integer of at least {low}, got {value!r}")
        if not 0 <= self.max_grad_norm < math.inf:
            raise ValueError(f"TrainConfig: max_grad_norm must be a number of at least 0, got {self.max_grad_norm!r}")


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


class Trainer:
    """Trains ``model`` (with ``loss(ids, targets, reduction="sum")``) on ``batches``.

    batches: endless, with state_dict and load_state_dict (data.TokenBatches).  val_batches: an iterable that can be
    walked again and again.  schedule: learning rate by update; None keeps the optimizer's.  folder: where the run is
    written; None writes nothing.  Everything that decides what comes next is in a checkpoint: weights, optimizer, step,
    data position, the default generator's state.
    """

    def __init__(
        self,
        model: Module,
        optimizer: Optimizer,
        config: TrainConfig,
        batches: Stream | None = None,
        val_batches: Iterable[Batch] | None = None,
        schedule: Schedule | None = None,
        folder: RunFolder | None = None,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        self.model: Any = model
        self.optimizer, self.config = optimizer, config
        self.batches, self.val_batches, self.schedule = batches, val_batches, schedule
        self.folder, self.callbacks = folder, list(callbacks)
        self.metrics = MetricsTracker()
        self.step = 0
        self.tokens = 0
        self._in_a_row = 0
        self._names = dict(model.named_parameters())

    # one update -------------------------------------------------------------------------------------------------
    def train_step(self, window: Sequence[Batch]) -> StepRecord:
        """One update from the micro-batches of ``window``.

        Loss and gradient are sums over tokens divided by the tokens of the whole window, so that they do not depend on
        how the window is split.  A gradient whose norm is not finite changes nothing but the count of skipped updates.
        """
        started = time.perf_counter()
        counts = [int(np.count_nonzero(np.asarray(targets) != IGNORED)) for _, targets in window]
        total = sum(counts)
        lr = self.schedule.lr(self.step) if self.schedule else float(self.optimizer.param_groups[0]["lr"])
        if self.schedule:
            set_lr(self.optimizer, lr, self.schedule.peak)
        self.model.train()
        self.optimizer.zero_grad()
        loss = 0.0
        with np.errstate(all="ignore"):  # what is not finite is told by its step, not by a warning per operation
            for (ids, targets), count in zip(window, counts, strict=True):
                if count:
                    part = self.model.loss(ids, targets, reduction="sum")
                    part.backward(np.asarray(1.0 / total, part.dtype))
                    loss += float(part.item()) / total
        norm, culprit = grad_norm(self._names.items())
        skipped = culprit is not None or not math.isfinite(loss)
        self._in_a_row = self._in_a_row + 1 if skipped else 0
        if skipped:
            self.metrics.skipped += 1
            if self._in_a_row == self.config.max_skipped:
                raise TrainingFailed(
                    f"{self._in_a_row} updates in a row were skipped at step {self.step + 1}: loss {loss}, the "
                    f"gradient of {culprit or 'no parameter'} is not finite; lower the learning rate"
                )
        elif total:
            limit = self.config.max_grad_norm
            self.optimizer.step(scale=limit / norm if limit and norm > limit else 1.0)
        self.optimizer.zero_grad()
        self.step += 1
        self.tokens += total
        self.metrics.record(self.step, loss, lr)
        return StepRecord(self.step, loss, lr, norm, total, time.perf_counter() - started, skipped)

    def validate(self, batches: Iterable[Batch] | None = None) -> float:
        """Mean loss over every token that counts of ``batches`` (the validation batches unless given), without dropout.

        Raises ValueError if there is none.
        """
        source = self.val_batches if batches is None else batches
        was_training = self.model.training
        self.model.eval()
        total, count = 0.0, 0
        try:
            with no_grad(), np.errstate(all="ignore"):
                for ids, targets in source or ():
                    total += float(self.model.loss(ids, targets, reduction="sum").item())
                    count += int(np.count_nonzero(np.asarray(targets) != IGNORED))
        finally:
            self.model.train(was_training)
        if not count:
            raise ValueError("validate: no validation token: give val_batches")
        return total / count

    # the run ----------------------------------------------------------------------------------------------------
    def fit(self, until: int | None = None) -> TrainResult:
        """Train to ``max_steps``, or pause after step ``until`` with a checkpoint as a run that goes on would have it.

        On SIGINT or SIGTERM: finish the step, write a checkpoint, raise Interrupted.
        """
        if self.batches is None:
            raise ValueError("fit: the Trainer has no batches")
        end = self.config.max_steps if until is None else min(until, self.config.max_steps)
        stopped = f"paused at step {end}" if self.step >= end < self.config.max_steps else None
        with SignalWatch() as signals:
            self._tell("on_start")
            stream = iter(self.batches)
            while self.step < self.config.max_steps and stopped is None:
                record = self.train_step([next(stream) for _ in range(self.config.accumulation)])
                done = self.step == self.config.max_steps
                paused = f"paused at step {end}" if self.step == end and not done else None
                if self.val_batches is not None and (done or _due(self.step, self.config.eval_every)):
                    record, stopped = self._validated(record)
                stopped = stopped or paused
                if self.folder is not None:
                    self.folder.log(record, self.tokens)
                stopped = self._tell("on_step", record) or stopped
                if done or stopped or signals.pending or _due(self.step, self.config.save_every):
                    path = self.save()
                    if signals.pending and not done:
                        raise Interrupted(signals.pending, None if path is None else str(path))
            self._tell("on_end")
        best = self.metrics.best if self.metrics.val_losses else None
        last = self.metrics.val_losses[-1][1] if self.metrics.val_losses else None
        return TrainResult(self.step, self.metrics.avg(1), last, best, self.metrics.skipped, state_hash(self), stopped)

    def _validated(self, record: StepRecord) -> tuple[StepRecord, str | None]:
        loss = self.validate()
        if self.metrics.record_validation(self.step, loss) and self.folder is not None:
            self.folder.save_best(self.model, self.step, loss)
        stopped = self._tell("on_validation", loss)
        return StepRecord(**{**vars(record), "val_loss": loss}), stopped

    def _tell(self, event: str, *args: Any) -> str | None:
        """Call ``event`` of every callback; "stop" with its name if one said so."""
        stopped = None
        for callback in self.callbacks:
            if getattr(callback, event)(self, *args) == "stop":
                stopped = f"stopped by {type(callback).__name__} at step {self.step}"
        return stopped

    # state ------------------------------------------------------------------------------------------------------
    def save(self) -> Path | None:
        """Write a checkpoint of this step into the run folder, drop the oldest, tell the callbacks its hash."""
        if self.folder is None:
            return None
        path, digest = save_checkpoint(self.folder.checkpoint(self.step), self)
        self.folder.rotate(self.config.keep)
        self._tell("on_checkpoint", str(path), digest)
        return path

    def resume(self, path: Path | str) -> None:
        """Go on from a checkpoint as if the run had never stopped.

        Raises DataError for a damaged one, ValueError for one of another model or optimizer.
        """
        load_checkpoint(Path(path), self)
        if self.folder is not None:
            self.folder.restore(self.metrics, self.step)

    def random_state(self) -> dict[str, list[int]]:
        """The state of every generator the run draws from."""
        return {"default": list(default_generator.state())}


def _due(step: int, every: int) -> bool:
    return every > 0 and step % every == 0

"""The training loop: windows of micro-batches, one update each, validation, checkpoints, and an end in good order."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ..array import Array, default_generator
from ..autograd import autocast, no_grad
from ..data.batch import IGNORED, Batch
from ..io import DataError
from ..nn import Module
from ..optim import Optimizer, Schedule, grad_norm, set_lr
from .callbacks import CONTINUE, SKIP_EPOCH, STOP, Callback, StepRecord, callback
from .checkpoint import load_checkpoint, save_checkpoint as write_checkpoint, state_hash
from .metrics import MetricsTracker
from .options import TrainConfig, TrainingFailed, TrainResult
from .run_folder import RunFolder
from .signals import Interrupted, SignalWatch

Given = Batch | tuple[Array, ...]  # a Batch, or its first fields: ids and targets (B, T), the targets already shifted


class Stream(Protocol):
    """Endless training batches whose position can be saved."""

    def __iter__(self) -> Iterator[Given]: ...
    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: dict[str, Any]) -> None: ...


class Trainer:
    """Trains ``model``, which has ``loss(ids, targets, reduction="sum")`` and takes a batch's options, on ``batches``.

    batches: endless, with state_dict and load_state_dict (data.TokenBatches).  val_batches: an iterable that can be
    walked again and again.  schedule: learning rate by update; None keeps the optimizer's.  folder: where the run is
    written; None writes nothing.  callbacks: Callbacks, or functions (trainer, record) called after each update.
    Everything that decides what comes next is in a checkpoint: weights, optimizer, step, data position, the default
    generator's state.
    """

    def __init__(
        self,
        model: Module,
        optimizer: Optimizer,
        config: TrainConfig,
        batches: Stream | None = None,
        val_batches: Iterable[Given] | None = None,
        schedule: Schedule | None = None,
        folder: RunFolder | None = None,
        callbacks: Sequence[Callback | Callable[[Trainer, StepRecord], str | None]] = (),
    ) -> None:
        self.model: Any = model
        self.optimizer, self.config = optimizer, config
        self.batches, self.val_batches, self.schedule = batches, val_batches, schedule
        self.folder, self.callbacks = folder, [callback(given) for given in callbacks]
        self.metrics = MetricsTracker()
        self.step = 0
        self.tokens = 0
        self._in_a_row = 0
        self._said = ""
        if config.gradient_checkpointing:
            enable: Any = getattr(model, "gradient_checkpointing_enable", None)
            if enable is None:
                raise TypeError(
                    f"TrainConfig: gradient_checkpointing=True is for models that have gradient_checkpointing_enable, "
                    f"got {type(model).__name__}"
                )
            enable()
        self._names = dict(model.named_parameters())

    @property
    def current_lr(self) -> float:
        """The learning rate of the next update."""
        return self.schedule.lr(self.step) if self.schedule else float(self.optimizer.param_groups[0]["lr"])

    @property
    def reached_max_steps(self) -> bool:
        """Whether the run has made all its updates."""
        return self.step >= self.config.max_steps

    # one update -------------------------------------------------------------------------------------------------
    def train_step(self, window: Sequence[Given]) -> StepRecord:
        """One update from the micro-batches of ``window``.

        Loss and gradient are sums over tokens divided by the tokens of the whole window (by the sum of the weights,
        where batches have weights), so that they do not depend on how the window is split.  A gradient whose norm is
        not finite changes nothing but the count of skipped updates.
        """
        started = time.perf_counter()
        batches = [Batch(*given) for given in window]
        total = sum(batch.tokens for batch in batches)
        lr = self.current_lr
        if self.schedule:
            set_lr(self.optimizer, lr, self.schedule.peak)
        self.model.train()
        self.optimizer.zero_grad()
        loss = 0.0
        with np.errstate(all="ignore"):  # what is not finite is told by its step, not by a warning per operation
            for batch in batches:
                if batch.tokens:
                    with self._precision():
                        part = self.model.loss(batch.ids, batch.targets, reduction="sum", **batch.options())
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
        tokens = sum(_counted(batch) for batch in batches)
        self.step += 1
        self.tokens += tokens
        self.metrics.record(self.step, loss, lr)
        return StepRecord(self.step, loss, lr, norm, tokens, time.perf_counter() - started, skipped)

    def _precision(self) -> AbstractContextManager[Any]:
        return autocast(self.config.precision) if self.config.precision else nullcontext()

    def validate(self, batches: Iterable[Given] | None = None) -> float:
        """Mean loss over every token that counts of ``batches`` (the validation batches unless given), without dropout.

        Raises ValueError if there is none.
        """
        source = self.val_batches if batches is None else batches
        was_training = self.model.training
        self.model.eval()
        total = weight = 0.0
        try:
            with no_grad(), np.errstate(all="ignore"), self._precision():
                for batch in (Batch(*given) for given in source or ()):
                    loss = self.model.loss(batch.ids, batch.targets, reduction="sum", **batch.options())
                    total += float(loss.item())
                    weight += batch.tokens
        finally:
            self.model.train(was_training)
        if not weight:
            raise ValueError("validate: no validation token: give val_batches")
        return total / weight

    # the run ----------------------------------------------------------------------------------------------------
    def train_epoch(
        self, batches: Iterable[Given], on_batch: Callable[[StepRecord], str | None] | None = None
    ) -> tuple[float, bool]:
        """Train on ``batches`` once, ``accumulation`` of them an update, the last with fewer.

        Returns (mean loss per token, reached_max_steps).  on_batch: called after each update, as callbacks are; what
        either answers with "stop" or "skip-epoch" ends the epoch there.
        Raises ValueError if the run is at its end already, or without a token.
        """
        if self.reached_max_steps:
            raise ValueError(f"train_epoch: all {self.config.max_steps} steps are done")
        stream, total, tokens, answer = iter(batches), 0.0, 0, CONTINUE
        while answer == CONTINUE and not self.reached_max_steps:
            if not (window := list(islice(stream, self.config.accumulation))):
                break
            record = self.train_step(window)
            total, tokens = total + record.loss * record.tokens, tokens + record.tokens
            answers = [self._tell("on_step", record), on_batch(record) if on_batch else CONTINUE]
            answer = next((a for a in answers if a not in (None, CONTINUE)), CONTINUE)
        if not tokens:
            raise ValueError("train_epoch: no token to train on: the batches are empty or fully masked")
        self.metrics.epoch += 1
        return total / tokens, self.reached_max_steps

    def fit(self, until: int | None = None) -> TrainResult:
        """Train to ``max_steps``, or pause after step ``until`` with a checkpoint as a run that goes on would have it.

        On SIGINT or SIGTERM: finish the step, write a checkpoint, raise Interrupted.
        Raises DataError if the batches end before.
        """
        if self.batches is None:
            raise ValueError("fit: the Trainer has no batches")
        end = self.config.max_steps if until is None else min(until, self.config.max_steps)
        stopped = f"paused at step {end}" if self.step >= end < self.config.max_steps else None
        with SignalWatch() as signals:
            self._tell("on_start")
            stream = iter(self.batches)
            while not self.reached_max_steps and stopped is None:
                record = self.train_step(self._window(stream))
                done = self.reached_max_steps
                if self.val_batches is not None and (done or _due(self.step, self.config.eval_every)):
                    record, stopped = self._validated(record)
                if self.step == end and not done:
                    stopped = stopped or f"paused at step {end}"
                if 0 < self.config.max_tokens <= self.tokens and not done:
                    stopped = stopped or f"{self.tokens} tokens, the budget, at step {self.step}"
                if self.folder is not None:
                    self.folder.log(record, self.tokens)
                stopped = self._obeyed(self._tell("on_step", record)) or stopped
                if done or stopped or signals.pending or _due(self.step, self.config.save_every):
                    path = self.save_checkpoint()
                    if signals.pending and not done:
                        raise Interrupted(signals.pending, None if path is None else str(path))
            digest = state_hash(self)
            self._tell("on_end")
        best = self.metrics.best if self.metrics.val_losses else None
        last = self.metrics.val_losses[-1][1] if self.metrics.val_losses else None
        return TrainResult(self.step, self.metrics.avg(1), last, best, self.metrics.skipped, digest, stopped)

    def _window(self, stream: Iterator[Given]) -> list[Given]:
        """The micro-batches of the next update."""
        wanted = self.config.accumulation
        window = list(islice(stream, wanted))
        if len(window) < wanted:
            raise DataError(
                f"the training data ended at step {self.step + 1} of {self.config.max_steps}: {wanted} batches were "
                f"asked for, {len(window)} were left; train fewer steps, or on data that begins anew"
            )
        self.metrics.epoch = getattr(self.batches, "epoch", self.metrics.epoch)
        return window

    def _validated(self, record: StepRecord) -> tuple[StepRecord, str | None]:
        loss = self.validate()
        if self.metrics.record_validation(self.step, loss) and self.folder is not None:
            self.folder.save_best(self.model, self.step, loss)
        return StepRecord(**{**vars(record), "val_loss": loss}), self._obeyed(self._tell("on_validation", loss))

    def _tell(self, event: str, *args: Any) -> str:
        """Call ``event`` of every callback: the strongest of their answers, and who gave it in ``self._said``."""
        answer = CONTINUE
        for each in self.callbacks:
            said = getattr(each, event)(self, *args) or CONTINUE
            if said not in (CONTINUE, SKIP_EPOCH, STOP):
                raise ValueError(
                    f"{each.name}.{event} answered {said!r}: expected {CONTINUE!r}, {SKIP_EPOCH!r}, {STOP!r} or None"
                )
            if said == STOP or answer == CONTINUE:
                answer, self._said = said, each.name
        return answer

    def _obeyed(self, answer: str) -> str | None:
        """Why the run ends, if the answer says so; the rest of the epoch is left out if it says that."""
        if answer == SKIP_EPOCH:
            skip = getattr(self.batches, "skip_epoch", None)
            if skip is None:
                raise ValueError(
                    f"{self._said} answered {SKIP_EPOCH!r}, but {type(self.batches).__name__} has no skip_epoch"
                )
            skip()
        return f"stopped by {self._said} at step {self.step}" if answer == STOP else None

    # state ------------------------------------------------------------------------------------------------------
    def save_checkpoint(self) -> Path | None:
        """Write a checkpoint of this step into the run folder, drop the oldest, tell the callbacks its hash."""
        if self.folder is None:
            return None
        path, digest = write_checkpoint(self.folder.checkpoint(self.step), self)
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


def _counted(batch: Batch) -> int:
    """How many tokens a batch trains on."""
    counted = np.asarray(batch.targets) != IGNORED
    return int(np.count_nonzero(counted if batch.weights is None else counted & (np.asarray(batch.weights) != 0)))


def _due(step: int, every: int) -> bool:
    return every > 0 and step % every == 0

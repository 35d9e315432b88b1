"""What every tracker does: a callback that writes each update of a run where people look at runs.

Per update: loss, val_loss where a validation followed, lr, grad_norm (before clipping), tokens (of the run so far),
tokens_per_s (of the update), skipped (0 or 1).  Per checkpoint: its path and state hash, where the tracker has text.
Once: the run's configuration.

Steps.  A tracker holds each step once, from 1 on.  A resumed run goes on in the same place: what the tracker lacks up
to the checkpoint (a killed process takes along what a library still had in memory) is filled in from the run folder's
training_log.csv; what it holds beyond the checkpoint is dropped where it can be, otherwise kept and not written again:
a resumed run repeats these updates bit for bit.

Failures.  A tracker that cannot start raises TrackerError.  Once training is on, nothing that a tracker does ends it:
the first write that fails is told on stderr, the next ones are tried all the same, the end tells how many failed.
"""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..array import EntrenarError
from ..io import DataError
from .callbacks import Callback, StepRecord

if TYPE_CHECKING:
    from .trainer import Trainer

VALUES = ("loss", "val_loss", "lr", "grad_norm", "tokens", "tokens_per_s", "skipped")


class TrackerError(EntrenarError, RuntimeError):
    """A tracker cannot start.  The message names it and says why."""


class Tracker(Callback):
    """Base of the trackers: subclasses start, write, note and stop.

    config: what the run was configured with, shown beside its curves; None takes the trainer's TrainConfig.
    failures: writes that failed since the start.  Raises TypeError for a config that is no mapping.
    """

    def __init__(self, config: Mapping[str, Any] | None = None) -> None:
        if config is not None and not isinstance(config, Mapping):
            raise TypeError(f"{self.name}: config must be a mapping or None, got {type(config).__name__}")
        self.config = config
        self.failures = 0
        self._first_failure = ""
        self._running = False
        self._last = 0  # the highest step that is held
        self._noted: tuple[str, str] | None = None
        self._identity: str | None = None

    @classmethod
    def for_run(cls, folder: Path, config: Mapping[str, Any] | None) -> Tracker:
        """The tracker of a run whose folder is ``folder``, with this library's defaults."""
        raise NotImplementedError

    # what a tracker is ------------------------------------------------------------------------------------------
    def _start(self, trainer: Trainer, at: int) -> int:
        """Open, or go on after step ``at``; returns the highest step that is held.  Whatever it raises is told."""
        raise NotImplementedError

    def _write(self, step: int, values: dict[str, float]) -> None:
        """Write an update; ``values`` by the names in VALUES, without those that this update lacks."""
        raise NotImplementedError

    def _note(self, step: int, texts: dict[str, str]) -> None:
        """Write the texts of a step, if there is a place for text."""

    def _stop(self) -> None:
        """Close; everything is written after it."""
        raise NotImplementedError

    # what a trainer tells ---------------------------------------------------------------------------------------
    def on_start(self, trainer: Trainer) -> None:
        """Start, and fill in what is missing up to the trainer's step.  Raises TrackerError."""
        self._begin(trainer, trainer.step)

    def on_step(self, trainer: Trainer, record: StepRecord) -> str | None:
        """Write an update that is not held yet."""
        if not self._running:  # train_epoch tells no start
            self._begin(trainer, record.step - 1)
        if record.step > self._last:
            values = _values(
                record.loss,
                record.val_loss,
                record.lr,
                record.grad_norm,
                trainer.tokens,
                record.tokens,
                record.seconds,
                record.skipped,
            )
            self._safely(record.step, self._write, record.step, values)
            self._last = record.step
        return None

    def on_checkpoint(self, trainer: Trainer, path: str, digest: str) -> None:
        """Note the checkpoint and its state hash."""
        if self._running and self._noted != (path, digest):
            self._safely(trainer.step, self._note, trainer.step, {"checkpoint": path, "state_hash": digest})
            self._noted = path, digest

    def on_end(self, trainer: Trainer) -> None:
        """Close, and tell how many writes failed, if any did."""
        self.close()

    def close(self) -> None:
        """What ``on_end`` does; for loops of one's own around ``train_epoch``."""
        if self._running:
            self._running = False
            self._safely(self._last, self._stop)
            if self.failures:
                self._say(f"writes that failed: {self.failures}, the first {self._first_failure}")

    # inside -----------------------------------------------------------------------------------------------------
    def _begin(self, trainer: Trainer, at: int) -> None:
        self.close()  # a fit that was left by an exception
        self.failures, self._first_failure, self._noted = 0, "", None
        try:
            held = self._start(trainer, at)
        except Exception as error:
            raise TrackerError(f"{self.name}: cannot start: {_told(error)}") from error
        self._running = True
        for step, values in _logged(trainer, held, at):
            self._safely(step, self._write, step, values)
        self._last = max(held, at)

    def _safely(self, step: int, action: Callable[..., None], *args: Any) -> None:
        """Call ``action``; a failure is counted, and told if it is the first."""
        try:
            action(*args)
        except Exception as error:
            self._failed(1, f"at step {step}: {_told(error)}")

    def _failed(self, count: int, where: str) -> None:
        self.failures += count
        if not self._first_failure:
            self._first_failure = where
            self._say(f"a write failed {where}; training goes on")

    def _say(self, text: str) -> None:
        print(f"entrenar: {self.name}: {text}", file=sys.stderr, flush=True)

    def _remembered(self, trainer: Trainer, at: int) -> str | None:
        """By what the library knows the run that goes on: as the run folder has it, or this process; None at step 0."""
        if not at:
            return None
        if trainer.folder is None or not (path := trainer.folder / f"{self.name}.json").exists():
            return self._identity
        try:
            return str(json.loads(path.read_text(encoding="utf-8"))["run"])
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(f'{path}: expected {{"run": identity}}: {_told(error)}') from None

    def _remember(self, trainer: Trainer, identity: str) -> None:
        self._identity = identity
        if trainer.folder is not None:
            trainer.folder.write(f"{self.name}.json", json.dumps({"run": identity}) + "\n")

    def _configuration(self, trainer: Trainer) -> dict[str, Any]:
        if self.config is not None:
            return dict(self.config)
        return dataclasses.asdict(trainer.config) if dataclasses.is_dataclass(trainer.config) else {}


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _values(
    loss: float,
    val_loss: float | None,
    lr: float,
    grad_norm: float,
    tokens: int,
    window: int,
    seconds: float,
    skipped: bool,
) -> dict[str, float]:
    """The values of an update by name, in the order of VALUES; Python numbers."""
    values: dict[str, float] = {"loss": float(loss)}
    if val_loss is not None:
        values["val_loss"] = float(val_loss)
    values |= {"lr": float(lr), "grad_norm": float(grad_norm), "tokens": int(tokens)}
    if seconds > 0:  # a clock too coarse for the update gives no rate
        values["tokens_per_s"] = window / seconds
    return values | {"skipped": int(skipped)}


def _logged(trainer: Trainer, after: int, until: int) -> Iterator[tuple[int, dict[str, float]]]:
    """(step, values) of the run folder's log, after step ``after``, up to and with ``until``."""
    tokens = 0
    for row in trainer.folder.read_log() if trainer.folder is not None and after < until else ():
        before, tokens = tokens, int(row["tokens"])
        loss, norm = float(row["train_loss"]), float(row["grad_norm"])
        if after < int(row["step"]) <= until:
            yield (
                int(row["step"]),
                _values(
                    loss,
                    float(row["val_loss"]) if row["val_loss"] else None,
                    float(row["lr"]),
                    norm,
                    tokens,
                    tokens - before,
                    float(row["ms_per_step"]) / 1000,
                    not (math.isfinite(loss) and math.isfinite(norm)),  # what makes a trainer skip an update
                ),
            )


class WholeRecords:
    """A file to whose end ``append`` adds a record whole or not at all, unbuffered: a killed process loses none."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab", buffering=0)
        self._end = self._file.seek(0, 2)
        self._torn = False

    def append(self, record: bytes) -> None:
        """Write ``record``.  Raises OSError; the part that a full disk took is cut off before the next one."""
        self._mend()
        self._torn = True
        left = memoryview(record)
        while left:
            left = left[self._file.write(left) :]
        self._end += len(record)
        self._torn = False

    def close(self) -> None:
        """Cut off a torn record, and close."""
        with self._file:
            self._mend()

    def _mend(self) -> None:
        if self._torn:
            self._file.truncate(self._end)
            self._torn = False

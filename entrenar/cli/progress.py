"""How a run shows that it gets on: a bar on a terminal, else a line every ``log_every`` steps, both on stderr."""

from __future__ import annotations

import time
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress as Bar, TextColumn, TimeRemainingColumn

from ..train import Callback, StepRecord, Trainer

SMOOTHING = 0.95


class Progress(Callback):
    """Shows loss (smoothed), learning rate, tokens per second and the time left."""

    def __init__(self, log_every: int, last: int, console: Console | None = None) -> None:
        self.log_every, self.last = log_every, last
        self.console = console or Console(stderr=True)
        self.bar: Bar | None = None
        self.task: Any = None
        self.loss: float | None = None
        self.started = self.first = self.tokens = 0

    def on_start(self, trainer: Trainer) -> None:
        """Begin the bar where the run begins (or goes on)."""
        self.clock, self.first = time.perf_counter(), trainer.step
        if self.console.is_terminal:
            self.bar = Bar(
                TextColumn("step"),
                MofNCompleteColumn(),
                BarColumn(),
                TextColumn("{task.fields[told]}"),
                TextColumn("left"),
                TimeRemainingColumn(),
                console=self.console,
            )
            self.task = self.bar.add_task("", total=self.last, completed=trainer.step, told="")
            self.bar.start()

    def on_step(self, trainer: Trainer, record: StepRecord) -> str | None:
        """Move the bar, or print a line when one is due."""
        if not record.skipped:
            self.loss = record.loss if self.loss is None else SMOOTHING * self.loss + (1 - SMOOTHING) * record.loss
        self.tokens += record.tokens
        passed = time.perf_counter() - self.clock
        told = f"loss {self.loss or record.loss:.4f}  lr {record.lr:.2e}  {self.tokens / passed:,.0f} tokens/s"
        if record.skipped:
            self.console.print(f"step {record.step}: skipped, the gradient is not finite", highlight=False)
        last = self.last
        if self.bar is not None:
            self.bar.update(self.task, completed=record.step, told=told)
        elif record.step % self.log_every == 0 or record.step == last:
            left = passed / (record.step - self.first) * (last - record.step)
            print(f"step {record.step}/{last}  {told}  left {_clock(left)}", file=self.console.file, flush=True)
        if record.val_loss is not None:
            self.console.print(f"step {record.step}: validation loss {record.val_loss:.4f}", highlight=False)
        return None

    def on_checkpoint(self, trainer: Trainer, path: str, digest: str) -> None:
        """Name the checkpoint and its state hash."""
        self.console.print(f"checkpoint {path}  state {digest[:16]}", highlight=False, soft_wrap=True)

    def on_end(self, trainer: Trainer) -> None:
        """Take the bar down."""
        if self.bar is not None:
            self.bar.stop()
            self.bar = None


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"

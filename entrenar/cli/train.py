"""``entrenar train``: prepare, tell, train, compare, write."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from ..config import Config, load_config
from ..io import ConfigError
from ..train import Callback, LanguageRun, RunFolder, StepRecord, Trainer, TrainResult, check_same_run, prepare
from ..train.history import record_change
from .guard import STATE
from .plan import plan_lines
from .progress import Progress
from .tell import aside, console, note, result, say

LAST_LINES = 3  # of the log, told when a run fails


def run_training(
    path: Path, overrides: Sequence[str], output: Path | None, *, resume: bool, max_steps: int | None, dry_run: bool
) -> None:
    """The whole command; raises ConfigError, DataError, Interrupted or what the run failed with."""
    config = load_config(path, overrides, note)
    folder = RunFolder(output or config.training.output)
    changes = check_same_run(config, folder) if resume else []
    if not resume and not dry_run and folder.occupied:
        folder = _another(folder, output is not None)
    note(f"reading {config.data.root} ...")
    steps = min(max_steps or config.training.steps, config.training.steps)
    if dry_run:
        _one_step(config, folder, steps, resume)
        return
    run = prepare(config, folder.path, progress(config, steps))
    _describe(run, steps)
    if resume:
        run.check_data()
        run.trainer.resume(folder.latest())
        record_change(folder, run.trainer.step, config)
        aside("\n".join([f"resume   {folder.latest()}", *(f"changed  {text}" for text in changes)]))
    else:
        folder.clear_log()
    run.write_head()
    baselines = run.baselines()
    aside("to beat  " + ", ".join(f"{name} {loss:.4f}" for name, loss in baselines.items()) + " nats per character")
    started = time.perf_counter()
    try:
        ended = run.trainer.fit(steps)
    except Exception:
        _tell_last_lines(folder)
        raise
    _report(run, ended, baselines, time.perf_counter() - started)


def progress(config: Config, last: int) -> list[Callback]:
    """What shows how a run gets on: nothing with -q."""
    return [] if STATE.quiet else [Progress(config.training.log_every, last, console(stderr=True))]


def _another(folder: RunFolder, named: bool) -> RunFolder:
    """A free folder beside one that holds a run.  Raises ConfigError if the user named this very one."""
    if named:
        raise ConfigError(
            str(folder.path), None, None, "holds a run already: --resume goes on with it, or name another folder"
        )
    number = 2
    while (free := RunFolder(f"{folder.path}-{number}")).occupied:
        number += 1
    say(f"{folder.path} holds a run already (--resume goes on with it): writing to {free.path}")
    return free


def _describe(run: LanguageRun, steps: int) -> None:
    for line in plan_lines(run, steps):
        aside(line)


def _tell_last_lines(folder: RunFolder) -> None:
    """The end of the log on stderr, for whoever has to find out why a run failed."""
    rows = folder.read_log()[-LAST_LINES:]
    if rows:
        typer.echo(f"the last lines of {folder / 'training_log.csv'}:", err=True)
    for row in rows:
        cells = (f"{name} {row[name]}" for name in ("train_loss", "lr", "grad_norm"))
        typer.echo(f"  step {row['step']}: {', '.join(cells)}", err=True)


class _Seen(Callback):
    """Keeps the record of the last step."""

    record: StepRecord

    def on_step(self, trainer: Trainer, record: StepRecord) -> None:
        self.record = record


def _one_step(config: Config, folder: RunFolder, steps: int, resume: bool) -> None:
    """Build the run, do its next step, in memory alone, and tell what it took."""
    seen = _Seen()
    run = prepare(config, folder.path, [seen])
    _describe(run, steps)
    if resume:
        run.check_data()
    run.trainer.folder = None
    if resume:
        run.trainer.resume(folder.latest())
    if run.trainer.reached_max_steps:
        raise ConfigError(str(folder.path), None, None, f"all {run.trainer.step} steps are done: there is none to try")
    run.trainer.fit(run.trainer.step + 1)
    record, peak = seen.record, peak_memory()
    say(f"step     {record.step}: loss {record.loss:.4f}, gradient norm {record.grad_norm:.3g}, lr {record.lr:.3g}")
    per_second = record.tokens / record.seconds
    say(f"time     {record.seconds:.3f} s, {per_second:,.0f} tokens/s; a first step is slower than those after it")
    if peak is not None:
        say(f"memory   {peak / 2**20:,.0f} MiB at the peak, the whole process")
    say("dry run: nothing was written")
    result({**vars(record), "peak_memory_bytes": peak})


def peak_memory() -> int | None:
    """The most bytes of memory that this process had so far; None where the platform does not say."""
    try:
        import resource
    except ImportError:
        return None
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _report(run: LanguageRun, ended: TrainResult, baselines: dict[str, float], seconds: float) -> None:
    loss = run.held_out_loss()
    rows = {"this model": loss, **baselines}
    skipped = f", {ended.skipped} skipped (gradient not finite)" if ended.skipped else ""
    stopped = f", {ended.stopped}" if ended.stopped else ""
    say(f"trained  {ended.step:,} steps in {seconds:.0f} s{skipped}{stopped}")
    say(f"\nloss on the {len(run.held_out_tokens):,} held-out characters, nats per character")
    for name, value in rows.items():
        smoothing = "" if name == "this model" else "  (Witten-Bell, same training text)"
        say(f"  {name:<11} {value:.4f}{smoothing}")
    margin = baselines["trigram"] - loss
    verdict = "beats" if margin > 0 else "does NOT beat"
    say(f"  the model {verdict} the trigram table by {abs(margin):.4f}\n")
    facts: dict[str, Any] = {
        "step": ended.step,
        "held_out_loss": loss,
        **baselines,
        "seconds": round(seconds, 1),
        "skipped": ended.skipped,
        "state_hash": ended.state_hash,
    }
    run.write_result(facts)
    try:
        run.write_picture(baselines)
    except ImportError as error:
        note(f"no loss curve: {error}")
    text = run.sample() if run.config.training.sample.tokens else None
    if text is not None:
        aside(f"sample\n{text}\n")
    names = sorted(path.name + "/" * path.is_dir() for path in run.folder.path.iterdir())
    say(f"written  {run.folder.path}: {', '.join(names)}")
    say(f"state    {ended.state_hash}")
    result({"run": str(run.folder.path), **facts, "stopped": ended.stopped, "sample": text})

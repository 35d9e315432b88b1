"""``entrenar train``: prepare, tell, train, compare, write."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import typer

from ..config import Config, load_config
from ..io import ConfigError
from ..nn import count_parameters
from ..train import LanguageRun, RunFolder, TrainResult, check_same_run, prepare
from .progress import Progress


def run_training(
    path: Path, overrides: Sequence[str], output: Path | None, *, resume: bool, max_steps: int | None, dry_run: bool
) -> None:
    """The whole command; raises ConfigError, DataError, Interrupted or what the run failed with."""
    config = load_config(path, overrides)
    folder = RunFolder(output or config.training.output)
    changes = check_same_run(config, folder) if resume else []
    if not resume and not dry_run and folder.occupied:
        folder = _another(folder, output is not None)
    typer.echo(f"reading {config.data.root} ...", err=True)
    steps = min(max_steps or config.training.steps, config.training.steps)
    run = prepare(config, folder.path, [Progress(config.training.log_every, steps)])
    _describe(run, steps)
    if dry_run:
        typer.echo("dry run: nothing was written")
        return
    if resume:
        run.check_data()
        run.trainer.resume(folder.latest())
        typer.echo("\n".join([f"resume   {folder.latest()}", *(f"changed  {text}" for text in changes)]))
    else:
        folder.clear_log()
    run.write_head()
    baselines = run.baselines()
    typer.echo(
        "to beat  " + ", ".join(f"{name} {loss:.4f}" for name, loss in baselines.items()) + " nats per character"
    )
    started = time.perf_counter()
    result = run.trainer.fit(steps)
    _report(run, result, baselines, time.perf_counter() - started)


def _another(folder: RunFolder, named: bool) -> RunFolder:
    """A free folder beside one that holds a run.  Raises ConfigError if the user named this very one."""
    if named:
        raise ConfigError(
            str(folder.path), None, None, "holds a run already: --resume goes on with it, or name another folder"
        )
    number = 2
    while (free := RunFolder(f"{folder.path}-{number}")).occupied:
        number += 1
    typer.echo(f"{folder.path} holds a run already (--resume goes on with it): writing to {free.path}")
    return free


def _describe(run: LanguageRun, steps: int) -> None:
    config: Config = run.config
    data, training = config.data, config.training
    batch = data.batch_size * training.accumulation
    epochs = steps * batch * data.seq_len / max(len(run.train_tokens), 1)
    files, tokens = run.files, (len(run.train_tokens), len(run.held_out_tokens))
    left_out = f"; {len(files.skipped)} files not UTF-8 left out" if files.skipped else ""
    stopping = f" (stopping at {steps:,})" if steps < training.steps else ""
    say = typer.echo
    say(
        f"data     {data.root}: {len(files.train):,} files, {tokens[0]:,} characters to train on; "
        f"{len(files.held_out):,} files, {tokens[1]:,} held out{left_out}"
    )
    say(
        f"model    {config.model.family}, {count_parameters(run.model):,} parameters: {run.model.config.describe()}, "
        f"vocabulary {run.tokenizer.vocab_size}"
    )
    say(
        f"plan     {training.steps:,} steps{stopping} of {batch} x {data.seq_len} tokens, {epochs:.2f} epochs; "
        f"{config.optimizer.name}, lr {config.optimizer.lr:g}, {config.scheduler.name}, seed {training.seed}"
    )


def _report(run: LanguageRun, result: TrainResult, baselines: dict[str, float], seconds: float) -> None:
    loss = run.held_out_loss()
    rows = {"this model": loss, **baselines}
    skipped = f", {result.skipped} skipped (gradient not finite)" if result.skipped else ""
    typer.echo(
        f"trained  {result.step:,} steps in {seconds:.0f} s{skipped}{f', {result.stopped}' if result.stopped else ''}"
    )
    typer.echo(f"\nloss on the {len(run.held_out_tokens):,} held-out characters, nats per character")
    for name, value in rows.items():
        smoothing = "" if name == "this model" else "  (Witten-Bell, same training text)"
        typer.echo(f"  {name:<11} {value:.4f}{smoothing}")
    margin = baselines["trigram"] - loss
    verdict = "beats" if margin > 0 else "does NOT beat"
    typer.echo(f"  the model {verdict} the trigram table by {abs(margin):.4f}\n")
    run.write_result(
        {
            "step": result.step,
            "held_out_loss": loss,
            **baselines,
            "seconds": round(seconds, 1),
            "skipped": result.skipped,
            "state_hash": result.state_hash,
        }
    )
    try:
        run.write_picture(baselines)
    except ImportError as error:
        typer.echo(f"no loss curve: {error}", err=True)
    if run.config.training.sample.tokens:
        typer.echo(f"sample\n{run.sample()}\n")
    names = sorted(path.name + "/" * path.is_dir() for path in run.folder.path.iterdir())
    typer.echo(f"written  {run.folder.path}: {', '.join(names)}")
    typer.echo(f"state    {result.state_hash}")

"""The commands about runs: ``train``, ``verify``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from .guard import guarded
from .options import ConfigFile, Overrides, RunName

commands = typer.Typer()


@commands.command()
@guarded
def train(
    config: ConfigFile,
    overrides: Overrides = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="The run folder; else training.output.")] = None,
    resume: Annotated[bool, typer.Option("--resume", "-r", help="Go on from the folder's last checkpoint.")] = False,
    batch_size: Annotated[int | None, typer.Option("--batch-size", "-b", help="Replaces data.batch_size.")] = None,
    lr: Annotated[float | None, typer.Option("--lr", "-l", help="Replaces optimizer.lr.")] = None,
    max_steps: Annotated[
        int | None, typer.Option(min=1, help="Stop there; the schedule stays that of the whole run.")
    ] = None,
    save_every: Annotated[int | None, typer.Option(help="Replaces training.save_every.")] = None,
    log_every: Annotated[int | None, typer.Option(help="Replaces training.log_every.")] = None,
    seed: Annotated[int | None, typer.Option(help="Replaces training.seed.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Build everything, do one step; write nothing.")] = False,
) -> None:
    """Train the model that CONFIG describes and write a run folder."""
    from .train import run_training

    options: dict[str, Any] = {
        "data.batch_size": batch_size,
        "optimizer.lr": lr,
        "training.save_every": save_every,
        "training.log_every": log_every,
        "training.seed": seed,
    }
    given = [*(overrides or []), *(f"{key}={value}" for key, value in options.items() if value is not None)]
    run_training(config, given, output, resume=resume, max_steps=max_steps, dry_run=dry_run)


@commands.command()
@guarded
def verify(
    run: RunName,
    start: Annotated[
        int, typer.Option("--from", min=0, help="Replay from the nearest intact checkpoint of a step up to this.")
    ] = 0,
) -> None:
    """Replay a run and say whether all that it kept is what its configuration gives, bit for bit.

    Exit status 0: equal. 1: it differs; said is at which step, in which part of the state, in which tensor. 3: a file
    is damaged or missing; said is which, in which tensor, from which byte on. Nothing is written.
    """
    from .verify import run_verification

    run_verification(run, start)

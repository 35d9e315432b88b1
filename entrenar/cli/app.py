"""The command line: ``entrenar train``, ``generate``, ``gradcheck``.  Heavy imports happen inside the commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .guard import STATE, guarded

app = typer.Typer(
    name="entrenar",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Autograd that you can read, check and train with.",
)
Overrides = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[section.key=value]...", show_default=False, help="Values that replace those of the file, in YAML."
    ),
]


def _version(wanted: bool) -> None:
    if wanted:
        from .. import __version__

        typer.echo(f"entrenar {__version__}")
        raise typer.Exit


@app.callback()
def options(
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Autograd that you can read, check and train with."""
    STATE.verbose = verbose


@app.command()
@guarded
def train(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="A YAML or JSON file.", show_default=False)],
    overrides: Overrides = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="The run folder; else training.output.")] = None,
    resume: Annotated[bool, typer.Option("--resume", "-r", help="Go on from the folder's last checkpoint.")] = False,
    max_steps: Annotated[
        int | None, typer.Option(min=1, help="Stop there; the schedule stays that of the whole run.")
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Replaces training.seed.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Read, check and print the plan; write nothing.")] = False,
) -> None:
    """Train the model that CONFIG describes and write a run folder."""
    from .train import run_training

    given = [*(overrides or []), *([] if seed is None else [f"training.seed={seed}"])]
    run_training(config, given, output, resume=resume, max_steps=max_steps, dry_run=dry_run)


@app.command()
@guarded
def generate(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.", show_default=False)],
    prompt: Annotated[str, typer.Option("--prompt", "-p", help="The text to go on from.", show_default=False)],
    tokens: Annotated[int, typer.Option("--tokens", "-n", min=0, help="How many tokens to draw.")] = 200,
    temperature: Annotated[float, typer.Option(min=0, help="0 takes the likeliest token.")] = 0.8,
    top_k: Annotated[int | None, typer.Option(min=1, help="Draw among the k likeliest tokens only.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="The same seed draws the same text.")] = 0,
    checkpoint: Annotated[str, typer.Option(help="Which weights: best (validation loss) or last.")] = "best",
) -> None:
    """Print the prompt and a text that goes on from it."""
    from .generate import run_generation

    run_generation(run, prompt, tokens, temperature, top_k, seed, checkpoint)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []})
@guarded
def gradcheck(context: typer.Context) -> None:
    """Check the gradients of an op, or of all of them; the arguments are those of ``python -m gradcheck``."""
    from gradcheck import main

    raise typer.Exit(main(context.args))


def main() -> None:
    """The console script."""
    app()

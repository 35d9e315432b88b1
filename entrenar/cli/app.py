"""The command line: ``entrenar train``, ``generate``, ``chat``, ``gradcheck``.  Commands import what is heavy."""

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
# what generate and chat share
SourceName = Annotated[
    str, typer.Argument(metavar="SOURCE", help="A folder, or a name on the hub.", show_default=False)
]
Temperature = Annotated[float, typer.Option(help="0 takes the likeliest token.")]
TopK = Annotated[int | None, typer.Option(help="Draw among the k likeliest tokens only.")]
TopP = Annotated[float | None, typer.Option(help="... among the likeliest that together have this probability.")]
MinP = Annotated[float | None, typer.Option(help="... among those at least this times as likely as the likeliest.")]
RepetitionPenalty = Annotated[float | None, typer.Option(help="Above 1 makes tokens that were used less likely.")]
Seed = Annotated[int, typer.Option(min=0, help="The same seed draws the same text.")]
Stop = Annotated[
    list[str] | None, typer.Option(help="A text that ends the drawn one; may be repeated.", show_default=False)
]
IgnoreEos = Annotated[bool, typer.Option("--ignore-eos", help="Go on past the tokens that end a text.")]
Dtype = Annotated[
    str | None, typer.Option(help="Of the weights: float32, bfloat16, ...; else the file's.", show_default=False)
]
Ignore = Annotated[
    list[str] | None,
    typer.Option(
        metavar="OPTION", help="An option of config.json known not to matter; may be repeated.", show_default=False
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
    source: SourceName,
    prompt: Annotated[
        str, typer.Option("--prompt", "-p", help="The text to go on from; - reads it from stdin.", show_default=False)
    ],
    tokens: Annotated[int, typer.Option("--tokens", "-n", min=0, help="How many tokens to draw at most.")] = 200,
    temperature: Temperature = 0.8,
    top_k: TopK = None,
    top_p: TopP = None,
    min_p: MinP = None,
    repetition_penalty: RepetitionPenalty = None,
    seed: Seed = 0,
    stop: Stop = None,
    ignore_eos: IgnoreEos = False,
    checkpoint: Annotated[
        str | None,
        typer.Option(help="Of a run: best (validation loss; the default) or last.", show_default=False),
    ] = None,
    dtype: Dtype = None,
    ignore: Ignore = None,
) -> None:
    """Print the prompt and a text that goes on from it.

    SOURCE is a run folder, a Hugging Face folder (config.json, weights in safetensors, tokenizer.json), or a name on
    the hub, downloaded on first use.
    """
    from .generate import run_generation
    from .source import Drawing

    drawing = Drawing.checked(
        tokens,
        seed,
        stop,
        ignore_eos,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        repetition_penalty=repetition_penalty,
    )
    run_generation(source, prompt, drawing, checkpoint, dtype, ignore or ())


@app.command()
@guarded
def chat(
    source: SourceName,
    system: Annotated[
        str | None, typer.Option("--system", "-s", help="The system message.", show_default=False)
    ] = None,
    tokens: Annotated[int, typer.Option("--tokens", "-n", min=1, help="How long an answer may be.")] = 512,
    temperature: Temperature = 0.8,
    top_k: TopK = None,
    top_p: TopP = None,
    min_p: MinP = None,
    repetition_penalty: RepetitionPenalty = None,
    seed: Seed = 0,
    stop: Stop = None,
    ignore_eos: IgnoreEos = False,
    dtype: Dtype = None,
    ignore: Ignore = None,
) -> None:
    """Talk with a model, in the form of its chat template.

    SOURCE is a Hugging Face folder with a chat template, or a name on the hub. On a terminal /reset forgets the
    conversation, /exit or Ctrl-D ends it, Ctrl-C ends an answer. From a pipe each line is a turn, and stdout holds the
    answers alone.
    """
    from .chat import run_chat
    from .source import Drawing

    drawing = Drawing.checked(
        tokens,
        seed,
        stop,
        ignore_eos,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        repetition_penalty=repetition_penalty,
    )
    run_chat(source, system, drawing, dtype, ignore or ())


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []})
@guarded
def gradcheck(context: typer.Context) -> None:
    """Check the gradients of an op, or of all of them; the arguments are those of ``python -m gradcheck``."""
    from gradcheck import main

    raise typer.Exit(main(context.args))


def main() -> None:
    """The console script."""
    app()

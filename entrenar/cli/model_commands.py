"""The commands that use a model: ``generate``, ``chat``."""

from __future__ import annotations

from typing import Annotated

import typer

from .guard import guarded
from .options import (
    Checkpoint,
    Dtype,
    Ignore,
    IgnoreEos,
    MinP,
    RepetitionPenalty,
    Seed,
    SourceName,
    Stop,
    Temperature,
    TopK,
    TopP,
)

commands = typer.Typer()


@commands.command()
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
    checkpoint: Checkpoint = None,
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


@commands.command()
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

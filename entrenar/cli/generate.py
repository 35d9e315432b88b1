"""``entrenar generate``: text from a trained run."""

from __future__ import annotations

import sys
from pathlib import Path

import typer

from ..io import DataError
from ..train import generate_text, load_run


def run_generation(
    run: Path, prompt: str, tokens: int, temperature: float, top_k: int | None, seed: int, checkpoint: str
) -> None:
    """Print the prompt and each drawn piece as it comes.  Raises DataError for a folder that holds no run."""
    if checkpoint not in ("best", "last"):
        raise typer.BadParameter(f"{checkpoint!r} is neither best nor last", param_hint="--checkpoint")
    model, tokenizer, _ = load_run(run, checkpoint)
    try:
        pieces = generate_text(model, tokenizer, prompt, tokens, temperature, top_k, seed)
    except (ValueError, DataError) as error:
        raise typer.BadParameter(str(error), param_hint="--prompt") from None
    sys.stdout.write(prompt)
    for piece in pieces:
        sys.stdout.write(piece)
        sys.stdout.flush()
    sys.stdout.write("\n")

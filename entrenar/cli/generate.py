"""``entrenar generate``: a text that goes on from a prompt."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator

import typer

from ..io import DataError
from .guard import STATE
from .source import Drawing, locate, open_source, say, until
from .tell import result


def run_generation(
    name: str, prompt: str, drawing: Drawing, checkpoint: str | None, dtype: str | None, ignore: Collection[str]
) -> None:
    """Print the prompt and each drawn piece as it comes; with --json both at the end.

    name: a run folder, a Hugging Face folder, or a name on the hub.  prompt: the text, "-" for that of stdin.
    Raises DataError for a source that is none, typer.BadParameter for an option or a prompt that cannot be used.
    """
    source = open_source(locate(name), checkpoint, dtype, ignore)
    text = _standard_input() if prompt == "-" else prompt
    try:
        ids = source.encode(text)
    except DataError:
        raise
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--prompt") from None
    if not ids.size:
        raise typer.BadParameter("the prompt is empty: give at least one character", param_hint="--prompt")
    limit, length = source.positions, len(ids)
    if length > limit:
        typer.echo(f"the prompt has {length} tokens: the model reads its last {limit}", err=True)

    def new() -> Iterator[int]:
        nonlocal length
        for token in drawing.ids(source, ids, drawing.tokens, drawing.seed):
            length += 1
            yield token

    pieces = until(source.text(new(), ids), drawing.stops)
    if STATE.json:
        result({"prompt": text, "text": "".join(pieces)})
    else:
        say(text)
        try:
            for piece in pieces:
                say(piece)
        finally:
            say("\n")
    if length > limit + 1:  # the last token is not read
        typer.echo(f"longer than the model's {limit} positions: each token was drawn from those before it", err=True)


def _standard_input() -> str:
    """The text of stdin without its last line break.  Raises typer.BadParameter if it is not UTF-8."""
    try:
        text = sys.stdin.buffer.read().decode("utf-8")
    except UnicodeDecodeError as error:
        raise typer.BadParameter(f"stdin is not UTF-8: {error}", param_hint="--prompt") from None
    return text.removesuffix("\n").removesuffix("\r")

"""Arguments and options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

ConfigFile = Annotated[Path, typer.Argument(metavar="CONFIG", help="A YAML or JSON file.", show_default=False)]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[section.key=value]...", show_default=False, help="Values that replace those of the file, in YAML."
    ),
]
RunName = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.", show_default=False)]

# what generate, chat and eval share
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
Checkpoint = Annotated[
    str | None,
    typer.Option(help="Of a run: best (validation loss; the default) or last.", show_default=False),
]
Dtype = Annotated[
    str | None, typer.Option(help="Of the weights: float32, bfloat16, ...; else the file's.", show_default=False)
]
Ignore = Annotated[
    list[str] | None,
    typer.Option(
        metavar="OPTION", help="An option of config.json known not to matter; may be repeated.", show_default=False
    ),
]

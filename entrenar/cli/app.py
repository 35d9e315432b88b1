"""The command line: options that stand before a command, and the commands.  Commands import what is heavy."""

from __future__ import annotations

from typing import Annotated

import typer

from . import file_commands, model_commands, train_commands
from .guard import STATE

TEXT_ONLY = ("chat", "gradcheck")  # what they print is no single result

app = typer.Typer(
    name="entrenar",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Autograd that you can read, check and train with.",
)
for group in (train_commands, model_commands, file_commands):
    app.add_typer(group.commands)


def _version(wanted: bool) -> None:
    if wanted:
        from .. import __version__

        typer.echo(f"entrenar {__version__}")
        raise typer.Exit


@app.callback()
def options(
    context: typer.Context,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show the traceback of an error.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Results and errors only.")] = False,
    json: Annotated[bool, typer.Option("--json", help="The result as one line of JSON on stdout.")] = False,
    no_color: Annotated[bool, typer.Option("--no-color", help="No colours; the same as NO_COLOR=1.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Autograd that you can read, check and train with."""
    if json and context.invoked_subcommand in TEXT_ONLY:
        raise typer.BadParameter(f"{context.invoked_subcommand} has no result in JSON", param_hint="--json")
    STATE.verbose, STATE.quiet, STATE.json, STATE.no_color = verbose, quiet, json, no_color


def main() -> None:
    """The console script."""
    app()

"""The commands about files and ops: ``gradcheck``."""

from __future__ import annotations

import typer

from .guard import guarded

commands = typer.Typer()


@commands.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []})
@guarded
def gradcheck(context: typer.Context) -> None:
    """Check the gradients of an op, or of all of them; the arguments are those of ``python -m gradcheck``."""
    from gradcheck import main

    raise typer.Exit(main(context.args))

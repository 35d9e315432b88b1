"""Where a line goes: results to stdout, what happens meanwhile to stderr; what -q, --json and --no-color change."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import typer
from rich.console import Console

from .guard import STATE


def say(text: str = "") -> None:
    """A line of the result, for a reader: on stdout, but for --json."""
    if not STATE.json:
        typer.echo(text)


def aside(text: str = "") -> None:
    """A line about the result (a plan, a heading): as ``say``, but left out by -q."""
    if not STATE.quiet:
        say(text)


def note(text: str) -> None:
    """A line of what happens: on stderr, left out by -q."""
    if not STATE.quiet:
        typer.echo(text, err=True)


def result(value: Mapping[str, Any]) -> None:
    """The result for a program: with --json one object on one line of stdout; NaN and infinities are null."""
    if STATE.json:
        typer.echo(json.dumps(plain(value), ensure_ascii=False, allow_nan=False))


def plain(value: Any) -> Any:
    """The value in what JSON has."""
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def console(stderr: bool = False) -> Console:
    """A terminal for colours and bars.  NO_COLOR in the environment or --no-color leaves out colours."""
    return Console(stderr=stderr, highlight=False, no_color=True if STATE.no_color else None)

"""Errors that name the thing, and the nearest known name for a misspelt one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class EntrenarError(Exception):
    """Base of the errors that are entrenar's own (wrong values still raise ValueError, TypeError ...)."""


class GraphError(EntrenarError, RuntimeError):
    """The tape can't be walked: freed, overwritten, or not there."""


class AnomalyError(EntrenarError, FloatingPointError):
    """A NaN, an infinity or an overwritten value, found by ``detect_anomaly``."""


def nearest(name: str, known: Iterable[str]) -> str:
    """`` Did you mean 'x'?`` for the closest of ``known``, or an empty string when none is close."""
    close = difflib.get_close_matches(str(name), list(known), n=1, cutoff=0.6)
    return f" Did you mean {close[0]!r}?" if close else ""


def missing_extra(library: str, extra: str, purpose: str) -> ImportError:
    """The error for an optional library that is not installed; says which extra brings it."""
    return ImportError(f"{purpose} needs {library}, which is not installed: pip install 'entrenar[{extra}]'")

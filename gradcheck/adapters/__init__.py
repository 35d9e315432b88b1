"""From whatever somebody wants checked to functions of plain arrays; each library is imported only when it is used."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from ..function import Subject
from . import entrenar, jax, pairs, torch

Adapter = Callable[..., Subject]

ADAPTERS: dict[str, Adapter] = {
    "pair": pairs.subject,
    "entrenar": entrenar.subject,
    "torch": torch.subject,
    "jax": jax.subject,
}


def subject_of(
    target: Any, arrays: tuple[Any, ...], *, library: str | None = None, order: int = 1, seed: int = 0
) -> Subject:
    """Take ``target`` apart.  Raises TypeError for what can't be checked, ValueError for an unknown library."""
    name = library or recognised(target, arrays)
    if name not in ADAPTERS:
        raise ValueError(f"unknown library {name!r}: known are {sorted(ADAPTERS)}")
    return ADAPTERS[name](target, arrays, order=order, seed=seed)


def recognised(target: Any, arrays: tuple[Any, ...]) -> str:
    """The library a target belongs to: by its own type, by its arguments, by the modules its code names."""
    if isinstance(target, tuple | list):
        return "pair"
    if not callable(target):
        raise TypeError(f"gradcheck.check takes an op, a function or a pair (f, vjp), got {type(target).__name__}")
    if entrenar.is_op(target):
        return "entrenar"
    for name in _origins(target, arrays):
        root = {"jaxlib": "jax"}.get(name.partition(".")[0], name.partition(".")[0])
        if root in ADAPTERS and root in sys.modules:
            return root
    named = {root for module in _modules_named(target) if (root := module.__name__.partition(".")[0]) in ADAPTERS}
    return named.pop() if len(named) == 1 else "entrenar"


def _origins(target: Any, arrays: tuple[Any, ...]) -> list[str]:
    """The modules that a target and its arguments come from, with those of their base classes."""
    classes = target.__mro__ if isinstance(target, type) else type(target).__mro__
    own = str(getattr(target, "__module__", None) or "")
    return [own, *(c.__module__ for c in classes), *(type(a).__module__ for a in arrays)]


def _modules_named(target: Any) -> list[ModuleType]:
    """Modules that a function's code refers to, through its globals or its closure."""
    function = inspect.unwrap(getattr(target, "__func__", target))
    if not inspect.isfunction(function):
        return []
    found = inspect.getclosurevars(function)
    values = [*found.globals.values(), *found.nonlocals.values()]
    owners = [sys.modules.get(str(getattr(v, "__module__", ""))) for v in values if callable(v)]
    return [v for v in (*values, *owners) if isinstance(v, ModuleType)]

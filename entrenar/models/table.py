"""The table of architectures: name -> (configuration class, model class)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from ..array import nearest
from .published import Published

T = TypeVar("T", bound="type[Published]")
MODELS: dict[str, tuple[type[Any], type[Published]]] = {}


def model(name: str, config: type[Any]) -> Callable[[T], T]:
    """Enter the decorated class, built from a ``config``, under ``name``."""

    def register(cls: T) -> T:
        MODELS[name] = (config, cls)
        return cls

    return register


def build(name: str, options: Mapping[str, Any]) -> Any:
    """The model ``name`` with these configuration fields, freshly initialised.

    Raises ValueError for an unknown name or a value out of range, TypeError for an unknown field; with the nearest.
    """
    if name not in MODELS:
        raise ValueError(f"unknown model {name!r}: known are {sorted(MODELS)}.{nearest(name, MODELS)}")
    config, cls = MODELS[name]
    known = [f.name for f in dataclasses.fields(config)]
    for option in options:
        if option not in known:
            raise TypeError(f"{config.__name__} has no field {option!r}.{nearest(option, known)}")
    return cls(config(**options))  # type: ignore[call-arg]

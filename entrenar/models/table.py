"""The table of architectures: name -> (configuration class, model class); and models of them from names."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np

from ..array import as_dtype, is_float, nearest
from ..nn import init
from .presets import PRESETS
from .published import Published

T = TypeVar("T", bound="type[Published]")
MODELS: dict[str, tuple[type[Any], type[Published]]] = {}


def model(name: str, config: type[Any]) -> Callable[[T], T]:
    """Enter the decorated class, built from a ``config``, under ``name``."""

    def register(cls: T) -> T:
        MODELS[name] = (config, cls)
        return cls

    return register


def build(name: str, options: Mapping[str, Any] | None = None, dtype: Any = None) -> Any:
    """The architecture of MODELS, or the model of PRESETS, that is called ``name``, with freshly drawn weights.

    options: fields of its configuration that replace defaults or the preset's.  dtype: of the weights, which are drawn
    in it; the default dtype if None.  Inside ``nn.init.left_empty()`` nothing is drawn or written: then a model of any
    size takes address space, but no memory yet.
    Raises ValueError for an unknown name or a value out of range, TypeError for an unknown field, with the nearest, and
    for a dtype that is no float.
    """
    family, sizes = PRESETS.get(name, (name, {}))
    if family not in MODELS:
        raise ValueError(
            f"unknown model {name!r}: known are the architectures {sorted(MODELS)} and the presets {sorted(PRESETS)}."
            f"{nearest(name, {*MODELS, *PRESETS})}"
        )
    config, cls = MODELS[family]
    known = [f.name for f in dataclasses.fields(config)]
    given = {**sizes, **(options or {})}
    for option in given:
        if option not in known:
            raise TypeError(f"{config.__name__} has no field {option!r}.{nearest(option, known)}")
    if dtype is None:
        return cls(config(**given))  # type: ignore[call-arg]
    wanted = as_dtype(dtype)
    if not is_float(wanted):
        raise TypeError(f"build: dtype must be a float dtype, got {wanted}")
    with init.left_empty():
        made: Any = cls(config(**given))  # type: ignore[call-arg]
    for parameter in made.parameters():
        parameter.data = np.empty(parameter.shape, wanted)
    made.reset_parameters()
    return made

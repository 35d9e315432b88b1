"""The section ``model``: one schema for each decoder of MODELS, made from the fields of its configuration."""

from __future__ import annotations

import dataclasses
import typing
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union

from pydantic import Discriminator, Field, Tag, create_model, model_validator

from ..models import MODELS
from ..models.decoder import Decoder
from .section import Section

DEFAULT = "gpt2"
TOKENS = ("bos_token_id", "eos_token_id", "pad_token_id")
FROM_TOKENIZER = ("vocab_size", *TOKENS)


class ModelConfig(Section):
    """The decoder: the fields of its configuration, under Hugging Face's names and with its defaults.

    family: the name in MODELS.  dtype: of the weights and of what is computed with them.  The vocabulary comes from the
    tokenizer.
    """

    family: str
    dtype: Literal["float32", "float64", "bfloat16"] = "float32"

    @model_validator(mode="after")
    def makes_sense(self) -> ModelConfig:
        """Whatever the architecture's configuration refuses."""
        try:
            self.architecture(1)
        except TypeError as error:  # pydantic takes no other than ValueErrors for faults of the input
            raise ValueError(str(error)) from None
        return self

    def architecture(self, vocab_size: int) -> Any:
        """The architecture's own configuration, for a vocabulary without special tokens."""
        own = [name for name in type(self).model_fields if name not in ModelConfig.model_fields]
        options = {name: getattr(self, name) for name in own}
        return MODELS[self.family][0](vocab_size=vocab_size, **dict.fromkeys(TOKENS), **options)


def _section(family: str) -> type[ModelConfig]:
    """The section of an architecture."""
    config, cls = MODELS[family]
    hints = typing.get_type_hints(config)
    fields: dict[str, Any] = {"family": (Literal[family], DEFAULT if family == DEFAULT else ...)}
    for field in dataclasses.fields(config):
        name = field.name
        if name in FROM_TOKENIZER or name in config.FIXED:
            continue
        limits: dict[str, Any] = {}
        if name in config.SIZES:
            limits = {"ge": 1}
        elif name in config.RATES:
            limits = {"ge": 0, "lt": 1}
        elif name in config.NUMBERS:
            limits = {"gt": 0}
        fields[name] = (hints[name], Field(field.default, **limits))
    return create_model(f"{cls.__name__}Section", __base__=ModelConfig, __doc__=ModelConfig.__doc__, **fields)


SECTIONS = {family: _section(family) for family, (_, cls) in MODELS.items() if issubclass(cls, Decoder)}


def family_of(value: Any) -> str:
    """The architecture that a section names, or the default one."""
    if isinstance(value, ModelConfig):
        return value.family
    return str(value.get("family", DEFAULT)) if isinstance(value, dict) else DEFAULT


if TYPE_CHECKING:
    AnyModel = ModelConfig
else:
    AnyModel = Annotated[
        Union[tuple(Annotated[section, Tag(family)] for family, section in SECTIONS.items())],  # noqa: UP007
        Discriminator(family_of),
    ]

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

    The vocabulary comes from the tokenizer.
    """

    family: str
    """the architecture"""
    dtype: Literal["float32", "float64", "bfloat16"] = "float32"
    """of the weights and of what is computed with them"""

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


# what the fields are, for whoever reads a configuration or its schema
ABOUT = {
    "activation_function": "of the MLP: gelu_new, gelu, relu, silu, ...",
    "attention_bias": "whether the attention's projections have biases",
    "attention_dropout": "of the attention weights",
    "attn_pdrop": "dropout of the attention weights",
    "embd_pdrop": "dropout of the embeddings",
    "head_dim": "width of a head; null is hidden_size / num_attention_heads",
    "hidden_size": "width of the states between layers",
    "initializer_range": "standard deviation of the drawn weights",
    "intermediate_size": "width inside the MLP",
    "layer_norm_epsilon": "added to the variance in LayerNorm",
    "layer_types": "of each layer: full_attention or sliding_attention; null follows max_window_layers",
    "max_position_embeddings": "the most tokens a sequence may have",
    "max_window_layers": "the first layer with a window, where use_sliding_window is set",
    "mlp_bias": "whether the MLP's projections have biases",
    "n_embd": "width of the states between layers",
    "n_head": "attention heads",
    "n_inner": "width inside the MLP; null is 4 n_embd",
    "n_layer": "layers",
    "n_positions": "the most tokens a sequence may have",
    "num_attention_heads": "attention heads",
    "num_hidden_layers": "layers",
    "num_key_value_heads": "heads of keys and values, each shared by a group of queries; null has one each",
    "resid_pdrop": "dropout of what attention and MLP add",
    "rms_norm_eps": "added to the mean square in RMSNorm",
    "rope_scaling": "Hugging Face's mapping for longer texts: {rope_type: ..., factor: ...}; null has none",
    "rope_theta": "base of the rotary frequencies",
    "sliding_window": "how many tokens a query sees, itself included; null for all",
    "tie_word_embeddings": "whether the output projection is the table of embeddings",
    "use_sliding_window": "whether layers have windows",
}


def _section(family: str) -> type[ModelConfig]:
    """The section of an architecture."""
    config, cls = MODELS[family]
    hints = typing.get_type_hints(config)
    about = Field(DEFAULT if family == DEFAULT else ..., description=ModelConfig.model_fields["family"].description)
    fields: dict[str, Any] = {"family": (Literal[family], about)}
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
        fields[name] = (hints[name], Field(field.default, description=ABOUT.get(name), **limits))
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

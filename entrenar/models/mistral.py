"""Mistral (Jiang et al. 2023): Llama's decoder whose queries see a window of tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .llama import Llama, LlamaConfig
from .table import model


@dataclass(frozen=True)
class MistralConfig(LlamaConfig):
    """As LlamaConfig, with Mistral 7B's sizes.  sliding_window: tokens a query sees, itself included; None: all."""

    MODEL_TYPE: ClassVar = "mistral"
    CLASS: ClassVar = "MistralForCausalLM"
    FIXED: ClassVar = {**LlamaConfig.FIXED, "attention_bias": False, "mlp_bias": False}

    intermediate_size: int = 14336
    num_key_value_heads: int | None = 8
    max_position_embeddings: int = 4096 * 32
    sliding_window: int | None = 4096

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_sizes("sliding_window", optional=True)

    def window(self, layer: int) -> int | None:
        """The same for every layer."""
        return self.sliding_window


@model("mistral", MistralConfig)
class Mistral(Llama):
    """Llama's decoder with a sliding window."""

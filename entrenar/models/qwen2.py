"""Qwen2 (Yang et al. 2024): Llama's decoder with biases on queries, keys and values, windows in its upper layers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from .llama import Llama, LlamaConfig
from .table import model

KINDS = ("full_attention", "sliding_attention")


@dataclass(frozen=True)
class Qwen2Config(LlamaConfig):
    """As LlamaConfig, with Qwen2 7B's sizes.

    use_sliding_window: layers from max_window_layers on see sliding_window tokens, itself included.  layer_types:
    "full_attention" or "sliding_attention" for each layer, instead.
    """

    MODEL_TYPE: ClassVar = "qwen2"
    CLASS: ClassVar = "Qwen2ForCausalLM"
    FIXED: ClassVar = {**LlamaConfig.FIXED, "attention_bias": True, "mlp_bias": False, "use_mrope": False}

    vocab_size: int = 151936
    intermediate_size: int = 22016
    num_key_value_heads: int | None = 32
    max_position_embeddings: int = 32768
    attention_bias: bool = True
    use_sliding_window: bool = False
    sliding_window: int | None = 4096
    max_window_layers: int = 28
    layer_types: tuple[str, ...] | None = None
    bos_token_id: int | None = None
    eos_token_id: int | tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        kinds, layers = self.layer_types, self.num_hidden_layers
        if kinds is not None and not (
            isinstance(kinds, tuple) and len(kinds) == layers and all(kind in KINDS for kind in kinds)
        ):
            self.refuse("layer_types", f"must be None or a tuple of {layers} of {KINDS}")
        if kinds is not None and KINDS[1] in kinds and not self.use_sliding_window:
            self.refuse("layer_types", f"must all be {KINDS[0]!r} unless use_sliding_window is set")
        if self.use_sliding_window and self.sliding_window is None:
            self.refuse("sliding_window", "must be a positive integer where use_sliding_window is set")
        self.check_sizes("sliding_window", optional=True)
        first = self.max_window_layers
        if isinstance(first, bool) or not isinstance(first, int) or first < 0:
            self.refuse("max_window_layers", "must be an integer of at least 0")

    @property
    def out_bias(self) -> bool:
        """Queries, keys and values have biases, the output has none."""
        return False

    def window(self, layer: int) -> int | None:
        """sliding_window for the layers that slide."""
        if not self.use_sliding_window:
            return None
        slides = layer >= self.max_window_layers if self.layer_types is None else self.layer_types[layer] == KINDS[1]
        return self.sliding_window if slides else None

    @classmethod
    def renamed(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """Windows that are off are saved as sliding_window null, with layer_types all full."""
        options = super().renamed(given)
        if options.get("sliding_window") is None and not options.get("use_sliding_window"):
            options.pop("sliding_window", None)
        return options


@model("qwen2", Qwen2Config)
class Qwen2(Llama):
    """Llama's decoder with biases on queries, keys and values."""

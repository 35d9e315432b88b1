"""Llama (Touvron et al. 2023): a pre-norm decoder with rotary positions, grouped heads, RMSNorm and a gated MLP.

Parameter names are those of the published files: model.layers.0.self_attn.q_proj.weight (out, in), ..., lm_head.weight.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import repeat
from typing import Any, ClassVar

import numpy as np

from ..array import Array
from ..autograd import Tensor
from ..nn import Linear, Module, RMSNorm, init
from .blocks import GatedMLP, GroupedAttention, Layer, Layers, Seen
from .cache import Cache
from .configuration import FieldError, ModelConfig
from .decoder import Decoder
from .embeddings import PaddedEmbedding
from .rotary import rotary_fields, rotary_from_config
from .table import model


@dataclass(frozen=True)
class LlamaConfig(ModelConfig):
    """Sizes and constants under Hugging Face's names and with its defaults (Llama 7B).

    num_key_value_heads: as many as heads if None.  head_dim: hidden_size / num_attention_heads if None.
    pad_token_id: its embedding starts at 0 and gets no gradient; None for no such token.
    rope_scaling: Hugging Face's mapping (rope_type, factor, ...).  attention_dropout: of the attention weights.
    Raises ValueError for a size that is not a positive integer, heads that do not divide, an unknown activation.
    """

    MODEL_TYPE: ClassVar = "llama"
    CLASS: ClassVar = "LlamaForCausalLM"
    SIZES: ClassVar = (
        *("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"),
        *("num_key_value_heads", "head_dim", "max_position_embeddings"),
    )
    RATES: ClassVar = ("attention_dropout",)
    NUMBERS: ClassVar = ("rms_norm_eps", "rope_theta", "initializer_range")
    # transformers' Llama, Mistral and Qwen2 turn whole heads: another part is ignored, or fails if there is a scaling
    FIXED: ClassVar[Mapping[str, Any]] = {"hidden_act": ("silu", "swish"), "partial_rotary_factor": 1.0}

    vocab_size: int = 32000
    hidden_size: int = 4096
    intermediate_size: int = 11008
    num_hidden_layers: int = 32
    num_attention_heads: int = 32
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    max_position_embeddings: int = 2048
    initializer_range: float = 0.02
    rms_norm_eps: float = 1e-6
    rope_theta: float = 10000.0
    rope_scaling: Mapping[str, Any] | None = None
    attention_bias: bool = False
    attention_dropout: float = 0.0
    mlp_bias: bool = False
    tie_word_embeddings: bool = False
    bos_token_id: int | None = 1
    eos_token_id: int | tuple[int, ...] | None = 2
    pad_token_id: int | None = None

    def __post_init__(self) -> None:
        self.check_sizes("hidden_size", "num_attention_heads")
        if self.num_key_value_heads is None:
            object.__setattr__(self, "num_key_value_heads", self.num_attention_heads)
        if self.head_dim is None and self.hidden_size % self.num_attention_heads:
            self.refuse("hidden_size", f"must be divisible by num_attention_heads={self.num_attention_heads}")
        if self.head_dim is None:
            object.__setattr__(self, "head_dim", self.hidden_size // self.num_attention_heads)
        super().__post_init__()
        self.check_padding()
        if self.num_attention_heads % self.kv_heads:
            self.refuse("num_attention_heads", f"must be divisible by num_key_value_heads={self.num_key_value_heads}")
        if isinstance(self.rope_scaling, Mapping):  # a copy: what its giver changes later is not this model's
            copied = {k: v.item() if isinstance(v, np.generic) else v for k, v in dict(self.rope_scaling).items()}
            object.__setattr__(self, "rope_scaling", copied)
        if self.head_dim % 2:  # type: ignore[operator]
            self.refuse("head_dim", "must be even: its elements turn in pairs")
        try:
            turning = self.rotary().dims
        except (TypeError, ValueError) as error:
            raise FieldError(type(self).__name__, "rope_scaling", str(error)) from None
        if turning != self.head_dim:
            self.refuse("rope_scaling", "must turn whole heads (partial_rotary_factor 1)")

    def rotary(self) -> Any:
        """How queries and keys are turned.  Raises ValueError for a scaling that is unknown or incomplete."""
        return rotary_from_config({name: getattr(self, name) for name in ROTARY})

    @property
    def kv_heads(self) -> int:
        """num_key_value_heads, never None."""
        return self.num_key_value_heads or self.num_attention_heads

    @property
    def positions(self) -> int:
        """The most tokens a text may have: with dynamic scaling ``factor`` times max_position_embeddings."""
        scaling = self.rope_scaling or {}
        dynamic = scaling.get("rope_type", scaling.get("type")) == "dynamic"
        return math.ceil(self.max_position_embeddings * (scaling["factor"] if dynamic else 1))

    @property
    def qkv_bias(self) -> bool:
        """Whether queries, keys and values have a bias."""
        return self.attention_bias

    @property
    def out_bias(self) -> bool:
        """Whether the output projection of attention has one."""
        return self.attention_bias

    @classmethod
    def renamed(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """transformers 5 has theta and scaling in one mapping, rope_parameters."""
        found = rotary_fields(given)
        if found["rope_scaling"] in ({"rope_type": "default"}, {"type": "default"}):
            found["rope_scaling"] = None
        options = {name: value for name, value in given.items() if name not in (*found, "rope_parameters")}
        return {**options, **{name: value for name, value in found.items() if value is not None}}


ROTARY = ("hidden_size", "num_attention_heads", "head_dim", "max_position_embeddings", "rope_theta", "rope_scaling")


class Stack(Module):
    """Embedding, layers and the last norm."""

    def __init__(self, config: Any) -> None:
        width = config.hidden_size
        self.embed_tokens = PaddedEmbedding(config.vocab_size, width, config.pad_token_id)
        self.layers = Layers([self.layer(config) for _ in range(config.num_hidden_layers)])
        self.norm = RMSNorm(width, eps=config.rms_norm_eps)

    @staticmethod
    def layer(config: Any) -> Layer:
        """One layer of a configuration."""
        c = config
        attention = GroupedAttention(
            c.hidden_size,
            c.num_attention_heads,
            c.kv_heads,
            c.head_dim,
            c.qkv_bias,
            c.out_bias,
            c.attention_dropout,
        )
        mlp = GatedMLP(c.hidden_size, c.intermediate_size, c.mlp_bias)
        return Layer(attention, mlp, c.hidden_size, c.rms_norm_eps)

    def forward(self, ids: Array, seen: list[Seen], cache: Cache | None = None) -> Tensor:
        """ids: (B, T) -> (B, T, C); seen: for each layer."""
        return self.norm(self.layers(self.embed_tokens(ids), zip(seen, cache or repeat(None), strict=False)))


@model("llama", LlamaConfig)
class Llama(Decoder):
    """The decoder with its language-model head.

    Matrices and embeddings are normal(0, initializer_range) from the default generator, biases and the padding token's
    embedding 0, gains 1.
    """

    BUFFERS = ("rotary_emb.inv_freq",)
    TABLE = "model.embed_tokens.weight"

    def __init__(self, config: Any) -> None:
        self.config, self.rotary = config, config.rotary()
        with init.left_empty():
            self.model = Stack(config)
            if not config.tie_word_embeddings:
                self.lm_head = Linear(config.hidden_size, config.vocab_size, bias=False)
        self.reset_parameters()

    def states(self, ids: Array, at: Array, mask: Array | None, cache: Cache | None) -> Tensor:
        """The normalised states (B, T, width)."""
        seen_by_all = None if cache is None else cache.length + ids.shape[1]
        dtype = np.result_type(self.model.embed_tokens.weight.dtype, np.float32)
        cos, sin = (t.astype(dtype) for t in self.rotary.tables(at, seen_by_all))
        if at.ndim == 2:  # a text's own positions, the same for all heads
            cos, sin = cos[:, None], sin[:, None]
        windows = [self.config.window(n) for n in range(self.config.num_hidden_layers)]
        return self.model(ids, [Seen(cos, sin, mask, window) for window in windows], cache)

    def head(self) -> Tensor:
        """The projection to the vocabulary (vocab_size, width)."""
        return self.model.embed_tokens.weight if self.config.tie_word_embeddings else self.lm_head.weight

    def new_cache(self, batch: int = 1, capacity: int | None = None) -> Cache:
        """Empty keys and values of ``batch`` texts, in the dtype of the weights."""
        c = self.config
        shape = (batch, c.kv_heads, capacity or c.positions, c.head_dim)
        return Cache.empty(c.num_hidden_layers, shape, self.model.embed_tokens.weight.dtype)

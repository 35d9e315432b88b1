"""GPT-2 (Radford et al. 2019): a pre-LN decoder with learned positions and a tied head.

Parameter names, layouts, defaults and initialisation are those of Hugging Face's GPT2LMHeadModel, without the prefix
"transformer." (as in the published gpt2 file): wte.weight, h.0.attn.c_attn.weight (in, out), ..., ln_f.bias.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import repeat
from typing import Any, ClassVar

from ..array import Array
from ..autograd import Tensor
from ..nn import Dropout, Embedding, LayerNorm, Linear, Module
from ..nn.layers import empty
from ..ops.activations import gelu, relu, silu
from ..ops.attention import scaled_dot_product_attention
from ..ops.exponential import tanh
from ..ops.joining import split
from ..ops.layers import linear
from ..ops.recomputed import gelu_linear, norm_linear
from ..ops.shape import transpose
from .blocks import Layers, fusable, untouched
from .cache import Cache, LayerCache
from .configuration import FieldError, ModelConfig
from .decoder import Decoder
from .table import model

ACTIVATIONS: dict[str, Callable[[Any], Any]] = {  # the names that occur in config.json of GPT-2 models
    "gelu_new": lambda x: gelu(x, approximate="tanh"),
    "gelu": gelu,
    "relu": relu,
    "silu": silu,
    "swish": silu,
    "tanh": tanh,
}
GELU = {"gelu_new": "tanh", "gelu": "none"}  # those that backward can cheaply make anew


@dataclass(frozen=True)
class GPT2Config(ModelConfig):
    """Sizes and rates, under Hugging Face's names and with its defaults (GPT-2 small).

    n_inner: width of the MLP, 4 n_embd if None.  *_pdrop: dropout of embeddings, attention weights, residual branches.
    Raises ValueError for a size that is not a positive integer, n_embd not divisible by n_head, a rate outside [0, 1),
    or an unknown activation.
    """

    MODEL_TYPE: ClassVar = "gpt2"
    CLASS: ClassVar = "GPT2LMHeadModel"
    SIZES: ClassVar = ("vocab_size", "n_positions", "n_embd", "n_layer", "n_head")
    RATES: ClassVar = ("resid_pdrop", "embd_pdrop", "attn_pdrop")
    NUMBERS: ClassVar = ("layer_norm_epsilon", "initializer_range")
    FIXED: ClassVar = {
        "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False,
        "reorder_and_upcast_attn": False,
    }
    INERT: ClassVar = frozenset(
        {
            *("summary_type", "summary_use_proj", "summary_activation", "summary_proj_to_labels"),
            *("summary_first_dropout", "n_special", "predict_special_tokens", "output_past", "_num_labels"),
        }
    )
    ATTRIBUTES: ClassVar = {
        "hidden_size": "n_embd",
        "max_position_embeddings": "n_positions",
        "num_attention_heads": "n_head",
        "num_hidden_layers": "n_layer",
    }

    vocab_size: int = 50257
    n_positions: int = 1024
    n_embd: int = 768
    n_layer: int = 12
    n_head: int = 12
    n_inner: int | None = None
    activation_function: str = "gelu_new"
    resid_pdrop: float = 0.1
    embd_pdrop: float = 0.1
    attn_pdrop: float = 0.1
    layer_norm_epsilon: float = 1e-5
    initializer_range: float = 0.02
    tie_word_embeddings: bool = True
    bos_token_id: int | None = 50256
    eos_token_id: int | tuple[int, ...] | None = 50256
    pad_token_id: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_sizes("n_inner", optional=True)
        if self.n_embd % self.n_head:
            text = f"n_embd={self.n_embd} is not divisible by n_head={self.n_head}"
            raise FieldError("GPT2Config", "n_embd", text)
        self.one_of("activation_function", ACTIVATIONS)


@fusable
class Conv1D(Module):
    """y = x W + b with W stored (in, out), as GPT-2's files have it (the transpose of Linear's)."""

    def __init__(self, in_features: int, out_features: int) -> None:
        self.weight, self.bias = empty(in_features, out_features), empty(out_features)

    def forward(self, x: Tensor) -> Tensor:
        """x: (..., in) -> (..., out)."""
        return linear(x, transpose(self.weight), self.bias)

    def extra_repr(self) -> str:
        """The layout, since it is not Linear's."""
        return f"in_features={self.weight.shape[0]}, out_features={self.weight.shape[1]}, weight (in, out)"


@fusable
class Attention(Module):
    """Causal multi-head self-attention (Vaswani et al. 2017, eq. 1)."""

    def __init__(self, config: GPT2Config) -> None:
        self.n_head, self.attn_pdrop = config.n_head, config.attn_pdrop
        self.c_attn = Conv1D(config.n_embd, 3 * config.n_embd)
        self.c_proj = Conv1D(config.n_embd, config.n_embd)
        self.resid_dropout = Dropout(config.resid_pdrop)

    def forward(self, x: Tensor, mask: Array | None = None, cache: LayerCache | None = None) -> Tensor:
        """x: (B, T, C) -> (B, T, C).  With a cache x holds the tokens after those in it."""
        return self.attend(self.c_attn(x), mask, cache)

    def attend(self, qkv: Tensor, mask: Array | None = None, cache: LayerCache | None = None) -> Tensor:
        """From the queries, keys and values (B, T, 3 C) on."""
        batch, length, width = *qkv.shape[:2], qkv.shape[2] // 3
        heads = (batch, length, self.n_head, width // self.n_head)
        q, k, v = (part.reshape(heads).transpose(0, 2, 1, 3) for part in split(qkv, 3, axis=2))
        before = 0
        if cache is not None:
            before = cache.length
            k, v = (Tensor(a) for a in cache.extend(k.data, v.data))
        rate = self.attn_pdrop if self.training else 0.0
        y = scaled_dot_product_attention(q, k, v, mask, rate, causal=length > 1, offset=before)
        return self.resid_dropout(self.c_proj(y.transpose(0, 2, 1, 3).reshape(batch, length, width)))


def normed(norm: LayerNorm, projection: Conv1D, x: Tensor) -> Tensor:
    """projection(norm(x)); backward makes the normalised x anew."""
    return norm_linear(x, norm.weight, norm.bias, transpose(projection.weight), projection.bias, eps=norm.eps)


@fusable
class MLP(Module):
    """Two projections with the activation between them."""

    def __init__(self, config: GPT2Config) -> None:
        inner = config.n_inner or 4 * config.n_embd
        self.c_fc = Conv1D(config.n_embd, inner)
        self.c_proj = Conv1D(inner, config.n_embd)
        self.activation = config.activation_function
        self.act = ACTIVATIONS[config.activation_function]
        self.dropout = Dropout(config.resid_pdrop)

    def forward(self, x: Tensor) -> Tensor:
        """x: (..., C) -> (..., C)."""
        return self.project(self.c_fc(x))

    def project(self, x: Tensor) -> Tensor:
        """From the first projection (..., n_inner) on."""
        kind = GELU.get(self.activation)
        if kind is not None and untouched(self.c_proj):
            weight = transpose(self.c_proj.weight)
            return self.dropout(gelu_linear(x, weight, self.c_proj.bias, approximate=kind))
        return self.dropout(self.c_proj(self.act(x)))


class Block(Module):
    """x + attention(ln_1(x)), then x + mlp(ln_2(x))."""

    def __init__(self, config: GPT2Config) -> None:
        self.ln_1 = LayerNorm(config.n_embd, eps=config.layer_norm_epsilon)
        self.attn = Attention(config)
        self.ln_2 = LayerNorm(config.n_embd, eps=config.layer_norm_epsilon)
        self.mlp = MLP(config)

    def forward(self, x: Tensor, mask: Array | None = None, cache: LayerCache | None = None) -> Tensor:
        """x: (B, T, C) -> (B, T, C)."""
        if untouched(self.attn, self.ln_1, self.attn.c_attn):
            x = x + self.attn.attend(normed(self.ln_1, self.attn.c_attn, x), mask, cache)
        else:
            x = x + self.attn(self.ln_1(x), mask, cache)
        if untouched(self.mlp, self.ln_2, self.mlp.c_fc):
            return x + self.mlp.project(normed(self.ln_2, self.mlp.c_fc, x))
        return x + self.mlp(self.ln_2(x))


@model("gpt2", GPT2Config)
class GPT2(Decoder):
    """The decoder with its language-model head, initialised from the default generator as Hugging Face does it.

    Matrices and embeddings are normal(0, initializer_range); those that write to the residual stream (c_proj) are
    divided by sqrt(2 n_layer); biases are 0, gains 1.
    """

    PREFIX = "transformer."
    BUFFERS = (".attn.bias", ".attn.masked_bias")
    TABLE = "wte.weight"

    def __init__(self, config: GPT2Config) -> None:
        self.config = config
        self.wte = Embedding(config.vocab_size, config.n_embd, weight=empty(config.vocab_size, config.n_embd))
        self.wpe = Embedding(config.n_positions, config.n_embd, weight=empty(config.n_positions, config.n_embd))
        self.drop = Dropout(config.embd_pdrop)
        self.h = Layers([Block(config) for _ in range(config.n_layer)])
        self.ln_f = LayerNorm(config.n_embd, eps=config.layer_norm_epsilon)
        if not config.tie_word_embeddings:
            self.lm_head = Linear(config.n_embd, config.vocab_size, bias=False)
        self.reset_parameters()

    def spread(self, name: str) -> float:
        """Less for what writes to the residual stream (Radford et al. 2019, section 2.3)."""
        std = super().spread(name)
        return std / math.sqrt(2 * self.config.n_layer) if "c_proj" in name else std

    def states(self, ids: Array, at: Array, mask: Array | None, cache: Cache | None) -> Tensor:
        """The normalised states (B, T, n_embd)."""
        x = self.drop(self.wte(ids) + self.wpe(at))
        return self.ln_f(self.h(x, zip(repeat(mask), cache or repeat(None), strict=False)))

    def head(self) -> Tensor:
        """The projection to the vocabulary (vocab_size, n_embd)."""
        return self.wte.weight if self.config.tie_word_embeddings else self.lm_head.weight

    def new_cache(self, batch: int = 1, capacity: int | None = None) -> Cache:
        """Empty keys and values of ``batch`` texts, in the dtype of the weights."""
        c = self.config
        shape = (batch, c.n_head, capacity or c.n_positions, c.n_embd // c.n_head)
        return Cache.empty(c.n_layer, shape, self.wte.weight.dtype)

"""GPT-2 (Radford et al. 2019): a pre-LN decoder with learned positions and a tied head.

Parameter names, layouts, defaults and initialisation are those of Hugging Face's GPT2LMHeadModel, without the prefix
"transformer." (as in the published gpt2 file): wte.weight, h.0.attn.c_attn.weight (in, out), ..., ln_f.bias.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..array import Array, nearest
from ..autograd import Tensor
from ..autograd.modes import mode
from ..autograd.tensor import raw
from ..nn import Dropout, Embedding, LayerNorm, Linear, LoadReport, Module, ModuleList, StateDictError, init
from ..nn.layers import empty
from ..ops.activations import gelu, relu, silu
from ..ops.attention import scaled_dot_product_attention
from ..ops.exponential import tanh
from ..ops.joining import split
from ..ops.layers import linear
from ..ops.linear_losses import linear_cross_entropy
from ..ops.recomputed import gelu_linear, norm_linear
from ..ops.shape import transpose
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
class GPT2Config:
    """Sizes and rates, under Hugging Face's names and with its defaults (GPT-2 small).

    n_inner: width of the MLP, 4 n_embd if None.  *_pdrop: dropout of embeddings, attention weights, residual branches.
    Raises ValueError for a size that is not a positive integer, n_embd not divisible by n_head, a rate outside [0, 1),
    or an unknown activation.
    """

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

    def __post_init__(self) -> None:
        for name in ("vocab_size", "n_positions", "n_embd", "n_layer", "n_head", "n_inner"):
            value = getattr(self, name)
            if (name != "n_inner" or value is not None) and (
                isinstance(value, bool) or not isinstance(value, int) or value < 1
            ):
                raise ValueError(f"GPT2Config: {name} must be a positive integer, got {value!r}")
        if self.n_embd % self.n_head:
            raise ValueError(f"GPT2Config: n_embd={self.n_embd} is not divisible by n_head={self.n_head}")
        for name in ("resid_pdrop", "embd_pdrop", "attn_pdrop"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"GPT2Config: {name} must be in [0, 1), got {getattr(self, name)!r}")
        for name in ("layer_norm_epsilon", "initializer_range"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"GPT2Config: {name} must be a positive number, got {getattr(self, name)!r}")
        if self.activation_function not in ACTIVATIONS:
            raise ValueError(
                f"GPT2Config: unknown activation_function {self.activation_function!r}: known are "
                f"{sorted(ACTIVATIONS)}.{nearest(self.activation_function, ACTIVATIONS)}"
            )


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


class LayerCache:
    """Keys and values (B, H, n_positions, D) of the tokens one layer has seen; the first ``length`` are filled."""

    __slots__ = ("keys", "length", "values")

    def __init__(self, keys: Array, values: Array) -> None:
        self.keys, self.values, self.length = keys, values, 0

    def extend(self, k: Array, v: Array) -> tuple[Array, Array]:
        """Append k and v (B, H, T, D); all keys and values so far."""
        end = self.length + k.shape[2]
        self.keys[:, :, self.length : end], self.values[:, :, self.length : end] = k, v
        self.length = end
        return self.keys[:, :, :end], self.values[:, :, :end]


class Cache(tuple[LayerCache, ...]):
    """A LayerCache per layer."""

    @property
    def length(self) -> int:
        """Tokens seen so far."""
        return self[0].length


class Attention(Module):
    """Causal multi-head self-attention (Vaswani et al. 2017, eq. 1)."""

    def __init__(self, config: GPT2Config) -> None:
        self.n_head, self.attn_pdrop = config.n_head, config.attn_pdrop
        self.c_attn = Conv1D(config.n_embd, 3 * config.n_embd)
        self.c_proj = Conv1D(config.n_embd, config.n_embd)
        self.resid_dropout = Dropout(config.resid_pdrop)

    def forward(self, x: Tensor, cache: LayerCache | None = None) -> Tensor:
        """x: (B, T, C) -> (B, T, C).  With a cache x holds the tokens after those in it."""
        return self.attend(self.c_attn(x), cache)

    def attend(self, qkv: Tensor, cache: LayerCache | None = None) -> Tensor:
        """From the queries, keys and values (B, T, 3 C) on."""
        batch, length, width = *qkv.shape[:2], qkv.shape[2] // 3
        heads = (batch, length, self.n_head, width // self.n_head)
        q, k, v = (part.reshape(heads).transpose(0, 2, 1, 3) for part in split(qkv, 3, axis=2))
        causal = length > 1
        if cache is not None:
            if cache.length and causal:
                raise ValueError(f"with {cache.length} tokens cached GPT2 reads one more at a time, got {length}")
            k, v = (Tensor(a) for a in cache.extend(k.data, v.data))
        y = scaled_dot_product_attention(q, k, v, causal=causal, dropout_p=self.attn_pdrop if self.training else 0.0)
        return self.resid_dropout(self.c_proj(y.transpose(0, 2, 1, 3).reshape(batch, length, width)))


def untouched(*modules: Module) -> bool:
    """Whether modules are as they were built, without hooks: then what lies between them need not be seen, or kept."""
    plain = (Attention, Conv1D, LayerNorm, MLP)
    return all(type(m) in plain and not m._hooks and not m._pre_hooks for m in modules) and not mode().autocast


def normed(norm: LayerNorm, projection: Conv1D, x: Tensor) -> Tensor:
    """projection(norm(x)); backward makes the normalised x anew."""
    return norm_linear(x, norm.weight, norm.bias, transpose(projection.weight), projection.bias, eps=norm.eps)


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

    def forward(self, x: Tensor, cache: LayerCache | None = None) -> Tensor:
        """x: (B, T, C) -> (B, T, C)."""
        if untouched(self.attn, self.ln_1, self.attn.c_attn):
            x = x + self.attn.attend(normed(self.ln_1, self.attn.c_attn, x), cache)
        else:
            x = x + self.attn(self.ln_1(x), cache)
        if untouched(self.mlp, self.ln_2, self.mlp.c_fc):
            return x + self.mlp.project(normed(self.ln_2, self.mlp.c_fc, x))
        return x + self.mlp(self.ln_2(x))


@model("gpt2", GPT2Config)
class GPT2(Module):
    """The decoder with its language-model head, initialised from the default generator as Hugging Face does it.

    Matrices and embeddings are normal(0, initializer_range); those that write to the residual stream (c_proj) are
    divided by sqrt(2 n_layer); biases are 0, gains 1.
    """

    def __init__(self, config: GPT2Config) -> None:
        self.config = config
        self.wte = Embedding(config.vocab_size, config.n_embd, weight=empty(config.vocab_size, config.n_embd))
        self.wpe = Embedding(config.n_positions, config.n_embd, weight=empty(config.n_positions, config.n_embd))
        self.drop = Dropout(config.embd_pdrop)
        self.h = ModuleList([Block(config) for _ in range(config.n_layer)])
        self.ln_f = LayerNorm(config.n_embd, eps=config.layer_norm_epsilon)
        if not config.tie_word_embeddings:
            self.lm_head = Linear(config.n_embd, config.vocab_size, bias=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw all weights anew."""
        std = self.config.initializer_range
        for name, parameter in self.named_parameters():
            if name.endswith("bias"):
                init.zeros_(parameter)
            elif parameter.ndim == 1:
                init.ones_(parameter)
            else:
                init.normal_(parameter, 0.0, std / math.sqrt(2 * self.config.n_layer) if "c_proj" in name else std)

    def forward(self, input_ids: Any, cache: Cache | None = None) -> Tensor:
        """Logits (B, T, vocab_size) for ids (B, T), integers.

        cache: keys and values of earlier tokens (``new_cache``), extended by this call; only under no_grad.
        Raises ValueError for ids that are not (B, T) or more than n_positions tokens, TypeError for ids that are not
        integers, IndexError for an id outside the vocabulary.
        """
        return linear(self.hidden(input_ids, cache), self._head())

    def hidden(self, input_ids: Any, cache: Cache | None = None) -> Tensor:
        """What the head projects: the normalised states (B, T, n_embd).  Arguments and errors as ``forward``'s."""
        ids = self._checked(input_ids)
        start = 0 if cache is None else cache.length
        if start + ids.shape[1] > self.config.n_positions:
            raise ValueError(
                f"GPT2 has {self.config.n_positions} positions (n_positions), got {start + ids.shape[1]} tokens"
            )
        x = self.drop(self.wte(ids) + self.wpe(np.arange(start, start + ids.shape[1])))
        for n, block in enumerate(self.h):
            x = block(x, None if cache is None else cache[n])
        return self.ln_f(x)

    def _head(self) -> Tensor:
        """The projection to the vocabulary (vocab_size, n_embd)."""
        return self.wte.weight if self.config.tie_word_embeddings else self.lm_head.weight

    def loss(self, input_ids: Any, targets: Any, reduction: str = "mean") -> Tensor:
        """Cross entropy of the logits against ``targets`` (B, T), already shifted by the caller; -100 is ignored.

        reduction: "mean" over the tokens that count, "sum", or "none" (B, T).
        """
        targets = np.asarray(raw(targets))
        x = self.hidden(input_ids)
        if targets.shape != x.shape[:2]:
            raise ValueError(f"GPT2.loss: targets have shape {targets.shape}, expected that of the ids, {x.shape[:2]}")
        return linear_cross_entropy(x, self._head(), targets, reduction=reduction)

    def _checked(self, input_ids: Any) -> Array:
        ids = np.asarray(raw(input_ids))
        if ids.ndim != 2 or ids.shape[1] == 0:
            raise ValueError(f"GPT2 takes ids of shape (B, T) with T of at least 1, got shape {ids.shape}")
        return ids

    def new_cache(self, batch: int = 1) -> Cache:
        """Empty keys and values for ``batch`` texts, in the dtype of the weights."""
        c = self.config
        shape = (batch, c.n_head, c.n_positions, c.n_embd // c.n_head)
        dtype = self.wte.weight.dtype
        return Cache(LayerCache(np.empty(shape, dtype), np.empty(shape, dtype)) for _ in range(c.n_layer))

    def load_state_dict(self, state: Mapping[str, Any], strict: bool = True) -> LoadReport:
        """As Module.load_state_dict; Hugging Face's own names are understood (prefix, mask buffers, the tied head)."""
        return super().load_state_dict(plain_names(state, self.config.tie_word_embeddings), strict)


def plain_names(state: Mapping[str, Any], tied: bool) -> dict[str, Any]:
    """A state dict under this file's names: without the prefix "transformer.", mask buffers and a tied head's copy.

    Raises StateDictError if the head is tied and the state dict holds another one.
    """
    plain = {
        name.removeprefix("transformer."): value
        for name, value in state.items()
        if not name.endswith((".attn.bias", ".attn.masked_bias"))
    }
    if tied and "lm_head.weight" in plain and "wte.weight" in plain:
        head, table = (np.asarray(raw(plain[name])) for name in ("lm_head.weight", "wte.weight"))
        if head.shape != table.shape or not np.array_equal(head, table):
            raise StateDictError(
                "lm_head.weight differs from wte.weight, but the config ties them: "
                "set tie_word_embeddings=False to load this model"
            )
        del plain["lm_head.weight"]
    return plain

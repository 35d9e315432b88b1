"""BERT (Devlin et al. 2018): a post-norm encoder with learned positions and token types.

Parameter names, defaults and initialisation are those of Hugging Face's BertModel, without the prefix "bert.":
embeddings.word_embeddings.weight, encoder.layer.0.attention.self.query.weight (out, in), ..., pooler.dense.bias.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import repeat
from typing import Any, ClassVar

import numpy as np

from ..array import Array
from ..autograd import Tensor
from ..autograd.tensor import raw
from ..nn import Dropout, Embedding, LayerNorm, Linear, Module, StateDictError, init
from ..ops.attention import scaled_dot_product_attention
from ..ops.exponential import tanh
from ..ops.layers import check_ids
from ..ops.normalization import add_layer_norm
from ..ops.recomputed import gelu_linear
from .blocks import Layers, fusable, untouched
from .configuration import ModelConfig
from .embeddings import PaddedEmbedding
from .gpt2 import ACTIVATIONS as GPT2_ACTIVATIONS, GELU as GPT2_GELU
from .inputs import attention_mask as checked_mask, positions, token_ids
from .published import Published
from .table import model

ACTIVATIONS = {**GPT2_ACTIVATIONS, "gelu_pytorch_tanh": GPT2_ACTIVATIONS["gelu_new"]}
GELU = {**GPT2_GELU, "gelu_pytorch_tanh": "tanh"}
HEADS = ("cls.", "classifier.", "qa_outputs.")  # what BertFor... has beside the encoder
RENAMED = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}  # endings in files of 2018


@dataclass(frozen=True)
class BertConfig(ModelConfig):
    """Sizes and rates under Hugging Face's names and with its defaults (BERT base, uncased).

    pad_token_id: its embedding starts at 0 and gets no gradient; None for no such token.  add_pooling_layer: whether
    there is a pooler; None for one that goes when weights without it are loaded (config.json does not tell).
    Raises ValueError for a size that is not a positive integer, heads that do not divide, a rate outside [0, 1), a
    padding token outside the vocabulary, an unknown activation.
    """

    MODEL_TYPE: ClassVar = "bert"
    CLASS: ClassVar = "BertModel"
    SIZES: ClassVar = (
        *("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"),
        *("max_position_embeddings", "type_vocab_size"),
    )
    RATES: ClassVar = ("hidden_dropout_prob", "attention_probs_dropout_prob")
    NUMBERS: ClassVar = ("layer_norm_eps", "initializer_range")
    FIXED: ClassVar = {"position_embedding_type": "absolute", "is_decoder": False, "add_cross_attention": False}
    INERT: ClassVar = frozenset(
        {
            *("bos_token_id", "classifier_dropout", "directionality", "eos_token_id", "tie_word_embeddings"),
            *("pooler_fc_size", "pooler_num_attention_heads", "pooler_num_fc_layers"),
            *("pooler_size_per_head", "pooler_type"),
        }
    )

    vocab_size: int = 30522
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_act: str = "gelu"
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    initializer_range: float = 0.02
    layer_norm_eps: float = 1e-12
    pad_token_id: int | None = 0
    add_pooling_layer: bool | None = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.hidden_size % self.num_attention_heads:
            self.refuse("hidden_size", f"must be divisible by num_attention_heads={self.num_attention_heads}")
        self.check_padding()
        if self.add_pooling_layer not in (True, False, None):
            self.refuse("add_pooling_layer", "must be True, False or None")
        self.one_of("hidden_act", ACTIVATIONS)

    @classmethod
    def renamed(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """Whether there is a pooler is known from the weights alone."""
        return {"add_pooling_layer": None, **given}

    def to_hf(self) -> dict[str, Any]:
        """Without add_pooling_layer: from config.json it would hide from BertModel the argument of that name."""
        return {name: value for name, value in super().to_hf().items() if name != "add_pooling_layer"}


class Embeddings(Module):
    """LayerNorm(word + token type + position), dropped out."""

    def __init__(self, config: BertConfig) -> None:
        width = config.hidden_size
        self.word_embeddings = PaddedEmbedding(config.vocab_size, width, config.pad_token_id)
        self.position_embeddings = Embedding(config.max_position_embeddings, width)
        self.token_type_embeddings = Embedding(config.type_vocab_size, width)
        self.LayerNorm = LayerNorm(width, eps=config.layer_norm_eps)
        self.dropout = Dropout(config.hidden_dropout_prob)

    def forward(self, ids: Array, types: Array, at: Array) -> Tensor:
        """ids, types: (B, T); at: (T,) or (B, T) -> (B, T, C)."""
        x = self.word_embeddings(ids) + self.token_type_embeddings(types) + self.position_embeddings(at)
        return self.dropout(self.LayerNorm(x))


class SelfAttention(Module):
    """Multi-head attention of every token to every other (Vaswani et al. 2017, eq. 1), without its output projection.

    dropout: of the attention weights, in training.
    """

    def __init__(self, config: BertConfig) -> None:
        width = config.hidden_size
        self.heads, self.dropout = config.num_attention_heads, config.attention_probs_dropout_prob
        self.query, self.key, self.value = Linear(width, width), Linear(width, width), Linear(width, width)

    def forward(self, x: Tensor, mask: Array | None) -> Tensor:
        """x: (B, T, C) -> (B, T, C); mask: booleans that broadcast to (B, H, T, T), True where a query may look."""
        batch, length, width = x.shape
        q, k, v = (
            projection(x).reshape(batch, length, self.heads, width // self.heads).transpose(0, 2, 1, 3)
            for projection in (self.query, self.key, self.value)
        )
        y = scaled_dot_product_attention(q, k, v, mask, self.dropout if self.training else 0.0)
        return y.transpose(0, 2, 1, 3).reshape(batch, length, width)


@fusable
class Output(Module):
    """What ends each half of a layer: LayerNorm(residual + dropout(dense(x)))."""

    def __init__(self, inputs: int, config: BertConfig) -> None:
        self.dense = Linear(inputs, config.hidden_size)
        self.LayerNorm = LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = Dropout(config.hidden_dropout_prob)

    def forward(self, x: Tensor, residual: Tensor) -> Tensor:
        """x: (B, T, inputs), residual: (B, T, C) -> (B, T, C)."""
        return self.join(self.dense(x), residual)

    def join(self, x: Tensor, residual: Tensor) -> Tensor:
        """From the projection (B, T, C) on."""
        x, norm = self.dropout(x), self.LayerNorm
        if untouched(norm):
            joined: Tensor = add_layer_norm(x, residual, norm.weight, norm.bias, eps=norm.eps)[1]
            return joined
        return norm(x + residual)


class Attention(Module):
    """The first half of a layer."""

    def __init__(self, config: BertConfig) -> None:
        self.self = SelfAttention(config)
        self.output = Output(config.hidden_size, config)

    def forward(self, x: Tensor, mask: Array | None) -> Tensor:
        """x: (B, T, C) -> (B, T, C)."""
        return self.output(self.self(x, mask), x)


@fusable
class Intermediate(Module):
    """act(dense(x))."""

    def __init__(self, config: BertConfig) -> None:
        self.dense = Linear(config.hidden_size, config.intermediate_size)
        self.act = ACTIVATIONS[config.hidden_act]

    def forward(self, x: Tensor) -> Tensor:
        """x: (B, T, C) -> (B, T, intermediate_size)."""
        return self.act(self.dense(x))


class Layer(Module):
    """LayerNorm(x + attention(x)), then LayerNorm(x + mlp(x))."""

    def __init__(self, config: BertConfig) -> None:
        self.attention = Attention(config)
        self.intermediate = Intermediate(config)
        self.output = Output(config.intermediate_size, config)
        self.gelu = GELU.get(config.hidden_act)

    def forward(self, x: Tensor, mask: Array | None) -> Tensor:
        """x: (B, T, C) -> (B, T, C)."""
        x = self.attention(x, mask)
        if self.gelu is not None and untouched(self.intermediate, self.output, self.output.dense):
            dense = self.output.dense
            y = gelu_linear(self.intermediate.dense(x), dense.weight, dense.bias, approximate=self.gelu)
            return self.output.join(y, x)
        return self.output(self.intermediate(x), x)


class Encoder(Module):
    """The layers, one after the other."""

    def __init__(self, config: BertConfig) -> None:
        self.layer = Layers([Layer(config) for _ in range(config.num_hidden_layers)])

    def forward(self, x: Tensor, mask: Array | None) -> Tensor:
        """x: (B, T, C) -> (B, T, C)."""
        return self.layer(x, repeat((mask,)))


class Pooler(Module):
    """tanh(dense(state of the first token)), which pretraining reads the next sentence from."""

    def __init__(self, config: BertConfig) -> None:
        self.dense = Linear(config.hidden_size, config.hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        """x: (B, T, C) -> (B, C)."""
        return tanh(self.dense(x[:, 0]))


@model("bert", BertConfig)
class Bert(Published):
    """The encoder, with its pooler if the configuration has one.

    Matrices and embeddings are normal(0, initializer_range) from the default generator, biases and the padding token's
    embedding 0, gains 1.
    """

    PREFIX = "bert."
    BUFFERS = ("embeddings.position_ids", "embeddings.token_type_ids")

    config: BertConfig

    def __init__(self, config: BertConfig) -> None:
        self.config = config
        with init.left_empty():
            self.embeddings = Embeddings(config)
            self.encoder = Encoder(config)
            self.pooler = None if config.add_pooling_layer is False else Pooler(config)
        self.reset_parameters()

    def forward(
        self, input_ids: Any, attention_mask: Any = None, token_type_ids: Any = None, position_ids: Any = None
    ) -> Tensor:
        """The last hidden states (B, T, hidden_size) for ids (B, T), integers.

        attention_mask: (B, T), 1 for tokens and 0 for padding; or booleans (B, T, T), which query may look where.  A
        query that sees nothing has finite states without meaning.  token_type_ids: (B, T), 0 if None.
        position_ids: (B, T) or (T,), from 0 on if None.
        Raises ValueError for shapes that do not fit or more tokens than positions, TypeError for ids that are not
        integers, IndexError for an id, a token type or a position outside its table.
        """
        name, c = type(self).__name__, self.config
        ids = token_ids(name, input_ids, c.positions)
        check_ids(f"{name}: input_ids", ids, c.vocab_size)
        if token_type_ids is None:
            types = np.zeros((1, 1), np.int64)
        else:
            types = np.asarray(raw(token_type_ids))
            if types.shape != ids.shape:
                raise ValueError(
                    f"{name}: token_type_ids have shape {types.shape}, expected that of the ids, {ids.shape}"
                )
            check_ids(f"{name}: token_type_ids", types, c.type_vocab_size)
        at = positions(name, position_ids, ids.shape, 0, c.positions)
        mask = checked_mask(name, attention_mask, ids.shape, ids.shape[1])
        return self.encoder(self.embeddings(ids, types, at), mask)

    def pooled(self, hidden: Tensor) -> Tensor:
        """tanh of a projection of the first token's state: (B, T, C) -> (B, C).  Raises ValueError without a pooler."""
        if self.pooler is None:
            raise ValueError(
                "Bert.pooled: this model has no pooler (add_pooling_layer=False, or none in the weights loaded): "
                "use hidden[:, 0] or a mean over the tokens"
            )
        return self.pooler(hidden)

    def own_names(self, names: Iterable[str]) -> dict[str, str]:
        """Own name -> name in a file.  The heads of other tasks are left out, with one warning that lists them.

        Raises StateDictError for two names of one weight.
        """
        found: dict[str, str] = {}
        heads = []
        for own, name in super().own_names(names).items():
            if own.startswith(HEADS):
                heads.append(name)
                continue
            for old, new in RENAMED.items():
                own = own.removesuffix(old) + new if own.endswith(old) else own
            if own in found:
                raise StateDictError(f"{found[own]} and {name} are the same weight: expected one of them")
            found[own] = name
        if heads:
            warnings.warn(f"Bert has no heads; left out of the weights: {', '.join(sorted(heads))}", stacklevel=2)
        return found

    def published_name(self, own: str) -> str:
        """BertModel's own files have no prefix."""
        return own

    def plain(self, state: Mapping[str, Any]) -> dict[str, str]:
        """``own_names``; a pooler that may or may not be there (add_pooling_layer=None) is settled by the names."""
        found = super().plain(state)
        if self.config.add_pooling_layer is None:
            has = any(name.startswith("pooler.") for name in found)
            self.config = dataclasses.replace(self.config, add_pooling_layer=has)
            if not has:
                self.pooler = None
        return found

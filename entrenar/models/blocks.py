"""Layers in a row, and those of the Llama family: attention with grouped heads and rotary positions, a gated MLP.

Parameter names are Hugging Face's, which Llama, Mistral and Qwen2 share.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from ..array import Array
from ..autograd import Tensor, checkpoint
from ..autograd.modes import mode
from ..nn import LayerNorm, Linear, Module, ModuleList, RMSNorm
from ..ops.activations import swiglu
from ..ops.attention import rotate, scaled_dot_product_attention
from ..ops.recomputed import rms_norm_linear_pair, rms_norm_linear_triple, swiglu_linear
from .cache import LayerCache

FUSABLE: set[type[Module]] = {LayerNorm, Linear, RMSNorm}


def fusable(cls: type[Module]) -> type[Module]:
    """Let a module's work be merged with its neighbours' as long as nobody looks on (``untouched``)."""
    FUSABLE.add(cls)
    return cls


def untouched(*modules: Module) -> bool:
    """Whether modules are as they were built, without hooks: then what lies between them need not be seen, or kept."""
    return all(type(m) in FUSABLE and not m._hooks and not m._pre_hooks for m in modules) and not mode().autocast


def projected(op: Any, norm: RMSNorm, x: Tensor, *layers: Linear) -> tuple[Tensor, ...]:
    """Several layers of norm(x) by an op that makes the normalised x anew in backward."""
    weights, biases = [layer.weight for layer in layers], [layer.bias for layer in layers]
    return op(x, norm.weight, *weights, *biases, eps=norm.eps)


class Layers(ModuleList):
    """Layers one after the other.

    With ``recompute`` backward keeps the input of each layer only, and runs it again (Chen et al. 2016, section 3).
    """

    recompute = False

    def forward(self, x: Tensor, rest: Iterable[tuple[Any, ...]]) -> Tensor:
        """x through every layer; rest: the further arguments of each."""
        for layer, arguments in zip(self, rest, strict=False):
            x = checkpoint(layer, x, *arguments) if self.recompute else layer(x, *arguments)
        return x


class Seen(NamedTuple):
    """What the attention of every layer shares: the rotation (cos, sin) of each token, the mask, the window."""

    cos: Array
    sin: Array
    mask: Array | None
    window: int | None


@fusable
class GroupedAttention(Module):
    """Causal self-attention whose keys and values serve several query heads each (Ainslie et al. 2023).

    kv_heads = heads is multi-head attention (Vaswani et al. 2017, eq. 1).  Queries and keys are turned by their
    positions (Su et al. 2021, eq. 34).  dropout: of the attention weights, in training.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        kv_heads: int,
        head_dim: int,
        qkv_bias: bool = False,
        out_bias: bool = False,
        dropout: float = 0.0,
    ) -> None:
        self.heads, self.kv_heads, self.head_dim, self.dropout = heads, kv_heads, head_dim, dropout
        self.q_proj = Linear(width, heads * head_dim, qkv_bias)
        self.k_proj = Linear(width, kv_heads * head_dim, qkv_bias)
        self.v_proj = Linear(width, kv_heads * head_dim, qkv_bias)
        self.o_proj = Linear(heads * head_dim, width, out_bias)

    def forward(self, x: Tensor, seen: Seen, cache: LayerCache | None = None) -> Tensor:
        """x: (B, T, C) -> (B, T, C).  With a cache x holds the tokens after those in it."""
        return self.attend(self.q_proj(x), self.k_proj(x), self.v_proj(x), seen, cache)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, seen: Seen, cache: LayerCache | None = None) -> Tensor:
        """From the projections (B, T, heads * head_dim) on."""
        batch, length = q.shape[:2]
        q, k, v = (
            x.reshape(batch, length, heads, self.head_dim).transpose(0, 2, 1, 3)
            for x, heads in ((q, self.heads), (k, self.kv_heads), (v, self.kv_heads))
        )
        q, k = (rotate(x, seen.cos, seen.sin, interleaved=False) for x in (q, k))
        before = 0
        if cache is not None:
            before = cache.length
            k, v = (Tensor(a) for a in cache.extend(k.data, v.data))
        y = scaled_dot_product_attention(
            q,
            k,
            v,
            seen.mask,
            self.dropout if self.training else 0.0,
            causal=length > 1,  # one token sees all before it
            window=seen.window,
            offset=before,
        )
        return self.o_proj(y.transpose(0, 2, 1, 3).reshape(batch, length, self.heads * self.head_dim))


@fusable
class GatedMLP(Module):
    """down(silu(gate(x)) * up(x)) (Shazeer 2020, eq. 6)."""

    def __init__(self, width: int, hidden: int, bias: bool = False) -> None:
        self.gate_proj = Linear(width, hidden, bias)
        self.up_proj = Linear(width, hidden, bias)
        self.down_proj = Linear(hidden, width, bias)

    def forward(self, x: Tensor) -> Tensor:
        """x: (..., C) -> (..., C)."""
        return self.project(self.gate_proj(x), self.up_proj(x))

    def project(self, gate: Tensor, up: Tensor) -> Tensor:
        """From the first two projections (..., hidden) on."""
        if untouched(self.down_proj):
            return swiglu_linear(gate, up, self.down_proj.weight, self.down_proj.bias)
        return self.down_proj(swiglu(gate, up))


class Layer(Module):
    """x + attention(norm(x)), then x + mlp(norm(x)).

    What nobody sees is not kept for backward: the normalised x, and silu(gate) up.
    """

    self_attn: Any  # a GroupedAttention and a GatedMLP, unless somebody puts another module there
    mlp: Any

    def __init__(self, attention: Module, mlp: Module, width: int, eps: float) -> None:
        self.self_attn, self.mlp = attention, mlp
        self.input_layernorm, self.post_attention_layernorm = RMSNorm(width, eps), RMSNorm(width, eps)

    def forward(self, x: Tensor, seen: Any, cache: LayerCache | None = None) -> Tensor:
        """x: (B, T, C) -> (B, T, C)."""
        a, norm = self.self_attn, self.input_layernorm
        if untouched(a, norm) and untouched(a.q_proj, a.k_proj, a.v_proj):
            x = x + a.attend(*projected(rms_norm_linear_triple, norm, x, a.q_proj, a.k_proj, a.v_proj), seen, cache)
        else:
            x = x + a(norm(x), seen, cache)
        m, norm = self.mlp, self.post_attention_layernorm
        if untouched(m, norm) and untouched(m.gate_proj, m.up_proj):
            return x + m.project(*projected(rms_norm_linear_pair, norm, x, m.gate_proj, m.up_proj))
        return x + m(norm(x))

"""Multi-head latent attention (DeepSeek-AI 2024, DeepSeek-V2, arXiv 2405.04434, sec. 2.1): keys and values of all heads
are made from one short vector per token, and that is all that a cache holds.

With the paper's letters: h a token's state, c its latent, H heads of d_h elements, d_R rotary elements,

    c^KV = W^DKV h,  k^C = W^UK c^KV,  v^C = W^UV c^KV                          (eq. 9-11)
    c^Q = W^DQ h,  q^C = W^UQ c^Q,  q^R = RoPE(W^QR c^Q),  k^R = RoPE(W^KR h)    (eq. 12-15)
    o_i = softmax([q_i^C; q_i^R]^T [k_i^C; k^R] / sqrt(d_h + d_R)) v_i^C,  u = W^O [o_1; ...; o_H]    (eq. 16-19)

The absorbed form is the same by associativity: q_i^C . W_i^UK c = (W_i^UK^T q_i^C) . c, and a weighted sum of W_i^UV c
is W_i^UV of the weighted sum of c.  Attention then runs over the latents themselves, shared by all heads, and no key or
value of an earlier token is ever made again.  It costs kv_rank instead of d_h products per score, so that many queries
at once (training, reading a prompt) are cheaper in the expanded form.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..array import Array
from ..autograd import Tensor, is_grad_enabled
from ..autograd.tensor import raw
from ..nn import Linear, Module, RMSNorm
from ..ops.attention import rope, scaled_dot_product_attention
from ..ops.joining import concatenate, split
from ..ops.layers import check_rate
from ..ops.linalg import matmul
from ..ops.shape import expand, swapaxes
from .rotary import Rotary, mscale


class LatentCache:
    """What one layer keeps of the tokens it has seen, (B, capacity, kv_rank + rope_dims): latent, then turned key.

    The buffer is of fixed size; the first ``length`` tokens are filled.
    """

    __slots__ = ("entries", "length")

    def __init__(self, entries: Array) -> None:
        self.entries, self.length = entries, 0

    @property
    def capacity(self) -> int:
        """Tokens that fit."""
        return int(self.entries.shape[1])

    @property
    def nbytes(self) -> int:
        """Bytes of the buffer."""
        return int(self.entries.nbytes)

    def extend(self, new: Array) -> Array:
        """Append (B, T, kv_rank + rope_dims); a view of all entries so far (B, length, kv_rank + rope_dims).

        Raises ValueError for another shape or more tokens than fit, and then nothing is appended.
        """
        batch, capacity, size = self.entries.shape
        if new.ndim != 3 or new.shape[::2] != (batch, size):
            raise ValueError(f"LatentCache of {self.entries.shape} got {new.shape}, expected ({batch}, T, {size})")
        end = self.length + new.shape[1]
        if end > capacity:
            raise ValueError(f"LatentCache holds {capacity} tokens, got {end}: make one with a larger capacity")
        self.entries[:, self.length : end] = new
        self.length = end
        return self.entries[:, :end]


class LatentAttention(Module):
    """Self-attention over latents.  Parameter names and layouts are those of DeepSeek-V2's and V3's published files.

    width: of the states.  kv_rank: of c^KV.  rope_dims: d_R.  head_dim: d_h, the part of queries and keys that has no
    position, width / heads if None.  value_dim: of a head's values, head_dim if None.  query_rank: of c^Q; None makes
    queries from the states at once.  rotary: how the d_R elements turn, Rotary(rope_dims) if None; with yarn's
    mscale_all_dim the scores are multiplied by its mscale squared, as DeepSeek's code does.  interleaved: pairs
    (2i, 2i + 1), as in the published files.  bias: of the down projections and of the output.  eps: of the RMSNorm that
    follows each compression (sec. 3.1.2).  dropout: of the attention weights, in training.
    Raises ValueError for sizes that do not fit.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        kv_rank: int = 256,
        rope_dims: int = 32,
        head_dim: int | None = None,
        value_dim: int | None = None,
        query_rank: int | None = None,
        rotary: Rotary | None = None,
        *,
        interleaved: bool = True,
        bias: bool = False,
        eps: float = 1e-6,
        dropout: float = 0.0,
    ) -> None:
        check_rate("LatentAttention", dropout)
        if head_dim is None and (heads < 1 or width % heads):
            raise ValueError(f"LatentAttention: width={width} is not divisible by heads={heads}: give head_dim")
        self.width, self.heads, self.kv_rank, self.rope_dims = width, heads, kv_rank, rope_dims
        self.head_dim = width // heads if head_dim is None else head_dim
        self.value_dim = self.head_dim if value_dim is None else value_dim
        self.rotary = Rotary(rope_dims) if rotary is None else rotary
        if self.rotary.dims != rope_dims:
            raise ValueError(
                f"LatentAttention: rotary turns {self.rotary.dims} elements, expected rope_dims={rope_dims}"
            )
        self.interleaved, self.dropout = interleaved, dropout
        self.scale = (self.head_dim + rope_dims) ** -0.5 * _score_factor(self.rotary)
        queries = heads * (self.head_dim + rope_dims)
        if query_rank is None:
            self.q_proj = Linear(width, queries, bias=False)
        else:
            self.q_a_proj = Linear(width, query_rank, bias=bias)
            self.q_a_layernorm = RMSNorm(query_rank, eps=eps)
            self.q_b_proj = Linear(query_rank, queries, bias=False)
        self.query_rank = query_rank
        self.kv_a_proj_with_mqa = Linear(width, kv_rank + rope_dims, bias=bias)
        self.kv_a_layernorm = RMSNorm(kv_rank, eps=eps)
        self.kv_b_proj = Linear(kv_rank, heads * (self.head_dim + self.value_dim), bias=False)
        self.o_proj = Linear(heads * self.value_dim, width, bias=bias)

    def forward(
        self,
        x: Tensor,
        mask: Any = None,
        positions: Any = None,
        cache: LatentCache | None = None,
        *,
        causal: bool = True,
        tables: tuple[Array, Array] | None = None,
        absorbed: bool | None = None,
    ) -> Tensor:
        """x: (B, T, width) -> (B, T, width).

        mask: booleans, True where a query may look, broadcast to (B, heads, T, S), S = cached tokens + T; a query that
        sees nothing adds up nothing.  positions: (T,) or (B, T) (left padding); those after the cached tokens if None.
        causal: a query sees its own token and earlier ones; the mask narrows that.  tables: ``rotary.tables`` of the
        positions, where several layers share them.  cache: the entries of earlier tokens (``new_cache``), extended by
        this call; only under no_grad.
        absorbed: which form (see above), both give the same up to rounding; None absorbs for tokens that follow cached
        ones, unless kv_b_proj is another module than the Linear made here or has hooks: those are only run expanded.
        Raises ValueError for shapes that do not fit and more tokens than the cache holds, RuntimeError for a cache
        while gradients are recorded.
        """
        if x.ndim != 3 or x.shape[2] != self.width:
            raise ValueError(f"LatentAttention takes (B, T, {self.width}), got shape {tuple(x.shape)}")
        if cache is not None and is_grad_enabled():
            raise RuntimeError("LatentAttention: what is cached has no gradient: call it under en.no_grad()")
        plain = type(self.kv_b_proj) is Linear and not self.kv_b_proj._hooks and not self.kv_b_proj._pre_hooks
        start = 0 if cache is None else cache.length
        if absorbed is None:
            absorbed = start > 0 and plain
        elif absorbed and not plain:
            raise ValueError("LatentAttention: absorbed=True would pass over the module or the hooks of kv_b_proj")
        cos, sin = self._tables(x.shape[:2], positions, start) if tables is None else tables
        plainly, turned = self._queries(x, cos, sin)
        latent, key = split(self.kv_a_proj_with_mqa(x), [self.kv_rank], axis=2)
        latent, key = self.kv_a_layernorm(latent), rope(key, cos=cos, sin=sin, interleaved=self.interleaved)
        if cache is not None:
            latent, key = split(Tensor(cache.extend(concatenate([latent, key], axis=2).data)), [self.kv_rank], axis=2)
        attend = self._absorbed if absorbed else self._expanded
        y = attend(
            *(plainly, turned, latent, key),
            mask=mask,
            causal=causal,
            offset=start,
            scale=self.scale,
            dropout_p=self.dropout if self.training else 0.0,
        )
        return self.o_proj(swapaxes(y, 1, 2).reshape(*x.shape[:2], self.heads * self.value_dim))

    def _tables(self, shape: tuple[int, ...], positions: Any, start: int) -> tuple[Array, Array]:
        at = np.arange(start, start + shape[1]) if positions is None else np.asarray(raw(positions))
        if at.shape not in (shape, shape[1:]):
            raise ValueError(f"LatentAttention: positions have shape {at.shape}, expected {shape} or {shape[1:]}")
        return self.rotary.tables(at)

    def _queries(self, x: Tensor, cos: Array, sin: Array) -> list[Tensor]:
        """q^C (B, H, T, d_h) and the turned q^R (B, H, T, d_R)."""
        if self.query_rank is None:
            q = self.q_proj(x)
        else:
            q = self.q_b_proj(self.q_a_layernorm(self.q_a_proj(x)))
        q = swapaxes(q.reshape(*x.shape[:2], self.heads, self.head_dim + self.rope_dims), 1, 2)
        plainly, turned = split(q, [self.head_dim], axis=3)
        cos, sin = (t[..., None, :, :] for t in (cos, sin))  # the same for all heads
        return [plainly, rope(turned, cos=cos, sin=sin, interleaved=self.interleaved)]

    def _expanded(self, plainly: Tensor, turned: Tensor, latent: Tensor, key: Tensor, **how: Any) -> Tensor:
        """(B, H, T, value_dim): every head's keys and values are made from the latents (eq. 10, 11, 16-18)."""
        batch, length = latent.shape[:2]
        made = self.kv_b_proj(latent).reshape(batch, length, self.heads, self.head_dim + self.value_dim)
        k, v = split(swapaxes(made, 1, 2), [self.head_dim], axis=3)
        shared = expand(key[:, None], (batch, self.heads, length, self.rope_dims))
        queries, keys = concatenate([plainly, turned], axis=3), concatenate([k, shared], axis=3)
        return scaled_dot_product_attention(queries, keys, v, **how)

    def _absorbed(self, plainly: Tensor, turned: Tensor, latent: Tensor, key: Tensor, **how: Any) -> Tensor:
        """The same with W^UK moved to the queries and W^UV behind the weighted sums; one key and value for all heads.

        W^O W^UV is not multiplied out: (width, heads kv_rank) would be larger than the two.
        """
        ups = self.kv_b_proj.weight.reshape(self.heads, self.head_dim + self.value_dim, self.kv_rank)
        up_k, up_v = split(ups, [self.head_dim], axis=1)
        queries = concatenate([matmul(plainly, up_k), turned], axis=3)
        keys = concatenate([latent, key], axis=2)
        sums = scaled_dot_product_attention(queries, keys[:, None], latent[:, None], **how)
        return matmul(sums, swapaxes(up_v, 1, 2))

    def new_cache(self, batch: int, capacity: int) -> LatentCache:
        """An empty cache for ``batch`` texts of at most ``capacity`` tokens, in the dtype of the weights."""
        return LatentCache(np.empty((batch, capacity, self.kv_rank + self.rope_dims), self.o_proj.weight.dtype))

    def cache_bytes(self) -> int:
        """Bytes cached per token in this layer: (kv_rank + rope_dims) numbers of the weights' dtype (Table 1)."""
        return (self.kv_rank + self.rope_dims) * self.o_proj.weight.dtype.itemsize

    def grouped_cache_bytes(self, kv_heads: int | None = None) -> int:
        """Bytes that attention with ``kv_heads`` key and value heads of head_dim would cache instead, for comparison.

        None: as many as heads, i.e. multi-head attention (Table 1: 2 kv_heads d_h numbers).
        """
        return 2 * (self.heads if kv_heads is None else kv_heads) * self.head_dim * self.o_proj.weight.dtype.itemsize

    def extra_repr(self) -> str:
        """Sizes."""
        return f"heads={self.heads}, kv_rank={self.kv_rank}, rope_dims={self.rope_dims}, head_dim={self.head_dim}"


def _score_factor(rotary: Rotary) -> float:
    """mscale_all_dim's part of the softmax scale (DeepSeek-V2's code): cos and sin hold only the ratio to it."""
    given = rotary.parameters
    return mscale(given["factor"], given["mscale_all_dim"]) ** 2 if given.get("mscale_all_dim") else 1.0

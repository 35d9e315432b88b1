"""The Llama of the cases in PyTorch: plain modules, its fused attention with grouped heads, RMSNorm and AdamW."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from .gpt import batches
from .llama import LLAMA, SIZES, THETA, weights

WIDTH, DIM = LLAMA.width, LLAMA.width // LLAMA.heads
INNER, KEY_HEADS = SIZES["intermediate_size"], SIZES["num_key_value_heads"]


def tensors(arrays: Mapping[str, np.ndarray]) -> dict[str, torch.Tensor]:
    """The arrays as tensors on the same memory."""
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


def turned(x, cos, sin):
    """Rotary positions, halves of a head turned against each other (x: batch, heads, length, DIM)."""
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat((-second, first), -1) * sin


class Attention(nn.Module):
    """Causal self-attention, several heads to a pair of keys and values."""

    def __init__(self) -> None:
        super().__init__()
        self.q_proj, self.o_proj = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(2))
        self.k_proj, self.v_proj = (nn.Linear(WIDTH, KEY_HEADS * DIM, bias=False) for _ in range(2))

    def forward(self, x, cos, sin):
        batch, length, _ = x.shape
        q, k, v = (
            project(x).view(batch, length, -1, DIM).transpose(1, 2)
            for project in (self.q_proj, self.k_proj, self.v_proj)
        )
        q, k = turned(q, cos, sin), turned(k, cos, sin)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.o_proj(y.transpose(1, 2).reshape(batch, length, WIDTH))


class MLP(nn.Module):
    """SwiGLU."""

    def __init__(self) -> None:
        super().__init__()
        self.gate_proj, self.up_proj = (nn.Linear(WIDTH, INNER, bias=False) for _ in range(2))
        self.down_proj = nn.Linear(INNER, WIDTH, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    """Attention and MLP, each on a normalised copy of the stream."""

    def __init__(self) -> None:
        super().__init__()
        self.self_attn, self.mlp = Attention(), MLP()
        self.input_layernorm, self.post_attention_layernorm = (nn.RMSNorm(WIDTH, LLAMA.eps) for _ in range(2))

    def forward(self, x, cos, sin):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + self.mlp(self.post_attention_layernorm(x))


class Stack(nn.Module):
    """Embeddings, layers, the last norm."""

    def __init__(self) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(LLAMA.vocabulary, WIDTH)
        self.layers = nn.ModuleList([Layer() for _ in range(LLAMA.layers)])
        self.norm = nn.RMSNorm(WIDTH, LLAMA.eps)
        angles = torch.arange(LLAMA.length)[:, None] / THETA ** (torch.arange(0, DIM, 2) / DIM)
        angles = torch.cat((angles, angles), -1)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, ids):
        x = self.embed_tokens(ids)
        for layer in self.layers:
            x = layer(x, self.cos, self.sin)
        return self.norm(x)


class Llama(nn.Module):
    """The model with a head of its own; returns the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.model, self.lm_head = Stack(), nn.Linear(WIDTH, LLAMA.vocabulary, bias=False)

    def forward(self, ids, targets):
        logits = self.lm_head(self.model(ids))
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))


def trainer() -> Callable[[], float]:
    """A function that makes a training step and returns its loss."""
    model = Llama()
    model.load_state_dict(tensors(weights()))
    optimizer = torch.optim.AdamW(model.parameters(), lr=LLAMA.lr, weight_decay=LLAMA.weight_decay)
    data = batches(LLAMA)

    def step() -> float:
        ids, targets = map(torch.from_numpy, next(data))
        loss = model(ids, targets)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), LLAMA.clip)
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    return step

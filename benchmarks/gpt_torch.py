"""The GPT of the cases in PyTorch: plain modules, the fused attention that PyTorch has, its own AdamW."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional as F

from .gpt import Config, batches, weights


class Conv1D(nn.Module):
    """x W + b, W stored (in, out)."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.empty(inputs, outputs)), nn.Parameter(torch.empty(outputs))

    def forward(self, x):
        return torch.addmm(self.bias, x.view(-1, x.shape[-1]), self.weight).view(*x.shape[:-1], -1)


class Attention(nn.Module):
    """Causal self-attention."""

    def __init__(self, c: Config) -> None:
        super().__init__()
        self.c_attn, self.c_proj = Conv1D(c.width, 3 * c.width), Conv1D(c.width, c.width)
        self.heads, self.rate = c.heads, c.dropout

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (a.view(batch, length, self.heads, -1).transpose(1, 2) for a in self.c_attn(x).split(width, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=self.rate)
        return F.dropout(self.c_proj(y.transpose(1, 2).reshape(batch, length, width)), self.rate)


class MLP(nn.Module):
    """Two projections around GELU."""

    def __init__(self, c: Config) -> None:
        super().__init__()
        self.c_fc, self.c_proj, self.rate = Conv1D(c.width, 4 * c.width), Conv1D(4 * c.width, c.width), c.dropout

    def forward(self, x):
        return F.dropout(self.c_proj(F.gelu(self.c_fc(x), approximate="tanh")), self.rate)


class Block(nn.Module):
    """Attention and MLP, each on a normalised copy of the stream."""

    def __init__(self, c: Config) -> None:
        super().__init__()
        self.ln_1, self.attn = nn.LayerNorm(c.width, eps=c.eps), Attention(c)
        self.ln_2, self.mlp = nn.LayerNorm(c.width, eps=c.eps), MLP(c)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    """The model with its tied head; returns the loss."""

    def __init__(self, c: Config) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(c.vocabulary, c.width), nn.Embedding(c.length, c.width)
        self.h = nn.ModuleList([Block(c) for _ in range(c.layers)])
        self.ln_f, self.rate = nn.LayerNorm(c.width, eps=c.eps), c.dropout

    def forward(self, ids, targets):
        x = F.dropout(self.wte(ids) + self.wpe(torch.arange(ids.shape[1])), self.rate)
        for block in self.h:
            x = block(x)
        logits = F.linear(self.ln_f(x), self.wte.weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))


def trainer(c: Config, dtype: str = "float32") -> Callable[[], float]:
    """A function that makes a training step and returns its loss.  dtype: "bfloat16" runs under autocast to it."""
    model = GPT(c).to(torch.float64 if dtype == "float64" else torch.float32)
    model.load_state_dict({name: torch.from_numpy(value) for name, value in weights(c).items()})
    optimizer = torch.optim.AdamW(model.parameters(), lr=c.lr, weight_decay=c.weight_decay)
    data = batches(c)

    def step() -> float:
        ids, targets = map(torch.from_numpy, next(data))
        with torch.autocast("cpu", torch.bfloat16) if dtype == "bfloat16" else contextlib.nullcontext():
            loss = model(ids, targets)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), c.clip)
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    return step

"""A mixture of experts (Shazeer et al. 2017; Fedus et al. 2021; Jiang et al. 2024, Mixtral): a router sends each token
to a few of several MLPs.

With p = softmax(W x) over the experts, the output is the sum of w_i expert_i(x) over the ``top`` largest p_i, w_i being
p_i over their sum.  Each expert runs once, on the tokens that chose it, however many: none has a capacity, none drops
a token.

The balance loss of one layer is weight * E * sum_i f_i P_i (Fedus et al. eq. 4), f_i the share of all choices that went
to expert i (eq. 5, with ``top`` choices per token instead of one) and P_i the mean of p_i (eq. 6): E experts chosen
equally often give ``weight``.  (transformers' load_balancing_loss_func is ``top`` times that: there f sums to top.)
Gradients reach it through P.  To add it to a loss:

    with balance_losses() as balance:
        loss = cross_entropy(model(x), targets)
    loss = loss + sum(balance)
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import numpy as np

from ..array import Array, is_low
from ..autograd import Tensor, is_grad_enabled
from ..autograd.tensor import raw
from ..nn import Linear, Module, ModuleList
from ..ops.activations import softmax, swiglu
from ..ops.index import getitem
from ..ops.joining import concatenate, split
from ..ops.order import topk

_COLLECTING: ContextVar[tuple[list[Tensor], bool] | None] = ContextVar("balance losses", default=None)


@contextmanager
def balance_losses() -> Iterator[list[Tensor]]:
    """A list that receives the balance loss of every MoE called in the body, 0-d, weighted, in the order of the calls.

    Only this list refers to them: without it no layer keeps its graph.  Nested uses collect apart.  Call backward after
    the body, since a segment of ``en.checkpoint`` that backward runs again would add its losses again; what such a
    segment saved on the way to a router stays in memory, unless it calls ``routed`` and returns the loss.
    """
    losses: list[Tensor] = []
    token = _COLLECTING.set((losses, is_grad_enabled()))
    try:
        yield losses
    finally:
        _COLLECTING.reset(token)


class RouterStatistics(NamedTuple):
    """Where the tokens of one call went.

    tokens: (E,) int64, how many chose each expert; they add up to ``top`` times the tokens that count.
    probability: (E,) float64, the mean router probability of each expert.
    """

    tokens: Array
    probability: Array


class Expert(Module):
    """down(silu(gate(x)) * up(x)) (Shazeer 2020, eq. 6), without biases."""

    def __init__(self, width: int, hidden: int) -> None:
        self.gate_proj = Linear(width, hidden, bias=False)
        self.up_proj = Linear(width, hidden, bias=False)
        self.down_proj = Linear(hidden, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """x: (N, width) -> (N, width); N may be 0."""
        return self.down_proj(swiglu(self.gate_proj(x), self.up_proj(x)))


class MoE(Module):
    """``experts`` SwiGLU MLPs of ``hidden`` units behind a router that takes the ``top`` likeliest for each token.

    balance: weight of the balance loss.  renormalise: divide the chosen probabilities by their sum; with top=1 that
    leaves 1, and the router learns from the balance loss alone.  The router's probabilities are at least float32.
    Of equal probabilities the first expert's counts as the larger.
    statistics: RouterStatistics of the last call, plain arrays; None before.
    Raises ValueError for a size that is not a positive integer, top over experts, or a negative weight.
    """

    def __init__(
        self, width: int, hidden: int, experts: int = 4, top: int = 2, balance: float = 0.1, renormalise: bool = True
    ) -> None:
        if isinstance(top, bool) or not isinstance(top, int) or not 1 <= top <= experts:
            raise ValueError(f"MoE: top={top!r} must be an integer from 1 to experts={experts}")
        if not 0 <= balance < math.inf:
            raise ValueError(f"MoE: balance={balance!r} must be a number of at least 0")
        self.width, self.top, self.balance, self.renormalise = width, top, balance, renormalise
        self.gate = Linear(width, experts, bias=False)
        self.experts = ModuleList([Expert(width, hidden) for _ in range(experts)])
        self.statistics: RouterStatistics | None = None

    def forward(self, x: Tensor, mask: Any = None) -> Tensor:
        """x: (..., width), the same shape out; the balance loss goes to ``balance_losses``.  See ``routed``."""
        y, loss = self.routed(x, mask)
        collecting = _COLLECTING.get()
        if collecting is not None:
            losses, recorded = collecting
            if recorded and not is_grad_enabled():
                raise RuntimeError(
                    "MoE: its balance loss would have no gradient, since balance_losses() was entered where gradients "
                    "are recorded and this call is under no_grad: enter it under no_grad too"
                )
            losses.append(loss)
        return y

    def routed(self, x: Tensor, mask: Any = None) -> tuple[Tensor, Tensor]:
        """(output, balance loss): the shape of x (..., width), and a 0-d tensor, weighted; 0 if no token counts.

        mask: booleans of shape (...), True for the tokens that count in the statistics and in the balance loss; padding
        is routed like any token.  Raises ValueError for shapes that do not fit, TypeError for a mask of no booleans.
        """
        if x.shape[-1:] != (self.width,):
            raise ValueError(f"MoE takes (..., {self.width}), got shape {tuple(x.shape)}")
        flat = x.reshape(math.prod(x.shape[:-1]), self.width)
        logits = self.gate(flat)
        p = softmax(logits.astype(np.float32) if is_low(logits.dtype) else logits)
        weights, chosen = topk(p, self.top)
        if self.renormalise:
            weights = weights / weights.sum(axis=1, keepdims=True)
        chosen = np.asarray(raw(chosen))
        y = self._mixed(flat, weights, chosen).astype(x.dtype)
        return y.reshape(x.shape), self._balance(p, chosen, _counted(mask, x.shape[:-1]))

    def _mixed(self, flat: Tensor, weights: Tensor, chosen: Array) -> Tensor:
        """(N, width): the outputs of each token's experts, times its weights (N, top), added up, likeliest first."""
        order = np.argsort(chosen, axis=None, kind="stable")  # choices by expert, then by token
        back = np.empty_like(order)
        back[order] = np.arange(order.size)
        ends = np.cumsum(np.bincount(chosen.ravel(), minlength=len(self.experts)))[:-1]
        parts = split(getitem(flat, order // self.top), [int(n) for n in ends], axis=0)
        # an expert that nobody chose runs on no tokens: its gradient is zeros, as in the dense formula
        outputs = concatenate([expert(part) for expert, part in zip(self.experts, parts, strict=True)], axis=0)
        outputs = getitem(outputs, back).reshape(*chosen.shape, self.width)
        return (outputs * weights[..., None]).sum(axis=1)

    def _balance(self, p: Tensor, chosen: Array, counted: Array | None) -> Tensor:
        """The balance loss of the tokens that count (all for None); notes the statistics."""
        experts = len(self.experts)
        picked = chosen if counted is None else chosen[counted]
        tokens = np.bincount(picked.ravel(), minlength=experts).astype(np.int64)
        total = p.sum(axis=0) if counted is None else (p * counted[:, None].astype(p.dtype)).sum(axis=0)
        share = total * (1.0 / max(len(picked), 1))
        self.statistics = RouterStatistics(tokens, np.asarray(raw(share), np.float64))
        frequency = tokens / max(int(tokens.sum()), 1)
        return (share * (self.balance * experts * frequency).astype(p.dtype)).sum()

    def extra_repr(self) -> str:
        """How many tokens' worth of experts."""
        return f"experts={len(self.experts)}, top={self.top}, balance={self.balance}"


def _counted(mask: Any, shape: tuple[int, ...]) -> Array | None:
    if mask is None:
        return None
    counted = np.asarray(raw(mask))
    if counted.dtype.kind != "b":
        raise TypeError(f"MoE: mask must be booleans, got {counted.dtype}: use mask != 0")
    if counted.shape != shape:
        raise ValueError(f"MoE: mask has shape {counted.shape}, expected {shape}")
    return counted.reshape(-1)

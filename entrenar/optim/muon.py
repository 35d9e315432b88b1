"""Muon: momentum orthogonalized by Newton-Schulz iterations, for the matrices of hidden layers; AdamW for the rest."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from ..array import Array, nearest, wide
from ..nn import Embedding, Module
from .adam import AdamW
from .averages import average, squares
from .optimizer import Optimizer, draws, optimizer, put

LEAST = 1e-7  # a matrix of a smaller norm is not scaled up to 1
RATIOS = {
    "original": lambda rows, columns: math.sqrt(max(1.0, rows / columns)),
    "match_rms_adamw": lambda rows, columns: 0.2 * math.sqrt(max(rows, columns)),
}
HEADS = ("lm_head", "embed_out", "score", "classifier", "head")  # names of modules that make logits


@optimizer("muon")
class Muon(AdamW):
    """m = momentum m + (1 - momentum) g;  u = (1 - momentum) g + momentum m;  p = (1 - lr weight_decay) p - r lr O(u).

    Jordan et al. 2024, "Muon: an optimizer for hidden layers in neural networks", as torch.optim.Muon; without nesterov
    u = m.  O is ``newton_schulz``, in float32 (PyTorch rounds to bfloat16), of float64 parameters in float64.  r by
    ``adjust_lr_fn``: "match_rms_adamw", 0.2 sqrt(max(rows, columns)), makes u as long as AdamW's, so that one lr serves
    both (Liu et al. 2025, eq. 4); "original", sqrt(max(1, rows / columns)), wants an lr some 50 times as large, weights
    stored as (out, in), and is PyTorch's default.

    use_muon: of a group.  None: its parameters of 2 axes take Muon's step, the others AdamW's, with ``betas`` and
    ``eps``; False: all take AdamW's, as embeddings and heads should (``muon_groups`` makes such groups); True: all are
    of 2 axes, or that is an error.  The rest is AdamW's options.
    """

    slots = ("momentum_buffer", "exp_avg", "exp_avg_sq")
    ranges = {**AdamW.ranges, "momentum": (0.0, 1.0), "ns_coefficients": (-math.inf, math.inf)}
    several = {**AdamW.several, "ns_coefficients": 3}
    flags = (*AdamW.flags, "nesterov")
    state_tag, state_labels = "", {}

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.775, 2.0315),
        ns_steps: int = 5,
        adjust_lr_fn: str = "match_rms_adamw",
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        use_muon: bool | None = None,
        *,
        state_dtype: str | None = None,
        stochastic_rounding: bool = False,
        seed: int = 0,
    ) -> None:
        Optimizer.__init__(
            self,
            params,
            lr=lr,
            weight_decay=weight_decay,
            momentum=momentum,
            nesterov=nesterov,
            ns_coefficients=ns_coefficients,
            ns_steps=ns_steps,
            adjust_lr_fn=adjust_lr_fn,
            betas=betas,
            eps=eps,
            use_muon=use_muon,
            state_dtype=state_dtype,
            stochastic_rounding=stochastic_rounding,
            seed=seed,
        )

    def _check(self, group: Mapping[str, Any]) -> None:
        super()._check(group)
        steps, ratio, chosen = group["ns_steps"], group["adjust_lr_fn"], group["use_muon"]
        if isinstance(steps, bool) or not isinstance(steps, int) or not 1 <= steps < 100:
            raise ValueError(f"Muon: ns_steps must be an integer in [1, 100), got {steps!r}")
        if ratio not in RATIOS:
            raise ValueError(
                f"Muon: adjust_lr_fn must be one of {sorted(RATIOS)}, got {ratio!r}.{nearest(ratio, RATIOS)}"
            )
        if chosen is not None and not isinstance(chosen, bool):
            raise ValueError(f"Muon: use_muon must be True, False or None, got {chosen!r}")
        if chosen:
            for name, p in zip(group["names"], group["params"], strict=True):
                if p.ndim != 2:
                    raise ValueError(f"Muon: use_muon=True is for parameters of 2 axes, {name} has shape {p.shape}")

    @staticmethod
    def _orthogonalizes(group: Mapping[str, Any], shape: tuple[int, ...]) -> bool:
        return len(shape) == 2 and group["use_muon"] is not False

    def slots_of(self, group: Mapping[str, Any], shape: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
        """A momentum, or AdamW's two."""
        return dict.fromkeys(self.slots[:1] if self._orthogonalizes(group, shape) else self.slots[1:], shape)

    def kernel(self, group: Mapping[str, Any], shape: tuple[int, ...]) -> str | None:
        """AdamW's; a matrix product is BLAS's."""
        return None if self._orthogonalizes(group, shape) else super().kernel(group, shape)

    def apply(
        self,
        p: Array,
        g: Array,
        step: int,
        group: Mapping[str, Any],
        slots: Mapping[str, Array],
        scale: float,
        key: Array,
    ) -> None:
        """One parameter."""
        if not self._orthogonalizes(group, p.shape):
            super().apply(p, g, step, group, slots, scale, key)
            return
        if not p.size:
            return
        stored, lr, momentum = slots["momentum_buffer"], group["lr"], group["momentum"]
        w, m = wide(p), wide(stored)
        d = g.astype(w.dtype) if scale == 1 else g.astype(w.dtype) * w.dtype.type(scale)  # memory of its own
        np.multiply(d, 1.0 - momentum, out=d)
        average(m, d, momentum, 1.0, spare := np.empty_like(d))
        if group["nesterov"]:
            np.multiply(m, momentum, out=spare)
            np.add(d, spare, out=d)
        u = newton_schulz(d if group["nesterov"] else m, group["ns_coefficients"], group["ns_steps"])
        np.multiply(w, 1.0 - lr * group["weight_decay"], out=w)
        np.multiply(u, lr * RATIOS[group["adjust_lr_fn"]](*p.shape), out=u)
        np.subtract(w, u, out=w)
        bits = draws(key, 0, p.size)
        put(stored, m, bits[0])
        put(p, w, bits[2] if key[2] else None)


def newton_schulz(
    x: Array, coefficients: tuple[float, float, float] = (3.4445, -4.775, 2.0315), steps: int = 5
) -> Array:
    """Nearly U V^T of a matrix x = U S V^T: its singular values brought to about 1 (0.7 to 1.2 after 5 steps).

    y = x / |x|;  then y = a y + b (y y^T) y + c (y y^T)^2 y, ``steps`` times, in the dtype of x (Jordan et al. 2024).
    """
    a, b, c = coefficients
    turned = x.shape[0] > x.shape[1]
    y = (x.T if turned else x) / x.dtype.type(max(math.sqrt(squares(x)), LEAST))
    for _ in range(steps):
        gram = y @ y.T
        update = gram @ gram
        np.multiply(update, c, out=update)
        np.multiply(gram, b, out=gram)
        np.add(update, gram, out=update)
        product = update @ y
        np.multiply(y, a, out=y)
        np.add(y, product, out=y)
    return y.T if turned else y


def muon_groups(model: Module, weight_decay: float, adamw: Iterable[str] = ()) -> list[dict[str, Any]]:
    """Groups for Muon: matrices of hidden layers; embeddings, heads and what ``adamw`` names, which take AdamW's step;
    and biases and gains (fewer than 2 axes), which take it without decay.  An empty group is left out.

    Embeddings are the weights of ``nn.Embedding``, so a head that is tied to one too; heads the weights of modules
    called lm_head, embed_out, score, classifier or head.
    adamw: patterns of parameter names, as in a shell.  Raises ValueError for one that no parameter's name matches.
    """
    pairs = list(model.named_parameters())
    names = [name for name, _ in pairs]
    patterns = list(adamw)
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise ValueError(f"muon_groups: no parameter is called {pattern!r}.{nearest(pattern, names)}")
    outside = {
        id(p)
        for path, module in model.named_modules()
        if isinstance(module, Embedding) or path.rpartition(".")[2] in HEADS
        for p in module.parameters()
    }
    hidden, ends, vectors = [], [], []
    for name, p in pairs:
        if p.ndim < 2:
            vectors.append((name, p))
        elif p.ndim > 2 or id(p) in outside or any(fnmatchcase(name, pattern) for pattern in patterns):
            ends.append((name, p))
        else:
            hidden.append((name, p))
    parts = ((hidden, True, weight_decay), (ends, False, weight_decay), (vectors, False, 0.0))
    return [{"params": part, "use_muon": use, "weight_decay": decay} for part, use, decay in parts if part]

"""AdamW and clipping by norm over GPT-2 124M's parameters."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from .case import Case, Peer, Side
from .gpt import GPT2, shapes

OPTIONS: dict[str, Any] = dict(lr=3e-4, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01)
COUNT = sum(int(np.prod(shape)) for shape in shapes(GPT2).values())
STEPS = 3  # that are compared


def drawn() -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """A parameter and its gradient, one after the other."""
    rng = np.random.default_rng(0)
    for shape in shapes(GPT2).values():
        weight = rng.standard_normal(shape, np.float32) * np.float32(0.02)
        yield weight, rng.standard_normal(shape, np.float32) * np.float32(1e-3)


def entrenar_parameters() -> list[Any]:
    """As leaves with gradients."""
    import entrenar as en

    found = []
    for weight, gradient in drawn():
        p = en.tensor(weight, requires_grad=True)
        p.grad = en.tensor(gradient)
        found.append(p)
    return found


def torch_parameters() -> list[Any]:
    """As leaves with gradients."""
    import torch

    found = []
    for weight, gradient in drawn():
        p = torch.from_numpy(weight).requires_grad_()
        p.grad = torch.from_numpy(gradient)
        found.append(p)
    return found


def adamw_entrenar() -> Side:
    """AdamW in entrenar."""
    import entrenar as en

    parameters = entrenar_parameters()
    return stepped(en.optim.AdamW(parameters, **OPTIONS), parameters)


def adamw_torch(**options: Any) -> Side:
    """AdamW in PyTorch."""
    import torch

    parameters = torch_parameters()
    return stepped(torch.optim.AdamW(parameters, **OPTIONS, **options), parameters)


def stepped(optimizer: Any, parameters: list[Any]) -> Side:
    """What a few steps change."""

    def result() -> dict[str, np.ndarray]:
        before = [p.detach().numpy().copy() for p in parameters]
        for _ in range(STEPS):
            optimizer.step()
        return {f"change {i}": p.detach().numpy() - b for i, (p, b) in enumerate(zip(parameters, before, strict=True))}

    return Side(optimizer.step, result)


def clip_entrenar() -> Side:
    """clip_grad_norm_ in entrenar."""
    import entrenar as en

    parameters = entrenar_parameters()
    side = clipped(lambda norm: en.optim.clip_grad_norm_(parameters, norm), parameters)

    def result() -> Mapping[str, Any]:
        exact = math.sqrt(sum(float(np.square(p.grad.numpy(), dtype=np.float64).sum()) for p in parameters))
        found = side.result()
        np.testing.assert_allclose(found["norm"], exact, rtol=1e-6)
        return found

    return Side(side.run, result)


def clip_torch() -> Side:
    """clip_grad_norm_ in PyTorch."""
    import torch

    parameters = torch_parameters()
    return clipped(lambda norm: torch.nn.utils.clip_grad_norm_(parameters, norm), parameters)


def clipped(clip: Any, parameters: list[Any]) -> Side:
    """Every call has something to scale: the bound falls by a hundredth each time."""
    bound = 1.0

    def run() -> float:
        nonlocal bound
        bound *= 0.99
        return float(clip(bound))

    def result() -> dict[str, Any]:
        return {"norm": run()} | {f"gradient {i}": p.grad.numpy() for i, p in enumerate(parameters)}

    return Side(run, result)


CASES = [
    Case(
        "AdamW step, GPT-2's shapes",
        adamw_entrenar,
        {"torch": Peer(adamw_torch, 0.8), "torch fused": Peer(lambda: adamw_torch(fused=True))},
        # changes of 3e-4 in weights of 0.02 are left with the digits that the rounding of the weights leaves
        tolerance=1e-3,
        traffic=7 * 4.0 * COUNT,  # p, g, m, v read; p, m, v written
        share=0.7,
        pairs=7,
    ),
    Case(
        "clip_grad_norm_, GPT-2's shapes",
        clip_entrenar,
        {"torch": Peer(clip_torch)},
        # PyTorch sums in float32: its norm of these gradients is 9e-4 off; entrenar's is held to float64 in its side
        tolerance=2e-3,
        traffic=3 * 4.0 * COUNT,  # read for the norm; read and written for the scaling
        pairs=7,
    ),
]

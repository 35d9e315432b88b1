"""Optimizers against torch.optim, step by step."""

from __future__ import annotations

import numpy as np
import pytest

import entrenar as en

torch = pytest.importorskip("torch")

ROWS = [
    ("SGD", {}),
    ("SGD", {"momentum": 0.9}),
    ("SGD", {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    ("Adam", {}),
    ("Adam", {"betas": (0.8, 0.95), "weight_decay": 0.1}),
    ("AdamW", {"weight_decay": 0.1}),
]


@pytest.mark.parametrize(("name", "options"), ROWS)
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-12), (np.float32, 2e-6)])
def test_same_weights_after_every_step(name, options, dtype, tolerance):
    rng = np.random.default_rng(0)
    start = [rng.normal(size=s).astype(dtype) for s in ((3, 5), (40_000,))]
    ours = [en.tensor(a, requires_grad=True) for a in start]
    theirs = [torch.tensor(a, requires_grad=True) for a in start]
    mine, other = (
        getattr(en.optim, name)(ours, lr=0.01, **options),
        getattr(torch.optim, name)(theirs, lr=0.01, **options),
    )
    for _ in range(8):
        for p, t in zip(ours, theirs, strict=True):
            g = rng.normal(size=p.shape).astype(dtype)
            p.grad, t.grad = en.tensor(g), torch.tensor(g)
        mine.step()
        other.step()
        for p, t in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(p.data, t.detach().numpy(), rtol=tolerance, atol=tolerance)


def test_clip_grad_norm():
    rng = np.random.default_rng(0)
    grads = [rng.normal(size=s) for s in ((3, 5), (7,))]
    ours = [en.tensor(g, requires_grad=True) for g in grads]
    theirs = [torch.tensor(g, requires_grad=True) for g in grads]
    for p, t, g in zip(ours, theirs, grads, strict=True):
        p.grad, t.grad = en.tensor(g), torch.tensor(g)
    norm = en.optim.clip_grad_norm_(ours, 0.5)
    assert norm == pytest.approx(torch.nn.utils.clip_grad_norm_(theirs, 0.5).item(), rel=1e-12)
    for p, t in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(p.grad.data, t.grad.numpy(), rtol=1e-5)  # torch divides by norm + 1e-6

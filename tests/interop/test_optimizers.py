"""Optimizers against torch.optim, 50 steps, compared after every one."""

from __future__ import annotations

import math

import numpy as np
import pytest

import entrenar as en
from entrenar.optim import OPTIMIZERS

torch = pytest.importorskip("torch")

ORACLES = [
    ("SGD", {}),
    ("SGD", {"momentum": 0.9}),
    ("SGD", {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    ("Adam", {}),
    ("Adam", {"betas": (0.8, 0.95), "weight_decay": 0.1}),
    ("AdamW", {"weight_decay": 0.1}),
    ("Adagrad", {}),
    ("Adagrad", {"lr_decay": 0.1, "weight_decay": 0.1, "initial_accumulator_value": 0.5, "eps": 1e-3}),
    ("RMSprop", {}),
    ("RMSprop", {"alpha": 0.9, "eps": 1e-3, "weight_decay": 0.1, "momentum": 0.9}),
    ("RMSprop", {"centered": True}),
    ("RMSprop", {"centered": True, "momentum": 0.5, "weight_decay": 0.1}),
    ("Adafactor", {}),
    ("Adafactor", {"beta2_decay": -0.5, "eps": (1e-8, 1e-2), "d": 2.0, "weight_decay": 0.1}),
]
WITHOUT = {"lion", "lamb"}  # PyTorch has none: tests/optim/test_formulas.py
STEPS = 50
dtypes = pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-10), (np.float32, 1e-5)])


@pytest.fixture(autouse=True)
def one_thread():
    """PyTorch's threads wait for each other in busy loops: small tensors take a hundred times as long on busy cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def followed(mine, other, ours, theirs, dtype, tolerance, size, steps=STEPS):
    """Step both, on the same gradients; ``size``: their standard deviation, by step from 1 to this."""
    rng = np.random.default_rng(1)
    for step in range(steps):
        for p, t in zip(ours, theirs, strict=True):
            g = (rng.normal(size=p.shape) * size ** (step / steps)).astype(dtype)
            p.grad, t.grad = en.tensor(g), torch.tensor(g)
        mine.step()
        other.step()
        for p, t in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(p.data, t.detach().numpy(), rtol=tolerance, atol=tolerance)


def leaves(dtype, *shapes):
    rng = np.random.default_rng(0)
    start = [rng.normal(size=s).astype(dtype) for s in shapes]
    return [en.tensor(a, requires_grad=True) for a in start], [torch.tensor(a, requires_grad=True) for a in start]


@pytest.mark.parametrize(("name", "options"), ORACLES)
@pytest.mark.parametrize("backend", ["numba", "numpy"])
@dtypes
def test_same_weights_after_every_step(name, options, backend, dtype, tolerance):
    ours, theirs = leaves(dtype, (3, 5), (33_000,), (2, 3, 4), ())
    mine = getattr(en.optim, name)(ours, lr=0.01, **options)
    other = getattr(torch.optim, name)(theirs, lr=0.01, **options)
    with en.backend(backend):
        followed(mine, other, ours, theirs, dtype, tolerance, size=1e-3)


@dtypes
def test_adafactor_on_matrices_of_several_blocks(dtype, tolerance):
    ours, theirs = leaves(dtype, (40, 30, 40), (300, 200), (1, 33_000), (33_000, 1))
    mine, other = en.optim.Adafactor(ours), torch.optim.Adafactor(theirs)
    followed(mine, other, ours, theirs, dtype, tolerance, size=1e-3, steps=5)


MUON = [
    {},
    {"nesterov": False},
    {"momentum": 0.5, "weight_decay": 0.3, "ns_steps": 3, "ns_coefficients": (2, -1.5, 0.5)},
]


@pytest.mark.parametrize("options", MUON)
@pytest.mark.parametrize("ratio", ["original", "match_rms_adamw"])
@dtypes
def test_muon_in_full_precision(monkeypatch, options, ratio, dtype, tolerance):
    """PyTorch rounds what it orthogonalizes to bfloat16: here it is made to leave it as it is."""
    monkeypatch.setattr(torch.Tensor, "bfloat16", torch.Tensor.clone)
    ours, theirs = leaves(dtype, (3, 5), (30, 20), (1, 7), (64, 64))
    mine = en.optim.Muon(ours, lr=0.01, adjust_lr_fn=ratio, **options)
    other = torch.optim.Muon(theirs, lr=0.01, adjust_lr_fn=ratio, **options)
    followed(mine, other, ours, theirs, dtype, tolerance, size=1e-3)


def test_muon_orthogonalizes_as_pytorch_does_in_bfloat16():
    g = np.random.default_rng(0).normal(size=(30, 20)).astype(np.float32)
    theirs = torch.tensor(g, requires_grad=True)
    theirs.grad = torch.tensor(g)
    torch.optim.Muon([theirs], lr=1.0, weight_decay=0.0, adjust_lr_fn="original").step()
    ours = math.sqrt(1.5) * en.optim.newton_schulz(g)
    assert abs(g - theirs.detach().numpy() - ours).max() < 0.02 * abs(ours).max()


@pytest.mark.parametrize("name", sorted({name for name, _ in ORACLES}))
def test_defaults_are_pytorch_s(name):
    """But for SGD's and Adam's options that PyTorch lacks, and the one learning rate that differs."""
    ours, theirs = leaves(np.float32, (2,))
    mine = getattr(en.optim, name)(ours).defaults
    other = getattr(torch.optim, name)(theirs).defaults
    both = mine.keys() & other.keys()
    assert {k: mine[k] for k in both} == {k: other[k] for k in both}
    assert mine.keys() - other.keys() <= {"state_dtype", "stochastic_rounding", "seed"}


def test_every_optimizer_has_an_oracle():
    assert {name.lower() for name, _ in ORACLES} | {"muon"} | WITHOUT == set(OPTIMIZERS)


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

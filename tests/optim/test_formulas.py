"""Optimizers that PyTorch lacks against their papers' formulas, typed again here; and small facts about the others."""

from __future__ import annotations

import numpy as np
import pytest

import entrenar as en
from entrenar.optim import SGD, Adagrad, Lamb, Lion, RMSprop

STEPS = 50


def followed(make, formula, shape, dtype, options):
    """Largest deviation, relative to 1 + |p|, over 50 steps on both backends; gradients fall from 1 to 1e-3."""
    worst = 0.0
    for backend in ("numba", "numpy"):
        rng = np.random.default_rng(0)
        start = rng.normal(size=shape)
        p = en.Tensor(start.astype(dtype), True)
        opt, expected = make([p], **options), formula(p.data.astype(np.float64), **options)
        next(expected)
        for step in range(STEPS):
            g = (rng.normal(size=shape) * 1e-3 ** (step / STEPS)).astype(dtype)
            p.grad = en.Tensor(g)
            with en.backend(backend):
                opt.step()
            wanted = expected.send(g.astype(np.float64))
            worst = max(worst, float((abs(p.data - wanted) / (1 + abs(wanted))).max()))
    return worst


def lion(w, lr, betas=(0.9, 0.99), weight_decay=0.0):
    """Chen et al. 2023, algorithm 2."""
    momentum, (b1, b2) = np.zeros_like(w), betas
    while True:
        g = yield w
        c = b1 * momentum + (1 - b1) * g
        momentum = b2 * momentum + (1 - b2) * g
        w = w - lr * (np.where(c > 0, 1, -1) + weight_decay * w)


def lamb(w, lr, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.01, adapt=True):
    """You et al. 2020, algorithm 2, with one layer."""
    m, v, step, (b1, b2) = 0, 0, 0, betas
    while True:
        g = yield w
        step += 1
        m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g**2
        r = m / (1 - b1**step) / (np.sqrt(v / (1 - b2**step)) + eps) + weight_decay * w
        w = w - lr * (np.linalg.norm(w) / np.linalg.norm(r) if adapt else 1) * r


CASES = [
    (Lamb, lamb, {"lr": 1e-2}),
    (Lamb, lamb, {"lr": 1e-2, "betas": (0.8, 0.95), "eps": 1e-3, "weight_decay": 0.1}),
    (Lamb, lamb, {"lr": 1e-2, "adapt": False}),
    (Lion, lion, {"lr": 1e-2}),
    (Lion, lion, {"lr": 1e-2, "betas": (0.8, 0.95), "weight_decay": 0.1}),
]


@pytest.mark.parametrize(("make", "formula", "options"), CASES)
@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-10), ("float32", 1e-5)])
@pytest.mark.parametrize("shape", [(), (7,), (30, 20), (2, 3, 4)])
def test_fifty_steps_of_the_formula(make, formula, options, dtype, tolerance, shape):
    assert followed(make, formula, shape, dtype, options) < tolerance


def test_centered_rmsprop_stays_finite_where_rounding_makes_a_variance_negative():
    """A constant gradient: v - m^2 is 0 but for rounding, and the root of a negative one NaN."""
    for backend in ("numba", "numpy"):
        p = en.Tensor(np.zeros(1000, np.float32), True)
        opt = RMSprop([p], lr=1e-3, alpha=0.5, centered=True, eps=1e-2)
        p.grad = en.Tensor(np.linspace(0.1, 3, 1000, dtype=np.float32))
        with en.backend(backend):
            for _ in range(60):
                opt.step()
        state = opt.state[p]
        assert (state["square_avg"] - state["grad_avg"] ** 2 < 0).any() and np.isfinite(p.data).all()


def test_adagrad_starts_its_sum_where_it_is_told():
    p = en.Tensor(np.zeros(3, np.float32), True)
    p.grad = en.Tensor(np.full(3, 3.0, np.float32))
    opt = Adagrad([p], lr=1.0, initial_accumulator_value=16.0, eps=0.0)
    opt.step()
    np.testing.assert_allclose(p.data, -3 / 5)
    np.testing.assert_array_equal(opt.state[p]["sum"], 25)


@pytest.mark.parametrize("backend", ["numba", "numpy"])
def test_lamb_moves_a_parameter_that_starts_at_0(backend):
    """No weight, or no update: the ratio is 1.  Norms are of each parameter alone."""
    zero, still, other = (en.Tensor(np.full(3, x, np.float32), True) for x in (0.0, 1.0, 2.0))
    opt = Lamb([zero, still, other], lr=0.1, weight_decay=0.0)
    for p, g in ((zero, 1.0), (still, 0.0), (other, 1.0)):
        p.grad = en.Tensor(np.full(3, g, np.float32))
    with en.backend(backend):
        opt.step()
    np.testing.assert_allclose(zero.data, -0.1, rtol=1e-5)
    np.testing.assert_array_equal(still.data, 1)
    np.testing.assert_allclose(other.data, 2 * (1 - 0.1), rtol=1e-5)


def test_lion_at_rest_stays_there():
    """No momentum and no gradient: the sign is 0, and only decay moves the weight."""
    p = en.Tensor(np.ones(3, np.float32), True)
    p.grad = en.Tensor(np.zeros(3, np.float32))
    Lion([p], lr=0.1, weight_decay=0.5).step()
    np.testing.assert_allclose(p.data, 0.95, rtol=1e-7)


@pytest.mark.parametrize("make", [SGD, RMSprop])
def test_momentum_may_be_turned_on_during_a_run(make):
    p = en.Tensor(np.ones(3, np.float32), True)
    opt = make([p], lr=0.1)
    p.grad = en.Tensor(np.ones(3, np.float32))
    opt.step()
    assert "momentum_buffer" not in opt.state[p]
    opt.param_groups[0]["momentum"] = 0.9
    opt.step()
    assert (opt.state[p]["momentum_buffer"] > 0).all()

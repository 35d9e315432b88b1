"""Public fault reports, tried on every optimizer: clipping of huge gradients, when decay happens, where eps stands."""

from __future__ import annotations

import numpy as np
import pytest

import entrenar as en
from entrenar.optim import OPTIMIZERS, clip_factor, clip_grad_norm_

COUPLED = {"sgd", "adam", "adagrad", "rmsprop"}  # decay is a part of the gradient
DECOUPLED = {"adamw", "lion", "adafactor", "muon"}  # the weights shrink by 1 - lr weight_decay
NORMED = {"lamb"}  # decay is a part of what is given a length: tests/optim/test_formulas.py
# what a first step of lr 1 moves a weight by if g = eps, its root being outside the average's bias correction
EPS_OUTSIDE = {
    "adam": 0.5,  # eps / (sqrt(eps^2) + eps)
    "adamw": 0.5,
    "adagrad": 0.5,
    "rmsprop": 1 / 1.1,  # eps / (sqrt(0.01 eps^2) + eps), no bias correction
    "lamb": 0.5,
    "muon": 0.5,  # AdamW's part
}
each = pytest.mark.parametrize("name", OPTIMIZERS)
backends = pytest.mark.parametrize("backend", ["numba", "numpy"])


def stepped(name, value, gradient, steps=1, scale=1.0, dtype=np.float64, **options):
    """The weights after steps on one gradient."""
    p = en.Tensor(np.array(value, dtype), True)
    p.grad = en.Tensor(np.array(gradient, dtype))
    opt = OPTIMIZERS[name]([p], **options)
    for _ in range(steps):
        opt.step(scale=scale)
    return p.data


@each
@backends
def test_huge_gradients_are_clipped_not_erased(name, backend):  # case 87
    """100 entries of 1e20 in float32: norm 1e21, clipped to 0.1 each, and the step is that of 0.1."""
    huge = np.full((10, 10), 1e20, np.float32)
    p = en.Tensor(np.ones((10, 10), np.float32), True)
    with en.backend(backend):
        for clip in ("in place", "on the way"):
            p.grad = en.Tensor(huge.copy())
            if clip == "in place":
                assert clip_grad_norm_([p], 1.0) == pytest.approx(1e21, rel=1e-6)
                np.testing.assert_allclose(p.grad.data, 0.1, rtol=1e-6)
                gradient, scale = p.grad.data, 1.0
            else:
                norm, scale = clip_factor([p], 1.0)
                assert norm == pytest.approx(1e21, rel=1e-6)
                gradient = huge
            got = stepped(name, p.data, gradient, 3, scale, np.float32)
            wanted = stepped(name, p.data, np.full((10, 10), 0.1), 3, dtype=np.float32)
            np.testing.assert_allclose(got, wanted, rtol=1e-5)
            assert (got != 1).all()


def test_every_optimizer_says_how_it_decays():
    assert set(OPTIMIZERS) == COUPLED | DECOUPLED | NORMED


@backends
def test_adamw_s_first_step(backend):  # case 89
    with en.backend(backend):
        assert stepped("adamw", [1.0], [1.0], lr=0.1, weight_decay=0.1)[0] == pytest.approx(0.89, abs=1e-8)


@pytest.mark.parametrize("name", sorted(COUPLED | DECOUPLED))
@backends
def test_decay_is_of_the_old_weights(name, backend):  # case 89, by kind
    """A coupled decay is a gradient of weight_decay p more, a decoupled one a shrinking of p beside the step."""
    rng = np.random.default_rng(0)
    for shape in ((3, 4), (5,)):
        w, g = rng.normal(size=shape), rng.normal(size=shape)
        with en.backend(backend):
            decayed = stepped(name, w, g, lr=0.1, weight_decay=0.1)
            if name in COUPLED:
                expected = stepped(name, w, g + 0.1 * w, lr=0.1, weight_decay=0.0)
            else:
                expected = stepped(name, w, g, lr=0.1, weight_decay=0.0) - 0.1 * 0.1 * w
        np.testing.assert_allclose(decayed, expected, rtol=1e-12)


@pytest.mark.parametrize("name", EPS_OUTSIDE)
@backends
def test_eps_is_not_scaled_by_the_bias_correction(name, backend):  # case 90
    """g = eps = 1e-8: eps inside the corrected root would move the weight by 0.031."""
    options = {"betas": (0.9, 0.999)} if name in ("adam", "adamw", "lamb", "muon") else {}
    with en.backend(backend):
        moved = -stepped(name, [0.0], [1e-8], lr=1.0, eps=1e-8, weight_decay=0.0, **options)[0]
    assert moved == pytest.approx(EPS_OUTSIDE[name], rel=1e-9)


def test_those_without_such_an_eps():
    with_eps = {name for name, make in OPTIMIZERS.items() if "eps" in make.ranges}
    assert with_eps == set(EPS_OUTSIDE)

"""Clipping: the norm in float64, and what a gradient that is not finite does."""

from __future__ import annotations

import math

import numpy as np
import pytest

import entrenar as en
from entrenar.optim import SGD, NonFiniteGradient, clip_factor, clip_grad_norm_, clip_grad_value_, grad_norm


def with_grad(values, dtype=np.float32):
    p = en.Tensor(np.zeros(np.shape(values), dtype), True)
    p.grad = en.Tensor(np.array(values, dtype))
    return p


def test_a_huge_float32_gradient_is_clipped_not_erased():
    p = with_grad(np.full(100, 1e20))
    assert clip_grad_norm_([p], 1.0) == pytest.approx(1e21, rel=1e-6)
    np.testing.assert_allclose(p.grad.data, 0.1, rtol=1e-6)


def test_float64_squares_may_overflow():
    p = with_grad(np.full(4, 1e200), np.float64)
    assert clip_grad_norm_([p], 1.0) == pytest.approx(2e200)
    np.testing.assert_allclose(p.grad.data, 0.5)


def test_a_factor_below_float32_keeps_its_bits():
    p = with_grad(np.full(10_000, 3e38))
    clip_grad_norm_([p], 1.0)
    np.testing.assert_allclose(p.grad.data, 0.01, rtol=1e-6)


def test_one_norm_over_all_and_nothing_below_the_limit():
    a, b, c = with_grad([3.0]), with_grad([[4.0]]), en.Tensor(np.zeros(2), True)
    assert clip_grad_norm_([a, b, c], 10.0) == 5.0
    assert a.grad.item() == 3.0 and c.grad is None
    assert clip_grad_norm_([a, b, c], 1.0) == 5.0
    assert (a.grad.item(), b.grad.item()) == pytest.approx((0.6, 0.8))
    assert clip_grad_norm_([c], 1.0) == 0.0


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_not_finite_leaves_everything_and_names_the_parameter(bad):
    a, b = with_grad([30.0, 40.0]), with_grad([1.0, bad])
    pairs = [("good", a), ("bad", b)]
    with pytest.warns(RuntimeWarning, match="gradient of bad is not finite"):
        norm = clip_grad_norm_(pairs, 1.0)
    assert not math.isfinite(norm) and a.grad.tolist() == [30.0, 40.0]
    with pytest.raises(NonFiniteGradient, match="gradient of bad"):
        clip_grad_norm_(pairs, 1.0, error_if_nonfinite=True)
    assert grad_norm([a, b])[1] == "parameter 1 of shape (2,)"


def test_by_value():
    p = with_grad([-3.0, 0.5, math.nan])
    clip_grad_value_(p, 1.0)
    np.testing.assert_array_equal(p.grad.data, np.array([-1.0, 0.5, math.nan], np.float32))


def test_limits_are_positive_numbers():
    for limit in (0, -1.0, math.nan, "1", True):
        with pytest.raises(ValueError, match="must be a positive number"):
            clip_grad_norm_([with_grad([1.0])], limit)
        with pytest.raises(ValueError, match="must be a positive number"):
            clip_grad_value_([with_grad([1.0])], limit)


def test_a_factor_for_the_step_is_clipping_without_a_pass():
    for limit, expected in ((10.0, 1.0), (1.0, 0.2)):
        a, b = with_grad([3.0]), with_grad([[4.0]])
        assert clip_factor([a, b], limit) == (5.0, pytest.approx(expected))
        assert a.grad.item() == 3.0
    bad = with_grad([math.inf])
    with pytest.warns(RuntimeWarning, match="gradient of bad is not finite"):
        assert clip_factor([("bad", bad)], 1.0) == (math.inf, 1.0)
    with pytest.raises(NonFiniteGradient, match="gradient of bad"):
        clip_factor([("bad", bad)], 1.0, error_if_nonfinite=True)
    with pytest.raises(ValueError, match="clip_factor: max_norm must be a positive number"):
        clip_factor([bad], 0.0)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_folded_clipping_against_clipping_first(dtype):
    """The same bits, but for 16-bit gradients, which clipping first rounds once more (and its factor)."""
    g = np.random.default_rng(0).normal(size=100).astype(en.array.as_dtype(dtype))
    first, folded = with_grad(g, g.dtype), with_grad(g, g.dtype)
    clip_grad_norm_([first], 1.0)
    SGD([first], lr=1.0).step()
    SGD([folded], lr=1.0).step(scale=clip_factor([folded], 1.0)[1])
    tolerance = 0 if g.dtype.itemsize > 2 else 2.0**-7
    np.testing.assert_allclose(folded.data.astype(float), first.data.astype(float), rtol=tolerance)

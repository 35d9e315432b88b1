"""exp, sigmoid and the normal distribution inside kernels: the accuracy their docstrings state, over every regime."""

import math

import numpy as np
import pytest

from entrenar.kernels.numba.jit import exp, jit, normal, row_max, sigmoid, wide

inf, nan = np.inf, np.nan
SMALL = 2.0**-125.49  # results below are 0


@jit
def run_exp(x, y):
    wide()
    for i in range(x.size):
        y[i] = exp(x[i])


@jit
def run_sigmoid(x, y, z):
    wide()
    for i in range(x.size):
        y[i], z[i] = sigmoid(x[i])


@jit
def run_normal(x, y, z):
    wide()
    for i in range(x.size):
        y[i], z[i] = normal(x[i])


def spread(*ranges, count=100_000):
    """Numbers all over the ranges, and every range's ends and neighbours."""
    rng = np.random.default_rng(0)
    parts = [rng.uniform(a, b, count).astype(np.float32) for a, b in ranges]
    ends = np.array([e for r in ranges for e in r], np.float32)
    return np.concatenate([*parts, ends, ends * np.float32(1 + 1e-6), ends * np.float32(1 - 1e-6)])


def ulps(values, exact):
    """Largest error in units of the last place, where the exact value is one that float32 results cover."""
    covered = (exact >= SMALL) & (exact < np.finfo(np.float32).max)
    exact = exact[covered]
    return (np.abs(values[covered] - exact) / np.spacing(exact.astype(np.float32))).max()


def test_exp_in_float32():
    x = spread((-1, 1), (-90, 90), (-88, -86), (88, 89), (-1e-30, 1e-30), (-1e-44, 1e-44), (-3e38, -100), (100, 3e38))
    y = np.empty_like(x)
    run_exp(x, y)
    with np.errstate(over="ignore", under="ignore"):
        exact = np.exp(x.astype(np.float64))
    assert ulps(y, exact) < 1.02
    assert not y[exact < 2.0**-125.51].any()
    assert np.isposinf(y[exact > 3.4028236e38]).all()
    x = np.array([nan, inf, -inf, 0.0, -0.0], np.float32)
    run_exp(x, y := np.empty_like(x))
    np.testing.assert_array_equal(y, [nan, inf, 0, 1, 1])


def test_sigmoid_in_float32():
    x = spread((-1, 1), (-90, 90), (-1e-44, 1e-44), (-3e38, 3e38))
    y, z = np.empty_like(x), np.empty_like(x)
    run_sigmoid(x, y, z)
    with np.errstate(over="ignore", under="ignore"):
        t = np.exp(-np.abs(x.astype(np.float64)))
    large, small = 1 / (1 + t), t / (1 + t)
    assert ulps(y, np.where(x > 0, large, small)) < 3
    assert ulps(z, np.where(x > 0, small, large)) < 3
    x = np.array([nan, inf, -inf, 0.0], np.float32)
    run_sigmoid(x, y := np.empty_like(x), z := np.empty_like(x))
    np.testing.assert_array_equal(y, [nan, 1, 0, 0.5])
    np.testing.assert_array_equal(z, [nan, 0, 1, 0.5])


def test_normal_distribution_in_float32():
    x = spread((-1, 1), (-13.1, 13.1), (-6, -1), (-1e-44, 1e-44), (13.3, 3e38), (-3e38, -13.3), count=20_000)
    y, z = np.empty_like(x), np.empty_like(x)
    run_normal(x, y, z)
    exact = np.array([math.erfc(-v * math.sqrt(0.5)) / 2 for v in x.astype(float)])
    density = np.array([math.exp(-v * v / 2) / math.sqrt(2 * math.pi) if abs(v) < 30 else 0 for v in x.astype(float)])
    for values, wanted in ((y, exact), (z, density)):
        covered = wanted > 2.0**-125
        error = np.abs(values[covered] / wanted[covered] - 1)
        assert (error < 5e-7 + 7e-8 * np.minimum(np.abs(x[covered]), 14) ** 2 / 2).all()
        np.testing.assert_allclose(values[~covered], wanted[~covered], atol=2.0**-125)
    x = np.array([nan, inf, -inf, 0.0], np.float32)
    run_normal(x, y := np.empty_like(x), z := np.empty_like(x))
    np.testing.assert_allclose(y, [nan, 1, 0, 0.5], rtol=5e-7)
    np.testing.assert_allclose(z, [nan, 0, 0, 1 / math.sqrt(2 * math.pi)], rtol=5e-7)


def test_in_float64():
    x = np.linspace(-30, 30, 1001)
    y, z = np.empty_like(x), np.empty_like(x)
    run_exp(x, y)
    np.testing.assert_allclose(y, np.exp(x), rtol=1e-15)
    run_sigmoid(x, y, z)
    np.testing.assert_allclose(y, 1 / (1 + np.exp(-x)), rtol=1e-15)
    np.testing.assert_allclose(z, 1 / (1 + np.exp(x)), rtol=1e-15)
    run_normal(x, y, z)
    np.testing.assert_allclose(y, [math.erfc(-v * math.sqrt(0.5)) / 2 for v in x], rtol=1e-14)
    np.testing.assert_allclose(z, np.exp(-x * x / 2) / math.sqrt(2 * math.pi), rtol=1e-15)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_maximum_of_a_row(dtype):
    @jit
    def largest(x):
        return row_max(x)

    for values in ([1, 3, 2], [-3, -1, -2], [-inf, -inf], [], [0.5, inf], [-0.0, -1]):
        assert largest(np.array(values, dtype)) == max(values, default=-inf)

"""Cotangents are added up in place only where nobody else has them, and gradients adopt memory only then."""

import numpy as np
import pytest

import entrenar as en
from entrenar.kernels import pool

LARGE = (300, 200)
assert np.prod(LARGE) > pool.WORTHWHILE


def leaf(seed=0, shape=LARGE):
    return en.Tensor(np.random.default_rng(seed).normal(size=shape), requires_grad=True)


def test_one_cotangent_for_two_inputs_is_not_added_to_in_place():
    a, b = leaf(0), leaf(1)
    (a * 2.0 + (a + b)).sum().backward()  # the sum hands one and the same array to both of its inputs
    np.testing.assert_array_equal(a.grad.data, np.full(LARGE, 3.0))
    np.testing.assert_array_equal(b.grad.data, np.ones(LARGE))


def test_many_uses():
    a, b = leaf(0), leaf(1)
    y = a + b
    z = y * a + y * b + y + a + a
    z.sum().backward()
    np.testing.assert_allclose(a.grad.data, 2 * (a.data + b.data) + 3)
    np.testing.assert_allclose(b.grad.data, 2 * (a.data + b.data) + 1)


def test_the_seed_is_left_alone():
    a = leaf()
    seed = np.ones(LARGE)
    (a + a * 1.0 + a).backward(seed)
    np.testing.assert_array_equal(seed, np.ones(LARGE))
    np.testing.assert_array_equal(a.grad.data, np.full(LARGE, 3.0))


def test_backward_twice():
    a, b = leaf(0), leaf(1)
    y = ((a + b) * a).sum()
    y.backward(retain_graph=True)
    once = a.grad.data.copy()
    y.backward()
    np.testing.assert_array_equal(a.grad.data, 2 * once)


def test_hooks_keep_what_they_saw():
    a, b = leaf(0), leaf(1)
    y = a * b
    seen = []
    y.register_hook(lambda g: seen.append(g))
    (y + y * 2.0 + y).sum().backward()
    np.testing.assert_array_equal(seen[0].data, np.full(LARGE, 4.0))


@pytest.mark.parametrize("turn", [lambda w: w.T, lambda w: w.reshape(200, 300), lambda w: w[:, ::-1]])
def test_gradients_of_views_are_owned(turn):
    w, x = leaf(0), leaf(2, (50, 300))
    y = turn(w)
    made = en.matmul(x if y.shape[0] == 300 else leaf(3, (50, 200)), y)
    made.sum().backward()
    w.grad.data[...] = 7.0
    assert w.grad.data.flags.writeable
    assert w.grad.shape == w.shape


def test_two_leaves_never_share_a_gradient():
    a, b = leaf(0), leaf(1)
    (a + b.T.T).sum().backward()
    a.grad.data[...] = 5.0
    np.testing.assert_array_equal(b.grad.data, np.ones(LARGE))

"""Philox in vector registers and dropout made of it: NumPy's Philox is the oracle, for any size and thread count."""

import numpy as np
import pytest

import entrenar as en
from entrenar.array.random import WORTHWHILE, keep_at, words_at
from entrenar.kernels import pool
from entrenar.kernels.numba import random as kernels
from entrenar.ops.layers import kept

SIZES = [1, 3, 63, 64, 65, 127, 1000, pool.WORTHWHILE + 37]


def oracle(seed, stream, block, count):
    return np.random.Philox(key=np.array([seed, stream], np.uint64), counter=block).random_raw(count)


@pytest.mark.parametrize("count", SIZES)
@pytest.mark.parametrize("state", [(0, 0, 0), (7, 2**64 - 1, 12345), (2**64 - 1, 2**63, 2**63 - 5)])
def test_words_and_bits_are_those_of_numpys_philox(threads, state, count):
    words = oracle(*state, count)
    np.testing.assert_array_equal(kernels.words(state, count), words)
    for limit in (0, 1, 1677722, 2**24):
        np.testing.assert_array_equal(kernels.keep(state, limit, count), words >> np.uint64(40) >= limit)


@pytest.mark.parametrize("count", [WORTHWHILE - 1, WORTHWHILE, WORTHWHILE + 5])
def test_a_draw_is_the_same_by_numpy_and_by_kernels(count):
    assert np.array_equal(en.Generator(5, 6).words(count), oracle(5, 6, 0, count))
    keep = kept((count,), 0.25, en.Generator(5, 6))
    assert np.array_equal(keep, en.Generator(5, 6).uniform(count, np.float32) >= 0.25)


def test_a_counter_carries_into_its_second_word():
    state = (1, 2, 2**64 - 3)
    assert np.array_equal(words_at(state, WORTHWHILE), oracle(*state, WORTHWHILE))
    assert keep_at(state, 0.5, (WORTHWHILE,)).dtype == np.bool_


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("count", SIZES)
def test_dropout_has_the_pattern_of_the_composite(threads, dtype, count):
    x = np.random.default_rng(0).normal(size=count).astype(dtype)

    def run():
        g, t = en.Generator(4, 9), en.tensor(x, requires_grad=True)
        y = en.dropout(t, 0.3, generator=g)
        return y.data, en.grad(y, t, gradient=x).data, g.state()

    with en.backend("numba"):
        y, gx, state = run()
    with en.backend("numpy"):
        assert all(np.array_equal(a, b) for a, b in zip((y, gx, state), run(), strict=True))
    assert y.dtype == gx.dtype == dtype
    np.testing.assert_array_equal(
        y, np.where(oracle(4, 9, 0, count) >> np.uint64(40) >= 0.3 * 2**24, x * dtype(1 / 0.7), 0)
    )


def test_dropout_keeps_neither_its_input_nor_a_mask():
    y = en.dropout(en.tensor(np.ones((40, 50), np.float32), requires_grad=True), 0.1)
    assert y.node.saved == ()


def test_dropout_this_close_to_1_drops_everything():
    assert not en.dropout(np.ones(1000, np.float32), 1 - 2.0**-40).any()

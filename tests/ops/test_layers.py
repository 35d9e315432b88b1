"""linear, embedding, dropout."""

import numpy as np
import pytest

import entrenar as en

RNG = np.random.default_rng(0)


def leaf(*shape, dtype=np.float64):
    return en.tensor(RNG.normal(size=shape).astype(dtype), requires_grad=True)


def test_linear():
    x, w, b = leaf(2, 3, 4), leaf(5, 4), leaf(5)
    y = en.linear(x, w, b)
    np.testing.assert_allclose(y.data, x.data @ w.data.T + b.data)
    g = RNG.normal(size=y.shape)
    gx, gw, gb = en.grad(y, (x, w, b), gradient=g)
    np.testing.assert_allclose(gx.data, g @ w.data)
    np.testing.assert_allclose(gw.data, np.einsum("abo,abi->oi", g, x.data))
    np.testing.assert_allclose(gb.data, g.sum((0, 1)))


def test_a_transposed_weight_gets_its_gradient_in_its_own_memory_order():
    x, w = leaf(3, 2), leaf(2, 4)  # (in, out), as GPT-2 stores it
    en.linear(x, w.T).sum().backward()
    assert w.grad.data.flags.c_contiguous
    np.testing.assert_allclose(w.grad.data, x.data.T @ np.ones((3, 4)))


def test_linear_says_what_does_not_fit():
    with pytest.raises(ValueError, match=r"x has shape \(2, 3\), w \(4, 5\) and b None"):
        en.linear(leaf(2, 3), leaf(4, 5))
    with pytest.raises(ValueError, match=r"b \(3,\)"):
        en.linear(leaf(2, 3), leaf(4, 3), leaf(3))


def test_linear_in_16_bit_sums_in_float32():
    ones = en.ones(1, 4096, dtype="bfloat16")
    assert float(en.linear(ones, ones).data[0, 0]) == 4096
    with en.autocast():
        y = en.linear(leaf(2, 3, dtype=np.float32), leaf(4, 3, dtype=np.float32))
    assert y.dtype == en.bfloat16


def test_embedding_adds_the_gradients_of_equal_ids():  # case 59
    table = leaf(4, 2)
    y = en.embedding([[1, 3], [1, 1]], table)
    np.testing.assert_array_equal(y.data, table.data[[[1, 3], [1, 1]]])
    g = RNG.normal(size=y.shape)
    expected = np.zeros((4, 2))
    np.add.at(expected, [[1, 3], [1, 1]], g)
    np.testing.assert_allclose(en.grad(y, table, gradient=g).data, expected, rtol=1e-14)


def test_embedding_gradients_add_in_the_order_of_ids():
    table = en.zeros(2, 3, dtype=np.float32, requires_grad=True)
    g = RNG.normal(size=(100, 3)).astype(np.float32)
    one_by_one = np.zeros(3, np.float32)
    for row in g:
        one_by_one += row
    assert en.grad(en.embedding(np.zeros(100, int), table), table, gradient=g).data[0].tolist() == one_by_one.tolist()


@pytest.mark.parametrize("bad", [-1, 4])
def test_embedding_names_the_id_and_its_place(bad):
    with pytest.raises(IndexError, match=rf"id {bad} at index \(0, 1\) is outside \[0, 4\)"):
        en.embedding([[1, bad]], leaf(4, 2))


def test_embedding_wants_integers():  # case 54
    with pytest.raises(TypeError, match=r"float64.*astype\(int64\)"):
        en.embedding(np.ones(2), leaf(4, 2))
    assert en.embedding(en.tensor([1.0, 2.0]).astype(int), leaf(4, 2)).shape == (2, 2)


# dropout ------------------------------------------------------------------------------------------------------
def test_dropout_is_exact_at_its_ends_and_draws_nothing_there():
    x, g = leaf(3, 4), en.Generator(5)
    assert en.dropout(x, 0.0, generator=g) is x
    assert en.dropout(x, 0.5, training=False, generator=g) is x
    y = en.dropout(x, 1.0, generator=g)
    assert not y.data.any()
    assert not en.grad(y.sum(), x).data.any()
    assert g.state() == (5, 0, 0)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_dropout_keeps_where_the_float32_uniform_is_at_least_p(dtype):
    x = en.ones(40, 50, dtype=dtype, requires_grad=True)
    y = en.dropout(x, 0.25, generator=en.Generator(7))
    keep = en.Generator(7).uniform((40, 50), np.float32) >= 0.25
    np.testing.assert_array_equal(y.data, np.where(keep, 4 / 3, 0).astype(y.dtype))
    np.testing.assert_array_equal(en.grad(y.sum(), x).data, y.data)
    assert abs(keep.mean() - 0.75) < 0.03


def test_dropout_follows_the_seed():
    x = np.ones(64)
    en.manual_seed(3)
    first, second = en.dropout(x, 0.5), en.dropout(x, 0.5)
    assert first.tolist() != second.tolist()
    en.manual_seed(3)
    assert en.dropout(x, 0.5).tolist() == first.tolist()


@pytest.mark.parametrize("p", [-0.1, 1.5, float("nan"), True])
def test_dropout_refuses_what_is_no_probability(p):
    with pytest.raises(ValueError, match="is not a probability"):
        en.dropout(leaf(2), p)


def test_dropout_refuses_integers():
    with pytest.raises(TypeError, match=r"int64.*astype\(float32\)"):
        en.dropout(np.ones(3, int), 0.5)

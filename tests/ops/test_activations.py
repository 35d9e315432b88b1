"""Activations and softmax: values by formula, masked rows, layouts, 16-bit floats."""

import math

import numpy as np
import pytest

import entrenar as en

X = np.random.default_rng(0).normal(size=(3, 4))
LAYOUTS = [lambda a: a.T, lambda a: a[::2], lambda a: a[:, ::-1], lambda a: np.broadcast_to(a[:1], a.shape)]


def leaf(values):
    return en.tensor(np.asarray(values, np.float64), requires_grad=True)


def test_gelu_by_its_two_formulas():
    phi = np.vectorize(lambda v: (1 + math.erf(v / math.sqrt(2))) / 2)
    np.testing.assert_allclose(en.gelu(X), X * phi(X), rtol=1e-14)
    u = math.sqrt(2 / math.pi) * (X + 0.044715 * X**3)
    np.testing.assert_allclose(en.gelu(X, approximate="tanh"), 0.5 * X * (1 + np.tanh(u)), rtol=1e-13)
    with pytest.raises(ValueError, match="'sigmoid'"):
        en.gelu(X, approximate="sigmoid")


def test_gelu_keeps_its_tail():
    assert en.gelu(np.array(-12.0)) == pytest.approx(-12 * math.erfc(12 / math.sqrt(2)) / 2, rel=1e-12)


def test_units():
    sigmoid = 1 / (1 + np.exp(-X))
    np.testing.assert_allclose(en.silu(X), X * sigmoid, rtol=1e-14)
    np.testing.assert_allclose(en.swish(X), en.silu(X))
    np.testing.assert_allclose(en.glu(X), X[:, :2] * sigmoid[:, 2:], rtol=1e-14)
    np.testing.assert_allclose(en.swiglu(X, X[0]), en.silu(X) * X[0], rtol=1e-14)
    np.testing.assert_array_equal(en.leaky_relu(np.array([-2.0, 0, 3])), [-0.02, 0, 3])
    with pytest.raises(ValueError, match="odd size 3"):
        en.glu(X, axis=0)


def test_relu_passes_no_gradient_where_it_is_flat_even_an_infinite_one():
    x = leaf([-1.0, 2.0])
    assert en.grad(en.relu(x), x, gradient=np.array([np.inf, 3.0])).tolist() == [0, 3]
    assert np.isnan(en.relu(np.array([np.nan]))).all()


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_softmax(axis):
    e = np.exp(X)
    np.testing.assert_allclose(en.softmax(X, axis), e / e.sum(axis, keepdims=True), rtol=1e-14)
    np.testing.assert_allclose(en.log_softmax(X, dim=axis), X - np.log(e.sum(axis, keepdims=True)), rtol=1e-12)


def test_softmax_of_large_values():
    x = np.array([[1e4, 1e4 - 1, -1e4]])
    np.testing.assert_allclose(en.softmax(x), [[1 / (1 + math.exp(-1)), 1 / (1 + math.e), 0]], rtol=1e-12)
    assert en.log_softmax(x)[0, 2] == pytest.approx(-2e4 - math.log1p(math.exp(-1)))


@pytest.mark.parametrize("backend", ["numba", "numpy"])
def test_a_fully_masked_row_gives_zeros_at_order_1_and_2(backend):
    with en.backend(backend):
        x = leaf([[-np.inf, -np.inf], [0.5, 1.0]])
        y = en.softmax(x)
        assert y.data[0].tolist() == [0, 0]
        g = en.grad(y, x, gradient=np.array([[1.0, 2.0], [3.0, 5.0]]), create_graph=True)
        assert g.data[0].tolist() == [0, 0]
        second = en.grad(g, x, gradient=np.array([[1.0, -1.0], [1.0, 2.0]]))
        assert second.data[0].tolist() == [0, 0]
        assert second.data[1].any()


@pytest.mark.parametrize("op", [en.softmax, en.log_softmax, en.gelu, en.layer_norm])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_strided_input_is_like_its_copy_bit_for_bit(op, dtype):  # cases 177, 180, 182
    rng = np.random.default_rng(1)
    base = rng.normal(size=(4, 4)).astype(dtype)
    for view in LAYOUTS:
        x, copy = view(base), np.ascontiguousarray(view(base))
        g = rng.normal(size=x.shape).astype(dtype)
        results = []
        for value, seed in ((x, np.asfortranarray(g)), (copy, g)):
            t = en.Tensor(value, requires_grad=True)
            y = op(t)
            results.append((y.data.tobytes(), en.grad(y, t, gradient=seed).data.tobytes()))
        assert results[0] == results[1]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("op", [en.softmax, en.log_softmax, en.gelu, en.silu, en.layer_norm, en.rms_norm])
def test_16_bit_floats_are_rounded_once(op, dtype):
    x = en.tensor(X, dtype=dtype)
    wide = op(x.astype(np.float32))
    assert op(x).dtype == x.dtype
    np.testing.assert_array_equal(op(x).data, wide.data.astype(x.dtype))

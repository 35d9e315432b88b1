"""What is a float whatever goes in: integers are computed in float64, as NumPy does, never truncated."""

import numpy as np
import pytest

import entrenar as en

WHOLE = np.array([1, 2, 5])
SQUARE = np.array([[4, 2], [2, 3]])
CASES = {
    "var": (lambda x: en.var(x), WHOLE),
    "std": (lambda x: en.std(x), WHOLE),
    "norm": (lambda x: en.norm(x), WHOLE),
    "norm 3": (lambda x: en.norm(x, 3), WHOLE),
    "normalize": (lambda x: en.normalize(x), WHOLE),
    "logsumexp": (lambda x: en.logsumexp(x), WHOLE),
    "logcumsumexp": (lambda x: en.logcumsumexp(x), WHOLE),
    "softmax": (lambda x: en.softmax(x), WHOLE),
    "log_softmax": (lambda x: en.log_softmax(x), WHOLE),
    "cross_entropy": (lambda x: en.cross_entropy(x, np.array([0, 1])), SQUARE),
    "silu": (lambda x: en.silu(x), WHOLE),
    "gelu": (lambda x: en.gelu(x), WHOLE),
    "glu": (lambda x: en.glu(x), SQUARE),
    "rope": (lambda x: en.rope(x), SQUARE),
    "layer_norm": (lambda x: en.layer_norm(x), WHOLE),
    "inv": (lambda x: en.inv(x), SQUARE),
    "solve": (lambda x: en.solve(x, np.array([1, 0])), SQUARE),
    "det": (lambda x: en.det(x), SQUARE),
    "slogdet": (lambda x: en.slogdet(x)[1], SQUARE),
    "cholesky": (lambda x: en.cholesky(x), SQUARE),
    "attention": (lambda x: en.scaled_dot_product_attention(x, x, x), SQUARE),
}


@pytest.mark.parametrize("name", CASES)
def test_integers_give_what_their_floats_give(name):
    f, x = CASES[name]
    for given in (x, en.Tensor(x)):
        y, expected = f(given), f(x.astype(np.float64))
        assert y.dtype == np.float64
        np.testing.assert_allclose(np.asarray(y), expected, rtol=1e-14, atol=1e-15)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("value", [0.1, -2.3, 1e3 / 3])
def test_the_deviation_of_constants_is_0_though_their_mean_is_rounded(dtype, value):
    for shape, axis in (((3,), None), ((7, 3), 0), ((7, 3), (0, 1)), ((1000, 2), 0)):
        x = en.Tensor(np.full(shape, value, dtype), requires_grad=True)
        for f in (en.var, en.std):
            y = f(x, axis=axis)
            (gradient,) = en.grad(y, [x], gradient=np.ones(y.shape, dtype))
            assert not y.data.any()
            assert not gradient.data.any()

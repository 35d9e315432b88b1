"""What is a float whatever goes in: integers are computed in float64, as NumPy does, never truncated."""

import numpy as np
import pytest

import entrenar as en

WHOLE = np.array([1, 2, 5])
SQUARE = np.array([[4, 2], [2, 3]])
CASES = {
    "var": (en.var, WHOLE),
    "std": (en.std, WHOLE),
    "norm": (en.norm, WHOLE),
    "norm 3": (lambda x: en.norm(x, 3), WHOLE),
    "normalize": (en.normalize, WHOLE),
    "logsumexp": (en.logsumexp, WHOLE),
    "logcumsumexp": (en.logcumsumexp, WHOLE),
    "softmax": (en.softmax, WHOLE),
    "log_softmax": (en.log_softmax, WHOLE),
    "cross_entropy": (lambda x: en.cross_entropy(x, np.array([0, 1])), SQUARE),
    "silu": (en.silu, WHOLE),
    "gelu": (en.gelu, WHOLE),
    "glu": (en.glu, SQUARE),
    "rope": (en.rope, SQUARE),
    "layer_norm": (en.layer_norm, WHOLE),
    "inv": (en.inv, SQUARE),
    "solve": (lambda x: en.solve(x, np.array([1, 0])), SQUARE),
    "det": (en.det, SQUARE),
    "slogdet": (lambda x: en.slogdet(x)[1], SQUARE),
    "cholesky": (en.cholesky, SQUARE),
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

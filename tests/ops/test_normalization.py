"""Normalisations: by formula, over several axes, by channel, 16-bit weights and inputs, errors."""

import numpy as np
import pytest

import entrenar as en

RNG = np.random.default_rng(0)
X = RNG.normal(2.0, 3.0, size=(2, 6, 4))


def normal(x, axes, eps):
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + eps)


def test_layer_norm():
    w, b = RNG.normal(size=4), RNG.normal(size=4)
    np.testing.assert_allclose(en.layer_norm(X, w, b, eps=0.1), normal(X, -1, 0.1) * w + b, rtol=1e-12)
    np.testing.assert_allclose(en.layer_norm(X), normal(X, -1, 1e-5), rtol=1e-12)


def test_layer_norm_over_as_many_axes_as_the_weight_has():
    w = RNG.normal(size=(6, 4))
    np.testing.assert_allclose(en.layer_norm(X, w), normal(X, (1, 2), 1e-5) * w, rtol=1e-12)
    np.testing.assert_allclose(en.layer_norm(X, axes=2), normal(X, (1, 2), 1e-5), rtol=1e-12)
    with pytest.raises(ValueError, match=r"w has shape \(6,\), expected \(4,\)"):
        en.layer_norm(X, RNG.normal(size=6))
    with pytest.raises(ValueError, match="last 4 axes"):
        en.layer_norm(X, axes=4)


def test_rms_norm():
    w = RNG.normal(size=4)
    np.testing.assert_allclose(
        en.rms_norm(X, w, eps=0.1), X / np.sqrt((X**2).mean(-1, keepdims=True) + 0.1) * w, rtol=1e-12
    )


def test_a_constant_row_gives_the_bias_and_no_infinite_gradient():
    x = en.tensor(np.full((1, 4), 3.0), requires_grad=True)
    y = en.layer_norm(x, np.ones(4), np.arange(4.0))
    assert y.data.tolist() == [[0, 1, 2, 3]]
    assert np.isfinite(en.grad(y, x, gradient=np.array([[1.0, 0, 0, 0]])).data).all()


def test_group_norm():
    w, b = RNG.normal(size=6), RNG.normal(size=6)
    expected = normal(X.reshape(2, 3, 8), -1, 1e-5).reshape(X.shape) * w[:, None] + b[:, None]
    np.testing.assert_allclose(en.group_norm(X, w, b, num_groups=3), expected, rtol=1e-12)
    with pytest.raises(ValueError, match="num_groups=4 does not divide the 6 channels"):
        en.group_norm(X, num_groups=4)


def test_batch_norm():
    w, b = RNG.normal(size=6), RNG.normal(size=6)
    np.testing.assert_allclose(
        en.batch_norm(X, None, None, w, b), normal(X, (0, 2), 1e-5) * w[:, None] + b[:, None], rtol=1e-12
    )
    mean, var = en.batch_statistics(X)
    np.testing.assert_allclose(mean, X.mean((0, 2)))
    np.testing.assert_allclose(var, X.var((0, 2)))
    given = en.batch_norm(X, mean, var, w, b)
    np.testing.assert_allclose(given, en.batch_norm(X, mean + 9, var + 9, w, b, training=True), rtol=1e-12)
    with pytest.raises(ValueError, match="come together"):
        en.batch_norm(X, mean)
    with pytest.raises(ValueError, match=r"var has shape \(5,\), expected \(6,\)"):
        en.batch_norm(X, mean, var[:5])


def test_mixed_dtypes_promote_and_each_gradient_is_cast_back():
    x = en.tensor(X, dtype="bfloat16", requires_grad=True)
    w = en.ones(4, dtype=np.float32, requires_grad=True)
    y = en.layer_norm(x, w)
    assert y.dtype == np.float32
    gx, gw = en.grad(y.sum(), (x, w))
    assert (gx.dtype, gw.dtype) == (en.bfloat16, np.float32)


def test_a_residual_added_and_normalised():
    r, w, b = RNG.normal(size=X.shape), RNG.normal(size=4), RNG.normal(size=4)
    total, y = en.add_layer_norm(X, r, w, b, eps=0.1)
    np.testing.assert_array_equal(total, X + r)
    np.testing.assert_allclose(y, normal(X + r, -1, 0.1) * w + b, rtol=1e-12)
    total, y = en.add_rms_norm(X, r, w)
    np.testing.assert_array_equal(total, X + r)
    np.testing.assert_allclose(y, en.rms_norm(X + r, w), rtol=1e-12)


@pytest.mark.parametrize("used", [(0,), (1,), (0, 1)])
def test_each_output_of_a_residual_norm_has_its_cotangent(used):
    x, r, w = (en.tensor(a, requires_grad=True) for a in (X, RNG.normal(size=X.shape), RNG.normal(size=4)))
    total = x + r
    plain = (total, en.rms_norm(total, w))
    fused = en.add_rms_norm(x, r, w)
    gs = [RNG.normal(size=X.shape) for _ in used]
    wanted = [x, r, w] if 1 in used else [x, r]
    for a, b in zip(
        en.grad([fused[i] for i in used], wanted, gradient=gs),
        en.grad([plain[i] for i in used], wanted, gradient=gs),
        strict=True,
    ):
        np.testing.assert_allclose(a.data, b.data, rtol=1e-12)

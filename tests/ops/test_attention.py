"""Attention against its formula, masks, grouped heads, cached keys; rotary positions."""

import math

import numpy as np
import pytest

import entrenar as en

RNG = np.random.default_rng(0)
Q, K, V = RNG.normal(size=(2, 4, 5, 3)), RNG.normal(size=(2, 4, 6, 3)), RNG.normal(size=(2, 4, 6, 2))
attend = en.scaled_dot_product_attention


@pytest.fixture(params=["numba", "numpy"], autouse=True)
def backend(request):
    with en.backend(request.param):
        yield


def plain(q, k, v, seen=None, add=0.0, scale=None):
    s = q @ np.swapaxes(k, -1, -2) * (1 / math.sqrt(q.shape[-1]) if scale is None else scale) + add
    e = np.exp(s) if seen is None else np.where(seen, np.exp(s), 0)
    total = e.sum(-1, keepdims=True)
    return e / np.where(total == 0, 1, total) @ v


def test_attention():
    np.testing.assert_allclose(attend(Q, K, V), plain(Q, K, V), rtol=1e-12)
    np.testing.assert_allclose(attend(Q, K, V, scale=2.0), plain(Q, K, V, scale=2.0), rtol=1e-12)
    np.testing.assert_allclose(attend(Q[0, 0], K[0, 0], V[0, 0]), plain(Q, K, V)[0, 0], rtol=1e-12)


def test_masks():
    seen, add = RNG.random((2, 1, 5, 6)) > 0.4, RNG.normal(size=(5, 6))
    np.testing.assert_allclose(attend(Q, K, V, attn_mask=seen), plain(Q, K, V, seen), rtol=1e-11)
    np.testing.assert_allclose(attend(Q, K, V, add), plain(Q, K, V, add=add), rtol=1e-11)
    causal = np.tri(5, 6, dtype=bool)
    np.testing.assert_allclose(attend(Q, K, V, is_causal=True), plain(Q, K, V, causal), rtol=1e-11)
    np.testing.assert_allclose(attend(Q, K, V, seen, causal=True), plain(Q, K, V, causal & seen), rtol=1e-11)


@pytest.mark.parametrize(
    ("causal", "window", "offset"), [(True, 2, 0), (True, 1, 1), (False, 2, 0), (True, 3, -2), (False, 1, 9)]
)
def test_windows(causal, window, offset):
    ahead = np.arange(6) - np.arange(5)[:, None] - offset
    seen = (ahead > -window) & (ahead < (1 if causal else window))
    got = attend(Q, K, V, causal=causal, window=window, offset=offset)
    np.testing.assert_allclose(got, plain(Q, K, V, seen), rtol=1e-11)


def test_rows_that_see_nothing_give_zeros_and_pass_no_gradient():
    q, k, v = (en.tensor(a, requires_grad=True) for a in (Q, K, V))
    y = attend(q, k, v, np.array([[True], [False], [True], [False], [True]]))
    assert not y.data[:, :, [1, 3]].any()
    gq = en.grad(y.sum(), q)
    assert not gq.data[:, :, [1, 3]].any()
    assert gq.data[:, :, 0].any()


def test_grouped_heads_are_repeated_heads():
    for heads in (1, 2):
        k, v = K[:, :heads], V[:, :heads]
        np.testing.assert_allclose(
            attend(Q, k, v, causal=True, enable_gqa=True),
            attend(Q, np.repeat(k, 4 // heads, 1), np.repeat(v, 4 // heads, 1), causal=True),
            rtol=1e-12,
        )
    with pytest.raises(ValueError, match="H divisible by H'"):
        attend(Q, K[:, :3], V[:, :3])


def test_an_offset_continues_after_cached_keys():
    whole = attend(K, K, V, causal=True)
    np.testing.assert_allclose(attend(K[:, :, 4:], K, V, causal=True, offset=4), whole[:, :, 4:], rtol=1e-12)
    np.testing.assert_allclose(
        attend(K[:, :, 4:], K, V, causal=True, offset=4, window=3),
        attend(K, K, V, causal=True, window=3)[:, :, 4:],
        rtol=1e-12,
    )


def test_a_batch_may_be_stretched():
    np.testing.assert_allclose(attend(Q, K[0], V[0]), plain(Q, K[0], V[0]), rtol=1e-12)


def test_a_float_mask_gets_its_gradient():
    bias = en.tensor(RNG.normal(size=(4, 1, 6)), requires_grad=True)
    y = attend(Q, K, V, bias)
    g = en.grad(y.sum(), bias)
    shifted = attend(Q, K, V, bias.data + 1e-6 * np.eye(6)[2])
    assert g.data[:, 0, 2].sum() == pytest.approx((shifted.sum() - y.data.sum()) / 1e-6, rel=1e-4)


def test_dropout_drops_weights_and_keeps_the_mean():
    q, v = np.zeros((1, 1, 400, 1)), np.eye(50)[None, None]
    k = np.zeros((1, 1, 50, 1))
    weights = attend(q, k, v, None, 0.25, generator=en.Generator(1)) * 50
    assert set(np.round(np.unique(weights), 12)) == {0, round(4 / 3, 12)}
    assert weights.mean() == pytest.approx(1, abs=0.02)
    again = attend(q, k, v, dropout_p=0.25, generator=en.Generator(1)) * 50
    assert again.tolist() == weights.tolist()
    assert not attend(q, k, v, dropout_p=1.0).any()


def test_autocast():
    q, k, v = (en.tensor(a.astype(np.float32), requires_grad=True) for a in (Q, K, V))
    with en.autocast():
        y = attend(q, k, v)
    assert y.dtype == en.bfloat16
    np.testing.assert_allclose(y.data.astype(float), plain(Q, K, V), rtol=0.03, atol=0.02)
    assert en.grad(y.sum(), q).dtype == np.float32


@pytest.mark.parametrize(
    ("kwargs", "error", "message"),
    [
        ({"mask": np.ones((5, 5), bool)}, ValueError, r"broadcast to \(2, 4, 5, 6\)"),
        ({"mask": np.ones((5, 6), int)}, ValueError, "int64"),
        ({"window": 0}, ValueError, "window=0"),
        ({"dropout_p": 2}, ValueError, "p=2"),
        ({"is_casual": True}, TypeError, "Did you mean 'is_causal'"),
    ],
)
def test_what_does_not_fit_is_refused(kwargs, error, message):
    with pytest.raises(error, match=message):
        attend(Q, K, V, **kwargs)


# rotary positions ---------------------------------------------------------------------------------------------
def test_rope_turns_pairs():
    x = RNG.normal(size=(3, 4))
    angles = np.arange(3)[:, None] * 100.0 ** -np.array([0, 0.5])
    z = (x[:, :2] + 1j * x[:, 2:]) * np.exp(1j * angles)
    np.testing.assert_allclose(en.rope(x, base=100.0), np.concatenate([z.real, z.imag], 1), rtol=1e-12)
    z = (x[:, ::2] + 1j * x[:, 1::2]) * np.exp(1j * angles)
    np.testing.assert_allclose(
        en.rope(x, base=100.0, interleaved=True), np.stack([z.real, z.imag], -1).reshape(3, 4), rtol=1e-12
    )


@pytest.mark.parametrize("interleaved", [False, True])
def test_rope_depends_on_distance_alone(interleaved):
    q, k = RNG.normal(size=(2, 1, 8))
    at = lambda x, m: en.rope(x, np.array([m]), interleaved=interleaved)
    product = lambda m, n: (at(q, m) * at(k, n)).sum()
    assert product(7, 3) == pytest.approx(product(1004, 1000))


def test_rope_pulls_back_by_turning_back():
    x = en.tensor(RNG.normal(size=(2, 3, 4)), requires_grad=True)
    y = en.rope(x)
    np.testing.assert_allclose(en.grad(y, x, gradient=y.data).data, x.data, rtol=1e-12)


def test_rope_of_a_part_at_positions_by_tables():
    from entrenar.ops.attention import rotary_tables

    x, at = RNG.normal(size=(2, 3, 6)), np.array([[5, 0, 2], [1, 1, 7]])
    y = en.rope(x, at, dims=4)
    np.testing.assert_array_equal(y[..., 4:], x[..., 4:])
    np.testing.assert_allclose(y[1, 2, :4], en.rope(x[1, 2:, :4], np.array([7]))[0], rtol=1e-12)
    cos, sin = rotary_tables(at, 4)
    np.testing.assert_array_equal(en.rope(x, cos=cos, sin=sin), y)


def test_rope_says_what_does_not_fit():
    with pytest.raises(ValueError, match="5 elements cannot be paired"):
        en.rope(np.ones((3, 5)))
    with pytest.raises(ValueError, match="got one without the other"):
        en.rope(np.ones((3, 4)), cos=np.ones((3, 2)))
    with pytest.raises(ValueError, match=r"tables of shapes \(7, 2\)"):
        en.rope(np.ones((3, 4)), np.arange(7))
    with pytest.raises(TypeError, match="constants"):
        en.rope(np.ones((3, 4)), en.ones(3, requires_grad=True))

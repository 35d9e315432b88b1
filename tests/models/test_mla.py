"""Latent attention: expanded against a formula written out, absorbed against expanded, the cache, masks, errors."""

from __future__ import annotations

import numpy as np
import pytest

import entrenar as en
from entrenar.models.mla import LatentAttention, LatentCache
from entrenar.models.rotary import Rotary
from entrenar.nn import Module

RNG = np.random.default_rng(0)
SIZES = dict(width=24, heads=3, kv_rank=10, rope_dims=4, head_dim=6, value_dim=5)


def layer(dtype=np.float64, **options):
    en.manual_seed(3)
    return LatentAttention(**{**SIZES, **options}).to(dtype)


def states(*shape, dtype=np.float64):
    return en.tensor(RNG.normal(size=(*shape, 24)).astype(dtype))


def by_the_paper(m, x, positions, sees):
    """Eq. 9-19, one head and one query at a time; sees(t, s): whether query t may look at s."""
    w = {name: value.data for name, value in m.state_dict().items()}
    normed = lambda a, gain: a / np.sqrt((a**2).mean(-1, keepdims=True) + 1e-6) * gain

    def turned(a):
        angles = positions[:, None] * 10000.0 ** (-np.arange(0, m.rope_dims, 2) / m.rope_dims)
        z = (a[:, 0::2] + 1j * a[:, 1::2]) * np.exp(1j * angles)
        return np.stack([z.real, z.imag], -1).reshape(a.shape)

    out = []
    for h in x:
        down = h @ w["kv_a_proj_with_mqa.weight"].T
        c, k_r = normed(down[:, : m.kv_rank], w["kv_a_layernorm.weight"]), turned(down[:, m.kv_rank :])
        if m.query_rank is None:
            q = h @ w["q_proj.weight"].T
        else:
            q = normed(h @ w["q_a_proj.weight"].T, w["q_a_layernorm.weight"]) @ w["q_b_proj.weight"].T
        heads = []
        for i in range(m.heads):
            q_i = q.reshape(len(h), m.heads, -1)[:, i]
            ups = w["kv_b_proj.weight"].reshape(m.heads, -1, m.kv_rank)[i]
            k, v = c @ ups[: m.head_dim].T, c @ ups[m.head_dim :].T
            q_c, q_r = q_i[:, : m.head_dim], turned(q_i[:, m.head_dim :])
            o = np.zeros((len(h), m.value_dim))
            for t in range(len(h)):
                seen = [s for s in range(len(h)) if sees(t, s)]
                scores = np.array([q_c[t] @ k[s] + q_r[t] @ k_r[s] for s in seen]) / np.sqrt(m.head_dim + m.rope_dims)
                weights = np.exp(scores - scores.max())
                o[t] = weights / weights.sum() @ v[seen]
            heads.append(o)
        out.append(np.concatenate(heads, 1) @ w["o_proj.weight"].T)
    return np.array(out)


@pytest.mark.parametrize("query_rank", [None, 7])
@pytest.mark.parametrize("absorbed", [False, True])
@pytest.mark.parametrize("causal", [False, True])
def test_both_forms_are_the_paper_s_equations(query_rank, absorbed, causal):
    m, x = layer(query_rank=query_rank), states(2, 5)
    expected = by_the_paper(m, x.data, np.arange(5), lambda t, s: s <= t or not causal)
    y = m(x, causal=causal, absorbed=absorbed)
    np.testing.assert_allclose(y.detach().numpy(), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 1e-5), (np.float64, 1e-12)])
def test_the_absorbed_form_equals_the_expanded_one_at_the_default_ranks(dtype, tolerance):
    m = LatentAttention(128, 4, query_rank=48).to(dtype)
    assert (m.kv_rank, m.rope_dims, m.head_dim, m.value_dim) == (256, 32, 32, 32)
    x = en.tensor(RNG.normal(size=(2, 17, 128)).astype(dtype))
    a, b = (m(x, absorbed=absorbed).detach().numpy() for absorbed in (False, True))
    assert a.dtype == dtype
    np.testing.assert_allclose(b, a, rtol=0, atol=tolerance * np.abs(a).max())


def test_gradients_of_both_forms_are_equal():
    found = []
    for absorbed in (False, True):
        m, x = layer(query_rank=7), en.tensor(np.linspace(-1, 1, 120).reshape(1, 5, 24), requires_grad=True)
        y = m(x, absorbed=absorbed)
        (y * y).sum().backward()
        found.append([x.grad.numpy(), *(p.grad.numpy() for p in m.parameters())])
    assert len(found[0]) == 1 + 7
    for a, b in zip(*found, strict=True):
        assert np.abs(a).max() > 0
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-12 * max(1, np.abs(a).max()))


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 1e-5), (np.float64, 1e-12)])
@pytest.mark.parametrize("absorbed", [None, False, True])
@pytest.mark.parametrize("pieces", [[1] * 9, [5, 1, 1, 1, 1], [4, 5], [9]])
def test_reading_in_pieces_through_a_cache_equals_reading_at_once(dtype, tolerance, absorbed, pieces):
    m, x = layer(dtype), states(2, 9, dtype=dtype)
    whole = m(x, absorbed=False).detach().numpy()
    cache = m.new_cache(2, 12)
    buffer = cache.entries
    cache.entries[:] = np.nan  # what is not filled is never read
    parts = []
    with en.no_grad():
        for n in pieces:
            parts.append(m(x[:, cache.length : cache.length + n], cache=cache, absorbed=absorbed).data)
    assert cache.length == 9 and cache.entries is buffer
    np.testing.assert_allclose(np.concatenate(parts, 1), whole, rtol=0, atol=tolerance * np.abs(whole).max())


def test_the_cache_holds_latent_and_rotary_key_alone():
    m = LatentAttention(512, 8, head_dim=64)
    cache = m.new_cache(3, 100)
    assert cache.entries.shape == (3, 100, 256 + 32) and cache.capacity == 100
    assert m.cache_bytes() == (256 + 32) * 4 and cache.nbytes == 300 * m.cache_bytes()
    assert m.grouped_cache_bytes() == 2 * 8 * 64 * 4 and m.grouped_cache_bytes(2) == 2 * 2 * 64 * 4
    assert m.to(np.float64).cache_bytes() == (256 + 32) * 8
    assert m.new_cache(1, 2).entries.dtype == np.float64


def test_tokens_after_cached_ones_are_absorbed_and_a_prompt_is_expanded(monkeypatch):
    m, x, used = layer(), states(1, 4), []
    for name in ("_expanded", "_absorbed"):
        form = getattr(LatentAttention, name)
        monkeypatch.setattr(
            LatentAttention, name, lambda *a, name=name, form=form, **k: used.append(name) or form(*a, **k)
        )
    m(x)
    with en.no_grad():
        cache = m.new_cache(1, 8)
        m(x[:, :3], cache=cache)
        m(x[:, 3:], cache=cache)
    assert used == ["_expanded", "_expanded", "_absorbed"]


def test_a_replaced_up_projection_is_run_and_never_absorbed():
    class Doubled(Module):
        def __init__(self, inner):
            self.inner = inner

        def forward(self, x):
            return self.inner(x) * 2.0

    m, x = layer(), states(1, 4)
    m.kv_b_proj = Doubled(m.kv_b_proj)
    whole = m(x).detach().numpy()
    cache = m.new_cache(1, 4)
    with en.no_grad():
        m(x[:, :3], cache=cache)
        last = m(x[:, 3:], cache=cache).data
    np.testing.assert_allclose(last, whole[:, 3:], rtol=0, atol=1e-12)
    with pytest.raises(ValueError, match="kv_b_proj"):
        m(x, absorbed=True)
    hooked = layer()
    hooked.kv_b_proj.register_forward_hook(lambda module, args, y: y * 2.0)
    with pytest.raises(ValueError, match="hooks of kv_b_proj"):
        hooked(x, absorbed=True)


@pytest.mark.parametrize("absorbed", [False, True])
def test_left_padding_changes_nothing_for_the_tokens(absorbed):
    m, x = layer(), states(2, 6)
    kept = np.array([[False, False, True, True, True, True], [True] * 6])
    at = np.maximum(np.cumsum(kept, 1) - 1, 0)
    padded = m(x, mask=kept[:, None, None], positions=at, absorbed=absorbed).detach().numpy()
    alone = m(x[:1, 2:], absorbed=absorbed).detach().numpy()
    np.testing.assert_allclose(padded[0, 2:], alone[0], rtol=0, atol=1e-12)
    np.testing.assert_allclose(padded[1], m(x[1:], absorbed=absorbed).detach().numpy()[0], rtol=0, atol=1e-12)
    assert not padded[0, :2].any()  # they see nothing


@pytest.mark.parametrize("absorbed", [False, True])
def test_left_padding_through_a_cache(absorbed):
    m, x = layer(), states(2, 6)
    kept = np.array([[False, False, True, True, True, True], [True] * 6])
    at = np.maximum(np.cumsum(kept, 1) - 1, 0)
    whole = m(x, mask=kept[:, None, None], positions=at).detach().numpy()
    cache = m.new_cache(2, 6)
    with en.no_grad():
        for a, b in ((0, 4), (4, 5), (5, 6)):
            y = m(x[:, a:b], kept[:, None, None, :b], at[:, a:b], cache, absorbed=absorbed).data
            np.testing.assert_allclose(y, whole[:, a:b], rtol=0, atol=1e-12)


@pytest.mark.parametrize("absorbed", [False, True])
def test_a_mask_per_query_keeps_packed_texts_apart(absorbed):
    m, x = layer(), states(1, 7)
    text = np.array([0, 0, 0, 1, 1, 1, 1])
    at = np.array([0, 1, 2, 0, 1, 2, 3])
    packed = m(x, (text[:, None] == text)[None, None], at[None], absorbed=absorbed).detach().numpy()
    for part in (slice(0, 3), slice(3, 7)):
        np.testing.assert_allclose(packed[:, part], m(x[:, part]).detach().numpy(), rtol=0, atol=1e-12)


def test_shared_tables_and_halves():
    m, x = layer(interleaved=False), states(2, 5)
    tables = m.rotary.tables(np.arange(5))
    np.testing.assert_array_equal(m(x, tables=tables).detach().numpy(), m(x).detach().numpy())
    # pairs (i, i + d / 2) are pairs (2i, 2i + 1) of permuted weights
    other = layer()
    state = {name: value.data.copy() for name, value in m.state_dict().items()}
    halves = np.array([0, 2, 1, 3])
    queries = state["q_proj.weight"].reshape(3, 10, 24)
    queries[:, 6:] = queries[:, 6:][:, halves]
    state["kv_a_proj_with_mqa.weight"][10:] = state["kv_a_proj_with_mqa.weight"][10:][halves]
    other.load_state_dict(state)
    np.testing.assert_allclose(other(x).detach().numpy(), m(x).detach().numpy(), rtol=0, atol=1e-12)


def test_mscale_all_dim_scales_the_scores():
    scaling = {"rope_type": "yarn", "factor": 40.0, "mscale": 1.0, "mscale_all_dim": 0.5}
    m = layer(rotary=Rotary(4, scaling=scaling))
    assert m.scale == pytest.approx((0.05 * np.log(40) + 1) ** 2 / np.sqrt(10), rel=1e-14)
    assert layer().scale == pytest.approx(1 / np.sqrt(10), rel=1e-14)


def test_dropout_only_in_training():
    m, x = layer(dropout=0.5), states(1, 6)
    assert not np.array_equal(m(x).data, m(x).data)
    m.eval()
    np.testing.assert_array_equal(m(x).data, layer()(x).data)


def test_biases_where_the_published_files_have_them():
    names = {name for name, _ in layer(query_rank=7, bias=True).named_parameters() if name.endswith("bias")}
    assert names == {"q_a_proj.bias", "kv_a_proj_with_mqa.bias", "o_proj.bias"}


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"head_dim": None, "heads": 5}, "width=24 is not divisible by heads=5"),
        ({"rope_dims": 3}, "dims=3"),
        ({"rotary": Rotary(8)}, "rotary turns 8 elements, expected rope_dims=4"),
        ({"kv_rank": 0}, "positive"),
        ({"dropout": 1.5}, "1.5"),
    ],
)
def test_sizes_that_do_not_fit(options, part):
    with pytest.raises(ValueError, match=part):
        layer(**options)


def test_calls_that_do_not_fit():
    m, x = layer(), states(2, 3)
    with pytest.raises(ValueError, match=r"takes \(B, T, 24\), got shape \(2, 3, 23\)"):
        m(x[..., :23])
    with pytest.raises(ValueError, match=r"positions have shape \(2, 4\), expected \(2, 3\)"):
        m(x, positions=np.zeros((2, 4), int))
    with pytest.raises(ValueError, match="mask has shape"):
        m(x, mask=np.ones((2, 1, 3, 4), bool))
    with pytest.raises(RuntimeError, match="no_grad"):
        m(x, cache=m.new_cache(2, 3))
    with en.no_grad():
        cache = m.new_cache(2, 4)
        m(x, cache=cache)
        with pytest.raises(ValueError, match="holds 4 tokens, got 6"):
            m(x, cache=cache)
        assert cache.length == 3
        with pytest.raises(ValueError, match=r"expected \(2, T, 14\)"):
            m(x[:1, :1], cache=cache)
    with pytest.raises(ValueError, match=r"got \(1, 14\)"):
        LatentCache(np.zeros((1, 2, 14))).extend(np.zeros((1, 14)))

"""Muon: what Newton-Schulz makes of a spectrum, which parameters it is for, and AdamW for the rest."""

from __future__ import annotations

import numpy as np
import pytest

import entrenar as en
from entrenar.optim import AdamW, Muon, clip_factor, muon_groups, newton_schulz


def leaf(shape, seed=0, dtype=np.float32):
    rng = np.random.default_rng(seed)
    p = en.Tensor(rng.normal(size=shape).astype(dtype), True)
    p.grad = en.Tensor(rng.normal(size=shape).astype(dtype))
    return p


@pytest.mark.parametrize("shape", [(5, 8), (8, 5), (1, 6), (6, 1), (7, 7)])
def test_newton_schulz_iterates_the_singular_values(shape):
    x = np.random.default_rng(0).normal(size=shape)
    u, s, vt = np.linalg.svd(x, full_matrices=False)
    s = s / np.linalg.norm(x)
    for _ in range(5):
        s = 3.4445 * s - 4.775 * s**3 + 2.0315 * s**5
    np.testing.assert_allclose(newton_schulz(x), u * s @ vt, rtol=1e-9, atol=1e-9)
    assert 0.65 < s.min() <= s.max() < 1.25


def test_a_matrix_of_zeros_stays_one():
    assert not newton_schulz(np.zeros((3, 4), np.float32)).any()


def test_a_step_by_hand():
    """g of rank 1: u is 0.05 g + 0.95 * 0.05 g, its direction g's; r is 0.2 sqrt(8)."""
    p = en.Tensor(np.ones((8, 2)), True)
    g = np.outer(np.arange(1.0, 9), [3.0, 4.0])
    p.grad = en.Tensor(g)
    opt = Muon([p], lr=0.1, weight_decay=0.5)
    opt.step()
    s = 1.0
    for _ in range(5):
        s = 3.4445 * s - 4.775 * s**3 + 2.0315 * s**5
    np.testing.assert_allclose(p.data, 0.95 - 0.1 * 0.2 * np.sqrt(8) * s * g / np.linalg.norm(g), rtol=1e-12)
    np.testing.assert_allclose(opt.state[p]["momentum_buffer"], 0.05 * g)


@pytest.mark.parametrize("backend", ["numba", "numpy"])
def test_the_rest_takes_adamw_s_step_to_the_bit(backend):
    shapes = ((), (7,), (2, 3, 4), (4, 6))
    mine, other = [leaf(s) for s in shapes], [leaf(s) for s in shapes]
    options = dict(lr=0.01, betas=(0.8, 0.9), weight_decay=0.1)
    muon = Muon([{"params": mine[:3]}, {"params": mine[3:], "use_muon": False}], **options)
    adamw = AdamW(other, **options)
    with en.backend(backend):
        for _ in range(3):
            muon.step(scale=0.5)
            adamw.step(scale=0.5)
    for p, q in zip(mine, other, strict=True):
        np.testing.assert_array_equal(p.data, q.data)
        assert set(muon.state[p]) == {"step", "exp_avg", "exp_avg_sq"}


def test_scale_of_the_gradient_reaches_the_momentum():
    a, b = leaf((4, 6)), leaf((4, 6))
    first, second = Muon([a]), Muon([b])
    _, factor = clip_factor([a], 0.5)
    b.grad.data[...] *= np.float32(factor)
    first.step(scale=factor)
    second.step()
    np.testing.assert_array_equal(a.data, b.data)
    np.testing.assert_array_equal(first.state[a]["momentum_buffer"], second.state[b]["momentum_buffer"])


def test_momentum_in_bfloat16_is_rounded_stochastically():
    p = en.Tensor(np.ones((100, 100), np.float32).astype(en.bfloat16), True)
    p.grad = en.Tensor(np.ones((100, 100), np.float32).astype(en.bfloat16))
    opt = Muon([p], lr=1e-3, weight_decay=0.0, state_dtype="bfloat16", stochastic_rounding=True)
    for _ in range(200):
        opt.step()
    buffer = opt.state[p]["momentum_buffer"]
    assert buffer.dtype == en.bfloat16 and opt.state_bytes() == 20_000
    assert buffer.astype(np.float64).mean() == pytest.approx(1 - 0.95**200, rel=2e-3)
    s = 1.0
    for _ in range(5):
        s = 3.4445 * s - 4.775 * s**3 + 2.0315 * s**5
    # each entry of O(u) is s / 100: the weights follow though a step is a fiftieth of their spacing
    assert 1 - p.data.astype(np.float64).mean() == pytest.approx(200 * 1e-3 * 0.2 * 10 * s / 100, rel=0.1)


def test_what_is_out_of_range_is_named():
    p, v = leaf((2, 3)), leaf((3,))
    for options, message in (
        ({"ns_steps": 0}, r"ns_steps must be an integer in \[1, 100\), got 0"),
        ({"ns_steps": 2.5}, "ns_steps must be an integer"),
        ({"adjust_lr_fn": "match_rms"}, "got 'match_rms'. Did you mean 'match_rms_adamw'"),
        ({"ns_coefficients": (1, 2)}, "ns_coefficients must be 3 numbers"),
        ({"use_muon": 1}, "use_muon must be True, False or None"),
        ({"momentum": 1.0}, r"momentum must be a number in \[0.0, 1.0\), got 1.0"),
    ):
        with pytest.raises(ValueError, match=message):
            Muon([p], **options)
    with pytest.raises(ValueError, match=r"b has shape \(3,\)"):
        Muon([{"params": [("w", p), ("b", v)], "use_muon": True}])


class Net(en.nn.Module):
    def __init__(self):
        self.embed = en.nn.Embedding(11, 4)
        self.up = en.nn.Linear(4, 6)
        self.down = en.nn.Linear(6, 4, bias=False)
        self.norm = en.nn.LayerNorm(4)
        self.lm_head = en.nn.Linear(4, 11, bias=False)


def test_groups_of_a_model():
    net = Net()
    groups = muon_groups(net, 0.1)
    assert [([name for name, _ in g["params"]], g["use_muon"], g["weight_decay"]) for g in groups] == [
        (["up.weight", "down.weight"], True, 0.1),
        (["embed.weight", "lm_head.weight"], False, 0.1),
        (["up.bias", "norm.weight", "norm.bias"], False, 0.0),
    ]
    assert [n for n, _ in muon_groups(net, 0.1, adamw=["up.*"])[0]["params"]] == ["down.weight"]
    with pytest.raises(ValueError, match=r"no parameter is called 'up.weigth'. Did you mean 'up.weight'"):
        muon_groups(net, 0.1, adamw=["up.weigth"])
    opt = Muon(groups, lr=0.01)
    for p in net.parameters():
        p.grad = en.Tensor(np.ones_like(p.data))
    opt.step()
    assert set(opt.state[net.up.weight]) == {"step", "momentum_buffer"}
    assert set(opt.state[net.embed.weight]) == {"step", "exp_avg", "exp_avg_sq"}


def test_a_published_model_s_tied_head_is_its_embedding():
    config = en.models.GPT2Config(vocab_size=13, n_positions=8, n_embd=4, n_layer=1, n_head=2)
    hidden, ends, vectors = muon_groups(en.models.GPT2(config), 0.1)
    assert [n for n, _ in ends["params"]] == ["wte.weight", "wpe.weight"]
    assert all(p.ndim == 2 for _, p in hidden["params"]) and all(p.ndim == 1 for _, p in vectors["params"])

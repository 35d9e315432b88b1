"""GPT-2: names, shapes, initial values, errors, loss, cache."""

from __future__ import annotations

import numpy as np
import pytest

import entrenar as en
from entrenar.models import GPT2, GPT2Config, build
from entrenar.nn import StateDictError

SMALL = dict(vocab_size=11, n_positions=8, n_embd=12, n_layer=2, n_head=3)
RNG = np.random.default_rng(0)
IDS = RNG.integers(0, 11, (2, 7))


def small(**options):
    en.manual_seed(1)
    return GPT2(GPT2Config(**{**SMALL, **options}))


def test_defaults_are_gpt2_small():
    c = GPT2Config()
    assert (c.vocab_size, c.n_positions, c.n_embd, c.n_layer, c.n_head) == (50257, 1024, 768, 12, 12)
    assert (c.embd_pdrop, c.resid_pdrop, c.attn_pdrop, c.layer_norm_epsilon) == (0.1, 0.1, 0.1, 1e-5)


def test_names_and_layouts_are_hugging_face_s():
    shapes = {name: value.shape for name, value in small().state_dict().items()}
    block = {
        "ln_1.weight": (12,),
        "ln_1.bias": (12,),
        "attn.c_attn.weight": (12, 36),
        "attn.c_attn.bias": (36,),
        "attn.c_proj.weight": (12, 12),
        "attn.c_proj.bias": (12,),
        "ln_2.weight": (12,),
        "ln_2.bias": (12,),
        "mlp.c_fc.weight": (12, 48),
        "mlp.c_fc.bias": (48,),
        "mlp.c_proj.weight": (48, 12),
        "mlp.c_proj.bias": (12,),
    }
    expected = {"wte.weight": (11, 12), "wpe.weight": (8, 12), "ln_f.weight": (12,), "ln_f.bias": (12,)}
    expected |= {f"h.{n}.{name}": shape for n in range(2) for name, shape in block.items()}
    assert shapes == expected
    assert "lm_head.weight" in small(tie_word_embeddings=False).state_dict()


def test_initial_values():
    m = small(n_embd=48, n_layer=8, vocab_size=500)
    std = lambda name: m.state_dict()[name].data.std()
    assert std("wte.weight") == pytest.approx(0.02, rel=0.05)
    assert std("h.3.mlp.c_fc.weight") == pytest.approx(0.02, rel=0.05)
    assert std("h.3.mlp.c_proj.weight") == pytest.approx(0.02 / 4, rel=0.05)
    assert not m.h[0].attn.c_attn.bias.data.any() and (m.ln_f.weight.data == 1).all()


def test_hugging_face_state_dict_loads_as_it_is():
    m, other = small(), small()
    state = {f"transformer.{n}": v.numpy() + 1 for n, v in m.state_dict().items()}
    state["transformer.h.0.attn.bias"] = np.ones((1, 1, 8, 8), bool)
    state["lm_head.weight"] = state["transformer.wte.weight"]
    other.load_state_dict(state)
    np.testing.assert_array_equal(other.wte.weight.data, m.wte.weight.data + 1)
    state["lm_head.weight"] = state["lm_head.weight"] * 2
    with pytest.raises(StateDictError, match="tie_word_embeddings=False"):
        other.load_state_dict(state)


def test_logits_are_causal_and_loss_is_the_mean_over_tokens_that_count():
    m = small().eval()
    logits = m(IDS)
    assert logits.shape == (2, 7, 11) and logits.dtype == np.float32
    changed = IDS.copy()
    changed[:, 5] = (changed[:, 5] + 1) % 11
    np.testing.assert_array_equal(m(changed).data[:, :5], logits.data[:, :5])
    targets = np.roll(IDS, -1, axis=1)
    targets[0, 3:] = -100
    p = np.exp(logits.data - logits.data.max(-1, keepdims=True))
    nll = -np.log(p / p.sum(-1, keepdims=True))
    expected = np.mean([nll[b, t, targets[b, t]] for b in range(2) for t in range(7) if targets[b, t] >= 0])
    assert m.loss(IDS, targets).item() == pytest.approx(expected, rel=1e-5)
    assert m.loss(IDS, np.full_like(IDS, -100)).item() == 0
    assert m.loss(IDS, targets, reduction="none").shape == (2, 7)


def test_gradients_reach_every_parameter_and_match_finite_differences():
    m = small(embd_pdrop=0.0, resid_pdrop=0.0, attn_pdrop=0.0, n_layer=1).to("float64")
    targets = np.roll(IDS, -1, axis=1)
    m.loss(IDS, targets).backward()
    for name, p in m.named_parameters():
        direction = np.random.default_rng(3).normal(size=p.shape)
        start, h = p.data.copy(), 1e-5
        values = []
        for sign in (1, -1):
            p.write(start + sign * h * direction)
            values.append(m.loss(IDS, targets).item())
        p.write(start)
        assert (p.grad.data * direction).sum() == pytest.approx(
            (values[0] - values[1]) / (2 * h), rel=1e-6, abs=1e-9
        ), name


def test_tied_head_gets_both_gradients():
    tied, untied = (
        small(embd_pdrop=0.0, resid_pdrop=0.0, attn_pdrop=0.0),
        small(embd_pdrop=0.0, resid_pdrop=0.0, attn_pdrop=0.0, tie_word_embeddings=False),
    )
    untied.load_state_dict({**tied.state_dict(), "lm_head.weight": tied.wte.weight})
    for m in (tied, untied):
        m.loss(IDS, IDS).backward()
    np.testing.assert_allclose(
        tied.wte.weight.grad.data, (untied.wte.weight.grad + untied.lm_head.weight.grad).data, rtol=1e-4, atol=1e-7
    )


def test_dropout_only_in_training():
    m = small(embd_pdrop=0.3)
    a, b = m(IDS).data, m(IDS).data
    assert (a != b).any()
    m.eval()
    np.testing.assert_array_equal(m(IDS).data, m(IDS).data)


@pytest.mark.parametrize(
    ("ids", "error", "message"),
    [
        (np.zeros((1, 9), int), ValueError, "GPT2 has 8 positions, got 9 tokens"),
        (np.array([[0, 11]]), IndexError, r"id 11 at index \(0, 1\) is outside \[0, 11\)"),
        (np.array([[0, -1]]), IndexError, "id -1"),
        (np.array([0, 1]), ValueError, r"ids of shape \(B, T\).*got shape \(2,\)"),
        (np.zeros((1, 0), int), ValueError, "at least 1"),
        (np.zeros((1, 2)), TypeError, "ids must be integers, got dtype float64"),
    ],
)
def test_bad_ids(ids, error, message):
    with pytest.raises(error, match=message):
        small()(ids)


def test_bad_targets():
    with pytest.raises(ValueError, match=r"targets has shape \(2, 6\), expected that of the ids, \(2, 7\)"):
        small().loss(IDS, IDS[:, 1:])
    with pytest.raises(IndexError, match="target 11"):
        small().loss(IDS, np.full_like(IDS, 11))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_embd": 10, "n_head": 3}, "n_embd=10 is not divisible by n_head=3"),
        ({"n_layer": 0}, "n_layer must be a positive integer, got 0"),
        ({"vocab_size": 3.5}, "vocab_size must be a positive integer"),
        ({"attn_pdrop": 1.0}, r"attn_pdrop must be in \[0, 1\)"),
        ({"activation_function": "gelu_nwe"}, "Did you mean 'gelu_new'"),
    ],
)
def test_bad_configurations(options, message):
    with pytest.raises(ValueError, match=message):
        GPT2Config(**options)


def test_table():
    assert isinstance(build("gpt2", SMALL), GPT2)
    with pytest.raises(ValueError, match="Did you mean 'gpt2'"):
        build("gpt-2", {})
    with pytest.raises(TypeError, match="Did you mean 'n_layer'"):
        build("gpt2", {"n_layers": 3})


def test_cached_logits_are_those_of_the_whole_text():
    m = small().eval()
    cache = m.new_cache(2)
    with en.no_grad():
        parts = [m(IDS[:, :3], cache=cache).data] + [m(IDS[:, i : i + 1], cache=cache).data for i in range(3, 7)]
        np.testing.assert_allclose(np.concatenate(parts, 1), m(IDS).data, atol=2e-6)
        several = m(IDS[:, 3:], cache=m_cache(m)).data  # several more at a time
    np.testing.assert_allclose(several, m(IDS).data[:, 3:], atol=2e-6)


def m_cache(m):
    cache = m.new_cache(2)
    m(IDS[:, :3], cache=cache)
    return cache


def test_hooks_and_replaced_modules_are_seen():
    config = GPT2Config(vocab_size=11, n_positions=8, n_embd=12, n_layer=1, n_head=2)
    model = GPT2(config).eval()
    ids = np.array([[1, 2, 3]])
    before, seen = model(ids), []
    watched = ("ln_1", "attn", "attn.c_attn", "attn.c_proj", "ln_2", "mlp", "mlp.c_fc", "mlp.c_proj")
    modules = dict(model.h[0].named_modules())
    for name in watched:
        modules[name].register_forward_hook(lambda module, args, y, name=name: seen.append(name))
    after = model(ids)
    assert seen == ["ln_1", "attn.c_attn", "attn.c_proj", "attn", "ln_2", "mlp.c_fc", "mlp.c_proj", "mlp"]
    np.testing.assert_allclose(after.data, before.data, rtol=1e-5, atol=1e-6)

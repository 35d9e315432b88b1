"""What the loss of every decoder does with ignored, wrong and weighted targets."""

import numpy as np
import pytest

import entrenar as en
from entrenar.models import MODELS, build
from entrenar.models.decoder import Decoder

LLAMA = dict(vocab_size=11, hidden_size=12, intermediate_size=20, num_hidden_layers=1, num_attention_heads=2)
LLAMA["num_key_value_heads"] = 1
OPTIONS = {"gpt2": dict(vocab_size=11, n_positions=8, n_embd=12, n_layer=1, n_head=2)}
DECODERS = sorted(name for name, (_, cls) in MODELS.items() if issubclass(cls, Decoder))
RNG = np.random.default_rng(0)
IDS, TARGETS = RNG.integers(0, 11, (2, 2, 6))


@pytest.fixture(params=DECODERS)
def model(request):
    en.manual_seed(0)
    return build(request.param, OPTIONS.get(request.param, LLAMA)).to("float64").eval()


def per_token(model):
    """-log p of each target, from the logits."""
    logits = model(IDS).data
    logs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    return -np.take_along_axis(logs, TARGETS[..., None], -1)[..., 0]


def test_the_loss_is_that_of_the_logits_in_every_reduction(model):  # case 82
    tokens = per_token(model)
    kept = np.ones((2, 6), bool)
    kept[0, :3] = kept[1, 5] = False
    targets = np.where(kept, TARGETS, -100)
    np.testing.assert_allclose(model.loss(IDS, targets, reduction="none").data, np.where(kept, tokens, 0), rtol=1e-9)
    assert model.loss(IDS, targets, reduction="sum").item() == pytest.approx(tokens[kept].sum(), rel=1e-12)
    assert model.loss(IDS, targets).item() == pytest.approx(tokens[kept].mean(), rel=1e-12)
    for mask in (kept, kept.astype(int), en.tensor(kept.astype(np.float64))):
        assert model.loss(IDS, TARGETS, mask).item() == pytest.approx(tokens[kept].mean(), rel=1e-12)


def test_all_targets_ignored_is_zero_with_zero_gradients(model):  # case 79
    for targets, mask in ((np.full((2, 6), -100), None), (TARGETS, np.zeros((2, 6)))):
        for reduction in ("mean", "sum"):
            model.zero_grad()
            loss = model.loss(IDS, targets, mask, reduction=reduction)
            loss.backward()
            assert loss.item() == 0
            assert all(p.grad is None or not p.grad.data.any() for p in model.parameters())
        assert not model.loss(IDS, targets, mask, reduction="none").data.any()


def test_weights_of_tokens(model):
    weights = RNG.uniform(0, 2, (2, 6))
    weights[1, 2] = 0
    tokens = per_token(model)
    assert model.loss(IDS, TARGETS, weights).item() == pytest.approx((tokens * weights).sum() / weights.sum(), rel=1e-9)
    np.testing.assert_allclose(model.loss(IDS, TARGETS, weights, reduction="none").data, tokens * weights, rtol=1e-9)


@pytest.mark.parametrize("wrong", [-4, 11, -1])
def test_a_target_that_is_no_token_is_named_with_its_place(model, wrong):  # case 81
    targets = TARGETS.copy()
    targets[1, 3] = wrong
    for reduction in ("mean", "sum", "none"):
        with pytest.raises(IndexError, match=rf"target {wrong} .*11"):
            model.loss(IDS, targets, reduction=reduction)


@pytest.mark.parametrize("mask", [np.full((2, 6), -1.0), np.full((2, 6), np.nan), np.full((2, 6), np.inf)])
def test_bad_weights(model, mask):
    with pytest.raises(ValueError, match="negative or non-finite"):
        model.loss(IDS, TARGETS, mask)


def test_shapes_that_do_not_fit(model):
    with pytest.raises(ValueError, match=r"mask has shape \(2, 5\), expected that of the ids, \(2, 6\)"):
        model.loss(IDS, TARGETS, np.ones((2, 5)))
    with pytest.raises(ValueError, match=r"targets has shape \(2, 5\)"):
        model.loss(IDS, TARGETS[:, 1:])


def test_packed_texts_have_the_loss_of_each_alone(model):
    """Two texts in a row, each with its own block of the mask and its own positions."""
    at = np.array([0, 1, 2, 3, 0, 1])
    first = np.arange(6) < 4
    block = (first[:, None] == first[None])[None].repeat(2, 0)
    packed = model.loss(IDS, TARGETS, attention_mask=block, position_ids=at, reduction="none").data
    for part in (slice(0, 4), slice(4, 6)):
        alone = model.loss(IDS[:, part], TARGETS[:, part], reduction="none").data
        np.testing.assert_allclose(packed[:, part], alone, rtol=1e-9)
    changed = IDS.copy()
    changed[:, :4] = (changed[:, :4] + 1) % 11
    after = model.loss(changed, TARGETS, attention_mask=block, position_ids=at, reduction="none").data
    np.testing.assert_array_equal(after[:, 4:], packed[:, 4:])  # to the bit

"""The rows of en.conventions() about losses, clipping and optimizers, by key."""

import warnings

import numpy as np
import pytest

import entrenar as en

inf = np.inf


def leaf(values):
    return en.tensor(np.array(values, np.float64), requires_grad=True)


def test_loss_targets():
    en.manual_seed(0)
    model = en.models.GPT2(en.models.GPT2Config(vocab_size=7, n_positions=4, n_embd=8, n_layer=1, n_head=2)).eval()
    ids, targets = np.array([[1, 2, 3]]), np.array([[2, -100, 4]])
    logits = model(ids).data[0].astype(np.float64)
    logp = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    assert model.loss(ids, targets).item() == pytest.approx(-(logp[0, 2] + logp[2, 4]) / 2, rel=1e-5)


def test_all_ignored():  # cases 79, 81, 82
    x = leaf(np.ones((5, 3)))
    ignored = np.full(5, -100)
    loss = en.cross_entropy(x, ignored)
    loss.backward()
    assert loss.item() == 0
    assert not x.grad.data.any()
    assert en.cross_entropy(x, ignored, reduction="sum").item() == 0
    assert en.cross_entropy(x, ignored, reduction="none").tolist() == [0] * 5
    with pytest.raises((ValueError, IndexError), match=r"-4"):
        en.cross_entropy(leaf(np.ones((2, 3))), np.array([0, -4]))
    for reduction in ("mean", "sum", "none"):
        assert np.isfinite(en.cross_entropy(x, np.full(5, 255), ignore_index=255, reduction=reduction).data).all()


def test_label_smoothing():  # cases 84, 85
    logits, targets = leaf([[1.0, 2.0], [3.0, 0.4]]), np.array([-100, 1])
    weights = np.array([0.2, 0.3])
    full = en.cross_entropy(logits, targets, weight=weights, label_smoothing=0.1).item()
    assert full == pytest.approx(2.5405, abs=5e-5)
    assert en.cross_entropy(logits, targets, label_smoothing=0.1).item() == pytest.approx(2.5416, abs=5e-5)
    for reduction in ("mean", "sum"):
        a = en.cross_entropy(logits, targets, label_smoothing=0.1, reduction=reduction).item()
        assert a == pytest.approx(
            en.cross_entropy(logits[1:], targets[1:], label_smoothing=0.1, reduction=reduction).item()
        )


def test_clip_grad_norm():  # case 87
    p = en.nn.Parameter(np.zeros(100, np.float32))
    p.grad = en.tensor(np.full(100, 1e20, np.float32))
    assert en.optim.clip_grad_norm_([p], 1.0) == pytest.approx(1e21)
    np.testing.assert_allclose(p.grad.data, 0.1, rtol=1e-6)
    p.grad = en.tensor(np.array([inf] + [1.0] * 99, np.float32))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert not np.isfinite(en.optim.clip_grad_norm_([p], 1.0))
    assert p.grad.data[1] == 1
    with pytest.raises(en.optim.NonFiniteGradient, match="parameter 0"):
        en.optim.clip_grad_norm_([p], 1.0, error_if_nonfinite=True)


def test_adamw():  # cases 89, 90
    p = en.nn.Parameter(np.ones(1))
    p.grad = en.tensor(np.ones(1))
    en.optim.AdamW([p], lr=0.1, weight_decay=0.1).step()
    assert p.data[0] == pytest.approx(0.89)
    q = en.nn.Parameter(np.ones(1))
    q.grad = en.tensor(np.array([1e-8]))
    en.optim.Adam([q], lr=0.1, eps=1e-8).step()
    assert q.data[0] == pytest.approx(1 - 0.1 * 0.5)

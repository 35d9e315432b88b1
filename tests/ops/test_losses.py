"""Losses: PyTorch's values, ignored rows, weights, smoothing, certain and impossible classes, layouts."""

import math

import numpy as np
import pytest

import entrenar as en

RNG = np.random.default_rng(0)
inf = math.inf


def leaf(values, dtype=np.float64):
    return en.tensor(np.asarray(values, dtype), requires_grad=True)


def by_hand(x, targets):
    """Cross entropy per row of (N, C)."""
    return np.log(np.exp(x).sum(-1)) - x[np.arange(len(x)), targets]


def test_cross_entropy():
    x, t = RNG.normal(size=(5, 3)), np.array([0, 2, 1, 1, 0])
    rows = by_hand(x, t)
    assert en.cross_entropy(x, t).item() == pytest.approx(rows.mean())
    assert en.cross_entropy(x, t, reduction="sum").item() == pytest.approx(rows.sum())
    np.testing.assert_allclose(en.cross_entropy(x, t, reduction="none"), rows)
    with pytest.raises(ValueError, match="reduction='average'"):
        en.cross_entropy(x, t, reduction="average")


def test_cross_entropy_with_the_class_axis_last_or_second():
    x, t = RNG.normal(size=(2, 3, 4)), RNG.integers(0, 4, (2, 3))
    last = en.cross_entropy(x, t, reduction="none")
    assert last.shape == (2, 3)
    np.testing.assert_allclose(last, by_hand(x.reshape(6, 4), t.ravel()).reshape(2, 3))
    np.testing.assert_allclose(en.cross_entropy(np.moveaxis(x, -1, 1), t, axis=1, reduction="none"), last)
    assert en.cross_entropy(x[0, 0], t[0, 0]).shape == ()
    with pytest.raises(ValueError, match=r"targets have shape \(2, 3\), expected \(2, 4\)"):
        en.cross_entropy(x, t, axis=1)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("view", [lambda a: a.T, lambda a: a[::2], lambda a: a[:, ::-1]])
def test_cross_entropy_of_a_view_is_that_of_its_copy(view, dtype):  # cases 179, 180
    x = RNG.normal(size=(8, 8)).astype(dtype)
    t = RNG.integers(0, 8, len(view(x)))
    results = []
    for value in (view(x), np.ascontiguousarray(view(x))):
        a = en.Tensor(value, requires_grad=True)
        loss = en.cross_entropy(a, t, reduction="none")
        results.append((loss.data.tobytes(), en.grad(loss.sum(), a).data.tobytes()))
    assert results[0] == results[1]
    assert len(set(en.cross_entropy(view(x), t, reduction="none").tolist())) > 1


@pytest.mark.parametrize("backend", ["numba", "numpy"])
@pytest.mark.parametrize("ignore", [-100, 255, 1])
def test_ignored_rows_count_nothing_whatever_the_reduction(backend, ignore):  # cases 79, 82
    with en.backend(backend):
        x = leaf(RNG.normal(size=(4, 3)))
        t = np.array([2, ignore, 0, ignore])
        rest = np.array([0, 2])
        for reduction in ("mean", "sum"):
            some = en.cross_entropy(x, t, ignore_index=ignore, reduction=reduction)
            assert some.item() == pytest.approx(en.cross_entropy(x.data[rest], t[rest], reduction=reduction).item())
        rows = en.cross_entropy(x, t, ignore_index=ignore, reduction="none")
        assert rows.data[[1, 3]].tolist() == [0, 0]
        assert not en.grad(rows.sum(), x).data[[1, 3]].any()
        for reduction in ("mean", "sum", "none"):
            none = en.cross_entropy(x, np.full(4, ignore), ignore_index=ignore, reduction=reduction)
            assert not none.data.any()
            assert not en.grad(none.sum(), x).data.any()


def test_an_ignored_row_may_hold_anything():
    x = leaf([[np.nan, inf], [1.0, 2.0]])
    loss = en.cross_entropy(x, np.array([-100, 0]))
    assert loss.item() == pytest.approx(math.log1p(math.e))
    assert en.grad(loss, x).data[0].tolist() == [0, 0]


@pytest.mark.parametrize("target", [-4, 3])
def test_a_target_that_is_no_class_is_named_with_its_index(target):  # case 81
    with pytest.raises(IndexError, match=rf"target {target} at index \(1,\) is outside \[0, 3\)"):
        en.cross_entropy(RNG.normal(size=(2, 3)), np.array([0, target]))


def test_label_smoothing_and_weights():  # cases 84, 85
    x, w = RNG.normal(size=(3, 4)), RNG.uniform(0.5, 2, 4)
    t = np.array([3, 0, 3])
    each = np.log(np.exp(x).sum(-1, keepdims=True)) - x
    rows = 0.9 * w[t] * each[np.arange(3), t] + 0.1 / 4 * (each * w).sum(-1)
    np.testing.assert_allclose(en.cross_entropy(x, t, weight=w, label_smoothing=0.1, reduction="none"), rows)
    assert en.cross_entropy(x, t, weight=w, label_smoothing=0.1).item() == pytest.approx(rows.sum() / w[t].sum())
    logits, targets = np.array([[1.0, 2.0], [3.0, 0.4]]), np.array([-100, 1])
    weighted = en.cross_entropy(logits, targets, weight=np.array([0.2, 0.3]), label_smoothing=0.1)
    assert weighted.item() == pytest.approx(2.5405, abs=5e-5)
    assert en.cross_entropy(logits, targets, label_smoothing=0.1).item() == pytest.approx(2.5416, abs=5e-5)
    with pytest.raises(TypeError, match="weight is a constant"):
        en.cross_entropy(x, t, weight=leaf(w))
    with pytest.raises(ValueError, match=r"weight has shape \(3,\), expected \(4,\)"):
        en.cross_entropy(x, t, weight=w[:3])


def test_probabilities_as_targets():
    x, t = RNG.normal(size=(3, 4)), np.array([3, 0, 1])
    hot = np.eye(4)[t]
    for kwargs in ({}, {"label_smoothing": 0.2}, {"reduction": "sum"}, {"reduction": "none"}):
        np.testing.assert_allclose(en.cross_entropy(x, hot, **kwargs), en.cross_entropy(x, t, **kwargs))
    certain = leaf([[0.0, -inf]])
    loss = en.cross_entropy(certain, np.array([[1.0, 0.0]]))
    assert loss.item() == 0
    assert en.grad(loss, certain).tolist() == [[0, 0]]


def test_cross_entropy_is_stable():
    x = leaf([[1e4, 0.0, -1e4]])
    loss = en.cross_entropy(x, np.array([2]))
    assert loss.item() == 2e4
    assert en.grad(loss, x).tolist() == [[1, 0, -1]]
    assert en.cross_entropy(np.array([[-inf, 0.0]]), np.array([0])).item() == inf


def test_16_bit_logits_are_averaged_in_float32():
    x = en.zeros(4096, 2, dtype="bfloat16", requires_grad=True)
    loss = en.cross_entropy(x, np.zeros(4096, int))
    assert loss.dtype == en.bfloat16
    assert float(loss.data) == float(np.asarray(math.log(2)).astype(en.bfloat16))


def test_nll_loss():
    x, t = np.log(RNG.dirichlet(np.ones(3), 4)), np.array([0, 2, -100, 1])
    picked = -x[[0, 1, 3], [0, 2, 1]]
    assert en.nll_loss(x, t).item() == pytest.approx(picked.mean())
    np.testing.assert_allclose(
        en.nll_loss(en.log_softmax(x), t, reduction="none"), en.cross_entropy(x, t, reduction="none")
    )


# between two arrays -------------------------------------------------------------------------------------------
def test_elementwise_losses():
    x, t = RNG.normal(size=(2, 3)), RNG.normal(size=(2, 3))
    d = np.abs(x - t)
    assert en.mse_loss(x, t).item() == pytest.approx((d**2).mean())
    assert en.l1_loss(x, t, reduction="sum").item() == pytest.approx(d.sum())
    np.testing.assert_allclose(
        en.huber_loss(x, t, delta=0.5, reduction="none"), np.where(d <= 0.5, d * d / 2, 0.5 * (d - 0.25))
    )
    with pytest.raises(ValueError, match="delta=0"):
        en.huber_loss(x, t, delta=0)


@pytest.mark.parametrize(
    "loss", [en.mse_loss, en.l1_loss, en.huber_loss, en.kl_div, en.binary_cross_entropy_with_logits]
)
def test_shapes_are_not_stretched_silently(loss):
    with pytest.raises(ValueError, match=r"\(2, 3\) and target \(3,\).*broadcast_to"):
        loss(np.zeros((2, 3)), np.zeros(3))


def test_kl_div():  # case 156
    soft = lambda a: np.exp(a / 2) / np.exp(a / 2).sum()
    s, t = np.array([[1.0, 2.0, 3.0]]), np.array([[3.0, 2.0, 1.0]])
    assert en.kl_div(np.log(soft(s)), soft(t)).item() == pytest.approx(0.32016, abs=5e-6)
    p, q = RNG.dirichlet(np.ones(4), 3), RNG.dirichlet(np.ones(4), 3)
    rows = (p * np.log(p / q)).sum(-1)
    assert en.kl_div(np.log(q), p).item() == pytest.approx(rows.mean())  # case 158: by rows, not by elements
    assert en.kl_div(np.log(q), p, reduction="mean").item() == pytest.approx(rows.sum() / 12)
    assert en.kl_div(np.log(q), np.log(p), log_target=True).item() == pytest.approx(rows.mean())
    assert en.kl_div(np.array([[0.0, -inf]]), np.array([[1.0, 0.0]])).item() == 0


def test_binary_cross_entropy_with_logits():
    x, t = RNG.normal(size=(2, 3)), RNG.random((2, 3))
    s, w, pos = 1 / (1 + np.exp(-x)), RNG.random((2, 3)), RNG.uniform(1, 3, 3)
    expected = -w * (pos * t * np.log(s) + (1 - t) * np.log(1 - s))
    made = en.binary_cross_entropy_with_logits(x, t, weight=w, pos_weight=pos, reduction="none")
    np.testing.assert_allclose(made, expected)
    sure = leaf([-inf, inf, 800.0, -800.0])
    loss = en.binary_cross_entropy_with_logits(sure, np.array([0.0, 1.0, 0.0, 1.0]), reduction="none")
    assert loss.tolist() == [0, 0, 800, 800]
    assert en.grad(loss.sum(), sure).tolist() == [0, 0, 1, -1]

"""Mixture of experts: against the dense formula, the balance loss and how it is fetched, statistics, errors."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

import entrenar as en
from entrenar.models.moe import MoE, balance_losses

RNG = np.random.default_rng(0)


def mixture(dtype=np.float64, **options):
    en.manual_seed(5)
    return MoE(**{"width": 6, "hidden": 10, **options}).to(dtype)


def tokens(*shape, dtype=np.float64):
    return en.tensor(RNG.normal(size=(*shape, 6)).astype(dtype), requires_grad=True)


def dense(m, x):
    """Every expert on every token, weighted by a masked softmax."""
    p = en.softmax(m.gate(x))
    rank = np.argsort(np.argsort(-p.data, axis=-1, kind="stable"), axis=-1)
    w = p * (rank < m.top).astype(p.dtype)
    if m.renormalise:
        w = w / w.sum(axis=-1, keepdims=True)
    return sum(w[..., e : e + 1] * expert(x) for e, expert in enumerate(m.experts))


@pytest.mark.parametrize("options", [{}, {"top": 1}, {"top": 4}, {"experts": 7, "top": 3}, {"renormalise": False}])
def test_output_and_gradients_are_those_of_the_dense_formula(options):
    m, x = mixture(**options), tokens(2, 9)
    weights = RNG.normal(size=x.shape)
    found = []
    for run in (m, lambda x: dense(m, x)):
        x.grad = None
        m.zero_grad()
        y = run(x)
        (y * weights).sum().backward()
        found.append([y.detach().numpy(), x.grad.numpy(), *(p.grad.numpy() for p in m.parameters())])
    assert len(found[0]) == 3 + 3 * len(m.experts)
    for ours, expected in zip(*found, strict=True):
        np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-13 * max(1.0, np.abs(expected).max()))
    router = found[0][2]
    if options.get("top") == 1:
        assert np.abs(router).max() < 1e-13  # one weight over its own sum is constant
    else:
        assert np.abs(router).max() > 1e-3


def test_defaults_are_four_experts_and_the_best_two():
    m = MoE(6, 10)
    assert (len(m.experts), m.top, m.balance, m.renormalise) == (4, 2, 0.1, True)
    shapes = {name: p.shape for name, p in m.named_parameters()}
    assert shapes["gate.weight"] == (4, 6) and shapes["experts.3.up_proj.weight"] == (10, 6)
    assert shapes["experts.0.down_proj.weight"] == (6, 10) and len(shapes) == 13


def test_each_expert_runs_once_on_its_own_tokens_and_none_is_dropped():
    m, x, given = mixture(), tokens(40), {}
    for e, expert in enumerate(m.experts):
        expert.register_forward_pre_hook(lambda module, args, e=e: given.setdefault(e, []).append(args[0].data))
    m(x)
    p = en.softmax(m.gate(x)).data
    chosen = np.argsort(-p, axis=1)[:, :2]
    for e in range(4):
        (rows,) = given[e]
        np.testing.assert_array_equal(rows, x.data[(chosen == e).any(1)])
    assert m.statistics.tokens.sum() == 80


def test_all_tokens_on_two_experts_are_all_served_and_the_others_have_zero_gradients():
    m = mixture()
    m.gate.weight.write(np.array([[9.0], [0.0], [8.0], [0.0]]) * np.ones((4, 6)))
    x = en.tensor(np.abs(RNG.normal(size=(30, 6))))
    y = m(x)
    np.testing.assert_array_equal(m.statistics.tokens, [30, 0, 30, 0])
    np.testing.assert_allclose(y.data, dense(m, x).data, rtol=0, atol=1e-13)
    y.sum().backward()
    for e, used in enumerate((True, False, True, False)):
        for p in m.experts[e].parameters():
            assert p.grad.shape == p.shape and bool(p.grad.numpy().any()) == used


def test_equal_probabilities_take_the_first_experts():
    m = mixture()
    m.gate.weight.write(0.0)
    m(tokens(3))
    np.testing.assert_array_equal(m.statistics.tokens, [3, 3, 0, 0])


def test_a_token_s_output_does_not_depend_on_the_others_and_runs_repeat():
    m, x = mixture(), tokens(20)
    y = m(x).data
    np.testing.assert_array_equal(m(x).data, y)
    for t in (0, 7):
        np.testing.assert_allclose(m(x[t]).data, y[t], rtol=0, atol=1e-14)


def expected_balance(m, x, counted=slice(None)):
    p = en.softmax(m.gate(x)).data[counted]
    chosen = np.argsort(-p, axis=1, kind="stable")[:, : m.top]
    f = np.array([(chosen == e).mean() for e in range(p.shape[1])])
    return p.shape[1] * (f * p.mean(0)).sum()


def test_the_balance_loss_is_weight_times_experts_times_frequency_times_probability():
    m, x = mixture(experts=5, balance=0.25), tokens(31)
    _, loss = m.routed(x)
    assert loss.shape == () and loss.item() == pytest.approx(0.25 * expected_balance(m, x), rel=1e-13)
    m.gate.weight.write(0.0)  # equal probabilities: 1, however the choices fall
    assert m.routed(x)[1].item() == pytest.approx(0.25, rel=1e-14)


def test_the_balance_loss_has_the_gradient_of_the_mean_probability_at_fixed_frequencies():
    m, x = mixture(), tokens(25)
    _, loss = m.routed(x)
    loss.backward()
    ours = m.gate.weight.grad.numpy()
    f = m.statistics.tokens / 50
    w, step = m.gate.weight.data.copy(), 1e-6
    at = lambda v: 0.1 * 4 * (f * en.softmax(en.tensor(x.data @ v.T)).data.mean(0)).sum()
    for i in np.ndindex(w.shape):
        d = np.zeros_like(w)
        d[i] = step
        assert ours[i] == pytest.approx((at(w + d) - at(w - d)) / (2 * step), abs=1e-9)
    assert np.abs(ours).max() > 1e-5 and x.grad is not None
    assert all(p.grad is None for p in m.experts.parameters())


def test_descending_the_balance_loss_balances():
    m, x = mixture(), tokens(64)
    m.gate.weight.write(m.gate.weight.data + np.array([[0.6], [0.0], [0.0], [0.0]]) * x.data.mean(0) * 20)
    before = m.routed(x)[1].item()
    for _ in range(200):
        m.zero_grad()
        m.routed(x)[1].backward()
        m.gate.weight.write(m.gate.weight.data - 2.0 * m.gate.weight.grad.data)
    assert m.routed(x)[1].item() < before
    assert m.routed(x)[1].item() == pytest.approx(0.1, rel=0.02)


def test_balance_losses_collects_every_layer_in_order_and_nests():
    first, second, x = mixture(), mixture(balance=0.5), tokens(2, 8)
    with balance_losses() as outer:
        y = first(x)
        with balance_losses() as inner:
            second(y)
        second(y)
    assert [len(outer), len(inner)] == [2, 1]
    assert outer[0].item() == first.routed(x)[1].item() and outer[1].item() == inner[0].item()
    (y.sum() + sum(outer)).backward()
    assert second.gate.weight.grad is not None
    with balance_losses() as none:
        pass
    assert none == []


def test_outside_of_balance_losses_no_graph_is_kept():
    m = mixture()
    x = tokens(8)
    y = m(x)
    held = weakref.ref(y)
    statistics = m.statistics
    assert not any(isinstance(part, en.Tensor) for part in statistics)
    del y
    gc.collect()
    assert held() is None
    reachable, seen = [m.__dict__], set()
    while reachable:  # nothing below the module but its parameters
        value = reachable.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, dict):
            reachable.extend(value.values())
        elif isinstance(value, en.nn.Module):
            reachable.append(value.__dict__)
        elif isinstance(value, en.Tensor):
            assert isinstance(value, en.nn.Parameter)


def test_a_call_that_is_not_recorded_does_not_pass_for_a_loss():
    m, x = mixture(), tokens(8)
    with balance_losses() as found, en.no_grad(), pytest.raises(RuntimeError, match="under no_grad too"):
        m(x)
    assert found == []
    with en.no_grad(), balance_losses() as found:  # evaluation: nothing is recorded on purpose
        m(x)
    assert found[0].item() == m.routed(x)[1].item()


def test_checkpointed_layers_give_the_same_gradients_by_both_ways():
    m, x, found = mixture(balance=2.0), tokens(8), []

    def note(loss):
        m.zero_grad()
        x.grad = None
        loss.backward()
        found.append([x.grad.numpy(), *(p.grad.numpy() for p in m.parameters())])

    y, loss = m.routed(x)
    note(y.sum() + loss)
    y, loss = en.checkpoint(m.routed, x)
    note(y.sum() + loss)
    with balance_losses() as balance:
        y = en.checkpoint(m, x)
    assert len(balance) == 1
    note(y.sum() + sum(balance))
    for other in found[1:]:
        for ours, expected in zip(other, found[0], strict=True):
            np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-13)


def test_padding_is_routed_but_does_not_count():
    m, x = mixture(), tokens(3, 7)
    counted = RNG.random((3, 7)) > 0.4
    y, loss = m.routed(x, counted)
    np.testing.assert_array_equal(y.data, m.routed(x)[0].data)
    flat, rows = en.tensor(x.data.reshape(-1, 6)), counted.reshape(-1)
    assert loss.item() == pytest.approx(0.1 * expected_balance(m, flat, rows), rel=1e-13)
    m(x, mask=counted)
    assert m.statistics.tokens.sum() == 2 * counted.sum()
    np.testing.assert_allclose(m.statistics.probability, en.softmax(m.gate(flat)).data[rows].mean(0), rtol=1e-13)
    _, nothing = m.routed(x, np.zeros((3, 7), bool))
    assert nothing.item() == 0.0 and not m.statistics.tokens.any()


def test_no_tokens():
    m = mixture()
    y, loss = m.routed(en.tensor(np.zeros((0, 3, 6))))
    assert y.shape == (0, 3, 6) and loss.item() == 0.0
    np.testing.assert_array_equal(m.statistics.tokens, [0, 0, 0, 0])


def test_statistics_before_any_call_and_in_evaluation():
    m = mixture()
    assert m.statistics is None
    with en.no_grad():
        m.eval()(tokens(5))
    assert m.statistics.tokens.dtype == np.int64 and m.statistics.tokens.sum() == 10
    assert m.statistics.probability.sum() == pytest.approx(1.0, rel=1e-12)


def test_the_router_of_16_bit_weights_is_float32():
    m = mixture("bfloat16")
    x = tokens(50).detach().astype("bfloat16")
    y, loss = m.routed(x)
    assert y.dtype == x.dtype and loss.dtype == np.float32
    wide = mixture("bfloat16").to(np.float32)
    full, _ = wide.routed(x.astype(np.float32))
    np.testing.assert_array_equal(m.statistics.tokens.sum(), 100)
    same = (
        np.argsort(m.gate(x).astype(np.float32).data)[:, 2:] == np.argsort(wide.gate(x.astype(np.float32)).data)[:, 2:]
    )
    rows = same.all(1)
    assert rows.sum() > 40
    np.testing.assert_allclose(
        y.astype(np.float32).data[rows], full.data[rows], rtol=0, atol=0.02 * np.abs(full.data).max()
    )
    (y.astype(np.float32).sum() + loss).backward()
    assert m.gate.weight.grad.dtype == m.gate.weight.dtype


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"top": 5}, "top=5 must be an integer from 1 to experts=4"),
        ({"top": 0}, "top=0"),
        ({"top": True}, "top=True"),
        ({"experts": 0, "top": 1}, "experts=0"),
        ({"balance": -0.1}, "balance=-0.1"),
        ({"balance": float("nan")}, "balance=nan"),
        ({"hidden": 0}, "positive"),
    ],
)
def test_sizes_that_do_not_fit(options, part):
    with pytest.raises(ValueError, match=part):
        mixture(**options)


def test_calls_that_do_not_fit():
    m = mixture()
    with pytest.raises(ValueError, match=r"takes \(\.\.\., 6\), got shape \(4, 3\)"):
        m(en.tensor(np.zeros((4, 3))))
    with pytest.raises(ValueError, match=r"mask has shape \(3,\), expected \(4,\)"):
        m(en.tensor(np.zeros((4, 6))), mask=np.ones(3, bool))
    with pytest.raises(TypeError, match="booleans, got int64"):
        m(en.tensor(np.zeros((4, 6))), mask=np.ones(4, np.int64))

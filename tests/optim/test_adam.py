"""The two facts about AdamW that implementations disagree on, SGD by hand, state in bfloat16."""

from __future__ import annotations

import numpy as np
import pytest

import entrenar as en
from entrenar.optim import SGD, Adam, AdamW, decay_groups, set_lr
from entrenar.optim.rounding import NO_KEY, key, noise, stochastic


def stepped(make, value, gradient, **options):
    p = en.tensor(np.array([value]), requires_grad=True)
    p.grad = en.tensor(np.array([gradient]))
    make([p], **options).step()
    return p.item()


def test_decay_is_first_and_on_the_old_weights():
    assert stepped(AdamW, 1.0, 1.0, lr=0.1, weight_decay=0.1) == pytest.approx(0.89, abs=1e-8)


def test_eps_stands_outside_the_corrected_root():
    moved = -stepped(AdamW, 0.0, 1e-8, lr=1.0, eps=1e-8, weight_decay=0.0)
    assert moved == pytest.approx(0.5, rel=1e-9)


def test_adam_couples_its_decay():
    assert stepped(Adam, 1.0, 0.0, lr=0.1, weight_decay=0.5) == pytest.approx(0.9, abs=1e-7)


def test_sgd_momentum_and_nesterov():
    for nesterov, expected in ((False, [-0.1, -0.29, -0.561]), (True, [-0.19, -0.461, -0.8049])):
        p = en.tensor(np.array([0.0]), requires_grad=True)
        opt = SGD([p], lr=0.1, momentum=0.9, nesterov=nesterov)
        for value in expected:  # v = 1, 1.9, 2.71
            p.grad = en.tensor(np.array([1.0]))
            opt.step()
            assert p.item() == pytest.approx(value, rel=1e-12)
    with pytest.raises(ValueError, match="needs a momentum"):
        SGD([p], nesterov=True)


def test_set_lr_keeps_the_ratio_of_groups():
    a, b = (en.tensor([1.0], requires_grad=True) for _ in range(2))
    opt = AdamW([{"params": a}, {"params": b, "lr": 0.4}], lr=0.1)
    set_lr(opt, 0.05, peak=0.1)
    assert [g["lr"] for g in opt.param_groups] == [0.05, 0.2]


def test_decay_groups_spare_vectors():
    net = en.nn.Linear(2, 3)
    groups = decay_groups(net.named_parameters(), 0.1)
    assert [(g["params"][0][0], g["weight_decay"]) for g in groups] == [("weight", 0.1), ("bias", 0.0)]
    assert AdamW(groups).param_groups[0]["names"] == ["weight"]


def test_rounding_is_right_on_average():
    """The mean of many roundings is the value: over elements, and for one element over steps; 5 standard errors."""
    x = np.float32(1.0 + 0.3 * 2**-7)  # 0.3 of the way to the next bfloat16
    for which in range(3):
        over_elements = stochastic(np.full(1 << 18, x), noise(key(0, 1, 0, True), 7, 1 << 18)[which])
        over_steps = [stochastic(np.array([x]), noise(key(0, n, 0, True), 7, 1)[which])[0] for n in range(1 << 13)]
        over_parameters = [stochastic(np.array([x]), noise(key(0, 1, n, True), 7, 1)[which])[0] for n in range(1 << 13)]
        for rounded in (over_elements, over_steps, over_parameters):
            up = np.asarray(rounded).astype(np.float64) > 1
            assert abs(up.mean() - 0.3) < 5 * np.sqrt(0.3 * 0.7 / up.size)


def test_random_bits_are_uniform_and_independent():
    count = 1 << 18
    draws = [*noise(key(0, 1, 0, True), 0, count), *noise(key(0, 2, 0, True), 0, count), noise(NO_KEY, 0, count)[0]]
    for n, bits in enumerate(draws):
        cells = np.bincount(bits >> 8, minlength=256)
        assert ((cells - count / 256) ** 2).sum() / (count / 256) < 255 + 5 * np.sqrt(2 * 255)  # chi squared
        for other in (*draws[:n], np.roll(bits, 1)):
            assert abs(np.corrcoef(bits, other)[0, 1]) < 5 / np.sqrt(count)


def test_moments_in_bfloat16_do_not_stand_still():
    """v nears 1 - b2**n with steps below half a unit of its last place, at which rounding to nearest would stop."""
    p = en.tensor(np.zeros(4000, np.float32), requires_grad=True)
    p.grad = en.tensor(np.ones(4000, np.float32))
    opt = AdamW([p], betas=(0.99, 0.9999), state_dtype="bfloat16")
    for _ in range(1000):
        opt.step()
    state = opt.state[p]
    for slot, beta in (("exp_avg", 0.99), ("exp_avg_sq", 0.9999)):
        assert state[slot].dtype == en.bfloat16
        assert state[slot].astype(np.float64).mean() == pytest.approx(1 - beta**1000, rel=2e-3)


def test_weights_in_bfloat16_follow_steps_below_their_rounding():
    moved = {}
    for rounding in (False, True):
        p = en.Tensor(np.ones(4000, np.float32).astype(en.bfloat16), True)
        p.grad = en.Tensor(np.ones(4000, np.float32).astype(en.bfloat16))
        opt = AdamW([p], lr=1e-4, weight_decay=0.0, stochastic_rounding=rounding)
        for _ in range(100):
            opt.step()
        moved[rounding] = 1 - p.data.astype(np.float64).mean()
    assert moved[False] == 0 and moved[True] == pytest.approx(100 * 1e-4, rel=0.05)


def bfloat16_run(steps, opt=None, params=None, seed=3, first=0):
    rng = np.random.default_rng(0)
    params = params or [en.Tensor(rng.normal(size=s).astype(en.bfloat16), True) for s in ((3, 5), (7,))]
    opt = opt or AdamW(params, state_dtype="bfloat16", stochastic_rounding=True, seed=seed)
    for n in range(first, steps):
        for p in params:
            p.grad = en.Tensor(np.random.default_rng(n).normal(size=p.shape).astype(en.bfloat16))
        opt.step()
    return opt, params


def test_state_in_bfloat16_goes_on_bit_for_bit():
    _, whole = bfloat16_run(6)
    opt, params = bfloat16_run(3)
    again = AdamW(params, state_dtype="bfloat16")
    again.load_state_dict(opt.state_dict())
    assert again.state[params[0]]["exp_avg"].dtype == en.bfloat16
    bfloat16_run(6, again, params, first=3)
    _, other = bfloat16_run(6, seed=4)
    for p, q, r in zip(whole, params, other, strict=True):
        np.testing.assert_array_equal(p.data, q.data)
        assert (p.data != r.data).any()


def test_state_of_another_dtype_is_refused():
    opt, _ = bfloat16_run(1)
    fresh = AdamW([en.Tensor(np.zeros(s, np.float32), True) for s in ((3, 5), (7,))])
    with pytest.raises(ValueError, match=r"state_dtype is 'bfloat16', expected None"):
        fresh.load_state_dict(opt.state_dict())
    saved = opt.state_dict()
    saved["state"][1]["exp_avg"] = saved["state"][1]["exp_avg"].astype(np.float32)
    with pytest.raises(ValueError, match="exp_avg has dtype float32, expected bfloat16"):
        bfloat16_run(0)[0].load_state_dict(saved)


@pytest.mark.parametrize(
    ("option", "value"), [("state_dtype", "float16"), ("stochastic_rounding", 1), ("seed", 0.5), ("seed", True)]
)
def test_bad_rounding_options_are_named(option, value):
    with pytest.raises(ValueError, match=f"{option} must be"):
        AdamW([en.tensor([1.0], requires_grad=True)], **{option: value})


def test_state_bytes_counts_what_is_kept():
    opt, params = bfloat16_run(1)
    assert opt.state_bytes() == sum(v.nbytes for p in params for k, v in opt.state[p].items() if k != "step") == 88

"""What every row of the optimizer and schedule tables keeps to."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

import entrenar as en
from entrenar.optim import OPTIMIZERS, SCHEDULES, Schedule
from entrenar.optim.optimizer import BLOCK

rows = pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=list(OPTIMIZERS))
curves = pytest.mark.parametrize("name", SCHEDULES)


def leaves(dtype=np.float32, sizes=((3, 4), (5,), (BLOCK + 7,))):
    rng = np.random.default_rng(0)
    return [en.Tensor(rng.normal(size=s).astype(dtype), True) for s in sizes]


def train(make, params, steps=4, start=0, opt=None, **options):
    opt = opt or make(params, lr=0.01, **options)
    for n in range(start, start + steps):
        rng = np.random.default_rng(n)
        for p in params:
            p.grad = en.Tensor(rng.normal(size=p.shape).astype(p.dtype))
        opt.step()
    return opt


@rows
def test_deterministic_and_moves_every_element(make):
    a, b, start = leaves(), leaves(), leaves()
    train(make, a, 5)  # an odd number: Lion's steps are +lr or -lr and would cancel
    train(make, b, 5)
    for p, q, s in zip(a, b, start, strict=True):
        np.testing.assert_array_equal(p.data, q.data)
        assert (p.data != s.data).mean() > 0.9


@rows
def test_blocks_do_not_show(make):
    """A large parameter in blocks, and the same as a strided one in one piece, take the same step."""
    a = leaves(sizes=((BLOCK + 8,),))
    wide = np.zeros((BLOCK + 8, 2), np.float32)
    wide[:, 0] = a[0].data
    b = [en.Tensor(wide[:, 0], True)]
    train(make, a)
    train(make, b)
    np.testing.assert_array_equal(a[0].data, b[0].data)
    assert not wide[:, 1].any()


@rows
def test_parameter_without_gradient_is_left_alone_with_its_state(make):
    params = leaves()
    opt = make(params, lr=0.1)
    before = params[1].data.copy()
    params[0].grad = en.Tensor(np.ones_like(params[0].data))
    opt.step()
    np.testing.assert_array_equal(params[1].data, before)
    assert params[1] not in opt.state and params[1].version == 0


@rows
def test_gradients_are_not_changed(make):
    params = leaves()
    train(make, params, weight_decay=0.1)
    g = np.random.default_rng(3).normal(size=params[0].shape).astype(np.float32)
    np.testing.assert_array_equal(params[0].grad.data, g)


@rows
@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
def test_dtypes(make, dtype):
    """16-bit weights stay near float64 ones within a few roundings of their own; state is float32."""
    exact, low = leaves(np.float64, ((7,),)), leaves(np.float64, ((7,),))
    dtype = en.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    low[0].data = low[0].data.astype(dtype)
    train(make, exact)
    opt = train(make, low)
    assert low[0].dtype == dtype
    state = [v.dtype for v in opt.state[low[0]].values() if hasattr(v, "dtype")]
    assert all(d == (np.float64 if dtype == np.float64 else np.float32) for d in state)
    eps = {2: 2.0**-7, 8: 1e-14}[dtype.itemsize]
    np.testing.assert_allclose(low[0].data.astype(np.float64), exact[0].data, atol=8 * eps, rtol=0)


@rows
def test_a_graph_over_the_old_weights_refuses_backward(make):
    p = en.tensor([1.0, 2.0], requires_grad=True)
    loss = en.sum(p * p)
    p.grad = en.Tensor(np.ones(2, np.float32))
    make([p], lr=0.1).step()
    with pytest.raises(en.GraphError, match="changed in place"):
        loss.backward()


@rows
def test_state_dict_goes_on_bit_for_bit(make):
    whole, part, rest = leaves(), leaves(), leaves()
    train(make, whole, 6)
    opt = train(make, part, 3)
    again = make(rest, lr=0.5)
    again.load_state_dict(opt.state_dict())
    for p, q in zip(part, rest, strict=True):
        q.write(p.data)
    train(make, rest, 3, start=3, opt=again)
    for p, q in zip(whole, rest, strict=True):
        np.testing.assert_array_equal(p.data, q.data)


@rows
def test_state_dict_that_does_not_fit_changes_nothing(make):
    opt = train(make, leaves(), 2)
    other = make(leaves(sizes=((4, 3), (5,), (BLOCK + 7,))), lr=0.25)
    saved = opt.state_dict()
    saved["param_groups"][0]["foo"] = 1
    saved["state"][9] = {}
    with pytest.raises(ValueError, match="nothing was loaded") as error:
        other.load_state_dict(saved)
    assert "option 'foo'" in str(error.value) and "unknown parameter 9" in str(error.value)
    assert not other.state and other.param_groups[0]["lr"] == 0.25
    with pytest.raises(ValueError, match=r"groups of \[3\] parameters, this optimizer \[1\]"):
        make(leaves(sizes=((2,),))).load_state_dict(opt.state_dict())


@rows
def test_groups_have_options_of_their_own(make):
    a, b = leaves(sizes=((3,), (3,)))
    b.data[...] = a.data
    opt = make([{"params": [a]}, {"params": [b], "lr": 0.0}], lr=0.1, weight_decay=0.0)
    before = b.data.copy()
    for p in (a, b):
        p.grad = en.Tensor(np.ones(3, np.float32))
    opt.step()
    np.testing.assert_array_equal(b.data, before)
    assert (a.data != before).all()


@rows
def test_bad_arguments_are_named(make):
    p = en.tensor([1.0], requires_grad=True)
    for lr in (-1.0, math.nan, math.inf, "1e-3", True):
        with pytest.raises(ValueError, match="lr must be a number"):
            make([p], lr=lr)
    with pytest.raises(ValueError, match="no parameters"):
        make([])
    with pytest.raises(ValueError, match="group 1 is empty"):
        make([{"params": [p]}, {"params": []}])
    with pytest.raises(ValueError, match=r"b was given twice \(also as a\)"):
        make([("a", p), ("b", p)])
    with pytest.raises(TypeError, match="does not require a gradient"):
        make([en.tensor([1.0])])
    with pytest.raises(TypeError, match="made by mul"):
        make([p * p])
    with pytest.raises(TypeError, match="parameter 0 is int"):
        make([3])
    with pytest.raises(TypeError, match=r"no option 'weight_deca'.*Did you mean 'weight_decay'"):
        make([{"params": [p], "weight_deca": 1}])
    with pytest.raises(ValueError, match="weight_decay must be a number"):
        make([p], weight_decay=-0.1)


@curves
def test_schedule_warms_up_and_ends_on_its_floor(name):
    s = Schedule(name, 0.1, decay_steps=10, warmup_steps=4, floor=0.1)
    np.testing.assert_allclose([s.lr(k) for k in range(5)], [0.025, 0.05, 0.075, 0.1, 0.1], rtol=1e-15)
    after = [s.lr(k) for k in range(4, 30)]
    assert all(a >= b for a, b in itertools.pairwise(after))
    end = 0.1 if name == "constant" else 0.01
    np.testing.assert_allclose(after[10:], end, rtol=1e-12)


@curves
def test_decay_of_length_0_is_allowed(name):
    s = Schedule(name, 0.1, decay_steps=0, warmup_steps=4)
    assert s.lr(3) == 0.1 and s.lr(4) == (0.1 if name == "constant" else 0.0)
    assert Schedule(name, 0.1, decay_steps=0).lr(0) >= 0

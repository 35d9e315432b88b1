"""What every row of the optimizer and schedule tables keeps to."""

from __future__ import annotations

import itertools
import json
import math
import re

import numpy as np
import pytest

import entrenar as en
from entrenar.optim import OPTIMIZERS, SCHEDULES, Schedule
from entrenar.optim.optimizer import BLOCK

OPTIONS = {  # everything turned on that a row has
    "sgd": {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1},
    "adam": {"weight_decay": 0.1, "betas": (0.8, 0.9)},
    "adamw": {"weight_decay": 0.1, "betas": (0.8, 0.9)},
    "adagrad": {"weight_decay": 0.1, "lr_decay": 0.1, "initial_accumulator_value": 0.1},
    "rmsprop": {"weight_decay": 0.1, "momentum": 0.9, "centered": True},
    "lion": {"weight_decay": 0.1},
    "lamb": {"weight_decay": 0.1},
    "adafactor": {"weight_decay": 0.1, "eps": (1e-6, 1e-2)},
    "muon": {"weight_decay": 0.1, "momentum": 0.9},
}
full = pytest.mark.parametrize(
    ("make", "options"), [(make, OPTIONS.get(name, {})) for name, make in OPTIMIZERS.items()], ids=list(OPTIMIZERS)
)
backends = pytest.mark.parametrize("backend", ["numba", "numpy"])
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


@full
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_state_dict_goes_on_bit_for_bit(make, options, dtype):
    """Its options as they come back from JSON."""
    dtype = en.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    whole, part, rest = (leaves(dtype, ((3, 4), (5,), (), (0,), (2, 3, 2), (BLOCK + 7,))) for _ in range(3))
    train(make, whole, 6, **options)
    opt = train(make, part, 3, **options)
    again = make(rest, lr=0.5)
    saved = opt.state_dict()
    again.load_state_dict({**saved, "param_groups": json.loads(json.dumps(saved["param_groups"]))})
    assert again.param_groups[0]["lr"] == 0.01 and again.state_dict()["param_groups"] == saved["param_groups"]
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
    with pytest.raises(TypeError, match="unexpected keyword argument"):
        make([p], momentun=0.9)


@rows
def test_an_option_out_of_range_is_named_with_its_range(make):
    """Given to the constructor, to a group, or in a state dict, which then is not loaded."""
    p = en.tensor([[1.0, 2.0]], requires_grad=True)
    bad = {}
    for option, (low, high) in make.ranges.items():
        values = [math.nan, "0.1", True, None] + [math.nextafter(low, -math.inf)] * (low > -math.inf)
        values += [high] * (high < math.inf)
        count = make.several.get(option)
        bad |= {(option, str(v)): (v if count is None else (0.5,) * (count - 1) + (v,)) for v in values}
        message = f"{option} must be a number in [{low}, {high}), got"
        for (name, _), value in bad.items():
            if name == option:
                refused(make, p, option, value, message)
    for option, count in make.several.items():
        for value in ((0.5,) * (count - 1), (0.5,) * (count + 1), 0.5):
            refused(make, p, option, value, f"{option} must be {count} numbers, got")
    for option in make.flags:
        for value in (1, None, "yes"):
            refused(make, p, option, value, f"{option} must be True or False, got")


def refused(make, p, option, value, message):
    whole = f"{make.__name__}: {message}"
    with pytest.raises(ValueError, match=re.escape(whole)):
        make([p], **{option: value})
    with pytest.raises(ValueError, match=re.escape(whole)):
        make([{"params": [p], option: value}])
    opt = make([p])
    saved = opt.state_dict()
    saved["param_groups"][0][option] = value
    with pytest.raises(ValueError, match=re.escape(message)):
        opt.load_state_dict(saved)
    assert opt.param_groups[0][option] is not value


@full
@backends
def test_memory_of_any_layout_takes_the_same_step(make, options, backend):
    """Transposed, reversed and strided parameters and gradients; what lies between is left alone."""
    rng = np.random.default_rng(0)
    plain, odd = [], []
    for shape in ((6, 4), (9, 5), (50,)):
        w, room = rng.normal(size=shape).astype(np.float32), np.zeros((*(2 * n for n in shape),), np.float32)
        view = room[(slice(None, None, -2),) * len(shape)] if len(shape) == 1 else room[::2, ::2]
        view = view.T if shape[0] == 6 else view
        w = w.T if shape[0] == 6 else w
        view[...] = w
        plain.append(en.Tensor(np.ascontiguousarray(w), True))
        odd.append((en.Tensor(view, True), room))
    first, second = make(plain, lr=0.01, **options), make([p for p, _ in odd], lr=0.01, **options)
    with en.backend(backend):
        for _ in range(3):
            for p, (q, _) in zip(plain, odd, strict=True):
                g = rng.normal(size=p.shape).astype(np.float32)
                p.grad, q.grad = en.Tensor(g), en.Tensor(np.repeat(g, 3, axis=0)[::-3][::-1])
            first.step(scale=0.5)
            second.step(scale=0.5)
    for p, (q, room) in zip(plain, odd, strict=True):
        np.testing.assert_array_equal(q.data, p.data)
        assert np.count_nonzero(room) <= p.size


@full
@backends
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("scale", [0.3, 1e-42])
def test_scale_is_scaling_the_gradients_first(make, options, backend, dtype, scale):
    a, b = leaves(dtype, ((3, 4), (50,))), leaves(dtype, ((3, 4), (50,)))
    first, second = make(a, lr=0.01, **options), make(b, lr=0.01, **options)
    rng = np.random.default_rng(0)
    with en.backend(backend):
        for _ in range(3):
            for p, q in zip(a, b, strict=True):
                g = rng.normal(size=p.shape).astype(dtype) * (1e38 if scale < 1e-30 else 1)
                p.grad, q.grad = en.Tensor(g.copy()), en.Tensor(g)
            en.optim.scale_grads(a, scale)
            first.step()
            second.step(scale=scale)
    for p, q in zip(a, b, strict=True):
        np.testing.assert_array_equal(p.data, q.data)


@full
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_kernels_and_reference_agree(make, options, dtype):
    """To a rounding of the weights; tests/kernels holds those with kernels to the bits."""
    dtype = en.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    sides = []
    for backend in ("numba", "numpy"):
        sides.append(leaves(dtype, ((3, 4), (), (0,), (BLOCK + 7,), (2, 3, 4))))
        with en.backend(backend):
            train(make, sides[-1], **options)
    eps = {2: 2.0**-7, 4: 2.0**-22, 8: 2.0**-50}[dtype.itemsize]
    for p, q in zip(*sides, strict=True):
        np.testing.assert_allclose(p.data.astype(float), q.data.astype(float), rtol=eps, atol=eps)


@full
@backends
def test_gradients_of_zeros_are_no_division_by_zero(make, options, backend):
    params = leaves(sizes=((3, 4), (5,), ()))
    params[1].data[...] = 0
    opt = make(params, lr=0.01, **options)
    with en.backend(backend):
        for _ in range(3):
            for p in params:
                p.grad = en.Tensor(np.zeros_like(p.data))
            opt.step()
    assert all(np.isfinite(p.data).all() for p in params) and not params[1].data.any()


@rows
def test_learns(make):
    """|x - target|^2 of a matrix and a vector falls to a hundredth, whatever the rule."""
    rng = np.random.default_rng(1)
    params = leaves(sizes=((6, 8), (9,)))
    targets = [rng.normal(size=p.shape).astype(np.float32) for p in params]
    peak = 0.5 if make is en.optim.Adagrad else 0.1  # its own rate falls
    opt = make(params, lr=peak, weight_decay=0.0)
    losses = []
    for step in range(400):
        opt.zero_grad()
        loss = sum(en.sum((p - t) ** 2) for p, t in zip(params, targets, strict=True))
        losses.append(loss.item())
        loss.backward()
        en.optim.set_lr(opt, peak * (1 - step / 400))
        opt.step()
    assert losses[-1] < losses[0] / 100


LEVEL = ("constant", "plateau")  # rows that only fall when somebody says so


@curves
def test_schedule_warms_up_and_ends_on_its_floor(name):
    warmup = 0 if SCHEDULES[name].has_warmup else 4
    s = Schedule(name, 0.1, decay_steps=10, warmup_steps=warmup, floor=0.1)
    if warmup:
        np.testing.assert_allclose([s.lr(k) for k in range(5)], [0.025, 0.05, 0.075, 0.1, 0.1], rtol=1e-15)
    rates = [s.lr(k) for k in range(30)]
    assert min(rates) > 0 and max(rates) == pytest.approx(0.1, rel=1e-12)
    after = rates[rates.index(max(rates)) :]
    assert all(a >= b for a, b in itertools.pairwise(after))
    np.testing.assert_allclose(rates[warmup + 10 :], 0.1 if name in LEVEL else 0.01, rtol=1e-12)


@curves
@pytest.mark.parametrize("floor", [0.5, 0.0])
def test_decay_of_length_0_is_allowed(name, floor):
    if name == "exponential" and not floor:
        with pytest.raises(ValueError, match="give gamma, or a floor above 0"):
            Schedule(name, 0.1, decay_steps=0)
        return
    warmup = 0 if SCHEDULES[name].has_warmup else 4
    s = Schedule(name, 0.1, 0, warmup, floor)
    if warmup:
        assert s.lr(3) == 0.1
    assert s.lr(4) == pytest.approx(0.1 if name in LEVEL else 0.1 * floor)
    assert Schedule(name, 0.1, decay_steps=0, floor=floor).lr(0) >= 0

"""The one-pass optimizers against their NumPy ``update``, bit for bit; 16-bit words; sums of squares."""

from __future__ import annotations

import numpy as np
import pytest
from numba import njit

import entrenar as en
from entrenar.kernels import pool
from entrenar.kernels.numba import optimizers as kernels, words as floats16
from entrenar.optim import SGD, Adagrad, Adam, AdamW, Lamb, Lion, RMSprop, grad_norm
from entrenar.optim.optimizer import BLOCK

PIECE = kernels.PIECE
RULES = [
    (SGD, {}),
    (SGD, {"weight_decay": 0.1}),
    (SGD, {"momentum": 0.9, "weight_decay": 0.1}),
    (SGD, {"momentum": 0.9, "nesterov": True}),
    (Adam, {}),
    (Adam, {"betas": (0.8, 0.95), "weight_decay": 0.1, "eps": 1e-3}),
    (AdamW, {"weight_decay": 0.1}),
    (AdamW, {"weight_decay": 0.1, "state_dtype": "bfloat16", "seed": 5}),
    (AdamW, {"state_dtype": "bfloat16", "stochastic_rounding": True}),
    (Adam, {"stochastic_rounding": True, "seed": -1}),
    (Adagrad, {}),
    (Adagrad, {"lr_decay": 0.1, "weight_decay": 0.1, "initial_accumulator_value": 0.5, "eps": 1e-3}),
    (RMSprop, {}),
    (RMSprop, {"weight_decay": 0.1, "alpha": 0.5, "momentum": 0.9}),
    (RMSprop, {"centered": True, "eps": 1e-3, "weight_decay": 0.1}),
    (RMSprop, {"centered": True, "momentum": 0.5}),
    (Lion, {}),
    (Lion, {"betas": (0.5, 0.8), "weight_decay": 0.1}),
    (Lamb, {"weight_decay": 0.0}),
    (Lamb, {"betas": (0.8, 0.95), "weight_decay": 0.1, "eps": 1e-3}),
    (Lamb, {"adapt": False}),
]
rules = pytest.mark.parametrize(("make", "options"), RULES, ids=[f"{m.__name__}-{i}" for i, (m, _) in enumerate(RULES)])
dtypes = pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
SHAPES = ((), (0,), (1,), (7,), (3, 5), (2, 0, 3), (BLOCK + 1,), (PIECE + 3,))


def refused(options, dtype):
    """Options that are an error for parameters of this dtype."""
    return (dtype == "float64" and "state_dtype" in options) or (
        dtype == "float16" and "stochastic_rounding" in options
    )


def arrays(dtype, seed=0):
    """One array per shape, and a transposed, a reversed and a strided one, the last with odd values."""
    rng = np.random.default_rng(seed)
    odd = np.repeat([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-7, -1e-7, 6e4, -6e4, 3.0], 2).reshape(-1, 2)
    made = [*(rng.normal(size=s) for s in SHAPES), rng.normal(size=(4, 6)), rng.normal(size=9), odd]
    *made, turned, back, strided = [np.asarray(a).astype(en.array.as_dtype(dtype)) for a in made]
    return [*made, turned.T, back[::-1], strided[:, 0]]


def trained(make, options, dtype, backend=None, threads=2, steps=3, scale=0.7, gradient=None):
    before = pool.threads()
    pool.limit(threads)
    try:
        params = [en.Tensor(a, True) for a in arrays(dtype)]
        opt = make(params, lr=0.01, **options)
        with np.errstate(all="ignore"), en.backend(backend or "numba"):
            for n in range(steps):
                for p, g in zip(params, arrays(gradient or dtype, n + 1), strict=True):
                    g.flags.writeable = False
                    p.grad = en.Tensor(g)
                opt.step(scale=scale)
    finally:
        pool.limit(before)
    return params, opt


def assert_same_bits(a, b, ulps=0):
    """But for ``ulps`` units in the last place of a weight, or of 1."""
    for p, q in zip(a[0], b[0], strict=True):
        state = [(v, b[1].state[q][k], 0) for k, v in a[1].state[p].items() if k != "step"]
        for x, y, allowed in [(p.data, q.data, ulps), *state]:
            assert x.dtype == y.dtype and x.shape == y.shape
            # every NaN is the same one here; zeros have their sign
            tolerance = allowed and allowed * np.finfo(x.dtype).eps
            np.testing.assert_allclose(x.astype(np.float64), y.astype(np.float64), tolerance, tolerance)
            np.testing.assert_array_equal(np.signbit(x[~np.isnan(x)]), np.signbit(y[~np.isnan(y)]))


@rules
@dtypes
def test_the_bits_of_the_reference(make, options, dtype):
    if refused(options, dtype):
        with pytest.raises(ValueError, match=r"for (parameters of at most 32 bits|bfloat16 parameters)"):
            trained(make, options, dtype)
        return
    fast, slow = trained(make, options, dtype), trained(make, options, dtype, "numpy")
    # the norms are sums of float64 squares in two orders: it shows in float64 alone
    assert_same_bits(fast, slow, ulps=4 if make is Lamb and dtype == "float64" else 0)
    start = arrays(dtype)[-4]
    assert (fast[0][-4].data != start).mean() > (0.9 if np.dtype(start.dtype).itemsize > 2 else 0.2)


@rules
def test_the_number_of_threads_shows_nowhere(make, options):
    one, three = (trained(make, options, "float32", threads=n) for n in (1, 3))
    assert_same_bits(one, three)


@dtypes
def test_a_gradient_of_another_dtype(dtype):
    options = {"state_dtype": "bfloat16"} if dtype == "bfloat16" else {}
    assert_same_bits(*(trained(AdamW, options, dtype, b, gradient="float32") for b in ("numba", "numpy")))


@rules
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("scale", [0.3, 1e-42])
def test_folded_scaling_has_the_bits_of_scaling_first(make, options, dtype, scale):
    if refused(options, dtype):
        return
    a, b = ([en.Tensor(np.linspace(-1, 1, 50, dtype=dtype), True)] for _ in range(2))
    g = np.random.default_rng(0).normal(size=50).astype(dtype) * (1e38 if scale < 1e-30 else 1)
    first, second = make(a, **options), make(b, **options)
    for _ in range(3):
        a[0].grad, b[0].grad = en.Tensor(g.copy()), en.Tensor(g.copy())
        en.optim.scale_grads(a, scale)
        first.step()
        second.step(scale=scale)
        np.testing.assert_array_equal(b[0].grad.data, g)
    assert_same_bits((a, first), (b, second))


@pytest.mark.parametrize("make", [Adam, AdamW])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("backend", ["numpy", "numba"])
def test_moments_never_become_subnormal(make, dtype, backend):
    tiny = np.finfo(dtype).tiny
    p = en.Tensor(np.ones(8, dtype), True)
    opt = make([p])
    with en.backend(backend):
        for step in range(3):
            p.grad = en.Tensor(np.zeros(8, dtype))
            if step:
                opt.step()
                continue
            opt.step()
            opt.state[p]["exp_avg"][:] = np.array([1, -1, 1.01, -1.01, 1.2, -1.2, 0.5, 2], dtype) * tiny
            opt.state[p]["exp_avg_sq"][:] = np.array([0, 1, 1.0005, 1.01, 2, 3, 0.5, 4], dtype) * tiny
    for slot in ("exp_avg", "exp_avg_sq"):
        moment = opt.state[p][slot]
        assert ((moment == 0) | (np.abs(moment) >= tiny)).all() and (moment != 0).any() and (moment == 0).any()
    # what stays is what the formula says
    np.testing.assert_array_equal(opt.state[p]["exp_avg"] != 0, [False] * 7 + [True])


def test_scale_is_finite():
    p = en.tensor([1.0], requires_grad=True)
    for bad in (np.nan, np.inf):
        with pytest.raises(ValueError, match="scale must be a finite number"):
            SGD([p]).step(scale=bad)


@pytest.mark.parametrize("backend", ["numba", "numpy"])
def test_shapes_that_differ_are_refused_before_anything_changes(backend):
    a, b = (en.tensor(np.ones(40, np.float32), requires_grad=True) for _ in range(2))
    opt = AdamW([("a", a), ("b", b)], lr=0.1)
    a.grad, b.grad = en.tensor(np.ones(40, np.float32)), en.tensor(np.ones(1, np.float32))
    with en.backend(backend), pytest.raises(ValueError, match=r"b has shape \(40,\), its gradient \(1,\)"):
        opt.step()
    assert not opt.state and (a.data == 1).all()
    b.grad = en.tensor(np.ones(40, np.float32))
    opt.step()
    b.data, b.grad = b.data.repeat(2), en.tensor(np.ones(80, np.float32))
    with en.backend(backend), pytest.raises(ValueError, match=r"b has shape \(80,\), its exp_avg \(40,\)"):
        opt.step()
    assert opt.state[a]["step"] == 1


def test_a_rule_of_ones_own_does_not_get_the_inherited_kernel():
    class Sign(SGD):
        def update(self, p, g, step, group, **slots):
            p -= group["lr"] * np.sign(g)

    p = en.tensor([1.0, 1.0], requires_grad=True)
    p.grad = en.tensor([3.0, -0.5])
    Sign([p], lr=0.25).step()
    assert p.tolist() == [0.75, 1.25]


# words --------------------------------------------------------------------------------------------------------
@njit
def widened(words, out):
    for i in range(words.size):
        out[i] = floats16.widen(words[i])


@njit
def narrowed(x, out):
    for i in range(x.size):
        out[i] = floats16.narrow(x[i], out[i], False, np.uint32(0))


@pytest.mark.parametrize(("dtype", "words"), [("float16", np.int16), ("bfloat16", np.uint16)])
def test_every_word_and_every_rounding(dtype, words):
    dtype = en.array.as_dtype(dtype)
    every = np.arange(1 << 16).astype(np.uint16)
    got = np.empty(every.size, np.float32)
    widened(every.view(words), got)
    exact = every.view(dtype).astype(np.float32)
    np.testing.assert_array_equal(got, exact)
    # every representable value, the ties between neighbours, and what lies next to both
    tie = {"float16": 0x1000, "bfloat16": 0x8000}[dtype.name]
    near = [exact.view(np.uint32) + np.uint32(d % 2**32) for d in (-1, 0, 1, tie - 1, tie, tie + 1)]
    small = np.arange(0x32000000, 0x39000000, 0x555, dtype=np.uint32)  # around the subnormals of float16
    x = np.concatenate([*near, small, small | np.uint32(1 << 31)]).view(np.float32)
    out = np.empty(x.size, words)
    narrowed(x, out)
    with np.errstate(all="ignore"):
        expected = x.astype(dtype)
    number = ~np.isnan(x)
    np.testing.assert_array_equal(out[number], expected.view(words)[number])
    assert np.isnan(out.view(dtype)[~number].astype(np.float32)).all()


# sums of squares ----------------------------------------------------------------------------------------------
@dtypes
def test_the_norm_is_the_reference_s_and_has_the_same_bits_on_any_number_of_threads(dtype):
    params = [en.Tensor(a, True) for a in arrays(dtype)[:-1]]
    for p, g in zip(params, arrays(dtype, 1)[:-1], strict=True):
        g.flags.writeable = False
        p.grad = en.Tensor(g)
    before = pool.threads()
    norms = []
    for threads in (1, 2, 3):
        pool.limit(threads)
        norms.append(grad_norm(params))
    pool.limit(before)
    with en.backend("numpy"):
        reference = grad_norm(params)
    assert norms == norms[:1] * 3 and norms[0][1] is None
    assert norms[0][0] == pytest.approx(reference[0], rel=1e-13)


@pytest.mark.parametrize("values", [np.full(5, 1e200), [1e308, 1e308, 1.7e308], [1.0, np.inf], [np.nan, 1.0]])
def test_norms_that_overflow_or_are_not_finite(values):
    p = en.Tensor(np.zeros(len(values)), True)
    p.grad = en.Tensor(np.array(values))
    with en.backend("numpy"):
        expected = grad_norm([("p", p)])
    np.testing.assert_allclose(grad_norm([("p", p)])[0], expected[0], rtol=1e-14)
    assert grad_norm([("p", p)])[1] == expected[1]

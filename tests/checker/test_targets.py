"""Ops and functions of entrenar as targets: samples, surrogates, edges, gradients that the engine refuses."""

import numpy as np
import pytest

import entrenar as en
import gradcheck
from entrenar import samples

RNG = np.random.default_rng(0)
PAIRS = samples.pairs(samples.reals(-2, 2))
UNARY = samples.unary(samples.reals(-2, 2))


def test_an_op_is_checked_at_its_samples_at_both_orders():
    report = gradcheck.assert_gradients(en.tanh)
    assert report.samples >= 9
    assert report.by_order[1] > 100
    assert report.by_order[2] > 100
    assert report.worst < 1e-9


def test_an_op_at_given_arrays():
    report = gradcheck.assert_gradients(en.mul, RNG.normal(size=(2, 3)), RNG.normal(size=3))
    assert report.samples == 1
    assert set(report.by_order) == {1}


def test_functions_of_tensors():
    gradcheck.assert_gradients(lambda x: en.sum(en.tanh(x) * x), np.linspace(-1, 1, 5), order=2)
    gradcheck.assert_gradients(lambda x: (en.sin(x), en.sum(x) ** 2), en.tensor(RNG.normal(size=4)))
    report = gradcheck.check(lambda x: en.sin(x.detach()) + 0 * x, RNG.normal(size=4))
    assert (report.verdict, report.kind) == ("wrong", "detached")
    assert gradcheck.check(lambda x: np.sin(x.detach().numpy()), RNG.normal(size=4)).kind == "detached"


def test_a_function_with_backward():
    class Scale(en.Function):
        @staticmethod
        def forward(ctx, x, w):
            ctx.save_for_backward(x, w)
            return x * en.exp(w)

        @staticmethod
        def backward(ctx, g):
            x, w = ctx.saved_tensors
            return g * en.exp(w), g * x * en.exp(w)

    class Wrong(Scale):
        @staticmethod
        def backward(ctx, g):
            first, second = Scale.backward(ctx, g)
            return second, first

    x, w = RNG.normal(size=4), RNG.normal(size=4)
    gradcheck.assert_gradients(Scale, x, w, order=2)
    assert gradcheck.check(Wrong, x, w).kind == "swapped-inputs"


def declared(forward, **options):
    """An op that is not entrenar's own."""
    return en.primitive(**options)(forward)


def test_gradients_that_the_engine_refuses_are_named():
    def product(a, b):
        return a * b

    unsummed = declared(product, samples=PAIRS, vjp=dict(a=lambda g, b: g * b, b=lambda g, a: g * a))
    assert gradcheck.check(unsummed).kind == "missing-broadcast-sum"
    nothing = declared(product, samples=None, vjp=dict(a=lambda g, b: g * b, b=lambda g, a: None))
    a, b = RNG.normal(size=(2, 3)), RNG.normal(size=(2, 3))
    assert gradcheck.check(nothing, a, b).kind == "detached"
    first = declared(product, samples=None, vjp=lambda g, a, b, needs: (g * b, (g * a)[0]))
    assert gradcheck.check(first, a, b[0].copy()).kind == "missing-broadcast-sum"

    def wave(x):
        return np.sin(x)

    coarse = declared(wave, samples=UNARY, vjp=dict(x=lambda g, x: np.asarray(g * np.cos(x), np.float32)))
    assert gradcheck.check(coarse).kind == "dtype"

    def total(*xs):
        return sum(xs)

    crossed = declared(total, samples=None, vjp=dict(xs=lambda g, xs_meta: tuple(g.T for _ in xs_meta)))
    assert gradcheck.check(crossed, a, b).kind == "transposed"


def test_what_an_op_raises_itself_passes_through():
    def broken(x):
        return np.sin(x)

    def pullback(g, x):
        raise ValueError("my own mistake")

    with pytest.raises(ValueError, match="my own mistake"):
        gradcheck.check(declared(broken, samples=UNARY, vjp=dict(x=pullback)))


def test_a_surrogate_is_what_the_derivative_is_held_against():
    def rounded(x):
        return np.round(x)

    straight = dict(samples=UNARY, vjp=dict(x=lambda g: g))
    assert gradcheck.check(declared(rounded, **straight)).verdict == "wrong"
    gradcheck.assert_gradients(declared(rounded, surrogate=lambda x: x, **straight))


@pytest.mark.parametrize(("slope", "passed"), [(0.0, True), (1.0, False)])
def test_edge_values_are_compared_exactly(slope, passed):
    def hinge(x):
        return np.maximum(x, 0)

    edges = samples.edges(samples.edge([0.0, 1.0, -1.0], value=np.array([0.0, 1.0, 0.0]), grads=[[0.0, 1.0, 0.0]]))
    op = declared(hinge, samples=edges, vjp=dict(x=lambda g, x: np.where(x == 0, slope * g, g * (x > 0))))
    report = gradcheck.check(op)
    assert report.passed is passed
    assert report.checks == 6
    if not passed:
        assert report.kind == "edge-value"
        assert "element (0,) is 1.0, agreed is 0.0" in str(report)


def test_an_op_without_samples_or_derivative():
    def bare(x):
        return np.sin(x)

    with pytest.raises(TypeError, match="declares no samples"):
        gradcheck.check(declared(bare, samples=None, vjp=dict(x=lambda g, x: g * np.cos(x))))
    report = gradcheck.check(en.argmax)
    assert report.passed
    assert report.checks == 0
    assert "no derivative" in str(report)


@pytest.mark.parametrize(("rule", "verdict"), [("adds", "pass"), ("overwrites", "wrong"), ("declines", "pass")])
def test_what_into_adds_is_checked_too(rule, verdict):
    def put(g, x_meta):
        total = np.zeros(x_meta.shape, x_meta.dtype)
        total[0] = g
        return total

    def into(total, g):
        total[0] = total[0] + g if rule == "adds" else total[0] if rule == "declines" else g
        return rule != "declines"

    @en.primitive(vjp=dict(x=put), into=dict(x=into))
    def first_row(x):
        return x[0]

    report = gradcheck.check(first_row, RNG.normal(size=(3, 2)))
    assert report.verdict == verdict, str(report)
    assert report.samples == 2

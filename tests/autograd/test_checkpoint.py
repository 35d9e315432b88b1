"""checkpoint: the same gradients bit for bit, with randomness, captures, several outputs, any order."""

import numpy as np
import pytest

import entrenar as en

X = np.random.default_rng(0).normal(size=(3, 4))


def run(wrap):
    en.manual_seed(5)
    x, w = en.tensor(X, requires_grad=True), en.tensor(X.T.copy(), requires_grad=True)
    segment = lambda t: en.dropout(en.tanh(t @ w), 0.5) @ w.T
    y = wrap(segment, x * 2.0)
    loss = (y * y).sum() + en.randn(1, dtype=np.float64).sum()
    loss.backward()
    return loss.item(), x.grad.data, w.grad.data


def test_same_loss_and_gradients_bit_for_bit():
    plain = run(lambda f, x: f(x))
    again = run(en.checkpoint)
    for a, b in zip(plain, again, strict=True):
        assert np.array_equal(a, b)


def test_it_keeps_only_what_enters_the_segment():
    x = en.tensor(X, requires_grad=True)
    y = en.checkpoint(lambda t: en.exp(en.sin(en.tanh(t))), x)
    assert [n.op.name for n in en.tape(y).nodes] == ["checkpoint"]
    assert en.tape(y).saved_bytes == 0


def test_captured_interior_tensors_get_their_gradient():
    x = en.tensor(X, requires_grad=True)
    h = x * 3.0
    y = en.checkpoint(lambda t: t * h, x)
    y.sum().backward()
    np.testing.assert_allclose(x.grad.data, 6 * X)


def test_several_outputs_and_second_order():
    x = en.tensor(np.float64(0.7), requires_grad=True)
    a, b = en.checkpoint(lambda t: (en.sin(t), t * t), x)
    g = en.grad(a * b, x, create_graph=True)
    g.backward()
    t = 0.7
    np.testing.assert_allclose(x.grad.item(), -np.sin(t) * t * t + 4 * t * np.cos(t) + 2 * np.sin(t))


def test_modes_are_restored():
    x = en.tensor(X.astype(np.float32), requires_grad=True)
    seen = []

    def segment(t):
        y = t @ t.T
        seen.append(y.dtype)
        return y.astype("float32")

    with en.autocast("bfloat16"):
        y = en.checkpoint(segment, x)
    y.sum().backward()
    assert seen == [en.bfloat16, en.bfloat16]


def test_under_no_grad_it_just_calls():
    with en.no_grad():
        assert not en.checkpoint(en.exp, en.tensor(X, requires_grad=True)).requires_grad


def test_a_function_that_returns_no_tensor():
    with pytest.raises(TypeError, match="must return tensors"):
        en.checkpoint(lambda t: 3.0, en.tensor(X, requires_grad=True))


class Cube(en.Function):
    """x**3 the PyTorch way."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * x * x * 3.0


def test_function_first_and_second_order():
    x = en.tensor(X, requires_grad=True)
    g = en.grad(Cube.apply(x).sum(), x, create_graph=True)
    np.testing.assert_allclose(g.data, 3 * X**2)
    g.sum().backward()
    np.testing.assert_allclose(x.grad.data, 6 * X)


class SplitSum(en.Function):
    """Two outputs, an argument without a gradient, a saved output."""

    @staticmethod
    def forward(ctx, x, factor):
        y = en.exp(x)
        ctx.save_for_backward(y)
        ctx.factor = factor
        return y, x * factor

    @staticmethod
    def backward(ctx, g_exp, g_times):
        (y,) = ctx.saved_tensors
        total = 0.0
        if g_exp is not None:
            total = total + g_exp * y
        if g_times is not None:
            total = total + g_times * ctx.factor
        return total, None


def test_function_with_two_outputs():
    x = en.tensor(X, requires_grad=True)
    a, b = SplitSum.apply(x, 3.0)
    (a + b).sum().backward()
    np.testing.assert_allclose(x.grad.data, np.exp(X) + 3)
    second = en.func.hessian(lambda t: SplitSum.apply(t, 3.0)[0].sum())(en.tensor(np.array([0.5, 1.0])))
    np.testing.assert_allclose(second.data, np.diag(np.exp([0.5, 1.0])))


def test_function_that_returns_the_wrong_count_or_no_tensor():
    class Wrong(en.Function):
        @staticmethod
        def forward(ctx, x, y):
            return x * y

        @staticmethod
        def backward(ctx, g):
            return g

    x = en.tensor(X, requires_grad=True)
    with pytest.raises(TypeError, match="tuple of 2 cotangents, got 1"):
        Wrong.apply(x, x).sum().backward()


def test_train_modes_are_restored():
    layer = en.nn.Sequential(en.nn.Linear(4, 4), en.nn.Dropout(0.5))
    x = en.tensor(X.astype(np.float32), requires_grad=True)
    en.manual_seed(1)
    layer(x).sum().backward()
    plain = x.grad.data.copy()
    x.grad = None
    en.manual_seed(1)
    y = en.checkpoint(layer, x).sum()
    layer.eval()
    y.backward()
    assert np.array_equal(x.grad.data, plain)
    assert not layer.training

"""gradcheck through its adapters for PyTorch and JAX: right gradients pass, wrong ones are named."""

import numpy as np
import pytest
import torch

import gradcheck

RNG = np.random.default_rng(0)
X, W = RNG.normal(size=(2, 3)), RNG.normal(size=(3, 4))
Z = RNG.normal(size=4) + 1j * RNG.normal(size=4)


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 3 * g * x**2


class WrongCube(Cube):
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 2 * g * x**2


class WrongSecondCube(Cube):
    """Right at order 1, with a constant where order 2 needs the input."""

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 3 * g * x.detach() ** 2


@pytest.mark.parametrize("order", [1, 2])
def test_torch_functions_pass(order):
    gradcheck.assert_gradients(lambda x, w: torch.tanh(x @ w), X, W, order=order)
    gradcheck.assert_gradients(lambda x: torch.softmax(x, -1), X, order=order)
    gradcheck.assert_gradients(lambda x: (torch.sin(x), x.sum() ** 2), torch.tensor(X), order=order)
    gradcheck.assert_gradients(Cube, X, order=order)


def test_torch_integer_inputs_are_passed_along():
    index = np.array([2, 0, 2])
    report = gradcheck.assert_gradients(lambda w, i: torch.nn.functional.embedding(i, w), W, index)
    assert "w: full Jacobian" in str(report)


def test_torch_complex_functions_pass():
    gradcheck.assert_gradients(lambda z: torch.abs(torch.fft.fft(z)), Z)
    gradcheck.assert_gradients(lambda z: z * z.conj(), torch.tensor(Z))
    gradcheck.assert_gradients(torch.exp, Z, order=2)


def test_torch_float32_passes():
    report = gradcheck.assert_gradients(lambda x: torch.sin(x), X.astype(np.float32))
    assert report.worst < 1e-9  # it was compared in float64


def test_faults_of_a_torch_function_are_named():
    report = gradcheck.check(WrongCube, X)
    assert (report.verdict, report.kind) == ("wrong", "constant-factor")
    assert gradcheck.check(WrongSecondCube, X).passed
    second = gradcheck.check(WrongSecondCube, X, order=2)
    assert (second.verdict, second.kind) == ("wrong", "detached")
    assert "order 2" in str(second)
    assert gradcheck.check(lambda x: torch.sin(x.detach()) + 0 * x, X).kind == "detached"
    assert gradcheck.check(lambda x: torch.sin(x.detach()), X).kind == "detached"


def test_a_class_that_is_no_function_is_refused():
    with pytest.raises(TypeError, match=r"no torch\.autograd\.Function"):
        gradcheck.check(torch.nn.Linear, X)


class TestJax:
    @pytest.fixture(autouse=True)
    def jnp(self):
        self.jax = pytest.importorskip("jax")
        self.jnp = self.jax.numpy

    @pytest.mark.parametrize("order", [1, 2])
    def test_functions_pass(self, order):
        jax, jnp = self.jax, self.jnp
        gradcheck.assert_gradients(lambda x, w: jnp.tanh(x @ w), X, W, order=order)
        gradcheck.assert_gradients(lambda x: jax.nn.softmax(x), X, order=order)
        gradcheck.assert_gradients(lambda x: (jnp.sin(x), x.sum() ** 2), jnp.asarray(X), order=order)
        gradcheck.assert_gradients(jnp.tanh, X, order=order, library="jax")

    def test_complex_functions_pass_in_the_convention_of_gradcheck(self):
        jnp = self.jnp
        gradcheck.assert_gradients(lambda z: jnp.abs(jnp.fft.fft(z)), Z)
        gradcheck.assert_gradients(lambda z: z * jnp.conj(z), Z)
        gradcheck.assert_gradients(lambda z: jnp.exp(z), Z, order=2)

    def test_a_custom_vjp_is_checked(self):
        jax, jnp = self.jax, self.jnp

        @jax.custom_vjp
        def sine(x):
            return jnp.sin(x)

        sine.defvjp(lambda x: (jnp.sin(x), x), lambda x, g: (-g * jnp.cos(x),))
        report = gradcheck.check(sine, X)
        assert (report.verdict, report.kind) == ("wrong", "sign")

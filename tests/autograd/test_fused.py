"""Fused ops: inline without a kernel, one node with one, the same derivatives of every order either way."""

import numpy as np
import pytest

import entrenar as en
from entrenar.kernels import KERNELS, backend_table, kernel, unregister
from entrenar.kernels.registry import BACKENDS

X = np.random.default_rng(0).normal(size=(3, 4))


@en.fused()
def swell(x, w, b, *, power=2.0):
    """exp(x) w**power + b: b is needed by no derivative."""
    return en.exp(x) * w**power + b


@pytest.fixture
def kernels():
    """A NumPy-written backend with kernels for swell and swell.vjp; counts calls."""
    calls = []
    backend_table("spare", priority=50)

    @kernel(swell, backend="spare", when=lambda x, w, b, *, power: x.dtype == np.float64, saves=("e",), drops=("b",))
    def forward(x, w, b, *, power):
        calls.append("forward")
        e = np.exp(x)
        return e * w**power + b, e

    @kernel(f"{swell.op.key}.vjp", backend="spare")
    def backward(g, x, w, e, *, power, needs):
        calls.append("vjp")
        assert g.flags.c_contiguous
        return (g * e * w**power, (g * e * power * w ** (power - 1)).sum(0), g.sum(0))

    yield calls
    unregister(swell, "spare")
    unregister(f"{swell.op.key}.vjp", "spare")
    del BACKENDS["spare"]


def inputs():
    return tuple(en.tensor(v, requires_grad=True) for v in (X, np.arange(1.0, 5.0), np.ones(4)))


def scalar(f):
    return lambda *xs: (f(*xs) * en.tensor(np.cos(X))).sum()


def derivative(order, number):
    """d^order of swell with respect to input ``number``, each time against a fixed direction."""
    f = scalar(swell)
    for _ in range(order):
        g = en.func.grad(f, number)
        f = lambda *xs, g=g: (g(*xs) * en.tensor(np.sin(np.arange(xs[number].size)).reshape(xs[number].shape))).sum()
    return en.func.grad(f, number)(*inputs()).data


def test_inline_records_under_one_scope():
    y = swell(*inputs())
    tape = en.tape(y)
    assert len(tape) > 2
    assert all(n.scope == "swell" for n in tape.nodes)
    assert tape.folded() == f"swell: {len(tape)} ops"


def test_with_a_kernel_it_is_one_node(kernels):
    y = swell(*inputs())
    assert len(en.tape(y)) == 1
    y.sum().backward()
    assert kernels == ["forward", "vjp"]


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("order", [0, 1, 2])
def test_kernel_and_composite_agree_at_every_order(kernels, order, number):
    by_kernel = derivative(order, number)
    assert "vjp" in kernels
    del kernels[:]
    with en.backend("numpy"):
        by_composite = derivative(order, number)
    assert kernels == []
    np.testing.assert_allclose(by_kernel, by_composite, rtol=1e-12)


def test_dropped_inputs_are_not_kept(kernels):
    y = swell(*inputs())
    kept, _ = y.node.saved
    assert not hasattr(kept[2], "size")  # b: only its shape and dtype
    en.grad(y.sum(), y.node.parents[2])


def test_a_kernel_may_decline(kernels):
    x, w, b = (en.tensor(v.data.astype(np.float32)) for v in inputs())
    swell(x, w, b)
    assert kernels == []


def test_a_strided_cotangent_is_copied_for_the_kernel(kernels):
    x, w, b = inputs()
    y = swell(x, w, b)
    en.grad(y, x, gradient=np.broadcast_to(np.array([1.0]), y.shape))
    assert kernels == ["forward", "vjp"]


def test_only_what_is_needed_gets_a_gradient(kernels):
    x, w, b = inputs()
    y = swell(x.detach(), w, b)
    y.sum().backward()
    assert x.grad is None
    assert w.grad is not None


def test_an_unknown_backend_is_refused():
    with pytest.raises(ValueError, match="unknown backend 'sapre'"):
        kernel(swell, backend="sapre")


def test_a_bare_name_is_one_of_ours():
    backend_table("spare", priority=50)
    try:
        kernel("gelu", backend="spare", when=lambda *a, **k: False)(lambda x: x)
        assert any(k.backend == "spare" for k in KERNELS["entrenar:gelu"])
        unregister("gelu", "spare")
    finally:
        del BACKENDS["spare"]

"""en.func: against formulas and finite differences, nested to high order, over trees."""

import numpy as np
import pytest

import entrenar as en

X = np.array([0.5, -1.0, 2.0])


def f(x):
    return (en.tanh(x) * x * en.exp(-x * x)).sum()


def differences(g, x, h=1e-5):
    eye = np.eye(x.size).reshape(x.size, *x.shape)
    return np.stack(
        [(8 * (g(x + h * e) - g(x - h * e)) - (g(x + 2 * h * e) - g(x - 2 * h * e))) / (12 * h) for e in eye], -1
    )


def test_grad_and_value():
    value, g = en.func.value_and_grad(f)(en.tensor(X))
    np.testing.assert_allclose(g.data, differences(lambda x: f(en.tensor(x)).data, X), rtol=1e-8)
    assert value.item() == f(en.tensor(X)).item()


def test_hessian_is_the_jacobian_of_the_gradient_and_symmetric():
    h = en.func.hessian(f)(en.tensor(X)).data
    g = lambda x: en.func.grad(f)(en.tensor(x)).data
    np.testing.assert_allclose(h, differences(g, X), rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(h, h.T, atol=1e-14)


def test_hvp_without_the_hessian():
    v = np.array([1.0, -2.0, 0.5])
    g, hv = en.func.hvp(f, (en.tensor(X),), (v,))
    np.testing.assert_allclose(hv.data, en.func.hessian(f)(en.tensor(X)).data @ v, rtol=1e-12)
    np.testing.assert_allclose(g.data, en.func.grad(f)(en.tensor(X)).data, rtol=1e-14)


def test_jvp_is_j_times_v_also_at_zero_cotangents():
    x = np.array([4.0, 0.25])
    y, t = en.func.jvp(lambda x: en.sqrt(x) * x, (en.tensor(x),), (np.array([1.0, -1.0]),))
    np.testing.assert_allclose(t.data, 1.5 * np.sqrt(x) * [1, -1])
    np.testing.assert_allclose(y.data, x**1.5)


def test_jacobians_forward_and_reverse_agree():
    w = en.tensor(np.random.default_rng(0).normal(size=(3, 4)))
    g = lambda x: en.sin(en.matmul(x, w)) * x.sum()
    rev, fwd = en.func.jacrev(g)(en.tensor(X)), en.func.jacfwd(g)(en.tensor(X))
    assert rev.shape == (4, 3)
    np.testing.assert_allclose(rev.data, fwd.data, rtol=1e-12)


def test_fifth_derivative():
    d = lambda x: x**7.0
    for _ in range(5):
        d = en.func.grad(d)
    np.testing.assert_allclose(d(en.tensor(np.float64(1.5))).item(), 7 * 6 * 5 * 4 * 3 * 1.5**2, rtol=1e-12)


def test_trees_and_argnums():
    def loss(params, x):
        return (params["w"] * x + params["b"][0]).sum()

    params = {"w": en.tensor(np.float64(2)), "b": [en.tensor(np.float64(1))]}
    g = en.func.grad(loss)(params, en.tensor(X))
    assert set(g) == {"w", "b"}
    np.testing.assert_allclose([g["w"].item(), g["b"][0].item()], [X.sum(), 3])
    _, gx = en.func.grad(loss, argnums=(0, 1))(params, en.tensor(X))
    np.testing.assert_allclose(gx.data, [2, 2, 2])
    with pytest.raises(ValueError, match="argnums=5"):
        en.func.grad(loss, argnums=5)(params, en.tensor(X))


def test_an_unused_argument_has_a_zero_gradient():
    assert en.func.grad(lambda x, y: (x * x).sum(), 1)(en.tensor(X), en.tensor(X)).tolist() == [0, 0, 0]


def test_gradients_flow_to_what_a_function_captures():
    w = en.tensor(np.float64(3), requires_grad=True)
    g = en.func.grad(lambda x: (w * x * x).sum())(en.tensor(X))
    g.sum().backward()
    np.testing.assert_allclose(w.grad.item(), 2 * X.sum())


def test_nesting_keeps_orders_apart():
    inner = lambda x: en.func.grad(lambda y: x * y * y)(x)  # 2 x x
    assert en.func.grad(lambda x: inner(x))(en.tensor(np.float64(3))).item() == 12


def test_a_vector_valued_function_needs_jacrev():
    with pytest.raises(ValueError, match="jacrev"):
        en.func.grad(lambda x: x * x)(en.tensor(X))


def test_cotangents_of_a_pullback_are_checked():
    _, pull = en.func.vjp(lambda x: x * x, en.tensor(X))
    with pytest.raises(ValueError, match=r"\(2,\)"):
        pull(np.ones(2))
    np.testing.assert_allclose(pull(np.ones(3))[0].data, 2 * X)
    np.testing.assert_allclose(pull(np.ones(3))[0].data, 2 * X)  # again


def test_no_grad_outside_does_not_stop_func():
    with en.no_grad():
        np.testing.assert_allclose(en.func.grad(lambda x: (x * x).sum())(en.tensor(X)).data, 2 * X)


def test_create_graph_by_hand():
    x = en.tensor(X, requires_grad=True)
    g = en.grad((x * x * x).sum(), x, create_graph=True)
    (g * g).sum().backward()
    np.testing.assert_allclose(x.grad.data, 2 * (3 * X**2) * (6 * X))

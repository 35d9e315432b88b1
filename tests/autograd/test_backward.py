"""Walking the tape: every node once, ownership of gradients, freed graphs, cotangents (cases 13-22)."""

import gc
import tracemalloc
import warnings
import weakref
from collections import deque

import numpy as np
import pytest

import entrenar as en


def leaf(*values):
    return en.tensor(np.array(values), requires_grad=True)


def scalar(value):
    return en.tensor(np.float64(value), requires_grad=True)


def test_a_value_used_twice_is_visited_once():  # case 13
    x = scalar(3)
    y = x * x
    (y + y).backward()
    assert x.grad.item() == 12


def test_shared_products_on_two_branches():  # case 16
    x, a = scalar(1), scalar(1)
    (x * (x * a) + (x * x) * a + x * (x * a)).backward()
    assert (x.grad.item(), a.grad.item()) == (6, 3)


def test_second_backward_is_an_error_or_exactly_doubles():  # case 15
    a, b, d = scalar(3), scalar(2), scalar(1)
    loss = (a + b) * d
    loss.backward(retain_graph=True)
    assert a.grad.item() == 1
    loss.backward()
    assert (a.grad.item(), b.grad.item(), d.grad.item()) == (2, 2, 10)
    with pytest.raises(en.GraphError, match="retain_graph=True"):
        loss.backward()
    assert a.grad.item() == 2


def test_even_a_graph_that_saved_nothing_is_used_up():
    x = leaf(1.0, 2.0)
    y = en.sum(x + x)
    y.backward()
    with pytest.raises(en.GraphError, match="second time"):
        y.backward()


def test_gradients_share_no_memory_with_each_other_or_anything():  # case 19
    x, y = leaf(1.0), leaf(1.0)
    z = x + y
    (x / z).sum().backward()
    assert x.grad.tolist() == [0.25]
    assert y.grad.tolist() == [-0.25]
    assert not np.shares_memory(x.grad.data, y.grad.data)
    a, b = leaf(1.0, 2.0), leaf(1.0, 2.0)
    seed = np.ones(2)
    (a + b).backward(seed)
    assert not np.shares_memory(a.grad.data, b.grad.data)
    assert not np.shares_memory(a.grad.data, seed)
    assert a.grad.data.flags.writeable


def test_leaf_gradients_are_writable_even_where_the_pullback_broadcasts():
    x = leaf(1.0, 2.0, 3.0)
    x.sum().backward()
    x.grad.data += 1
    assert x.grad.tolist() == [2, 2, 2]


def test_a_users_pullback_that_returns_what_it_saved_does_not_leak_it():
    @en.primitive(vjp=dict(x=lambda g, x: x))
    def half_square(x):
        return 0.5 * np.sum(x * x)

    x = leaf(1.0, 2.0)
    half_square(x).backward()
    half_square(x).backward()
    assert x.data.tolist() == [1, 2]
    assert x.grad.tolist() == [2, 4]


def test_gradients_accumulate_in_place_and_zero_grad_forgets():
    x = leaf(1.0, 2.0)
    (x * x).sum().backward()
    held = x.grad.data
    (x * x).sum().backward()
    assert x.grad.data is held
    assert x.grad.tolist() == [4, 8]
    x.zero_grad()
    assert x.grad is None


@pytest.mark.parametrize("shape", [(2,), (2, 3), (0,)])
def test_a_non_scalar_needs_a_cotangent(shape):
    x = en.zeros(shape, requires_grad=True)
    with pytest.raises(ValueError, match=r"gradient="):
        (x * 2).backward()


def test_a_cotangent_must_fit():  # case 57
    for op in (lambda x: x * x, en.exp, lambda x: en.matmul(x, x), lambda x: x.T):
        x = en.tensor(np.ones((2, 2)), requires_grad=True)
        with pytest.raises(TypeError, match=r"float32.*float64"):
            op(x).backward(np.ones((2, 2), np.float32))
        with pytest.raises(ValueError, match=r"\(3,\).*\(2, 2\)"):
            op(x).backward(np.ones(3))


def test_backward_without_a_graph_says_so():
    with pytest.raises(en.GraphError, match="does not require a gradient"):
        en.tensor(1.0).backward()
    with pytest.raises(TypeError, match="expected a Tensor"):
        en.backward(3.0)


def test_several_roots_at_once():
    x = scalar(2)
    en.backward([x * 3, x * x])
    assert x.grad.item() == 7


def test_grad_leaves_dot_grad_alone_and_names_what_is_unused():
    x, z = scalar(3), scalar(1)
    y = x * x
    assert en.grad(y, x).item() == 6
    assert x.grad is None
    with pytest.raises(en.GraphError, match="input 1"):
        en.grad(x * x, [x, z])
    gx, gz = en.grad(x * x, [x, z], allow_unused=True)
    assert (gx.item(), gz) == (6, None)


def test_grad_of_an_interior_tensor_and_its_descendants():
    x = scalar(2)
    h = x * x
    k = h * h
    gh, gk = en.grad(k * h, [h, k])
    assert gk.item() == 4  # h
    assert gh.item() == 3 * 4**2  # h**3, the path through k included


def test_a_hundred_thousand_nodes_need_no_recursion():
    x = scalar(1)
    y = x
    for _ in range(100_000):
        y = y + x
    y.backward()
    assert x.grad.item() == 100_001
    del y
    gc.collect()


def test_graphs_have_no_cycles_and_die_with_their_output():
    gc.collect()
    gc.disable()
    try:
        x = leaf(1.0, 2.0)
        y = en.exp(x) * x
        alive = weakref.ref(y.node)
        del y
        assert alive() is None
    finally:
        gc.enable()


def test_live_gradient_buffers_stay_constant_along_a_chain():  # case 21
    x = en.tensor(np.eye(8), requires_grad=True)
    w = en.tensor(np.eye(8))
    buffers, most = [], []

    def watch(gradient):
        buffers.append(weakref.ref(gradient.data))
        most.append(sum(b() is not None for b in buffers))

    y = x
    for _ in range(100):
        y = y @ w
        y.register_hook(watch)
    y.sum().backward()
    assert len(most) == 100
    assert max(most) <= 3


def test_saved_values_are_freed_as_they_are_used():
    x = leaf(1.0, 2.0)
    y = en.exp(x)
    saved = weakref.ref(y.data)
    loss = y.sum()
    del y
    assert saved() is not None
    loss.backward()
    assert saved() is None


def test_a_thousand_kept_losses_bring_a_warning():  # case 22
    x = leaf(1.0)

    def train(history):
        for _ in range(1100):
            loss = (x * x).sum()
            loss.backward()
            history.append(loss)

    with pytest.warns(RuntimeWarning, match=r"loss\.item\(\)"):
        train([])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train(deque(maxlen=3))


def test_hooks_see_and_replace_gradients():
    x = leaf(1.0, 2.0)
    seen = []
    y = x * 3.0
    y.register_hook(lambda g: seen.append(g.tolist()))
    remove = x.register_hook(lambda g: g * 10.0)
    y.sum().backward()
    assert seen == [[1, 1]]
    assert x.grad.tolist() == [30, 30]
    remove()
    x.zero_grad()
    (x * 3.0).sum().backward()
    assert x.grad.tolist() == [3, 3]
    x.register_hook(lambda g: np.ones(3))
    with pytest.raises(ValueError, match=r"\(3,\)"):
        x.sum().backward()


def test_retain_grad_keeps_an_interior_gradient():
    x = leaf(1.0, 2.0)
    y = x * x
    y.retain_grad()
    (y * y).sum().backward()
    assert y.grad.tolist() == [2, 8]


def test_fan_out_with_tuple_outputs_and_unused_parts():
    x = leaf(1.0, 2.0, 3.0, 4.0)
    a, b = en.split(x, 2)
    (a * a).sum().backward()
    assert x.grad.tolist() == [2, 4, 0, 0]
    assert b.requires_grad


@pytest.mark.parametrize("op", [en.add, en.mul, en.maximum, en.exp, en.tanh], ids=lambda op: op.__name__)
def test_an_elementwise_op_allocates_its_output_and_nothing_else(op):
    x = en.tensor(np.ones(1_000_000), requires_grad=True)
    args = [x] * len(op.op.inputs)
    op(*args)  # generates its call
    tracemalloc.start()
    y = op(*args)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1.01 * y.nbytes

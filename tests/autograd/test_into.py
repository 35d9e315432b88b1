"""``into=``: a pullback that adds to what is there already, where nobody else has it; the sums stay the same."""

import numpy as np
import pytest

import entrenar as en
from entrenar.kernels import pool

SHAPE = (400, 128)
assert np.prod(SHAPE) > pool.WORTHWHILE


def leaf(dtype="float64", seed=0):
    return en.tensor(np.random.default_rng(seed).normal(size=SHAPE), dtype=dtype, requires_grad=True)


def adder(calls):
    """A row of a matrix, its ``into`` noted in ``calls``."""

    def add(total, g, row):
        calls.append(row)
        total[row] += g
        return True

    def put(g, x_meta, row):
        total = np.zeros(x_meta.shape, x_meta.dtype)
        total[row] = g
        return total

    @en.primitive(vjp=dict(x=put), into=dict(x=add))
    def row_of(x, *, row):
        return x[row]

    return row_of


def test_it_is_called_once_something_is_there():
    calls, x = [], leaf()
    row_of = adder(calls)
    sum(row_of(x, row=i).sum() * float(i + 1) for i in range(5)).backward()
    assert len(calls) == 4
    want = np.zeros(SHAPE)
    want[:5] = np.arange(1, 6)[:, None]
    np.testing.assert_array_equal(x.grad.data, want)


def test_it_is_not_called_on_what_others_have():
    calls, x, y = [], leaf(), leaf(seed=1)
    row_of = adder(calls)
    z = x * 1.0
    (row_of(z, row=2).sum() + (z + y).sum()).backward()  # the sum hands z and y one and the same array
    assert not calls
    np.testing.assert_array_equal(y.grad.data, np.ones(SHAPE))
    assert x.grad.data[2, 0] == 2.0
    assert x.grad.data[3, 0] == 1.0


def test_second_derivatives_do_not_use_it():
    x = leaf()
    y = sum((x[i] * x[i + 1]).sum() for i in range(3))
    (g,) = en.grad(y, [x], create_graph=True)
    (h,) = en.grad((g * g).sum(), [x])
    want = np.zeros(SHAPE)
    d = np.zeros(SHAPE)
    for i in range(3):
        d[i] += x.data[i + 1]
        d[i + 1] += x.data[i]
    for i in range(3):
        want[i] += 2 * d[i + 1]
        want[i + 1] += 2 * d[i]
    np.testing.assert_allclose(h.data, want)


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
@pytest.mark.parametrize("backend", ["numpy", "numba"])
def test_a_tied_embedding(dtype, backend):
    ids = np.random.default_rng(3).integers(0, SHAPE[0], 700)
    w = leaf(dtype)
    with en.backend(backend):
        (en.matmul(en.embedding(ids, w), w.T).sum() * 0.5).backward()
    exact = w.data.astype("float64")
    want = np.zeros(SHAPE)
    np.add.at(want, ids, np.broadcast_to(0.5 * exact.sum(0), (700, SHAPE[1])))
    want += 0.5 * exact[ids].sum(0)
    tolerance = {"float64": 1e-12, "float32": 2e-5, "bfloat16": 0.05}[dtype]
    error = np.abs(w.grad.data.astype("float64") - want).max() / np.abs(want).max()
    assert error < tolerance


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_ids_that_repeat_are_added_in_order(threads):
    """The same bits for any number of threads: each row adds up its ids in their order."""
    rng = np.random.default_rng(4)
    ids, g = rng.integers(0, 7, 900), rng.normal(size=(900, SHAPE[1])).astype("float32")

    def run(n):
        en.set_num_threads(n)
        w = leaf("float32")
        ((en.embedding(ids, w) * g).sum() + (w * w).sum()).backward()
        return w.grad.data

    before = en.get_num_threads()
    try:
        np.testing.assert_array_equal(run(threads), run(1))
    finally:
        en.set_num_threads(before)


def test_many_reads_of_a_large_array_cost_what_they_read():
    """A loop over rows once made an array of the whole input per row."""
    x = leaf("float32")
    out = sum((x[i] * float(i)).sum() for i in range(SHAPE[0]))
    out.backward()
    np.testing.assert_array_equal(x.grad.data, np.repeat(np.arange(SHAPE[0], dtype="float32"), SHAPE[1]).reshape(SHAPE))


@pytest.mark.parametrize(
    ("into", "said"),
    [
        (dict(x=lambda total, g, z: True), "asks for 'z'"),
        (dict(x=lambda total, g, y: True), "into='x' asks for .*'y'"),
        (dict(z=lambda total, g: True), "into='z'"),
    ],
)
def test_names_it_cannot_have(into, said):
    with pytest.raises(TypeError, match=said):

        @en.primitive(vjp=dict(x=lambda g, x: g), into=into)
        def f(x):
            return x * 1

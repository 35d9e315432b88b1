"""Products of a few rows: both layouts of the matrix, every dtype, sizes beside those of strips and registers."""

import itertools

import numpy as np
import pytest

import entrenar as en
from entrenar.array import as_dtype
from entrenar.kernels import blas, pool, products
from entrenar.kernels.numba import few_rows

SIZES = [(1030, 700), (515, 2001), (64, 9000), (4099, 67)]
TOLERANCE = {"float64": 1e-14, "float32": 1e-6, "bfloat16": 1e-6}


def operands(rows, depth, columns, dtype, layout):
    rng = np.random.default_rng([rows, depth])
    a, b = rng.normal(size=(rows, depth)).astype(dtype), rng.normal(size=(depth, columns)).astype(dtype)
    return a, np.asfortranarray(b) if layout == "F" else b


@pytest.mark.parametrize("layout", ["C", "F"])
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_values(dtype, layout, threads):
    kind = as_dtype(dtype)
    for (depth, columns), rows in itertools.product(SIZES, [1, 2, 3, 4, 7, 8]):
        a, b = operands(rows, depth, columns, kind, layout)
        before = a.copy(), b.copy()
        y = few_rows.product(a, b)
        wide = a.astype(np.float64), b.astype(np.float64)
        assert y.dtype == (np.float32 if dtype == "bfloat16" else kind)
        bound = TOLERANCE[dtype] * (np.abs(wide[0]) @ np.abs(wide[1]))
        assert (np.abs(y - wide[0] @ wide[1]) <= bound).all(), (rows, depth, columns)
        np.testing.assert_array_equal(a, before[0])
        np.testing.assert_array_equal(b, before[1])


@pytest.mark.parametrize("layout", ["C", "F"])
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_threads_change_no_bit(dtype, layout):
    before, results = pool.threads(), []
    a, b = operands(3, 1030, 701, as_dtype(dtype), layout)
    try:
        for count in (1, 2, 3):
            pool.limit(count)
            results.append(few_rows.product(a, b).tobytes())
    finally:
        pool.limit(before)
    assert results[0] == results[1] == results[2]


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_matmul_asks_it_for_a_few_rows_and_adds_the_bias(monkeypatch, dtype):
    kind = as_dtype(dtype)
    calls = []
    plain = few_rows.product
    monkeypatch.setattr(few_rows, "product", lambda a, b: calls.append(len(a)) or plain(a, b))
    bias = np.random.default_rng(0).normal(size=700).astype(np.float32 if dtype == "bfloat16" else kind)
    for layout, rows in itertools.product("CF", [1, 4, 8, 9]):
        a, b = operands(rows, 1030, 700, kind, layout)
        y = products.matmul(a, b, bias)
        exact = a.astype(np.float64) @ b.astype(np.float64) + bias
        assert y.dtype == kind
        np.testing.assert_allclose(y.astype(np.float64), exact, rtol=2**-8 if dtype == "bfloat16" else 1e-5, atol=1e-3)
    assert calls == [1, 4, *([8] if dtype == "bfloat16" else []), 1, 4, 8]


def test_other_matrices_are_for_blas():
    a, b = operands(1, 1030, 700, np.float32, "C")
    assert few_rows.accepted(a, b)
    assert not few_rows.accepted(a, b[:, ::2])
    assert not few_rows.accepted(a, b[:, :40])
    assert not few_rows.accepted(a, b.astype(np.float64))
    np.testing.assert_allclose(products.matmul(a, b[:, ::-1]), blas.matmul(a, b)[:, ::-1], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("layout", ["C", "F"])
def test_read_only_weights_and_strided_rows(layout):
    a, b = operands(2, 1030, 700, np.float32, layout)
    expected = few_rows.product(a, b)
    b.flags.writeable = False
    view = np.repeat(a, 2, axis=1)[:, ::2]
    assert np.array_equal(few_rows.product(view, b), expected)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_stays_in_its_row_or_column(bad):
    for layout in "CF":
        a, b = operands(5, 1030, 700, np.float32, layout)
        a[1, 3], b[4, 600] = bad, bad
        with np.errstate(all="ignore"):
            finite = np.isfinite(few_rows.product(a, b))
        assert not finite[1].any()
        assert not finite[:, 600].any()
        assert np.delete(np.delete(finite, 1, 0), 600, 1).all()


def test_gradients_of_a_projection_of_one_row():
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(1, 600)), rng.normal(size=(700, 600))

    def run():
        leaves = [en.tensor(v, requires_grad=True) for v in (x, w)]
        y = en.linear(*leaves)
        return [t.data for t in (y, *en.grad(en.sin(y).sum(), leaves))]

    by_kernel = run()
    with en.backend("numpy"):
        for a, b in zip(by_kernel, run(), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10)

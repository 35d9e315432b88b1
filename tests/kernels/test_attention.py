"""The loops of attention over several blocks and pieces of every kind, and the product of a tile."""

import itertools

import numpy as np
import pytest

import entrenar as en
from entrenar.autograd import OPS
from entrenar.kernels import REFERENCE, pool
from entrenar.kernels.numba import attention as kernels
from entrenar.kernels.numba.jit import jit
from entrenar.kernels.numba.tiles import ROWS, columns, tile

attend = OPS["entrenar:attention"]
MASKS = {
    "none": lambda rng, full: None,
    "one per key": lambda rng, full: rng.normal(size=full[-1:]),
    "one per row": lambda rng, full: rng.random((*full[:1], 1, full[-2], 1)) > 0.3,
    "shared by heads": lambda rng, full: rng.random(full[-2:]) > 0.3,
    "read-only": lambda rng, full: np.broadcast_to(rng.normal(size=(full[1], 1, full[-1])), full),
}
VISIBLE = [(True, None), (False, None), (True, 1), (True, 20), (False, 70)]


def values(backend, q, k, v, mask, keep, **kwargs):
    with en.backend(backend):
        xs = [en.tensor(a, requires_grad=True) for a in (q, k, v)]
        y = attend(*xs, mask, keep, **kwargs)
        g = np.cos(np.arange(y.size, dtype=q.dtype)).reshape(y.shape)
        return [t.data for t in (y, *en.grad(y, xs, gradient=g))]


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("offset", [0, 31, -40])
def test_several_blocks_and_pieces(monkeypatch, mask, offset):
    monkeypatch.setattr(kernels, "PIECE", 128)
    rng = np.random.default_rng(0)
    for (rows, keys), (causal, window) in itertools.product([(137, 137), (65, 203), (150, 33)], VISIBLE):
        q = rng.normal(size=(2, rows, 4, 7)).transpose(0, 2, 1, 3)
        k, v = rng.normal(size=(2, keys, 2, 7)).transpose(0, 2, 1, 3), rng.normal(size=(2, 2, keys, 35))
        full = (2, 4, rows, keys)
        keep = rng.random(full) > 0.3 if causal else None
        made = MASKS[mask](rng, full)
        how = {"scale": -0.6, "causal": causal, "window": window, "offset": offset, "dropout": 0.3 if causal else 0.0}
        pairs = zip(
            values("numba", q, k, v, made, keep, **how), values(REFERENCE, q, k, v, made, keep, **how), strict=True
        )
        for a, b in pairs:
            np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-11, err_msg=f"{rows} x {keys}, {how}")


def test_the_heads_of_a_row_are_adjacent():
    packed = np.random.default_rng(0).normal(size=(2, 9, 3, 4, 5)).astype(np.float32)
    q, k, v = packed.transpose(2, 0, 3, 1, 4)
    before = packed.copy()
    y = en.scaled_dot_product_attention(q, k, v, causal=True)
    assert y.transpose(0, 2, 1, 3).flags.c_contiguous
    np.testing.assert_array_equal(packed, before)


def test_rows_of_a_nan_and_the_others(monkeypatch):
    rng = np.random.default_rng(0)
    q, k, v = rng.normal(size=(3, 2, 150, 8))
    q[1, 70, 3] = np.nan
    how = {"scale": 0.3, "causal": True, "window": None, "offset": 0, "dropout": 0.0}
    y, gq, _, gv = values("numba", q, k, v, None, None, **how)
    expected = values(REFERENCE, q, k, v, None, None, **how)
    np.testing.assert_allclose(y, expected[0], rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(gq, expected[1], rtol=1e-11, atol=1e-11)
    assert np.isnan(gv[1, :71]).all()
    assert not np.isnan(gv[0]).any()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_threads_change_no_bit(dtype):
    rng = np.random.default_rng(0)
    q, k, v = (rng.normal(size=(3, heads, 600, 20)).astype(dtype) for heads in (4, 2, 2))
    keep = rng.random((3, 4, 600, 600)) > 0.1
    how = {"scale": 0.2, "causal": True, "window": None, "offset": 0, "dropout": 0.1}
    before, results = pool.threads(), []
    try:
        for count in (1, 2, 3, 2):
            pool.limit(count)
            results.append([a.tobytes() for a in values("numba", q, k, v, None, keep, **how)])
    finally:
        pool.limit(before)
    assert all(r == results[0] for r in results)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_tile_is_a_product(dtype):
    @jit
    def run(c, a, row_a, column_a, b, depth, add):
        n = b.size // depth
        tile(c, 3, n + 2, a, 1, row_a, column_a, b, 0, n, depth, add)

    rng, depth, n = np.random.default_rng(0), 11, columns(np.dtype(dtype).itemsize)
    a, b = rng.normal(size=(ROWS, depth)).astype(dtype), rng.normal(size=(depth, n)).astype(dtype)
    c = np.full(3 + ROWS * (n + 2), 5, dtype)
    for add in (False, True):
        for view, row, column in ((a, depth, 1), (a.T, 1, ROWS)):
            c[:] = 5
            run(c, np.append(dtype(0), view.ravel()), row, column, b.ravel(), depth, add)
            got = c[3:].reshape(ROWS, n + 2)
            np.testing.assert_allclose(got[:, :n], a @ b + 5 * add, rtol=0, atol=50 * np.finfo(dtype).eps)
            assert (got[:, n:] == 5).all()
            assert (c[:3] == 5).all()

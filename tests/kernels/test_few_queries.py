"""Attention of a few queries at many keys, which lie in a fixed buffer: against the composite, and never copied."""

import itertools

import numpy as np
import pytest

import entrenar as en
from entrenar.array import as_dtype
from entrenar.autograd import OPS
from entrenar.kernels import REFERENCE, SERVED, pool
from entrenar.kernels.numba import attention as kernels

attend = OPS["entrenar:attention"]
SIZES = [(1, 17), (1, 200), (3, 75), (5, 300), (16, 333)]  # queries, keys
MASKS = {
    "none": lambda rng, full: None,
    "padding": lambda rng, full: rng.random((full[0], 1, 1, full[-1])) > 0.4,
    "added": lambda rng, full: rng.normal(size=full[-2:]),
    "a row that sees nothing": lambda rng, full: np.arange(full[-2])[:, None] > np.zeros(full[-1]),
}
VISIBLE = [(True, None), (False, None), (True, 1), (True, 20), (False, 40)]


def buffers(rows, keys, heads=6, shared=2, width=7, values=11, dtype=np.float64, room=400):
    """Queries as a projection leaves them; the first ``keys`` of longer buffers."""
    rng = np.random.default_rng([rows, keys])
    q = rng.normal(size=(2, rows, heads, width)).astype(dtype).transpose(0, 2, 1, 3)
    k, v = (np.full((2, shared, room, n), np.nan, dtype) for n in (width, values))
    for a in (k, v):
        a[:, :, :keys] = rng.normal(size=(2, shared, keys, a.shape[-1])).astype(dtype)
    return rng, q, k[:, :, :keys], v[:, :, :keys]


def values(backend, q, k, v, mask, **kwargs):
    with en.backend(backend):
        xs = [en.tensor(a, requires_grad=True) for a in (q, k, v)]
        y = attend(*xs, mask, dropout=0.0, **kwargs)
        g = np.cos(np.arange(y.size, dtype=q.dtype)).reshape(y.shape)
        return [t.data for t in (y, *en.grad(y, xs, gradient=g))]


@pytest.fixture
def few(monkeypatch):
    """How often the path of this file was taken."""
    calls, run = [], kernels.few
    monkeypatch.setattr(kernels, "few", lambda *args, **how: calls.append(1) or run(*args, **how))
    return calls


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("heads", [(6, 6), (6, 2), (6, 1)])
def test_values_and_gradients(few, mask, heads):
    for (rows, keys), (causal, window) in itertools.product(SIZES, VISIBLE):
        for offset in (keys - rows, 3, -rows):
            rng, q, k, v = buffers(rows, keys, *heads)
            made = MASKS[mask](rng, (2, heads[0], rows, keys))
            how = {"scale": -0.6, "causal": causal, "window": window, "offset": offset}
            pairs = zip(values("numba", q, k, v, made, **how), values(REFERENCE, q, k, v, made, **how), strict=True)
            for a, b in pairs:
                np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-11, err_msg=f"{rows} x {keys}, {how}")
    assert len(few) == len(SIZES) * len(VISIBLE) * 3


@pytest.mark.parametrize(("dtype", "rtol"), [("float32", 1e-5), ("bfloat16", 2**-7), ("float16", 2**-10)])
def test_other_dtypes(few, dtype, rtol):
    for mask, (rows, keys) in itertools.product(("none", "padding", "added"), SIZES):
        rng, q, k, v = buffers(rows, keys, dtype=as_dtype(dtype))
        made = MASKS[mask](rng, (2, 6, rows, keys))
        made = made.astype(as_dtype(dtype)) if mask == "added" else made
        how = {"scale": 0.4, "causal": True, "window": None, "offset": keys - rows, "dropout": 0.0}
        SERVED.pop("entrenar:attention", None)
        y = attend(*(en.tensor(a) for a in (q, k, v)), made, **how)
        assert y.dtype == as_dtype(dtype)
        assert SERVED["entrenar:attention"] == {"numba"}
        with en.backend(REFERENCE):
            exact = attend(
                *(en.tensor(a.astype(np.float64)) for a in (q, k, v)),
                made.astype(np.float64) if mask == "added" else made,
                **how,
            ).data
        np.testing.assert_allclose(y.data.astype(np.float64), exact, rtol=rtol, atol=rtol * np.abs(exact).max())
    assert len(few) == 3 * len(SIZES)


def test_keys_and_values_are_used_where_they_lie(monkeypatch):
    _, q, k, v = buffers(1, 300)
    seen, run = [], kernels.attend_few
    monkeypatch.setattr(kernels, "attend_few", lambda *args: seen.append(args[2:4]) or run(*args))
    attend(q, k, v, scale=1.0, causal=False, window=None, offset=0, dropout=0.0)
    assert seen
    assert all(np.shares_memory(a.memory, b) for pair in seen for a, b in zip(pair, (k, v), strict=True))


def test_nan_of_a_key_reaches_the_rows_that_see_it():
    _, q, k, v = buffers(3, 90)
    k[0, 1, 50] = np.nan
    v[1, 0, 89] = np.inf
    how = {"scale": 0.3, "causal": True, "window": None, "offset": 87, "dropout": 0.0}
    y = attend(q, k, v, **how)
    with en.backend(REFERENCE), np.errstate(all="ignore"):
        expected = attend(q, k, v, **how)
    for got, right in ((y[0], expected[0]), (y[1, 3:], expected[1, 3:]), (y[1, :3, 2], expected[1, :3, 2])):
        np.testing.assert_allclose(got, right, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_threads_change_no_bit(dtype):
    _, q, k, v = buffers(3, 390, width=64, values=64, dtype=as_dtype(dtype))
    before, results = pool.threads(), []
    try:
        for count in (1, 2, 3):
            pool.limit(count)
            y = attend(q, k, v, scale=0.1, causal=True, window=None, offset=387, dropout=0.0)
            results.append(y.tobytes())
    finally:
        pool.limit(before)
    assert results[0] == results[1] == results[2]


def test_dropout_and_longer_blocks_of_queries_are_for_the_other_path(few):
    rng, q, k, v = buffers(2, 300)
    keep = rng.random((2, 6, 2, 300)) > 0.3
    how = {"scale": 0.3, "causal": False, "window": None, "offset": 0}
    for args, dropout in (((q, k, v, None, keep), 0.3), (buffers(17, 300)[1:], 0.0)):
        with en.backend(REFERENCE):
            expected = attend(*args, dropout=dropout, **how)
        np.testing.assert_allclose(attend(*args, dropout=dropout, **how), expected, rtol=1e-11, atol=1e-11)
    assert few == []

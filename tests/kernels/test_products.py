"""Matrix products by the kernels: nearer to the exact one than BLAS, whatever layout, threads and chunks."""

import ml_dtypes
import numpy as np
import pytest

import entrenar as en
from entrenar.kernels import blas, pool, products
from entrenar.ops import linalg

BF16 = np.dtype(ml_dtypes.bfloat16)
SHAPES = ((256, 256, 256), (300, 77, 450), (225, 33, 257), (1, 40, 3), (97, 1, 64), (33, 3000, 31))
needs_unit = pytest.mark.skipif(products.UNIT == "", reason="no bfloat16 unit here, or the extension was not built")
needs_tiles = pytest.mark.skipif(products.UNIT != "amx", reason="no AMX here, or the extension was not built")


def laid_out(x, layout):
    """x in another memory layout."""
    if layout == "rows":
        return np.ascontiguousarray(x)
    if layout == "columns":
        return np.asfortranarray(x)
    if layout == "reversed":
        return np.ascontiguousarray(x[::-1, ::-1])[::-1, ::-1]
    return np.repeat(np.repeat(x, 2, 0), 2, 1)[::2, ::2]


@pytest.fixture(autouse=True)
def everything_is_large(monkeypatch):
    monkeypatch.setattr(products, "LARGE", 0)
    monkeypatch.setattr(products, "ASPECT", 0)


@pytest.fixture
def threads():
    """Set the number of threads; put back at the end."""
    before = pool._limit
    yield pool.limit
    pool.limit(before)


def operands(shape, dtype, seed=0, layouts=("rows", "rows")):
    rng = np.random.default_rng(seed)
    rows, inner, columns = shape
    pair = rng.normal(size=(rows, inner)), rng.normal(size=(inner, columns))
    return tuple(laid_out(x.astype(dtype), layout) for x, layout in zip(pair, layouts, strict=True))


def errors(y, a, b):
    """Errors in units of |a| |b|, which is what rounding errors grow with."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    return (y.astype(np.float64) - a @ b) / (np.abs(a) @ np.abs(b))


def error(y, a, b):
    """The largest of the errors."""
    return float(np.abs(errors(y, a, b)).max())


@needs_tiles
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("left", ["rows", "columns", "reversed", "strided"])
@pytest.mark.parametrize("right", ["rows", "columns", "reversed", "strided"])
def test_a_split_product_is_as_exact_as_blas(shape, left, right):
    a, b = operands(shape, np.float32, layouts=(left, right))
    copies = a.copy(), b.copy()
    y = products.matmul(a, b)
    assert y.dtype == np.float32
    assert error(y, a, b) <= max(1.5 * error(np.matmul(a, b), a, b), 2.0**-24)
    np.testing.assert_array_equal(a, copies[0])
    np.testing.assert_array_equal(b, copies[1])


@needs_tiles
@pytest.mark.parametrize("kind", ["positive", "cancelling", "uneven"])
def test_a_split_product_is_as_exact_as_blas_on_hard_numbers(kind):
    a, b = operands((200, 500, 210), np.float32, seed=1)
    if kind == "positive":
        a, b = abs(a), abs(b)
    elif kind == "cancelling":
        a[:, 1::2], b[1::2] = -a[:, ::2] * np.float32(1.0001), b[::2]
    else:
        a, b = a * np.exp2(np.arange(500, dtype=np.float32) / 8 - 30), b * np.exp2(np.arange(210, dtype=np.float32) / 4)
    ours, blas_ = (float(np.sqrt(np.mean(errors(y, a, b) ** 2))) for y in (products.matmul(a, b), np.matmul(a, b)))
    assert ours <= blas_


@needs_tiles
def test_whole_numbers_and_the_identity_are_exact():
    rng = np.random.default_rng(2)
    a, b = (rng.integers(-2000, 2000, n).astype(np.float32) for n in ((70, 3), (3, 90)))
    np.testing.assert_array_equal(products.matmul(a, b), a.astype(np.int64) @ b.astype(np.int64))
    x = rng.normal(size=(100, 100)).astype(np.float32) * np.exp2(rng.integers(-90, 90, (100, 100))).astype(np.float32)
    np.testing.assert_array_equal(products.matmul(x, np.eye(100, dtype=np.float32)), x)
    np.testing.assert_array_equal(products.matmul(np.eye(100, dtype=np.float32), x), x)


@needs_tiles
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 2.0**127])
@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.filterwarnings("ignore:(invalid value|overflow) encountered")
def test_what_a_split_cannot_hold_goes_to_blas(value, side):
    pair = operands((100, 40, 90), np.float32)
    pair[side][-1, -1] = value
    np.testing.assert_array_equal(products.matmul(*pair), blas.matmul(*pair))


@needs_unit
@pytest.mark.parametrize("unit", ["amx", "avx512"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("layout", ["rows", "columns", "strided"])
def test_bfloat16_is_summed_in_float32_and_rounded_once(unit, shape, layout, monkeypatch):
    if unit == "amx" and products.UNIT != "amx":
        pytest.skip("no AMX here")
    monkeypatch.setattr(products, "UNIT", unit)
    a, b = operands(shape, BF16, layouts=(layout, layout))
    exact = products.matmul(a, b, dtype=np.float32)
    assert exact.dtype == np.float32
    assert error(exact, a, b) <= 1.5 * error(a.astype(np.float32) @ b.astype(np.float32), a, b) + 2.0**-24
    np.testing.assert_array_equal(products.matmul(a, b), exact.astype(BF16))


@needs_tiles
@pytest.mark.parametrize("dtype", [np.float32, BF16])
def test_a_bias_is_added_before_the_rounding(dtype):
    a, b = operands((70, 1100, 90), dtype)
    bias = np.random.default_rng(3).normal(size=90).astype(np.float32)
    y = products.matmul(a, b, bias)
    assert y.dtype == a.dtype
    np.testing.assert_array_equal(y, (products.matmul(a, b, dtype=np.float32) + bias).astype(dtype))


@needs_unit
@pytest.mark.parametrize("dtype", [np.float32, np.float64, BF16])
def test_threads_and_chunks_change_no_bit(dtype, threads, monkeypatch):
    a, b = operands((600, 200, 700), dtype)
    bias = np.ones(700, np.float64 if dtype == np.float64 else np.float32)
    monkeypatch.setattr(blas, "PIECE", 1 << 20)
    results = []
    for count, chunk in ((1, 4096), (2, 4096), (3, 4096), (2, 256)):
        threads(count)
        monkeypatch.setattr(products, "CHUNK", chunk)
        results += [products.matmul(a, b, bias) for _ in range(5)]
    for y in results[1:]:
        np.testing.assert_array_equal(y, results[0])


@pytest.mark.parametrize("lead", [((), ()), ((3,), (3,)), ((2, 1), (3,)), ((5,), ())])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_pieces_of_blas_make_the_whole(lead, dtype, threads, monkeypatch):
    monkeypatch.setattr(blas, "PIECE", 1 << 16)
    monkeypatch.setattr(blas, "ALONE", 0)
    rng = np.random.default_rng(4)
    a, b = rng.normal(size=(*lead[0], 65, 70)).astype(dtype), rng.normal(size=(*lead[1], 70, 131)).astype(dtype)
    for x, y in ((a, b), (b.swapaxes(-1, -2), a.swapaxes(-1, -2))):
        made = []
        for count in (1, 2):
            threads(count)
            made.append(blas.matmul(x, y))
        np.testing.assert_array_equal(*made)
        np.testing.assert_allclose(made[0], np.matmul(x, y), rtol=1e-4 if dtype == np.float32 else 1e-12, atol=1e-5)


def test_blas_has_its_threads_back_afterwards():
    before = [x.get_num_threads() for x in blas.libraries()]
    with blas.single(), blas.single():
        assert all(x.get_num_threads() == 1 for x in blas.libraries())
    with pytest.raises(ValueError, match="mismatch"):
        blas.matmul(np.ones((2000, 300)), np.ones((200, 2000)))
    with pytest.raises(ValueError, match="mismatch"):
        products.matmul(np.ones((2000, 300), np.float32), np.ones((200, 2000), np.float32))
    assert [x.get_num_threads() for x in blas.libraries()] == before


@needs_tiles
def test_the_reference_backend_is_numpy():
    a, b = operands((256, 300, 256), np.float32)
    with en.backend("numpy"):
        np.testing.assert_array_equal(linalg.product(a, b), np.matmul(a, b))
    np.testing.assert_array_equal(linalg.product(a, b), products.matmul(a, b))
    assert not np.array_equal(products.matmul(a, b), np.matmul(a, b))

"""The embedding kernels against NumPy: sums in the order of ids to the last bit, for any width and thread count."""

import numpy as np
import pytest

import entrenar as en
from entrenar.kernels import SERVED
from entrenar.ops.layers import embedding_sum


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("many", "count", "width"), [(5000, 7, 1), (3000, 50, 33), (300, 900, 64), (2, 1, 5)])
def test_sums_are_those_of_one_addition_after_the_other(threads, dtype, many, count, width):
    rng = np.random.default_rng(0)
    ids, values = rng.integers(0, count, many), rng.normal(size=(many, width)).astype(dtype)
    expected = np.zeros((count, width), dtype)
    np.add.at(expected, ids, values)
    with en.backend("numba"):
        assert embedding_sum(ids, values, count=count).tobytes() == expected.tobytes()


@pytest.mark.parametrize("kind", [np.uint8, np.int16, np.int32, np.uint64])
def test_rows_are_those_of_the_table(threads, kind):
    ids = np.random.default_rng(0).integers(0, 90, (30, 40)).astype(kind)[:, ::-2]
    table = np.random.default_rng(1).normal(size=(90, 70))
    with en.backend("numba"):
        np.testing.assert_array_equal(en.embedding(ids, table), table[ids])


def read_only(a):
    a.flags.writeable = False
    return a


@pytest.mark.parametrize("view", [lambda a: a[::-1], np.asfortranarray, lambda a: a[:, 1:], read_only])
def test_a_table_that_would_be_copied_as_a_whole_is_declined(view):
    table, ids = view(np.random.default_rng(1).normal(size=(9, 7))), np.array([[3, 8, 0]])
    SERVED.pop("entrenar:embedding", None)
    np.testing.assert_array_equal(en.embedding(ids, table), table[ids])
    assert "entrenar:embedding" not in SERVED


def test_most_ids_alike_leave_no_row_out(threads):
    ids = np.full(4000, 5)
    ids[::7] = np.arange(572) % 11
    values = np.random.default_rng(0).normal(size=(4000, 9))
    expected = np.zeros((11, 9))
    np.add.at(expected, ids, values)
    with en.backend("numba"):
        assert embedding_sum(ids, values, count=11).tobytes() == expected.tobytes()


@pytest.mark.parametrize("bad", [-1, 5])
def test_an_id_out_of_range_reaches_no_kernel(bad):
    with pytest.raises(IndexError, match=f"id {bad} at index"):
        en.embedding(np.array([0, bad]), np.zeros((5, 3), np.float32))
    SERVED.pop("entrenar:embedding_sum", None)
    if bad == 5:
        with pytest.raises(IndexError):
            embedding_sum(np.array([0, bad]), np.zeros((2, 3)), count=5)
    else:
        embedding_sum(np.array([0, bad]), np.zeros((2, 3)), count=5)
    assert "entrenar:embedding_sum" not in SERVED

"""The rope kernel against the portable forward: every layout of x and of the tables, without a bit of difference."""

import numpy as np
import pytest

import entrenar as en
from entrenar.kernels import SERVED
from entrenar.ops.attention import rotate

SHAPE = (2, 3, 5, 12)
VIEWS = {
    "contiguous": lambda a: a,
    "heads moved": lambda a: np.ascontiguousarray(a.transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3),
    "one of three projections": lambda a: np.stack([a, a, a], 3)[:, :, :, 1],
    "reversed rows": lambda a: a[:, :, ::-1],
    "reversed elements": lambda a: a[..., ::-1],
    "every second": lambda a: np.repeat(a, 2, -1)[..., ::2],
    "stride 0": lambda a: np.broadcast_to(a[:, :1], a.shape),
    "column-major": np.asfortranarray,
}


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("tables", [(5, 4), (5, 6), (1, 4), (2, 1, 5, 4), (2, 3, 5, 1), (3, 1, 2), (4,)])
@pytest.mark.parametrize("view", VIEWS)
def test_the_bits_are_those_of_the_portable_forward(view, tables, dtype, interleaved):
    rng = np.random.default_rng(0)
    x, angles = VIEWS[view](rng.normal(size=SHAPE).astype(dtype)), rng.normal(size=tables)
    args = x, np.cos(angles), np.sin(angles)
    before = x.copy()
    SERVED.pop("entrenar:rotate", None)
    y = rotate(*args, interleaved=interleaved)
    assert "numba" in SERVED["entrenar:rotate"]
    with en.backend("numpy"):
        np.testing.assert_array_equal(y, rotate(*args, interleaved=interleaved))
    assert y.dtype == dtype
    assert y.flags.c_contiguous
    np.testing.assert_array_equal(x, before)


def test_tables_of_two_shapes_and_a_read_only_input():
    rng = np.random.default_rng(0)
    x, cos, sin = rng.normal(size=SHAPE), rng.normal(size=(5, 4)), rng.normal(size=(3, 1, 4))
    x.flags.writeable = False
    y = rotate(x, cos, sin, interleaved=False)
    with en.backend("numpy"):
        np.testing.assert_array_equal(y, rotate(x, cos, sin, interleaved=False))

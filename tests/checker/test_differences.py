"""The numeric side: a slope, and a bar that holds its error."""

import numpy as np
import pytest

from gradcheck.arrays import backward, column_major, constant, from_real, pack, repeated_rows, strided, to_real, unpack
from gradcheck.differences import Noise, noise_of, slope_along

DOUBLE = float(np.finfo(float).eps)
CURVES = {
    "sin": (np.sin, np.cos, 0.7),
    "exp": (np.exp, np.exp, 3.0),
    "log": (np.log, lambda x: 1 / x, 0.02),
    "reciprocal": (lambda x: 1 / x, lambda x: -1 / x**2, -4.0),
    "fast": (lambda x: np.sin(40 * x), lambda x: 40 * np.cos(40 * x), 1.3),
    "square": (np.square, lambda x: 2 * x, 1e5),
    "narrow": (lambda x: np.tanh(50 * x), lambda x: 50 / np.cosh(50 * x) ** 2, 0.1),
}


@pytest.mark.parametrize("name", CURVES)
def test_the_bar_holds_the_error_and_is_narrow(name):
    f, slope, x = CURVES[name]
    found = slope_along(lambda t: np.array([f(x + t * abs(x))]), Noise(DOUBLE), step=0.05)
    error = abs(found.value[0] - slope(x) * abs(x))
    assert error <= 5 * found.bar[0]
    assert found.bar[0] <= 1e-8 * abs(slope(x) * x)


def test_each_output_has_its_own_bar():
    found = slope_along(lambda t: np.array([np.exp(1 + t), 1e9 + t, 2.0]), Noise(DOUBLE), step=0.05)
    assert found.value == pytest.approx([np.e, 1, 0], abs=1e-5)
    assert found.bar[0] < 1e-9 < found.bar[1] < 1e-4


def test_a_step_that_leaves_the_domain_is_shortened():
    with np.errstate(all="ignore"):
        found = slope_along(lambda t: np.array([np.sqrt(1e-6 + t)]), Noise(DOUBLE), step=0.05)
        assert found.value[0] == pytest.approx(500, rel=1e-8)
        assert slope_along(lambda t: np.array([np.sqrt(t)]), Noise(DOUBLE), step=0.05) is None


def test_a_kink_near_by_is_stepped_below():
    found = slope_along(lambda t: np.array([abs(t - 1e-3)]), Noise(DOUBLE), step=0.05)
    assert found.value[0] == pytest.approx(-1, abs=1e-8)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_noise_is_measured(dtype):
    eps = float(np.finfo(dtype).eps)
    noise = noise_of(lambda t: np.sin(np.array([1.0, 0.3]) + t).astype(dtype).astype(float), 0.5, DOUBLE, widen=True)
    assert (noise > eps / 30).all()
    assert (noise < 3 * eps).all()


def test_smooth_curves_and_jumps_are_no_noise():
    smooth = noise_of(lambda t: np.array([np.exp(3 + t), 1 / (1 + t)]), 0.05, DOUBLE, widen=True)
    assert (smooth < 1e-13).all()
    jump = noise_of(lambda t: np.array([np.floor(2 + t)]), 0.05, DOUBLE, widen=True)
    assert jump[0] == 0


def test_complex_arrays_are_pairs_of_reals():
    z = np.array([[1 + 2j, 3 - 4j]])
    assert to_real(z).tolist() == [1, 2, 3, -4]
    assert np.array_equal(from_real(to_real(z), z), z)
    several = (z, np.array(5.0), np.zeros((0, 2)), np.arange(3.0))
    for a, b in zip(unpack(pack(several), several), several, strict=True):
        assert np.array_equal(a, b)


@pytest.mark.parametrize("layout", [strided, backward, column_major])
def test_a_layout_changes_the_strides_and_not_the_values(layout):
    x = np.arange(12.0).reshape(3, 4)
    view = layout(x, np.random.default_rng(0))
    assert np.array_equal(view, x)
    assert view.strides != x.strides


def test_stride_0_layouts_are_writable_views_of_one_place():
    x = np.arange(12.0).reshape(3, 4)
    everywhere, rows = constant(x, None), repeated_rows(x, None)
    assert everywhere.strides == (0, 0)
    assert rows.strides == (0, 8)
    assert np.array_equal(rows, np.stack([x[0]] * 3))
    assert everywhere.flags.writeable

"""Dtypes of tensors: what is kept, what is refused, and bfloat16."""

import ml_dtypes
import numpy as np
import pytest

import entrenar as en


def test_numpy_dtypes_are_kept_and_python_floats_take_the_default():
    assert en.tensor(np.ones(2)).dtype == np.float64
    assert en.tensor([1.0, 2.0]).dtype == np.float32
    assert en.tensor(1.5).dtype == np.float32
    assert en.tensor([1, 2]).dtype == np.int64
    assert en.tensor([np.float64(1.0)]).dtype == np.float64
    assert en.tensor([True]).dtype == np.bool_
    assert en.zeros(2).dtype == en.randn(2).dtype == np.float32


def test_the_default_dtype_can_be_set_and_is_a_float():
    en.set_default_dtype("float64")
    try:
        assert en.tensor([1.0]).dtype == en.zeros(1).dtype == np.float64
    finally:
        en.set_default_dtype(np.float32)
    with pytest.raises(TypeError, match="int64"):
        en.set_default_dtype(np.int64)


@pytest.mark.parametrize("bad", [1j, np.ones(2, np.complex64), "text", [object()], [[1.0], [1.0, 2.0]]])
def test_what_no_tensor_can_hold_is_refused(bad):
    with pytest.raises((TypeError, ValueError)):
        en.tensor(bad)


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2"])
def test_floats_of_8_bits_are_refused_by_name(name):
    with pytest.raises(TypeError, match=f"cannot hold {name}"):
        en.tensor(np.ones(2)).astype(getattr(ml_dtypes, name))


def test_complex_is_refused_by_name():
    with pytest.raises(TypeError, match="complex64"):
        en.tensor(np.ones(2, np.complex64))
    with pytest.raises(TypeError, match="complex"):
        en.tensor([1.0], requires_grad=True) * 1j


@pytest.mark.parametrize("values", [[1, 2], [True, False], np.arange(3)])
def test_integers_and_booleans_cannot_require_a_gradient(values):
    with pytest.raises(TypeError, match=r"astype\(float32\)"):
        en.tensor(values, requires_grad=True)
    t = en.tensor(values)
    with pytest.raises(TypeError, match=r"astype\(float32\)"):
        t.requires_grad = True
    assert not t.requires_grad


BITS = [(3.14, 0x4049), (1 + 2**-8, 0x3F80), (1 + 3 * 2**-8, 0x3F82)]


@pytest.mark.parametrize(("value", "bits"), BITS)
def test_bfloat16_rounds_to_nearest_even(value, bits):
    made = en.tensor(np.float32(value)).astype("bfloat16")
    assert made.data.view(np.uint16) == bits


def test_bfloat16_nan_stays_nan():
    assert np.isnan(en.tensor(np.float32("nan")).astype("bfloat16").data.astype(np.float32))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_sums_of_16_bit_floats_accumulate_in_float32(dtype):
    ones = en.ones(4096, dtype=dtype)
    assert float(en.sum(ones)) == 4096
    assert float(en.mean(ones)) == 1
    assert en.sum(ones).dtype == ones.dtype
    assert float(en.matmul(ones, ones)) == 4096


def test_python_scalars_never_change_a_float_dtype():
    for dtype in (np.float16, np.float32, np.float64, en.bfloat16):
        x = en.ones(3, dtype=dtype)
        for y in (x * 2.5, 2.5 * x, x + 1, x / 3, 1 / x, x**2, x**0.5, 2.0**x, x - True):
            assert y.dtype == x.dtype
    assert (en.tensor([1, 2]) * 0.5).dtype == np.float32
    assert (en.tensor([1, 2]) * 2).dtype == np.int64
    assert (en.tensor([1.0]) * np.float64(2)).dtype == np.float64


def test_mixed_floats_promote_as_numpy_does_and_gradients_are_cast_back():
    a = en.tensor(np.ones(3, np.float32), requires_grad=True)
    b = en.tensor(np.ones(3), requires_grad=True)
    y = a * b
    assert y.dtype == np.float64
    y.sum().backward()
    assert a.grad.dtype == np.float32
    assert b.grad.dtype == np.float64


def test_astype_between_floats_carries_the_gradient():
    x = en.tensor([1.0, 2.0], requires_grad=True)
    y = (x.astype("float64") * 3.0).sum()
    y.backward()
    assert x.grad.dtype == np.float32
    assert x.grad.tolist() == [3, 3]
    assert not x.astype(int).requires_grad

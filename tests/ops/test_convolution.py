"""Convolution and pooling against loops, and what they refuse."""

import itertools

import numpy as np
import pytest

import entrenar as en

RNG = np.random.default_rng(0)


def slow_conv2d(x, w, b, stride, padding, dilation, groups):
    """Cross-correlation as its definition has it, one output at a time."""
    x = np.pad(x, ((0, 0), (0, 0), *((p, p) for p in padding)))
    per_group, per_out = w.shape[1], w.shape[0] // groups
    size = [(x.shape[2 + a] - dilation[a] * (w.shape[2 + a] - 1) - 1) // stride[a] + 1 for a in range(2)]
    y = np.zeros((len(x), w.shape[0], *size))
    for n, o, i, j in np.ndindex(*y.shape):
        first = o // per_out * per_group
        rows, columns = (
            slice(at * s, at * s + d * (k - 1) + 1, d)
            for at, s, d, k in zip((i, j), stride, dilation, w.shape[2:], strict=True)
        )
        y[n, o, i, j] = (x[n, first : first + per_group, rows, columns] * w[o]).sum() + b[o]
    return y


HOW = list(itertools.product([(1, 1), (2, 3)], [(0, 0), (2, 1)], [(1, 1), (1, 2)], [1, 2]))


@pytest.mark.parametrize(("stride", "padding", "dilation", "groups"), HOW)
def test_conv2d(stride, padding, dilation, groups):
    x, w, b = RNG.normal(size=(2, 4, 6, 7)), RNG.normal(size=(6, 4 // groups, 3, 2)), RNG.normal(size=6)
    how = dict(stride=stride, padding=padding, dilation=dilation, groups=groups)
    np.testing.assert_allclose(en.conv2d(x, w, b, **how), slow_conv2d(x, w, b, **how), rtol=1e-12, atol=1e-12)


def test_conv1d_is_conv2d_of_one_row():
    x, w, b = RNG.normal(size=(2, 3, 8)), RNG.normal(size=(4, 3, 3)), RNG.normal(size=4)
    one = en.conv2d(x[:, :, None], w[:, :, None], b, stride=(1, 2), padding=(0, 1))[:, :, 0]
    np.testing.assert_allclose(en.conv1d(x, w, b, stride=2, padding=1), one)


def test_same_and_valid():
    x, w = RNG.normal(size=(1, 2, 5, 6)), RNG.normal(size=(3, 2, 2, 3))
    assert en.conv2d(x, w, padding="same").shape == (1, 3, 5, 6)
    np.testing.assert_array_equal(en.conv2d(x, w, padding="valid"), en.conv2d(x, w))
    with pytest.raises(ValueError, match="needs stride 1"):
        en.conv2d(x, w, padding="same", stride=2)


def test_conv_in_16_bit_sums_in_float32():
    y = en.conv1d(en.ones(1, 16, 256, dtype="bfloat16"), en.ones(1, 16, 256, dtype="bfloat16"))
    assert (y.dtype, float(y.data[0, 0, 0])) == (en.bfloat16, 4096)


@pytest.mark.parametrize(
    ("kwargs", "shape", "message"),
    [
        ({"groups": 2}, (2, 3, 3), "groups=2 does not fit 3 channels"),
        ({"stride": 0}, (2, 3, 3), "stride=0"),
        ({"padding": (1, 2)}, (2, 3, 3), "expected 1 integers"),
        ({"padding": "full"}, (2, 3, 3), "'full'"),
        ({}, (2, 3, 9), r"a window of \(9,\) .*\(5,\)"),
        ({}, (2, 3), "expected 3 axes each"),
    ],
)
def test_what_does_not_fit_is_refused(kwargs, shape, message):
    with pytest.raises(ValueError, match=message):
        en.conv1d(np.ones((1, 3, 5)), np.ones(shape), **kwargs)


# pooling ------------------------------------------------------------------------------------------------------
def test_max_pool2d():
    x = RNG.normal(size=(2, 3, 4, 6))
    np.testing.assert_array_equal(en.max_pool2d(x, 2), x.reshape(2, 3, 2, 2, 3, 2).max((3, 5)))
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=-np.inf)
    expected = np.lib.stride_tricks.sliding_window_view(padded, (2, 3), (2, 3)).max((-2, -1))[:, :, ::2]
    np.testing.assert_array_equal(en.max_pool2d(x, (2, 3), stride=(2, 1), padding=1), expected)


def test_equal_maxima_share_the_gradient():
    x = en.tensor(np.zeros((1, 1, 2, 4)), requires_grad=True)
    en.max_pool2d(x, 2, stride=(1, 2)).sum().backward()
    assert x.grad.tolist() == [[[[0.25] * 4, [0.25] * 4]]]


def test_avg_pool2d():
    x = RNG.normal(size=(2, 3, 4, 6))
    np.testing.assert_allclose(en.avg_pool2d(x, 2), x.reshape(2, 3, 2, 2, 3, 2).mean((3, 5)))
    ones = np.ones((1, 1, 4, 4))
    assert en.avg_pool2d(ones, 2, padding=1)[0, 0].tolist() == [[0.25, 0.5, 0.25], [0.5, 1, 0.5], [0.25, 0.5, 0.25]]
    assert (en.avg_pool2d(ones, 2, padding=1, count_include_pad=False) == 1).all()


def test_pooling_says_what_does_not_fit():
    with pytest.raises(ValueError, match="more than half of kernel_size=2"):
        en.max_pool2d(np.ones((1, 1, 4, 4)), 2, padding=2)
    with pytest.raises(ValueError, match=r"shape \(4, 4\)"):
        en.avg_pool2d(np.ones((4, 4)), 2)

"""Elementwise ops: random broadcastable shapes."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch

import entrenar as en

from .compare import Row


def shape(rng, most=4):
    return tuple(int(n) for n in rng.integers(1, 5, rng.integers(0, most)))


def one(low, high):
    """Small arrays of any shape, and now and then a dense sample of the whole range."""

    def draw(rng):
        size = shape(rng) if rng.random() < 0.7 else (2000,)
        return (np.asarray(rng.uniform(low, high, size)),)

    return draw


def two(low, high, low_b=None, high_b=None):
    def draw(rng):
        full = shape(rng)
        part = tuple(n if rng.random() < 0.6 else 1 for n in full)[int(rng.integers(0, len(full) + 1)) :]
        a = np.asarray(rng.uniform(low, high, full))
        b = np.asarray(rng.uniform(low if low_b is None else low_b, high if high_b is None else high_b, part))
        return (a, b)

    return draw


def same(*names, low=-3.0, high=3.0):
    """Ops of one input that are called the same."""
    return [Row(n, getattr(en, n), getattr(torch, n), one(low, high), "elementwise") for n in names]


def whole(high):
    return lambda rng: tuple(rng.integers(0, high, (2, 3, 4)))


def where_args(rng):
    a, b = two(-2, 2)(rng)
    return (np.asarray(rng.random(a.shape) > 0.5), a, b)


F = torch.nn.functional


def gelu_tanh_exactly(x, g):
    """Value and gradient in extended precision, without the cancellation of 1 + tanh."""
    c = np.sqrt(2 / np.longdouble(np.pi))
    s = 1 / (1 + np.exp(-2 * c * (x + np.longdouble("0.044715") * x**3)))
    slope = 2 * c * (1 + 3 * np.longdouble("0.044715") * x**2)
    return x * s, g * (s + x * s * (1 - s) * slope)


ROWS = [
    *same(
        "exp",
        "expm1",
        "sin",
        "cos",
        "sinh",
        "cosh",
        "tanh",
        "asinh",
        "atan",
        "sigmoid",
        "erf",
        "erfc",
        "square",
        "neg",
        "abs",
        "sign",
        "floor",
        "ceil",
        "round",
    ),
    *same("log", "log2", "sqrt", "rsqrt", "reciprocal", low=0.1, high=5.0),
    *same("log1p", low=-0.9, high=4.0),
    *same("tan", low=-1.4, high=1.4),
    *same("asin", "acos", "atanh", low=-0.95, high=0.95),
    *same("acosh", low=1.05, high=5.0),
    *(
        Row(n, getattr(en, n), getattr(torch, n), two(-3, 3), "elementwise")
        for n in ("add", "sub", "mul", "maximum", "minimum", "logaddexp", "atan2")
    ),
    Row("div", en.div, torch.div, two(-3, 3, 0.3, 3), "elementwise"),
    Row("pow", en.pow, torch.pow, two(0.2, 3, -2, 2), "elementwise"),
    Row("xlogy", en.xlogy, torch.xlogy, two(0.2, 3, 0.2, 3), "elementwise"),
    Row("floor_divide", en.floor_divide, partial(torch.div, rounding_mode="floor"), two(-3, 3, 0.3, 3), "elementwise"),
    Row("remainder", en.remainder, torch.remainder, two(-3, 3, 0.3, 3), "elementwise"),
    *(
        Row(n, getattr(en, n), getattr(torch, t), whole(8), "elementwise")
        for n, t in (("bitwise_and", "bitwise_and"), ("bitwise_or", "bitwise_or"), ("bitwise_xor", "bitwise_xor"))
    ),
    *(
        Row(n, getattr(en, n), getattr(torch, n), whole(2), "elementwise")
        for n in ("logical_and", "logical_or", "logical_xor")
    ),
    Row("logical_not", en.logical_not, torch.logical_not, lambda rng: (rng.integers(0, 2, (3, 4)),), "elementwise"),
    Row("invert", en.invert, torch.bitwise_not, lambda rng: (rng.integers(0, 8, (3, 4)),), "elementwise"),
    *(
        Row(
            n, getattr(en, n), getattr(torch, n), lambda rng: (np.array([1.0, np.nan, np.inf, -np.inf]),), "elementwise"
        )
        for n in ("isnan", "isinf", "isfinite")
    ),
    Row("where", en.where, torch.where, where_args, "elementwise"),
    Row("clip", lambda x: en.clip(x, -1.0, 1.5), lambda x: torch.clamp(x, -1.0, 1.5), one(-3, 3), "elementwise"),
    Row("softplus", en.softplus, F.softplus, one(-10, 10), "elementwise"),
    Row(
        "softplus beta",
        lambda x: en.softplus(x, beta=2.0),
        lambda x: F.softplus(x, beta=2.0),
        one(-5, 5),
        "elementwise",
    ),
    Row("relu", en.relu, F.relu, one(-3, 3), "elementwise"),
    Row("leaky_relu", lambda x: en.leaky_relu(x, 0.1), lambda x: F.leaky_relu(x, 0.1), one(-3, 3), "elementwise"),
    Row("gelu", en.gelu, F.gelu, one(-4, 4), "elementwise"),
    Row(
        "gelu tanh",
        lambda x: en.gelu(x, approximate="tanh"),
        lambda x: F.gelu(x, approximate="tanh"),
        one(-4, 4),
        "elementwise",
        precise=gelu_tanh_exactly,
    ),
    Row("silu", en.silu, F.silu, one(-6, 6), "elementwise"),
    Row("swish", en.swish, F.silu, one(-6, 6), "elementwise"),
    Row(
        "swiglu",
        en.swiglu,
        lambda a, b: F.silu(a) * b,
        lambda rng: (rng.normal(size=(3, 4)), rng.normal(size=(3, 4))),
        "elementwise",
    ),
    Row("scale", en.scale, torch.mul, two(0.5, 3), "elementwise"),
    Row(
        "cast",
        lambda x: en.cast(x, dtype=np.dtype(np.float64)),
        lambda x: x.to(torch.float64),
        one(-3, 3),
        "elementwise",
    ),
    *(
        Row(n, getattr(en, n), getattr(torch, t), two(-2, 2), "elementwise")
        for n, t in (
            ("equal", "eq"),
            ("not_equal", "ne"),
            ("less", "lt"),
            ("less_equal", "le"),
            ("greater", "gt"),
            ("greater_equal", "ge"),
        )
    ),
]

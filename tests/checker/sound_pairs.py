"""Plain NumPy functions with right gradients: the ground that faults are planted in, and a net for false alarms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Pair = tuple[Callable[..., Any], Callable[..., Any]]
Draw = Callable[[np.random.Generator], tuple[Any, ...]]


def unbroadcast(g: Any, shape: tuple[int, ...]) -> Any:
    """``g`` summed back to the shape of an input that was broadcast."""
    g = g.sum(axis=tuple(range(g.ndim - len(shape))))
    axes = tuple(i for i, n in enumerate(shape) if n == 1 and g.shape[i] != 1)
    return g.sum(axis=axes, keepdims=True) if axes else g


def mul(a: Any, b: Any) -> Any:
    return a * b


def mul_vjp(g: Any, a: Any, b: Any) -> Any:
    return unbroadcast(g * b, a.shape), unbroadcast(g * a, b.shape)


def div(a: Any, b: Any) -> Any:
    return a / b


def div_vjp(g: Any, a: Any, b: Any) -> Any:
    return unbroadcast(g / b, a.shape), unbroadcast(-g * a / b**2, b.shape)


def sub(a: Any, b: Any) -> Any:
    return a - b


def sub_vjp(g: Any, a: Any, b: Any) -> Any:
    return unbroadcast(g, a.shape), unbroadcast(-g, b.shape)


def matmul(a: Any, b: Any) -> Any:
    return a @ b


def matmul_vjp(g: Any, a: Any, b: Any) -> Any:
    return g @ b.T, a.T @ g


def tanh(x: Any) -> Any:
    return np.tanh(x)


def tanh_vjp(g: Any, x: Any) -> Any:
    return g * (1 - np.tanh(x) ** 2)


def swish(x: Any) -> Any:
    return x / (1 + np.exp(-x))


def swish_vjp(g: Any, x: Any) -> Any:
    s = 1 / (1 + np.exp(-x))
    return g * (s + x * s * (1 - s))


def softmax(x: Any) -> Any:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def softmax_vjp(g: Any, x: Any) -> Any:
    y = softmax(x)
    return y * (g - (g * y).sum(axis=-1, keepdims=True))


def layer_norm(x: Any, w: Any, b: Any) -> Any:
    xc = x - x.mean(axis=-1, keepdims=True)
    return xc / np.sqrt((xc * xc).mean(axis=-1, keepdims=True) + 1e-5) * w + b


def layer_norm_vjp(g: Any, x: Any, w: Any, b: Any) -> Any:
    xc = x - x.mean(axis=-1, keepdims=True)
    r = 1 / np.sqrt((xc * xc).mean(axis=-1, keepdims=True) + 1e-5)
    h, u = xc * r, g * w
    dx = r * (u - u.mean(axis=-1, keepdims=True) - h * (u * h).mean(axis=-1, keepdims=True))
    rows = tuple(range(x.ndim - 1))
    return dx, (g * h).sum(axis=rows), g.sum(axis=rows)


INDEX = np.array([0, 2, 2, 1, 0, 2])


def gather(x: Any) -> Any:
    return x[INDEX]


def gather_vjp(g: Any, x: Any) -> Any:
    out = np.zeros_like(x)
    np.add.at(out, INDEX, g)
    return out


def cumsum(x: Any) -> Any:
    return np.cumsum(x, axis=-1)


def cumsum_vjp(g: Any, x: Any) -> Any:
    return np.flip(np.cumsum(np.flip(g, -1), axis=-1), -1)


def cumprod(x: Any) -> Any:
    return np.cumprod(x)


def cumprod_vjp(g: Any, x: Any) -> Any:
    y = np.cumprod(x)
    return np.flip(np.cumsum(np.flip(g * y))) / x


def logsumexp(x: Any) -> Any:
    m = x.max(axis=-1, keepdims=True)
    return (m + np.log(np.exp(x - m).sum(axis=-1, keepdims=True)))[..., 0]


def logsumexp_vjp(g: Any, x: Any) -> Any:
    return g[..., None] * softmax(x)


def inv(a: Any) -> Any:
    return np.linalg.inv(a)


def inv_vjp(g: Any, a: Any) -> Any:
    y = np.linalg.inv(a)
    return -y.T @ g @ y.T


def split(x: Any) -> Any:
    return np.sin(x), x.sum(axis=-1) ** 2


def split_vjp(g: Any, x: Any) -> Any:
    a, b = g
    return a * np.cos(x) + (2 * b * x.sum(axis=-1))[..., None]


def total(x: Any) -> Any:
    return np.sum(x)


def total_vjp(g: Any, x: Any) -> Any:
    return np.broadcast_to(g, x.shape)


def relu(x: Any) -> Any:
    return np.maximum(x, 0)


def relu_vjp(g: Any, x: Any) -> Any:
    return g * (x > 0)


def sort(x: Any) -> Any:
    return np.sort(x)


def sort_vjp(g: Any, x: Any) -> Any:
    out = np.empty_like(x)
    out[np.argsort(x)] = g
    return out


def softmax_total(x: Any) -> Any:
    """Always 1: the gradient is zero but for rounding."""
    return softmax(x).sum(axis=-1)


def softmax_total_vjp(g: Any, x: Any) -> Any:
    return softmax_vjp(np.broadcast_to(g[..., None], x.shape), x)


def spread(x: Any) -> Any:
    """Zero but for rounding, inside and out."""
    return (x - x.mean(axis=-1, keepdims=True)).sum(axis=-1)


def spread_vjp(g: Any, x: Any) -> Any:
    return np.zeros_like(x)


def conjugate_square(z: Any) -> Any:
    return z * np.conj(z)


def conjugate_square_vjp(g: Any, z: Any) -> Any:
    return g * z + np.conj(g) * z


def spectrum(z: Any) -> Any:
    return np.abs(np.fft.fft(z))


def spectrum_vjp(g: Any, z: Any) -> Any:
    f = np.fft.fft(z)
    return np.fft.ifft(g * f / np.abs(f)) * z.size


def complex_exp(z: Any) -> Any:
    return np.exp(z)


def complex_exp_vjp(g: Any, z: Any) -> Any:
    return g * np.conj(np.exp(z))


def wave(x: Any) -> Any:
    """A real input and a complex output."""
    return np.exp(1j * x)


def wave_vjp(g: Any, x: Any) -> Any:
    return np.real(np.conj(g) * 1j * np.exp(1j * x))


def normal(*shape: int) -> Callable[[np.random.Generator], Any]:
    return lambda rng: rng.normal(size=shape)


def positive(*shape: int) -> Callable[[np.random.Generator], Any]:
    return lambda rng: rng.uniform(0.2, 2.0, size=shape)


def complex_normal(*shape: int) -> Callable[[np.random.Generator], Any]:
    return lambda rng: rng.normal(size=shape) + 1j * rng.normal(size=shape)


def well_conditioned(n: int) -> Callable[[np.random.Generator], Any]:
    return lambda rng: rng.normal(size=(n, n)) + 3 * n * np.eye(n)


def scales(*shape: int) -> Callable[[np.random.Generator], Any]:
    """Values of either sign over ten orders of magnitude."""
    return lambda rng: rng.choice([-1.0, 1.0], shape) * 10.0 ** rng.uniform(-5, 5, shape)


SOUND: dict[str, tuple[Pair, tuple[Callable[[np.random.Generator], Any], ...]]] = {
    "mul": ((mul, mul_vjp), (normal(2, 3), normal(2, 3))),
    "mul row": ((mul, mul_vjp), (normal(2, 3), normal(3))),
    "mul column": ((mul, mul_vjp), (normal(4, 1), normal(4, 3))),
    "mul 0-d": ((mul, mul_vjp), (normal(), normal(2, 3))),
    "mul scales": ((mul, mul_vjp), (scales(4), scales(4))),
    "div": ((div, div_vjp), (normal(2, 3), positive(3))),
    "sub": ((sub, sub_vjp), (normal(2, 3), normal(2, 1))),
    "matmul": ((matmul, matmul_vjp), (normal(2, 3), normal(3, 4))),
    "matmul large": ((matmul, matmul_vjp), (normal(7, 9), normal(9, 8))),
    "tanh": ((tanh, tanh_vjp), (normal(3, 2),)),
    "tanh large": ((tanh, tanh_vjp), (normal(40, 30),)),
    "swish": ((swish, swish_vjp), (normal(5),)),
    "swish scales": ((swish, swish_vjp), (lambda rng: rng.normal(size=8) * 10.0 ** rng.uniform(-4, 1, 8),)),
    "log": ((np.log, lambda g, x: g / x), (lambda rng: 10.0 ** rng.uniform(-5, 5, 6),)),
    "sqrt": ((np.sqrt, lambda g, x: g / (2 * np.sqrt(x))), (lambda rng: 10.0 ** rng.uniform(-5, 5, 6),)),
    "exp": ((np.exp, lambda g, x: g * np.exp(x)), (lambda rng: rng.uniform(-20, 20, 6),)),
    "reciprocal": ((lambda x: 1 / x, lambda g, x: -g / x**2), (scales(6),)),
    "sine": ((lambda x: np.sin(10 * x), lambda g, x: 10 * g * np.cos(10 * x)), (normal(6),)),
    "softmax": ((softmax, softmax_vjp), (normal(2, 5),)),
    "softmax large": ((softmax, softmax_vjp), (normal(20, 50),)),
    "layer_norm": ((layer_norm, layer_norm_vjp), (normal(3, 4), normal(4), normal(4))),
    "gather": ((gather, gather_vjp), (normal(3),)),
    "gather rows": ((gather, gather_vjp), (normal(3, 2),)),
    "cumsum": ((cumsum, cumsum_vjp), (normal(2, 4),)),
    "cumprod": ((cumprod, cumprod_vjp), (positive(6),)),
    "logsumexp": ((logsumexp, logsumexp_vjp), (normal(2, 4),)),
    "inv": ((inv, inv_vjp), (well_conditioned(3),)),
    "two outputs": ((split, split_vjp), (normal(2, 3),)),
    "total": ((total, total_vjp), (normal(3, 4),)),
    "relu": ((relu, relu_vjp), (normal(4, 3),)),
    "relu large": ((relu, relu_vjp), (normal(100, 70),)),
    "sort": ((sort, sort_vjp), (normal(9),)),
    "sort large": ((sort, sort_vjp), (lambda rng: rng.permutation(500) + rng.uniform(0, 0.5, 500),)),
    "always one": ((softmax_total, softmax_total_vjp), (normal(2, 4),)),
    "always zero": ((spread, spread_vjp), (normal(3, 5),)),
    "z conj z": ((conjugate_square, conjugate_square_vjp), (complex_normal(3),)),
    "abs fft": ((spectrum, spectrum_vjp), (complex_normal(5),)),
    "complex exp": ((complex_exp, complex_exp_vjp), (complex_normal(2, 2),)),
    "complex product": (
        (mul, lambda g, a, b: (g * np.conj(b), g * np.conj(a))),
        (complex_normal(3), complex_normal(3)),
    ),
    "real to complex": ((wave, wave_vjp), (normal(4),)),
}

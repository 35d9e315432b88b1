"""Planted faults: for every kind of mistake, several functions that make it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import sound_pairs as sound
from .sound_pairs import INDEX, normal, positive, softmax, unbroadcast


@dataclass(frozen=True)
class Fault:
    """A pair whose vjp makes one mistake, the inputs it is seen at, and what it should be called."""

    kind: str
    name: str
    pair: sound.Pair
    draws: tuple[Callable[[np.random.Generator], Any], ...]
    input: str | None = None


FAULTS: list[Fault] = []


def plant(
    kind: str, name: str, pair: sound.Pair, *draws: Callable[[np.random.Generator], Any], input: str | None = None
) -> None:
    """Add a fault to the table."""
    FAULTS.append(Fault(kind, name, pair, draws, input))


def spoiled(vjp: Callable[..., Any], which: int, spoil: Callable[[Any], Any]) -> Callable[..., Any]:
    """A vjp with one of its gradients spoiled."""

    def wrong(g: Any, *arrays: Any) -> Any:
        gradients = vjp(g, *arrays)
        if not isinstance(gradients, tuple):
            return spoil(gradients)
        return tuple(spoil(d) if i == which else d for i, d in enumerate(gradients))

    return wrong


# sign ------------------------------------------------------------------------------------------------------------
plant(
    "sign",
    "div",
    (sound.div, lambda g, a, b: (g / b, unbroadcast(g * a / b**2, b.shape))),
    normal(2, 3),
    positive(3),
    input="b",
)
plant("sign", "sub", (sound.sub, lambda g, a, b: (g, unbroadcast(g, b.shape))), normal(2, 3), normal(3), input="b")
plant("sign", "cos", (np.cos, lambda g, x: g * np.sin(x)), normal(3, 2))
plant("sign", "large", (np.cos, lambda g, x: g * np.sin(x)), normal(30, 20))

# constant factor -------------------------------------------------------------------------------------------------
plant("constant-factor", "square", (lambda x: x * x, lambda g, x: g * x), normal(4))
plant("constant-factor", "mean", (lambda x: x.mean(), lambda g, x: np.full_like(x, g)), normal(3, 4))
plant("constant-factor", "log2", (np.log2, lambda g, x: g / x), positive(5))
plant("constant-factor", "0-d", (lambda x: x**3, lambda g, x: 2 * g * x**2), normal())
plant(
    "constant-factor",
    "matmul",
    (sound.matmul, spoiled(sound.matmul_vjp, 1, lambda d: d * 0.5)),
    normal(2, 3),
    normal(3, 4),
    input="b",
)

# missing broadcast sum -------------------------------------------------------------------------------------------
plant(
    "missing-broadcast-sum",
    "not summed",
    (sound.mul, lambda g, a, b: (g * b, g * a)),
    normal(5, 4),
    normal(4),
    input="b",
)
plant("missing-broadcast-sum", "0-d", (sound.mul, lambda g, a, b: (g * b, g * a)), normal(), normal(2, 3), input="a")
plant(
    "missing-broadcast-sum",
    "column",
    (sound.mul, lambda g, a, b: (g * b, g * a)),
    normal(2, 3),
    normal(2, 1),
    input="b",
)
plant(
    "missing-broadcast-sum",
    "first row",
    (sound.mul, lambda g, a, b: (g * b, (g * a)[0])),
    normal(5, 4),
    normal(4),
    input="b",
)
plant(
    "missing-broadcast-sum",
    "bias, last row",
    (lambda x, b: np.tanh(x + b), lambda g, x, b: (g * (1 - np.tanh(x + b) ** 2), (g * (1 - np.tanh(x + b) ** 2))[-1])),
    normal(3, 4),
    normal(4),
    input="b",
)
plant(
    "missing-broadcast-sum",
    "one axis only",
    (sound.mul, lambda g, a, b: (g * b, (g * a).sum(0, keepdims=True)[:, :1])),
    normal(5, 4),
    normal(1, 1),
    input="b",
)

# transposed ------------------------------------------------------------------------------------------------------
plant(
    "transposed",
    "square matmul",
    (sound.matmul, lambda g, a, b: (g @ b, a.T @ g)),
    normal(3, 3),
    normal(3, 3),
    input="a",
)
plant(
    "transposed",
    "gradient",
    (lambda x, w: x @ w.T, lambda g, x, w: (g @ w, x.T @ g)),
    normal(5, 3),
    normal(4, 3),
    input="w",
)
plant(
    "transposed",
    "gradient reshaped",
    (lambda x, w: x @ w.T, lambda g, x, w: (g @ w, (x.T @ g).reshape(w.shape))),
    normal(5, 3),
    normal(4, 3),
    input="w",
)
plant("transposed", "transpose", (lambda x: np.exp(x).T.copy(), lambda g, x: g * np.exp(x)), normal(3, 3))
plant(
    "transposed",
    "three axes",
    (lambda x: np.sin(x.transpose(2, 0, 1)), lambda g, x: (g * np.cos(x.transpose(2, 0, 1))).reshape(x.shape)),
    normal(2, 3, 4),
)
plant("transposed", "large", (sound.matmul, lambda g, a, b: (g @ b, a.T @ g)), normal(8, 8), normal(8, 8), input="a")

# swapped inputs --------------------------------------------------------------------------------------------------
plant("swapped-inputs", "mul", (sound.mul, lambda g, a, b: (g * a, g * b)), normal(2, 3), normal(2, 3))
plant("swapped-inputs", "sub", (sound.sub, lambda g, a, b: (-g, g)), normal(4), normal(4))
plant("swapped-inputs", "div", (sound.div, lambda g, a, b: sound.div_vjp(g, b, a)), positive(3), positive(3))
plant("swapped-inputs", "outer", (lambda a, b: np.outer(a, b), lambda g, a, b: (g.T @ a, g @ b)), normal(3), normal(4))
plant(
    "swapped-inputs",
    "outputs",
    (lambda x: (np.sin(x), np.exp(x)), lambda g, x: g[1] * np.cos(x) + g[0] * np.exp(x)),
    normal(5),
)


# overwritten duplicates ------------------------------------------------------------------------------------------
def assigned(g: Any, x: Any) -> Any:
    out = np.zeros_like(x)
    out[INDEX] = g
    return out


def added_once(g: Any, x: Any) -> Any:
    out = np.zeros_like(x)
    out[INDEX] += g
    return out


def first_wins(g: Any, x: Any) -> Any:
    out = np.zeros_like(x)
    out[INDEX[::-1]] = g[::-1]
    return out


def windows(x: Any) -> Any:
    return np.stack([x[i : i + 3] @ np.array([1.0, 2.0, 3.0]) for i in range(x.size - 2)])


def windows_assigned(g: Any, x: Any) -> Any:
    out = np.zeros_like(x)
    for i in range(g.size):
        out[i : i + 3] = g[i] * np.array([1.0, 2.0, 3.0])
    return out


plant("overwritten-duplicates", "assigned", (sound.gather, assigned), normal(3))
plant("overwritten-duplicates", "in-place add", (sound.gather, added_once), normal(3, 2))
plant("overwritten-duplicates", "first wins", (sound.gather, first_wins), normal(4))
plant("overwritten-duplicates", "windows", (windows, windows_assigned), normal(7))
plant(
    "overwritten-duplicates",
    "embedding",
    (lambda w: np.tanh(w[INDEX]), lambda g, w: added_once(g * (1 - np.tanh(w[INDEX]) ** 2), w)),
    normal(5, 3),
)

# missing term ----------------------------------------------------------------------------------------------------
plant("missing-term", "softmax", (softmax, lambda g, x: g * softmax(x) * (1 - softmax(x))), normal(2, 5))
plant("missing-term", "swish", (sound.swish, lambda g, x: g / (1 + np.exp(-x))), normal(6))
plant(
    "missing-term",
    "layer_norm",
    (sound.layer_norm, spoiled(sound.layer_norm_vjp, 0, lambda d: d + 0.1)),
    normal(3, 4),
    normal(4),
    normal(4),
    input="x",
)
plant("missing-term", "cumsum", (sound.cumsum, lambda g, x: g), normal(2, 5))
plant(
    "missing-term",
    "logsumexp",
    (sound.logsumexp, lambda g, x: g[..., None] * softmax(x) * (1 - softmax(x))),
    normal(3, 4),
)
plant(
    "missing-term",
    "one element",
    (np.sin, lambda g, x: g * np.cos(x) * np.where(np.arange(x.size) == 3, 1.1, 1.0)),
    normal(6),
)
plant("missing-term", "nonlinear", (np.sin, lambda g, x: g * np.abs(g) * np.cos(x)), normal(6))


# stale saved value -----------------------------------------------------------------------------------------------
def stale(latest: bool) -> sound.Pair:
    """A pair whose vjp reads what some forward left behind: the latest, or the first ever."""
    kept: list[Any] = []

    def f(x: Any) -> Any:
        if latest:
            kept[:] = [x]
        elif not kept:
            kept.append(x.copy())
        return np.sin(x)

    return f, lambda g, x: g * np.cos(kept[0])


def consumed() -> sound.Pair:
    """A pair whose vjp uses up what the forward saved."""
    kept: list[Any] = []

    def f(x: Any) -> Any:
        kept[:] = [np.exp(x)]
        return kept[0].copy()

    def vjp(g: Any, x: Any) -> Any:
        kept[0] *= g
        return kept[0].copy()

    return f, vjp


plant("stale-saved-value", "latest forward", stale(latest=True), normal(4))
plant("stale-saved-value", "first forward", stale(latest=False), normal(4))
plant("stale-saved-value", "consumed", consumed(), normal(2, 3))


# mutated cotangent -----------------------------------------------------------------------------------------------
def scaled_in_place(g: Any, x: Any) -> Any:
    g *= np.cos(x)
    return g


def input_in_place(g: Any, x: Any) -> Any:
    np.cos(x, out=x)
    return g * x


def forward_in_place(x: Any) -> Any:
    x += 1
    return x * x


plant("mutated-cotangent", "cotangent", (np.sin, scaled_in_place), normal(4))
plant("mutated-cotangent", "input", (np.sin, input_in_place), normal(2, 3))
plant("mutated-cotangent", "forward", (forward_in_place, lambda g, x: 2 * g * x), normal(3))


# stride assumption -----------------------------------------------------------------------------------------------
def flat_read(a: Any) -> Any:
    """The first ``size`` items of the memory an array lies in, whatever its strides."""
    base = a if a.base is None else a.base
    while base.base is not None and isinstance(base.base, np.ndarray):
        base = base.base
    items = base.ravel(order="K")
    return np.resize(items, a.size).reshape(a.shape)


plant("stride-assumption", "cotangent", (np.sin, lambda g, x: flat_read(g) * np.cos(x)), normal(3, 4))
plant("stride-assumption", "cotangent, one axis", (np.sin, lambda g, x: flat_read(g) * np.cos(x)), normal(5))
plant(
    "stride-assumption",
    "column-major cotangent",
    (np.sin, lambda g, x: g.ravel(order="K").reshape(x.shape) * np.cos(x)),
    normal(3, 4),
)
plant("stride-assumption", "input", (np.sin, lambda g, x: g * np.cos(flat_read(x))), normal(3, 4))
plant("stride-assumption", "forward", (lambda x: np.sin(flat_read(x)), lambda g, x: g * np.cos(x)), normal(3, 4))


# dtype -----------------------------------------------------------------------------------------------------------
def single(*shape: int) -> Callable[[np.random.Generator], Any]:
    return lambda rng: rng.normal(size=shape).astype(np.float32)


plant("dtype", "float32 result", (np.sin, lambda g, x: (g * np.cos(x)).astype(np.float32)), normal(4))
plant("dtype", "through float32", (np.sin, lambda g, x: (g * np.cos(x)).astype(np.float32).astype(float)), normal(4))
plant("dtype", "float16 cotangent", (np.sin, lambda g, x: g.astype(np.float16).astype(float) * np.cos(x)), normal(4))
plant(
    "dtype",
    "float32 inside",
    (softmax, lambda g, x: sound.softmax_vjp(g.astype(np.float32), x.astype(np.float32)).astype(float)),
    normal(2, 5),
)
plant("dtype", "float64 for float32", (np.sin, lambda g, x: g * np.cos(x) * np.ones(x.shape)), single(2, 3))
plant(
    "dtype",
    "complex for real",
    (lambda x: np.abs(np.fft.fft(x)), lambda g, x: np.fft.ifft(g * np.exp(1j * np.angle(np.fft.fft(x)))) * x.size),
    normal(5),
)

# detached --------------------------------------------------------------------------------------------------------
plant(
    "detached", "zeros", (sound.mul, lambda g, a, b: (g * b, np.zeros_like(b))), normal(2, 3), normal(2, 3), input="b"
)
plant("detached", "None", (sound.matmul, lambda g, a, b: (None, a.T @ g)), normal(2, 3), normal(3, 4), input="a")
plant("detached", "everything", (softmax, lambda g, x: None), normal(2, 5))

# conjugated, shape -----------------------------------------------------------------------------------------------
plant("conjugated", "exp", (np.exp, lambda g, z: g * np.exp(z)), sound.complex_normal(4))
plant(
    "conjugated",
    "other convention",
    (lambda z: z**3, lambda g, z: np.conj(np.conj(g) * np.conj(3 * z**2))),
    sound.complex_normal(2, 3),
)
plant(
    "shape",
    "lost axis",
    (lambda x, w: x * w, lambda g, x, w: (g * w, (g * x).sum(axis=1))),
    normal(2, 3),
    normal(2, 1),
    input="w",
)

"""A training step of a small MLP: 784-256-10 with ReLU, a batch of 64, cross entropy, Adam."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from .case import Case, Peer, Side, Unavailable
from .gpt import losses

INPUTS, HIDDEN, CLASSES, BATCH = 784, 256, 10, 64
LR, BETA1, BETA2, EPS = 1e-3, 0.9, 0.999, 1e-8
COMPARED = 20  # steps whose losses are compared
WEIGHTS = INPUTS * HIDDEN + HIDDEN * CLASSES


def weights() -> list[np.ndarray]:
    """W1 (out, in), b1, W2, b2."""
    rng = np.random.default_rng(0)
    shapes = ((HIDDEN, INPUTS), (HIDDEN,), (CLASSES, HIDDEN), (CLASSES,))
    return [rng.uniform(-0.05, 0.05, shape).astype(np.float32) for shape in shapes]


def batches(count: int = 8) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Images and labels, over and over."""
    rng = np.random.default_rng(1)
    images = rng.random((count, BATCH, INPUTS), np.float32)
    return itertools.cycle(zip(images, rng.integers(0, CLASSES, (count, BATCH)), strict=True))


def side(step: Callable[[], float]) -> Side:
    """A side from a training step."""
    return Side(step, lambda: losses(step, COMPARED))


def entrenar() -> Side:
    """The step in entrenar."""
    import entrenar as en

    model = en.nn.Sequential(en.nn.Linear(INPUTS, HIDDEN), en.nn.ReLU(), en.nn.Linear(HIDDEN, CLASSES))
    model.load_state_dict(dict(zip(model.state_dict(), weights(), strict=True)))
    optimizer = en.optim.Adam(model.parameters(), lr=LR)
    data = batches()

    def step() -> float:
        x, y = next(data)
        loss = en.cross_entropy(model(en.tensor(x)), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    return side(step)


def torch() -> Side:
    """The step in PyTorch eager."""
    import torch
    from torch import nn

    model = nn.Sequential(nn.Linear(INPUTS, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, CLASSES))
    model.load_state_dict({k: torch.from_numpy(a) for k, a in zip(model.state_dict(), weights(), strict=True)})
    optimizer = torch.optim.Adam(model.parameters(), lr=LR)
    data = batches()

    def step() -> float:
        x, y = map(torch.from_numpy, next(data))
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    return side(step)


def jax() -> Side:
    """The step in JAX, jitted as a whole."""
    import jax
    import jax.numpy as jnp

    def loss(p, x, y):
        w1, b1, w2, b2 = p
        logits = jax.nn.relu(x @ w1.T + b1) @ w2.T + b2
        return -jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], axis=1).mean()

    def adam(p, g, m, v, t):
        m, v = BETA1 * m + (1 - BETA1) * g, BETA2 * v + (1 - BETA2) * g * g
        return p - LR * (m / (1 - BETA1**t)) / (jnp.sqrt(v / (1 - BETA2**t)) + EPS), m, v

    @jax.jit
    def update(state, t, x, y):
        p, m, v = state
        value, g = jax.value_and_grad(loss)(p, x, y)
        new = [adam(*parts, t) for parts in zip(p, g, m, v, strict=True)]
        return tuple(list(part) for part in zip(*new, strict=True)), value

    p = [jnp.asarray(a) for a in weights()]
    state = (p, [jnp.zeros_like(a) for a in p], [jnp.zeros_like(a) for a in p])
    data = batches()
    t = 0

    def step() -> float:
        nonlocal state, t
        t += 1
        state, value = update(state, float(t), *next(data))
        return float(value)

    return side(step)


def tinygrad() -> Side:
    """The step in tinygrad, captured by its TinyJit."""
    tiny: Any = importlib.import_module("tinygrad")
    adam = importlib.import_module("tinygrad.nn.optim").Adam
    training = importlib.import_module("tinygrad.helpers").Context
    try:
        w1, b1, w2, b2 = p = [tiny.Tensor(a).realize() for a in weights()]
        (w1 + 1).realize()
    except (RuntimeError, FileNotFoundError) as error:  # its CPU device needs clang
        raise Unavailable(f"{error}: its CPU device needs clang") from None
    optimizer = adam(p, lr=LR, b1=BETA1, b2=BETA2, eps=EPS)
    data = batches()

    @tiny.TinyJit
    def update(x, y):
        with training(TRAINING=1):
            optimizer.zero_grad()
            loss = ((x @ w1.T + b1).relu() @ w2.T + b2).sparse_categorical_crossentropy(y).backward()
            return loss.realize(*optimizer.schedule_step())  # in one go, or the loss would be that of the new weights

    def step() -> float:
        x, y = next(data)
        return float(update(tiny.Tensor(x).realize(), tiny.Tensor(y.astype(np.int32)).realize()).item())

    return side(step)


CASES = [
    Case(
        "MLP 784-256-10 step",
        entrenar,
        {"torch": Peer(torch, 0.6), "jax": Peer(jax), "tinygrad": Peer(tinygrad)},
        tolerance=1e-4,
        flops=BATCH * (6.0 * WEIGHTS - 2.0 * INPUTS * HIDDEN),  # the images have no gradient
    )
]

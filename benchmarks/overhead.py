"""Per-op overhead: a chain of 2,000 multiplications and additions of four float32 numbers, forward and backward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .case import Case, Peer, Side

START = np.array([0.1, 0.2, 0.3, 0.4], np.float32)
STEPS = 1000


def checked(run: Callable[[], Any]) -> Side:
    """A side whose gradient is also compared with the closed form: y is the sum of x**k for k = 1 .. STEPS + 1."""

    def result() -> dict[str, Any]:
        gradient = np.asarray(run())
        k = np.arange(1, STEPS + 2)
        expected = (k * START.astype(np.float64)[:, None] ** (k - 1)).sum(1)
        np.testing.assert_allclose(gradient, expected, rtol=2e-5)
        return {"gradient": gradient}

    return Side(run, result)


def chain(x):
    """The computation, in whatever library x belongs to."""
    y = x
    for _ in range(STEPS):
        y = y * x + x
    return y


def entrenar() -> Side:
    """The chain in entrenar."""
    import entrenar as en

    def run():
        x = en.tensor(START, requires_grad=True)
        chain(x).sum().backward()
        return x.grad.numpy()

    return checked(run)


def torch() -> Side:
    """The chain in PyTorch eager."""
    import torch

    def run():
        x = torch.tensor(START, requires_grad=True)
        chain(x).sum().backward()
        return x.grad.numpy()

    return checked(run)


def autograd() -> Side:
    """The chain in HIPS autograd."""
    import autograd
    import autograd.numpy

    gradient = autograd.grad(lambda x: autograd.numpy.sum(chain(x)))
    return checked(lambda: gradient(START))


def mygrad() -> Side:
    """The chain in MyGrad."""
    import mygrad

    def run():
        x = mygrad.tensor(START)
        chain(x).sum().backward()
        return x.grad

    return checked(run)


PEERS = {"torch": Peer(torch, 0.70), "autograd": Peer(autograd, 0.35), "mygrad": Peer(mygrad, 0.35)}
CASES = [Case("overhead, per op", entrenar, PEERS, tolerance=4e-5, items=2 * STEPS, pairs=31, threads=1)]

"""Per-op overhead: a chain of 2,000 multiplications and additions of four float32 numbers, forward and backward."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version

import numpy as np

from .runner import Result, compare

Side = Callable[[], np.ndarray]
START = np.array([0.1, 0.2, 0.3, 0.4], np.float32)
STEPS = 1000


def results(repeats: int) -> Iterator[Result]:
    """Each peer beside entrenar, in microseconds per op; raises AssertionError for a wrong gradient."""
    mine = entrenar()
    check("entrenar", mine)
    for name, (peer, target) in PEERS.items():
        try:
            label = f"{name} {version(name)}"
        except PackageNotFoundError:
            print(f"{name}: not installed, not timed (it is in the extra bench)")
            continue
        theirs = peer()
        check(name, theirs)
        yield compare("overhead, per op", label, mine, theirs, repeats=repeats, items=2 * STEPS, target=target)


def check(name: str, side: Side) -> None:
    """Compare with the closed form: y is the sum of x**k for k = 1 .. STEPS + 1."""
    k = np.arange(1, STEPS + 2)
    expected = (k * START.astype(np.float64)[:, None] ** (k - 1)).sum(1)
    np.testing.assert_allclose(side(), expected, rtol=2e-5, err_msg=name)


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

    return run


def torch() -> Side:
    """The chain in PyTorch eager."""
    import torch

    def run():
        x = torch.tensor(START, requires_grad=True)
        chain(x).sum().backward()
        return x.grad.numpy()

    return run


def autograd() -> Side:
    """The chain in HIPS autograd."""
    import autograd
    import autograd.numpy

    gradient = autograd.grad(lambda x: autograd.numpy.sum(chain(x)))
    return lambda: gradient(START)


def mygrad() -> Side:
    """The chain in MyGrad."""
    import mygrad

    def run():
        x = mygrad.tensor(START)
        chain(x).sum().backward()
        return x.grad

    return run


PEERS = {"torch": (torch, 0.70), "autograd": (autograd, 0.35), "mygrad": (mygrad, 0.35)}  # with the ratio aimed at

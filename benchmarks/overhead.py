"""Per-op overhead: a chain of 2,000 multiplications and additions of 4-element float32 tensors, forward and backward."""
from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

import numpy as np

from .runner import compare

START = np.array([0.1, 0.2, 0.3, 0.4], np.float32)
STEPS = 1000
TARGETS = {"torch": 0.70, "autograd": 0.35, "mygrad": 0.35}


def ours() -> Callable[[], np.ndarray]:
    """The chain in entrenar; returns the gradient."""
    import entrenar as en

    x = en.tensor(START, requires_grad=True)

    def run() -> np.ndarray:
        y = x
        for _ in range(STEPS):
            y = y * x + x
        y.sum().backward()
        gradient = x.grad.numpy()
        x.grad = None
        return gradient

    return run


def torch() -> Callable[[], np.ndarray]:
    """The chain in PyTorch eager."""
    import torch

    torch.set_num_threads(1)
    x = torch.tensor(START, requires_grad=True)

    def run() -> np.ndarray:
        y = x
        for _ in range(STEPS):
            y = y * x + x
        y.sum().backward()
        gradient = x.grad.numpy()
        x.grad = None
        return gradient

    return run


def autograd() -> Callable[[], np.ndarray]:
    """The chain in HIPS autograd."""
    import autograd
    import autograd.numpy as anp

    def chain(x):
        y = x
        for _ in range(STEPS):
            y = y * x + x
        return anp.sum(y)

    gradient = autograd.grad(chain)
    return lambda: gradient(START)


def mygrad() -> Callable[[], np.ndarray]:
    """The chain in MyGrad."""
    import mygrad

    x = mygrad.tensor(START)

    def run() -> np.ndarray:
        y = x
        for _ in range(STEPS):
            y = y * x + x
        y.sum().backward()
        gradient = np.array(x.grad)
        x.null_grad()
        return gradient

    return run


def main() -> int:
    """Validate against each peer, then time; 0 if valid and within the targets."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=31)
    repeats = parser.parse_args().repeats
    mine = ours()
    expected = chain_gradient()
    status = 0
    for name, target in TARGETS.items():
        theirs = globals()[name]()
        for side in (mine, theirs):
            np.testing.assert_allclose(side(), expected, rtol=2e-5)
        result = compare("overhead, per op", name, mine, theirs, repeats=repeats, target=target)
        print(result.line(unit=2 * STEPS * 1e-6, unit_name="us"))
        status |= result.ratio > target
    return int(status)


def chain_gradient() -> np.ndarray:
    """The derivative of the chain in closed form: y = sum of x**k for k = 1 .. STEPS + 1."""
    x = START.astype(np.float64)
    k = np.arange(1, STEPS + 2)
    return (k * x[:, None] ** (k - 1)).sum(1)


if __name__ == "__main__":
    sys.exit(main())

"""The ops that have kernels, at a language model's sizes: forward alone, and forward and backward, beside PyTorch.

Traffic counts what any implementation has to move: inputs and cotangents read once, outputs and gradients written once.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from .case import Case, Peer, Side

Draw = Callable[[np.random.Generator], np.ndarray]
TOLERANCE = 1e-5  # float32, sums over rows of up to 50257
AIM, SHARE = 0.8, 0.7  # of PyTorch's time, and of the copy bandwidth


@dataclasses.dataclass(frozen=True)
class Op:
    """An op in both libraries.

    inputs: how each is drawn; floats have gradients.  ours, theirs: called with the library (``torch.nn.functional``)
    and the inputs.  forward, backward: traffic of each pass in bytes, or FLOP for ``products``.
    """

    name: str
    inputs: tuple[Draw, ...]
    ours: Callable[..., Any]
    theirs: Callable[..., Any]
    forward: float
    backward: float
    target: float | None = None
    products: bool = False
    passes: tuple[str, ...] = ("forward", "forward+backward")


def normal(*shape: int) -> Draw:
    """Standard normal float32."""
    return lambda rng: rng.standard_normal(shape, np.float32)


def ids(count: int, *shape: int) -> Draw:
    """Integers below ``count``."""
    return lambda rng: rng.integers(0, count, shape)


def drawn(op: Op) -> list[np.ndarray]:
    """The same inputs on both sides."""
    rng = np.random.default_rng(0)
    return [draw(rng) for draw in op.inputs]


def cotangent(shape: tuple[int, ...]) -> np.ndarray:
    """What backward starts from; for a scalar loss that is 1."""
    return np.random.default_rng(1).standard_normal(shape, np.float32) if shape else np.ones((), np.float32)


def entrenar(op: Op, backward: bool) -> Side:
    """The op in entrenar."""
    import entrenar as en

    xs = [en.tensor(a, requires_grad=backward) if a.dtype.kind == "f" else a for a in drawn(op)]
    leaves = [x for x in xs if isinstance(x, en.Tensor)]

    def forward():
        with en.no_grad():
            return op.ours(en, *xs)

    return ran(forward, lambda: op.ours(en, *xs), leaves, en.tensor) if backward else ran(forward)


def torch(op: Op, backward: bool) -> Side:
    """The op in PyTorch eager."""
    import torch
    from torch.nn import functional as F

    xs = [torch.from_numpy(a).requires_grad_(backward and a.dtype.kind == "f") for a in drawn(op)]
    leaves = [x for x in xs if x.is_floating_point()]

    def forward():
        with torch.no_grad():
            return op.theirs(F, *xs)

    return ran(forward, lambda: op.theirs(F, *xs), leaves, torch.from_numpy) if backward else ran(forward)


def ran(
    forward: Callable[[], Any],
    tracked: Callable[[], Any] | None = None,
    leaves: list[Any] | None = None,
    tensor: Callable[[np.ndarray], Any] | None = None,
) -> Side:
    """A side from a forward pass, or from a tracked one and its leaves; both libraries' tensors have these methods."""
    if tracked is None or leaves is None or tensor is None:
        return Side(forward, lambda: {"y": forward().numpy()})
    g = tensor(cotangent(tuple(forward().shape)))

    def both():
        for x in leaves:
            x.grad = None
        y = tracked()
        y.backward(g)
        return y

    def result():
        y = both().detach().numpy()
        return {"y": y} | {f"gradient {i}": x.grad.numpy() for i, x in enumerate(leaves)}

    return Side(both, result)


def cases(op: Op) -> Iterator[Case]:
    """Forward, and forward with backward."""
    for name in op.passes:
        backward = name != "forward"
        work = op.forward + (op.backward if backward else 0)
        yield Case(
            f"{op.name} {name}",
            lambda backward=backward: entrenar(op, backward),  # type: ignore[misc]
            {"torch": Peer(lambda backward=backward: torch(op, backward), op.target)},  # type: ignore[misc]
            tolerance=TOLERANCE,
            flops=work if op.products else 0.0,
            traffic=0.0 if op.products else work,
            share=None if op.products or op.target is None else SHARE,
        )


def attention(name: str, shape: tuple[int, int, int, int], causal: bool) -> Op:
    """Scaled-dot-product attention of q, k, v (B, H, T, D); a causal one needs half of the products.

    FLOP: q k^T and p v forward, the four products of their gradients backward; recomputed ones don't count.
    """
    batch, heads, length, width = shape
    product = 2.0 * batch * heads * length * length * width / (2 if causal else 1)
    return Op(
        name,
        (normal(*shape),) * 3,
        lambda en, q, k, v: en.scaled_dot_product_attention(q, k, v, causal=causal),
        lambda F, q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=causal),
        forward=2 * product,
        backward=4 * product,
        target=AIM,
        products=True,
    )


def rowwise(
    name: str, shape: tuple[int, ...], ours: Callable[..., Any], theirs: Callable[..., Any], target: float | None = None
) -> Op:
    """An op from x to y of one shape, with vectors along the last axis: backward reads x or y, and g, and writes gx."""
    size = 4.0 * math.prod(shape)
    vectors = ours.__code__.co_argcount - 2
    return Op(name, (normal(*shape), *(normal(shape[-1]),) * vectors), ours, theirs, 2 * size, 3 * size, target)


TOKENS, WIDTH, INNER, VOCABULARY = 1024, 768, 3072, 50257  # 4 x 256 tokens of GPT-2 124M
SCORES, LOGITS = (4, 12, 256, 256), (TOKENS, VOCABULARY)
TABLE, ROWS, LOGITS_SIZE = 4.0 * VOCABULARY * WIDTH, 4.0 * TOKENS * WIDTH, 4.0 * TOKENS * VOCABULARY

OPS = (
    rowwise("softmax", SCORES, lambda en, x: en.softmax(x), lambda F, x: F.softmax(x, -1), AIM),
    rowwise("log_softmax", LOGITS, lambda en, x: en.log_softmax(x), lambda F, x: F.log_softmax(x, -1)),
    rowwise(
        "layer_norm",
        (TOKENS, WIDTH),
        lambda en, x, w, b: en.layer_norm(x, w, b),
        lambda F, x, w, b: F.layer_norm(x, (WIDTH,), w, b),
        AIM,
    ),
    rowwise(
        "rms_norm",
        (TOKENS, WIDTH),
        lambda en, x, w: en.rms_norm(x, w),
        lambda F, x, w: F.rms_norm(x, (WIDTH,), w, eps=1e-6),
    ),
    rowwise("gelu erf", (TOKENS, INNER), lambda en, x: en.gelu(x), lambda F, x: F.gelu(x), AIM),
    rowwise(
        "gelu tanh",
        (TOKENS, INNER),
        lambda en, x: en.gelu(x, approximate="tanh"),
        lambda F, x: F.gelu(x, approximate="tanh"),
        AIM,
    ),
    rowwise("silu", (TOKENS, INNER), lambda en, x: en.silu(x), lambda F, x: F.silu(x)),
    Op(  # a loss per row: forward reads the logits, backward reads them and writes their gradient
        "cross_entropy",
        (normal(*LOGITS), ids(VOCABULARY, TOKENS)),
        lambda en, x, targets: en.cross_entropy(x, targets),
        lambda F, x, targets: F.cross_entropy(x, targets),
        forward=LOGITS_SIZE,
        backward=2 * LOGITS_SIZE,
        target=AIM,
    ),
    Op(  # the table's gradient is dense in both libraries
        "embedding",
        (ids(VOCABULARY, 4, 256), normal(VOCABULARY, WIDTH)),
        lambda en, ids, table: en.embedding(ids, table),
        lambda F, ids, table: F.embedding(ids, table),
        forward=2 * ROWS,
        backward=2 * ROWS + TABLE,
        passes=("forward+backward",),
    ),
    attention("attention 4x12x256x64 causal", (4, 12, 256, 64), causal=True),
    attention("attention 2x12x1024x64", (2, 12, 1024, 64), causal=False),
)


# dropout ------------------------------------------------------------------------------------------------------
RATE = 0.1


def dropped(y: np.ndarray, gradient: np.ndarray, x: np.ndarray) -> dict[str, float]:
    """What is the same for any random bits: the kept share, the factor of what is kept, and the gradient's mask."""
    kept = y != 0
    factor = 1 / (1 - RATE)
    error = np.abs(y[kept] / x[kept] - factor).max() + np.abs(gradient - factor * kept).max()
    return {"kept": float(kept.mean()), "right": float(error < 1e-5)}


def dropout_entrenar() -> Side:
    """x of ones' gradient, so that the gradient shows the mask."""
    import entrenar as en

    x = en.tensor(drawn(DROPOUT)[0], requires_grad=True)
    ones = en.tensor(np.ones(x.shape, np.float32))

    def run():
        x.grad = None
        y = en.dropout(x, RATE)
        y.backward(ones)
        return y

    return Side(run, lambda: dropped(run().detach().numpy(), x.grad.numpy(), x.detach().numpy()))


def dropout_torch() -> Side:
    """The same in PyTorch."""
    import torch

    x = torch.from_numpy(drawn(DROPOUT)[0]).requires_grad_()
    ones = torch.ones_like(x)

    def run():
        x.grad = None
        y = torch.nn.functional.dropout(x, RATE)
        y.backward(ones)
        return y

    return Side(run, lambda: dropped(run().detach().numpy(), x.grad.numpy(), x.detach().numpy()))


DROPOUT = Op("dropout", (normal(4, 256, WIDTH),), None, None, 0, 0)  # type: ignore[arg-type]

CASES = [
    *(case for op in OPS for case in cases(op)),
    Case(
        "dropout forward+backward",
        dropout_entrenar,
        {"torch": Peer(dropout_torch)},
        tolerance=5e-3,  # of the kept share, ten standard deviations
        traffic=4 * ROWS,
    ),
]

"""Softmax, normalisation, convolution, pooling, losses, attention."""

from __future__ import annotations

from functools import partial
from operator import mul

import numpy as np
import torch

import entrenar as en

from .compare import Row

F = torch.nn.functional


def normal(*sizes, scale=1.0):
    return lambda rng: tuple(rng.normal(size=s) * scale for s in sizes)


def classes(*shape, c=5, ignored=False, axis=-1):
    def draw(rng):
        size = (*shape, c) if axis == -1 else (shape[0], c, *shape[1:])
        target = rng.integers(0, c, shape)
        if ignored:
            target.flat[0] = -100
        return (rng.normal(size=size) * 2, target)

    return draw


def grid(rng):
    """Pixels that all differ: no ties."""
    return (rng.permutation(np.arange(2 * 3 * 6 * 7) * 0.1).reshape(2, 3, 6, 7),)


def probabilities(rng):
    p, q = rng.uniform(0.1, 1, (2, 4, 5))
    return (np.log(p / p.sum(-1, keepdims=True)), q / q.sum(-1, keepdims=True))


def rotated(x):
    """Rotary embedding, halves convention (Su et al. 2021)."""
    half = x.shape[-1] // 2
    frequency = 10000.0 ** (-torch.arange(half, dtype=torch.float64) / half)
    angle = torch.arange(x.shape[-2], dtype=torch.float64)[:, None] * frequency
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def projected(h, weights, biases):
    return [F.linear(h, w, b) for w, b in zip(weights, biases, strict=True)]


WEIGHTS = np.array([0.2, 1.0, 0.5, 2.0, 0.7])


def weighted(x, t, **options):
    return F.cross_entropy(x, t, weight=torch.tensor(WEIGHTS, dtype=x.dtype), **options)


QKV = normal((2, 4, 5, 8), (2, 4, 5, 8), (2, 4, 5, 8))
LOSSES = [
    Row(
        f"{n} {r}",
        partial(getattr(en, n), reduction=r),
        partial(getattr(F, n), reduction=r),
        normal((3, 4), (3, 4)),
    )
    for n in ("mse_loss", "l1_loss", "huber_loss")
    for r in ("mean", "sum", "none")
]
ROWS = [
    *(
        Row(
            f"{n} {d}",
            partial(getattr(en, n), axis=d),
            partial(getattr(F, n), dim=d),
            normal((3, 4, 5), scale=3.0),
        )
        for n in ("softmax", "log_softmax")
        for d in (-1, 1)
    ),
    Row("softmax wide", lambda x: en.softmax(x, axis=-1), lambda x: F.softmax(x, -1), normal((20, 300), scale=5.0)),
    Row("glu", en.glu, F.glu, normal((3, 8))),
    Row("layer_norm", en.layer_norm, lambda x, w, b: F.layer_norm(x, (6,), w, b), normal((4, 5, 6), (6,), (6,))),
    Row("layer_norm plain", en.layer_norm, lambda x: F.layer_norm(x, (6,)), normal((4, 6))),
    Row(
        "rms_norm",
        lambda x, w: en.rms_norm(x, w, eps=1e-6),
        lambda x, w: F.rms_norm(x, (6,), w, 1e-6),
        normal((4, 5, 6), (6,)),
    ),
    Row(
        "group_norm",
        lambda x, w, b: en.group_norm(x, w, b, num_groups=2),
        lambda x, w, b: F.group_norm(x, 2, w, b),
        normal((2, 4, 3, 5), (4,), (4,)),
    ),
    Row(
        "batch_norm",
        lambda x, w, b: en.batch_norm(x, None, None, w, b, training=True),
        lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True),
        normal((6, 3, 4), (3,), (3,)),
    ),
    Row("batch_statistics", lambda x: en.batch_statistics(x)[0], lambda x: x.mean((0, 2)), normal((6, 3, 4))),
    Row("linear", en.linear, F.linear, normal((2, 3, 4), (5, 4), (5,))),
    Row(
        "add_layer_norm",
        lambda x, r, w, b: sum(en.add_layer_norm(x, r, w, b)),
        lambda x, r, w, b: x + r + F.layer_norm(x + r, (6,), w, b),
        normal((4, 5, 6), (4, 5, 6), (6,), (6,)),
    ),
    Row(
        "add_rms_norm",
        lambda x, r, w: sum(en.add_rms_norm(x, r, w, eps=1e-6)),
        lambda x, r, w: x + r + F.rms_norm(x + r, (6,), w, 1e-6),
        normal((4, 5, 6), (4, 5, 6), (6,)),
    ),
    Row(
        "gelu_linear",
        lambda x, w, b: en.gelu_linear(x, w, b, approximate="tanh"),
        lambda x, w, b: F.linear(F.gelu(x, approximate="tanh"), w, b),
        normal((2, 3, 4), (5, 4), (5,)),
    ),
    Row(
        "norm_linear",
        en.norm_linear,
        lambda x, s, t, w, b: F.linear(F.layer_norm(x, (4,), s, t), w, b),
        normal((2, 3, 4), (4,), (4,), (5, 4), (5,)),
    ),
    Row(
        "swiglu_linear",
        en.swiglu_linear,
        lambda x, u, w, b: F.linear(F.silu(x) * u, w, b),
        normal((2, 3, 4), (2, 3, 4), (5, 4), (5,)),
    ),
    Row(
        "rms_norm_linear",
        en.rms_norm_linear,
        lambda x, s, w, b: F.linear(F.rms_norm(x, (4,), s, 1e-6), w, b),
        normal((2, 3, 4), (4,), (5, 4), (5,)),
    ),
    Row(
        "rms_norm_linear_pair",
        lambda x, s, *wb: mul(*en.rms_norm_linear_pair(x, s, *wb)),
        lambda x, s, w1, w2, b1: mul(*projected(F.rms_norm(x, (4,), s, 1e-6), (w1, w2), (b1, None))),
        normal((2, 3, 4), (4,), (5, 4), (5, 4), (5,)),
    ),
    Row(
        "rms_norm_linear_triple",
        lambda x, s, *wb: sum(en.rms_norm_linear_triple(x, s, *wb)),
        lambda x, s, *wb: sum(projected(F.rms_norm(x, (4,), s, 1e-6), wb[:3], wb[3:])),
        normal((2, 3, 4), (4,), (5, 4), (5, 4), (5, 4), (5,), (5,), (5,)),
    ),
    Row(
        "linear_cross_entropy",
        en.linear_cross_entropy,
        lambda x, w, t: F.cross_entropy(F.linear(x, w), t),
        lambda rng: (*normal((3, 4), (5, 4))(rng), np.array([1, -100, 4])),
    ),
    Row(
        "embedding",
        lambda i, w: en.embedding(i, w),
        F.embedding,
        lambda rng: (rng.integers(0, 6, (3, 4)), rng.normal(size=(6, 2))),
    ),
    Row(
        "dropout off",
        lambda x: en.dropout(x, 0.5, training=False),
        lambda x: F.dropout(x, 0.5, training=False),
        normal((3, 4)),
    ),
    Row(
        "conv1d",
        lambda x, w, b: en.conv1d(x, w, b, stride=2, padding=1),
        lambda x, w, b: F.conv1d(x, w, b, stride=2, padding=1),
        normal((2, 3, 8), (4, 3, 3), (4,)),
    ),
    Row(
        "conv2d",
        lambda x, w, b: en.conv2d(x, w, b, padding=1),
        lambda x, w, b: F.conv2d(x, w, b, padding=1),
        normal((2, 3, 6, 5), (4, 3, 3, 2), (4,)),
    ),
    Row(
        "conv2d groups",
        lambda x, w: en.conv2d(x, w, stride=2, dilation=2, groups=2),
        lambda x, w: F.conv2d(x, w, stride=2, dilation=2, groups=2),
        normal((2, 4, 9, 8), (6, 2, 3, 2)),
    ),
    Row("max_pool2d", lambda x: en.max_pool2d(x, 2), lambda x: F.max_pool2d(x, 2), grid),
    Row(
        "max_pool2d stride",
        lambda x: en.max_pool2d(x, 3, stride=2, padding=1),
        lambda x: F.max_pool2d(x, 3, 2, 1),
        grid,
    ),
    Row("avg_pool2d", lambda x: en.avg_pool2d(x, 2, stride=1), lambda x: F.avg_pool2d(x, 2, 1), grid),
    Row(
        "avg_pool2d pad",
        lambda x: en.avg_pool2d(x, 3, stride=2, padding=1, count_include_pad=False),
        lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
        grid,
    ),
    *LOSSES,
    *(
        Row(
            f"cross_entropy {r}",
            lambda x, t, r=r: en.cross_entropy(x, t, reduction=r),
            lambda x, t, r=r: F.cross_entropy(x, t, reduction=r),
            classes(7, ignored=True),
        )
        for r in ("mean", "sum", "none")
    ),
    Row(
        "cross_entropy smoothing",
        lambda x, t: en.cross_entropy(x, t, label_smoothing=0.1),
        lambda x, t: F.cross_entropy(x, t, label_smoothing=0.1),
        classes(7),
    ),
    Row(
        "cross_entropy weights",
        lambda x, t: en.cross_entropy(x, t, weight=WEIGHTS.astype(x.dtype)),
        weighted,
        classes(7),
    ),
    Row("cross_entropy axis 1", lambda x, t: en.cross_entropy(x, t, axis=1), F.cross_entropy, classes(3, 4, axis=1)),
    Row(
        "cross_entropy probabilities",
        en.cross_entropy,
        F.cross_entropy,
        lambda rng: (rng.normal(size=(3, 4)), rng.dirichlet(np.ones(4), 3)),
    ),
    Row("nll_loss", en.nll_loss, F.nll_loss, classes(7, ignored=True)),
    Row(
        "bce logits",
        en.binary_cross_entropy_with_logits,
        F.binary_cross_entropy_with_logits,
        lambda rng: (rng.normal(size=(3, 4)) * 3, rng.uniform(0, 1, (3, 4))),
    ),
    Row(
        "bce pos_weight",
        lambda x, t: en.binary_cross_entropy_with_logits(x, t, pos_weight=np.array(2.0, x.dtype)),
        lambda x, t: F.binary_cross_entropy_with_logits(x, t, pos_weight=torch.tensor(2.0, dtype=x.dtype)),
        lambda rng: (rng.normal(size=(3, 4)), rng.uniform(0, 1, (3, 4))),
    ),
    Row("kl_div", en.kl_div, lambda a, b: F.kl_div(a, b, reduction="batchmean"), probabilities),
    Row(
        "kl_div log_target",
        lambda a, b: en.kl_div(a, b, log_target=True, reduction="sum"),
        lambda a, b: F.kl_div(a, b, log_target=True, reduction="sum"),
        lambda rng: tuple(np.log(v) for v in rng.dirichlet(np.ones(5), (2, 3))),
    ),
    Row("rope", en.rope, rotated, normal((2, 3, 5, 8))),
    Row("attention", en.scaled_dot_product_attention, F.scaled_dot_product_attention, QKV),
    Row(
        "attention causal",
        lambda q, k, v: en.scaled_dot_product_attention(q, k, v, causal=True),
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        QKV,
    ),
    Row(
        "attention mask",
        lambda q, k, v, m: en.scaled_dot_product_attention(q, k, v, mask=m),
        lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, attn_mask=m),
        lambda rng: (*QKV(rng), np.tril(np.ones((5, 5), bool), 1)),
    ),
    Row(
        "attention grouped",
        en.scaled_dot_product_attention,
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True),
        normal((2, 4, 5, 8), (2, 2, 5, 8), (2, 2, 5, 8)),
    ),
    Row(
        "attention scale",
        lambda q, k, v: en.scaled_dot_product_attention(q, k, v, scale=0.3),
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, scale=0.3),
        QKV,
    ),
]

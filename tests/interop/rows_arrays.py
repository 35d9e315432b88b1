"""Reductions, shapes, indexing, products, linear systems."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch

import entrenar as en

from .compare import Row

F = torch.nn.functional


def normal(*sizes):
    return lambda rng: tuple(rng.normal(size=s) for s in sizes)


def block(rng):
    return (rng.normal(size=tuple(rng.integers(2, 6, 3))),)


def apart(rng):
    shape = tuple(rng.integers(2, 6, 3))
    return (rng.permutation(np.arange(np.prod(shape)) * 0.25).reshape(shape),)


def reduced(name, theirs, draw=block):
    """Over all elements, one axis, and (where PyTorch can) kept."""
    ours = getattr(en, name)
    return [
        Row(f"{name} all", ours, theirs, draw),
        Row(f"{name} axis", lambda x: ours(x, axis=1), lambda x: theirs(x, 1), draw),
        Row(f"{name} kept", lambda x: ours(x, axis=-1, keepdims=True), lambda x: theirs(x, -1, True), draw),
    ]


def first(f):
    return lambda x, *a: f(x) if not a else f(x, *a)[0]


def regular(rng, *shape):
    return rng.normal(size=shape) * 0.4 + 2 * np.eye(shape[-1])


def positive(rng, n):
    a = rng.normal(size=(2, n, n)) * 0.4
    return a @ np.swapaxes(a, -1, -2) + np.eye(n)


def ids(rng, high, *shape):
    return rng.integers(0, high, shape)


def norm_of(order, axis=None):
    return Row(
        f"norm {order}", lambda x: en.norm(x, order, axis=1), lambda x: torch.linalg.vector_norm(x, order, dim=1), block
    )


def cells(rng):
    x = rng.normal(size=(4, 5))
    return (x, np.stack([rng.permutation(4)[:2] for _ in range(5)], 1), rng.normal(size=(2, 5)))


A = {"kind": "elementwise"}  # moves of elements: exact
ROWS = [
    *reduced("sum", torch.sum),
    *reduced("mean", torch.mean),
    *reduced("max", first(torch.max), apart),
    *reduced("min", first(torch.min), apart),
    *reduced("logsumexp", lambda x, d=(0, 1, 2), k=False: torch.logsumexp(x, d, k)),
    *reduced("var", lambda x, d=None, k=False: torch.var(x, d, correction=0, keepdim=k)),
    *reduced("std", lambda x, d=None, k=False: torch.std(x, d, correction=0, keepdim=k)),
    *reduced("norm", lambda x, d=None, k=False: torch.linalg.vector_norm(x, 2, d, k)),
    Row("var ddof", lambda x: en.var(x, axis=1, ddof=1), lambda x: torch.var(x, 1, correction=1), block),
    *(norm_of(o) for o in (1, 3, float("inf"), float("-inf"))),
    Row("normalize", lambda x: en.normalize(x, axis=1), lambda x: F.normalize(x, dim=1), block),
    Row("prod", en.prod, torch.prod, lambda rng: (rng.uniform(0.5, 1.5, (2, 3)),)),
    Row("prod axis", lambda x: en.prod(x, axis=1), lambda x: torch.prod(x, 1), block),
    *(
        Row(n, partial(getattr(en, n), axis=1), partial(getattr(torch, n), dim=1), block)
        for n in ("cumsum", "cumprod", "logcumsumexp")
    ),
    Row("nanmax", lambda x: en.nanmax(x, axis=1), lambda x: torch.max(x, 1)[0], apart),
    Row("nanmin", lambda x: en.nanmin(x, axis=1), lambda x: torch.min(x, 1)[0], apart),
    Row("sort", lambda x: en.sort(x, axis=1), lambda x: torch.sort(x, 1)[0], apart, **A),
    Row("argsort", lambda x: en.argsort(x, axis=1), lambda x: torch.argsort(x, 1), apart),
    Row("topk", lambda x: en.topk(x, 2, axis=0)[0], lambda x: torch.topk(x, 2, 0)[0], apart, **A),
    Row("argmax", lambda x: en.argmax(x, axis=1), lambda x: torch.argmax(x, 1), apart),
    Row("argmin", lambda x: en.argmin(x, axis=1), lambda x: torch.argmin(x, 1), apart),
    Row("any", lambda x: en.any(x > 0, axis=1), lambda x: torch.any(x > 0, 1), block),
    Row("all", lambda x: en.all(x > 0, axis=1), lambda x: torch.all(x > 0, 1), block),
    # shapes
    Row("reshape", lambda x: en.reshape(x, (-1,)), lambda x: x.reshape(-1), block, **A),
    Row("transpose", lambda x: en.transpose(x, (2, 0, 1)), lambda x: x.permute(2, 0, 1), block, **A),
    Row("permute", lambda x: en.permute(x, (1, 2, 0)), lambda x: x.permute(1, 2, 0), block, **A),
    Row("moveaxis", lambda x: en.moveaxis(x, 0, -1), lambda x: torch.moveaxis(x, 0, -1), block, **A),
    Row("swapaxes", lambda x: en.swapaxes(x, 0, 2), lambda x: torch.swapaxes(x, 0, 2), block, **A),
    Row("squeeze", lambda x: en.squeeze(x, 1), lambda x: torch.squeeze(x, 1), normal((3, 1, 2)), **A),
    Row("unsqueeze", lambda x: en.unsqueeze(x, 1), lambda x: torch.unsqueeze(x, 1), block, **A),
    Row("expand_dims", lambda x: en.expand_dims(x, 0), lambda x: x[None], block, **A),
    Row("expand", lambda x: en.expand(x, (2, 3, -1)), lambda x: x.expand(2, 3, -1), normal((3, 4))),
    Row(
        "broadcast_to",
        lambda x: en.broadcast_to(x, (2, 3, 4)),
        lambda x: torch.broadcast_to(x, (2, 3, 4)),
        normal((3, 1)),
    ),
    Row("flatten", lambda x: en.flatten(x, 1), lambda x: torch.flatten(x, 1), block, **A),
    Row("ravel", en.ravel, torch.ravel, block, **A),
    Row(
        "concatenate",
        lambda a, b: en.concatenate([a, b, a], 1),
        lambda a, b: torch.cat([a, b, a], 1),
        normal((2, 3), (2, 4)),
        **A,
    ),
    Row("stack", lambda a, b: en.stack([a, b], -1), lambda a, b: torch.stack([a, b], -1), normal((2, 3), (2, 3)), **A),
    Row("vstack", lambda a, b: en.vstack([a, b]), lambda a, b: torch.vstack([a, b]), normal((2, 3), (3,)), **A),
    Row("hstack", lambda a, b: en.hstack([a, b]), lambda a, b: torch.hstack([a, b]), normal((2, 3), (2, 1)), **A),
    Row("split", lambda x: en.split(x, 3, 1)[1], lambda x: torch.tensor_split(x, 3, 1)[1], normal((2, 6)), **A),
    Row("flip", lambda x: en.flip(x, (0, 2)), lambda x: torch.flip(x, (0, 2)), block, **A),
    Row("roll", lambda x: en.roll(x, (1, -2), (0, 1)), lambda x: torch.roll(x, (1, -2), (0, 1)), block, **A),
    Row("tile", lambda x: en.tile(x, (2, 1, 3)), lambda x: torch.tile(x, (2, 1, 3)), normal((2, 3))),
    Row("repeat", lambda x: en.repeat(x, 3, 1), lambda x: torch.repeat_interleave(x, 3, 1), normal((2, 3))),
    Row(
        "pad",
        lambda x: en.pad(x, ((0, 0), (2, 1)), constant_values=1.5),
        lambda x: F.pad(x, (2, 1), value=1.5),
        normal((2, 3)),
        **A,
    ),
    Row(
        "pad reflect",
        lambda x: en.pad(x, ((0, 0), (2, 1)), mode="reflect"),
        lambda x: F.pad(x, (2, 1), mode="reflect"),
        normal((2, 4)),
    ),
    # indexing
    Row("getitem", lambda x: x[1:, None, ::2], lambda x: x[1:, None, ::2], normal((3, 5)), **A),
    Row(
        "getitem duplicates",
        lambda x, i: en.getitem(x, i),
        lambda x, i: x[i],
        lambda rng: (rng.normal(size=(4, 3)), ids(rng, 4, 6)),
    ),
    Row(
        "getitem two",
        lambda x, i, j: x[i, j],
        lambda x, i, j: x[i, j],
        lambda rng: (rng.normal(size=(4, 3)), ids(rng, 4, 6), ids(rng, 3, 6)),
    ),
    Row(
        "getitem mask",
        lambda x, m: x[m],
        lambda x, m: x[m],
        lambda rng: (rng.normal(size=(4, 3)), rng.random((4, 3)) > 0.5),
        **A,
    ),
    Row(
        "take",
        lambda x, i: en.take(x, i, axis=1),
        lambda x, i: torch.index_select(x, 1, i),
        lambda rng: (rng.normal(size=(2, 4)), ids(rng, 4, 7)),
    ),
    Row(
        "gather",
        lambda x, i: en.gather(x, 0, i),
        lambda x, i: torch.gather(x, 0, i),
        lambda rng: (rng.normal(size=(3, 4)), ids(rng, 3, 5, 4)),
    ),
    Row(
        "take_along_axis",
        lambda x, i: en.take_along_axis(x, i, 1),
        lambda x, i: torch.take_along_dim(x, i, 1),
        lambda rng: (rng.normal(size=(3, 4)), ids(rng, 4, 3, 6)),
    ),
    Row("scatter", lambda x, i, s: en.scatter(x, 0, i, s), lambda x, i, s: torch.scatter(x, 0, i, s), cells, **A),
    Row(
        "scatter_add",
        lambda x, i, s: en.scatter_add(x, 0, i, s),
        lambda x, i, s: torch.scatter_add(x, 0, i, s),
        lambda rng: (rng.normal(size=(3, 4)), ids(rng, 3, 5, 4), rng.normal(size=(5, 4))),
    ),
    Row(
        "index_add",
        lambda x, i, s: en.index_add(x, 1, i, s),
        lambda x, i, s: torch.index_add(x, 1, i, s),
        lambda rng: (rng.normal(size=(2, 4)), ids(rng, 4, 6), rng.normal(size=(2, 6))),
    ),
    Row(
        "index_put",
        lambda x, i, v: en.index_put(x, i, v),
        lambda x, i, v: torch.index_put(x, (i,), v),
        lambda rng: (rng.normal(size=(5, 3)), rng.permutation(5)[:2], rng.normal(size=(2, 3))),
        **A,
    ),
    Row(
        "index_fill",
        lambda x, i: en.index_fill(x, 1, i, 2.0),
        lambda x, i: torch.index_fill(x, 1, i, 2.0),
        lambda rng: (rng.normal(size=(3, 4)), ids(rng, 4, 2)),
        **A,
    ),
    Row(
        "masked_fill",
        lambda x, m: en.masked_fill(x, m, -1.0),
        lambda x, m: torch.masked_fill(x, m, -1.0),
        lambda rng: (rng.normal(size=(3, 4)), rng.random((3, 4)) > 0.5),
        **A,
    ),
    Row("tril", lambda x: en.tril(x, 1), lambda x: torch.tril(x, 1), block, **A),
    Row("triu", lambda x: en.triu(x, -1), lambda x: torch.triu(x, -1), block, **A),
    # products
    *(
        Row(f"matmul {a} {b}", en.matmul, torch.matmul, normal(a, b))
        for a, b in (
            ((3, 4), (4, 5)),
            ((4,), (4,)),
            ((4,), (4, 3)),
            ((3, 4), (4,)),
            ((2, 3, 4), (4, 5)),
            ((2, 1, 3, 4), (5, 4, 2)),
            ((30, 40), (40, 20)),
        )
    ),
    Row("dot", en.dot, torch.dot, normal((7,), (7,))),
    Row("outer", en.outer, torch.outer, normal((3,), (4,))),
    Row(
        "tensordot",
        lambda a, b: en.tensordot(a, b, ((1, 2), (0, 1))),
        lambda a, b: torch.tensordot(a, b, ((1, 2), (0, 1))),
        normal((2, 3, 4), (3, 4, 5)),
    ),
    *(
        Row(f"einsum {p}", lambda *x, p=p: en.einsum(p, *x), lambda *x, p=p: torch.einsum(p, *x), normal(*s))
        for p, s in (
            ("ij,jk->ik", ((3, 4), (4, 5))),
            ("bij,bjk->bik", ((2, 3, 4), (2, 4, 5))),
            ("ii->i", ((4, 4),)),
            ("ii", ((4, 4),)),
            ("...ij,...jk->...ik", ((2, 3, 4), (2, 4, 5))),
            ("ij->j", ((3, 4),)),
            ("i,j,k->kij", ((2,), (3,), (4,))),
            ("ij,ij", ((3, 4), (3, 4))),
            ("abc,cd,de->abe", ((2, 3, 4), (4, 5), (5, 2))),
        )
    ),
    Row("trace", en.trace, torch.trace, normal((4, 4))),
    # linear systems (condition numbers of these matrices stay below 20)
    Row("inv", en.inv, torch.linalg.inv, lambda rng: (regular(rng, 2, 4, 4),), condition=20),
    Row("solve", en.solve, torch.linalg.solve, lambda rng: (regular(rng, 4, 4), rng.normal(size=(4, 3))), condition=20),
    Row(
        "solve vector", en.solve, torch.linalg.solve, lambda rng: (regular(rng, 4, 4), rng.normal(size=4)), condition=20
    ),
    Row("det", en.det, torch.linalg.det, lambda rng: (regular(rng, 2, 3, 3),), condition=20),
    Row(
        "slogdet",
        lambda x: en.slogdet(x)[1],
        lambda x: torch.linalg.slogdet(x)[1],
        lambda rng: (regular(rng, 4, 4),),
        condition=20,
    ),
    Row(
        "cholesky",
        en.cholesky,
        lambda x: torch.linalg.cholesky((x + x.mT) / 2),
        lambda rng: (positive(rng, 4),),
        condition=20,
    ),
]

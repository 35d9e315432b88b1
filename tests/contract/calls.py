"""Calling any declared op with any of its samples: shared by the contract tests."""

from __future__ import annotations

import zlib

import numpy as np

import entrenar as en
from entrenar.array import is_float
from entrenar.autograd import OPS

OURS = {key: fn for key, fn in sorted(OPS.items()) if key.startswith("entrenar:")}
DIFFERENTIABLE = {key: fn for key, fn in OURS.items() if fn.op.differentiable}


def name_of(op, i):
    return op.inputs[0] if op.variadic else op.inputs[i]


def is_input(op, i, value):
    """True for an array that the op differentiates."""
    return (
        (i < len(op.inputs) or op.variadic)
        and isinstance(value, np.ndarray)
        and is_float(value.dtype)
        and (name_of(op, i) not in op.nondiff)
    )


def samples_of(fn, seed=0):
    """The smooth samples of an op (edge points have their own test)."""
    found = list(fn.op.samples(np.random.default_rng([seed, zlib.crc32(fn.op.key.encode())])))
    return [s for s in found if s.value is None and s.grads is None]


def edges_of(fn):
    return [s for s in fn.op.samples(np.random.default_rng(0)) if s.value is not None or s.grads is not None]


def leaves(fn, args, dtype=None, change=lambda a: a):
    """(arguments for the call, the leaves among them)."""
    made, wanted = [], []
    for i, a in enumerate(args):
        if is_input(fn.op, i, a):
            t = en.Tensor(change(a if dtype is None else a.astype(dtype)), requires_grad=True)
            made.append(t)
            wanted.append(t)
        else:
            made.append(a)
    return made, wanted


def outputs(y):
    return [t for t in (y if isinstance(y, tuple) else (y,)) if is_float(t.dtype)]


def cotangents(ys, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.uniform(0.5, 1.5, t.shape).astype(t.dtype) for t in ys]


def gradients(fn, args, kwargs, gs=None, create_graph=False, **how):
    """(outputs, gradients) of one call, with random cotangents unless given."""
    made, wanted = leaves(fn, args, **how)
    ys = outputs(fn(*made, **kwargs))
    gs = cotangents(ys) if gs is None else gs
    return ys, en.grad(ys, wanted, gradient=gs, create_graph=create_graph, allow_unused=True)

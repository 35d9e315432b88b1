"""optimizer_state_sha256: the bytes it is of, and what changes it."""

from __future__ import annotations

import hashlib
import struct

import numpy as np
import pytest

import entrenar as en
from entrenar.optim import OPTIMIZERS, SGD, AdamW


def leaf(values, grad=None, dtype=np.float32):
    p = en.Tensor(np.array(values, dtype), True)
    if grad is not None:
        p.grad = en.Tensor(np.array(grad, dtype))
    return p


def u64(n):
    return struct.pack("<Q", n)


def test_adamw_s_bytes():
    """betas of powers of two make the moments exact: m = g / 2 after one step, v = g**2 / 4."""
    a, b = leaf([1.0, 2.0], grad=[4.0, -8.0]), leaf([[3.0]])
    opt = AdamW([a, b], betas=(0.5, 0.75))
    empty = b"aprender-train:adamw:optstate:v1" + u64(0) + b"m" + u64(2) + b"nonenone" + b"v" + u64(2) + b"nonenone"
    assert opt.optimizer_state_sha256() == hashlib.sha256(empty).hexdigest()
    opt.step()
    stepped = (
        b"aprender-train:adamw:optstate:v1"
        + u64(1)
        + (b"m" + u64(2) + b"some" + u64(2) + struct.pack("<2f", 2.0, -4.0) + b"none")
        + (b"v" + u64(2) + b"some" + u64(2) + struct.pack("<2f", 4.0, 16.0) + b"none")
    )
    assert opt.optimizer_state_sha256() == hashlib.sha256(stepped).hexdigest()
    assert opt.optimizer_state_sha256() == "502f592893f3393c052f538620ca392e99b16558c1325b3b89a7f240db919fb1"


def test_bfloat16_and_strided_state_are_hashed_by_value():
    digests = set()
    for dtype in (None, "bfloat16"):
        p = leaf([[1.0, 2.0], [3.0, 4.0]], grad=[[4.0, -8.0], [2.0, 0.5]])
        opt = AdamW([p], betas=(0.5, 0.75), state_dtype=dtype)
        opt.step()
        digests.add(opt.optimizer_state_sha256())
        opt.state[p] = {k: v if k == "step" else np.asfortranarray(v) for k, v in opt.state[p].items()}
        digests.add(opt.optimizer_state_sha256())
    assert len(digests) == 1


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=list(OPTIMIZERS))
def test_every_optimizer_has_one(make):
    """It tells the state before from the state after a step, and says the same of one that was loaded."""
    options = {"momentum": 0.9} if make is SGD else {}
    p, q = leaf([[1.0, 2.0], [3.0, 5.0]], grad=[[1.0, -1.0], [2.0, 3.0]]), leaf(np.zeros((2, 2)))
    opt, again = make([p], **options), make([q], **options)
    seen = [opt.optimizer_state_sha256()]
    for _ in range(2):
        opt.step()
        seen.append(opt.optimizer_state_sha256())
    assert len(set(seen)) == 3 and all(len(digest) == 64 for digest in seen)
    again.load_state_dict(opt.state_dict())
    assert again.optimizer_state_sha256() == seen[-1]
    others = {other([leaf([1.0])]).optimizer_state_sha256() for other in OPTIMIZERS.values()}
    assert len(others) == len(OPTIMIZERS)

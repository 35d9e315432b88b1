"""What the fused projections keep for backward, and what backward makes of frozen weights."""

import itertools

import numpy as np
import pytest

import entrenar as en
from entrenar.autograd import OPS
from entrenar.kernels import REFERENCE
from entrenar.kernels.numba import norms

CALLS = {  # sizes of the arguments, x of 3 x 40 rows of 8
    "gelu_linear": [(3, 40, 8), (5, 8), (5,)],
    "swiglu_linear": [(3, 40, 8), (3, 40, 8), (5, 8), (5,)],
    "rms_norm_linear": [(3, 40, 8), (8,), (5, 8), (5,)],
    "rms_norm_linear_pair": [(3, 40, 8), (8,), (5, 8), (6, 8), (5,), (6,)],
    "rms_norm_linear_triple": [(3, 40, 8), (8,), (5, 8), (6, 8), (7, 8), (5,), (6,), (7,)],
}


def arguments(name):
    rng = np.random.default_rng(0)
    return [rng.normal(size=size) for size in CALLS[name]]


@pytest.mark.parametrize("name", CALLS)
def test_nothing_but_the_inputs_is_kept(name):
    xs = [en.tensor(a, requires_grad=True) for a in arguments(name)]
    y = OPS[f"entrenar:{name}"](*xs)
    (node,) = {t.node if t.node.op.name != "item" else t.node.parents[0] for t in (y if isinstance(y, tuple) else [y])}
    assert node.op.name == name
    kept, hints = node.saved
    assert [a is x.data for a, x in zip(kept, xs, strict=False)] == [True] * len(xs)
    assert sum(a.size for a in hints.values.values()) <= 3 * 40  # a number per row


@pytest.mark.parametrize("name", CALLS)
def test_any_of_the_inputs_may_be_frozen(name):
    args = arguments(name)

    def run(wanted):
        xs = [en.tensor(a, requires_grad=w) for a, w in zip(args, wanted, strict=True)]
        y = OPS[f"entrenar:{name}"](*xs)
        total = sum((en.sin(t)).sum() for t in (y if isinstance(y, tuple) else [y]))
        return [g.data for g in en.grad(total, [x for x, w in zip(xs, wanted, strict=True) if w])]

    with en.backend(REFERENCE):
        every = run([True] * len(args))
    for wanted in itertools.islice(itertools.product([False, True], repeat=len(args)), 1, None):
        expected = [g for g, w in zip(every, wanted, strict=True) if w]
        for a, b in zip(run(wanted), expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-11)


def test_frozen_projections_normalise_nothing_backward(monkeypatch):
    x, gain, w1, w2, _, _ = arguments("rms_norm_linear_pair")
    x = en.tensor(x, requires_grad=True)
    y1, y2 = en.rms_norm_linear_pair(x, gain, w1, w2)
    calls = []
    monkeypatch.setattr(norms, "forward", lambda *args: calls.append(args))
    (y1.sum() + y2.sum()).backward()
    assert calls == []


def test_bfloat16_cotangents_of_an_input_are_rounded_once():
    """Added up one by one in bfloat16 the three would lose bits."""
    bf16 = en.array.as_dtype("bfloat16")
    rng = np.random.default_rng(0)
    args = [rng.normal(size=size).astype(bf16) for size in [(40, 32), (32,), (24, 32), (24, 32), (24, 32)]]
    g = rng.normal(size=(40, 24)).astype(bf16)

    def cotangent(kind):
        xs = [en.tensor(a.astype(kind), requires_grad=i == 0) for i, a in enumerate(args)]
        return en.grad(en.rms_norm_linear_triple(*xs), xs[0], gradient=[g.astype(kind)] * 3).data

    exact = cotangent(np.float64)
    error = np.abs(cotangent(bf16).astype(np.float64) - exact)
    assert (error <= np.abs(exact) * 2.0**-8 + 1e-5 * np.abs(exact).max()).all()

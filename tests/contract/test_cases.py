"""Public fault reports of the field as situations, by kind; the other areas' stand beside the code they concern.

Areas: A shapes, D edges that are no row of the conventions, R strides; a scan makes sure that every case has its test.
"""

import re
from pathlib import Path

import numpy as np
import pytest

import entrenar as en
from entrenar.autograd.samples import reversed_, strided

RNG = np.random.default_rng(0)


def leaf(values):
    return en.tensor(np.array(values, np.float64), requires_grad=True)


BINARY = (en.add, en.sub, en.mul, en.div, en.maximum, en.pow, en.atan2, en.logaddexp)
SHAPES = [
    ((1,), (5, 4)),
    ((3, 4), (1, 4)),
    ((2, 1, 4, 6), (2, 1, 4, 1)),
    ((2, 1, 3, 5), (2, 1, 3, 1)),
    ((), (2,)),
    ((3, 1), (1, 4)),
    ((1, 1), (1,)),
    ((0, 3), (1, 3)),
    ((2, 0), (2, 1)),
]


@pytest.mark.parametrize(("a", "b"), SHAPES)
@pytest.mark.parametrize("op", BINARY, ids=lambda op: op.__name__)
def test_a_broadcast_operand_gets_a_gradient_of_its_own_shape(op, a, b):  # cases 1, 3, 4, 7
    for left, right in ((a, b), (b, a)):
        x, y = leaf(RNG.uniform(0.5, 2, left)), leaf(RNG.uniform(0.5, 2, right))
        g = RNG.normal(size=np.broadcast_shapes(left, right))
        op(x, y).backward(g)
        full_x, full_y = leaf(np.broadcast_to(x.data, g.shape)), leaf(np.broadcast_to(y.data, g.shape))
        op(full_x, full_y).backward(g)
        for t, full in ((x, full_x), (y, full_y)):
            assert t.grad.shape == t.shape
            lead = g.ndim - t.ndim
            axes = (*range(lead), *(lead + i for i, n in enumerate(t.shape) if n == 1))
            np.testing.assert_allclose(
                t.grad.data, full.grad.data.sum(axes, keepdims=True).reshape(t.shape), rtol=1e-12
            )


def test_the_values_reported():
    a, b = leaf([1.0]), leaf(np.arange(20.0).reshape(5, 4))
    (a * b).sum().backward()
    assert a.grad.tolist() == [190]
    row = leaf(np.zeros((1, 4)))
    (en.ones(3, 4, dtype=np.float64) + row).sum().backward()
    assert row.grad.tolist() == [[3, 3, 3, 3]]
    v = leaf(0.0)
    (en.ones(2, dtype=np.float64) * v).sum().backward()
    assert (v.grad.shape, v.grad.item()) == ((), 2)


def test_einsum_with_a_size_1_label():  # case 6
    x, y = leaf([2.0, 2.0]), leaf([2.0])
    en.einsum("i,i", x, y).backward()
    assert x.grad.tolist() == [2, 2]
    assert y.grad.tolist() == [4]


@pytest.mark.parametrize(
    "op", [en.cumsum, en.cumprod, en.logcumsumexp, en.sort, en.flip, en.softmax], ids=lambda op: op.__name__
)
def test_ops_along_an_empty_axis(op):  # cases 9, 10
    x = leaf(np.zeros((2, 0)))
    op(x, axis=1).sum().backward()
    assert x.grad.shape == (2, 0)


@pytest.mark.parametrize("form", [lambda x: x**1.5, lambda x: x * x**0.5, lambda x: x * en.sqrt(x)])
def test_a_power_and_the_product_it_is_agree_at_zero(form):  # case 44: the cotangent of the root is an exact zero there
    x = leaf([0.0])
    form(x).sum().backward()
    assert x.grad.tolist() == [0]


def test_a_large_tape_prints_folded_with_stable_names():  # case 78
    x = leaf(1.0)
    y = x * x
    assert str(en.tape(y)).splitlines()[1].startswith("v0 = mul(x0, x0)")
    for i in range(200):
        with en.scope(f"layer{i}"):
            y = en.tanh(y) * x
    assert len(en.tape(y).folded().splitlines()) == 201
    assert str(en.tape(y)) == str(en.tape(y))


# strides ------------------------------------------------------------------------------------------------------
ROWS = {
    "softmax": lambda x: en.softmax(x, axis=-1),
    "log_softmax": lambda x: en.log_softmax(x, axis=-1),
    "layer_norm": en.layer_norm,
    "rms_norm": en.rms_norm,
    "gelu": en.gelu,
    "silu": en.silu,
    "cross_entropy": lambda x: en.cross_entropy(x, np.arange(x.shape[0]) % x.shape[1], reduction="none"),
    "attention": lambda x: en.scaled_dot_product_attention(x[None, None], x[None, None], x[None, None], causal=True)[
        0, 0
    ],
    "logsumexp": lambda x: en.logsumexp(x, axis=-1),
    "matmul": lambda x: en.matmul(x, x.T),
}
VIEWS = {
    "transposed": lambda a: np.ascontiguousarray(a.T).T,
    "rows skipped": strided,
    "reversed": reversed_,
    "columns reversed": lambda a: np.ascontiguousarray(a[:, ::-1])[:, ::-1],
}


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("name", ROWS)
def test_views_and_copies_give_the_same(name, view, dtype):  # cases 179, 180, 182
    values = RNG.normal(size=(8, 8)).astype(dtype)
    plain = en.tensor(values, requires_grad=True)
    seen = en.Tensor(VIEWS[view](values), requires_grad=True)
    if view == "rows skipped":
        seen = en.Tensor(np.repeat(np.repeat(values, 2, 0), 2, 1)[::2, ::2], requires_grad=True)
    y, z = ROWS[name](plain), ROWS[name](seen)
    g = RNG.normal(size=y.shape).astype(dtype)
    y.backward(g)
    z.backward(VIEWS[view](g) if g.ndim == 2 and view != "rows skipped" else g)
    tolerance = dict(rtol=1e-12, atol=1e-13) if dtype == np.float64 else dict(rtol=2e-5, atol=2e-6)
    np.testing.assert_allclose(z.data, y.data, **tolerance)
    assert seen.grad is not None
    np.testing.assert_allclose(seen.grad.data, plain.grad.data, **tolerance)


def test_a_gradient_that_arrives_as_a_view_of_a_concatenation():  # case 177
    for f in ROWS.values():
        x = leaf(RNG.normal(size=(3, 4)))
        y = f(x)
        joined = en.concatenate([y, y], axis=-1)
        g = RNG.normal(size=joined.shape)
        joined.backward(g)
        half = g.shape[-1] // 2
        z = leaf(x.data)
        f(z).backward(np.ascontiguousarray(g[..., :half] + g[..., half:]))
        np.testing.assert_allclose(x.grad.data, z.grad.data, rtol=1e-12, atol=1e-13)


# every case has a test ----------------------------------------------------------------------------------------
CASES = {
    "A": (1, 3, 4, 6, 7, 9, 10, 12),
    "B": (13, 15, 16, 18, 19, 21, 22),
    "C": (23, 25, 26),
    "D": (27, 29, 30, 31, 32, 33, 34, 35, 36, 38, 39, 41, 42, 44, 45, 47, 48, 50, 51),
    "E": (52, 54, 55, 57, 58),
    "F": (59, 61, 62),
    "G": (63, 65, 66, 68, 69, 71, 72, 74, 75, 77, 78),
    "H": (79, 81, 82, 84, 85),
    "P": (166,),
    "R": (177, 179, 180, 182),
}


def test_every_case_of_these_areas_is_named_by_a_test():
    text = "\n".join(p.read_text() for p in Path(__file__).parents[1].rglob("test_*.py"))
    named = {
        int(n) for found in re.findall(r"cases? ((?:\d+(?:, |-| and )?)+)", text) for n in re.findall(r"\d+", found)
    }
    spans = {n for a, b in re.findall(r"cases (\d+)-(\d+)", text) for n in range(int(a), int(b) + 1)}
    missing = {area: [n for n in numbers if n not in named | spans] for area, numbers in CASES.items()}
    assert not any(missing.values()), missing

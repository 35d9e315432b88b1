"""gradcheck finds every planted fault and names it; sound ops raise no alarm."""

import numpy as np
import pytest

import gradcheck

from . import faults

RNG = np.random.default_rng(7)
SQUARE, TALL = RNG.normal(size=(3, 3)), RNG.normal(size=(2, 3))
POSITIVE = RNG.uniform(0.5, 2, size=(2, 3))
ROW, COLUMN = RNG.uniform(0.5, 2, size=3), RNG.uniform(0.5, 2, size=(2, 1))
TWICE = np.array([2, 0, 2, 1])
UNARY = [(name, (POSITIVE,), {}) for name in ("exp", "sqrt", "tanh", "sigmoid", "log", "sin")]
BINARY = [(name, (POSITIVE, 1.5 + TALL**2), {}) for name in ("mul", "div", "pow", "atan2", "logaddexp", "xlogy")]
STRETCHED = [
    (name, (POSITIVE, small), {})
    for name, small in (("mul", ROW), ("div", ROW), ("add", COLUMN), ("pow", ROW), ("sub", COLUMN), ("atan2", ROW))
]
MATRIX = [
    ("matmul", (SQUARE, RNG.normal(size=(3, 3))), {}),
    ("inv", (SQUARE + 3 * np.eye(3),), {}),
    ("det", (SQUARE,), {}),
    ("solve", (SQUARE + 3 * np.eye(3), RNG.normal(size=(3, 3))), {}),
    ("softmax", (SQUARE,), {"axis": -1}),
    ("cumsum", (SQUARE,), {"axis": 1}),
]
COUPLED = [
    (name, (TALL,), kwargs)
    for name, kwargs in (
        ("softmax", {"axis": -1}),
        ("log_softmax", {"axis": -1}),
        ("layer_norm", {}),
        ("rms_norm", {}),
        ("normalize", {}),
        ("cumsum", {"axis": 1}),
    )
]
GATHERED = [
    ("take", (ROW, TWICE), {"axis": 0}),
    ("getitem", (ROW, TWICE), {}),
    ("gather", (TALL, 1, np.array([[0, 0, 2], [1, 1, 1]])), {}),
    ("repeat", (ROW, 2), {}),
    ("tile", (ROW, 2), {}),
    ("take_along_axis", (TALL, np.array([[0, 0, 2], [1, 1, 1]])), {"axis": 1}),
]
PLANTED = {
    "sign": (faults.sign, UNARY),
    "constant-factor": (faults.constant_factor, UNARY),
    "detached": (faults.detached, UNARY),
    "dtype": (faults.dtype, UNARY),
    "transposed": (faults.transposed, MATRIX),
    "swapped-inputs": (faults.swapped_inputs, BINARY),
    "missing-broadcast-sum": (faults.missing_broadcast_sum, STRETCHED),
    "missing-broadcast-sum (shape)": (faults.missing_broadcast_shape, STRETCHED),
    "overwritten-duplicates": (faults.overwritten_duplicates, GATHERED),
    "missing-term": (faults.missing_term, COUPLED),
    "stale-saved-value": (faults.stale_saved_value, UNARY),
    "mutated-cotangent": (faults.mutated_cotangent, UNARY),
    "stride-assumption": (faults.stride_assumption, UNARY),
}
CASES = [(kind, plant, *case) for kind, (plant, cases) in PLANTED.items() for case in cases]


def pair(plant, name, args, kwargs):
    """(f, vjp) with the fault planted, and the arrays it is checked at; other arguments are bound."""
    arrays = [a for a in args if isinstance(a, np.ndarray) and a.dtype.kind == "f"]

    def full(xs):
        given = iter(xs)
        return [next(given) if isinstance(a, np.ndarray) and a.dtype.kind == "f" else a for a in args]

    f, vjp = faults.right(name, **kwargs)
    bound = (lambda *xs: f(*full(xs))), (lambda g, *xs: tuple(d for d in vjp(g, *full(xs)) if d is not None))
    return plant(*bound), arrays


def judge(kind, plant, name, args, kwargs):
    wrong, arrays = pair(plant, name, args, kwargs)
    return gradcheck.check(wrong, *arrays)


@pytest.mark.parametrize(("kind", "plant", "name", "args", "kwargs"), CASES, ids=[f"{c[0]}-{c[2]}" for c in CASES])
def test_a_planted_fault_is_caught(kind, plant, name, args, kwargs):
    report = judge(kind, plant, name, args, kwargs)
    assert not report.passed
    assert report.verdict == "wrong"


def test_at_least_95_percent_are_named():
    named = {f"{c[0]} in {c[2]}": judge(*c).kind for c in CASES}
    wrong = {what: kind for what, kind in named.items() if kind != what.split(" in ")[0].removesuffix(" (shape)")}
    assert len(wrong) <= 0.05 * len(named), wrong


def test_twelve_kinds_on_five_ops_each():
    assert len({kind.removesuffix(" (shape)") for kind in PLANTED}) >= 12
    assert all(len(cases) >= 5 for _, cases in PLANTED.values())


@pytest.mark.parametrize("case", [*UNARY, *BINARY, *STRETCHED, *MATRIX, *COUPLED, *GATHERED], ids=lambda c: c[0])
def test_a_sound_op_passes(case):
    sound, arrays = pair(lambda f, vjp: (f, vjp), *case)
    report = gradcheck.check(sound, *arrays)
    assert report.passed, str(report)

"""One row: an op here, the same in PyTorch, inputs; and how close the two must be.

Close means one of:
- elementwise: 1e-12 relative in float64, 4 ulps in float32;
- otherwise: |a - b| <= 8 eps sqrt(n) scale, n the number of elements that go in, scale the largest magnitude of the
  result, which is at most the sum of the terms' (times the condition number for linear systems);
- or, for every op, an error against a higher-precision result (PyTorch in float64; for float64 a formula in extended
  precision) of at most twice PyTorch's own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

import entrenar as en


@dataclass(frozen=True)
class Row:
    """draw: rng -> arrays (float ones are differentiated).  kind: elementwise or sum."""

    name: str
    ours: Callable[..., Any]
    theirs: Callable[..., Any]
    draw: Callable[[np.random.Generator], tuple[Any, ...]]
    kind: str = "sum"
    condition: float = 1.0
    precise: Callable[..., tuple[Any, ...]] | None = None  # (x, g) in extended precision -> value and gradient


def in_layout(array: np.ndarray, layout: str) -> np.ndarray:
    """The same values, laid out otherwise."""
    if array.ndim == 0 or layout == "contiguous":
        return np.array(array)
    if layout == "strided":
        big = np.repeat(array, 2, axis=-1)
        return big[..., ::2]
    if layout == "transposed":
        return np.ascontiguousarray(array.T).T
    return np.ascontiguousarray(array[..., ::-1])[..., ::-1]


LAYOUTS = ("contiguous", "strided", "transposed", "reversed")


def is_float(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind == "f"


def run_ours(row: Row, args: tuple[Any, ...], g: np.ndarray | None) -> tuple[np.ndarray, list[np.ndarray], np.ndarray]:
    made = [en.Tensor(a, requires_grad=True) if is_float(a) else a for a in args]
    y = row.ours(*made)
    if not isinstance(y, en.Tensor):  # nothing but integers went in
        return np.asarray(y), [], np.ones(np.shape(y))
    wanted = [t for t in made if isinstance(t, en.Tensor)]
    seed = np.ones(y.shape, y.dtype) if g is None else g
    grads = en.grad(y, wanted, gradient=seed.astype(y.dtype)) if y.requires_grad else []
    return y.data, [t.data for t in grads], seed


def run_theirs(
    row: Row, args: tuple[Any, ...], g: np.ndarray, dtype: Any = None
) -> tuple[np.ndarray, list[np.ndarray]]:
    made = []
    for a in args:
        t = torch.from_numpy(np.array(a, order="C")) if isinstance(a, np.ndarray) else a
        if is_float(a):
            t = (t if dtype is None else t.to(dtype)).requires_grad_()
        made.append(t)
    y = row.theirs(*made)
    wanted = [t for t in made if isinstance(t, torch.Tensor) and t.requires_grad]
    if not y.requires_grad:
        return y.detach().numpy(), []
    grads = torch.autograd.grad(y, wanted, torch.from_numpy(np.array(g, order="C")).to(y.dtype))
    return y.detach().numpy(), [t.numpy() for t in grads]


def within_bound(row: Row, ours: np.ndarray, theirs: np.ndarray, summed: bool, n: int) -> bool:
    """True if the two agree directly.  summed: a gradient that broadcasting summed back."""
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        raise AssertionError(f"{row.name}: {difference(ours, theirs)}")
    if ours.dtype.kind in "biu" or np.array_equal(ours, theirs, equal_nan=True):
        return np.array_equal(ours, theirs, equal_nan=ours.dtype.kind == "f")
    a, b = ours.astype(np.float64), theirs.astype(np.float64)
    finite = np.isfinite(b)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True) or not np.isfinite(a[finite]).all():
        return False
    if row.kind == "elementwise" and not summed:
        spacing = np.spacing(np.abs(theirs)).astype(np.float64)
        bound = 1e-12 * np.abs(b) if ours.dtype == np.float64 else 4 * spacing
    else:
        eps = np.finfo(ours.dtype).eps
        bound = np.full(b.shape, 8 * eps * np.sqrt(max(n, 1)) * row.condition * np.abs(b[finite]).max(initial=0))
    return bool(np.all(np.abs(a - b)[finite] <= bound[finite]))


def compare(row: Row, seeds: Any, layouts: Any, dtype: Any) -> int:
    """Compare value and gradients over seeds and layouts; the number of elements compared.

    Where the direct bound does not hold, the errors against the higher-precision result decide, the largest of all
    calls: one small array says little about either side's accuracy.
    """
    count, missed = 0, {}
    worst: dict[int, list[float]] = {}
    for seed in seeds:
        for layout in layouts:
            for i, (a, b, exact, summed, n) in enumerate(results(row, seed, layout, dtype)):
                count += a.size
                if not within_bound(row, a, b, summed, n):
                    missed[i] = f"{layout}, {difference(a, b)}"
                if exact is not None and a.size and a.dtype.kind == "f":
                    errors = [float(np.nanmax(np.abs(v.astype(exact.dtype) - exact))) for v in (a, b)]
                    worst[i] = [max(pair) for pair in zip(worst.get(i, errors), errors, strict=True)]
    for i, what in missed.items():
        ours, theirs = worst.get(i, [np.inf, 0.0])
        name = "value" if i == 0 else f"gradient {i - 1}"
        assert ours <= 2 * theirs, f"{row.name}, {name}, {np.dtype(dtype)}: {what}; errors {ours:.2e}, {theirs:.2e}"
    return count


def results(row: Row, seed: int, layout: str, dtype: Any) -> list[tuple[Any, ...]]:
    """(ours, theirs, exact or None, whether summed back, elements that go in) of the value and each gradient."""
    rng = np.random.default_rng([seed, len(row.name)])
    args = tuple(in_layout(a.astype(dtype), layout) if is_float(a) else a for a in row.draw(rng))
    with np.errstate(all="ignore"):
        y, _, _ = run_ours(row, args, None)
        g = np.asarray(rng.normal(size=y.shape)).astype(dtype)
        y, grads, _ = run_ours(row, args, g)
    y_theirs, grads_theirs = run_theirs(row, args, g)
    exact: list[Any] = [None] * (1 + len(grads))
    if dtype == np.float32:
        better = run_theirs(row, args, g, torch.float64)
        exact = [better[0], *better[1]]
    elif row.precise is not None:
        exact = [np.asarray(v) for v in row.precise(args[0].astype(np.longdouble), g.astype(np.longdouble))]
    n = sum(a.size for a in args if is_float(a))
    pairs = zip([y, *grads], [y_theirs, *grads_theirs], exact, strict=True)
    return [(a, b, e, a.shape != y.shape, n) for a, b, e in pairs]


def difference(a: np.ndarray, b: np.ndarray) -> str:
    if a.shape != b.shape or a.dtype != b.dtype:
        return f"{a.dtype} {a.shape} against {b.dtype} {b.shape}"
    d = np.abs(a.astype(np.float64) - b.astype(np.float64))
    at = np.unravel_index(int(np.nanargmax(d)), d.shape) if d.size else ()
    return f"at {tuple(map(int, at))}: {a[at]!r} against {b[at]!r}"

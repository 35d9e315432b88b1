"""Linear systems: inv, solve, det, slogdet, cholesky; the last two axes are matrices, the rest are batches."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..array import Array, floats, rounded, wide
from ..autograd import primitive
from ..autograd.samples import Sample, Samples, calls, strided
from ..autograd.tensor import raw
from . import index, joining, linalg, shape as S

__all__ = ["cholesky", "det", "inv", "slogdet", "solve"]


def _square(x: Array, name: str) -> Array:
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise np.linalg.LinAlgError(f"{name}: expected square matrices in the last two axes, got shape {x.shape}")
    return floats(x)


def _call(name: str, function: Any, *args: Array) -> Any:
    try:
        return function(*args)
    except np.linalg.LinAlgError as error:
        raise np.linalg.LinAlgError(f"{name} of matrices of shape {args[0].shape}: {error}") from None


def _swap(x: Array) -> Array:
    return S.swapaxes(x, -1, -2)


def _regular(rng: np.random.Generator, *shape: int) -> Array:
    """Well away from singular."""
    return rng.normal(size=shape) * 0.5 + 2 * np.eye(shape[-1])


def _matrices(make: Any) -> Samples:
    return calls(
        lambda rng: Sample((make(rng, 3, 3),), {}, "3 by 3"),
        lambda rng: Sample((make(rng, 2, 2, 2),), {}, "batch"),
        lambda rng: Sample((make(rng, 1, 1),), {}, "1 by 1"),
        lambda rng: Sample((make(rng, 0, 2, 2),), {}, "empty batch"),
        lambda rng: Sample((strided(make(rng, 2, 2)),), {}, "strided"),
        lambda rng: Sample((make(rng, 3, 3)[::-1, ::-1],), {}, "reversed"),
    )


@primitive(vjp=dict(x=lambda g, y: -linalg.matmul(linalg.matmul(_swap(y), g), _swap(y))), samples=_matrices(_regular))
def inv(x: Array) -> Array:
    """Inverse of square matrices.  Raises LinAlgError for a singular one."""
    return rounded(_call("inv", np.linalg.inv, _square(x, "inv")), x.dtype)


def _solve_pull(g: Array, a: Array, b: Array, y: Array, needs: tuple[bool, bool]) -> tuple[Any, Any]:
    """db = a^-T g, da = -db y^T: both from one solve."""
    db = solve(_swap(a), g)
    if not needs[0]:
        return None, db
    if b.ndim == 1:
        return -(S.expand_dims(db, -1) * S.expand_dims(y, -2)), db if needs[1] else None
    return -linalg.matmul(db, _swap(y)), db if needs[1] else None


@primitive(
    vjp=_solve_pull,
    samples=calls(
        lambda rng: Sample((_regular(rng, 3, 3), rng.normal(size=(3, 2))), {}, "matrix"),
        lambda rng: Sample((_regular(rng, 3, 3), rng.normal(size=3)), {}, "vector"),
        lambda rng: Sample((_regular(rng, 2, 2, 2), rng.normal(size=(2, 3))), {}, "batch and one"),
        lambda rng: Sample((_regular(rng, 2, 2), rng.normal(size=(3, 2, 1))), {}, "one and batch"),
        lambda rng: Sample((_regular(rng, 2, 2).T, strided(rng.normal(size=(2, 3)))), {}, "strided"),
        lambda rng: Sample((_regular(rng, 2, 2), np.zeros((2, 0))), {}, "empty"),
    ),
    broadcasts=True,
)
def solve(a: Array, b: Array) -> Array:
    """x with a x = b; b is a vector if 1-d, else matrices, batches broadcast.  Raises LinAlgError for a singular a."""
    dtype = np.result_type(a, b)
    return rounded(_call("solve", np.linalg.solve, _square(a, "solve"), floats(b)), dtype)


def _cofactors(x: Array, y: Array) -> Array:
    """d det / d x: det x^-T, or, close to singular, the determinants of the minors."""
    values = raw(wide(raw(x)))
    if values.size == 0:
        return x
    if np.all(raw(y) != 0) and np.all(np.linalg.cond(values) < 1e8):
        return S.reshape(y, (*y.shape, 1, 1)) * _swap(inv(x))
    n = x.shape[-1]
    if n == 1:
        return x * 0.0 + 1.0
    rows = []
    for i in range(n):
        for j in range(n):
            keep_i, keep_j = np.delete(np.arange(n), i), np.delete(np.arange(n), j)
            minor = index.getitem(x, (Ellipsis, keep_i[:, None], keep_j[None, :]))
            rows.append(det(minor) * float((-1) ** (i + j)))
    return S.reshape(joining.stack(rows, axis=-1), x.shape)


@primitive(
    vjp=dict(x=lambda g, x, y: S.reshape(g, (*g.shape, 1, 1)) * _cofactors(x, y)),
    samples=_matrices(_regular)
    + calls(lambda rng: Sample((np.outer([1.0, 2.0, -1.0], [0.5, 1.0, 3.0]),), {}, "singular")),
)
def det(x: Array) -> Array:
    """Determinants; the derivative is the cofactor matrix, also of singular matrices."""
    return rounded(np.asarray(np.linalg.det(_square(x, "det"))), x.dtype)


@primitive(vjp=dict(x=lambda g, x: _slogdet_pull(g[1], x)), samples=_matrices(_regular))
def slogdet(x: Array) -> tuple[Array, Array]:
    """(sign, log |det|); the sign is constant.  The gradient is x^-T: LinAlgError for a singular matrix."""
    sign, logabs = np.linalg.slogdet(_square(x, "slogdet"))
    return rounded(np.asarray(sign), x.dtype), rounded(np.asarray(logabs), x.dtype)


def _slogdet_pull(g: Array, x: Array) -> Array:
    if g is None:
        return x * 0.0
    return S.reshape(g, (*g.shape, 1, 1)) * _swap(inv(x))


def _cholesky_pull(g: Array, y: Array) -> Array:
    """Murray, "Differentiation of the Cholesky decomposition" (2016), eq. 10, symmetrised."""
    half = index.tril(linalg.matmul(_swap(y), g))
    n = y.shape[-1]
    half = half * (1.0 - 0.5 * np.eye(n)).astype(raw(g).dtype)
    lower = inv(y)
    s = linalg.matmul(linalg.matmul(_swap(lower), half), lower)
    return (s + _swap(s)) * 0.5


def _positive(rng: np.random.Generator, *shape: int) -> Array:
    a = rng.normal(size=shape) * 0.5
    return a @ np.swapaxes(a, -1, -2) + np.eye(shape[-1])


@primitive(vjp=dict(x=_cholesky_pull), samples=_matrices(_positive))
def cholesky(x: Array) -> Array:
    """Lower L with L L^T = (x + x^T)/2 (x itself if symmetric).  Raises LinAlgError if not positive definite."""
    v = _square(x, "cholesky")
    return rounded(_call("cholesky", np.linalg.cholesky, (v + np.swapaxes(v, -1, -2)) * 0.5), x.dtype)

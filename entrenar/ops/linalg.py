"""Products: matmul and what is made of it, einsum, trace.  16-bit floats accumulate in float32."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..array import FLOAT32, Array, is_bfloat16, wide
from ..autograd import primitive
from ..autograd.modes import mode
from ..autograd.samples import LAYOUTS, Sample, calls
from ..kernels import REFERENCE, products
from . import elementwise as E, index, reduce, shape as S

__all__ = ["dot", "einsum", "matmul", "outer", "tensordot", "trace"]


def _swap(x: Array) -> Array:
    return S.swapaxes(x, -1, -2)


def _left(g: Array, a: Array, b: Array) -> Array:
    """Cotangent of a in a @ b (the engine sums over broadcast batch axes)."""
    if b.ndim == 1:
        return g * b if a.ndim == 1 else S.expand_dims(g, -1) * b
    if a.ndim == 1:
        return S.squeeze(matmul(b, S.expand_dims(g, -1)), -1)
    return matmul(g, _swap(b))


def _right(g: Array, a: Array, b: Array) -> Array:
    """Cotangent of b in a @ b; one product over all rows where b is a plain matrix."""
    if a.ndim == 1:
        return g * a if b.ndim == 1 else S.expand_dims(a, -1) * S.expand_dims(g, -2)
    if b.ndim == 1:
        return S.squeeze(matmul(_swap(a), S.expand_dims(g, -1)), -1)
    if b.ndim == 2 and a.ndim > 2:
        return (
            matmul(_swap(S.reshape(a, (-1, a.shape[-1]))), S.reshape(g, (-1, g.shape[-1])))
            if a.size and g.size
            else (matmul(_swap(a), g))
        )
    return matmul(_swap(a), g)


def _two(a: tuple[int, ...], b: tuple[int, ...], label: str = "") -> Any:
    return lambda rng: Sample((rng.normal(size=a), rng.normal(size=b)), {}, label or f"{a} @ {b}")


_SHAPES = (
    ((2, 3), (3, 4)),
    ((3,), (3,)),
    ((3,), (3, 2)),
    ((2, 3), (3,)),
    ((2, 3, 4), (4, 2)),
    ((2, 1, 2, 3), (3, 3, 2)),
    ((3,), (2, 3, 2)),
    ((2, 2, 3), (3,)),
    ((0, 3), (3, 2)),
    ((2, 0), (0, 3)),
    ((1, 1), (1, 1)),
    ((0, 2, 3), (3, 2)),
)


@primitive(
    vjp=dict(a=_left, b=_right),
    samples=calls(*(_two(a, b) for a, b in _SHAPES))
    + calls(
        *(
            lambda rng, n=n, f=f: Sample((f(rng.normal(size=(3, 2))), rng.normal(size=(2, 4))), {}, f"{n} left")
            for n, f in LAYOUTS.items()
        ),
        *(
            lambda rng, n=n, f=f: Sample((rng.normal(size=(2, 3)), f(rng.normal(size=(3, 2)))), {}, f"{n} right")
            for n, f in LAYOUTS.items()
        ),
    ),
    broadcasts=True,
    autocast=True,
)
def matmul(a: Array, b: Array) -> Array:
    """Matrix product as numpy.matmul: 1-d operands are vectors, leading axes broadcast.  Plain IEEE arithmetic.

    Raises ValueError naming both shapes if the inner sizes differ.
    """
    if a.ndim == 0 or b.ndim == 0:
        raise ValueError(
            f"matmul: operands need at least one dimension, got shapes {a.shape} and {b.shape}; use * for scalars"
        )
    inner = b.shape[0] if b.ndim == 1 else b.shape[-2]
    if a.shape[-1] != inner:
        raise ValueError(f"matmul: inner sizes differ: {a.shape} @ {b.shape} ({a.shape[-1]} and {inner})")
    if b.ndim == 2 and a.ndim > 2 and a.size and a.flags.c_contiguous:  # one product over all rows
        return product(a.reshape(-1, inner), b).reshape(*a.shape[:-1], b.shape[-1])
    return product(a, b)


def product(a: Array, b: Array, bias: Array | None = None) -> Array:
    """numpy.matmul of arrays, plus ``bias`` on the last axis, rounded once; by kernels where the product is large."""
    dtype = np.result_type(a, b) if bias is None else np.result_type(a, b, bias)
    if (
        a.size * b.shape[-1] > products.SMALL
        and a.ndim > 1 < b.ndim
        and a.dtype == b.dtype
        and (a.dtype.char in "fd" or is_bfloat16(a.dtype))
        and mode().backend != REFERENCE
    ):
        fits = bias is None or wide(bias).dtype == (FLOAT32 if is_bfloat16(a.dtype) else a.dtype)
        y = products.matmul(a, b, wide(bias) if bias is not None and fits else None, dtype if fits else None)
        return y if fits else (y + bias).astype(dtype, copy=False)
    y = np.matmul(wide(a), wide(b))
    if bias is not None:
        bias = wide(bias)
        y = np.add(y, bias, out=y) if np.result_type(y, bias) == y.dtype else y + bias
    return y.astype(dtype, copy=False)


def dot(a: Array, b: Array) -> Array:
    """numpy.dot: matmul for vectors and matrices, product for 0-d, last axis with last but one for more dimensions."""
    if a.ndim == 0 or b.ndim == 0:
        return E.mul(a, b)
    if b.ndim <= 2:
        return matmul(a, b)
    return tensordot(a, b, ((-1,), (-2,)))


def outer(a: Array, b: Array) -> Array:
    """All products of an element of a and one of b, shape (a.size, b.size)."""
    return E.mul(
        S.reshape(S.ravel(a), (-1, 1)) if a.size else S.reshape(a, (0, 1)),
        S.reshape(S.ravel(b), (1, -1)) if b.size else S.reshape(b, (1, 0)),
    )


def tensordot(a: Array, b: Array, axes: Any = 2) -> Array:
    """Sum of products over pairs of axes, as numpy.tensordot (a number: the last of a with the first of b)."""
    if isinstance(axes, (int, np.integer)):
        left, right = list(range(a.ndim - int(axes), a.ndim)), list(range(int(axes)))
    else:
        left = [S.axis_of(i, a.ndim, "tensordot") for i in np.atleast_1d(axes[0]).tolist()]
        right = [S.axis_of(i, b.ndim, "tensordot") for i in np.atleast_1d(axes[1]).tolist()]
    if [a.shape[i] for i in left] != [b.shape[i] for i in right]:
        raise ValueError(f"tensordot: axes {left} of shape {a.shape} and {right} of shape {b.shape} differ in size")
    rest_a = [i for i in range(a.ndim) if i not in left]
    rest_b = [i for i in range(b.ndim) if i not in right]
    inner = int(np.prod([a.shape[i] for i in left], dtype=np.int64))
    rows = int(np.prod([a.shape[i] for i in rest_a], dtype=np.int64))
    columns = int(np.prod([b.shape[i] for i in rest_b], dtype=np.int64))
    product = matmul(
        S.reshape(S.transpose(a, (*rest_a, *left)), (rows, inner)),
        S.reshape(S.transpose(b, (*right, *rest_b)), (inner, columns)),
    )
    return S.reshape(product, (*(a.shape[i] for i in rest_a), *(b.shape[i] for i in rest_b)))


def diagonal(x: Array, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Array:
    """The diagonal of two axes, as the last axis of the result."""
    moved = S.moveaxis(x, (axis1, axis2), (0, 1))
    rows, columns = moved.shape[:2]
    n = max(0, min(rows + min(offset, 0), columns - max(offset, 0)))
    i = np.arange(n)
    return S.moveaxis(index.getitem(moved, (i + max(-offset, 0), i + max(offset, 0))), 0, -1)


def trace(x: Array, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Array:
    """Sum of the diagonal of two axes, as numpy.trace."""
    return reduce.sum(diagonal(x, offset, axis1, axis2), axis=-1)


# einsum -------------------------------------------------------------------------------------------------------
def _parse(subscripts: str, ranks: list[int]) -> tuple[list[str], str]:
    """(labels per operand, labels of the output), the ellipsis written out.  Raises ValueError."""
    text = subscripts.replace(" ", "")
    left, arrow, out = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise ValueError(f"einsum: {subscripts!r} names {len(terms)} operands, got {len(ranks)}")
    spare = [chr(c) for c in range(0x100, 0x200)]  # labels no one writes: they stand for the ellipsis
    widest = 0
    for term, rank in zip(terms, ranks, strict=True):
        if not all(c.isalpha() for c in term.replace("...", "")):
            raise ValueError(f"einsum: {subscripts!r}: a term is letters and at most one ellipsis, got {term!r}")
        named = len(term.replace("...", ""))
        if named > rank or ("..." not in term and named != rank):
            raise ValueError(f"einsum: term {term!r} of {subscripts!r} does not fit an operand of {rank} dimensions")
        if "..." in term:
            widest = max(widest, rank - named)
    filled = []
    for term, rank in zip(terms, ranks, strict=True):
        count = rank - len(term.replace("...", ""))
        filled.append(term.replace("...", "".join(spare[widest - count : widest])))
    ellipsis = "".join(spare[:widest])
    if arrow:
        target = out.replace("...", ellipsis)
    else:
        every = left.replace(",", "").replace("...", "")
        target = (ellipsis if "..." in left else "") + "".join(sorted(c for c in set(every) if every.count(c) == 1))
    if len(set(target)) < len(target) or not set(target) <= set("".join(filled)):
        raise ValueError(f"einsum: the output {out!r} of {subscripts!r} repeats a label or names an unknown one")
    return filled, target


def einsum(subscripts: str, *operands: Array) -> Array:
    """Sums of products in Einstein's notation, as numpy.einsum: explicit or implicit output, ellipsis, repeated labels.

    Raises ValueError for a pattern that does not fit the operands.
    """
    xs = [x if hasattr(x, "shape") else np.asarray(x) for x in operands]
    labels, out = _parse(subscripts, [x.ndim for x in xs])
    xs, labels = list(xs), list(labels)
    sizes: dict[str, int] = {}
    for x, term in zip(xs, labels, strict=True):
        for c, n in zip(term, x.shape, strict=True):
            if sizes.setdefault(c, n) != n and 1 not in (sizes[c], n):
                raise ValueError(f"einsum: label {c!r} of {subscripts!r} has sizes {sizes[c]} and {n}")
            sizes[c] = n if sizes[c] == 1 else sizes[c]
    for i, term in enumerate(labels):
        x = xs[i]
        for c in dict.fromkeys(term):  # a label twice in one operand: its diagonal
            while term.count(c) > 1:
                first, second = term.index(c), term.index(c, term.index(c) + 1)
                if x.shape[first] != x.shape[second]:
                    raise ValueError(
                        f"einsum: label {c!r} of {subscripts!r} has sizes {x.shape[first]} and {x.shape[second]}"
                    )
                x = diagonal(x, 0, first, second)
                term = term[:first] + term[first + 1 : second] + term[second + 1 :] + c
        xs[i], labels[i] = _summed(x, term, [j for j, c in enumerate(term) if x.shape[j] == 1 and sizes[c] != 1])
    for i, term in enumerate(labels):  # a label that nobody else has: its sum
        others = "".join(labels[:i] + labels[i + 1 :]) + out
        xs[i], labels[i] = _summed(xs[i], term, [j for j, c in enumerate(term) if c not in others])
    names = {c: chr(97 + k) if k < 26 else chr(65 + k - 26) for k, c in enumerate(dict.fromkeys("".join(labels) + out))}
    pattern = ",".join("".join(names[c] for c in t) for t in labels) + "->" + "".join(names[c] for c in out)
    return einsum_(*xs, pattern=pattern)


def _summed(x: Array, term: str, axes: list[int]) -> tuple[Array, str]:
    """An operand summed over some of its axes, and the labels that stay."""
    if not axes:
        return x, term
    return reduce.sum(x, axis=tuple(axes)), "".join(c for j, c in enumerate(term) if j not in axes)


def _einsum_pull(g: Array, xs: tuple[Array, ...], pattern: str, needs: tuple[bool, ...]) -> tuple[Any, ...]:
    left, out = pattern.split("->")
    terms = left.split(",")
    ds: list[Any] = []
    for i, term in enumerate(terms):
        if not needs[i]:
            ds.append(None)
            continue
        others = [j for j in range(len(terms)) if j != i]
        ds.append(
            einsum_(g, *(xs[j] for j in others), pattern=",".join([out, *(terms[j] for j in others)]) + "->" + term)
        )
    return tuple(ds)


def _patterns(*cases: tuple[str, tuple[tuple[int, ...], ...]]) -> Any:
    return calls(
        *(lambda rng, p=p, s=s: Sample(tuple(rng.normal(size=n) for n in s), {"pattern": p}, p) for p, s in cases)
    )


@primitive(
    vjp=_einsum_pull,
    samples=_patterns(
        ("ij,jk->ik", ((2, 3), (3, 4))),
        ("i,i->", ((3,), (3,))),
        ("bij,bjk->bik", ((2, 2, 3), (2, 3, 2))),
        ("ij->ji", ((2, 3),)),
        ("i,j,k->kij", ((2,), (3,), (2,))),
        ("ij,ij->ij", ((2, 3), (2, 3))),
        (",i->i", ((), (3,))),
        ("ij,jk->ik", ((0, 3), (3, 2))),
    ),
    promotes=True,
    autocast=True,
)
def einsum_(*xs: Array, pattern: str) -> Array:
    """einsum of operands whose labels are unique and each in another operand or in the output."""
    dtype = np.result_type(*xs)
    return np.einsum(pattern, *(wide(x) for x in xs), optimize=len(xs) > 1).astype(dtype, copy=False)

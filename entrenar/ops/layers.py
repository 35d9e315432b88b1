"""What a network is made of besides activations: linear, embedding, dropout."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..array import Array, Generator, as_array, default_generator, device_of, is_float, is_low, wide, xp
from ..array.random import State, keep_at
from ..autograd.modes import mode
from ..autograd.primitive import primitive
from ..autograd.samples import Sample, Samples, calls, edge, edges, normals
from ..autograd.tensor import raw
from ..kernels import find
from . import linalg, reduce, shape

__all__ = ["dropout", "embedding", "linear"]


# linear -------------------------------------------------------------------------------------------------------
def _weight_cotangent(g: Array, x: Array, w: Array) -> Array:
    """g^T x over collapsed leading axes, in the memory order of w (a transposed weight gets a transposed gradient)."""
    g, x = _rows(g), _rows(x)
    w = raw(w)
    if w.flags.f_contiguous and not w.flags.c_contiguous:
        return shape.transpose(linalg.matmul(shape.transpose(x), g))
    return linalg.matmul(shape.transpose(g), x)


def _rows(x: Array) -> Array:
    """Leading axes collapsed into one."""
    return x if x.ndim == 2 else shape.reshape(x, (math.prod(x.shape[:-1]), x.shape[-1]))


def _linear_samples() -> Samples:
    def viewed(label: str, view: Any) -> Any:
        return lambda rng: Sample(tuple(view(rng.normal(size=n)) for n in ((2, 3), (4, 3), (4,))), {}, label)

    return calls(
        normals("rows", (2, 3), (4, 3), (4,)),
        normals("no bias", (2, 3), (4, 3)),
        normals("3-d", (3, 2, 4), (5, 4), (5,)),
        normals("one vector", (3,), (2, 3), (2,)),
        normals("no rows", (0, 3), (2, 3), (2,)),
        normals("no inputs", (2, 0), (3, 0), (3,)),
        normals("size 1", (1, 1), (1, 1), (1,)),
        viewed("column-major", np.asfortranarray),
        viewed("reversed", lambda a: a[::-1]),
        viewed("every second", lambda a: np.repeat(a, 2, -1)[..., ::2]),
        viewed("stride 0", lambda a: np.broadcast_to(a[:1], a.shape)),
    )


@primitive(
    vjp=dict(
        x=lambda g, w: linear(g, shape.transpose(w)),
        w=lambda g, x, w: _weight_cotangent(g, x, w),
        b=lambda g: reduce.sum(_rows(g), axis=0),
    ),
    samples=_linear_samples(),
    promotes=True,
    autocast=True,
)
def linear(x: Array, w: Array, b: Array = None) -> Array:
    """x w^T + b: the last axis of x (..., in) through w (out, in) and b (out,), giving (..., out).

    One matrix product over all leading axes; 16-bit floats are multiplied and summed in float32 and rounded once.
    Raises ValueError for shapes that do not fit.
    """
    if w.ndim != 2 or x.ndim < 1 or x.shape[-1] != w.shape[1] or (b is not None and b.shape != w.shape[:1]):
        raise ValueError(
            f"linear: x has shape {x.shape}, w {w.shape} and b {None if b is None else b.shape}: "
            "expected (..., in), (out, in) and (out,)"
        )
    return linalg.product(_rows(x), w.T, b).reshape(*x.shape[:-1], w.shape[0])


# embedding ----------------------------------------------------------------------------------------------------
def _add_rows(total: Array, g: Array, ids: Array) -> bool:
    """Add rows by id to a table; 16-bit floats, which would be rounded each time, are declined."""
    if is_low(total.dtype):
        return False
    found = find("entrenar:embedding.into", device_of(total), mode().backend, (total, ids, g), {})
    if found is None:
        np.add.at(total, ids.reshape(-1), g.reshape(ids.size, g.shape[-1]))
    else:
        found.run(total, ids, g)
    return True


@primitive(
    vjp=dict(weight=lambda g, ids, weight_meta: embedding_sum(ids, g, count=weight_meta.shape[0])),
    into=dict(weight=_add_rows),
    nondiff=("ids",),
    samples=calls(
        lambda rng: Sample((rng.integers(0, 5, (2, 3)), rng.normal(size=(5, 4))), {}, "2-d ids, some twice"),
        lambda rng: Sample((np.array([1, 1, 1, 0]), rng.normal(size=(3, 2))), {}, "duplicates"),
        lambda rng: Sample((np.array(2), rng.normal(size=(3, 2))), {}, "one id"),
        lambda rng: Sample((np.zeros((0, 2), np.int32), rng.normal(size=(3, 2))), {}, "no ids"),
        lambda rng: Sample((np.array([[2], [0]], np.uint8), rng.normal(size=(8, 6)).T[::-2, ::2]), {}, "strided table"),
        lambda rng: Sample((np.array([0, 0]), rng.normal(size=(1, 1))), {}, "size 1"),
    )
    + edges(
        edge(np.array([0, 0]), [[1.0], [5.0]], value=[[1.0], [1.0]], grads=(None, [[2.0], [0.0]]), label="duplicates"),
    ),
)
def embedding(ids: Array, weight: Array) -> Array:
    """Rows of a table: weight[ids].  ids: integers of any shape S; weight: (count, width); the result is (*S, width).

    Gradients of equal ids add up, in the order of ids.  Raises TypeError for ids that are not integers, IndexError for
    an id outside [0, count).
    """
    check_ids("embedding", ids, weight.shape[0])
    return weight.take(ids, axis=0) if weight.flags.c_contiguous else weight[ids]  # take would copy a strided table


def check_ids(name: str, ids: Array, count: int) -> None:
    """Raise unless ids are integers in [0, count); the error gives the first that is not, and where."""
    if ids.dtype.kind not in "iu":
        raise TypeError(f"{name}: ids must be integers, got dtype {ids.dtype}; use .astype(int64)")
    if ids.size and (int(ids.min()) < 0 or int(ids.max()) >= count):
        at = tuple(int(i) for i in np.argwhere((ids < 0) | (ids >= count))[0])
        raise IndexError(f"{name}: id {int(ids[at])} at index {at} is outside [0, {count})")


@primitive(
    vjp=dict(rows=lambda g, ids: embedding(ids, g)),
    nondiff=("ids",),
    samples=calls(
        lambda rng: Sample((rng.integers(0, 3, (2, 3)), rng.normal(size=(2, 3, 4))), {"count": 5}, "some twice"),
        lambda rng: Sample((np.array(1), rng.normal(size=(2,))), {"count": 3}, "one row"),
        lambda rng: Sample((np.zeros(0, np.int64), rng.normal(size=(0, 2))), {"count": 3}, "no rows"),
        lambda rng: Sample((np.array([1, 0, 1]), rng.normal(size=(4, 6)).T[::-2, ::2]), {"count": 2}, "strided"),
    ),
)
def embedding_sum(ids: Array, rows: Array, *, count: int) -> Array:
    """Rows added up by id in a table of ``count`` rows: the transpose of ``embedding``."""
    values = wide(rows).reshape(ids.size, rows.shape[-1])
    table = xp(rows).zeros((count, rows.shape[-1]), values.dtype)
    np.add.at(table, ids.reshape(-1), values)  # one after the other, in the order of ids
    return table.astype(rows.dtype, copy=False)


# dropout ------------------------------------------------------------------------------------------------------
def dropout(x: Array, p: float = 0.5, *, training: bool = True, generator: Generator | None = None) -> Array:
    """Each element zeroed with probability p, the others divided by 1 - p (Srivastava et al. 2014).

    x: any shape, float; returned as it is unless ``training``.  generator: where the random bits come from (the default
    one if None); element i is dropped if the i-th float32 uniform is below p, on every backend alike.  p = 0 and p = 1
    are exact and draw nothing.  Raises ValueError for p outside [0, 1], TypeError for integers.
    """
    check_rate("dropout", p)
    if not training or p == 0:
        return x
    x = x if hasattr(x, "dtype") else as_array(x)
    if not is_float(x.dtype):
        raise TypeError(f"dropout: expected floats, got dtype {x.dtype}; use .astype(float32)")
    if p == 1:
        return keep_scaled(x, np.zeros(x.shape, bool), factor=0.0)
    return drop(x, p=float(p), state=(generator or default_generator).claim(math.prod(x.shape)))


def check_rate(name: str, p: float) -> None:
    """Raise ValueError unless p is a probability."""
    if isinstance(p, bool) or not 0 <= p <= 1:
        raise ValueError(f"{name}: p={p!r} is not a probability: expected a number in [0, 1]")


def kept(sizes: tuple[int, ...], p: float, generator: Generator | None) -> Array:
    """True with probability 1 - p: where the float32 uniform (24 bits) of a word is at least p."""
    if p == 0 or p == 1:
        return np.full(sizes, p == 0)
    return keep_at((generator or default_generator).claim(math.prod(sizes)), p, sizes)


@primitive(
    vjp=dict(x=lambda g, keep, factor: keep_scaled(g, keep, factor=factor)),
    nondiff=("keep",),
    samples=calls(
        lambda rng: Sample((rng.normal(size=(2, 3)), rng.random((2, 3)) > 0.4), {"factor": 2.0}, "some kept"),
        lambda rng: Sample((rng.normal(size=(4, 6)).T[::-2], rng.random((3, 4)) > 0.4), {"factor": 1.25}, "strided"),
        lambda rng: Sample((rng.normal(size=()), np.array(True)), {"factor": 2.0}, "0-d"),
        lambda rng: Sample((rng.normal(size=(0, 3)), np.zeros((0, 3), bool)), {"factor": 2.0}, "empty"),
    )
    + edges(
        edge(
            [1.0, math.inf],
            np.array([True, False]),
            factor=2.0,
            value=[2.0, 0.0],
            grads=([2.0, 0.0], None),
            label="dropped inf",
        ),
    ),
)
def keep_scaled(x: Array, keep: Array, *, factor: float) -> Array:
    """factor x where ``keep``, else 0.  keep: booleans of the shape of x."""
    v = wide(x)
    y = np.multiply(v, v.dtype.type(factor))
    return np.where(keep, y, y.dtype.type(0)).astype(x.dtype, copy=False)


def _drop_samples() -> Samples:
    def sample(label: str, make: Any, p: float, block: int = 0) -> Any:
        return lambda rng: Sample((make(rng),), {"p": p, "state": (3, 1, block)}, label)

    return calls(
        sample("some kept", lambda rng: rng.normal(size=(2, 3)), 0.4),
        sample("several steps", lambda rng: rng.normal(size=(7, 23)), 0.25, 5),
        sample("strided", lambda rng: rng.normal(size=(4, 6)).T[::-2], 0.2),
        sample("0-d", lambda rng: rng.normal(size=()), 0.5, 2**64),
        sample("empty", lambda rng: rng.normal(size=(0, 3)), 0.5),
        sample("rare", lambda rng: rng.normal(size=(3,)), 1 - 2.0**-30),
    )


@primitive(vjp=dict(x=lambda g, p, state: drop(g, p=p, state=state)), samples=_drop_samples())
def drop(x: Array, *, p: float, state: State) -> Array:
    """x / (1 - p) where the bits that a generator in ``state`` draws next keep it, else 0; see ``dropout``.

    state: (seed, stream, block), all that backward needs to have the same bits again.  p: in [0, 1).
    """
    return keep_scaled(x, keep_at(state, p, x.shape), factor=1.0 / (1.0 - p))

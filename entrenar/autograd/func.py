"""The functional face: vjp, grad, jvp, jacobians, hessian, hvp; all built on one thing, ``pullback_of``.

Functions take and return tensors or nested lists, tuples and dicts of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from ..array import xp
from .backward import run
from .linear import identity
from .modes import Changed, mode
from .primitive import OPS
from .tape import reachable
from .tensor import Tensor, edge_of, raw, settle
from .trees import flatten, unflatten

Function = Callable[..., Any]


def pullback_of(f: Function, xs: Sequence[Any], needs: Sequence[bool] | None = None) -> tuple[Any, Callable[..., Any]]:
    """(y, pull) of f at xs: ``pull(*cotangents)`` gives a cotangent per input, None where not needed.

    The pullback may be called again, and is itself recorded when what it depends on is tracked outside.
    """
    wanted = [True] * len(xs) if needs is None else list(needs)
    record = mode().grad
    fresh = [_fresh(x, record) if need else x for x, need in zip(xs, wanted, strict=True)]
    with Changed(grad=True):
        y = f(*fresh)
    ys = y if isinstance(y, tuple) else (y,)
    edges = [edge_of(t) if need else None for t, need in zip(fresh, wanted, strict=True)]
    own = {e for e in edges if e is not None}

    def pull(*gs: Any) -> tuple[Any, ...]:
        pairs = [
            (edge_of(t), g)
            for t, g in zip(ys, gs, strict=True)
            if isinstance(t, Tensor) and t.tracked and g is not None
        ]
        arrays = not any(isinstance(v, Tensor) for v in (*gs, *xs))
        graph = mode().grad and (any(isinstance(g, Tensor) and g.tracked for g in gs) or _outside(pairs, own))
        seeds = [(g if isinstance(g, Tensor) else Tensor(g)) if graph else raw(g) for _, g in pairs]
        found = run([e for e, _ in pairs], seeds, retain_graph=True, create_graph=graph, wanted=edges)
        ds = []
        for t, e in zip(fresh, edges, strict=True):
            d = None if e is None else found.get(e)
            if d is None and e is not None:
                d = xp(t.data).zeros(t.shape, t.dtype)
            ds.append(d if d is None or isinstance(d, Tensor) else settle(d) if arrays else Tensor(d))
        return tuple(ds)

    return y, pull


def _fresh(x: Any, record: bool) -> Tensor:
    return identity(x) if isinstance(x, Tensor) and x.tracked and record else Tensor(raw(x), requires_grad=True)


def _outside(pairs: Iterable[tuple[Any, Any]], own: set[Any]) -> bool:
    """True if the tape reaches anything tracked that is not one of the function's own fresh inputs."""
    roots = [e for e, _ in pairs]
    return any(isinstance(p, Tensor) and p not in own for n in reachable(roots) for p in n.parents)


def vjp(f: Function, *xs: Any) -> tuple[Any, Callable[..., tuple[Any, ...]]]:
    """(f(*xs), pullback): ``pullback(*cotangents)`` gives one gradient (tree) per argument, as a tuple.

    A cotangent has the shape and dtype of its output.  Zero gradient where an argument has no part.
    """
    leaves, form = flatten(xs)
    _check_floats(leaves, "vjp")
    shape_of_y: list[Any] = []

    def flat(*ts: Any) -> Any:
        ys, y_form = flatten(f(*unflatten(form, ts)))
        for y in ys:
            if not isinstance(y, Tensor):
                raise TypeError(f"the function must return tensors, got {type(y).__name__}")
        shape_of_y[:] = [y_form]
        return tuple(ys)

    ys, pull = pullback_of(flat, leaves)

    def pullback(*gs: Any) -> tuple[Any, ...]:
        flat_gs, _ = flatten(gs[0] if len(gs) == 1 else gs)
        if len(flat_gs) != len(ys):
            raise ValueError(f"the pullback takes {len(ys)} cotangents, got {len(flat_gs)}")
        for g, y in zip(flat_gs, ys, strict=True):
            if g is not None and (settle(raw(g)).shape != y.shape or settle(raw(g)).dtype != y.dtype):
                a = settle(raw(g))
                raise ValueError(
                    f"a cotangent has shape {a.shape} and dtype {a.dtype}, expected {y.shape} and {y.dtype}"
                )
        ds = pull(*(g if isinstance(g, Tensor) or g is None else Tensor(g) for g in flat_gs))
        return tuple(unflatten(form, [d if isinstance(d, Tensor) else Tensor(d) for d in ds]))

    return unflatten(shape_of_y[0], ys), pullback


def value_and_grad(f: Function, argnums: int | Sequence[int] = 0) -> Function:
    """A function that returns (f(*xs), gradient of the scalar f with respect to the arguments ``argnums``)."""
    single = isinstance(argnums, int)
    numbers: tuple[int, ...] = (argnums,) if isinstance(argnums, int) else tuple(argnums)

    def both(*xs: Any) -> tuple[Any, Any]:
        for n in numbers:
            if not -len(xs) <= n < len(xs):
                raise ValueError(f"argnums={argnums}: the function was called with {len(xs)} arguments")

        def part(*chosen: Any) -> Any:
            every = list(xs)
            for n, x in zip(numbers, chosen, strict=True):
                every[n] = x
            return f(*every)

        y, pull = vjp(part, *(xs[n] for n in numbers))
        if not isinstance(y, Tensor) or y.size != 1:
            raise ValueError(f"grad needs a function that returns one number, got {_shape(y)}; use jacrev for more")
        ds = pull(Tensor(xp(y.data).ones(y.shape, y.dtype)))
        return y, ds[0] if single else ds

    return both


def grad(f: Function, argnums: int | Sequence[int] = 0) -> Function:
    """A function that returns the gradient of the scalar-valued f.

    >>> import entrenar as en
    >>> en.func.grad(lambda x: x * x * x)(en.tensor(2.0)).item()
    12.0
    """
    both = value_and_grad(f, argnums)
    return lambda *xs: both(*xs)[1]


def jvp(f: Function, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    """(f(*primals), J tangents): the vjp of the vjp, with respect to its cotangent."""
    if len(primals) != len(tangents):
        raise ValueError(f"jvp needs a tangent per primal, got {len(primals)} and {len(tangents)}")
    y, pull = vjp(f, *primals)
    ys, form = flatten(y)
    zeros = [Tensor(xp(t.data).zeros(t.shape, t.dtype)) for t in ys]
    _, transposed = vjp(lambda *u: pull(*u) if len(u) > 1 else pull(u[0]), *zeros)
    tangents = tuple(_as(t, p) for t, p in zip(flatten(tuple(tangents))[0], flatten(tuple(primals))[0], strict=True))
    out = transposed(*tangents) if len(tangents) > 1 else transposed(tangents[0])
    return y, unflatten(form, out)


def _as(tangent: Any, primal: Any) -> Tensor:
    t = tangent if isinstance(tangent, Tensor) else Tensor(np.asarray(tangent, raw(primal).dtype))
    if t.shape != raw(primal).shape:
        raise ValueError(f"a tangent has shape {t.shape}, expected {raw(primal).shape}")
    return t


def jacrev(f: Function, argnums: int = 0) -> Function:
    """The Jacobian, output shape + input shape, one vjp per output element (for functions with few outputs)."""

    def jacobian(*xs: Any) -> Tensor:
        y, pull = vjp(_at(f, argnums, xs), xs[argnums])
        basis = xp(y.data).eye(y.size, dtype=y.dtype).reshape(y.size, *y.shape)
        return _stack([pull(Tensor(b))[0] for b in basis], 0, y.shape, raw(xs[argnums]).shape)

    return jacobian


def jacfwd(f: Function, argnums: int = 0) -> Function:
    """The Jacobian, output shape + input shape, one jvp per input element (for functions with few inputs)."""

    def jacobian(*xs: Any) -> Tensor:
        x = raw(xs[argnums])
        part = _at(f, argnums, xs)
        basis = xp(x).eye(x.size, dtype=x.dtype).reshape(x.size, *x.shape)
        columns = [jvp(part, (xs[argnums],), (Tensor(b),))[1] for b in basis]
        shape = columns[0].shape if columns else part(xs[argnums]).shape
        return _stack(columns, -1, shape, x.shape)

    return jacobian


def _at(f: Function, argnum: int, xs: tuple[Any, ...]) -> Function:
    return lambda x: f(*(x if i == argnum % len(xs) else other for i, other in enumerate(xs)))


def _stack(parts: list[Any], axis: int, y_shape: tuple[int, ...], x_shape: tuple[int, ...]) -> Tensor:
    if not parts:
        return Tensor(np.zeros((*y_shape, *x_shape)))
    stacked = OPS["entrenar:stack_"](*parts, axis=axis)  # by name: stack and reshape are declared a floor above
    return OPS["entrenar:reshape"](stacked, (*y_shape, *x_shape))


def hessian(f: Function, argnums: int = 0) -> Function:
    """Second derivatives of a scalar-valued f, input shape twice."""
    return jacrev(grad(f, argnums), argnums)


def hvp(f: Function, primals: Sequence[Any], vectors: Sequence[Any]) -> tuple[Any, Any]:
    """(gradient, H v) of a scalar-valued f without forming H: the vjp of the gradient (H is symmetric)."""
    numbers = tuple(range(len(primals)))
    g, pull = vjp(grad(f, numbers), *primals)
    gs, _ = flatten(g)
    vs = tuple(_as(v, p) for v, p in zip(flatten(tuple(vectors))[0], gs, strict=True))
    hv = pull(*vs) if len(vs) > 1 else pull(vs[0])
    return (g, hv) if len(primals) > 1 else (g[0], hv[0])


def _check_floats(leaves: Iterable[Any], what: str) -> None:
    for leaf in leaves:
        if not hasattr(leaf, "dtype"):
            raise TypeError(f"{what}: expected tensors or arrays (or lists, tuples, dicts of them), got {leaf!r:.60}")


def _shape(y: Any) -> str:
    return f"shape {y.shape}" if isinstance(y, Tensor) else type(y).__name__


__all__ = ["grad", "hessian", "hvp", "jacfwd", "jacrev", "jvp", "pullback_of", "value_and_grad", "vjp"]

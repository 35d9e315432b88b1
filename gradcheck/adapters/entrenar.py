"""entrenar: declared ops with their own samples and surrogate, and any function of Tensors."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from ..arrays import Array, Arrays, is_float
from ..function import (
    Case,
    Differentiable,
    Edge,
    Pullback,
    Subject,
    cotangent_names,
    input_names,
    name_of,
    pulled_forward,
)
from .entrenar_rules import added_gradients, has_rules, raw_gradients

Raw: TypeAlias = Callable[[Arrays, Arrays], list[Array | None]]


def is_op(target: Any) -> bool:
    """True for what ``@primitive`` and ``@fused`` return."""
    op = getattr(target, "op", None)
    return op is not None and hasattr(op, "samples") and hasattr(op, "inputs")


def subject(target: Any, arrays: tuple[Any, ...], *, order: int, seed: int) -> Subject:
    """An op at its own samples or at given arrays, or a function of Tensors at given arrays.

    Raises TypeError for an op without samples when no arrays are given.
    """
    if not is_op(target):
        call, signature = (target.apply, target.forward) if hasattr(target, "apply") else (target, target)
        names = [n for n in input_names(signature, len(arrays) + 1) if n != "ctx"]
        return Subject(name_of(target), (case(name_of(target), call, arrays, {}, names, order=order),))
    op = target.op
    if not op.differentiable:
        return Subject(op.key, (), (f"{op.name} has no derivative: nothing to check",))
    if arrays:
        return Subject(op.key, tuple(_op_cases(target, arrays, {}, order=order)))
    if op.samples is None:
        raise TypeError(f"{op.key} declares no samples: pass arrays, check(op, a, b), or declare samples=")
    # Each op draws from a stream of its own, so that its samples do not depend on what else is checked.
    rng = np.random.default_rng([seed, zlib.crc32(op.key.encode())])
    cases = []
    for sample in op.samples(rng):
        to = min(order, op.order) if sample.second else 1
        cases += _op_cases(target, sample.args, sample.kwargs, order=to, label=sample.label, sample=sample)
    return Subject(op.key, tuple(cases))


def _op_cases(
    target: Any, args: tuple[Any, ...], keywords: dict[str, Any], *, order: int, label: str = "", sample: Any = None
) -> list[Case]:
    """One call of an op; where it has ``into``, the gradients from that are a second case."""
    op = target.op
    names, fixed = _names(target, len(args)), _fixed(target, len(args))
    made = case(op.name, target, args, keywords, names, fixed, order=order, label=label, surrogate=op.surrogate)
    if sample is not None and not (sample.value is None and sample.grads is None):
        return [Case(made.function, made.arrays, label, 1, _edge(sample, args, fixed))]
    return [made, _added_case(target, made, args, keywords)] if op.into else [made]


def _names(target: Any, count: int) -> list[str]:
    """What an op's first ``count`` inputs are called."""
    return list(target.op.inputs) if target.op.variadic and count == 1 else list(input_names(target, count))


def _fixed(target: Any, count: int) -> frozenset[int]:
    """The positions of the inputs without a gradient."""
    return frozenset(i for i, x in enumerate(_names(target, count)) if x.partition("[")[0] in target.op.nondiff)


def _added_case(target: Any, made: Case, args: Sequence[Any], keywords: dict[str, Any]) -> Case:
    """The same call, its gradients from what ``into`` adds."""
    values = [_plain(a) for a in args]
    moved = _moved(values, _fixed(target, len(values)))
    raw = _by_rules(added_gradients, target.op, values, keywords, moved)

    def linearize(*arrays: Array) -> Pullback:
        return lambda cotangents: raw(arrays, cotangents)

    label = f"{made.label}, added by `into` to what is there".removeprefix(", ")
    return Case(replace(made.function, linearize=linearize, second=None), made.arrays, label)


def _edge(sample: Any, args: tuple[Any, ...], fixed: frozenset[int]) -> Edge:
    """The values agreed for an edge point, one gradient per differentiable input."""
    several = isinstance(sample.value, tuple | list)
    value = (
        None if sample.value is None else tuple(np.asarray(v) for v in (sample.value if several else (sample.value,)))
    )
    cotangent = sample.cotangent
    if cotangent is not None:
        cotangent = tuple(np.asarray(g) for g in (cotangent if isinstance(cotangent, tuple | list) else (cotangent,)))
    if sample.grads is None:
        return Edge(cotangent, value, None)
    grads = sample.grads
    if len(grads) == len(args):
        grads = tuple(grads[i] for i in _moved(args, fixed))
    return Edge(cotangent, value, tuple(None if g is None else np.asarray(g) for g in grads))


def _moved(args: Sequence[Any], fixed: frozenset[int]) -> list[int]:
    return [i for i, a in enumerate(args) if isinstance(a, np.ndarray) and is_float(a.dtype) and i not in fixed]


def case(
    name: str,
    call: Any,
    args: Sequence[Any],
    keywords: dict[str, Any],
    names: Sequence[str],
    fixed: frozenset[int] = frozenset(),
    *,
    order: int,
    label: str = "",
    surrogate: Any = None,
) -> Case:
    """One call: its float arrays become the inputs, everything else stays as it is."""
    values = [_plain(a) for a in args]
    moved = _moved(values, fixed)
    if not moved:
        raise TypeError(f"{name}: none of the {len(values)} arguments is a float array")

    def bound(f: Any) -> Callable[..., Any]:
        def run(*floats: Any) -> Any:
            full = list(values)
            for i, x in zip(moved, floats, strict=True):
                full[i] = x
            return f(*full, **keywords)

        return run

    found = tuple(names[i] if i < len(names) else f"x{i}" for i in moved)
    known = is_op(call) and has_rules(call.op)
    raw = _by_rules(raw_gradients, call.op, values, keywords, moved) if known else None
    function = differentiable(name, bound(call), found, bound(surrogate or call), raw)
    # Inputs of one sample may be views of one array; the numeric side moves them one by one.
    arrays: list[Array] = []
    for i in moved:
        shared = any(np.shares_memory(values[i], other) for other in arrays)
        arrays.append(values[i].copy() if shared and label else values[i])
    return Case(function, tuple(arrays), label, order)


def _by_rules(how: Callable[..., Any], op: Any, values: Sequence[Any], keywords: Any, moved: Sequence[int]) -> Raw:
    """Gradients from the pullbacks themselves: ``how`` with everything given but the floats and the cotangents."""

    def raw(floats: Arrays, cotangents: Arrays) -> list[Array | None]:
        full = list(values)
        for i, x in zip(moved, floats, strict=True):
            full[i] = x
        return list(how(op, full, keywords, moved, cotangents))

    return raw


def _plain(value: Any) -> Any:
    """A Tensor's array; a list of numbers or a float as an array; anything else as it is."""
    data = getattr(value, "data", None)
    if type(value).__module__.partition(".")[0] == "entrenar" and isinstance(data, np.ndarray):
        return data
    return value


def differentiable(name: str, call: Any, names: tuple[str, ...], meant: Any, raw: Raw | None = None) -> Differentiable:
    """A function of Tensors as gradcheck sees functions; ``meant`` is the one whose derivative it should have."""
    from entrenar import Tensor, no_grad

    def forward(*arrays: Array) -> Arrays:
        with no_grad():
            return _floats(meant(*(Tensor(a) for a in arrays)), name)

    def linearize(*arrays: Array) -> Pullback:
        xs = [Tensor(a, requires_grad=True) for a in arrays]
        ys = _float_tensors(call(*xs), name)

        def pullback(cotangents: Arrays) -> Sequence[Array | None]:
            try:
                return _arrays(_pulled(ys, xs, [Tensor(g) for g in cotangents], create_graph=False))
            except (ValueError, TypeError):  # a gradient that doesn't fit: look at it, if that can be had
                if raw is None:
                    raise
                return raw(arrays, cotangents)

        return pullback

    def second(outputs: Arrays) -> Differentiable:
        count = len(outputs)

        def linearize_vjp(*arrays: Array) -> Pullback:
            gs = [Tensor(a, requires_grad=True) for a in arrays[:count]]
            xs = [Tensor(a, requires_grad=True) for a in arrays[count:]]
            found = _pulled(_float_tensors(call(*xs), name), xs, gs, create_graph=True)
            grads = [Tensor(np.zeros(x.shape, x.dtype)) if g is None else g for g, x in zip(found, xs, strict=True)]
            return lambda cs: _arrays(_pulled(grads, [*gs, *xs], [Tensor(c) for c in cs], create_graph=False))

        return Differentiable(
            f"{name}, vjp", pulled_forward(made, count), linearize_vjp, (*cotangent_names(count), *names)
        )

    made = Differentiable(name, forward, linearize, names, second)
    return made


def _float_tensors(result: Any, name: str) -> list[Any]:
    outputs = result if isinstance(result, tuple | list) else (result,)
    kept = [y for y in outputs if y is not None and is_float(np.dtype(y.dtype))]
    if not kept:
        raise TypeError(f"{name} returns no float tensor: only floats have a gradient")
    return kept


def _floats(result: Any, name: str) -> Arrays:
    return tuple(np.asarray(y.data if hasattr(y, "tracked") else y) for y in _float_tensors(result, name))


def _pulled(ys: Sequence[Any], xs: Sequence[Any], gs: Sequence[Any], *, create_graph: bool) -> Sequence[Any]:
    """The gradients of the outputs that are tracked; None for all inputs if none is."""
    from entrenar import grad

    tracked = [(y, g) for y, g in zip(ys, gs, strict=True) if getattr(y, "requires_grad", False)]
    if not tracked:
        return [None] * len(xs)
    return grad(
        [y for y, _ in tracked],
        list(xs),
        [g for _, g in tracked],
        retain_graph=True,
        create_graph=create_graph,
        allow_unused=True,
    )


def _arrays(gradients: Sequence[Any]) -> list[Array | None]:
    return [None if g is None else np.asarray(g.data) for g in gradients]


# the sweep's view ------------------------------------------------------------------------------------------------
def ops() -> dict[str, Any]:
    """Every declared op of entrenar by key."""
    import entrenar  # noqa: F401 - importing the package declares the ops
    from entrenar.autograd import OPS

    return dict(sorted(OPS.items()))


def backends() -> tuple[str, ...]:
    """The names of the known backends."""
    from entrenar.kernels import BACKENDS

    return tuple(BACKENDS)


def using(backend: str) -> AbstractContextManager[Any]:
    """Run the body with the kernels of one backend only.  Raises ValueError for an unknown one."""
    import entrenar

    return entrenar.backend(backend)


def kernels_of(key: str) -> set[tuple[str, str]]:
    """The CPU kernels of an op and of its derivatives, each as (key, backend)."""
    from entrenar.kernels import BACKENDS, KERNELS, find

    find(key, "no device", None, (), {})  # a backend is loaded on first demand
    keys = [k for k in KERNELS if k == key or k.startswith(f"{key}.")]
    return {(k, kernel.backend) for k in keys for kernel in KERNELS[k] if BACKENDS[kernel.backend].device == "cpu"}


def served(kernels: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """Those of ``kernels`` that have run so far in this process."""
    from entrenar.kernels import SERVED

    return {(key, backend) for key, backend in kernels if backend in SERVED.get(key, ())}

"""What generated calls and pullbacks fall back on when it is not the common case: scalars, lists, tuples, kernels."""

from __future__ import annotations

from sys import getrefcount
from typing import Any

import numpy as np

from ..array import FLOAT64, Array, as_array, default_dtype, device_of, is_float, nearest
from ..kernels import find, pool
from .modes import mode, scope
from .tape import Meta, Node, next_seq
from .tensor import Tensor, at_edge, edge_of, raw, settle


def rename(op: Any, extra: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """Keywords after PyTorch's names are read as NumPy's (dim, keepdim); anything else unknown is a TypeError."""
    for alias, value in extra.items():
        name = {"dim": "axis", "keepdim": "keepdims"}.get(alias, "")
        if name not in given:
            raise TypeError(f"{op.name}() got an unknown keyword {alias}={value!r}.{nearest(alias, given)}")
        if name in op.defaults and given[name] is not op.defaults[name]:
            raise TypeError(f"{op.name}() got both {name}={given[name]!r} and {alias}={value!r}")
        given = {**given, name: value}
    return given


def plain(op: Any, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    """An op on no Tensor at all: lists become arrays; Python numbers stay weak next to an array."""
    scalar = (bool, int, float)
    weak = any(hasattr(a, "dtype") for a in args)
    values = tuple(
        a
        if a is None or (hasattr(a, "dtype") and not isinstance(a, np.generic)) or (weak and isinstance(a, scalar))
        else as_array(a)
        for a in args
    )
    return dispatch(op, values, keywords)


def coerce(op: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arrays of mixed arguments.  A Python number takes the dtype of what it meets (never changes a float's)."""
    values: list[Any] = []
    scalars = []
    for i, a in enumerate(args):
        if isinstance(a, Tensor):
            values.append(a.data)
        elif a is None and op.signature.parameters[op.inputs[i]].default is None:
            values.append(None)
        elif a.__class__ in (bool, int, float):
            values.append(a)
            scalars.append(i)
        else:
            values.append(_array(op, op.inputs[i], a))
    if scalars:
        met = [
            v.dtype
            for i, v in enumerate(values)
            if i not in scalars and v is not None and op.inputs[i] not in op.nondiff
        ]
        kinds = [type(args[i]) for i in scalars]
        if op.broadcasts and met:
            anchor = np.result_type(*met)
            if float in kinds and not is_float(anchor):
                anchor = default_dtype()
                values = [
                    v.astype(anchor) if hasattr(v, "dtype") and op.inputs[i] not in op.nondiff else v
                    for i, v in enumerate(values)
                ]
            elif anchor.kind == "b" and int in kinds:
                anchor = np.dtype(np.int64)
            for i in scalars:
                values[i] = np.asarray(values[i], anchor)
        else:
            for i in scalars:
                values[i] = as_array(values[i])
    return tuple(values)


def _array(op: Any, name: str, value: Any) -> Array:
    try:
        return as_array(value)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{op.name}: input {name!r} is {value!r:.80}: {error}") from None


def unwrap(op: Any, xs: tuple[Any, ...]) -> tuple[tuple[Any, ...], bool]:
    """(arrays, whether there was a Tensor) of the inputs of a variadic op."""
    return tuple(x.data if isinstance(x, Tensor) else _array(op, op.inputs[0], x) for x in xs), any(
        isinstance(x, Tensor) for x in xs
    )


def edge(x: Any) -> Any:
    """The edge of anything: None for what is no Tensor."""
    return edge_of(x) if isinstance(x, Tensor) else None


def explain(op: Any, error: Exception, values: tuple[Any, ...]) -> None:
    """Add to an error of a forward, which may be NumPy's, which op it was and what it got."""
    shown = (f"{n} {v.dtype} {v.shape}" for n, v in zip(op.inputs, values, strict=False) if hasattr(v, "dtype"))
    error.add_note(f"in {op.name}({', '.join(shown)})")


def dispatch(op: Any, values: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    """The forward of a primitive by the kernel that takes these arrays, or the portable one."""
    found = find(op.key, _device(values), mode().backend, values, keywords)
    return (found.run if found else op.forward)(*values, **keywords)


def _device(values: tuple[Any, ...]) -> str:
    return "cuda" if any(device_of(v) != "cpu" for v in values if hasattr(v, "dtype")) else "cpu"


def cast_low(op: Any, args: tuple[Any, ...]) -> Any:
    """Inputs of a product under autocast: float tensors and arrays in the autocast dtype (recorded)."""
    from .linear import cast

    low = mode().autocast
    cast_args = tuple(
        cast(a, dtype=low) if hasattr(a, "dtype") and is_float(a.dtype) and a.dtype != low and a.dtype != FLOAT64 else a
        for a in args
    )
    return cast_args


# outputs ------------------------------------------------------------------------------------------------------
class _Item:
    """The pseudo-op of one output of a tuple: puts its cotangent in its slot of the parent's tuple."""

    name, key, saved_names, keywords = "item", "entrenar:item", ("index",), ()
    inputs, nondiff, broadcasts, promotes = ("tuple",), (), False, False

    def pull(self, node: Node, parents: tuple[Any, ...], g: Any, cot: dict[Any, Any]) -> None:
        slots = cot.setdefault(parents[0], [None] * len(parents[0].shape))
        slots[node.saved[0]] = g  # type: ignore[index]

    pull_graph = pull


ITEM = _Item()


def item_node(parent: Node, index: int) -> Node:
    """A node for output ``index`` of an op that returned a tuple."""
    node = Node()
    node.op, node.seq, node.scope, node.parents = ITEM, next_seq(), parent.scope, (parent,)
    node.saved, node.keywords, node.shape, node.dtype = (index,), (), parent.shape[index], parent.dtype[index]
    return node


def outputs(node: Node, ys: tuple[Any, ...]) -> tuple[Tensor, ...]:
    """The output tensors of an op that returned a tuple; integer outputs carry no gradient."""
    node.shape, node.dtype = tuple(y.shape for y in ys), tuple(y.dtype for y in ys)
    return tuple(at_edge(y, item_node(node, i) if is_float(y.dtype) else None) for i, y in enumerate(ys))


def untracked(ys: tuple[Any, ...]) -> tuple[Tensor, ...]:
    """The output tensors of an op that was not recorded."""
    return tuple(at_edge(y, None) for y in ys)


# cotangents ---------------------------------------------------------------------------------------------------
def fit(d: Any, p: Any, op: Any, name: str) -> Any:
    """The cotangent ``d`` as edge ``p`` wants it: summed back and cast back if the op says so, else an error."""
    from .linear import cast, sum_to

    if d is None:
        raise TypeError(f"the pullback of {op.name} for {name!r} returned None: expected an array of shape {p.shape}")
    if not isinstance(d, Tensor):
        d = settle(d)
    if d.shape != p.shape:
        if not op.broadcasts:
            raise ValueError(
                f"the pullback of {op.name} for {name!r} returned shape {d.shape}, expected {p.shape}"
                + (": only an op declared with broadcasts=True is summed back" if d.ndim >= len(p.shape) else "")
            )
        d = sum_to(d, shape=p.shape)
        if d.__class__ is not Tensor:
            d = settle(d)
    if d.dtype != p.dtype:
        if not op.promotes:
            raise TypeError(f"the pullback of {op.name} for {name!r} returned dtype {d.dtype}, expected {p.dtype}")
        d = cast(d, dtype=p.dtype)
    return d


def fit_array(d: Any, p: Any, op: Any, name: str) -> Any:
    """``fit`` for a first derivative: a pullback that computed with Tensors of its own is unwrapped."""
    return fit(raw(d), p, op, name)


def sole(q: Any, known: int = 2) -> bool:
    """Whether a cotangent may be written to: large, and nobody has it besides the ``known`` (its edge, the caller)."""
    return (
        q.size >= pool.WORTHWHILE
        and q.__class__ is np.ndarray
        and q.base is None
        and getrefcount(q) == known + 2  # the parameter, the question
        and q.flags.carray
    )


def added(q: Any, d: Any) -> Any:
    """Two cotangents of one edge added up: in the memory of the first if it is large and nobody else has it."""
    if (
        sole(q, 3)  # the cotangents by edge, the caller, the parameter
        and d.__class__ is np.ndarray
        and d.flags.c_contiguous
        and q.dtype == d.dtype
        and q.shape == d.shape
    ):
        pool.add_to(q.reshape(-1), d.reshape(-1))
        return q
    return q + d


def deposit_all(op: Any, ds: Any, node: Node, parents: tuple[Any, ...], cot: dict[Any, Any]) -> None:
    """Add what a joint pullback returned (one cotangent, or None, per input) to the cotangents by edge."""
    if not isinstance(ds, (tuple, list)) or len(ds) != len(parents):
        got = len(ds) if isinstance(ds, (tuple, list)) else type(ds).__name__
        raise TypeError(f"the pullback of {op.name} must return a tuple of {len(parents)} cotangents, got {got}")
    for i, (d, p) in enumerate(zip(ds, parents, strict=True)):
        if p is not None:
            d = owned(fit(d, p, op, op.inputs[0] + f"[{i}]" if op.variadic else op.inputs[i]), node)
            q = cot.get(p)
            cot[p] = d if q is None else added(q, d)


def owned(d: Any, node: Node) -> Any:
    """A copy of ``d`` if a pullback returned an array that the node saved: gradients never share memory with data."""
    if isinstance(d, np.ndarray) and any(d is s or d.base is s for s in node.saved or () if isinstance(s, np.ndarray)):
        return d.copy()
    return d


def pull_graph(op: Any, node: Node, parents: tuple[Any, ...], g: Any, cot: dict[Any, Any]) -> None:
    """The pullback of a primitive on Tensors, so that it is itself recorded: any order of derivative."""
    env: dict[str, Any] = dict(zip(op.keywords, node.keywords, strict=True))
    for name, value in zip(op.saved_names, node.saved or (), strict=True):
        if name == "y":
            many = isinstance(value, tuple)
            env["y"] = (
                tuple(at_edge(v, item_node(node, i)) for i, v in enumerate(value))
                if many
                else None
                if value is None
                else at_edge(value, node)
            )
        elif name.endswith("_meta"):
            env[name] = None if value is None else tuple(Meta(*m) for m in value) if op.variadic else Meta(*value)
        elif op.variadic:
            env[name] = tuple(at_edge(v, p) for v, p in zip(value, node.parents, strict=True))
        elif value is None or name in op.nondiff:
            env[name] = value
        else:
            env[name] = at_edge(value, node.parents[op.inputs.index(name)])
    env["g"] = g
    env["needs"] = tuple(p is not None for p in parents)
    if op.joint or op.variadic:
        rule, names = op.joint or next(iter(op.rules.values()))
        deposit_all(op, rule(*(env[n] for n in names)), node, parents, cot)
        return
    for x, (rule, names) in op.rules.items():
        p = parents[op.inputs.index(x)]
        if p is not None:
            d = fit(rule(*(env[n] for n in names)), p, op, x)
            q = cot.get(p)
            cot[p] = d if q is None else q + d


# fused --------------------------------------------------------------------------------------------------------
def fused_inline(op: Any, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    """A fused op without a kernel: its composite, recorded op by op under one scope."""
    if any(isinstance(a, Tensor) for a in args):
        with scope(op.name):
            return op.forward(*args, **keywords)
    return op.forward(*(as_array(a) if isinstance(a, (list, float, int)) else a for a in args), **keywords)


def fused_kernel(op: Any, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    """A fused op that has kernels: one node if a kernel takes the arrays, else the composite."""
    values = tuple(raw(a) if a is None or hasattr(a, "dtype") else as_array(a) for a in args)
    found = find(op.key, _device(values), mode().backend, values, keywords)
    if found is None:
        return fused_inline(op, args, keywords)
    return op.run_kernel(found, args, values, keywords)

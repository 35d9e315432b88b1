"""What the pullbacks of a declared op return by themselves.

The engine refuses a gradient of the wrong shape or dtype with an error.  A gradient checker wants to look at it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..arrays import Array, Arrays, is_float


def has_rules(op: Any) -> bool:
    """True for a primitive with pullbacks of its own, one per input or a joint one."""
    return bool(getattr(op, "rules", None) or getattr(op, "joint", None))


def raw_gradients(
    op: Any, args: Sequence[Any], keywords: Mapping[str, Any], moved: Sequence[int], cotangents: Arrays
) -> list[Array | None]:
    """The gradients of the arguments at positions ``moved``, as the op's pullbacks return them."""
    env = _environment(op, args, keywords, moved, cotangents)
    if op.joint or op.variadic:
        rule, names = op.joint or next(iter(op.rules.values()))
        found = rule(*(env[n] for n in names))
        return [_array(found[i]) for i in moved]
    return [_pulled(op.rules[x], env) for x in _names(op, moved)]


def added_gradients(
    op: Any, args: Sequence[Any], keywords: Mapping[str, Any], moved: Sequence[int], cotangents: Arrays
) -> list[Array | None]:
    """The same from what ``into`` adds to an array that is not zero, for the inputs that have it and calls it takes."""
    env = _environment(op, args, keywords, moved, cotangents)
    found = []
    for i, x in zip(moved, _names(op, moved), strict=True):
        there = np.linspace(1, 2, np.size(args[i]), dtype=args[i].dtype).reshape(np.shape(args[i]))
        total = there.copy()
        rule, names = op.into.get(x, (None, ()))
        taken = rule is not None and rule(total, *(env[n] for n in names))
        found.append(total - there if taken else _pulled(op.rules[x], env))
    return found


def _names(op: Any, positions: Sequence[int]) -> list[str]:
    parameters = list(op.signature.parameters)
    return [parameters[i] for i in positions]


def _pulled(entry: Any, env: Mapping[str, Any]) -> Array | None:
    rule, names = entry
    return _array(rule(*(env[n] for n in names)))


def _environment(
    op: Any, args: Sequence[Any], keywords: Mapping[str, Any], moved: Sequence[int], cotangents: Arrays
) -> dict[str, Any]:
    """What pullbacks may ask for, by name."""
    inputs = {op.inputs[0]: tuple(args)} if op.variadic else dict(zip(op.inputs, args, strict=False))
    named = dict(zip(op.signature.parameters, args, strict=False))
    given = {name: value for name, value in named.items() if name in op.keywords}
    metas = {f"{name}_meta": _meta(value) for name, value in inputs.items()}
    y = op.call(*args, **keywords)
    needs = tuple(i in moved for i in range(len(args)))
    passed = {**op.defaults, **given, **keywords, **inputs, **metas}
    return {**passed, "y": y, "g": _cotangent(y, cotangents), "needs": needs}


def _meta(value: Any) -> Any:
    """The shape and dtype of an input, as the engine hands them to a pullback."""
    from entrenar.autograd.tape import Meta

    if isinstance(value, tuple):
        return tuple(_meta(v) for v in value)
    return None if value is None else Meta(np.asarray(value).shape, np.asarray(value).dtype)


def _cotangent(result: Any, cotangents: Arrays) -> Any:
    """The cotangents in the form of the result: None for outputs without a gradient."""
    if not isinstance(result, tuple):
        return cotangents[0]
    given = iter(cotangents)
    return [next(given) if is_float(np.asarray(y).dtype) else None for y in result]


def _array(gradient: Any) -> Array | None:
    """A gradient as an array, whether the pullback computed with arrays or with tensors."""
    return None if gradient is None else np.array(gradient.data if hasattr(gradient, "tracked") else gradient)

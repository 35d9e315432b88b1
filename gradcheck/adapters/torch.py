"""PyTorch functions, and ``autograd.Function`` subclasses through their ``apply``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..arrays import Array, Arrays, is_float
from ..function import (
    Case,
    Differentiable,
    Pullback,
    Subject,
    cotangent_names,
    input_names,
    name_of,
    pulled_forward,
)


def subject(target: Any, arrays: tuple[Any, ...], *, order: int, seed: int) -> Subject:
    """A PyTorch function at arrays or tensors; those that are not floats are passed along unmoved."""
    import torch

    custom = isinstance(target, type)
    if custom and not issubclass(target, torch.autograd.Function):
        raise TypeError(f"{target.__name__} is a class, but no torch.autograd.Function")
    call = target.apply if custom else target
    given = tuple(a.detach().cpu().numpy() if isinstance(a, torch.Tensor) else np.asarray(a) for a in arrays)
    names = [n for n in input_names(target.forward if custom else target, len(given) + custom) if n != "ctx"]
    moved = [i for i, a in enumerate(given) if is_float(a.dtype)]
    if not moved:
        raise TypeError(f"{name_of(target)}: none of the {len(given)} arrays is float or complex")
    bound = _Bound(call, given, moved)
    found = tuple((names + [f"x{i}" for i in range(len(given))])[i] for i in moved)
    function = differentiable(name_of(target), bound, found)
    return Subject(name_of(target), (Case(function, tuple(given[i] for i in moved), order=order),))


class _Bound:
    """A function with its integer inputs in place: tensors in, float tensors out."""

    def __init__(self, call: Any, given: Arrays, moved: list[int]) -> None:
        self.call, self.given, self.moved = call, given, moved

    def __call__(self, *floats: Any) -> tuple[Any, ...]:
        import torch

        full: list[Any] = [None if i in self.moved else torch.from_numpy(np.array(a)) for i, a in enumerate(self.given)]
        for i, t in zip(self.moved, floats, strict=True):
            full[i] = t
        result = self.call(*full)
        outputs = result if isinstance(result, tuple | list) else (result,)
        kept = tuple(y for y in outputs if y.is_floating_point() or y.is_complex())
        if not kept:
            raise TypeError("only float and complex outputs have a gradient, and there are none")
        return kept


def differentiable(name: str, call: Any, names: tuple[str, ...]) -> Differentiable:
    """A function of tensors as gradcheck sees functions."""
    import torch

    def forward(*arrays: Array) -> Arrays:
        with torch.no_grad():
            return tuple(_array(y) for y in call(*(tensor(a) for a in arrays)))

    def linearize(*arrays: Array) -> Pullback:
        xs = [tensor(a).requires_grad_() for a in arrays]
        ys = call(*xs)
        return lambda cotangents: _gradients(ys, xs, [tensor(g) for g in cotangents])

    def second(outputs: Arrays) -> Differentiable:
        count = len(outputs)

        def linearize_vjp(*arrays: Array) -> Pullback:
            gs = [tensor(a).requires_grad_() for a in arrays[:count]]
            xs = [tensor(a).requires_grad_() for a in arrays[count:]]
            found = _pulled(call(*xs), xs, gs, create_graph=True)
            grads = [torch.zeros_like(x) if g is None else g for g, x in zip(found, xs, strict=True)]
            return lambda cotangents: _gradients(grads, [*gs, *xs], [tensor(c) for c in cotangents])

        forward_vjp = pulled_forward(made, count)
        return Differentiable(f"{name}, vjp", forward_vjp, linearize_vjp, (*cotangent_names(count), *names))

    made = Differentiable(name, forward, linearize, names, second)
    return made


def tensor(array: Array) -> Any:
    """The array's memory as a tensor where PyTorch can see it so; a copy for negative strides and read-only memory."""
    import torch

    plain = all(stride >= 0 for stride in array.strides) and array.flags.writeable
    return torch.from_numpy(array if plain else array.copy())


def _array(t: Any) -> Array:
    return np.asarray(t.detach().resolve_conj().resolve_neg().cpu().numpy())


def _pulled(ys: Sequence[Any], xs: Sequence[Any], gs: Sequence[Any], *, create_graph: bool) -> Sequence[Any]:
    """The gradients of the outputs that are tracked; None for all inputs if none is."""
    import torch

    tracked = [(y, g) for y, g in zip(ys, gs, strict=True) if y.requires_grad]
    if not tracked:
        return [None] * len(xs)
    return torch.autograd.grad(
        [y for y, _ in tracked],
        xs,
        [g for _, g in tracked],
        retain_graph=True,
        create_graph=create_graph,
        allow_unused=True,
    )


def _gradients(ys: Sequence[Any], xs: Sequence[Any], gs: Sequence[Any]) -> list[Array | None]:
    return [None if g is None else _array(g) for g in _pulled(ys, xs, gs, create_graph=False)]

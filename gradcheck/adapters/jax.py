"""JAX functions and ``custom_vjp`` functions, in 64 bits whatever the session's setting.

JAX pairs cotangents and outputs without a conjugate, Re(sum(g * y)); gradcheck with one, Re(sum(conj(g) * y)).  For
complex arrays the two differ by conjugating the cotangent on the way in and the gradient on the way out.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, cast

import numpy as np

from ..arrays import Array, Arrays, is_float
from ..function import (
    Case,
    Differentiable,
    Pullback,
    Subject,
    as_outputs,
    cotangent_names,
    floats_of,
    input_names,
    name_of,
    pulled_forward,
)


def subject(target: Any, arrays: tuple[Any, ...], *, order: int, seed: int) -> Subject:
    """A JAX function at arrays; those that are not floats are passed along unmoved."""
    given = tuple(np.asarray(a) for a in arrays)
    moved = [i for i, a in enumerate(given) if is_float(a.dtype)]
    if not moved:
        raise TypeError(f"{name_of(target)}: none of the {len(given)} arrays is float or complex")

    def bound(*floats: Any) -> tuple[Any, ...]:
        full: list[Any] = list(given)
        for i, x in zip(moved, floats, strict=True):
            full[i] = x
        result = target(*full)
        outputs = tuple(result) if isinstance(result, tuple | list) else (result,)
        return tuple(y for y in outputs if is_float(np.dtype(y.dtype)))

    names = input_names(target, len(given))
    function = differentiable(name_of(target), bound, tuple(names[i] for i in moved))
    return Subject(name_of(target), (Case(function, tuple(given[i] for i in moved), order=order),))


def differentiable(name: str, call: Any, names: tuple[str, ...]) -> Differentiable:
    """A function of JAX arrays as gradcheck sees functions."""
    import jax
    import jax.numpy as jnp

    def wide() -> AbstractContextManager[Any]:
        """64 bits in the body; older versions of JAX keep this among the experiments."""
        if hasattr(jax, "enable_x64"):
            return cast("AbstractContextManager[Any]", jax.enable_x64(True))
        from jax.experimental import enable_x64

        return cast("AbstractContextManager[Any]", enable_x64())

    def forward(*arrays: Array) -> Arrays:
        with wide():
            outputs, _ = as_outputs(call(*(jnp.asarray(a) for a in arrays)))
            return floats_of(outputs, name)

    def pull(*arguments: Any) -> tuple[Any, ...]:
        count = len(arguments) - len(names)
        gs, xs = arguments[:count], arguments[count:]
        _, pullback = jax.vjp(call, *xs)
        return tuple(jnp.conj(g) for g in pullback(tuple(jnp.conj(g) for g in gs)))

    def linearize(*arrays: Array) -> Pullback:
        def pullback(cotangents: Arrays) -> list[Array]:
            with wide():
                return [np.asarray(g) for g in pull(*(jnp.asarray(a) for a in (*cotangents, *arrays)))]

        return pullback

    def second(outputs: Arrays) -> Differentiable:
        count = len(outputs)
        vjp = differentiable(f"{name}, vjp", pull, (*cotangent_names(count), *names))
        return Differentiable(vjp.name, pulled_forward(made, count), vjp.linearize, vjp.inputs)

    made = Differentiable(name, forward, linearize, names, second)
    return made

"""Per-thread (per-context) modes: grad, backend, autocast, scope, anomaly.  One context variable holds them all."""

from __future__ import annotations

from contextlib import ContextDecorator
from contextvars import ContextVar, Token
from typing import Any, Final

from ..array import DType, as_dtype, is_float, nearest
from ..kernels import BACKENDS


class Mode:
    """An immutable set of modes; ``with_`` makes a changed copy."""

    __slots__ = ("anomaly", "autocast", "backend", "grad", "scope")

    def __init__(
        self,
        grad: bool = True,
        backend: str | None = None,
        autocast: DType | None = None,
        scope: str = "",
        anomaly: Any = None,
    ) -> None:
        self.grad, self.backend, self.autocast, self.scope, self.anomaly = grad, backend, autocast, scope, anomaly

    def with_(self, **changes: Any) -> Mode:
        return Mode(**{name: changes.get(name, getattr(self, name)) for name in Mode.__slots__})


_MODE: Final[ContextVar[Mode]] = ContextVar("entrenar modes", default=Mode())  # noqa: B039 - Mode is never mutated
mode = _MODE.get  # a builtin method: the cheapest way for a generated call to ask


class Changed(ContextDecorator):
    """Context manager and decorator that runs its body under changed modes; may be entered again while entered."""

    def __init__(self, **changes: Any) -> None:
        self._changes = changes
        self._tokens: list[Token[Mode]] = []

    def _recreate_cm(self) -> Changed:  # a decorated function may run in several threads: one manager per call
        return Changed(**self._changes)

    def __enter__(self) -> Changed:
        self._tokens.append(_MODE.set(mode().with_(**self._changes)))
        return self

    def __exit__(self, *_: object) -> None:
        _MODE.reset(self._tokens.pop())


def restored(saved: Mode) -> Changed:
    """Run the body under the modes of ``saved``, whatever they are now."""
    return Changed(**{name: getattr(saved, name) for name in Mode.__slots__})


def no_grad() -> Changed:
    """Record nothing in the body; works as ``with no_grad():`` and as ``@no_grad()``."""
    return Changed(grad=False)


def enable_grad() -> Changed:
    """Record again, inside a ``no_grad`` body."""
    return Changed(grad=True)


def set_grad_enabled(enabled: bool) -> Changed:
    """``enable_grad()`` or ``no_grad()`` by a flag."""
    return Changed(grad=bool(enabled))


def is_grad_enabled() -> bool:
    """True where ops on tensors that require a gradient are recorded."""
    return mode().grad


def backend(name: str) -> Changed:
    """Use kernels of one backend only; ``"numpy"`` forces the portable forwards, the reference.

    Raises ValueError for a name that is not a backend.
    """
    if name not in BACKENDS:
        raise ValueError(f"unknown backend {name!r}: known are {sorted(BACKENDS)}.{nearest(name, BACKENDS)}")
    return Changed(backend=name)


def autocast(dtype: Any = "bfloat16", enabled: bool = True) -> Changed:
    """Run products (matmul, linear, conv, einsum, attention) in a 16-bit float; everything else as it comes.

    Raises TypeError for a dtype that is not a float.
    """
    found = as_dtype(dtype)
    if not is_float(found):
        raise TypeError(f"autocast needs a float dtype, got {found}")
    return Changed(autocast=found if enabled else None)


def scope(name: str) -> Changed:
    """Name the nodes recorded in the body (nested names join with ``/``), so that pictures can fold them."""
    outer = mode().scope
    return Changed(scope=f"{outer}/{name}" if outer else name)

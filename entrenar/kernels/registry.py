"""Which kernel serves an op: op key -> kernels by priority, each with a ``when`` that may decline.

A backend states the ops it serves without being imported (``Backend.ops``) and its module is imported the first time
one of them is called.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from ..array import nearest

Listener = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Kernel:
    """One implementation of an op for one backend: arrays in, arrays out, no tape in sight."""

    key: str
    backend: str
    run: Callable[..., Any]
    when: Callable[..., bool] | None
    saves: tuple[str, ...]
    drops: tuple[str, ...]
    parameters: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Backend:
    """A family of kernels: the higher priority is asked first; ``device`` is the kind of array it takes."""

    name: str
    priority: int
    device: str = "cpu"
    module: str | None = None
    ops: frozenset[str] = field(default_factory=frozenset)


REFERENCE = "numpy"  # the portable forwards themselves: always there, holds no kernels
BACKENDS: dict[str, Backend] = {}
KERNELS: dict[str, list[Kernel]] = {}
SERVED: dict[str, set[str]] = {}  # op key -> the backends whose kernel really ran; gradcheck reports it
_loaded: set[str] = set()
_listeners: list[Listener] = []


def backend_table(
    name: str, *, priority: int, device: str = "cpu", module: str | None = None, ops: Iterable[str] = ()
) -> None:
    """Declare a backend.  ``ops`` are the names (of entrenar's ops) it serves; ``module`` is imported on first use."""
    BACKENDS[name] = Backend(name, priority, device, module, frozenset(op_key(op) for op in ops))


def op_key(op: Any) -> str:
    """The identity of an op: ``module:name``; a bare name is one of entrenar's own."""
    if not isinstance(op, str):
        return str(op.op.key)
    return op if ":" in op else f"entrenar:{op}"


def kernel(
    op: Any,
    *,
    backend: str,
    when: Callable[..., bool] | None = None,
    saves: Iterable[str] = (),
    drops: Iterable[str] = (),
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register the decorated function as the kernel of ``op`` (a name, ``module:name`` or the op itself).

    when: takes what the kernel takes, says whether it accepts (dtype, layout).  saves: names of what a forward
    returns after its outputs, handed to the kernel of ``op.vjp`` by name.  drops: inputs no derivative needs.
    A kernel of the same op and backend is replaced.  Raises ValueError for an unknown backend.
    """
    if backend not in BACKENDS:
        raise ValueError(f"unknown backend {backend!r}: known are {sorted(BACKENDS)}.{nearest(backend, BACKENDS)}")
    key = op_key(op)

    def register(run: Callable[..., Any]) -> Callable[..., Any]:
        entry = Kernel(key, backend, run, when, tuple(saves), tuple(drops), tuple(inspect.signature(run).parameters))
        others = [k for k in KERNELS.get(key, ()) if k.backend != backend]
        KERNELS[key] = sorted([*others, entry], key=lambda k: -BACKENDS[k.backend].priority)
        _tell(key)
        return run

    return register


def unregister(op: Any, backend: str) -> None:
    """Take a kernel out again.  Raises KeyError if there is none."""
    key = op_key(op)
    left = [k for k in KERNELS.get(key, ()) if k.backend != backend]
    if len(left) == len(KERNELS.get(key, ())):
        raise KeyError(f"{key} has no kernel for backend {backend!r}")
    KERNELS[key] = left
    _tell(key)


def on_change(listener: Listener) -> None:
    """Call ``listener(key)`` whenever the kernels of an op change."""
    _listeners.append(listener)


def _tell(key: str) -> None:
    for listener in _listeners:
        listener(key)


def has_kernels(key: str) -> bool:
    """True if any backend serves ``key``, loaded or not."""
    return bool(KERNELS.get(key)) or any(key in b.ops and b.name not in _loaded for b in BACKENDS.values())


def load(key: str) -> None:
    """Import the backends that say they serve ``key``; an import that fails fails here, every time."""
    for backend in BACKENDS.values():
        if key in backend.ops and backend.name not in _loaded and backend.module is not None:
            importlib.import_module(backend.module)
            _loaded.add(backend.name)


def served(entry: Kernel) -> None:
    """Write down that this kernel is about to run."""
    SERVED.setdefault(entry.key, set()).add(entry.backend)


def find(key: str, device: str, backend: str | None, args: tuple[Any, ...], keywords: dict[str, Any]) -> Kernel | None:
    """The first kernel by priority that takes these arguments, or None for the portable forward."""
    if backend == REFERENCE:
        return None
    load(key)
    for entry in KERNELS.get(key, ()):
        wrong = entry.backend != backend if backend is not None else BACKENDS[entry.backend].device != device
        if not wrong and (entry.when is None or entry.when(*args, **keywords)):
            served(entry)
            return entry
    return None


backend_table(REFERENCE, priority=0)

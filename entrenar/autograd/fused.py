"""Fused ops: a composite written with ops, plus optional kernels for ``name`` and ``name.vjp``.

Without a kernel the composite is recorded inline.  With one, the op is one node; its pullback is a fused op whose
composite is ``vjp(composite)``, so derivatives of every order exist and nothing is written twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import numpy as np

from ..array import xp
from ..kernels import KERNELS, Kernel, served
from .func import pullback_of
from .modes import mode
from .primitive import Op
from .runtime import deposit_all, edge, item_node
from .tape import Node, next_seq
from .tensor import Tensor, at_edge, raw, settle

F = TypeVar("F", bound=Callable[..., Any])


class Fused(Op):
    """A composite that kernels may serve as one node."""

    broadcasts = promotes = False
    saved_names = ("inputs", "hints")

    def __init__(self, forward: Callable[..., Any], **options: Any) -> None:
        super().__init__(forward, broadcasts=False, promotes=True, autocast=False, ruled=(), **options)
        self._pullback: _Pullback | None = None

    @property
    def pullback(self) -> _Pullback:
        """The op ``(*cotangents, *inputs) -> cotangents of the inputs``, itself fused."""
        if self._pullback is None:
            self._pullback = _Pullback(self)
        return self._pullback

    def run_kernel(
        self, kernel: Kernel, args: tuple[Any, ...], values: tuple[Any, ...], keywords: dict[str, Any]
    ) -> Any:
        """Call the forward kernel; record one node if a gradient may be wanted."""
        made = kernel.run(*values, **keywords)
        returned = [name for name in kernel.saves if name != "y"]
        if returned:
            made, extra = made[: -len(returned)], made[-len(returned) :]
            made = made[0] if len(made) == 1 else made
        hints = dict(zip(returned, extra if returned else (), strict=True))
        y = settle(made)
        if "y" in kernel.saves:
            hints["y"] = y
        parents = tuple(None if x in self.nondiff else edge(a) for x, a in zip(self.names(args), args, strict=True))
        if not any(isinstance(a, Tensor) for a in args):
            return y
        return self.record(kernel, parents, values, keywords, hints, y)

    def names(self, args: tuple[Any, ...]) -> tuple[str, ...]:
        """A name per argument (the inputs', repeated for ``*xs``)."""
        return self.inputs * len(args) if self.variadic else self.inputs

    def record(
        self,
        kernel: Kernel | None,
        parents: tuple[Any, ...],
        values: tuple[Any, ...],
        keywords: dict[str, Any],
        hints: dict[str, Any],
        y: Any,
    ) -> Any:
        """The output tensor(s) of one node; a None in a tuple of outputs stays None."""
        many = isinstance(y, tuple)
        m = mode()
        if not m.grad or not any(p is not None for p in parents):
            return tuple(None if v is None else at_edge(v, None) for v in y) if many else at_edge(y, None)
        node = Node()
        node.op, node.seq, node.scope, node.parents = self, next_seq(), m.scope, parents
        dropped = kernel.drops if kernel else ()
        kept = tuple(
            _Dropped(v) if x in dropped and v is not None else v
            for x, v in zip(self.names(values), values, strict=True)
        )
        node.saved = (kept, _Hints(kernel.backend if kernel else "", hints))
        node.keywords = tuple(keywords[k] for k in self.keywords)
        if m.anomaly is not None:
            m.anomaly.recorded(node, y)
        if not many:
            node.shape, node.dtype = y.shape, y.dtype
            return at_edge(y, node)
        node.shape = tuple(None if v is None else v.shape for v in y)
        node.dtype = tuple(None if v is None else v.dtype for v in y)
        return tuple(None if v is None else at_edge(v, item_node(node, i)) for i, v in enumerate(y))

    def pull(self, node: Node, parents: tuple[Any, ...], g: Any, cot: dict[Any, Any]) -> None:
        """First derivatives, on arrays."""
        ds = self._ds(node, parents, g, tuple(None for _ in node.parents))
        deposit_all(self, tuple(raw(d) for d in ds), node, parents, cot)

    def pull_graph(self, node: Node, parents: tuple[Any, ...], g: Any, cot: dict[Any, Any]) -> None:
        """Any order: the pullback is called on Tensors and recorded."""
        deposit_all(self, self._ds(node, parents, g, node.parents), node, parents, cot)

    def _ds(self, node: Node, parents: tuple[Any, ...], g: Any, edges: tuple[Any, ...]) -> tuple[Any, ...]:
        kept, hints = node.saved  # type: ignore[misc]
        values = tuple(v.stand_in() if isinstance(v, _Dropped) else v for v in kept)
        inputs = tuple(v if e is None else at_edge(v, e) for v, e in zip(values, edges, strict=True))
        keywords = dict(zip(self.keywords, node.keywords, strict=True))
        shapes, dtypes = (node.shape, node.dtype) if isinstance(g, list) else ((node.shape,), (node.dtype,))
        gs = tuple(
            np.zeros(s, d) if x is None and s is not None else x
            for x, s, d in zip(g if isinstance(g, list) else [g], shapes, dtypes, strict=True)
        )
        needs = tuple(p is not None for p in parents)
        return self.pullback(gs, inputs, keywords, needs, hints)


class _Dropped:
    """In place of an input that no derivative needs: its shape and dtype; NaN if somebody looks after all."""

    __slots__ = ("dtype_", "shape_", "space")

    def __init__(self, value: Any) -> None:
        self.shape_, self.dtype_, self.space = value.shape, value.dtype, xp(value)

    def stand_in(self) -> Any:
        return self.space.broadcast_to(self.space.asarray(np.nan, self.dtype_), self.shape_)


class _Hints:
    """What the forward kernel left for the kernel of its pullback, and which backend that was."""

    __slots__ = ("backend", "values")

    def __init__(self, backend: str, values: dict[str, Any]) -> None:
        self.backend, self.values = backend, values


class _Pullback(Fused):
    """``op.vjp``: kernels of that name if there are any, else the vjp of the composite."""

    def __init__(self, base: Fused) -> None:
        # not an entry of the op table, so Op.__init__ does not run: everything follows from the base
        self.base = base
        self.name, self.key, self.module = f"{base.name}.vjp", f"{base.key}.vjp", base.module
        self.inputs, self.variadic, self.keywords = ("inputs",), True, ("keywords", "needs", "outputs")
        self.nondiff, self._pullback = (), None

    def __call__(
        self,
        gs: tuple[Any, ...],
        inputs: tuple[Any, ...],
        keywords: dict[str, Any],
        needs: tuple[bool, ...],
        hints: _Hints,
    ) -> tuple[Any, ...]:
        """Cotangents of the inputs (None where not needed); arrays in, arrays out, Tensors recorded."""
        kernel = self._kernel(hints.backend)
        every: dict[str, Any] = {"keywords": keywords, "needs": needs, "outputs": len(gs)}
        if kernel is None:
            return self.forward(*gs, *inputs, **every)
        args = (*gs, *inputs)
        values = tuple(_contiguous(raw(a)) for a in gs) + tuple(raw(a) for a in inputs)
        names = dict(zip((*_cotangent_names(len(gs)), *self.base.names(inputs)), values, strict=True))
        env = {**names, **keywords, **hints.values, "needs": needs}
        if kernel.when is not None and not kernel.when(**{n: env[n] for n in kernel.parameters}):
            return self.forward(*gs, *inputs, **every)
        served(kernel)
        ds = kernel.run(**{n: env[n] for n in kernel.parameters})
        ds = ds if isinstance(ds, tuple) else (ds,)
        ds = tuple(settle(d) if need else None for d, need in zip(ds, needs, strict=True))
        if not any(isinstance(a, Tensor) for a in args):
            return ds
        return self.record(None, tuple(edge(a) for a in args), values, every, {}, ds)

    def _kernel(self, backend: str) -> Kernel | None:
        if mode().backend not in (None, backend):
            return None
        return next((k for k in KERNELS.get(self.key, ()) if k.backend == backend), None)

    def forward(self, *args: Any, keywords: dict[str, Any], needs: tuple[bool, ...], outputs: int) -> tuple[Any, ...]:
        """The composite: vjp of the base's composite."""
        gs, inputs = args[:outputs], args[outputs:]
        _, pull = pullback_of(lambda *xs: self.base.forward(*xs, **keywords), inputs, needs)
        return tuple(pull(*gs))


def _cotangent_names(count: int) -> tuple[str, ...]:
    return ("g",) if count == 1 else tuple(f"g{i}" for i in range(count))


def _contiguous(g: Any) -> Any:
    """Kernels may assume a C-contiguous cotangent: a strided or stride-0 one is copied."""
    return g if g is None or g.flags.c_contiguous else xp(g).ascontiguousarray(g)


def fused(
    *, samples: Any = None, nondiff: Iterable[str] = (), surrogate: Any = None, order: int = 2
) -> Callable[[F], F]:
    """Declare the decorated composite (a function of ops) as a fused op.  See ``primitive`` for the options."""

    def declare(forward: F) -> F:
        return Fused(forward, samples=samples, nondiff=nondiff, surrogate=surrogate, order=order).call  # type: ignore

    return declare

"""A PyTorch-style Function: forward(ctx, ...) and backward(ctx, ...) as a thin adapter over a node."""

from __future__ import annotations

from typing import Any

from ..array import is_float
from .modes import mode, no_grad
from .runtime import deposit_all, edge, outputs
from .tape import Node, next_seq
from .tensor import Tensor, at_edge, edge_of, raw


class Context:
    """What forward leaves for backward: ``save_for_backward`` for tensors, plain attributes for the rest."""

    def __init__(self, needs: tuple[bool, ...]) -> None:
        self.needs_input_grad = needs
        self._arrays: tuple[Any, ...] = ()
        self._edges: tuple[Any, ...] = ()

    def save_for_backward(self, *tensors: Any) -> None:
        """Save tensors (inputs, outputs or others) or None."""
        self._arrays = tuple(raw(t) for t in tensors)
        self._edges = tuple(edge(t) for t in tensors)

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """The saved tensors; under create_graph they stand on the tape where they stood in forward."""
        return tuple(None if a is None else at_edge(a, e) for a, e in zip(self._arrays, self._edges, strict=True))


class _FunctionOp:
    """The op behind one Function subclass."""

    keywords, nondiff, variadic, broadcasts, promotes, saved_names = (), (), True, False, False, ("context",)
    inputs = ("input",)

    def __init__(self, cls: type[Function]) -> None:
        self.cls, self.name, self.key = cls, cls.__name__, f"{cls.__module__}:{cls.__qualname__}"

    def pull(self, node: Node, parents: tuple[Any, ...], g: Any, cot: dict[Any, Any]) -> None:
        with no_grad():
            ds = self._call(node, g)
        deposit_all(self, tuple(raw(d) for d in ds), node, parents, cot)

    def pull_graph(self, node: Node, parents: tuple[Any, ...], g: Any, cot: dict[Any, Any]) -> None:
        deposit_all(self, self._call(node, g), node, parents, cot)

    def _call(self, node: Node, g: Any) -> tuple[Any, ...]:
        (ctx,) = node.saved  # type: ignore[misc]
        gs = g if isinstance(g, list) else [g]
        ds = self.cls.backward(ctx, *(d if d is None or isinstance(d, Tensor) else Tensor(d) for d in gs))
        return ds if isinstance(ds, tuple) else (ds,)


class Function:
    """Subclass with static ``forward(ctx, *args)`` and ``backward(ctx, *gradients)``; call with ``apply``.

    forward sees untracked tensors; backward returns one gradient (or None) per argument of forward.
    """

    @staticmethod
    def forward(ctx: Context, *args: Any) -> Any:
        """Compute on tensors that record nothing."""
        raise TypeError("a Function defines forward(ctx, *args)")

    @staticmethod
    def backward(ctx: Context, *gradients: Any) -> Any:
        """One gradient (or None) per argument of forward."""
        raise TypeError("a Function defines backward(ctx, *gradients)")

    @classmethod
    def apply(cls, *args: Any) -> Any:
        """Run forward and record one node."""
        edges = tuple(edge(a) for a in args)
        ctx = Context(tuple(e is not None for e in edges))
        with no_grad():
            y = cls.forward(ctx, *args)
        ys = y if isinstance(y, tuple) else (y,)
        for t in ys:
            if not isinstance(t, Tensor):
                raise TypeError(f"{cls.__name__}.forward must return tensors, got {type(t).__name__}")
        m = mode()
        if not m.grad or not any(ctx.needs_input_grad):
            return y
        node = Node()
        node.op, node.seq, node.scope, node.parents = _op(cls), next_seq(), m.scope, edges
        node.saved, node.keywords = (ctx,), ()
        if m.anomaly is not None:
            m.anomaly.recorded(node, tuple(t.data for t in ys))
        if isinstance(y, tuple):
            made = outputs(node, tuple(t.data for t in ys))
        else:
            node.shape, node.dtype = y.shape, y.dtype
            made = (at_edge(y.data, node if is_float(y.dtype) else None),)
        ctx._edges = tuple(_placed(a, e, ys, made) for a, e in zip(ctx._arrays, ctx._edges, strict=True))
        return made if isinstance(y, tuple) else made[0]


def _placed(array: Any, where: Any, ys: tuple[Any, ...], made: tuple[Any, ...]) -> Any:
    """A saved output stands at the output's edge."""
    return next((edge_of(m) for t, m in zip(ys, made, strict=True) if t.data is array and where is None), where)


_OPS: dict[type[Function], _FunctionOp] = {}


def _op(cls: type[Function]) -> _FunctionOp:
    return _OPS.setdefault(cls, _FunctionOp(cls))

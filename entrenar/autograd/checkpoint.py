"""checkpoint: keep only the inputs of a segment and run it again in backward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..array import GraphError, default_generator
from .backward import run
from .modes import Changed, mode, restored
from .runtime import deposit_all, item_node
from .tape import Node, next_seq, reachable
from .tensor import Tensor, at_edge, edge_of, raw


class _Segment:
    """The op of a checkpointed segment: its pullback recomputes, then walks the new tape down to the old edges."""

    name, key, inputs, keywords, nondiff = "checkpoint", "entrenar:checkpoint", ("edges",), (), ()
    variadic, broadcasts, promotes, saved_names = True, False, False, ("recompute",)

    def pull(self, node: Node, parents: tuple[Any, ...], g: Any, cot: dict[Any, Any]) -> None:
        self._pull(node, parents, g, cot, create_graph=False)

    def pull_graph(self, node: Node, parents: tuple[Any, ...], g: Any, cot: dict[Any, Any]) -> None:
        self._pull(node, parents, g, cot, create_graph=True)

    def _pull(self, node: Node, parents: tuple[Any, ...], g: Any, cot: dict[Any, Any], create_graph: bool) -> None:
        (recompute,) = node.saved  # type: ignore[misc]
        ys = recompute()
        gs = g if isinstance(g, list) else [g]
        if [y.shape for y in ys] != (list(node.shape) if isinstance(g, list) else [node.shape]):
            raise GraphError("checkpoint: running the segment again gave other shapes; it must be deterministic")
        pairs = [(edge_of(y), d) for y, d in zip(ys, gs, strict=True) if d is not None and y.tracked]
        found = run(
            [e for e, _ in pairs],
            [d for _, d in pairs],
            retain_graph=create_graph,
            create_graph=create_graph,
            wanted=node.parents,
            cut=True,
        )
        ds = tuple(_or_zeros(found.get(p), p) for p in node.parents)
        deposit_all(self, ds, node, parents, cot)


def _or_zeros(d: Any, p: Any) -> Any:
    return np.zeros(p.shape, p.dtype) if d is None else d


SEGMENT = _Segment()


def checkpoint(fn: Callable[..., Any], *args: Any, context: Callable[[], Any] | None = None, **kwargs: Any) -> Any:
    """``fn(*args, **kwargs)``, without keeping what it saved: backward runs it again.

    Random, grad, autocast and backend modes are restored for the second run; ``context`` makes a context manager that
    restores anything else (Module passes its train modes).  Tensors captured by ``fn`` get their gradients too.
    """
    m = mode()
    if not m.grad:
        return fn(*args, **kwargs)
    before = default_generator.state()
    start = next_seq()
    y = fn(*args, **kwargs)
    many = isinstance(y, tuple)
    ys = y if many else (y,)
    for t in ys:
        if not isinstance(t, Tensor):
            raise TypeError(f"checkpoint: the function must return tensors, got {type(t).__name__}")
    inner = [n for n in reachable([edge_of(t) for t in ys]) if n.seq > start]
    if not inner:
        return y
    edges = tuple(
        dict.fromkeys(p for n in inner for p in n.parents if p is not None and (isinstance(p, Tensor) or p.seq < start))
    )
    enter = context() if context is not None else None

    def recompute() -> tuple[Tensor, ...]:
        now = default_generator.state()
        default_generator.set_state(before)
        try:
            with restored(m), Changed(grad=True):
                if enter is None:
                    again = fn(*args, **kwargs)
                else:
                    with enter:
                        again = fn(*args, **kwargs)
        finally:
            default_generator.set_state(now)
        return again if isinstance(again, tuple) else (again,)

    node = Node()
    node.op, node.seq, node.scope, node.parents = SEGMENT, next_seq(), m.scope, edges
    node.saved, node.keywords = (recompute,), ()
    node.shape = tuple(t.shape for t in ys) if many else ys[0].shape
    node.dtype = tuple(t.dtype for t in ys) if many else ys[0].dtype
    if not many:
        return at_edge(raw(y), node)
    return tuple(at_edge(raw(t), item_node(node, i) if t.tracked else None) for i, t in enumerate(ys))

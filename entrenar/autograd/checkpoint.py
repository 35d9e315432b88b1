"""checkpoint: keep only the inputs of a segment and run it again in backward."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
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


def _train_modes(fn: Any) -> list[tuple[Any, bool]]:
    """(module, training) of a module, or of the one whose method ``fn`` is; known by its ``modules()``, from above."""
    owner: Any = fn if hasattr(fn, "modules") else getattr(fn, "__self__", None)
    return [(m, m.training) for m in owner.modules()] if hasattr(owner, "modules") else []


@contextmanager
def _as_it_was(modes: list[tuple[Any, bool]]) -> Iterator[None]:
    """Run the body with these train modes, and put back those of now."""
    now = [(m, m.training) for m, _ in modes]
    for m, training in modes:
        object.__setattr__(m, "training", training)
    try:
        yield
    finally:
        for m, training in now:
            object.__setattr__(m, "training", training)


def checkpoint(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """``fn(*args, **kwargs)``, without keeping what it saved: backward runs it again.

    Random, grad, autocast and backend modes are restored for the second run, and the train modes of ``fn`` if it is a
    module or a module's method.  Tensors captured by ``fn`` get their gradients too.
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
    modes = _train_modes(fn)

    def recompute() -> tuple[Tensor, ...]:
        now = default_generator.state()
        default_generator.set_state(before)
        try:
            with restored(m), Changed(grad=True), _as_it_was(modes):
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

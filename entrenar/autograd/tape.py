"""The tape: nodes, edges, time, and the versions of memory blocks.

A node is one recorded op.  Its parents are edges: another Node, a leaf Tensor itself, or None for an input that needs
no gradient.  Creation order is topological, so the tape of a loss is its reachable nodes sorted by ``seq``.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from ..array import Array, DType, GraphError


class Node:
    """One recorded op.  ``saved`` is None once the graph was freed; ``note`` is set under detect_anomaly only."""

    __slots__ = ("__weakref__", "dtype", "keywords", "note", "op", "parents", "saved", "scope", "seq", "shape")
    op: Any
    parents: tuple[Any, ...]
    saved: tuple[Any, ...] | None
    keywords: tuple[Any, ...]
    seq: int
    scope: str
    shape: Any  # of the output; a tuple of shapes for an op with several
    dtype: Any
    note: Any

    def __repr__(self) -> str:
        return f"<{self.op.name} node {self.seq}>"


class Meta(NamedTuple):
    """Shape and dtype of an input, as a pullback sees it when it names ``x_meta``."""

    shape: tuple[int, ...]
    dtype: DType

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))


_clock = itertools.count()
next_seq = _clock.__next__
by_seq = attrgetter("seq")
Hook = Callable[[Any], Any]
HOOKS: dict[int, tuple[weakref.ref[Any], list[Hook]]] = {}  # id of an edge -> (the edge, its hooks in order)


def hooks_of(edge: Any) -> list[Hook]:
    """The hooks of an edge, a list to add to; forgotten with the edge.  (By id: == of tensors is elementwise.)"""
    key = id(edge)
    if key not in HOOKS:
        HOOKS[key] = (weakref.ref(edge, lambda _: HOOKS.pop(key, None)), [])
    return HOOKS[key][1]


def reachable(roots: Iterable[Any]) -> list[Node]:
    """The nodes under these edges, first recorded first.  Iterative: depth does not matter."""
    stack = [edge for edge in roots if edge.__class__ is Node]
    seen = set(stack)
    nodes = list(seen)
    stack = list(nodes)
    while stack:
        for parent in stack.pop().parents:
            if parent.__class__ is Node and parent not in seen:
                seen.add(parent)
                stack.append(parent)
                nodes.append(parent)
    nodes.sort(key=by_seq)
    return nodes


class _Clocked:
    """Writes to memory blocks: id of the base array -> (weak reference, tape time of the last write, count)."""

    __slots__ = ("blocks", "last")

    def __init__(self) -> None:
        self.blocks: dict[int, tuple[weakref.ref[Any], int, int]] = {}
        self.last = -1


WRITES = _Clocked()


def base_of(array: Array) -> Array:
    """The array that owns the memory ``array`` is a view of (for a foreign buffer, the outermost array over it)."""
    while isinstance(getattr(array, "base", None), type(array)):
        array = array.base
    return array


def wrote(array: Array) -> None:
    """Tell the tape that the library just wrote into ``array``'s memory."""
    base = base_of(array)
    key = id(base)
    _, _, count = WRITES.blocks.get(key, (None, 0, 0))
    time = next_seq()
    blocks = WRITES.blocks
    blocks[key] = (weakref.ref(base, lambda _: blocks.pop(key, None)), time, count + 1)
    WRITES.last = time


def version(array: Array) -> int:
    """How often the library wrote into the memory block of ``array``."""
    return WRITES.blocks.get(id(base_of(array)), (None, 0, 0))[2]


def check_unwritten(node: Node) -> None:
    """Raise GraphError if an array that ``node`` saved was written to after it was recorded."""
    for name, value in zip(node.op.saved_names, node.saved or (), strict=True):
        for array in value if isinstance(value, tuple) else (value,):
            if hasattr(array, "dtype") and WRITES.blocks.get(id(base_of(array)), (None, -1, 0))[1] > node.seq:
                raise GraphError(
                    f"{node.op.name} saved {name} (shape {array.shape}) for backward; it was changed in place since "
                    f"(version {version(array)}): change a copy, or do it after backward"
                )

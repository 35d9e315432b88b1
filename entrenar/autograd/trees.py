"""Nested lists, tuples and dicts of tensors, taken apart and put together again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

LEAF = object()


def flatten(tree: Any) -> tuple[list[Any], Any]:
    """(leaves in order, form); dicts go by sorted key, None is a leaf."""
    leaves: list[Any] = []

    def walk(node: Any) -> Any:
        if isinstance(node, dict):
            return (dict, tuple(sorted(node)), tuple(walk(node[k]) for k in sorted(node)))
        if isinstance(node, (list, tuple)):
            return (type(node), len(node), tuple(walk(child) for child in node))
        leaves.append(node)
        return LEAF

    return leaves, walk(tree)


def unflatten(form: Any, leaves: Sequence[Any]) -> Any:
    """The tree of this form with these leaves."""
    rest: Iterator[Any] = iter(leaves)

    def build(part: Any) -> Any:
        if part is LEAF:
            return next(rest)
        kind, keys, children = part
        if kind is dict:
            return dict(zip(keys, [build(c) for c in children], strict=True))
        made = [build(c) for c in children]
        return kind(*made) if hasattr(kind, "_fields") else kind(made)

    return build(form)

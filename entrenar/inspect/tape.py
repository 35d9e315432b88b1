"""The tape of a tensor, printed as a Wengert list: one line per op, in the order they ran."""

from __future__ import annotations

from typing import Any

from ..autograd import Tensor
from ..autograd.tape import Node, reachable
from ..autograd.tensor import edge_of


class Tape:
    """The recorded ops under one tensor (or several).  ``print(en.tape(loss))`` shows them; ``len`` counts them.

    Identifiers are stable: leaves are x0, x1 ... in order of first use, ops v0, v1 ... in order of recording.
    """

    def __init__(self, *roots: Tensor) -> None:
        for root in roots:
            if not isinstance(root, Tensor):
                raise TypeError(f"tape() takes tensors, got {type(root).__name__}")
        self.nodes: list[Node] = reachable([edge_of(r) for r in roots])
        self.leaves: list[Tensor] = list(
            dict.fromkeys(p for n in self.nodes for p in n.parents if isinstance(p, Tensor))
        )
        self._names: dict[Any, str] = {leaf: f"x{i}" for i, leaf in enumerate(self.leaves)}
        for i, node in enumerate(n for n in self.nodes if n.op.name != "item"):
            self._names[node] = f"v{i}"
        for node in self.nodes:
            if node.op.name == "item":
                self._names[node] = f"{self._names[node.parents[0]]}.{node.saved[0] if node.saved else '?'}"

    def __len__(self) -> int:
        return len(self.nodes)

    def name(self, edge: Any) -> str:
        """The identifier of an edge; ``const`` for an input that needs no gradient."""
        return self._names.get(edge, "const")

    def line(self, node: Node) -> str:
        """``v3 = mul(v2, x0)  float32 (2, 3)``."""
        keywords = [f"{k}={_short(v)}" for k, v in zip(node.op.keywords, node.keywords, strict=True)]
        call = f"{node.op.name}({', '.join([self.name(p) for p in node.parents] + keywords)})"
        freed = "  [freed]" if node.saved is None else ""
        scope = f"  in {node.scope}" if node.scope else ""
        return f"{self.name(node)} = {call}  {_kind(node)}{scope}{freed}"

    def __str__(self) -> str:
        lines = [f"{self.name(leaf)}: leaf  {_kind(leaf)}" for leaf in self.leaves]
        return "\n".join([*lines, *(self.line(n) for n in self.nodes if n.op.name != "item")])

    def folded(self) -> str:
        """One line per scope instead of one per op: for large models."""
        lines: list[str] = []
        counts: list[int] = []
        for node in self.nodes:
            scope = node.scope.split("/")[0] if node.scope else ""
            if scope and lines and lines[-1] == scope:
                counts[-1] += 1
            else:
                lines.append(scope or self.line(node))
                counts.append(1 if scope else 0)
        return "\n".join(f"{text}: {n} ops" if n else text for text, n in zip(lines, counts, strict=True))

    @property
    def saved_bytes(self) -> int:
        """Memory that the tape keeps for backward, each block counted once."""
        from ..autograd.tape import base_of

        blocks: dict[int, int] = {}
        for node in self.nodes:
            for value in node.saved or ():
                for array in value if isinstance(value, tuple) else (value,):
                    if hasattr(array, "nbytes"):
                        base = base_of(array)
                        blocks[id(base)] = int(base.nbytes)
        return sum(blocks.values())

    __repr__ = __str__


def _kind(edge: Any) -> str:
    return f"{edge.dtype} {edge.shape}"


def _short(value: Any) -> str:
    shape = getattr(value, "shape", None)
    return f"<{value.dtype} {shape}>" if shape else f"{value!r:.40}"


def tape(*roots: Tensor) -> Tape:
    """The tape of one or more tensors: ``print(en.tape(loss))`` prints its Wengert list.

    >>> import entrenar as en
    >>> x = en.tensor([1.0, 2.0], requires_grad=True)
    >>> print(en.tape(en.sum(x * x)))
    x0: leaf  float32 (2,)
    v0 = mul(x0, x0)  float32 (2,)
    v1 = sum(v0, axis=None, keepdims=False)  float32 ()
    """
    return Tape(*roots)

"""Walking the tape backward: one loop, newest node first, cotangents by edge."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from sys import getrefcount
from typing import Any

import numpy as np

from ..array import GraphError, as_array, xp
from ..kernels.memory import pooled
from .modes import Changed, mode
from .tape import HOOKS, WRITES, Node, check_unwritten, hooks_of, reachable
from .tensor import Tensor, edge_of, raw, settle


def backward(tensor: Any, gradient: Any = None, retain_graph: bool | None = None, create_graph: bool = False) -> None:
    """Add the gradient of ``tensor`` (or of each of several) to ``grad`` of the leaves that require one.

    gradient: the cotangent (one per tensor), same shape and dtype; may be None for a scalar.
    Raises GraphError where there is no graph, or a freed one; ValueError/TypeError for a cotangent that does not fit.
    """
    roots, seeds = _roots(tensor, gradient, create_graph)
    _watch(roots)
    cot = run(
        roots, seeds, retain_graph=create_graph if retain_graph is None else retain_graph, create_graph=create_graph
    )
    given: set[int] = {id(raw(s)) for s in seeds}
    for leaf, g in cot.items():
        if isinstance(leaf, Tensor):
            _accumulate(leaf, g, given, create_graph)


_WALKED: weakref.WeakSet[Any] = weakref.WeakSet()  # roots of backward calls that somebody still holds
MANY = 1000


def _watch(roots: Iterable[Any]) -> None:
    """Warn once when a thousand losses, each with its tape, are kept alive (usually in a history list)."""
    _WALKED.update(e for e in roots if isinstance(e, Node))
    if len(_WALKED) == MANY:
        warnings.warn(
            f"{MANY} tensors that backward was called on are still alive, each with its tape: "
            "keep loss.item() in a history, not loss",
            RuntimeWarning,
            stacklevel=4,
        )


def _accumulate(leaf: Tensor, g: Any, given: set[int], create_graph: bool) -> None:
    """Put g into ``leaf.grad``: owned and writable, in place from the second time on (new under create_graph)."""
    if create_graph:
        leaf.grad = g if leaf.grad is None else leaf.grad + g
        return
    if leaf.grad is not None:
        if leaf.grad.tracked:
            leaf.grad = Tensor(leaf.grad.data + g)
        else:
            leaf.grad.data += g
        return
    if not _adoptable(g, given):
        g = g.copy()
    given.add(id(g))
    leaf.grad = Tensor(g)


def _adoptable(g: Any, given: set[int]) -> bool:
    """Whether a gradient may keep the memory of ``g``: nobody else has it, not even by another view."""
    if id(g) in given or not g.flags.writeable:
        return False
    owner = g.base
    if owner is None:
        return True
    # a whole array turned or reshaped, such as the gradient of a transposed weight: g, this name and the call hold it
    return owner.__class__ is np.ndarray and owner.base is None and owner.size == g.size and getrefcount(owner) == 3


def grad(
    outputs: Any,
    inputs: Any,
    gradient: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    allow_unused: bool = False,
) -> Any:
    """The gradients of ``outputs`` with respect to ``inputs`` (a tensor or a sequence; the result has the same form).

    gradient: the cotangent, or one per output.  Leaves ``.grad`` alone and computes only what leads to the inputs.
    Raises GraphError if an input has no part in the outputs, unless ``allow_unused`` (then it gets None).
    """
    roots, seeds = _roots(outputs, gradient, create_graph)
    single = isinstance(inputs, Tensor)
    wanted = [inputs] if single else list(inputs)
    for i, t in enumerate(wanted):
        if not isinstance(t, Tensor) or not t.tracked:
            raise TypeError(f"grad: input {i} must be a tensor that requires a gradient, got {_brief(t)}")
    edges = [edge_of(t) for t in wanted]
    found = run(
        roots,
        seeds,
        retain_graph=create_graph if retain_graph is None else retain_graph,
        create_graph=create_graph,
        wanted=edges,
    )
    result = []
    given: set[int] = {id(raw(s)) for s in seeds}
    for i, edge in enumerate(edges):
        g = found.get(edge)
        if g is None:
            if not allow_unused:
                raise GraphError(
                    f"grad: input {i} (shape {wanted[i].shape}) has no part in the outputs; "
                    "pass allow_unused=True to get None for it"
                )
        elif not isinstance(g, Tensor):
            g = Tensor(g if _adoptable(g, given) else g.copy())
            given.add(id(g.data))
        result.append(g)
    return result[0] if single else tuple(result)


def _roots(outputs: Any, gradient: Any, create_graph: bool) -> tuple[list[Any], list[Any]]:
    """(edges, cotangents) to start from."""
    many = isinstance(outputs, (list, tuple))
    tensors: Sequence[Any] = list(outputs) if many else [outputs]
    seeds: Sequence[Any] = list(gradient) if many and gradient is not None else [gradient] * len(tensors)
    if len(seeds) != len(tensors):
        raise ValueError(f"backward of {len(tensors)} outputs needs as many cotangents, got {len(seeds)}")
    edges, checked = [], []
    for t, seed in zip(tensors, seeds, strict=True):
        if not isinstance(t, Tensor):
            raise TypeError(f"backward of {_brief(t)}: expected a Tensor")
        if not t.tracked:
            raise GraphError(
                f"backward of a tensor of shape {t.shape} that does not require a gradient: "
                "no input of it does, or it was made under no_grad"
            )
        edges.append(edge_of(t))
        checked.append(_seed(t, seed, create_graph))
    return edges, checked


def _seed(t: Tensor, seed: Any, create_graph: bool) -> Any:
    if seed is None:
        if t.size != 1:
            raise ValueError(
                f"backward of a tensor of shape {t.shape} needs gradient= of that shape: "
                "only a tensor of one element may go without"
            )
        array = xp(t.data).ones(t.shape, t.dtype)
        return Tensor(array) if create_graph else array
    own = isinstance(seed, (Tensor, np.ndarray, np.generic)) or hasattr(seed, "dtype")
    array = raw(seed) if own else as_array(seed, t.dtype)
    array = settle(array)
    if array.shape != t.shape:
        raise ValueError(f"gradient has shape {array.shape}, expected {t.shape}, the shape of the tensor")
    if array.dtype != t.dtype:
        raise TypeError(
            f"gradient has dtype {array.dtype}, expected {t.dtype}, the dtype of the tensor: use .astype({t.dtype})"
        )
    if create_graph:
        return seed if isinstance(seed, Tensor) else Tensor(array)
    return array


def run(
    roots: Iterable[Any],
    seeds: Iterable[Any],
    *,
    retain_graph: bool,
    create_graph: bool,
    wanted: Sequence[Any] | None = None,
    cut: bool = False,
) -> dict[Any, Any]:
    """The cotangents by edge: of every leaf, or of the ``wanted`` edges only.

    cut: treat the wanted edges as leaves (checkpoint: what is older belongs to somebody else).
    """
    cot: dict[Any, Any] = {}
    for edge, seed in zip(roots, seeds, strict=True):
        cot[edge] = seed if edge not in cot else cot[edge] + seed
    keep = None if wanted is None else {e for e in wanted if e is not None}
    nodes = reachable(cot)
    live = None if keep is None else _leading_to(nodes, keep, cut)
    found: dict[Any, Any] = {}
    anomaly, hooked = mode().anomaly, bool(HOOKS)
    if anomaly is not None:
        anomaly.before(nodes, cot)
    with np.errstate(all="ignore"), pooled(), Changed(grad=True) if create_graph else nullcontext():
        for node in reversed(nodes):
            g = cot.pop(node, None)
            if g is None:
                continue
            if g.__class__ is not np.ndarray and isinstance(g, np.generic):  # a sum of 0-d cotangents
                g = np.asarray(g)
            if hooked and id(node) in HOOKS:
                g = call_hooks(node, g)
            if keep is not None:
                if node in keep:
                    found[node] = g
                    if cut:
                        continue
                if node not in live:  # type: ignore[operator]
                    continue
                parents = tuple(p if p in live or p in keep else None for p in node.parents)  # type: ignore[operator]
            else:
                parents = node.parents
            if node.saved is None:
                raise GraphError(
                    f"backward a second time through {node.op.name}: its saved values were freed; "
                    "pass retain_graph=True the first time, or compute the loss again"
                )
            if node.seq < WRITES.last:
                check_unwritten(node)
            if anomaly is not None:
                anomaly.pulling(node)
            if create_graph:
                node.op.pull_graph(node, parents, g, cot)
            else:
                node.op.pull(node, parents, g, cot)
            if anomaly is not None:
                anomaly.pulled(node, parents, g, cot)
            if not retain_graph:
                node.saved = None
        leaves = {e: settle(g) if g.__class__ is not Tensor else g for e, g in cot.items() if isinstance(e, Tensor)}
        for leaf, g in leaves.items():
            if hooked and id(leaf) in HOOKS:
                leaves[leaf] = call_hooks(leaf, g)
    if keep is None:
        return leaves
    return {**found, **{e: g for e, g in leaves.items() if e in keep}}


def _leading_to(nodes: Iterable[Node], keep: set[Any], cut: bool) -> set[Any]:
    """The nodes from which a wanted edge can be reached."""
    live: set[Any] = set()
    for node in nodes:  # oldest first
        if cut and node in keep:
            continue
        if any(p is not None and (p in live or p in keep) for p in node.parents):
            live.add(node)
    return live


def call_hooks(edge: Any, g: Any) -> Any:
    """Run the hooks of an edge; a hook that returns a gradient replaces it (same shape and dtype, else an error)."""
    for hook in list(hooks_of(edge)):
        new: Any = hook(g if isinstance(g, Tensor) else Tensor(g))
        if new is not None:
            array = settle(raw(new))
            if array.shape != g.shape or array.dtype != g.dtype:
                raise ValueError(
                    f"a hook returned a gradient of shape {array.shape} and dtype {array.dtype}, "
                    f"expected {g.shape} and {g.dtype}"
                )
            g = (
                new
                if isinstance(g, Tensor) and isinstance(new, Tensor)
                else Tensor(array)
                if isinstance(g, Tensor)
                else array
            )
    return g


def _brief(value: Any) -> str:
    shape = getattr(value, "shape", None)
    return f"{type(value).__name__} {value!r:.60}" if shape is None else f"{type(value).__name__} of shape {shape}"

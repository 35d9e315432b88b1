"""detect_anomaly: which op first made a NaN or an infinity, and which saved array was overwritten behind our back."""

from __future__ import annotations

import os
import sys
import zlib
from collections.abc import Iterable
from typing import Any

import numpy as np

from ..array import AnomalyError, is_float
from .modes import Changed
from .tape import Node
from .tensor import raw


class Anomaly:
    """What is written down per node while ``detect_anomaly`` is on."""

    def recorded(self, node: Node, y: Any) -> None:
        """At record time: the user's line, the bad elements of the output, a fingerprint of what is saved."""
        bad = [describe(v) for v in (y if isinstance(y, tuple) else (y,)) if v is not None]
        node.note = (_user_line(), next((b for b in bad if b), ""), _fingerprint(node))

    def before(self, nodes: Iterable[Node], seeds: dict[Any, Any]) -> None:
        """Before backward: the first op in forward order whose output is not finite."""
        for node in nodes:
            where, bad, _ = getattr(node, "note", ("", "", None))
            if bad:
                raise AnomalyError(f"{node.op.name} at {where} is the first op that made a non-finite value: {bad}")

    def pulling(self, node: Node) -> None:
        """Before a pullback: its saved arrays are what they were."""
        note = getattr(node, "note", None)
        if note is not None and note[2] != _fingerprint(node):
            raise AnomalyError(
                f"an array that {node.op.name} at {note[0]} saved for backward was overwritten since "
                "(a write into .data or exported memory): change a copy instead"
            )

    def pulled(self, node: Node, parents: tuple[Any, ...], g: Any, cot: dict[Any, Any]) -> None:
        """After a pullback: what it gave is finite if what it got was."""
        if any(describe(raw(v)) for v in (g if isinstance(g, (list, tuple)) else (g,)) if v is not None):
            return
        where = getattr(node, "note", ("an op recorded outside detect_anomaly",))[0]
        for i, p in enumerate(parents):
            d = cot.get(p) if p is not None else None
            if d is not None and not isinstance(d, list) and (bad := describe(raw(d))):
                raise AnomalyError(
                    f"the pullback of {node.op.name} at {where} made a non-finite gradient for input {i}: {bad}"
                )


def describe(array: Any) -> str:
    """Empty if all finite; else shape, dtype and the first indices that are not."""
    if not is_float(array.dtype):
        return ""
    values = np.asarray(array if isinstance(array, (np.ndarray, np.generic)) else array.get())
    wrong = ~np.isfinite(values.astype(np.float64))
    if not wrong.any():
        return ""
    places = [tuple(int(i) for i in place) for place in np.argwhere(wrong)[:3]]
    shown = ", ".join(f"{values[p]} at {p}" for p in places)
    return f"{shown} ({int(wrong.sum())} of {values.size} elements; shape {values.shape}, dtype {values.dtype})"


_OURS = (os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "<call of")


def _user_line() -> str:
    """file:line of the innermost frame outside this package."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_OURS):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _fingerprint(node: Node) -> int:
    total = 0
    for value in node.saved or ():
        for array in value if isinstance(value, tuple) else (value,):
            if isinstance(array, np.ndarray):
                total = zlib.crc32(np.ascontiguousarray(array).view(np.uint8).tobytes(), total)
    return total


def detect_anomaly() -> Changed:
    """Find the first non-finite value and overwritten saved arrays; slower, for debugging.

    Raises AnomalyError in backward, naming the op, file:line, shape and indices.
    """
    return Changed(anomaly=Anomaly())

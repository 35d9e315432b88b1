"""What ``x += v`` and ``x[i] = v`` mean on a tape that never changes.

On a tracked tensor that an op made, the new value is a new array and this Tensor is rebound to it (earlier views keep
the old value).  A leaf that requires a gradient refuses, unchanged.  Untracked tensors, and any under ``no_grad``, are
written in place and their version moves on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..array import GraphError
from ..autograd import Tensor
from ..autograd.modes import mode
from ..autograd.tape import wrote
from ..autograd.tensor import raw
from . import elementwise, index as indexing, linalg


def updater(op: Callable[..., Any], symbol: str) -> Callable[[Tensor, Any], Tensor]:
    """The in-place method (``__iadd__`` ...) of a binary op."""

    def update(self: Tensor, other: Any) -> Tensor:
        if _recorded(self, other, symbol):
            _rebind(self, op(self, other), symbol)
        else:
            _write(self, raw(op(Tensor(self.data), raw(other))), symbol)
        return self

    update.__doc__ = f"x {symbol} other: in place where nothing is tracked, else this Tensor is rebound to a new value."
    return update


def setitem(self: Tensor, index: Any, value: Any) -> None:
    """x[index] = value: in place where nothing is tracked, else this Tensor is rebound to a new value."""
    if _recorded(self, value, "[...] ="):
        _rebind(self, indexing.index_put(self, index, value), "[...] =")
        return
    plain = indexing.plain_index(index)
    values = np.asarray(raw(value)) if not hasattr(raw(value), "dtype") else raw(value)
    if values.dtype.kind == "c" or (values.dtype.kind == "f" and self.dtype.kind in "biu"):
        raise TypeError(f"x[...] = value: cannot store {values.dtype} in a tensor of dtype {self.dtype}")
    self.data[plain] = values
    wrote(self.data)


def _recorded(target: Tensor, value: Any, symbol: str) -> bool:
    """True if the change goes on the tape.  Raises GraphError for a leaf that requires a gradient."""
    if not mode().grad:
        return False
    if target.tracked and target.node is None:
        raise GraphError(
            f"x {symbol} on a leaf that requires a gradient (shape {target.shape}): its data is unchanged; "
            "write under en.no_grad(), or make a new tensor"
        )
    return target.tracked or (isinstance(value, Tensor) and value.tracked)


def _checked(target: Tensor, value: Any, symbol: str) -> None:
    if value.shape != target.shape:
        raise ValueError(
            f"x {symbol}: the result has shape {value.shape}, the target {target.shape}; "
            "an in-place change cannot alter the shape"
        )
    if not np.can_cast(value.dtype, target.dtype, "same_kind") and value.dtype != target.dtype:
        raise TypeError(f"x {symbol}: the result has dtype {value.dtype}, the target {target.dtype}; use .astype first")


def _rebind(target: Tensor, made: Tensor, symbol: str) -> None:
    _checked(target, made.data, symbol)
    if made.dtype != target.dtype:
        made = made.astype(target.dtype)
    target.data, target.node, target.tracked = made.data, made.node, made.tracked


def _write(target: Tensor, value: Any, symbol: str) -> None:
    _checked(target, value, symbol)
    target.data[...] = value
    wrote(target.data)


INPLACE = {
    "__iadd__": updater(elementwise.add, "+="),
    "__isub__": updater(elementwise.sub, "-="),
    "__imul__": updater(elementwise.mul, "*="),
    "__itruediv__": updater(elementwise.div, "/="),
    "__ipow__": updater(elementwise.pow, "**="),
    "__imatmul__": updater(linalg.matmul, "@="),
    "__setitem__": setitem,
}

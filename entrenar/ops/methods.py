"""Operators and methods of Tensor: installed here, because ops stand above the tape."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..array import as_dtype, is_float, to_device
from ..autograd import Tensor
from ..autograd.linear import cast, identity
from . import (
    activations,
    cumulative,
    elementwise,
    exponential,
    index,
    integral,
    joining,
    linalg,
    order,
    reduce,
    shape,
    trigonometric,
)
from .inplace import INPLACE

# ops whose first argument is the tensor, under their own name
NAMED: dict[Any, tuple[str, ...]] = {
    elementwise: (
        "add",
        "sub",
        "mul",
        "div",
        "neg",
        "pow",
        "square",
        "sqrt",
        "rsqrt",
        "reciprocal",
        "abs",
        "sign",
        "maximum",
        "minimum",
        "clip",
        "floor",
        "ceil",
        "round",
    ),
    exponential: ("exp", "expm1", "log", "log1p", "log2", "sinh", "cosh", "tanh", "sigmoid", "softplus", "erf"),
    trigonometric: ("sin", "cos", "tan"),
    reduce: ("sum", "mean", "prod", "max", "min", "var", "std", "norm", "logsumexp"),
    cumulative: ("cumsum", "cumprod"),
    order: ("argmax", "argmin", "any", "all", "sort", "argsort", "topk"),
    joining: ("split",),
    shape: (
        "moveaxis",
        "swapaxes",
        "squeeze",
        "unsqueeze",
        "flip",
        "roll",
        "tile",
        "repeat",
        "flatten",
        "ravel",
        "broadcast_to",
    ),
    index: ("gather", "scatter", "scatter_add", "index_fill", "index_put", "take", "tril", "triu", "masked_fill"),
    linalg: ("matmul", "dot", "outer", "trace"),
    activations: ("relu", "gelu", "silu", "softmax", "log_softmax"),
}

BINARY: dict[str, Callable[..., Any]] = {
    "add": elementwise.add,
    "sub": elementwise.sub,
    "mul": elementwise.mul,
    "truediv": elementwise.div,
    "matmul": linalg.matmul,
    "floordiv": integral.floor_divide,
    "mod": integral.remainder,
    "and": integral.bitwise_and,
    "or": integral.bitwise_or,
    "xor": integral.bitwise_xor,
}
COMPARE: dict[str, Callable[..., Any]] = {
    "eq": elementwise.equal,
    "ne": elementwise.not_equal,
    "lt": elementwise.less,
    "le": elementwise.less_equal,
    "gt": elementwise.greater,
    "ge": elementwise.greater_equal,
}


def _swapped(op: Callable[..., Any]) -> Callable[[Tensor, Any], Any]:
    return lambda self, other: op(other, self)


def _compared(op: Callable[..., Any]) -> Callable[[Tensor, Any], Any]:
    """A comparison; with what is no number (None, text) Python's own answer stands."""
    return lambda self, other: NotImplemented if other is None or isinstance(other, str) else op(self, other)


def _power(self: Tensor, exponent: Any) -> Tensor:
    if exponent.__class__ in (int, float) and exponent == 2:
        return elementwise.square(self)
    return elementwise.pow(self, exponent)


def _many(sizes: tuple[Any, ...]) -> Any:
    """x.reshape(2, 3) and x.reshape((2, 3)) mean the same."""
    return sizes[0] if len(sizes) == 1 and not isinstance(sizes[0], (int, np.integer)) else sizes


def reshape(self: Tensor, *sizes: Any) -> Tensor:
    """The same elements in another shape: ``x.reshape(2, 3)`` or ``x.reshape((2, 3))``; one size may be -1."""
    return shape.reshape(self, _many(sizes))


def transpose(self: Tensor, *axes: Any) -> Tensor:
    """Axes permuted as numpy's: reversed without arguments, else ``x.transpose(1, 0)`` or ``x.transpose((1, 0))``."""
    return shape.transpose(self, _many(axes) if axes and axes != (None,) else None)


def permute(self: Tensor, *axes: Any) -> Tensor:
    """Axes in the order given."""
    return shape.permute(self, _many(axes))


def expand(self: Tensor, *sizes: Any) -> Tensor:
    """Size-1 axes stretched (a view); -1 keeps a size."""
    return shape.expand(self, _many(sizes))


def astype(self: Tensor, dtype: Any) -> Tensor:
    """This tensor in another dtype; between floats the gradient flows back, cast to this dtype."""
    wanted = as_dtype(dtype)
    if wanted == self.data.dtype:
        return self
    if is_float(wanted) and is_float(self.data.dtype):
        return cast(self, dtype=wanted)
    return Tensor(self.data.astype(wanted))


def to(self: Tensor, *targets: Any, device: str | None = None, dtype: Any = None) -> Tensor:
    """This tensor on a device (``"cpu"``, ``"cuda:0"``) and/or in a dtype."""
    out = self
    for target in (*targets, device, dtype):
        if isinstance(target, str) and target.partition(":")[0] in ("cpu", "cuda"):
            if not self.device.startswith(target):
                out = _moved(out, target)
        elif target is not None:
            out = astype(out, target)
    return out


def _moved(self: Tensor, device: str) -> Tensor:
    if self.tracked:
        raise TypeError(f"to({device!r}) of a tensor that requires a gradient is not recorded: move leaves before use")
    return Tensor(to_device(self.data, device))


def clone(self: Tensor) -> Tensor:
    """A copy with memory of its own, on the tape."""
    made = identity(self)
    made.data = made.data.copy()
    return made


def _length(self: Tensor) -> int:
    if self.ndim == 0:
        raise TypeError("len() of a 0-d tensor")
    return int(self.data.shape[0])


def _rows(self: Tensor) -> Iterator[Tensor]:
    if self.ndim == 0:
        raise TypeError("iteration over a 0-d tensor")
    return (self[i] for i in range(self.data.shape[0]))


def _number(kind: type) -> Callable[[Tensor], Any]:
    def convert(self: Tensor) -> Any:
        if self.tracked:
            raise TypeError(
                f"{kind.__name__}() of a tensor that requires a gradient would drop it: use .item() for a number; to "
                "assign it into an array, make the array a Tensor (en.tensor(array)[i] = value records the assignment)"
            )
        if self.size != 1:
            raise ValueError(f"{kind.__name__}() needs a tensor of one element, got shape {self.shape}")
        return kind(self.data.item())

    return convert


def _show(self: Tensor) -> str:
    text = np.array2string(
        self.data if isinstance(self.data, np.ndarray) else self.data.get(), separator=", ", prefix="tensor("
    )
    extras = "" if self.dtype in (np.float32, np.int64, np.bool_) else f", dtype={self.dtype}"
    if self.tracked:
        extras += ", requires_grad=True" if self.node is None else f", op={self.node.op.name}"
    return f"tensor({text}{extras})"


def _html(self: Tensor) -> str:
    import html

    kind = "leaf" if self.is_leaf else self.node.op.name
    return f"<code>Tensor {self.shape} {self.dtype} {kind}</code><pre>{html.escape(_show(self))}</pre>"


def _format(self: Tensor, spec: str) -> str:
    return format(self.item(), spec) if spec else _show(self)


def install() -> None:
    """Give Tensor its operators and methods."""
    for module, names in NAMED.items():
        for name in names:
            setattr(Tensor, name, getattr(module, name))
    for name, op in BINARY.items():
        setattr(Tensor, f"__{name}__", op)
        setattr(Tensor, f"__r{name}__", _swapped(op))
    for name, op in COMPARE.items():
        setattr(Tensor, f"__{name}__", _compared(op))
    for name, method in INPLACE.items():
        setattr(Tensor, name, method)
    special: dict[str, Any] = {
        "__pow__": _power,
        "__rpow__": _swapped(elementwise.pow),
        "__neg__": elementwise.neg,
        "__abs__": elementwise.abs,
        "__invert__": integral.invert,
        "__round__": lambda self, decimals=0: elementwise.round(self, decimals or 0),
        "__divmod__": lambda self, other: (self // other, self % other),
        "__pos__": lambda self: self,
        "__getitem__": index.getitem,
        "__len__": _length,
        "__iter__": _rows,
        "__float__": _number(float),
        "__int__": _number(int),
        "__bool__": _number(bool),
        "__repr__": _show,
        "__format__": _format,
        "_repr_html_": _html,
        "__hash__": object.__hash__,
        "T": property(shape.transpose),
        "mT": property(lambda self: shape.swapaxes(self, -1, -2)),
    }
    for method in (reshape, transpose, permute, expand, astype, to, clone):
        special[method.__name__] = method
    special["view"] = reshape
    special["cpu"] = lambda self: to(self, "cpu")
    special["cuda"] = lambda self: to(self, "cuda")
    for name, method in special.items():
        setattr(Tensor, name, method)

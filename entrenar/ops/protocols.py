"""NumPy and DLPack protocols of Tensor: ``np.exp(t)``, ``ndarray * t``, ``np.stack([t, a])``, ``np.asarray(t)``."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..array import nearest
from ..autograd import Tensor
from ..autograd.tensor import raw

# NumPy's name -> ours, where they differ
UFUNCS = {
    "subtract": "sub",
    "multiply": "mul",
    "divide": "div",
    "true_divide": "div",
    "negative": "neg",
    "power": "pow",
    "float_power": "pow",
    "absolute": "abs",
    "fabs": "abs",
    "arcsin": "asin",
    "arccos": "acos",
    "arctan": "atan",
    "arctan2": "atan2",
    "arcsinh": "asinh",
    "arccosh": "acosh",
    "arctanh": "atanh",
    "rint": "round",
    "mod": "remainder",
}
REDUCTIONS = {
    "add": "sum",
    "multiply": "prod",
    "maximum": "max",
    "minimum": "min",
    "logical_or": "any",
    "logical_and": "all",
}
FUNCTIONS = {"amax": "max", "amin": "min", "around": "round", "vstack": "vstack"}
ATTRIBUTES = {"shape": "shape", "ndim": "ndim", "size": "size"}


def namespace() -> dict[str, Any]:
    """Every public op by name."""
    from . import PUBLIC

    return PUBLIC


def array_ufunc(self: Tensor, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
    """A NumPy ufunc on tensors is the op of that name; ``ufunc.reduce`` of add, multiply, maximum, minimum too."""
    if any(o is not None for o in kwargs.pop("out", None) or ()):
        raise TypeError(
            f"np.{ufunc.__name__}(..., out=array) with a Tensor would drop the gradient, as does "
            "array += tensor: write array = array + tensor, or make the target a Tensor (en.tensor(array))"
        )
    table = namespace()
    if method == "__call__" and not kwargs:
        op = table.get(UFUNCS.get(ufunc.__name__, ufunc.__name__))
        if op is not None:
            return op(*inputs)
    if method == "reduce" and ufunc.__name__ in REDUCTIONS:
        given = {k: v for k, v in {"axis": 0, **kwargs}.items() if v is not None or k == "axis"}
        return table[REDUCTIONS[ufunc.__name__]](*inputs, **given)
    return _untracked(
        f"np.{ufunc.__name__}" + ("" if method == "__call__" else f".{method}"),
        ufunc.__name__,
        getattr(ufunc, method),
        inputs,
        kwargs,
    )


def array_function(self: Tensor, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
    """A NumPy function on tensors is the op of that name."""
    if kwargs.get("out") is not None:
        raise TypeError(f"np.{function.__name__}(..., out=array) with a Tensor would drop the gradient")
    name = function.__name__
    if name in ATTRIBUTES and len(args) == 1:
        return getattr(args[0], ATTRIBUTES[name])
    op = namespace().get(FUNCTIONS.get(name, name))
    if op is not None:
        return op(*args, **{k: v for k, v in kwargs.items() if k != "out"})
    return _untracked(f"np.{name}", name, function, args, kwargs)


def _untracked(shown: str, name: str, function: Any, args: Any, kwargs: Any) -> Any:
    """Functions entrenar has no op for run on plain arrays, if nothing would be lost."""
    lost: list[Tensor] = []

    def strip(value: Any) -> Any:
        if isinstance(value, Tensor):
            if value.tracked:
                lost.append(value)
            return value.data
        if isinstance(value, (list, tuple)):
            return type(value)(strip(v) for v in value)
        return value

    plain_args, plain_kwargs = strip(tuple(args)), {k: strip(v) for k, v in kwargs.items()}
    made = function(*plain_args, **plain_kwargs)
    parts = made if isinstance(made, (tuple, list)) else [made]
    if lost and any(np.asarray(p).dtype.kind not in "bi" for p in parts):  # truth and counts carry no gradient anyway
        raise TypeError(
            f"{shown} has no gradient in entrenar.{nearest(name, namespace())} "
            "Use .detach().numpy() if none is wanted, or declare an op with @en.primitive"
        )
    return Tensor(made) if isinstance(made, (np.ndarray, np.generic)) and made.dtype.kind in "biuf" else made


def array(self: Tensor, dtype: Any = None, copy: bool | None = None) -> Any:
    """np.asarray(t).  Raises TypeError for a tracked tensor."""
    if self.tracked:
        raise TypeError(
            "np.asarray() of a tensor that requires a gradient would drop it: use .detach().numpy(); an in-place "
            "assignment of a tracked value needs a Tensor as its target (en.tensor(array)[i] = value is recorded)"
        )
    host = self.numpy()
    if copy is False and dtype is not None and dtype != host.dtype:
        raise ValueError(f"np.asarray(t, dtype={dtype}, copy=False): the tensor has dtype {host.dtype}")
    return np.array(host, dtype=dtype, copy=copy)


def dlpack(self: Tensor, **options: Any) -> Any:
    """The DLPack capsule of the memory.  Raises TypeError for a tracked tensor."""
    if self.tracked:
        raise TypeError("DLPack export of a tensor that requires a gradient would drop it: use .detach() first")
    return self.data.__dlpack__(**options)


def install() -> None:
    """Give Tensor the protocols."""
    methods = {
        "__array_ufunc__": array_ufunc,
        "__array_function__": array_function,
        "__array__": array,
        "__dlpack__": dlpack,
        "__dlpack_device__": lambda self: self.data.__dlpack_device__(),
        "__array_priority__": 1000,
        "__cuda_array_interface__": property(lambda self: raw(self).__cuda_array_interface__),
    }
    for name, method in methods.items():
        setattr(Tensor, name, method)

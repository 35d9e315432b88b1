"""Tensor: an array, and the edge of the tape it came from.  Operators and ops are installed by the floor above."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from ..array import Array, DType, as_array, device_of, is_float
from .tape import Hook, hooks_of, version, wrote


class Tensor:
    """An n-dimensional array with a gradient.

    data: array-like; NumPy's dtype is kept, Python floats take the default dtype.  requires_grad: record ops on it.
    Raises TypeError for complex, object and string data, and for ``requires_grad`` of integers and booleans.
    """

    # tracked is requires_grad without the property's cost; node is None for a leaf
    __slots__ = ("__weakref__", "data", "grad", "node", "tracked")
    data: Array
    grad: Tensor | None
    node: Any
    tracked: bool

    def __init__(self, data: Any, requires_grad: bool = False, dtype: Any = None) -> None:
        if isinstance(data, Tensor):
            data = data.data
        self.data = as_array(data, dtype)
        self.grad = None
        self.node = None
        self.tracked = False
        if requires_grad:
            self.requires_grad = True

    @staticmethod
    def from_vec(values: Any, requires_grad: bool = False) -> Tensor:
        """A 1-d tensor of the default dtype from a sequence of numbers (the data is copied)."""
        from ..array import default_dtype

        return Tensor(np.array(values, dtype=default_dtype()).reshape(-1), requires_grad)

    # what it is -----------------------------------------------------------------------------------------------
    # attrgetter runs in C: the pullbacks ask every leaf edge for these two
    shape: tuple[int, ...] = property(attrgetter("data.shape"), doc="Sizes of the axes.")  # type: ignore[assignment]
    dtype: DType = property(attrgetter("data.dtype"), doc="The NumPy dtype.")  # type: ignore[assignment]

    @property
    def ndim(self) -> int:
        return self.data.ndim

    @property
    def size(self) -> int:
        return int(self.data.size)

    @property
    def nbytes(self) -> int:
        return int(self.data.nbytes)

    @property
    def itemsize(self) -> int:
        return int(self.data.itemsize)

    @property
    def device(self) -> str:
        """``"cpu"`` or ``"cuda:<n>"``."""
        return device_of(self.data)

    @property
    def version(self) -> int:
        """How often the library wrote into this tensor's memory in place."""
        return version(self.data)

    @property
    def is_leaf(self) -> bool:
        """True unless an op on the tape made it."""
        return self.node is None

    @property
    def requires_grad(self) -> bool:
        return self.tracked

    @requires_grad.setter
    def requires_grad(self, wanted: bool) -> None:
        if wanted and not is_float(self.data.dtype):
            raise TypeError(
                f"a tensor of dtype {self.data.dtype} cannot require a gradient: only floats can; "
                "use .astype(float32) first"
            )
        if not wanted and self.node is not None:
            raise ValueError("requires_grad=False on a tensor that an op made: use .detach()")
        self.tracked = bool(wanted)

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Set ``requires_grad`` and return self."""
        self.requires_grad = requires_grad
        return self

    # leaving the tape -----------------------------------------------------------------------------------------
    def detach(self) -> Tensor:
        """The same memory, off the tape."""
        return Tensor(self.data)

    def numpy(self) -> np.ndarray[Any, Any]:
        """The memory as a NumPy array.  Raises TypeError for a tracked tensor (use ``.detach().numpy()``)."""
        if self.tracked:
            raise TypeError("numpy() of a tensor that requires a gradient would drop it: use .detach().numpy()")
        return self.data if isinstance(self.data, np.ndarray) else self.data.get()

    def item(self) -> float | int | bool:
        """The one element as a Python number.  Raises ValueError if there isn't exactly one."""
        if self.data.size != 1:
            raise ValueError(f"item() needs a tensor of one element, got shape {self.shape}")
        return self.data.item()

    def tolist(self) -> Any:
        """Nested lists of Python numbers."""
        return self.data.tolist()

    # gradients ------------------------------------------------------------------------------------------------
    def backward(self, gradient: Any = None, retain_graph: bool | None = None, create_graph: bool = False) -> None:
        """Add d self / d leaf to ``leaf.grad`` for every leaf that requires a gradient.

        gradient: the cotangent, of self's shape and dtype; may be left out for a scalar.
        """
        from .backward import backward

        backward(self, gradient, retain_graph, create_graph)

    def zero_grad(self) -> None:
        """Forget the gradient (sets ``grad`` to None)."""
        self.grad = None

    def register_hook(self, hook: Hook) -> Callable[[], None]:
        """Call ``hook(gradient)`` when this tensor's gradient is known; what it returns, if not None, replaces it.

        Returns a function that removes the hook.
        """
        if not self.tracked:
            raise ValueError("register_hook on a tensor that does not require a gradient")
        hooks = hooks_of(self if self.node is None else self.node)
        hooks.append(hook)
        return lambda: hooks.remove(hook) if hook in hooks else None

    def retain_grad(self) -> None:
        """Keep the gradient of a tensor that is not a leaf in ``grad`` too."""
        if self.node is None:
            return
        import weakref

        me = weakref.ref(self)

        def keep(gradient: Tensor) -> None:
            tensor = me()
            if tensor is not None:
                owned = gradient if gradient.tracked else Tensor(gradient.data.copy())
                tensor.grad = owned if tensor.grad is None else Tensor(tensor.grad.data + owned.data)

        self.register_hook(keep)

    # copies ---------------------------------------------------------------------------------------------------
    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        if self.node is not None:
            raise TypeError("deepcopy of a tensor that an op made would cut its graph: use .detach() or .clone()")
        made = object.__new__(type(self))
        memo[id(self)] = made
        made.data = self.data.copy()
        made.node, made.tracked = None, self.tracked
        made.grad = None if self.grad is None else Tensor(self.grad.data.copy())
        for name, value in getattr(self, "__dict__", {}).items():
            setattr(made, name, value)
        return made

    def __reduce__(self) -> Any:
        raise TypeError("entrenar never pickles: save tensors with en.io (safetensors), or pass .detach().numpy()")

    def write(self, values: Any) -> None:
        """Overwrite the memory in place and move its version on; the tape refuses what it had saved of it."""
        self.data[...] = values
        wrote(self.data)

    __hash__ = object.__hash__

    if TYPE_CHECKING:  # installed by ops/methods.py

        def __getattr__(self, name: str) -> Any: ...
        def __add__(self, other: Any) -> Tensor: ...
        def __radd__(self, other: Any) -> Tensor: ...
        def __sub__(self, other: Any) -> Tensor: ...
        def __rsub__(self, other: Any) -> Tensor: ...
        def __mul__(self, other: Any) -> Tensor: ...
        def __rmul__(self, other: Any) -> Tensor: ...
        def __truediv__(self, other: Any) -> Tensor: ...
        def __rtruediv__(self, other: Any) -> Tensor: ...
        def __pow__(self, other: Any) -> Tensor: ...
        def __matmul__(self, other: Any) -> Tensor: ...
        def __neg__(self) -> Tensor: ...
        def __getitem__(self, index: Any) -> Tensor: ...
        def __setitem__(self, index: Any, value: Any) -> None: ...
        def __len__(self) -> int: ...


def edge_of(tensor: Tensor) -> Any:
    """The edge that stands for ``tensor`` on the tape: its node, itself for a leaf, None if untracked."""
    if not tensor.tracked:
        return None
    return tensor if tensor.node is None else tensor.node


def at_edge(array: Array, edge: Any) -> Tensor:
    """A tensor over ``array`` that stands at ``edge``: how a pullback sees a saved value under create_graph."""
    tensor: Tensor = object.__new__(Tensor)
    tensor.data, tensor.grad, tensor.node, tensor.tracked = array, None, edge, edge is not None
    return tensor


def raw(x: Any) -> Any:
    """The array of a Tensor; anything else as it is."""
    return x.data if isinstance(x, Tensor) else x


def settle(y: Any) -> Any:
    """What a forward or pullback on 0-d arrays returns (NumPy scalars), as the 0-d array it stands for."""
    if isinstance(y, tuple):
        return tuple(settle(v) for v in y)
    return y if hasattr(y, "shape") and not isinstance(y, np.generic) else np.asarray(y)

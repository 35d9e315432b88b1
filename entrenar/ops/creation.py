"""Making tensors: from data, filled, ranges, random."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..array import Generator, as_array, as_dtype, default_dtype, default_generator, to_device, xp
from ..autograd import Tensor
from ..autograd.tensor import raw

Shape = int | tuple[int, ...]

__all__ = [
    "arange",
    "empty",
    "empty_like",
    "eye",
    "from_dlpack",
    "from_numpy",
    "full",
    "full_like",
    "linspace",
    "ones",
    "ones_like",
    "rand",
    "rand_like",
    "randint",
    "randn",
    "randn_like",
    "randperm",
    "tensor",
    "zeros",
    "zeros_like",
]


def tensor(data: Any, dtype: Any = None, requires_grad: bool = False, device: str = "cpu") -> Tensor:
    """A tensor with a copy of ``data``.

    NumPy's dtype is kept; Python floats (and lists of them) take the default dtype, float32.  Raises TypeError for
    complex, strings and objects, and for ``requires_grad`` of integers.

    >>> import entrenar as en
    >>> en.tensor([1.0, 2.0])
    tensor([1., 2.])
    """
    array = as_array(raw(data) if not isinstance(data, (list, tuple)) else _nested(data), dtype)
    return Tensor(to_device(array.copy(), device), requires_grad)


def _nested(data: Any) -> Any:
    """Lists that contain tensors, as lists of arrays."""
    if isinstance(data, (list, tuple)):
        return [_nested(v) for v in data]
    if isinstance(data, Tensor) and data.tracked:
        raise TypeError("en.tensor of tensors that require a gradient would drop it: join them with en.stack")
    return data.numpy() if isinstance(data, Tensor) else data


def from_numpy(array: Any) -> Tensor:
    """A tensor over the memory of an ndarray (no copy).  Raises TypeError for anything else."""
    if not isinstance(array, np.ndarray):
        raise TypeError(f"from_numpy needs a numpy.ndarray, got {type(array).__name__}; use en.tensor")
    return Tensor(array)


def from_dlpack(other: Any) -> Tensor:
    """A tensor over the memory of any object with ``__dlpack__`` (no copy)."""
    if isinstance(other, Tensor):
        return other.detach()
    return Tensor(np.from_dlpack(other))


def _filled(shape: tuple[Any, ...]) -> tuple[int, ...]:
    """zeros(2, 3), zeros((2, 3)) and zeros(2) all name a shape."""
    if len(shape) == 1 and not isinstance(shape[0], (int, np.integer)):
        shape = tuple(shape[0])
    for n in shape:
        if isinstance(n, bool) or not isinstance(n, (int, np.integer)) or n < 0:
            raise ValueError(f"a shape is made of non-negative integers, got {shape}")
    return tuple(int(n) for n in shape)


def _dtype(dtype: Any) -> Any:
    return default_dtype() if dtype is None else as_dtype(dtype)


def zeros(*shape: Any, dtype: Any = None, requires_grad: bool = False, device: str = "cpu") -> Tensor:
    """Zeros of a shape, in the default dtype unless given."""
    return Tensor(to_device(np.zeros(_filled(shape), _dtype(dtype)), device), requires_grad)


def ones(*shape: Any, dtype: Any = None, requires_grad: bool = False, device: str = "cpu") -> Tensor:
    """Ones of a shape, in the default dtype unless given."""
    return Tensor(to_device(np.ones(_filled(shape), _dtype(dtype)), device), requires_grad)


def empty(*shape: Any, dtype: Any = None, requires_grad: bool = False, device: str = "cpu") -> Tensor:
    """Uninitialised memory of a shape, in the default dtype unless given."""
    return Tensor(to_device(np.empty(_filled(shape), _dtype(dtype)), device), requires_grad)


def full(shape: Shape, fill_value: Any, dtype: Any = None, requires_grad: bool = False, device: str = "cpu") -> Tensor:
    """``fill_value`` everywhere; the dtype follows the value as in ``tensor``."""
    value = as_array(raw(fill_value), dtype)
    return Tensor(to_device(np.full(_filled((shape,)), value, value.dtype), device), requires_grad)


def arange(*bounds: Any, dtype: Any = None, requires_grad: bool = False, device: str = "cpu") -> Tensor:
    """numpy.arange; Python floats give the default dtype."""
    made = np.arange(*bounds)
    if dtype is None and made.dtype == np.float64 and not any(isinstance(b, np.generic) for b in bounds):
        dtype = default_dtype()
    return Tensor(to_device(as_array(made, made.dtype if dtype is None else dtype), device), requires_grad)


def linspace(
    start: float,
    stop: float,
    num: int = 50,
    *,
    endpoint: bool = True,
    dtype: Any = None,
    requires_grad: bool = False,
    device: str = "cpu",
) -> Tensor:
    """``num`` evenly spaced values, in the default dtype unless given."""
    made = np.linspace(start, stop, num, endpoint=endpoint).astype(_dtype(dtype))
    return Tensor(to_device(made, device), requires_grad)


def eye(
    n: int, m: int | None = None, *, k: int = 0, dtype: Any = None, requires_grad: bool = False, device: str = "cpu"
) -> Tensor:
    """Ones on diagonal ``k`` of an (n, m) matrix of zeros."""
    return Tensor(to_device(np.eye(n, m, k, dtype=_dtype(dtype)), device), requires_grad)


def _random(draw: Any, shape: tuple[Any, ...], dtype: Any, requires_grad: bool, device: str) -> Tensor:
    return Tensor(to_device(draw(_filled(shape), dtype), device), requires_grad)


def rand(
    *shape: Any, dtype: Any = None, requires_grad: bool = False, device: str = "cpu", generator: Generator | None = None
) -> Tensor:
    """Uniform in [0, 1), by counter (Philox): the same bits on every backend."""
    return _random((generator or default_generator).uniform, shape, dtype, requires_grad, device)


def randn(
    *shape: Any, dtype: Any = None, requires_grad: bool = False, device: str = "cpu", generator: Generator | None = None
) -> Tensor:
    """Standard normal, by counter (Philox, then Box and Muller)."""
    return _random((generator or default_generator).normal, shape, dtype, requires_grad, device)


def randint(
    low: int,
    high: int | None = None,
    shape: Shape = (),
    *,
    dtype: Any = np.int64,
    device: str = "cpu",
    generator: Generator | None = None,
) -> Tensor:
    """Integers in [low, high), or [0, low) if only one bound is given."""
    if high is None:
        low, high = 0, low
    made = (generator or default_generator).integers(low, high, _filled((shape,)), as_dtype(dtype))
    return Tensor(to_device(made, device))


def randperm(n: int, *, generator: Generator | None = None) -> Tensor:
    """A random order of range(n), int64."""
    return Tensor((generator or default_generator).permutation(n))


def _like(x: Any, dtype: Any) -> tuple[tuple[int, ...], Any, str]:
    array = as_array(raw(x))
    return array.shape, array.dtype if dtype is None else as_dtype(dtype), "cpu" if xp(array) is np else "cuda"


def zeros_like(x: Any, dtype: Any = None, requires_grad: bool = False) -> Tensor:
    """Zeros of x's shape, dtype and device."""
    shape, dtype, device = _like(x, dtype)
    return zeros(shape, dtype=dtype, requires_grad=requires_grad, device=device)


def ones_like(x: Any, dtype: Any = None, requires_grad: bool = False) -> Tensor:
    """Ones of x's shape, dtype and device."""
    shape, dtype, device = _like(x, dtype)
    return ones(shape, dtype=dtype, requires_grad=requires_grad, device=device)


def empty_like(x: Any, dtype: Any = None, requires_grad: bool = False) -> Tensor:
    """Uninitialised memory of x's shape, dtype and device."""
    shape, dtype, device = _like(x, dtype)
    return empty(shape, dtype=dtype, requires_grad=requires_grad, device=device)


def full_like(x: Any, fill_value: Any, dtype: Any = None, requires_grad: bool = False) -> Tensor:
    """``fill_value`` in x's shape, dtype and device."""
    shape, dtype, device = _like(x, dtype)
    return full(shape, fill_value, dtype, requires_grad, device)


def rand_like(x: Any, dtype: Any = None, requires_grad: bool = False, generator: Generator | None = None) -> Tensor:
    """Uniform in [0, 1) of x's shape, dtype and device."""
    shape, dtype, device = _like(x, dtype)
    return rand(shape, dtype=dtype, requires_grad=requires_grad, device=device, generator=generator)


def randn_like(x: Any, dtype: Any = None, requires_grad: bool = False, generator: Generator | None = None) -> Tensor:
    """Standard normal of x's shape, dtype and device."""
    shape, dtype, device = _like(x, dtype)
    return randn(shape, dtype=dtype, requires_grad=requires_grad, device=device, generator=generator)

"""Arrays seen as rows of real numbers, their precision, and the memory layouts a gradient must not depend on.

A complex array of n elements has 2n real coordinates: re, im, re, im ...  With gradients read as
dL/d(re) + i dL/d(im) the complex case is then nothing but the real one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]
Arrays: TypeAlias = tuple[Array, ...]
Layout: TypeAlias = Callable[[Array, np.random.Generator], Array]

DOUBLE = float(np.finfo(np.float64).eps)

# Spacing at 1 of the floats that NumPy knows only through an extension (ml_dtypes).
EXTENSION_FLOATS = {"bfloat16": 2.0**-7}


def is_float(dtype: np.dtype[Any]) -> bool:
    """True for real and complex floating-point dtypes: those a gradient can be taken of."""
    return bool(np.issubdtype(dtype, np.inexact)) or dtype.name in EXTENSION_FLOATS


def epsilon(dtype: np.dtype[Any]) -> float:
    """The spacing of ``dtype`` at 1; never below float64's, as all comparisons are made in float64."""
    if dtype.name in EXTENSION_FLOATS:
        return EXTENSION_FLOATS[dtype.name]
    return max(float(np.finfo(dtype).eps), DOUBLE) if is_float(dtype) else DOUBLE


def coarsest(arrays: Arrays) -> float:
    """The largest spacing among the dtypes of ``arrays``."""
    return max((epsilon(a.dtype) for a in arrays), default=DOUBLE)


def doubled(array: Array) -> Array:
    """The same values in float64 or complex128."""
    return array.astype(np.complex128 if np.iscomplexobj(array) else np.float64)


def to_real(array: Array) -> Array:
    """The real coordinates of ``array`` as a new float64 vector."""
    flat = np.array(array, order="C").reshape(-1)
    if np.iscomplexobj(flat):
        flat = flat.view(flat.real.dtype)
    return flat.astype(np.float64)


def from_real(coordinates: Array, like: Array) -> Array:
    """A new contiguous array of ``like``'s shape and dtype with these real coordinates."""
    if np.iscomplexobj(like):
        coordinates = coordinates[0::2] + 1j * coordinates[1::2]
    with np.errstate(over="ignore", invalid="ignore"):
        return np.array(coordinates, dtype=like.dtype).reshape(like.shape)


def coordinates_of(array: Array) -> int:
    """How many real numbers ``array`` holds."""
    return int(array.size) * (2 if np.iscomplexobj(array) else 1)


def pack(arrays: Arrays) -> Array:
    """The real coordinates of several arrays, one after the other."""
    return to_real(arrays[0]) if len(arrays) == 1 else np.concatenate([to_real(a) for a in arrays] or [np.zeros(0)])


def unpack(coordinates: Array, like: Arrays) -> Arrays:
    """The inverse of ``pack``: new arrays of ``like``'s shapes and dtypes."""
    ends = np.cumsum([coordinates_of(a) for a in like])
    return tuple(from_real(part, a) for part, a in zip(np.split(coordinates, ends[:-1]), like, strict=True))


def place(coordinate: int, array: Array) -> str:
    """Where a real coordinate sits: ``element (1, 2)``, ``element (0,), imaginary part``."""
    part = ""
    if np.iscomplexobj(array):
        coordinate, odd = divmod(coordinate, 2)
        part = ", imaginary part" if odd else ", real part"
    index = tuple(int(i) for i in np.unravel_index(coordinate, array.shape)) if array.ndim else ()
    return f"element {index}{part}"


# layouts: the same values, elsewhere in memory -------------------------------------------------------------------
def strided(array: Array, rng: np.random.Generator) -> Array:
    """Every second element of a larger array whose gaps hold other numbers, so that a flat read shows."""
    if array.ndim == 0:
        return array.copy()
    wide = np.repeat(array, 2, axis=-1)
    wide[..., 1::2] = from_real(rng.uniform(1.0, 2.0, coordinates_of(array)), array)
    return wide[..., ::2]


def backward(array: Array, rng: np.random.Generator) -> Array:
    """Negative strides along every axis."""
    return np.flip(np.flip(array).copy())


def column_major(array: Array, rng: np.random.Generator) -> Array:
    """First axis fastest: what a transposed array looks like."""
    return array.T.copy().T


def constant(array: Array, rng: np.random.Generator) -> Array:
    """Stride 0 along every axis: the first element, seen everywhere.  Writable, to see who writes into it."""
    if array.size == 0:
        return array.copy()
    return as_strided(array.reshape(-1)[:1].copy(), array.shape, (0,) * array.ndim)


def repeated_rows(array: Array, rng: np.random.Generator) -> Array:
    """Stride 0 along the first axis only: the first row, seen again and again."""
    if array.size == 0:
        return array.copy()
    row = array[0].copy()
    return as_strided(row, array.shape, (0, *row.strides))


def overlaps_itself(array: Array) -> bool:
    """True for a view in which one memory cell is several elements (stride 0), as expand and broadcast make."""
    stretched = any(stride == 0 and size > 1 for stride, size in zip(array.strides, array.shape, strict=True))
    return array.size > 0 and stretched

"""Dtypes: the float kinds, the default one, bfloat16 without importing ml_dtypes early, and where sums accumulate."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = Any  # numpy.ndarray, cupy.ndarray or a Tensor: ops are polymorphic over them
DType: TypeAlias = "np.dtype[Any]"

FLOAT32 = np.dtype(np.float32)
FLOAT64 = np.dtype(np.float64)
_default = FLOAT32


def bfloat16() -> DType:
    """The bfloat16 dtype (ml_dtypes is imported here, on first use)."""
    import ml_dtypes

    found: DType = np.dtype(ml_dtypes.bfloat16)
    return found


def is_bfloat16(dtype: DType) -> bool:
    """True for ml_dtypes' bfloat16 (its kind is V)."""
    return bool(dtype.kind == "V" and dtype.name == "bfloat16")


def is_float(dtype: DType) -> bool:
    """True for float16, bfloat16, float32, float64: the dtypes that can carry a gradient."""
    return (dtype.kind == "f" and 2 <= dtype.itemsize <= 8) or is_bfloat16(dtype)  # NumPy calls float8_e5m2 an "f" too


def is_low(dtype: DType) -> bool:
    """True for the 16-bit floats, whose sums and products accumulate in float32."""
    return dtype.itemsize == 2 and is_float(dtype)


def wide(x: Array) -> Array:
    """``x`` in the dtype it accumulates in: float32 for the 16-bit floats, otherwise ``x`` itself."""
    return x.astype(FLOAT32) if is_low(x.dtype) else x


def floats(x: Array) -> Array:
    """``wide``, and integers and booleans in float64: for what is a float whatever goes in."""
    return x.astype(FLOAT64) if x.dtype.kind in "biu" else wide(x)


def rounded(y: Array, dtype: DType) -> Array:
    """``y`` rounded once to the dtype of what went in; what was computed from integers stays the float it is."""
    return y if dtype.kind in "biu" else y.astype(dtype, copy=False)


def as_dtype(dtype: Any) -> DType:
    """A NumPy dtype from a dtype, a type or a name; ``"bfloat16"`` and ``"bf16"`` are known.

    Raises TypeError for complex and for what no tensor holds (strings, objects).
    """
    if isinstance(dtype, str) and dtype in ("bfloat16", "bf16"):
        return bfloat16()
    try:
        found: DType = np.dtype(dtype)
    except TypeError:
        raise TypeError(f"unknown dtype {dtype!r}: expected a NumPy dtype or a name (float32, bfloat16 ...)") from None
    check_dtype(found)
    return found


def check_dtype(dtype: DType) -> None:
    """Raise TypeError unless a Tensor can hold ``dtype``."""
    if dtype.kind == "c":
        raise TypeError(
            f"a Tensor cannot hold {dtype}: complex numbers are not supported; "
            "keep real and imaginary parts as two tensors (gradcheck does check plain complex functions)"
        )
    if not (dtype.kind in "biu" or is_float(dtype)):
        raise TypeError(f"a Tensor cannot hold {dtype}: expected a bool, integer or float dtype (at most 64 bits)")


def default_dtype() -> DType:
    """The dtype of ``zeros``, ``randn``, ``nn`` and of lists of Python floats; float32 unless set."""
    return _default


def set_default_dtype(dtype: Any) -> None:
    """Set the default float dtype (a float dtype or its name).  Raises TypeError for any other kind."""
    global _default
    found = as_dtype(dtype)
    if not is_float(found):
        raise TypeError(f"default dtype must be a float dtype, got {found}")
    _default = found


def as_array(value: Any, dtype: Any = None) -> Array:
    """``value`` as an array a Tensor can hold, without a copy where none is needed.

    NumPy's dtype is kept; Python floats (alone or in lists) take the default dtype.  Raises TypeError for
    complex, object and string values, by name.
    """
    if dtype is not None:
        dtype = as_dtype(dtype)
    if hasattr(value, "__array_function__") and hasattr(value, "dtype"):
        array = value if dtype is None or value.dtype == dtype else value.astype(dtype)
    else:
        array = np.asarray(value)
        if dtype is not None:
            array = array.astype(dtype, copy=False)
        elif array.dtype == FLOAT64 and not holds_numpy(value):
            array = array.astype(_default)
    if isinstance(array, np.generic):
        array = np.asarray(array)
    check_dtype(array.dtype)
    return array


def holds_numpy(value: Any) -> bool:
    """True if ``value`` is, or nests, something that brings a dtype of its own (np.float64, an ndarray)."""
    if isinstance(value, (list, tuple)):
        return any(holds_numpy(v) for v in value)
    return hasattr(value, "dtype") or hasattr(value, "__array__") or hasattr(value, "__array_interface__")

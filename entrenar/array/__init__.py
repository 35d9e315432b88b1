"""F0: what every floor above takes for granted about arrays."""

from .dtypes import (
    FLOAT32,
    FLOAT64,
    Array,
    DType,
    as_array,
    as_dtype,
    bfloat16,
    check_dtype,
    default_dtype,
    holds_numpy,
    is_bfloat16,
    is_float,
    is_low,
    set_default_dtype,
    wide,
)
from .errors import AnomalyError, EntrenarError, GraphError, missing_extra, nearest
from .namespace import device_of, to_device, xp
from .random import Generator, default_generator, manual_seed

__all__ = [
    "FLOAT32",
    "FLOAT64",
    "AnomalyError",
    "Array",
    "DType",
    "EntrenarError",
    "Generator",
    "GraphError",
    "as_array",
    "as_dtype",
    "bfloat16",
    "check_dtype",
    "default_dtype",
    "default_generator",
    "device_of",
    "holds_numpy",
    "is_bfloat16",
    "is_float",
    "is_low",
    "manual_seed",
    "missing_extra",
    "nearest",
    "set_default_dtype",
    "to_device",
    "wide",
    "xp",
]

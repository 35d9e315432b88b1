"""Named arrays in safetensors files, exact for every dtype a tensor can have."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..array import nearest
from .atomic import atomic_write
from .errors import DataError

LIMIT = 100_000_000  # bytes of header that readers accept


def save_tensors(path: str | Path, arrays: Mapping[str, Any], metadata: Mapping[str, str] | None = None) -> None:
    """Write arrays (or tensors) and text metadata, atomically.  Views are stored in C order.

    Raises TypeError for what is no array, or metadata that is not text.
    """
    from safetensors.numpy import save

    for key, value in (metadata or {}).items():
        if not isinstance(value, str):
            raise TypeError(f"{path}: metadata {key!r} must be text, got {value!r}")
    held = {}
    for name, value in arrays.items():
        array = np.asarray(value if isinstance(value, np.ndarray) else getattr(value, "data", value))
        if array.dtype.kind == "O":
            raise TypeError(f"{path}: {name!r} is no array: {value!r:.60}")
        held[name] = np.array(array, order="C")  # the library would store a view's memory as it lies
    atomic_write(path, save(held, metadata=dict(metadata or {}) or None))


def load_tensors(path: str | Path) -> tuple[dict[str, Any], dict[str, str]]:
    """(arrays by name, metadata) of a safetensors file.  Raises DataError naming the file and what is wrong."""
    import safetensors

    file = Path(path)
    try:
        content = file.read_bytes()
    except OSError as error:
        raise DataError(f"{file}: cannot be read: {error.strerror or error}") from None
    header = _header(file, content)
    try:
        found = safetensors.deserialize(content)
    except safetensors.SafetensorError as error:
        raise DataError(f"{file}: not a safetensors file, or damaged: {error}") from None
    arrays = {name: _array(info) for name, info in found}
    return arrays, header.get("__metadata__", {})


def _header(file: Path, content: bytes) -> dict[str, Any]:
    """The JSON header; sizes are checked here so that the message has them."""
    if len(content) < 8:
        raise DataError(f"{file}: {len(content)} bytes are too few for a safetensors file")
    (size,) = struct.unpack("<Q", content[:8])
    if size > LIMIT or 8 + size > len(content):
        raise DataError(f"{file}: the header says {size} bytes, the file has {len(content) - 8} after the length")
    try:
        header = json.loads(content[8 : 8 + size])
    except ValueError as error:
        raise DataError(f"{file}: the header is not JSON: {error}") from None
    end = max((info["data_offsets"][1] for name, info in header.items() if name != "__metadata__"), default=0)
    if 8 + size + end != len(content):
        raise DataError(f"{file}: the header describes {8 + size + end} bytes, the file has {len(content)}")
    return dict(header)


_NAMES = {
    "F64": "f8",
    "F32": "f4",
    "F16": "f2",
    "I64": "i8",
    "I32": "i4",
    "I16": "i2",
    "I8": "i1",
    "U64": "u8",
    "U32": "u4",
    "U16": "u2",
    "U8": "u1",
    "BOOL": "?",
}


def _array(info: dict[str, Any]) -> Any:
    if info["dtype"] == "BF16":
        from ..array import bfloat16

        dtype = bfloat16()
    elif info["dtype"] in _NAMES:
        dtype = np.dtype(_NAMES[info["dtype"]])
    else:
        raise DataError(f"dtype {info['dtype']} is not supported.{nearest(info['dtype'], _NAMES)}")
    return np.frombuffer(bytearray(info["data"]), dtype=dtype).reshape(info["shape"])

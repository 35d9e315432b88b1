"""Named arrays in safetensors files, exact for every dtype a tensor can have."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from ..array import nearest, to_device, xp
from .atomic import atomic_write
from .mapped import LIMIT, METADATA, dtypes, open_tensors


def save_tensors(path: str | Path, arrays: Mapping[str, Any], metadata: Mapping[str, str] | None = None) -> None:
    """Write arrays (or tensors) and text metadata, atomically.  Views are stored in C order.

    The bytes are those that the safetensors library writes.  Raises TypeError for what is no array, a dtype that the
    format lacks, names or metadata that are not text; ValueError for a header above 100 MB.
    """
    held = {name: as_stored(path, name, value) for name, value in arrays.items()}
    start = header(path, held, metadata)
    atomic_write(path, lambda file: write(file, start, held))


def load_tensors(path: str | Path) -> tuple[dict[str, Any], dict[str, str]]:
    """(arrays by name, metadata) of a safetensors file, in memory of their own, never beside the file's.

    Raises DataError as ``open_tensors`` does.
    """
    arrays = {}
    with open_tensors(path) as file:
        for name in file:
            arrays[name] = np.empty(file.entry(name).shape, file.entry(name).dtype)
            file.copy_to(name, arrays[name])
        return arrays, file.metadata


def as_stored(path: str | Path, name: str, value: Any) -> Any:
    """The array of an array or tensor, where it lies; TypeError for what the format cannot hold."""
    if not isinstance(name, str) or name == METADATA:
        raise TypeError(f"{path}: {name!r} cannot be the name of a tensor")
    array = value if isinstance(value, np.ndarray) else getattr(value, "data", value)
    if xp(array) is np:
        array = np.asarray(array)
    if array.dtype.kind == "O":
        raise TypeError(f"{path}: {name!r} is no array: {value!r:.60}")
    dtype_name(path, name, array)
    return array


def dtype_name(path: str | Path, name: str, array: Any) -> str:
    """The format's name of an array's dtype; TypeError that names the tensor if it has none."""
    little = array.dtype.newbyteorder("<")
    for stored, dtype in dtypes().items():
        if dtype == little:
            return stored
    known = [dtype.name for dtype in dtypes().values()]
    raise TypeError(
        f"{path}: {name!r} is {array.dtype.name}, which safetensors cannot hold.{nearest(array.dtype.name, known)}"
    )


def header(path: str | Path, arrays: Mapping[str, Any], metadata: Mapping[str, str] | None) -> bytes:
    """What stands before the tensors: the largest alignment first, then by name, so that all of them are aligned."""
    for key, value in (metadata or {}).items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise TypeError(f"{path}: metadata {key!r} must be text, got {value!r}")
    table: dict[str, Any] = {METADATA: dict(metadata)} if metadata else {}
    at = 0
    for name in _order(arrays):
        array = arrays[name]
        stored = dtype_name(path, name, array)
        table[name] = {"dtype": stored, "shape": list(array.shape), "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
    try:
        text = json.dumps(table, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError as error:
        raise TypeError(f"{path}: a name or metadata is not text: {error}") from None
    text += b" " * (-len(text) % 8)
    if len(text) > LIMIT:
        raise ValueError(
            f"{path}: the header would have {len(text)} bytes, readers accept {LIMIT}: store fewer tensors"
        )
    return len(text).to_bytes(8, "little") + text


def write(file: BinaryIO, start: bytes, arrays: Mapping[str, Any]) -> None:
    """The header, then one tensor after the other: only a view, or what is on a device, is copied, one at a time."""
    file.write(start)
    for name in _order(arrays):
        array = np.ascontiguousarray(to_device(arrays[name], "cpu"))
        array = array.astype(array.dtype.newbyteorder("<"), copy=False)
        file.write(array.reshape(-1).view(np.uint8).data)


def _order(arrays: Mapping[str, Any]) -> list[str]:
    rank = {dtype: i for i, dtype in enumerate(dtypes().values())}
    return sorted(arrays, key=lambda name: (-rank[arrays[name].dtype.newbyteorder("<")], name))

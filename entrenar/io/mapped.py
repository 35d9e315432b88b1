"""Memory-mapped safetensors files: the header checked in full, each tensor a view on the file's pages.

The format (https://huggingface.co/docs/safetensors, "Format"): 8 bytes N, unsigned little-endian; N bytes of JSON,
which may end in spaces; the tensors' bytes, little-endian, C order, without a gap.
"""

from __future__ import annotations

import json
import math
import mmap
import os
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..array import is_float, nearest
from .errors import DataError

LIMIT = 100_000_000  # bytes of JSON in a header: the limit of every reader of the format
BLOCK = 8 << 20  # bytes of a tensor that are copied before their pages are dropped
METADATA = "__metadata__"


@cache
def dtypes() -> dict[str, np.dtype]:
    """The format's dtype names, in its order of alignment, and what each is in NumPy."""
    import ml_dtypes as ml

    return {
        "BOOL": np.dtype("?"),
        "U8": np.dtype("u1"),
        "I8": np.dtype("i1"),
        "F8_E5M2": np.dtype(ml.float8_e5m2),
        "F8_E4M3": np.dtype(ml.float8_e4m3fn),
        "F8_E8M0": np.dtype(ml.float8_e8m0fnu),
        "I16": np.dtype("<i2"),
        "U16": np.dtype("<u2"),
        "F16": np.dtype("<f2"),
        "BF16": np.dtype(ml.bfloat16),
        "I32": np.dtype("<i4"),
        "U32": np.dtype("<u4"),
        "F32": np.dtype("<f4"),
        "C64": np.dtype("<c8"),
        "F64": np.dtype("<f8"),
        "I64": np.dtype("<i8"),
        "U64": np.dtype("<u8"),
    }


class Entry(NamedTuple):
    """Where a tensor lies: bytes [begin, end) of the file."""

    dtype: np.dtype
    shape: tuple[int, ...]
    begin: int
    end: int


class TensorFile(Mapping[str, np.ndarray]):
    """The tensors of a safetensors file, by name, as read-only arrays on its pages: nothing is read before it is used.

    Only a tensor that does not lie at a multiple of its dtype's alignment is copied when it is asked for.  Arrays stay
    valid after ``close``, until they are dropped; the file must not shrink meanwhile (replace it, as ``atomic_write``
    does: the mapping then keeps the old content).
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.closed = False
        try:
            with self.path.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                if size < 8:
                    raise DataError(f"{self.path}: {size} bytes are too few for a safetensors file")
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except OSError as error:
            raise DataError(f"{self.path}: cannot be read: {error.strerror or error}") from None
        self._entries, self.metadata = _header(self.path, self._map, size)

    def __getitem__(self, name: str) -> np.ndarray:
        """The tensor; KeyError with the nearest name if there is none, ValueError once the file is closed."""
        dtype, shape, begin, end = self.entry(name)
        if begin == end:
            array = np.empty(shape, dtype)
        else:
            array = np.frombuffer(self._open(), dtype, (end - begin) // dtype.itemsize, begin).reshape(shape)
            if not array.flags.aligned:
                array = array.copy()
        array.flags.writeable = False
        return array

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def entry(self, name: str) -> Entry:
        """dtype, shape and place of a tensor, from the header alone.  KeyError with the nearest name."""
        if name not in self._entries:
            raise KeyError(f"{self.path}: no tensor {name!r}.{nearest(name, self._entries)}")
        return self._entries[name]

    def copy_to(self, name: str, target: np.ndarray) -> None:
        """Write a tensor into ``target`` (same shape; same dtype, or both floats: cast, rounding to nearest).

        Pages are dropped as they are copied, so that ``target`` and the file are never in memory together, however
        large the tensor.  ``target`` may be a view, transposed too.  Raises DataError for another shape or dtype.
        """
        source = self[name]
        if source.shape != target.shape:
            raise DataError(f"{self.path}: {name!r} has shape {source.shape}, expected {target.shape}")
        if source.dtype != target.dtype and not (is_float(source.dtype) and is_float(target.dtype)):
            raise DataError(f"{self.path}: {name!r} is {source.dtype}, which is not cast to {target.dtype}")
        if target.flags.c_contiguous:  # else blocks of rows, at least one
            source, target = source.reshape(-1), target.reshape(-1)
        begin, row = self._entries[name].begin, source.nbytes // max(len(source), 1)
        step = max(BLOCK // max(row, 1), 1)
        for i in range(0, len(source), step):
            np.copyto(target[i : i + step], source[i : i + step], casting="unsafe")
            self._drop(begin + i * row, begin + (i + step) * row)

    def release(self, name: str) -> None:
        """Drop a tensor's pages from resident memory (a no-op where the platform has no madvise).

        Arrays on them stay valid: what is touched again is read again from the file.
        """
        entry = self.entry(name)
        self._drop(entry.begin, entry.end)

    def _drop(self, begin: int, end: int) -> None:
        if hasattr(mmap, "MADV_DONTNEED"):
            start = begin - begin % mmap.PAGESIZE  # pages shared with a neighbour too: they are only read again
            end = min(end, len(self._open()))
            if end > start:
                self._map.madvise(mmap.MADV_DONTNEED, start, end - start)

    def _open(self) -> mmap.mmap:
        if self.closed:
            raise ValueError(f"{self.path} is closed")
        return self._map

    def close(self) -> None:
        """Give up the mapping; arrays that were handed out keep it until they are dropped."""
        if not self.closed:
            self.closed = True
            del self._map

    def __enter__(self) -> TensorFile:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"TensorFile({str(self.path)!r}, {len(self)} tensors)"


def open_tensors(path: str | Path) -> TensorFile:
    """Map a safetensors file.  Raises DataError that names the file, and the sizes, if anything in it is inconsistent.

    Checked before any tensor is handed out: the header (at most 100 MB) is JSON without duplicate keys; dtype and shape
    give each tensor's bytes; tensors neither overlap nor leave a gap; the file ends where the last one does.
    """
    return TensorFile(path)


def read_json(file: Path, content: bytes, what: str) -> dict[str, Any]:
    """A JSON object without duplicate keys.  Raises DataError that names ``what`` of the file."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) < len(pairs):
            keys = [key for key, _ in pairs]
            twice = next(key for key in keys if keys.count(key) > 1)
            raise DataError(f"{file}: {what} has the key {twice!r} twice")
        return made

    try:
        found = json.loads(content.decode("utf-8"), object_pairs_hook=unique)
    except DataError:
        raise
    except (ValueError, RecursionError) as error:
        raise DataError(f"{file}: {what} is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise DataError(f"{file}: {what} must be a JSON object, got {found!r:.60}")
    return found


def _header(file: Path, content: mmap.mmap, size: int) -> tuple[dict[str, Entry], dict[str, str]]:
    length = int.from_bytes(content[:8], "little")
    if length > LIMIT:
        raise DataError(
            f"{file}: the header says {length} bytes, the limit is {LIMIT}: no safetensors file, or damaged"
        )
    if 8 + length > size:
        raise DataError(f"{file}: the header says {length} bytes, the file has {size - 8} after the length")
    text = content[8 : 8 + length]
    if text[:1] != b"{":
        raise DataError(f"{file}: the header is not JSON: it starts with {text[:1]!r}")
    header = read_json(file, text, "the header")
    metadata = header.pop(METADATA, {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise DataError(f"{file}: {METADATA} must map text to text, got {metadata!r:.200}")
    entries = {name: _entry(file, name, info, 8 + length) for name, info in header.items()}
    _check_layout(file, entries, 8 + length, size)
    return entries, metadata


def _entry(file: Path, name: str, info: Any, base: int) -> Entry:
    """One tensor of the header, whose offsets count from ``base``."""
    if not isinstance(info, dict) or set(info) != {"dtype", "shape", "data_offsets"}:
        raise DataError(f"{file}: {name!r} must have dtype, shape and data_offsets, got {info!r:.200}")
    dtype, shape, offsets = info["dtype"], info["shape"], info["data_offsets"]
    if not isinstance(dtype, str) or dtype not in dtypes():
        raise DataError(f"{file}: {name!r} has dtype {dtype!r}, which is not supported.{nearest(dtype, dtypes())}")
    if not _naturals(shape) or len(shape) > 64:  # NumPy's largest number of axes
        raise DataError(f"{file}: the shape of {name!r} must be at most 64 integers >= 0, got {shape!r:.200}")
    if not _naturals(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise DataError(f"{file}: the data_offsets of {name!r} must be [begin, end], got {offsets!r:.200}")
    kind = dtypes()[dtype]
    begin, end = offsets
    if math.prod(shape) * kind.itemsize != end - begin or math.prod(n or 1 for n in shape) * kind.itemsize >= 2**63:
        expected = math.prod(shape) * kind.itemsize
        raise DataError(f"{file}: {name!r}, {dtype} of shape {shape}, needs {expected} bytes, has {end - begin}")
    return Entry(kind, tuple(shape), base + begin, base + end)


def _naturals(value: Any) -> bool:
    return isinstance(value, list) and all(type(n) is int and n >= 0 for n in value)


def _check_layout(file: Path, entries: dict[str, Entry], base: int, size: int) -> None:
    """Every byte after the header belongs to exactly one tensor."""
    at, before = base, "the header"
    for name, entry in sorted(entries.items(), key=lambda item: item[1][2:]):
        if entry.begin != at:
            problem = "overlaps" if entry.begin < at else f"leaves {entry.begin - at} bytes unused after"
            raise DataError(
                f"{file}: {name!r} at byte {entry.begin - base} {problem} {before}, which ends at {at - base}"
            )
        at, before = entry.end, repr(name)
    if at != size:
        problem = f"{at - size} bytes are missing" if at > size else f"{size - at} bytes are left over"
        raise DataError(f"{file}: the header describes {at} bytes, the file has {size}: {problem}")

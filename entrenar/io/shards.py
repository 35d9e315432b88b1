"""Folders of weights in Hugging Face's layout: one ``model.safetensors``, or shards and the index that names them."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..array import nearest
from .atomic import ASIDE, sync
from .errors import DataError
from .mapped import Entry, TensorFile, open_tensors, read_json
from .tensors import as_stored, header, write

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
SHARD_BYTES = 5_000_000_000
SHARD = re.compile(r"model-\d{5,}-of-\d{5,}\.safetensors")
PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json")
ADVICE = (
    "a pickle, which runs code when it is read, and is never read here. Convert it where you trust it: "
    "transformers' AutoModel.from_pretrained(folder).save_pretrained(folder) writes safetensors"
)


class Weights(Mapping[str, np.ndarray]):
    """The tensors of all shards of a folder, by name: read-only arrays on the files' pages, as in ``TensorFile``.

    To fill a model without the file and the model in memory together: ``copy_to`` for each name, or
    ``target[...] = weights[name]; weights.release(name)``.
    """

    def __init__(self, folder: Path, files: dict[str, TensorFile]) -> None:
        """files: by name of file; no tensor stands in two of them."""
        self.folder, self.files = folder, files
        self._file = {name: file for file in files.values() for name in file}

    @property
    def metadata(self) -> dict[str, str]:
        """Metadata of the first file."""
        return next(iter(self.files.values())).metadata

    def where(self, name: str) -> TensorFile:
        """The file of a tensor.  KeyError with the nearest name."""
        if name not in self._file:
            raise KeyError(f"{self.folder}: no tensor {name!r}.{nearest(name, self._file)}")
        return self._file[name]

    def __getitem__(self, name: str) -> np.ndarray:
        return self.where(name)[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._file)

    def __len__(self) -> int:
        return len(self._file)

    def __contains__(self, name: object) -> bool:
        return name in self._file

    def entry(self, name: str) -> Entry:
        """dtype and shape of a tensor, and its place in its file, from the header alone."""
        return self.where(name).entry(name)

    def copy_to(self, name: str, target: np.ndarray) -> None:
        """Write a tensor into ``target``, dropping the file's pages in passing (``TensorFile.copy_to``)."""
        self.where(name).copy_to(name, target)

    def release(self, name: str) -> None:
        """Drop a tensor's pages from resident memory (``TensorFile.release``)."""
        self.where(name).release(name)

    def close(self) -> None:
        """Give up the mappings; arrays that were handed out keep theirs until they are dropped."""
        for file in self.files.values():
            file.close()

    def __enter__(self) -> Weights:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Weights({str(self.folder)!r}, {len(self)} tensors in {len(self.files)} files)"


def open_weights(folder: str | Path) -> Weights:
    """Map the weights of a folder.  Files that are no part of the model (adapters, optimizer state) are left alone.

    Raises one DataError that lists everything in which index and files disagree: missing and extra shards, tensors
    that the index names and their shard lacks, tensors that the index does not place there, a single file beside an
    index; or damaged files.  The index's ``metadata.total_size`` is not used: published ones count differently.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise DataError(f"{folder}: {'is a file, not a folder' if folder.exists() else 'no such folder'}")
    present = {path.name for path in folder.iterdir()}
    shards = {name for name in present if SHARD.fullmatch(name)}
    if not present & {SINGLE, INDEX} and not shards:
        pickles = sorted(present.intersection(PICKLES))
        if pickles:
            raise DataError(f"{folder}: its only weights are {pickles[0]}: {ADVICE}")
        raise DataError(f"{folder}: no weights: expected {SINGLE}, or {INDEX} and its shards")
    problems: list[str] = []
    placed = _read_index(folder / INDEX) if INDEX in present else None
    if placed is None:
        if SINGLE in present:
            names = {SINGLE}
            problems += [f"{name} is a shard beside {SINGLE}, and there is no {INDEX}" for name in sorted(shards)]
        else:
            names = set()
            problems += [f"{INDEX} is missing, which says what is in {', '.join(sorted(shards))}"]
    else:
        names = set(placed.values())
        if SINGLE in present and SINGLE not in names:
            problems += [f"{SINGLE} and {INDEX} are both there: remove the one that is not the model"]
        problems += [f"{name} is missing, which the index names" for name in sorted(names - present)]
        problems += [f"{name} is a shard that the index does not name" for name in sorted(shards - names)]
    files: dict[str, TensorFile] = {}
    for name in sorted(names & present):
        try:
            files[name] = open_tensors(folder / name)
        except DataError as error:
            problems.append(str(error).removeprefix(f"{folder}/"))
    if placed is not None:
        problems += _misplaced(placed, files)
    if problems:
        raise DataError(f"{folder}: " + ("; ".join(problems) if len(problems) == 1 else _listed(problems)))
    return Weights(folder, files)


def _listed(problems: list[str]) -> str:
    return f"{len(problems)} faults:" + "".join(f"\n  {problem}" for problem in problems)


def _read_index(path: Path) -> dict[str, str]:
    """The weight_map: name of a tensor -> name of its file."""
    try:
        index = read_json(path, path.read_bytes(), "the index")
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from None
    placed = index.get("weight_map")
    if not isinstance(placed, dict) or not placed:
        raise DataError(f"{path}: weight_map must map names of tensors to files, got {placed!r:.200}")
    for tensor, name in placed.items():
        if not isinstance(name, str) or not re.fullmatch(r"[^/\\\0:]+\.safetensors", name) or name.startswith(ASIDE):
            raise DataError(f"{path}: the file of {tensor!r} must be a *.safetensors name in this folder, got {name!r}")
    return placed


def _misplaced(placed: dict[str, str], files: dict[str, TensorFile]) -> list[str]:
    """Where the index and the shards that could be read disagree about tensors."""
    lacking = [
        f"{tensor!r} is not in {name}, where the index places it"
        for tensor, name in placed.items()
        if name in files and tensor not in files[name]
    ]
    for name, file in files.items():
        for tensor in file:
            if placed.get(tensor) != name:
                other = f"places it in {placed[tensor]}" if tensor in placed else "does not name it"
                lacking.append(f"{tensor!r} is in {name}, but the index {other}")
    return lacking


def save_weights(
    folder: str | Path,
    arrays: Mapping[str, Any],
    metadata: Mapping[str, str] | None = None,
    max_shard_bytes: int = SHARD_BYTES,
    beside: Mapping[str, str] | None = None,
) -> list[Path]:
    """Write arrays (or tensors) as ``model.safetensors``, or as shards and their index; the paths written, index last.

    A shard takes tensors in the order given while their bytes stay within ``max_shard_bytes``; a larger tensor has one
    for itself.  metadata: text to text, by default {"format": "pt"}, which transformers requires.  Views are stored in
    C order; nothing but one view at a time is copied.  beside: further files by name, their text in UTF-8, that say
    what the weights mean (config.json).

    All files are written and synced aside before any of the folder's own is touched; then each takes its name, and
    weights of an older set that are no part of this one are removed last.  A failure or a kill before that leaves the
    old set; a kill during it (a few renames) leaves a whole set, old or new, or a folder that is refused, since the
    index, or a file of ``beside`` that changes, is missing: never one that is read as a mixture.

    Raises TypeError as ``save_tensors``; ValueError for two names of one and the same array (tied weights are stored
    once), or a limit that is no positive integer.
    """
    folder = Path(folder)
    if not isinstance(max_shard_bytes, int) or isinstance(max_shard_bytes, bool) or max_shard_bytes < 1:
        raise ValueError(f"max_shard_bytes must be an integer >= 1, got {max_shard_bytes!r}")
    held = {name: as_stored(folder, name, value) for name, value in arrays.items()}
    _refuse_shared(folder, held)
    files = _split(held, max_shard_bytes)
    metadata = {"format": "pt"} if metadata is None else metadata
    starts = {name: header(folder / name, part, metadata) for name, part in files.items()}
    folder.mkdir(parents=True, exist_ok=True)
    prefix = f"{ASIDE}weights-"
    for left in folder.glob(f"{prefix}*"):  # of a killed save
        shutil.rmtree(left)
    aside = Path(tempfile.mkdtemp(prefix=prefix, dir=folder))
    try:
        for name, part in files.items():
            with (aside / name).open("xb") as file:
                write(file, starts[name], part)
        texts = {**({INDEX: _index(files)} if len(files) > 1 else {}), **(beside or {})}
        for name, text in texts.items():
            (aside / name).write_text(text, encoding="utf-8")
        for path in aside.iterdir():
            sync(path)
        for name in (*files, *texts):
            if (folder / name).is_dir():
                raise IsADirectoryError(f"{folder / name} is a folder: expected a file, or nothing, of that name")
        _withdraw(folder, beside or {})
        return _put_in_place(folder, aside, [*files, *texts])
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _withdraw(folder: Path, texts: Mapping[str, str]) -> None:
    """Remove the files whose text changes: until the new ones are there, the weights are of neither set."""
    gone = False
    for name, text in texts.items():
        path = folder / name
        if path.exists() and path.read_bytes() != text.encode():
            path.unlink()
            gone = True
    if gone:
        sync(folder)


def _put_in_place(folder: Path, aside: Path, names: list[str]) -> list[Path]:
    """Move the new set into the folder, the file that makes it valid last; then remove what is left of an older one."""
    old = {path.name for path in folder.iterdir() if path.name in (SINGLE, INDEX) or SHARD.fullmatch(path.name)}
    if INDEX in old and old.intersection(names) - {SINGLE, INDEX}:
        # shards of both sets have the same names: without the old index no mixture of them can be read
        (folder / INDEX).unlink()
        sync(folder)
    for name in names:
        (aside / name).replace(folder / name)
    sync(folder)
    for name in sorted(old.difference(names), key=lambda name: (name != INDEX, name)):
        (folder / name).unlink(missing_ok=True)
    sync(folder)
    return [folder / name for name in names]


def _split(arrays: Mapping[str, Any], limit: int) -> dict[str, dict[str, Any]]:
    """name of file -> its arrays, as Hugging Face fills shards: in order, each while it stays within the limit."""
    parts: list[dict[str, Any]] = []
    size = 0
    for name, array in arrays.items():
        if not parts or size + array.nbytes > limit:
            parts.append({})
            size = 0
        parts[-1][name] = array
        size += array.nbytes
    if len(parts) <= 1:
        return {SINGLE: parts[0] if parts else {}}
    return {f"model-{i:05d}-of-{len(parts):05d}.safetensors": part for i, part in enumerate(parts, 1)}


def _index(files: dict[str, dict[str, Any]]) -> str:
    total = sum(array.nbytes for part in files.values() for array in part.values())
    placed = {tensor: name for name, part in files.items() for tensor in part}
    return json.dumps({"metadata": {"total_size": total}, "weight_map": placed}, indent=2, sort_keys=True) + "\n"


def _refuse_shared(folder: Path, arrays: Mapping[str, Any]) -> None:
    """Two names of the same memory, seen the same way, would be stored twice and come back untied."""
    seen: dict[Any, str] = {}
    for name, array in arrays.items():
        if isinstance(array, np.ndarray) and array.size:
            key = (array.__array_interface__["data"][0], array.shape, array.strides, array.dtype)
            if key in seen:
                raise ValueError(f"{folder}: {seen[key]!r} and {name!r} are one array: store it under one name")
            seen[key] = name

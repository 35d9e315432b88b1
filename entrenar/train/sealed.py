"""Folders that say what belongs in them: tensors in safetensors files, and state.json with a digest of everything.

state.json is a JSON object.  "files" has, for each safetensors file, the sha256 of its header (the length before it
included) and of each tensor's bytes; "checksum", its last key, is the sha256 of all bytes of state.json before that
line.  So a changed byte is found wherever it is, and in what: ``damage`` names it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..array import to_device
from ..io import DataError, atomic_folder, save_tensors
from ..io.mapped import open_tensors
from ..io.tensors import header

FORMAT = 2  # 1: a state hash over all bytes in one, and no digests
MODEL, OPTIMIZER, STATE = "model.safetensors", "optimizer.safetensors", "state.json"
METADATA = {"format": "entrenar"}
SEAL = re.compile(rb',\n "checksum": "([0-9a-f]{64})"\n\}\n')

Arrays = Mapping[str, Any]


class Damage(NamedTuple):
    """What is wrong with a folder.  part: the tensor, or "header", where it is in one; None for the file as a whole."""

    file: Path
    part: str | None
    text: str

    def __str__(self) -> str:
        return f"{self.file}: {self.text}"


def little(array: Any) -> np.ndarray[Any, Any]:
    """The array in host memory, C order, little-endian: the bytes that a safetensors file has for it."""
    held = np.ascontiguousarray(to_device(array, "cpu"))
    return held.astype(held.dtype.newbyteorder("<"), copy=False)


def tensor_digests(arrays: Arrays) -> dict[str, str]:
    """sha256 of each array's bytes, in hexadecimal, by name, sorted."""
    return {name: _sha256(little(arrays[name])) for name in sorted(arrays)}


def _sha256(array: np.ndarray[Any, Any]) -> str:
    return hashlib.sha256(array.reshape(-1).view(np.uint8).data).hexdigest()


def contents(files: Mapping[str, Arrays], digests: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
    """The value of "files" in state.json.  digests: of the tensors of each file."""
    return {
        name: {
            "header": hashlib.sha256(header(name, arrays, METADATA)).hexdigest(),
            "tensors": dict(digests[name]),
        }
        for name, arrays in files.items()
    }


def sealed_text(state: Mapping[str, Any]) -> str:
    """state.json with its checksum."""
    body = json.dumps(state, indent=1).removesuffix("\n}")
    return f'{body},\n "checksum": "{hashlib.sha256(body.encode()).hexdigest()}"\n}}\n'


def write_sealed(path: Path, files: Mapping[str, Arrays], state: Mapping[str, Any]) -> None:
    """Write the folder ``path``, whole or not at all.  state: what state.json holds beside the checksum."""
    with atomic_folder(path) as folder:
        for name, arrays in files.items():
            save_tensors(folder / name, arrays, METADATA)
        (folder / STATE).write_text(sealed_text(state), encoding="utf-8")


def read_state(path: Path) -> dict[str, Any]:
    """state.json of a folder, without its checksum.

    Raises DataError if it is missing, was changed, or is of another format.
    """
    try:
        content = (path / STATE).read_bytes()
    except OSError as error:
        raise DataError(f"{path}: no checkpoint: {STATE}: {error.strerror or error}") from None
    try:
        state = json.loads(content)
    except ValueError as error:
        raise DataError(f"{path / STATE}: not JSON: {error}") from None
    if not isinstance(state, dict) or state.get("format") not in (1, FORMAT):
        raise DataError(f"{path / STATE}: not a checkpoint of format {FORMAT} or 1")
    if state["format"] == FORMAT or "checksum" in state:
        seal = SEAL.search(content)
        if seal is None or seal.end() != len(content):
            raise DataError(f"{path / STATE}: the checkpoint was changed: it does not end in a checksum")
        if hashlib.sha256(content[: seal.start()]).hexdigest() != seal.group(1).decode():
            raise DataError(f"{path / STATE}: the checkpoint was changed: the checksum is not that of the content")
        del state["checksum"]
    return state


def damage(path: Path) -> list[Damage]:
    """Everything in a folder that is not as it was written; in a folder of format 1 only what cannot be read.

    A folder whose state.json is damaged says nothing of its other files, beyond what cannot be read.
    """
    found: list[Damage] = []
    names: Mapping[str, Any] = {name: None for name in (MODEL, OPTIMIZER) if (path / name).exists()}
    try:
        names = read_state(path).get("files", names)
    except DataError as error:
        found.append(Damage(path / STATE, None, _without(error, path / STATE)))
    for name, expected in names.items():
        found += _file_damage(path / name, expected)
    return found


def _file_damage(path: Path, expected: Mapping[str, Any] | None) -> Iterator[Damage]:
    """What is wrong with one safetensors file."""
    try:
        file = open_tensors(path)
    except DataError as error:
        yield Damage(path, None, _without(error, path))
        return
    if expected is None:
        return
    with file, path.open("rb") as raw:
        length = int.from_bytes(raw.read(8), "little")
        raw.seek(0)
        if hashlib.sha256(raw.read(8 + length)).hexdigest() != expected["header"]:
            yield Damage(path, "header", "the header was changed")
            return
        for name, digest in expected["tensors"].items():
            begin, end = file.entry(name)[2:]
            if _sha256(file[name]) != digest:
                yield Damage(path, name, f"the data of {name!r} (bytes {begin} to {end}) were changed")


def _without(error: DataError, path: Path) -> str:
    """The message of an error without the file that it begins with."""
    return str(error).removeprefix(f"{path}: ")

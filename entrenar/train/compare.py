"""A folder on disk against what a replay holds: which part of the state differs, and where a damaged file does."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..io import open_tensors
from ..io.tensors import header
from .checkpoint import Snapshot
from .sealed import FORMAT, METADATA, MODEL, OPTIMIZER, STATE, Damage, little, read_state, sealed_text, tensor_digests

PARTS = {  # keys of state.json, in the order in which one would make the others differ
    "step": "step",
    "tokens": "tokens",
    "data": "data position",
    "random": "generators",
    "schedule": "schedule",
    "optimizer": "optimizer options",
}
TENSORS = {MODEL: "weights", OPTIMIZER: "optimizer state"}


class Finding(NamedTuple):
    """Something that is not as it should be.  file: relative to the run.  part: of the state, or a tensor's name."""

    step: int
    file: str
    part: str | None
    text: str

    def __str__(self) -> str:
        return f"{self.file}: {self.text}"


def differences(path: Path, mine: Snapshot) -> list[tuple[str, str]]:
    """(part, what differs) between an intact folder and a snapshot: first what may be the cause of the rest."""
    theirs = read_state(path)
    keys = [key for key in (*PARTS, *theirs, *mine.state) if key in theirs or key in mine.state]
    found: list[tuple[str, str]] = []
    for key in dict.fromkeys(key for key in keys if key not in ("format", "hash", "files", "metrics")):
        if here := _leaf(theirs.get(key), mine.state.get(key)):
            found.append((PARTS.get(key, key), _told(PARTS.get(key, key), key, here)))
    for name, arrays in mine.files.items():
        found += _tensor_differences(path / name, arrays, theirs)
    if here := _leaf(theirs.get("metrics"), mine.state.get("metrics")):
        found.append(("metrics", _told("metrics", "metrics", here)))
    return found


def _told(label: str, key: str, here: tuple[str, Any, Any]) -> str:
    where, theirs, ours = here
    return f"{label}{f' {key}{where}' if where else ''}: {theirs!r:.80}, the replay has {ours!r:.80}"


def _leaf(theirs: Any, ours: Any, where: str = "") -> tuple[str, Any, Any] | None:
    """(place, value there, value here) of the first difference between two values of JSON."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for key in {**theirs, **ours}:
            if key not in theirs or key not in ours:
                return f"{where}.{key}", theirs.get(key), ours.get(key)
            if found := _leaf(theirs[key], ours[key], f"{where}.{key}"):
                return found
    elif isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        for n, pair in enumerate(zip(theirs, ours, strict=True)):
            if found := _leaf(*pair, f"{where}[{n}]"):
                return found
    elif json.dumps(theirs) != json.dumps(ours):  # 1 and True, 1 and 1.0 are not the same; NaN is
        return where, theirs, ours
    return None


def _tensor_differences(path: Path, ours: Mapping[str, Any], state: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The tensors of a file that are not those here, as one line that describes the first; none if all are equal."""
    label = TENSORS[path.name]
    with open_tensors(path) as file:
        if strange := sorted(ours.keys() ^ file.keys()):
            which = "the replay" if strange[0] in ours else "the checkpoint"
            return [(label, f"{label}: {strange[0]!r} is only in {which}")]
        if state["format"] == FORMAT:
            theirs = state["files"][path.name]["tensors"]
        else:
            theirs = tensor_digests(dict(file))
        digests = tensor_digests(ours)
        names = [n for n in ours if theirs[n] != digests[n] or tuple(ours[n].shape) != file.entry(n).shape]
        if not names:
            return []
        first, held, own = names[0], file[names[0]], little(ours[names[0]])
        if (held.dtype, held.shape) != (own.dtype, own.shape):
            text = f"is {held.dtype} {held.shape}, the replay's {own.dtype} {own.shape}"
        else:
            at = int(np.flatnonzero(_bytes(held) != _bytes(own))[0]) // own.itemsize
            index = [int(i) for i in np.unravel_index(at, own.shape)]
            text = f"{index} is {held.reshape(-1)[at]!s}, the replay has {own.reshape(-1)[at]!s}"
        return [(label, f"{label}: {len(names)} of {len(ours)} tensors differ, first {first!r}: {text}")]


def located(damaged: Sequence[Damage], mine: Snapshot) -> list[Damage]:
    """The damage with the byte where it begins, wherever the rest of the folder shows that the replay is right."""
    folder = damaged[0].file.parent
    return [each._replace(text=f"{each.text}{_place(folder, each, mine, damaged)}") for each in damaged]


def _place(folder: Path, one: Damage, mine: Snapshot, damaged: Sequence[Damage]) -> str:
    state_is_whole = all(each.file.name != STATE for each in damaged)
    if not one.file.exists() or not (_same_record(folder, mine) if state_is_whole else _same_files(folder, mine)):
        return ""
    if one.file.name == STATE:
        return _in_text(one.file.read_bytes(), sealed_text(mine.state).encode())
    return _in_tensors(one.file, mine.files[one.file.name], one.part)


def _same_record(folder: Path, mine: Snapshot) -> bool:
    """Whether state.json says that the files were what the replay has."""
    return bool(read_state(folder).get("files") == mine.state.get("files"))


def _same_files(folder: Path, mine: Snapshot) -> bool:
    """Whether the tensors are those of the replay."""
    try:
        return all(
            tensor_digests(dict(open_tensors(folder / name))) == mine.state["files"][name]["tensors"]
            for name in mine.files
        )
    except ValueError:
        return False


def _in_text(theirs: bytes, ours: bytes) -> str:
    at = _first(np.frombuffer(theirs, np.uint8), np.frombuffer(ours, np.uint8))
    line, start = theirs[:at].count(b"\n") + 1, theirs.rfind(b"\n", 0, at) + 1
    shown = [text[start:].partition(b"\n")[0].decode(errors="replace").strip() for text in (theirs, ours)]
    return f"; byte {at}, line {line}: {shown[0]!r:.100}, the replay has {shown[1]!r:.100}"


def _in_tensors(path: Path, ours: Mapping[str, Any], part: str | None) -> str:
    """Where a safetensors file differs from one with the replay's arrays."""
    start = header(path.name, ours, METADATA)
    content = np.frombuffer(path.read_bytes(), np.uint8)
    if part is not None and part in ours:
        begin, end = json.loads(start[8:])[part]["data_offsets"]
        own = little(ours[part])
        held = content[len(start) + begin : len(start) + end]
        at = int(np.flatnonzero(held != _bytes(own))[0])
        element = at // own.itemsize
        index = [int(i) for i in np.unravel_index(element, own.shape)]
        value = held[element * own.itemsize : (element + 1) * own.itemsize].view(own.dtype)[0]
        return (
            f"; byte {len(start) + begin + at} is 0x{held[at]:02x}, the replay has 0x{_bytes(own)[at]:02x}: "
            f"{index} is {value!s}, the replay has {own.reshape(-1)[element]!s}"
        )
    at = _first(content, np.frombuffer(start, np.uint8))
    if at >= len(start):  # the header is as it was: the file ends early, or goes on
        size = len(start) + sum(little(array).nbytes for array in ours.values())
        return f"; the file has {len(content)} bytes, the replay's {size}"
    shown = [bytes(text[max(at - 12, 0) : at + 12]).decode(errors="replace") for text in (content, start)]
    return f"; byte {at}, in the header: {shown[0]!r}, the replay has {shown[1]!r}"


def _bytes(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _first(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> int:
    """The first place where two byte strings differ, the length of the shorter if there is none."""
    size = min(len(a), len(b))
    at = np.flatnonzero(a[:size] != b[:size])
    return int(at[0]) if at.size else size

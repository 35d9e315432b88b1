"""Records of files, streamed: which files, in which order, from which place on."""

from __future__ import annotations

import glob
import hashlib
import json
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from ..array import Generator, nearest
from ..io import DataError
from .formats import FORMATS, START, At, Record, check_format, format_of


def read_records(path: str | Path | Sequence[str | Path], format: str | None = None) -> Records:
    """The records of a file, of a folder's files (of theirs too), of a glob pattern ("data/*.jsonl"), or of a list.

    format: a name of FORMATS (jsonl, csv, parquet, text); by default what the files' names say.  .gz is unpacked.
    The first record is read here, so that what is missing or broken is told before anything else is loaded.
    Raises DataError naming the file and its line, ValueError for an unknown format.
    """
    given = [path] if isinstance(path, (str, Path)) else list(path)
    files = [file for one in given for file in _found(one, format)]
    formats = {file: check_format(format) if format else format_of(file) for file in files}
    for file, found in formats.items():
        if found is None:
            raise DataError(f"{file}: unknown kind of file: known are {_suffixes()}; else give the format")
    if len(kinds := sorted(set(map(str, formats.values())))) > 1:
        raise DataError(f"{path}: files of {' and '.join(kinds)}: give the format that is meant")
    if not files:
        raise DataError("no files: the list is empty")
    records = Records(files, kinds[0])
    if not records.columns:
        raise DataError(f"{records.first.place}: the first record has no fields")
    return records


class Records:
    """The records of some files of one format.  Can be walked again and again; nothing is kept in memory."""

    def __init__(self, files: Sequence[str | Path], format: str) -> None:
        self.files, self.format = tuple(Path(file) for file in files), check_format(format)

    def __repr__(self) -> str:
        return f"Records({len(self.files)} {self.format} files, {self.files[0]}, ...)"

    def __iter__(self) -> Iterator[Record]:
        return (record for record, _ in self.read())

    @cached_property
    def first(self) -> Record:
        """The first record.  Raises DataError if there is none."""
        for record in self:
            return record
        raise DataError(f"{self.files[0]}: no text" if len(self.files) == 1 else f"{self.files[0]}, ...: no text")

    @property
    def columns(self) -> list[str]:
        """The names of the first record's fields."""
        return list(self.first.fields)

    def read(
        self, place: Sequence[int] | None = None, order: Generator | None = None, columns: Sequence[str] | None = None
    ) -> Iterator[tuple[Record, list[int]]]:
        """The records from a place on, each with the place after it.

        place: what was given with an earlier record, under the same order.  order: draws the order of the files, sorted
        if None.  columns: those that are needed, which Parquet reads alone; all if None.
        Raises DataError for a broken record, and for a file without any.
        """
        start, *rest = place or (0,)
        files = [self.files[i] for i in order.permutation(len(self.files))] if order is not None else self.files
        for n in range(start, len(files)):
            at = At(*rest) if n == start else START
            found = at.record > 0
            for record, after in FORMATS[self.format].read(files[n], at, columns):
                found = True
                yield record, [n, *after]
            if not found and self.format != "text":
                raise DataError(f"{files[n]}: no records")


class Part:
    """Some of the records: those held out, or the others.  The hash of its content decides for each record.

    So the sides stay what they are when records are added, and the same record never stands on both.
    fraction: the share that is held out.  held_out: which side this is.
    """

    def __init__(self, records: Records, fraction: float, held_out: bool) -> None:
        if not 0 < fraction < 1:
            raise ValueError(f"the held-out fraction must be between 0 and 1, got {fraction}")
        self.records, self.fraction, self.held_out = records, fraction, held_out
        self.files, self.format = records.files, records.format

    def __iter__(self) -> Iterator[Record]:
        return (record for record, _ in self.read())

    @property
    def first(self) -> Record:
        """The first record of this side.  Raises DataError if it has none."""
        for record in self:
            return record
        side = "held out" if self.held_out else "left for training"
        raise DataError(f"{self.files[0]}, ...: no record is {side} at a fraction of {self.fraction}")

    @property
    def columns(self) -> list[str]:
        """The names of the first record's fields."""
        return list(self.first.fields)

    def read(
        self, place: Sequence[int] | None = None, order: Generator | None = None, columns: Sequence[str] | None = None
    ) -> Iterator[tuple[Record, list[int]]]:
        """As ``Records.read``; all columns are read, since the hash is of them all."""
        for record, after in self.records.read(place, order):
            if _held_out(record.fields, self.fraction) == self.held_out:
                yield record, after


def take_held_out(records: Records, fraction: float) -> tuple[Part, Part]:
    """(training, held-out) records, by the hash of their content; about ``fraction`` of all are held out."""
    return Part(records, fraction, held_out=False), Part(records, fraction, held_out=True)


def _held_out(fields: dict[str, Any], fraction: float) -> bool:
    content = json.dumps(fields, sort_keys=True, default=str).encode()
    return int.from_bytes(hashlib.sha256(content).digest()[:8], "big") < fraction * 2**64


def _found(path: str | Path, format: str | None) -> list[Path]:
    """The files that a path names, sorted."""
    at = Path(path).expanduser()
    if at.is_file():
        return [at]
    if at.is_dir():
        wanted = None if format is None else FORMATS[check_format(format)].suffixes
        files = [f for f in at.rglob("*") if f.is_file() and not _hidden(f.relative_to(at)) and format_of(f)]
        files = [f for f in files if wanted is None or format_of(f) == format]
        if not files:
            raise DataError(f"{at}: no data in this folder: no file ends on {_suffixes(wanted)}")
        return sorted(files, key=lambda f: f.as_posix())
    if any(sign in str(path) for sign in "*?["):
        files = [Path(f) for f in glob.glob(str(at), recursive=True)]
        if not (files := [f for f in files if f.is_file()]):
            raise DataError(f"{path}: no file matches this pattern")
        return sorted(files, key=lambda f: f.as_posix())
    beside = [f.name for f in at.parent.iterdir()] if at.parent.is_dir() else []
    raise DataError(f"{at}: no such file or folder.{nearest(at.name, beside)}")


def _hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def _suffixes(wanted: Sequence[str] | None = None) -> str:
    return ", ".join(wanted or [suffix for row in FORMATS.values() for suffix in row.suffixes])

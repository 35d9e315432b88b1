"""Files of records, read one by one: JSON Lines, CSV, Parquet, text.  One row of a table per format."""

from __future__ import annotations

import csv
import gzip
import json
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..array import nearest
from ..array.errors import missing_extra
from ..io import DataError

LONGEST = 2**31 - 1  # characters of a CSV field; Python's own limit, 131072, is the length of no book
PACKED = ".gz"


class Record(NamedTuple):
    """The fields of one record, in plain text, numbers, lists and dicts, and its place: file:line, for errors."""

    place: str
    fields: dict[str, Any]


class At(NamedTuple):
    """How far a file has been read: records, lines, bytes (of what it unpacks to).  A format uses those it needs."""

    record: int = 0
    line: int = 0
    offset: int = 0


START = At()
Read = Iterator[tuple[Record, At]]


class Format(NamedTuple):
    """A row of FORMATS: which names a folder's files of it have, and read(path, at, columns).

    ``read`` gives the records from ``at`` on, each with the place after it.  columns: those that are needed, None for
    all; a format that cannot leave the others out gives them too.
    """

    suffixes: tuple[str, ...]
    read: Callable[[Path, At, Sequence[str] | None], Read]


FORMATS: dict[str, Format] = {}


def file_format(name: str, *suffixes: str) -> Callable[[Any], Any]:
    """Enter a reader into FORMATS."""

    def enter(read: Any) -> Any:
        FORMATS[name] = Format(suffixes, read)
        return read

    return enter


def format_of(path: Path) -> str | None:
    """The format that a file's name says, without the .gz that it may end on; None if it says none."""
    suffix = Path(path.stem if path.suffix.lower() == PACKED else path.name).suffix.lower()
    return next((name for name, row in FORMATS.items() if suffix in row.suffixes), None)


def check_format(name: str) -> str:
    """The name.  Raises ValueError if no format has it."""
    if name not in FORMATS:
        raise ValueError(f"format {name!r}: expected one of {list(FORMATS)}.{nearest(name, FORMATS)}")
    return name


# lines --------------------------------------------------------------------------------------------------------
def lines(path: Path, at: At = START) -> Iterator[tuple[str, At]]:
    """The lines of a file of UTF-8, packed by gzip if its name ends on .gz, each with the place after it.

    A byte order mark is left out.  Raises DataError with file:line.
    """
    _, line, offset = at
    try:
        with _opened(path) as file:
            file.seek(offset)
            for raw in file:
                line, offset = line + 1, offset + len(raw)
                yield decoded(raw, f"{path}:{line}", first=line == 1), At(at.record, line, offset)
    except OSError as error:  # gzip.BadGzipFile too
        raise DataError(f"{path}:{line + 1}: cannot be read: {error.strerror or error}") from None
    except (EOFError, zlib.error) as error:
        raise DataError(f"{path}:{line + 1}: the packed file is cut off or damaged: {error}") from None


def _opened(path: Path) -> Any:
    return gzip.open(path, "rb") if path.suffix.lower() == PACKED else open(path, "rb")


def decoded(raw: bytes, place: str, first: bool = True) -> str:
    """Bytes of UTF-8 as text, without a byte order mark if they are a file's first.  Raises DataError."""
    try:
        return raw.decode("utf-8-sig" if first else "utf-8")
    except UnicodeDecodeError as error:
        if first and raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
            raise DataError(f"{place}: UTF-16, expected UTF-8: save it as UTF-8") from None
        line, before = raw[: error.start].count(b"\n"), error.start - (raw.rfind(b"\n", 0, error.start) + 1)
        within = f"line {line + 1}, " if line else ""
        raise DataError(f"{place}: not UTF-8: byte {raw[error.start]:#04x} at {within}byte {before + 1}") from None


# formats ------------------------------------------------------------------------------------------------------
@file_format("jsonl", ".jsonl", ".ndjson", ".json")
def read_jsonl(path: Path, at: At, columns: Sequence[str] | None = None) -> Read:
    """An object a line; empty lines are left out."""
    record = at.record
    for text, after in lines(path, at):
        if not text.strip():
            continue
        place = f"{path}:{after.line}"
        try:
            fields = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{place}: not JSON: {error}.{_array_advice(text, after.line)}") from None
        if not isinstance(fields, dict):
            kind = type(fields).__name__
            raise DataError(f"{place}: expected an object a line, got {kind}.{_array_advice(text, after.line)}")
        record += 1
        yield Record(place, fields), after._replace(record=record)


def _array_advice(text: str, line: int) -> str:
    array = line == 1 and text.lstrip().startswith("[")
    return " A list of objects as lines: jq -c '.[]' FILE" if array else ""


@file_format("csv", ".csv", ".tsv")
def read_csv(path: Path, at: At, columns: Sequence[str] | None = None) -> Read:
    """A header, then a record a row; tabs part the fields of .tsv.  All values are text."""
    csv.field_size_limit(max(csv.field_size_limit(), LONGEST))
    tabs = ".tsv" in [suffix.lower() for suffix in path.suffixes]
    now = START

    def rows(start: At) -> Any:
        def told() -> Iterator[str]:
            nonlocal now
            now = start
            for text, after in lines(path, start):
                now = after
                yield text

        return csv.reader(told(), delimiter="\t" if tabs else ",", strict=True)

    reader, header, line = rows(START), None, 1
    try:
        header = next((row for row in reader if row), None)
        if header is None:
            return
        if twice := sorted({name for name in header if header.count(name) > 1}):
            raise DataError(f"{path}:1: two columns are called {twice[0]!r}")
        if at.record:
            reader = rows(at)
        record, line = at.record, (at if at.record else now).line + 1
        for row in reader:
            place, line = f"{path}:{line}", now.line + 1
            if not row:
                continue
            if len(row) != len(header):
                raise DataError(f"{place}: {len(row)} fields, the header names {len(header)}")
            record += 1
            yield Record(place, dict(zip(header, row, strict=True))), now._replace(record=record)
    except csv.Error as error:
        raise DataError(f"{path}:{line}: not CSV: {error}") from None


@file_format("parquet", ".parquet")
def read_parquet(path: Path, at: At, columns: Sequence[str] | None = None) -> Read:
    """A record a row, by row groups; lists, structs and maps as lists and dicts.  Needs pyarrow (extra ``parquet``)."""
    try:
        import pyarrow
        from pyarrow.parquet import ParquetFile
    except ImportError:
        raise missing_extra("pyarrow", "parquet", f"{path}: Parquet") from None
    try:
        with ParquetFile(path) as file:
            names = None if columns is None else [n for n in file.schema_arrow.names if n in columns]
            before = 0  # rows of the groups so far
            for group in range(file.num_row_groups):
                count = file.metadata.row_group(group).num_rows
                if before + count > at.record:
                    row = 0
                    for batch in file.iter_batches(256, row_groups=[group], columns=names):
                        skip = min(max(at.record - before - row, 0), batch.num_rows)
                        for n, fields in enumerate(batch.slice(skip).to_pylist(maps_as_pydicts="strict"), row + skip):
                            yield Record(f"{path}: row group {group}, row {n}", fields), At(before + n + 1)
                        row += batch.num_rows
                before += count
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(f"{path}: cannot be read as Parquet: {error}") from None


@file_format("text", ".txt", ".text", ".md")
def read_text(path: Path, at: At, columns: Sequence[str] | None = None) -> Read:
    """One record, its field ``text`` the whole file; an empty file has none."""
    if at.record:
        return
    try:
        with _opened(path) as file:
            raw = file.read()
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if text := decoded(raw, str(path)):
        yield Record(str(path), {"text": text}), At(1)

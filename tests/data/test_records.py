"""Records of files: every format the same, from every place on; what is broken is told by file and line."""

import csv
import gzip
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from entrenar.array import Generator
from entrenar.data import FORMATS, ChatTemplate, read_records, take_held_out
from entrenar.data.formats import format_of
from entrenar.io import DataError

ROWS = [{"text": f"line {n}\né\t'\"", "more": str(n)} for n in range(7)]


def write_jsonl(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_csv(path, rows):
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, rows[0], delimiter="\t" if path.suffix == ".tsv" else ",")
        writer.writeheader()
        writer.writerows(rows)


def write_parquet(path, rows):
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.Table.from_pylist(rows), path, row_group_size=3)


WRITERS = {".jsonl": write_jsonl, ".csv": write_csv, ".tsv": write_csv, ".parquet": write_parquet}


def pack(path):
    packed = path.with_name(path.name + ".gz")
    packed.write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()
    return packed


def two_files(folder, suffix, packed=False):
    if suffix == ".txt":
        for name, row in zip("abc", ROWS, strict=False):
            (folder / f"{name}.txt").write_text(row["text"], newline="")
        files, rows = sorted(folder.iterdir()), [{"text": row["text"]} for row in ROWS[:3]]
    else:
        for name, part in (("a", ROWS[:4]), ("b", ROWS[4:])):
            WRITERS[suffix](folder / f"{name}{suffix}", part)
        files, rows = sorted(folder.iterdir()), ROWS
    return [pack(f) for f in files] if packed else files, rows


CASES = [
    (suffix, packed)
    for suffix in (*WRITERS, ".txt")
    for packed in (False, True)
    if (suffix, packed) != (".parquet", True)
]


@pytest.mark.parametrize(("suffix", "packed"), CASES)
def test_the_same_records_in_every_format(tmp_path, suffix, packed):
    files, rows = two_files(tmp_path, suffix, packed)
    (tmp_path / ".hidden.jsonl").write_text("not read")
    for given_path in (tmp_path, f"{tmp_path}/*{suffix}*", files, [str(f) for f in files]):
        records = read_records(given_path)
        assert list(records.files) == files and records.columns == list(rows[0])
        assert [record.fields for record in records] == rows
        assert [record.fields for record in records] == rows  # again
    assert [r.fields for r in read_records(files[0])] == rows[: len(rows) - 3 if suffix != ".txt" else 1]
    assert len({record.place for record in records}) == len(rows)
    assert all(str(record.place).startswith(str(tmp_path)) for record in records)


@pytest.mark.parametrize(("suffix", "packed"), CASES)
def test_reading_goes_on_from_every_place(tmp_path, suffix, packed):
    two_files(tmp_path, suffix, packed)
    records = read_records(tmp_path)
    for seed in (None, 1, 5):
        whole = list(read(records, None, seed))
        assert {repr(r) for r, _ in whole} == {repr(r) for r, _ in records.read()}
        for n, (_, place) in enumerate(whole):
            place = json.loads(json.dumps(place))
            assert list(read(records, place, seed)) == whole[n + 1 :]
        assert list(read(records, [0, 0, 0, 0], seed)) == whole


def read(records, place, seed):
    return records.read(place, None if seed is None else Generator(seed))


def test_the_order_of_files_is_drawn(tmp_path):
    for n in range(9):
        write_jsonl(tmp_path / f"{n}.jsonl", [{"text": str(n)}])
    records = read_records(tmp_path)
    drawn = [[r.fields["text"] for r, _ in records.read(None, Generator(seed))] for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2] and sorted(drawn[2]) == sorted(drawn[0]) == [str(n) for n in range(9)]
    assert [r.fields["text"] for r in records] == [str(n) for n in range(9)]


def test_lists_and_structs_of_parquet_are_lists_and_dicts(tmp_path):  # case 183
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    talk = [{"role": "user", "content": "hi", "parts": [{"x": [1, 2]}, None]}, {"role": "assistant", "content": "ho"}]
    maps = pyarrow.array([[("a", 1), ("b", 2)]], pyarrow.map_(pyarrow.string(), pyarrow.int64()))
    table = pyarrow.table({"messages": [talk], "map": maps, "floats": [np.array([0.5, 1.0])]})
    parquet.write_table(table, tmp_path / "a.parquet")
    fields = read_records(tmp_path / "a.parquet").first.fields

    def plain(value):
        if isinstance(value, dict):
            return all(type(k) is str and plain(v) for k, v in value.items())
        if isinstance(value, list):
            return all(map(plain, value))
        return value is None or type(value) in (str, int, float)

    assert plain(fields) and fields["map"] == {"a": 1, "b": 2} and fields["floats"] == [0.5, 1.0]
    assert fields["messages"][0]["parts"] == [{"x": [1, 2]}, None] and fields["messages"][1]["role"] == "assistant"
    show = "{% for m in messages %}{{ m | tojson }}{% endfor %}"
    assert ChatTemplate(show).render(fields["messages"]).endswith('{"role": "assistant", "content": "ho"}')


def test_columns_that_are_not_needed_are_not_read_from_parquet(tmp_path):
    write_parquet(tmp_path / "a.parquet", ROWS)
    records = read_records(tmp_path)
    assert [record.fields for record, _ in records.read(columns=["more"])] == [{"more": row["more"]} for row in ROWS]


BOM = b"\xef\xbb\xbf"


@pytest.mark.parametrize(
    ("name", "content"), [("a.jsonl", b'{"text": "x"}\n\n  \n{"text": "y"}'), ("a.csv", b"text\r\nx\r\n\r\ny\r\n")]
)
def test_a_byte_order_mark_and_empty_lines_are_left_out(tmp_path, name, content):
    (tmp_path / name).write_bytes(BOM + content)
    records = read_records(tmp_path)
    assert [r.fields for r in records] == [{"text": "x"}, {"text": "y"}]
    assert [r.place.rpartition(":")[2] for r in records] == (["1", "4"] if name == "a.jsonl" else ["2", "4"])


def test_a_text_file_with_a_byte_order_mark(tmp_path):
    (tmp_path / "a.txt").write_bytes(BOM + b"x\r\ny")
    (tmp_path / "b.txt").write_bytes(b"")
    assert [r.fields["text"] for r in read_records(tmp_path)] == ["x\r\ny"]


OBJECT = b'{"text": "x"}\n'
BROKEN = [
    ("a.jsonl", OBJECT + b'{"text": "y\n', r"a\.jsonl:2: not JSON"),
    ("a.jsonl", OBJECT + b"[1]\n", r"a\.jsonl:2: expected an object a line, got list$|got list\.$"),
    ("a.json", b'[{"text": "x"},\n', r"a\.json:1: not JSON.*jq -c '\.\[\]' FILE"),
    ("a.json", b'[{"text": "x"}]', r"a\.json:1: expected an object a line, got list.*jq -c"),
    ("a.jsonl", b"[" * 100_000, r"a\.jsonl:1: not JSON"),
    ("a.jsonl", OBJECT + b'{"text": "\xe9"}', r"a\.jsonl:2: not UTF-8: byte 0xe9 at byte 11"),
    ("a.jsonl", OBJECT.decode().encode("utf-16"), r"a\.jsonl:1: UTF-16, expected UTF-8"),
    ("a.jsonl", b"", r"a\.jsonl: no records"),
    ("a.jsonl", b"\n \n", r"a\.jsonl: no records"),
    ("a.jsonl", b"{}\n", r"a\.jsonl:1: the first record has no fields"),
    ("a.jsonl.gz", gzip.compress(OBJECT * 999)[:-9], r"a\.jsonl\.gz:\d+: the packed file is cut off or damaged"),
    ("a.jsonl.gz", b"plain", r"a\.jsonl\.gz:1: cannot be read: Not a gzipped file"),
    ("a.jsonl.gz", gzip.compress(OBJECT + b"{\n"), r"a\.jsonl\.gz:2: not JSON"),
    ("a.csv", b"", r"a\.csv: no records"),
    ("a.csv", b"text\n", r"a\.csv: no records"),
    ("a.csv", b"text,text\nx,y\n", r"a\.csv:1: two columns are called 'text'"),
    ("a.csv", b'text,b\n"x\ny",1\nz\n', r"a\.csv:4: 1 fields, the header names 2"),
    ("a.csv", b'text,b\nx,1\n"y,2\nz', r"a\.csv:3: not CSV: unexpected end of data"),
    ("a.csv", b'text,b\nx,1\n"y"z,2\n', r"a\.csv:3: not CSV: ',' expected after '\"'"),
    ("a.csv", b"text\nx\n\xff\n", r"a\.csv:3: not UTF-8: byte 0xff at byte 1$"),
    ("a.txt", b"one\ntwo\nthr\xe9e", r"a\.txt: not UTF-8: byte 0xe9 at line 3, byte 4"),
    ("a.txt", b"\xff\xfeo\0", r"a\.txt: UTF-16, expected UTF-8"),
    ("a.txt", b"", r"a\.txt: no text"),
    ("a.txt.gz", b"x", r"a\.txt\.gz: cannot be read"),
    ("a.parquet", b"PAR1 no", r"a\.parquet: cannot be read as Parquet"),
    ("a.parquet", b"", r"a\.parquet: cannot be read as Parquet"),
    ("a.jsonl.zst", b"x", r"a\.jsonl\.zst: unknown kind of file: known are \.jsonl, .*\.txt"),
]


@pytest.mark.parametrize(("name", "content", "told"), BROKEN, ids=range(len(BROKEN)))
def test_what_is_broken_is_told_by_file_and_line(tmp_path, name, content, told):
    if name.endswith(".parquet"):
        pytest.importorskip("pyarrow")
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=told) as caught:
        list(read_records(tmp_path / name))
    assert caught.value.exit_status == 3


def test_a_parquet_file_cut_off_within(tmp_path):
    write_parquet(tmp_path / "a.parquet", ROWS)
    content = bytearray((tmp_path / "a.parquet").read_bytes())
    content[4:60] = bytes(56)
    (tmp_path / "a.parquet").write_bytes(content)
    with pytest.raises(DataError, match=r"a\.parquet: cannot be read as Parquet"):
        list(read_records(tmp_path))


def test_a_later_file_without_records_is_told(tmp_path):
    write_jsonl(tmp_path / "a.jsonl", ROWS)
    (tmp_path / "b.jsonl").write_text("\n")
    with pytest.raises(DataError, match=r"b\.jsonl: no records"):
        list(read_records(tmp_path))


def test_which_files(tmp_path):
    write_jsonl(tmp_path / "a.jsonl", ROWS)
    with pytest.raises(DataError, match=r"b\.jsonl: no such file or folder.*Did you mean 'a\.jsonl'"):
        read_records(tmp_path / "b.jsonl")
    with pytest.raises(DataError, match="no such file or folder"):
        read_records(tmp_path / "none" / "b.jsonl")
    with pytest.raises(DataError, match="no file matches this pattern"):
        read_records(f"{tmp_path}/*.csv")
    with pytest.raises(DataError, match=r"no data in this folder: no file ends on \.csv, \.tsv"):
        read_records(tmp_path, "csv")
    with pytest.raises(ValueError, match=r"format 'jsonll': expected .*Did you mean 'jsonl'"):
        read_records(tmp_path, "jsonll")
    with pytest.raises(DataError, match="the list is empty"):
        read_records([])
    (tmp_path / "sub").mkdir()
    write_csv(tmp_path / "sub" / "b.csv", ROWS)
    with pytest.raises(DataError, match="files of csv and jsonl: give the format"):
        read_records(tmp_path)
    assert read_records(tmp_path, "csv").files == (tmp_path / "sub" / "b.csv",)
    (tmp_path / "c.py").write_text("x = 1\n")
    assert [r.fields for r in read_records(f"{tmp_path}/**/*.py", "text")] == [{"text": "x = 1\n"}]
    with pytest.raises(DataError, match="unknown kind of file"):
        read_records(tmp_path / "c.py")


def test_long_fields_of_csv(tmp_path):
    write_csv(tmp_path / "a.csv", [{"text": "x" * 200_000}])
    assert len(read_records(tmp_path).first.fields["text"]) == 200_000


@given(
    st.lists(
        st.dictionaries(st.sampled_from(["a", "b"]), st.text(st.characters(codec="utf-8")), min_size=2), min_size=1
    )
)
@settings(max_examples=25)
def test_any_text_comes_back(tmp_path_factory, rows):
    folder = tmp_path_factory.mktemp("any")
    write_jsonl(folder / "a.jsonl", rows)
    assert [r.fields for r in read_records(folder)] == rows
    rows = [{k: v.replace("\0", "").replace("\r", "") for k, v in row.items()} for row in rows]
    write_csv(folder / "a.csv", rows)
    assert [r.fields for r in read_records(folder / "a.csv")] == rows


def test_every_format_has_names_and_is_found_by_them():
    for name, row in FORMATS.items():
        for suffix in row.suffixes:
            assert format_of(Path(f"x{suffix}")) == format_of(Path(f"x{suffix.upper()}.gz")) == name


def test_records_are_held_out_by_their_content(tmp_path):
    rows = [{"text": str(n)} for n in range(300)]
    write_jsonl(tmp_path / "a.jsonl", [*rows, *rows[:50]])
    train, held_out = take_held_out(read_records(tmp_path), 0.2)
    sides = [[r.fields["text"] for r in part] for part in (train, held_out)]
    assert not set(sides[0]) & set(sides[1]) and len(sides[0]) + len(sides[1]) == 350
    assert 30 < len(set(sides[1])) < 90
    assert train.columns == held_out.columns == ["text"] and held_out.first.fields["text"] == sides[1][0]
    for part in (train, held_out):
        whole = list(part.read())
        for n, (_, place) in enumerate(whole):
            assert [r for r, _ in part.read(place)] == [r for r, _ in whole[n + 1 :]]
    write_jsonl(tmp_path / "a.jsonl", [*reversed(rows), {"text": "new"}])
    assert {r.fields["text"] for r in take_held_out(read_records(tmp_path), 0.2)[1]} - {"new"} == set(sides[1])
    with pytest.raises(ValueError, match="between 0 and 1, got 1"):
        take_held_out(read_records(tmp_path), 1)
    write_jsonl(tmp_path / "a.jsonl", rows[:1])
    with pytest.raises(DataError, match="no record is"):
        [part.first for part in take_held_out(read_records(tmp_path), 0.5)]


def test_without_pyarrow_it_says_what_to_install(tmp_path, monkeypatch):
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"pip install 'entrenar\[parquet\]'"):
        read_records(tmp_path)

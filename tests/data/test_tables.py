"""The one reader of tables: formats, places, and refusals that name the place."""

import io
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import polars
import pyarrow
import pyarrow.parquet
import pytest

from crossbit import DataError, FormatError
from crossbit.data.tables import (
    elements,
    is_empty,
    open_table,
    read_columns,
    read_lines,
    rows_table,
)

RECORDS = [{"id": "a", "title": "one, two", "year": 2010}, {"id": "b", "year": 2011}]


def write(folder: Path, name: str, text: str) -> Path:
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name


def typed(path: Path) -> list[dict[str, Any]]:
    """Return the records with cells as payloads have them, without missing ones."""
    table = open_table(path)
    return [
        {name: table.value(cell) for name, cell in record.items() if not is_empty(cell)}
        for _, record in table.records()
    ]


def test_every_format_gives_the_same_records(tmp_path: Path) -> None:
    lines = '{"id": "a", "title": "one, two", "year": 2010}\n\n{"id": "b", "year": 2011}\n'
    frame = pyarrow.table({"id": ["a", "b"], "title": ["one, two", None], "year": [2010, 2011]})
    pyarrow.parquet.write_table(frame, tmp_path / "t.parquet")
    for path in (
        write(tmp_path, "t.csv", '\ufeffid,title,year\na,"one, two",2010\nb,,2011\n'),
        write(tmp_path, "semicolons.csv", "id;title;year\r\na;one, two;2010\r\nb;;2011\r\n"),
        write(tmp_path, "t.tsv", "id\ttitle\tyear\na\tone, two\t2010\nb\t\t2011\n"),
        write(tmp_path, "t.txt", "id|title|year\na|one, two|2010\nb||2011\n"),
        write(tmp_path, "t.jsonl", lines),
        tmp_path / "t.parquet",
    ):
        assert typed(path) == RECORDS, path
        assert open_table(path).columns in (["id", "title", "year"], None)
        count = open_table(path).count
        assert count is not None
        assert count() == 2
        assert read_columns(open_table(path)).column_names == ["id", "title", "year"]


def test_a_place_is_a_line_or_a_row(tmp_path: Path) -> None:
    path = write(tmp_path, "t.csv", '\nid,note\na,"x\ny"\n\nb,z\n')
    table = open_table(path)
    assert [place for place, _ in table.records()] == [3, 6]
    assert table.place(6) == f"{path}, line 6"
    array = rows_table("X.npy", np.eye(2), "image")
    ((first, record), *_), *_ = array.batches(2)
    assert array.place(first) == "X.npy, row 0 (counted from 0)"
    assert record["image"].tolist() == [1, 0]


def test_frames_are_tables() -> None:
    for frame in (pandas.DataFrame(RECORDS), polars.DataFrame(RECORDS)):
        table = open_table(frame, folder="here")
        assert [record for _, record in table.records()] == RECORDS
        assert (table.folder, table.columns) == (Path("here"), ["id", "title", "year"])
    twice = pandas.DataFrame([[1, 2]], columns=["a", "a"])
    with pytest.raises(DataError, match="the frame: two columns have the same name, 'a'"):
        open_table(twice)


def test_standard_input_is_json_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO('{"id": 1}\n{"id": 2\n'))
    table = open_table("-")
    assert table.count is None
    with pytest.raises(FormatError, match="standard input, line 2: not valid JSON"):
        list(table.records())


def test_fields_that_are_not_needed_are_left_out_of_parquet(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"x": [[1.0]] * 3, "id": [7, 8, 9]}), path)
    table = open_table(path)
    assert list(table.records(["id"])) == [(0, {"id": 7}), (1, {"id": 8}), (2, {"id": 9})]
    assert len(list(table.records(["none"]))) == 3


def test_a_folder_can_be_named_and_is_else_that_of_the_file(tmp_path: Path) -> None:
    path = write(tmp_path, "t.csv", "id\n1\n")
    assert open_table(path).folder == tmp_path
    assert open_table(path, folder="other").folder == Path("other")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b"id,id\n1,2\n", "line 1: two columns have the same name, 'id'"),
        ("a.csv", b"id,x\n1,2,3\n", "line 2: 3 cells, but the header in line 1 names 2 columns"),
        ("a.csv", b"id\n" + 2**27 * b"x" + b"\n", "line 2: invalid CSV"),
        ("a.csv", b"id\nok\n\xe9t\xe9\n", "line 3: not UTF-8 .byte 0xe9.; convert it"),
        ("a.jsonl", b'{"id": 1}\n{"id": ', "line 2: not valid JSON"),
        ("a.jsonl", b'{"id": 1}\n' + 9999 * b"[", "line 2: not valid JSON"),
        ("a.jsonl", b"[1]", r"line 1: expected a JSON object, got '\[1\]'"),
        ("a.txt", b"dog.jpg#0\tA dog\nno token", "line 2: expected 'image#0<TAB>caption'"),
        ("a.parquet", b"PAR1", "cannot be read as parquet"),
        ("a.xlsx", b"", r"expected a table \.csv, \.tsv, \.jsonl or \.parquet"),
    ],
)
def test_what_cannot_be_read_is_named(
    name: str, content: bytes, message: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises((DataError, FormatError), match=message):
        list(open_table(tmp_path / name).records())


def test_a_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    (tmp_path / "folder.csv").mkdir()
    for name, message in (
        ("none.csv", r"none\.csv: cannot be read \(No such file"),
        ("folder.csv", r"folder\.csv: cannot be read"),
        ("none.parquet", r"none\.parquet: no such file"),
    ):
        with pytest.raises(DataError, match=message):
            open_table(tmp_path / name)
    with pytest.raises(DataError, match=r"names\.txt: cannot be read"):
        read_lines(tmp_path / "names.txt")


def test_a_damaged_parquet_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"id": list(range(5000))}), path)
    content = bytearray(path.read_bytes())
    content[20:400] = bytes(380)
    path.write_bytes(bytes(content))
    with pytest.raises(FormatError, match=r"t\.parquet: cannot be read as parquet"):
        list(open_table(path).records())


def test_columns_that_claim_more_than_memory_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"text": ["x" * 10_000] * 2000}), path)
    monkeypatch.setenv("CROSSBIT_MAX_DECODED", "1M")
    with pytest.raises(DataError, match="would take"):
        list(open_table(path).records())


def test_a_line_with_too_few_cells_is_refused_where_columns_are_needed(tmp_path: Path) -> None:
    path = write(tmp_path, "t.csv", "x_0,x_1\n1,2\n3\n")
    with pytest.raises(FormatError, match="line 3: expected 2 columns as in line 1, got 1"):
        read_columns(open_table(path))


def test_lines_have_any_ends(tmp_path: Path) -> None:
    (tmp_path / "names.txt").write_bytes(b"\xef\xbb\xbfa\r\nb\n\nc")
    assert read_lines(tmp_path / "names.txt") == ["a", "b", "", "c"]


def test_elements_of_cells() -> None:
    assert elements("[1, 2]") == [1, 2]
    assert elements("a") == ["a"]
    assert elements(None) == [None]

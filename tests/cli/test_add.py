"""``crossbit add``: places in error messages, ids that repeat, and interrupted runs."""

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from crossbit import Collection, HashModel
from crossbit.cli import main
from crossbit.model import Affine

BATCH_SIZES = pytest.mark.parametrize("batch", [1, 2, 3, 1000])


def run(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    model = HashModel({"image": [Affine(np.eye(2), np.zeros(2))]}, n_bits=2)
    with Collection.create(tmp_path / "photos", model):
        return tmp_path / "photos"


def ids_in(folder: Path) -> list[object]:
    with Collection.open(folder) as collection:
        return [item.id for item in collection]


def json_lines(*records: dict[str, Any]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


GOOD: dict[str, Any] = {"image": [1.0, 2.0]}
BAD: dict[str, Any] = {"image": [1.0, float("nan")]}
ABSENT: dict[str, Any] = {"name": "no picture"}


def write_jsonl(folder: Path, rows: list[list[float] | None]) -> Path:
    """Blank lines count, records of absent rows do not change the numbers of the others."""
    text = "\n" + "\n".join(json.dumps({"id": f"p{i}", "image": row}) for i, row in enumerate(rows))
    (folder / "items.jsonl").write_text(text)
    return folder / "items.jsonl"


def write_csv(folder: Path, rows: list[list[float] | None]) -> Path:
    """The second record spans two lines."""
    lines = [
        f'p{i},"{"" if row is None else json.dumps(row)}",{chr(34)}a\nb{chr(34)}'
        if i == 1
        else f'p{i},"{"" if row is None else json.dumps(row)}",c'
        for i, row in enumerate(rows)
    ]
    (folder / "items.csv").write_text("id,image,note\n" + "\n".join(lines) + "\n")
    return folder / "items.csv"


def write_parquet(folder: Path, rows: list[list[float] | None]) -> Path:
    records = [{"id": f"p{i}", "image": row} for i, row in enumerate(rows)]
    pq.write_table(pa.Table.from_pylist(records), folder / "items.parquet")
    return folder / "items.parquet"


ROWS: list[list[float] | None] = [[1, 2], [1, 2], None, [1, 2], [1e300, 2]]


@BATCH_SIZES
@pytest.mark.parametrize(
    ("write", "place"),
    [
        (write_jsonl, "items.jsonl, line 6, item 'p4': the row of 'image' contains NaN"),
        (write_csv, "items.csv, line 7, item 'p4': the row of 'image' contains NaN"),
        (write_parquet, "items.parquet, row 4 (counted from 0), item 'p4': the row of 'image'"),
    ],
    ids=["jsonl", "csv", "parquet"],
)
def test_a_bad_row_is_named_by_its_place_in_the_file(
    write: Callable[[Path, list[list[float] | None]], Path],
    place: str,
    batch: int,
    photos: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    source = write(photos.parent, ROWS)
    assert run("add", photos, source, "--batch", batch) == 1
    assert place in capsys.readouterr().err


@BATCH_SIZES
def test_a_bad_row_of_an_array_is_named_by_its_number(
    batch: int, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    X = np.array([[1, 2], [np.nan, np.nan], [1, 2], [np.nan, 2]])
    np.save(tmp_path / "X.npy", X)
    assert run("add", photos, tmp_path / "X.npy", "-m", "image", "--batch", batch) == 1
    assert "X.npy, row 3 (counted from 0), item 3: the row of" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.jsonl", '\n{"id": "a"}\n\n{"id": [1]}\n', "a.jsonl, line 4: an id must be a string"),
        ("a.csv", 'id,note\na,"x\ny"\nb,1,2\n', "a.csv, line 4: 3 cells, but the header in line 1"),
        ("a.jsonl", '{"id": "a"}\n\n{"id": "b"', "a.jsonl, line 3: not valid JSON"),
    ],
)
def test_a_malformed_record_is_named_by_its_line(
    name: str,
    text: str,
    message: str,
    photos: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / name).write_text(text)
    assert run("add", photos, tmp_path / name) == 1
    assert message in capsys.readouterr().err
    assert ids_in(photos) == []


@BATCH_SIZES
def test_an_id_that_occurs_twice_is_refused_before_anything_is_written(
    batch: int, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "items.jsonl"
    records = [{"id": id_, **GOOD} for id_ in ("a", "b", 1, "1", "b")]
    source.write_text("\n" + json_lines(*records))
    assert run("add", photos, source, "--batch", batch) == 1
    printed = capsys.readouterr().err
    assert (
        "items.jsonl, line 6: id 'b' occurs for the second time, the first is in line 3" in printed
    )
    assert "use --replace" in printed
    assert ids_in(photos) == []


@BATCH_SIZES
def test_replace_lets_the_last_of_several_records_count(
    batch: int, photos: Path, tmp_path: Path
) -> None:
    source = tmp_path / "items.jsonl"
    source.write_text(
        json_lines({"id": "a", **GOOD, "year": 1}, {"id": "b", "year": 2}, {"id": "a", "year": 3})
    )
    assert run("add", photos, source, "--batch", batch, "--replace") == 0
    with Collection.open(photos) as collection:
        found = {item.id: (item.payload, item.modalities) for item in collection}
    assert found == {"a": ({"year": 3}, ["image"]), "b": ({"year": 2}, [])}


@BATCH_SIZES
def test_an_id_that_is_stored_is_refused_before_anything_is_written(
    batch: int, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Collection.open(photos) as collection:
        collection.upsert(["c"], payload=[{"year": 1}])
    source = tmp_path / "items.jsonl"
    source.write_text(json_lines(*({"id": id_, **GOOD} for id_ in "abcd")))
    assert run("add", photos, source, "--batch", batch) == 1
    printed = capsys.readouterr().err
    assert "items.jsonl, line 3: item 'c' is already in" in printed
    assert ids_in(photos) == ["c"]
    assert run("add", photos, source, "--batch", batch, "--replace") == 0
    with Collection.open(photos) as collection:
        assert collection.get(["c"])[0] is not None
        assert len(collection) == 4
        (item,) = collection.get(["c"])
        assert item is not None
        assert item.payload == {"year": 1}
        assert item.modalities == ["image"]


def test_repeated_ids_of_other_sources_are_named(
    photos: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    np.save(tmp_path / "X.npy", np.ones((3, 2)))
    (tmp_path / "names.txt").write_text("a\nb\na\n")
    command = ("add", photos, tmp_path / "X.npy", "-m", "image")
    assert run(*command, "--ids-file", tmp_path / "names.txt") == 1
    assert "names.txt, line 3: id 'a' occurs for the second time" in capsys.readouterr().err
    pq.write_table(pa.Table.from_pylist([{"id": 7}, {"id": 7}]), tmp_path / "t.parquet")
    assert run("add", photos, tmp_path / "t.parquet") == 1
    assert "t.parquet, row 1 (counted from 0): id 7 occurs" in capsys.readouterr().err
    monkeypatch.setattr(sys, "stdin", io.StringIO(json_lines({"id": "x"}, {"id": "x"})))
    assert run("add", photos, "-") == 1
    assert "standard input, line 2: id 'x' occurs for the second time" in capsys.readouterr().err
    assert ids_in(photos) == []
    assert run(*command) == 0
    assert run(*command) == 1
    assert "X.npy, row 0 (counted from 0): item 0 is already in" in capsys.readouterr().err


def test_an_interrupted_add_goes_on_with_skip_existing(
    photos: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    source = tmp_path / "items.jsonl"
    source.write_text(json_lines(*({"id": id_, **GOOD} for id_ in "abcd")))
    upsert = Collection.upsert

    def killed(self: Collection, *arguments: Any, **options: Any) -> None:  # noqa: ANN401
        upsert(self, *arguments, **options)
        if arguments[0]:  # the first write that has items
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Collection, "upsert", killed)
        assert run("add", photos, source, "--batch", 2) == 130
    assert ids_in(photos) == ["a", "b"]
    assert "2 items added; go on with --skip-existing" in capsys.readouterr().err
    assert run("add", photos, source, "--batch", 2) == 1
    assert run("add", photos, source, "--batch", 2, "--skip-existing") == 0
    assert "2 items added; 4 in" in capsys.readouterr().err
    assert ids_in(photos) == ["a", "b", "c", "d"]
    assert run("add", photos, source, "--replace", "--skip-existing") == 1


def test_columns_of_numbers_are_joined_by_range_or_pattern(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "wide.csv").write_text("id,p0,p1,title\na,1,-2,x\nb,-1,2,y\nc,,,z\n")
    assert run("add", photos, tmp_path / "wide.csv", "--column", "image=p0:p1") == 0
    (tmp_path / "more.csv").write_text("id,p0,p1,title\nd,1,-2,x\ne,1,,y\n")
    assert run("add", photos, tmp_path / "more.csv", "--column", "image=p*") == 1
    printed = capsys.readouterr().err
    assert "more.csv, line 3: expected a list of 2 numbers for 'image', got [1]" in printed
    with Collection.open(photos) as collection:
        found = {item.id: (item.payload, item.modalities) for item in collection}
    assert found == {
        "a": ({"title": "x"}, ["image"]),
        "b": ({"title": "y"}, ["image"]),
        "c": ({"title": "z"}, []),
    }


def test_one_item_is_counted_in_the_singular(
    photos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (photos.parent / "one.jsonl").write_text('{"id": "a", "image": [1, 0]}\n')
    assert run("add", photos, photos.parent / "one.jsonl") == 0
    assert "1 item added; 1 in" in capsys.readouterr().err

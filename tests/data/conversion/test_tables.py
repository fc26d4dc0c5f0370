"""Tables, .csv and .parquet, as data sets."""

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.csv
import pyarrow.parquet
import pytest

from crossbit.data import Dataset, convert, read
from crossbit.errors import DataError

RNG = np.random.default_rng(0)
IMAGES, TEXTS = RNG.random((7, 4)), RNG.random((7, 3))
CLASSES = np.array([1, 2, 3, 1, 2, 3, 3])


def table(**columns: Any) -> pyarrow.Table:  # noqa: ANN401
    numbered = {
        f"{m}_{k}": X[:, k]
        for m, X in (("image", IMAGES), ("text", TEXTS))
        for k in range(X.shape[1])
    }
    return pyarrow.table(numbered | columns)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_numbered_columns_labels_splits_and_payload_of_a_table(suffix: str, tmp_path: Path) -> None:
    rows_table = table(
        label=["dog", "cat", None, "cat", "dog", "dog", "cat"],
        split=["train"] * 5 + ["test"] * 2,
        year2=range(7),
    )
    path = tmp_path / f"set.{suffix}"
    if suffix == "csv":
        pyarrow.csv.write_csv(rows_table, path)
    else:
        pyarrow.parquet.write_table(rows_table, path)
    data = convert(path, tmp_path / "out")
    np.testing.assert_array_equal(data.views["image"], IMAGES)
    np.testing.assert_array_equal(data.views["text"], TEXTS)
    assert data.classes == ("cat", "dog")
    np.testing.assert_array_equal(data.labels_by_modality()["image"], [1, 0, -1, 0, 1, 1, 0])
    assert {part: len(rows) for part, rows in data.splits.items()} == {"train": 5, "test": 2}
    assert data.payload == tuple({"year2": k} for k in range(7))


def test_numbered_columns_are_ordered_by_number(tmp_path: Path) -> None:
    wide = {f"image_{k}": np.full(2, float(k)) for k in (10, 9, 2, 1, 0, 3, 4, 5, 6, 7, 8)}
    pyarrow.csv.write_csv(pyarrow.table(wide), tmp_path / "set.csv")
    np.testing.assert_array_equal(read(tmp_path / "set.csv").views["image"][0], np.arange(11.0))


def test_numbers_in_a_label_column_are_unchanged(tmp_path: Path) -> None:
    pyarrow.csv.write_csv(table(genre=CLASSES), tmp_path / "set.csv")
    data = read(tmp_path / "set.csv", map={"image": "image", "labels": "genre"})
    np.testing.assert_array_equal(data.labels_by_modality()["image"], CLASSES)


def test_empty_fields_make_an_absent_row_and_half_a_row_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "set.csv").write_text("image_0,image_1,text_0,text_1\n1,2,3,4\n,,5,6\n")
    data = convert(tmp_path / "set.csv", tmp_path / "out")
    assert np.isnan(data.views["image"][1]).all()
    (tmp_path / "set.csv").write_text("image_0,image_1,text_0,text_1\n1,2,3,4\n7,,5,6\n")
    with pytest.raises(
        DataError, match="line 3: the row of 'image' contains NaN or infinity beside numbers"
    ):
        convert(tmp_path / "set.csv", tmp_path / "out")
    assert np.isnan(
        Dataset.load(tmp_path / "out").views["image"][1]
    ).all()  # the earlier one still stands


@pytest.mark.parametrize("kind", ["list", "fixed"])
def test_lists_in_a_parquet_file(kind: str, tmp_path: Path) -> None:
    rows: list[list[float] | None] = IMAGES.tolist()
    rows[2] = None
    width = -1 if kind == "list" else 4
    rows_table = pyarrow.table(
        {"image": pyarrow.array(rows, pyarrow.list_(pyarrow.float64(), width)), "label": CLASSES}
    )
    pyarrow.parquet.write_table(rows_table, tmp_path / "set.parquet")
    view = read(tmp_path / "set.parquet").views["image"]
    assert np.isnan(view[2]).all()
    np.testing.assert_array_equal(np.delete(view, 2, axis=0), np.delete(IMAGES, 2, axis=0))
    pyarrow.parquet.write_table(
        pyarrow.table({"image": [[1.0], [1.0, 2.0]]}), tmp_path / "ragged.parquet"
    )
    with pytest.raises(
        DataError, match=r"column 'image': expected lists of one length, got lengths \[1, 2\]"
    ):
        read(tmp_path / "ragged.parquet")


def test_lists_of_words_are_multiple_labels_and_other_columns_payload(tmp_path: Path) -> None:
    rows_table = pyarrow.table(
        {
            "image": [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]],
            "labels": [["dog", "cat"], None, ["cat"]],
            "day": [datetime.date(2024, 5, 1), None, None],
            "score": [0.5, float("nan"), None],
            "tags": [["a"], [], None],
        }
    )
    pyarrow.parquet.write_table(rows_table, tmp_path / "set.parquet")
    data = convert(tmp_path / "set.parquet", tmp_path / "out")
    assert data.classes == ("cat", "dog")
    assert data.labels_by_modality()["image"].tolist() == [
        [True, True],
        [False, False],
        [True, False],
    ]
    assert data.payload == (
        {"day": "2024-05-01", "score": 0.5, "tags": ["a"]},
        {"day": None, "score": None, "tags": []},
        {"day": None, "score": None, "tags": None},
    )


def test_columns_of_several_files_must_agree(tmp_path: Path) -> None:
    for name, days in (("image", "ab"), ("text", "ac")):
        numbered = {"0": [1.0, 2.0], "1": [1.0, 2.0], "day": list(days)}
        pyarrow.csv.write_csv(pyarrow.table(numbered), tmp_path / f"{name}.csv")
    with pytest.raises(
        DataError, match=r"text\.csv: column 'day' differs from that of another file"
    ):
        read(tmp_path)
    pyarrow.csv.write_csv(pyarrow.table({"day": ["a", "b", "c"]}), tmp_path / "text.csv")
    with pytest.raises(DataError, match="differs"):
        read(tmp_path)
    pyarrow.csv.write_csv(pyarrow.table({"title": ["a", "b", "c"]}), tmp_path / "text.csv")
    with pytest.raises(
        DataError, match=r"columns must have one value for each of 2 rows, got \{'title': 3\}"
    ):
        read(tmp_path)


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_columns_are_separated_by_comma_semicolon_or_tab(delimiter: str, tmp_path: Path) -> None:
    lines = ["image_0,image_1,y,title", "1,2,4,dog", "3,4,5,cat"]
    (tmp_path / "set.csv").write_text("\n".join(lines).replace(",", delimiter) + "\n")
    data = read(tmp_path / "set.csv")
    np.testing.assert_array_equal(data.views["image"], [[1, 2], [3, 4]])
    np.testing.assert_array_equal(data.labels_by_modality()["image"], [4, 5])
    assert data.payload == ({"title": "dog"}, {"title": "cat"})


@pytest.mark.parametrize("first", ["0.5,0.25,0.125", "3;1;5", "7"])
def test_a_table_without_a_header_is_rejected(first: str, tmp_path: Path) -> None:
    (tmp_path / "set.csv").write_text(f"{first}\n{first}\n")
    with pytest.raises(
        DataError,
        match=rf"set\.csv: the first line must be a header .* such as image_0.image_1.*'{first}'",
    ):
        read(tmp_path / "set.csv")


def test_a_table_without_views_lists_its_columns(tmp_path: Path) -> None:
    (tmp_path / "set.csv").write_text("height,weight\n1.5,2.5\n")
    with pytest.raises(
        DataError, match="no views found; the columns are height, weight; assign roles"
    ):
        read(tmp_path / "set.csv")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("things.tsv", "image_0\timage_1\tlabel\ttitle\n1\t2\tcat\tone\n3\t4\tdog\ttwo\n"),
        (
            "things.jsonl",
            '{"image": [1, 2], "label": "cat", "title": "one"}\n'
            '{"image": [3, 4], "label": "dog", "title": "two"}\n',
        ),
    ],
)
def test_tabs_and_json_lines_are_tables(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    dataset = read(tmp_path / name)
    np.testing.assert_array_equal(dataset.views["image"], [[1, 2], [3, 4]])
    assert list(dataset.classes) == ["cat", "dog"]
    assert dataset.payload is not None

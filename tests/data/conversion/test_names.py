"""Names of arrays and columns: every line of the table in docs/getting-started.md is converted."""

import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
import scipy.io

from crossbit.cli import main
from crossbit.data import Dataset, convert, read
from crossbit.data.conversion.columns import parse_map
from crossbit.data.tables import select_columns
from crossbit.errors import DataError, FormatError

PAGE = Path(__file__).parents[3] / "docs" / "getting-started.md"
ITEMS = 6
RANDOM = np.random.default_rng(0)


def table_of_the_page() -> list[tuple[str, ...]]:
    lines = PAGE.read_text().splitlines()
    start = lines.index("| file | holds | options | data set |") + 2
    rows = []
    for line in lines[start:]:
        if not line.startswith("|"):
            break
        rows.append(tuple(cell.strip(" `") for cell in line.strip("|").split("|")))
    return rows


def values(name: str) -> list[str]:
    """Single values: two classes, or the split of each item."""
    if name == "split":
        return ["train"] * 4 + ["test"] * 2
    return ["cat", "dog"] * 3


def array(name: str, shape: tuple[int, ...]) -> Any:  # noqa: ANN401
    if name.endswith("idx"):
        return np.arange(shape[0])
    if shape == (ITEMS, 2):
        return np.eye(2)[np.arange(ITEMS) % 2]
    if len(shape) == 1 or shape[1] == 1:
        return np.resize([1, 2], shape)
    return RANDOM.normal(size=shape)


def content(text: str) -> dict[str, Any]:
    """Build what a cell of the table describes."""
    columns: dict[str, Any] = {}
    for entry in re.split(r", (?![^(]*\))", text):
        if match := re.fullmatch(r"(\w+) \((.*)\)", entry):
            shape = tuple(int(size) for size in match[2].split(",") if size.strip())
            columns[match[1]] = array(match[1], shape)
        elif match := re.fullmatch(r"(\w+) \[(\d+)\]", entry):
            columns[match[1]] = RANDOM.normal(size=(ITEMS, int(match[2]))).tolist()
        elif match := re.fullmatch(r"(\w+?)(\d+) … \w+?(\d+)", entry):
            for number in range(int(match[2]), int(match[3]) + 1):
                columns[f"{match[1]}{number}"] = RANDOM.normal(size=ITEMS)
        elif entry in ("red", "green", "blue"):
            columns[entry] = RANDOM.normal(size=ITEMS)
        else:
            columns[entry] = values(entry)
    return columns


def write(path: Path, columns: dict[str, Any]) -> None:
    match path.suffix:
        case ".mat":
            scipy.io.savemat(path, columns)
        case ".npz":
            np.savez(path, **columns)
        case ".csv":
            pyarrow.csv.write_csv(pa.table(columns), path)
        case ".parquet":
            pyarrow.parquet.write_table(pa.table(columns), path)


@pytest.mark.parametrize(("suffix", "holds", "options", "expected"), table_of_the_page())
def test_a_line_of_the_page(
    suffix: str, holds: str, options: str, expected: str, tmp_path: Path
) -> None:
    write(tmp_path / f"mine{suffix}", content(holds))
    command = ["data", "convert", str(tmp_path / f"mine{suffix}"), "--out", str(tmp_path / "out")]
    assert main([*command, *shlex.split(options)]) == 0
    assert repr(Dataset.load(tmp_path / "out")) == f"Dataset(mine: {ITEMS} rows; {expected})"


def test_the_page_has_all_kinds_of_files() -> None:
    assert {row[0] for row in table_of_the_page()} == {".mat", ".npz", ".csv", ".parquet"}


def test_ranges_and_patterns_take_the_values_of_their_columns(tmp_path: Path) -> None:
    columns = {f"p{k}": np.full(3, float(k)) for k in (0, 10, 1, 11, 2)}
    write(tmp_path / "mine.csv", columns | {"label": values("label")[:3]})
    data = read(tmp_path / "mine.csv", map=parse_map(["left=p0:p2", "right=p1?"]))
    np.testing.assert_array_equal(data.views["left"][0], [0, 1, 2])
    np.testing.assert_array_equal(data.views["right"][0], [10, 11])
    assert data.payload == tuple({"label": word} for word in values("label")[:3])


def test_a_mapped_column_leaves_its_group(tmp_path: Path) -> None:
    """Labels must not stay among the features."""
    columns = {f"p{k}": np.arange(4) % 2 + 2 * k for k in range(4)}
    write(tmp_path / "mine.csv", columns)
    data = read(tmp_path / "mine.csv", map={"labels": "p0"})
    assert data.views["p"].tolist() == [[2 * k + row % 2 for k in (1, 2, 3)] for row in range(4)]
    assert data.labels_by_modality()["p"].tolist() == [0, 1, 0, 1]


def test_a_column_of_numbers_is_a_view_or_a_mask_if_the_map_says_so(tmp_path: Path) -> None:
    columns = {"height": [1.0, 2.0, 3.0], "late": [False, False, True]}
    write(tmp_path / "mine.csv", columns)
    data = read(tmp_path / "mine.csv", map={"size": "height", "split:test": "late"})
    assert data.views["size"].tolist() == [[1.0], [2.0], [3.0]]
    assert data.splits["test"].tolist() == [2]  # type: ignore[union-attr]


def test_a_pattern_that_matches_nothing_names_the_columns(tmp_path: Path) -> None:
    write(tmp_path / "mine.csv", {"a": [1.0, 2.0], "b": ["x", "y"]})
    with pytest.raises(DataError, match=r"there is no array 'p\*'; the columns are a, b"):
        read(tmp_path / "mine.csv", map={"image": "p*"})
    write(tmp_path / "mine.csv", {f"p{k}": [1.0, 2.0] for k in range(4)})
    with pytest.raises(DataError, match=r"'p0:p9'; the arrays are p \(2, 4\) of columns p0 … p3"):
        read(tmp_path / "mine.csv", map={"image": "p0:p9"})


def test_select_columns_keeps_the_order_of_the_file_without_numbers() -> None:
    names = ["b", "a", "c", "x_1"]
    assert select_columns("b:c", names) == ["b", "a", "c"]
    assert select_columns("c:b", names) == []
    assert select_columns("?", names) == ["b", "a", "c"]
    assert select_columns("a", names) == ["a"]


def test_a_short_ending_alone_is_part_of_the_name(tmp_path: Path) -> None:
    np.savez(tmp_path / "mine.npz", color_re=np.ones((3, 2)), shape_te=np.ones((3, 2)))
    assert read(tmp_path / "mine.npz").modalities == ["color_re", "shape_te"]


HEADER = "image_0,image_1,note\n"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (HEADER + "1,2,a\n3,,b\n", "mine.csv, line 3: the row of 'image' contains NaN"),
        (HEADER + "\n1,2,a\n\n3,,b\n", "mine.csv, line 5: the row of 'image' contains NaN"),
        (HEADER + '1,2,"a\nb"\n3,,b\n', "mine.csv, line 4: the row of 'image' contains NaN"),
        ("\n" + HEADER + "1,2,a\n,3,b\n", "mine.csv, line 4: the row of 'image' contains NaN"),
    ],
    ids=["header", "blank lines", "quoted line break", "blank line before the header"],
)
def test_a_bad_row_of_a_csv_file_is_named_by_its_line(
    text: str, place: str, tmp_path: Path
) -> None:
    (tmp_path / "mine.csv").write_text(text)
    with pytest.raises(DataError, match=re.escape(place)):
        convert(tmp_path / "mine.csv", tmp_path / "out")


def test_a_line_with_too_few_cells_is_named(tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text(HEADER + '1,2,"a\nb"\n\n3,4\n')
    message = "mine.csv, line 5: expected 3 columns as in line 1, got 2"
    with pytest.raises(FormatError, match=re.escape(message)):
        convert(tmp_path / "mine.csv", tmp_path / "out")


def test_a_bad_row_of_stacked_arrays_is_named_by_its_row_in_its_array(tmp_path: Path) -> None:
    test = np.ones((3, 2))
    test[1, 0] = np.nan
    np.savez(tmp_path / "mine.npz", image_train=np.ones((4, 2)), image_test=test)
    with pytest.raises(DataError, match=r"npz: 'image_test', row 1 \(counted from 0\): the row"):
        convert(tmp_path / "mine.npz", tmp_path / "out")
    scipy.io.savemat(
        tmp_path / "mine.mat", {"XAll": test.T, "YAll": np.ones((5, 3)), "LAll": [[1, 2, 1]]}
    )
    with pytest.raises(DataError, match=r"mat: 'XAll\.T', row 1 \(counted from 0\): the row"):
        convert(tmp_path / "mine.mat", tmp_path / "out")
    rows = [[1.0, 2.0], None, [float("nan"), 1.0]]
    pyarrow.parquet.write_table(pa.table({"image": rows}), tmp_path / "mine.parquet")
    with pytest.raises(DataError, match=r"parquet: 'image', row 2 \(counted from 0\): the row"):
        convert(tmp_path / "mine.parquet", tmp_path / "out")

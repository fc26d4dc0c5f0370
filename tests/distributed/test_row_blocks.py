"""Files of rows are split into blocks and read block by block."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossbit import DataError, FormatError
from crossbit.distributed.encoding import RowBlock


def write(folder: Path, name: str, X: Any, ids: list[Any] | None = None) -> None:  # noqa: ANN401
    if name.endswith(".npy"):
        np.save(folder / name, X)
        return
    columns = {"image": pyarrow.array(X.tolist(), pyarrow.list_(pyarrow.float32()))}
    table = pyarrow.table(columns | ({} if ids is None else {"id": ids}))
    pyarrow.parquet.write_table(table, folder / name, row_group_size=4)


@given(
    counts=st.lists(st.integers(0, 9), min_size=1, max_size=4),
    rows=st.integers(1, 5),
    parquet=st.booleans(),
)
def test_blocks_cover_every_row_once(
    tmp_path_factory: pytest.TempPathFactory, counts: list[int], rows: int, parquet: bool
) -> None:
    folder = tmp_path_factory.mktemp("rows")
    X = np.arange(2 * sum(counts), dtype=np.float32).reshape(-1, 2)
    for number, part in enumerate(np.split(X, np.cumsum(counts)[:-1])):
        write(folder, f"{number}.{'parquet' if parquet else 'npy'}", part)
    blocks = [block for block in RowBlock.split(folder, rows=rows) if len(block)]
    lengths = list(map(len, blocks))
    assert [block.first for block in blocks] == [sum(lengths[:k]) for k in range(len(blocks))]
    assert sum(lengths) == len(X)
    for block in blocks:
        read_rows, ids = block.read("image", "id")
        np.testing.assert_array_equal(read_rows, X[block.first : block.first + len(block)])
        assert list(ids) == list(range(block.first, block.first + len(block)))


def test_ids_come_from_their_column(tmp_path: Path) -> None:
    write(tmp_path, "a.parquet", np.ones((6, 2)), ids=list("abcdef"))
    ids = [block.read("image", "id")[1] for block in RowBlock.split(tmp_path)]
    assert ids == [list("abcd"), list("ef")]


def test_invalid_files_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"the folder has no \.npy or \.parquet files"):
        RowBlock.split(tmp_path)
    with pytest.raises(
        DataError, match=r"rows\.csv: expected a \.npy or \.parquet file, or a folder of them"
    ):
        RowBlock.split(tmp_path / "rows.csv")
    with pytest.raises(DataError, match=r"rows\.parquet: no such file"):
        RowBlock.split(tmp_path / "rows.parquet")
    (tmp_path / "bad.parquet").write_bytes(b"nonsense")
    with pytest.raises(FormatError, match=r"bad\.parquet: cannot be read as parquet"):
        RowBlock.split(tmp_path / "bad.parquet")
    write(tmp_path, "good.parquet", np.ones((2, 2)))
    block = RowBlock(str(tmp_path / "good.parquet"), 0, 0, 2, 0)
    with pytest.raises(DataError, match=r"no column 'text'; it has \['image'\]"):
        block.read("text", "id")

"""Rows in many files are cut into blocks, and read back as they were."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as some

from crossbit import DataError, FormatError
from crossbit.distributed.shards import Block, blocks, read_block


def write(folder: Path, name: str, X: Any, ids: list[Any] | None = None) -> None:  # noqa: ANN401
    if name.endswith(".npy"):
        np.save(folder / name, X)
        return
    columns = {"image": pyarrow.array(X.tolist(), pyarrow.list_(pyarrow.float32()))}
    table = pyarrow.table(columns | ({} if ids is None else {"id": ids}))
    pyarrow.parquet.write_table(table, folder / name, row_group_size=4)


@given(
    counts=some.lists(some.integers(0, 9), min_size=1, max_size=4),
    rows=some.integers(1, 5),
    table=some.booleans(),
)
def test_blocks_cover_every_row_once(
    tmp_path_factory: pytest.TempPathFactory, counts: list[int], rows: int, table: bool
) -> None:
    folder = tmp_path_factory.mktemp("rows")
    X = np.arange(2 * sum(counts), dtype=np.float32).reshape(-1, 2)
    for number, part in enumerate(np.split(X, np.cumsum(counts)[:-1])):
        write(folder, f"{number}.{'parquet' if table else 'npy'}", part)
    found = [block for block in blocks(folder, rows=rows) if len(block)]
    assert [block.first for block in found] == [sum(map(len, found[:k])) for k in range(len(found))]
    assert sum(map(len, found)) == len(X)
    for block in found:
        read, ids = read_block(block, "image", "id")
        np.testing.assert_array_equal(read, X[block.first : block.first + len(block)])
        assert list(ids) == list(range(block.first, block.first + len(block)))


def test_ids_come_from_their_column(tmp_path: Path) -> None:
    write(tmp_path, "a.parquet", np.ones((6, 2)), ids=list("abcdef"))
    assert [read_block(block, "image", "id")[1] for block in blocks(tmp_path)] == [
        list("abcd"),
        list("ef"),
    ]


def test_what_is_no_shard_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"there are no \.npy or \.parquet files in it"):
        blocks(tmp_path)
    with pytest.raises(
        DataError, match=r"rows\.csv: expected a \.npy or \.parquet file, or a folder of such"
    ):
        blocks(tmp_path / "rows.csv")
    with pytest.raises(DataError, match="there is no such file"):
        blocks(tmp_path / "rows.parquet")
    (tmp_path / "bad.parquet").write_bytes(b"nonsense")
    with pytest.raises(FormatError, match=r"bad\.parquet: cannot be read as parquet"):
        blocks(tmp_path / "bad.parquet")
    write(tmp_path, "good.parquet", np.ones((2, 2)))
    block = Block(str(tmp_path / "good.parquet"), 0, 0, 2, 0)
    with pytest.raises(DataError, match=r"there is no column 'text'; it has \['image'\]"):
        read_block(block, "text", "id")

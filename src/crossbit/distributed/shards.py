"""Rows in many files: which stretches of them there are, and how a worker reads one."""

from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbit.collection import Id
from crossbit.data import read_array
from crossbit.data.sources import open_parquet, rows_from_lists
from crossbit.errors import DataError

ROWS = 1 << 16
"""Rows of a ``.npy`` file that are handed out at a time; of a parquet file it is a row group."""
_SUFFIXES = (".npy", ".parquet")


@dataclass(frozen=True)
class Block:
    """A stretch of rows that one worker encodes at a time.

    Attributes:
        path: The file.
        first: The number of its first row, counted over all files.
        start: Where it begins in the file.
        stop: Where it ends.
        group: Which row group it is, in a parquet file.
    """

    path: str
    first: int
    start: int
    stop: int
    group: int | None = None

    def __len__(self) -> int:
        """How many rows it has."""
        return self.stop - self.start


def blocks(place: str | PathLike[str], *, rows: int = ROWS) -> list[Block]:
    """Cut a file, or all files of a folder in the order of their names, into blocks; only headers are read.

    Args:
        place: A ``.npy`` or ``.parquet`` file, or a folder of such.
        rows: Rows in a block of a ``.npy`` file.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> for name, n in (("a", 3), ("b", 2)):
        ...     np.save(folder / f"{name}.npy", np.zeros((n, 4), np.float32))
        >>> [(Path(each.path).name, each.first, len(each)) for each in blocks(folder, rows=2)]
        [('a.npy', 0, 2), ('a.npy', 2, 1), ('b.npy', 3, 2)]
    """
    found: list[Block] = []
    first = 0
    for path in _files(Path(place)):
        ends = _group_ends(path) if path.suffix == ".parquet" else _row_ends(path, rows)
        for number, (start, stop) in enumerate(zip([0, *ends], ends, strict=False)):
            group = number if path.suffix == ".parquet" else None
            found.append(Block(str(path), first + start, start, stop, group))
        first += ends[-1] if ends else 0
    return found


def _files(place: Path) -> list[Path]:
    if place.is_dir():
        files = sorted(path for path in place.iterdir() if path.suffix in _SUFFIXES)
        if not files:
            raise DataError(f"{place}: there are no .npy or .parquet files in it")
        return [path.resolve() for path in files]
    if place.suffix not in _SUFFIXES:
        raise DataError(f"{place}: expected a .npy or .parquet file, or a folder of such")
    return [place.resolve()]


def _row_ends(path: Path, rows: int) -> list[int]:
    n = len(read_array(str(path)))
    return [*range(rows, n, rows), n] if n else []


def _group_ends(path: Path) -> list[int]:
    facts = open_parquet(path).metadata
    counts = [facts.row_group(group).num_rows for group in range(facts.num_row_groups)]
    return [int(end) for end in np.cumsum(counts)]


def read_block(block: Block, column: str, id_column: str) -> tuple[NDArray[Any], Sequence[Id]]:
    """The rows of a block and their ids.

    Args:
        block: Which rows.
        column: The column with the rows, in a parquet file.
        id_column: The column with the ids; where there is none, rows are named by their number.
    """
    numbered = range(block.first, block.first + len(block))
    if block.group is None:
        return np.asarray(read_array(block.path)[block.start : block.stop]), numbered
    file = open_parquet(Path(block.path))
    names = file.schema_arrow.names
    if column not in names:
        raise DataError(f"{block.path}: there is no column {column!r}; it has {names}")
    table = file.read_row_group(
        block.group, columns=[name for name in (column, id_column) if name in names]
    )
    rows = rows_from_lists(f"{block.path}: column {column!r}", table[column])
    return rows, table[id_column].to_pylist() if id_column in names else numbered

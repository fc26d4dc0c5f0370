"""Encode many files of rows on Ray, into codes or directly into a collection.

The files are cut into blocks; workers read and encode one block at a time. When a node dies, Ray
repeats its blocks on other nodes.
"""

import json
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbit._validation import check_known, present_rows
from crossbit.codes import Codes
from crossbit.collection.collection import Collection
from crossbit.collection.values import Id
from crossbit.data.conversion.readers import read_array
from crossbit.data.tables import open_parquet, rows_from_lists
from crossbit.distributed.cluster import LOCAL, connected
from crossbit.errors import BackendError, CrossbitError, DataError, RowError
from crossbit.model.hashmodel import HashModel

BLOCK_ROWS = 1 << 16
"""Rows per block of a ``.npy`` file; in a parquet file a block is a row group."""

OnRows = Callable[[int], None]
_Fields = dict[str, Any]
_SUFFIXES = (".npy", ".parquet")


@dataclass(frozen=True)
class EncodingJob:
    """What to encode, and on which cluster.

    Args:
        model: Folder of the model.
        path: A ``.npy`` or ``.parquet`` file, or a folder of them, on storage that all workers can
            read.
        modality: Modality of the rows.
        column: Column with the rows in parquet files; None: the name of the modality.
        id_column: Column with the ids; without it, rows are numbered over all files.
        address: Address of the cluster; ``"local"`` starts one on this machine.
        workers: Number of workers; each takes one CPU.
        block_rows: Rows per block of a ``.npy`` file.
        skip_absent: Skip rows that are all NaN instead of rejecting them; `encode_into` always
            skips them.
    """

    model: str | PathLike[str]
    path: str | PathLike[str]
    modality: str
    column: str | None = None
    id_column: str = "id"
    address: str = LOCAL
    workers: int = 2
    block_rows: int = BLOCK_ROWS
    skip_absent: bool = False

    def blocks(self) -> list["RowBlock"]:
        """Return the blocks of rows, after checking that the model has the modality."""
        return _prepare(self)[1]


@dataclass(frozen=True, eq=False)
class EncodedRows:
    """Codes of many rows.

    Attributes:
        codes: The codes.
        rows: Row number of each code.
        n_rows: Number of rows in the files, including skipped rows.
    """

    codes: Codes
    rows: NDArray[np.int64]
    n_rows: int


def encode(job: EncodingJob, *, on_rows: OnRows | None = None) -> EncodedRows:
    """Encode rows on the workers of a Ray cluster; the codes are the same as on one machine.

    Workers read the rows from storage and send back codes.

    Args:
        job: What to encode, and where.
        on_rows: Called with the number of rows of each finished block.

    Raises:
        DataError: The files or their rows are invalid.
        BackendError: The cluster does not answer, or blocks were lost.
    """
    model, blocks = _prepare(job)
    width = -(-model.n_bits // 64)
    words: dict[int, NDArray[np.uint64]] = {}
    rows: dict[int, NDArray[np.int64]] = {}
    for number, part in _run(job, blocks, None):
        words[number] = np.frombuffer(part["words"], np.uint64).reshape(-1, width)
        rows[number] = blocks[number].first + np.frombuffer(part["rows"], np.int64)
        if on_rows is not None:
            on_rows(len(blocks[number]))
    order = sorted(words)
    all_words = [np.empty((0, width), np.uint64), *(words[number] for number in order)]
    all_rows = [np.empty(0, np.int64), *(rows[number] for number in order)]
    return EncodedRows(
        Codes(np.concatenate(all_words), model.n_bits, model=model.fingerprint()),
        np.concatenate(all_rows),
        sum(map(len, blocks)),
    )


def encode_into(
    path: str | PathLike[str], job: EncodingJob, *, on_rows: OnRows | None = None
) -> int:
    """Encode rows on the workers of a Ray cluster into a collection; return the number of items.

    This process alone writes to a collection on disk; the workers themselves write to one on a
    server. Items are upserted, so blocks that run twice do no harm. Payloads do not change.

    Args:
        path: Folder or URI of a collection with the same model.
        job: What to encode, and where.
        on_rows: Called with the number of rows of each finished block.

    Raises:
        DataError: The files or their rows are invalid, or the collection has another model.
        BackendError: The cluster does not answer, or blocks were lost.
    """
    uri = fspath(path)
    job = replace(job, skip_absent=True)
    model, blocks = _prepare(job)
    with Collection.open(uri, model) as collection:
        workers_write = collection.capabilities.remote
        n_items = 0
        for number, part in _run(job, blocks, uri if workers_write else None):
            rows = np.frombuffer(part["rows"], np.int64)
            if not workers_write:
                words = np.frombuffer(part["words"], np.uint64).reshape(len(rows), -1)
                ids = _item_ids(blocks[number], part)
                codes = Codes(words, model.n_bits, model=model.fingerprint())
                collection.upsert(ids, {job.modality: codes})
            n_items += len(rows)
            if on_rows is not None:
                on_rows(len(blocks[number]))
        return n_items


def _prepare(job: EncodingJob) -> tuple[HashModel, list["RowBlock"]]:
    """Return the model and the blocks; detects invalid arguments before a cluster starts."""
    model = HashModel.load(job.model)
    check_known(job.modality, model.modalities)
    return model, RowBlock.split(job.path, rows=job.block_rows)


def _item_ids(block: "RowBlock", part: _Fields) -> list[Id]:
    """Return the ids of a part: those of its file, or row numbers."""
    if part["ids"]:
        ids: list[Id] = json.loads(part["ids"])
        return ids
    return [block.first + int(row) for row in np.frombuffer(part["rows"], np.int64)]


def _run(
    job: EncodingJob, blocks: Sequence["RowBlock"], into: str | None
) -> Iterator[tuple[int, _Fields]]:
    """Yield the number and result of each block once, in the order in which they finish."""
    missing = set(range(len(blocks)))
    if not blocks:
        return
    encoder = _BlockEncoder(
        tuple(blocks),
        str(Path(job.model).resolve()),
        job.modality,
        job.column or job.modality,
        job.id_column,
        into,
        job.skip_absent,
    )
    with connected(job.address, workers=job.workers) as ray:
        data = _ray_data()
        # Not data.range(): its tasks would wait for the CPUs that the actor pool holds.
        numbers = data.from_items(
            [{"id": i} for i in range(len(blocks))], override_num_blocks=len(blocks)
        )
        pool = data.ActorPoolStrategy(size=min(job.workers, len(blocks)))
        results = numbers.map_batches(
            _Actor, fn_constructor_args=(encoder,), batch_size=1, compute=pool, num_cpus=1
        )
        for part in _checked(ray, results):
            if part["id"] in missing:
                missing.remove(part["id"])
                yield part["id"], part
    if missing:
        raise BackendError(
            f"{len(missing)} of {len(blocks)} blocks were lost; run the command again"
        )


def _checked(ray: Any, results: Any) -> Iterator[_Fields]:  # noqa: ANN401 - Ray is not typed
    """Yield the results of the workers; raise the errors that they report."""
    try:
        for part in results.iter_rows():
            if part["error"]:
                raise (BackendError if part["kind"] == BackendError.__name__ else DataError)(
                    part["error"]
                )
            yield part
    except ray.exceptions.RayError as error:
        raise BackendError(
            f"encoding on Ray failed: {str(error).strip().splitlines()[-1]}"
        ) from error


def _ray_data() -> Any:  # noqa: ANN401 - Ray is not typed
    """Import Ray Data without its progress bars and messages."""
    from ray import data

    data.DataContext.get_current().enable_progress_bars = False
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    return data


@dataclass(frozen=True)
class _BlockEncoder:
    """Encodes blocks on a worker; it loads the model once."""

    blocks: tuple["RowBlock", ...]
    model_folder: str
    modality: str
    column: str
    id_column: str
    into: str | None
    skip_absent: bool

    @cached_property
    def model(self) -> HashModel:
        return HashModel.load(self.model_folder)

    @cached_property
    def collection(self) -> Collection | None:
        return None if self.into is None else Collection.open(self.into, self.model)

    def __call__(self, number: int) -> _Fields:
        block = self.blocks[number]
        X, ids = block.read(self.column, self.id_column)
        rows = np.flatnonzero(present_rows(X)) if self.skip_absent else np.arange(len(X))
        if len(rows) < len(X):
            X = X[rows]
            ids = [ids[int(row)] for row in rows]
        try:
            codes = self.model.encode(self.modality, X)
        except RowError as error:
            row = block.start + int(rows[error.row])
            raise error.at(f"{block.path}, row {row} (counted from 0)") from error
        except DataError as error:
            raise DataError(f"{block.path}: {error}") from error
        if self.collection is not None:
            self.collection.upsert(ids, {self.modality: codes})
            return {"rows": rows.tobytes(), "words": b"", "ids": b""}
        numbered = isinstance(ids, range) or block.group is None
        stored_ids = b"" if numbered else json.dumps(list(ids)).encode()
        return {"rows": rows.tobytes(), "words": codes.words.tobytes(), "ids": stored_ids}


class _Actor:
    """A worker of Ray Data: takes the number of a block and returns its result."""

    def __init__(self, encoder: _BlockEncoder) -> None:
        self._encoder = encoder

    def __call__(self, batch: dict[str, NDArray[Any]]) -> dict[str, list[Any]]:
        number = int(batch["id"][0])
        try:
            part = self._encoder(number) | {"error": "", "kind": ""}
        except CrossbitError as error:
            # Returned rather than raised: Ray would retry an error that no retry can fix.
            part = {"rows": b"", "words": b"", "ids": b""}
            part |= {"error": str(error), "kind": type(error).__name__}
        return {"id": [number], **{name: [value] for name, value in part.items()}}


@dataclass(frozen=True)
class RowBlock:
    """Consecutive rows of one file, the unit of work of a worker.

    Attributes:
        path: The file.
        first: Number of the first row, counted over all files.
        start: First row within the file.
        stop: End within the file, exclusive.
        group: Row group of a parquet file; None for other files.
    """

    path: str
    first: int
    start: int
    stop: int
    group: int | None = None

    def __len__(self) -> int:
        """Return the number of rows."""
        return self.stop - self.start

    @classmethod
    def split(cls, path: str | PathLike[str], *, rows: int = BLOCK_ROWS) -> list["RowBlock"]:
        """Split a file, or all files of a folder sorted by name, into blocks; reads only headers.

        Args:
            path: A ``.npy`` or ``.parquet`` file, or a folder of them.
            rows: Rows per block of a ``.npy`` file.

        Example:
            >>> import tempfile
            >>> folder = Path(tempfile.mkdtemp())
            >>> for name, n in (("a", 3), ("b", 2)):
            ...     np.save(folder / f"{name}.npy", np.zeros((n, 4), np.float32))
            >>> [(Path(b.path).name, b.first, len(b)) for b in RowBlock.split(folder, rows=2)]
            [('a.npy', 0, 2), ('a.npy', 2, 1), ('b.npy', 3, 2)]
        """
        blocks: list[RowBlock] = []
        first = 0
        for file in _files(Path(path)):
            is_parquet = file.suffix == ".parquet"
            ends = _group_ends(file) if is_parquet else _row_ends(file, rows)
            for number, (start, stop) in enumerate(zip([0, *ends], ends, strict=False)):
                group = number if is_parquet else None
                blocks.append(cls(str(file), first + start, start, stop, group))
            first += ends[-1] if ends else 0
        return blocks

    def read(self, column: str, id_column: str) -> tuple[NDArray[Any], Sequence[Id]]:
        """Return the rows of the block and their ids.

        Args:
            column: Column with the rows in a parquet file.
            id_column: Column with the ids; without it, ids are row numbers.
        """
        numbers = range(self.first, self.first + len(self))
        if self.group is None:
            return np.asarray(read_array(self.path)[self.start : self.stop]), numbers
        file = open_parquet(Path(self.path))
        names = file.schema_arrow.names
        if column not in names:
            raise DataError(f"{self.path}: no column {column!r}; it has {names}")
        table = file.read_row_group(
            self.group, columns=[name for name in (column, id_column) if name in names]
        )
        rows = rows_from_lists(f"{self.path}: column {column!r}", table[column])
        return rows, table[id_column].to_pylist() if id_column in names else numbers


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.suffix in _SUFFIXES)
        if not files:
            raise DataError(f"{path}: the folder has no .npy or .parquet files")
        return [file.resolve() for file in files]
    if path.suffix not in _SUFFIXES:
        raise DataError(f"{path}: expected a .npy or .parquet file, or a folder of them")
    return [path.resolve()]


def _row_ends(path: Path, rows: int) -> list[int]:
    n = len(read_array(str(path)))
    return [*range(rows, n, rows), n] if n else []


def _group_ends(path: Path) -> list[int]:
    metadata = open_parquet(path).metadata
    counts = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
    return [int(end) for end in np.cumsum(counts)]

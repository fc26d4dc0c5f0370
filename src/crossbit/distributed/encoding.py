"""Encoding on Ray: many files of rows into codes, or straight into a collection, whatever nodes die on the way."""

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

from crossbit._validation import known
from crossbit.codes import Codes
from crossbit.collection import Collection, Id, milvus
from crossbit.data.arrays import present_rows
from crossbit.distributed import shards
from crossbit.distributed.cluster import LOCAL, connected
from crossbit.distributed.shards import Block
from crossbit.errors import BackendError, CrossbitError, DataError
from crossbit.model import HashModel

OnRows = Callable[[int], None]
Fields = dict[str, Any]


@dataclass(frozen=True)
class Work:
    """What is to be encoded, and where.

    Args:
        model: A model folder.
        rows: A ``.npy`` or ``.parquet`` file, or a folder of such, on storage that all workers can read.
        modality: What the rows are.
        column: The column with the rows, in parquet files; None: it is named like the modality.
        id_column: The column with the ids; where there is none, rows are named by their number over all files.
        address: Of the cluster; ``"local"`` starts one here.
        workers: How many; each takes a processor.
        block: Rows of a ``.npy`` file that a worker takes at a time.
        skip_absent: Leave out rows that are all NaN, instead of refusing them; a collection always does.
    """

    model: str | PathLike[str]
    rows: str | PathLike[str]
    modality: str
    column: str | None = None
    id_column: str = "id"
    address: str = LOCAL
    workers: int = 2
    block: int = shards.ROWS
    skip_absent: bool = False


@dataclass(frozen=True, eq=False)
class Encoded:
    """Codes of many rows.

    Attributes:
        codes: The codes.
        rows: The numbers of the rows they belong to.
        n_rows: How many rows there were.
    """

    codes: Codes
    rows: NDArray[np.int64]
    n_rows: int


def count(work: Work) -> int:
    """How many rows there are to encode; a slip in a path or a name is found here."""
    return sum(map(len, _prepared(work)[1]))


def encode(work: Work, *, on_rows: OnRows | None = None) -> Encoded:
    """Encode rows on the workers of a Ray cluster; the codes are those that this machine would make.

    Workers read the rows from storage and send back codes. What a node had in hand when it died, others do again.

    Args:
        work: What and where.
        on_rows: Told how many more rows are done.

    Raises:
        DataError: The files or their rows cannot be used.
        BackendError: The cluster does not answer, or has lost something for good.
    """
    model, blocks = _prepared(work)
    words: dict[int, NDArray[np.uint64]] = {}
    rows: dict[int, NDArray[np.int64]] = {}
    for number, part in _encoded(work, blocks, None):
        words[number] = np.frombuffer(part["words"], np.uint64).reshape(-1, -(-model.n_bits // 64))
        rows[number] = blocks[number].first + np.frombuffer(part["kept"], np.int64)
        if on_rows is not None:
            on_rows(len(blocks[number]))
    order = sorted(words)
    none = np.empty((0, -(-model.n_bits // 64)), np.uint64)
    codes = Codes(np.concatenate([none, *(words[number] for number in order)]), model.n_bits)
    return Encoded(
        codes,
        np.concatenate([np.empty(0, np.int64), *(rows[n] for n in order)]),
        sum(map(len, blocks)),
    )


def encode_into(
    collection: str | PathLike[str], work: Work, *, on_rows: OnRows | None = None
) -> int:
    """Encode rows on the workers of a Ray cluster, into a collection; how many items were written.

    A collection in a folder or a file is written by this process alone; one on a server by the workers
    themselves. Either way items are upserted: what is done twice, because a node died or the command was given again,
    is there once. Payloads stay as they are.

    Args:
        collection: The folder or the address of a collection with the same model.
        work: What and where.
        on_rows: Told how many more rows are done.

    Raises:
        DataError: The files or their rows cannot be used, or the collection has another model.
        BackendError: The cluster does not answer, or has lost something for good.
    """
    place, work = fspath(collection), replace(work, skip_absent=True)
    model, blocks = _prepared(work)
    by_workers = milvus.is_address(place) and not milvus.parse(place).embedded
    with Collection.open(place, model) as opened:
        count = 0
        for number, part in _encoded(work, blocks, place if by_workers else None):
            if not by_workers:
                ids = _ids(blocks[number], part)
                codes = Codes(
                    np.frombuffer(part["words"], np.uint64).reshape(len(ids), -1), model.n_bits
                )
                opened.upsert(ids, {work.modality: codes})
            count += len(np.frombuffer(part["kept"], np.int64))
            if on_rows is not None:
                on_rows(len(blocks[number]))
        return count


def _ids(block: Block, part: Fields) -> list[Id]:
    """The ids of the items of a part: those of its file, or numbers."""
    if part["ids"]:
        found: list[Id] = json.loads(part["ids"])
        return found
    return [block.first + int(row) for row in np.frombuffer(part["kept"], np.int64)]


def _prepared(work: Work) -> tuple[HashModel, list[Block]]:
    """The model and the blocks; a slip is found before anything is started."""
    model = HashModel.load(work.model)
    known(work.modality, model.modalities)
    return model, shards.blocks(work.rows, rows=work.block)


def _encoded(work: Work, blocks: Sequence[Block], into: str | None) -> Iterator[tuple[int, Fields]]:
    """What the workers give for each block, once, in whatever order they finish."""
    missing = set(range(len(blocks)))
    if not blocks:
        return
    column, folder = work.column or work.modality, str(Path(work.model).resolve())
    encoder = _Encoder(
        tuple(blocks), folder, work.modality, column, work.id_column, into, work.skip_absent
    )
    with connected(work.address, workers=work.workers) as ray:
        data = _ray_data()
        # Not data.range(), whose tasks would wait for the processors that the pool holds.
        numbers = data.from_items(
            [{"id": i} for i in range(len(blocks))], override_num_blocks=len(blocks)
        )
        pool = data.ActorPoolStrategy(size=min(work.workers, len(blocks)))
        done = numbers.map_batches(
            _Actor, fn_constructor_args=(encoder,), batch_size=1, compute=pool, num_cpus=1
        )
        for part in _as_they_come(ray, done):
            if part["id"] in missing:
                missing.remove(part["id"])
                yield part["id"], part
    if missing:
        raise BackendError(
            f"{len(missing)} of {len(blocks)} blocks of rows never came back; give the command again"
        )


def _as_they_come(ray: Any, done: Any) -> Iterator[Fields]:  # noqa: ANN401 - a module and a class without types
    """What workers give; what they refuse is raised here."""
    try:
        for part in done.iter_rows():
            if part["error"]:
                raise (BackendError if part["kind"] == BackendError.__name__ else DataError)(
                    part["error"]
                )
            yield part
    except ray.exceptions.RayError as error:
        raise BackendError(
            f"encoding on Ray failed: {str(error).strip().splitlines()[-1]}"
        ) from error


def _ray_data() -> Any:  # noqa: ANN401 - a module without types
    """Ray Data, kept from telling its own story on the terminal."""
    from ray import data

    data.DataContext.get_current().enable_progress_bars = False
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    return data


@dataclass(frozen=True)
class _Encoder:
    """What a worker does with a block; it keeps the model between blocks."""

    blocks: tuple[Block, ...]
    model: str
    modality: str
    column: str
    id_column: str
    into: str | None
    skip_absent: bool

    @cached_property
    def loaded(self) -> HashModel:
        return HashModel.load(self.model)

    @cached_property
    def collection(self) -> Collection | None:
        return None if self.into is None else Collection.open(self.into, self.loaded)

    def __call__(self, number: int) -> Fields:
        block = self.blocks[number]
        X, ids = shards.read_block(block, self.column, self.id_column)
        kept = present_rows(X) if self.skip_absent else np.arange(len(X))
        if len(kept) < len(X):
            X, ids = X[kept], [ids[row] for row in kept]
        try:
            codes = self.loaded.encode(self.modality, X)
        except DataError as error:
            raise DataError(f"{block.path}, from row {block.start}: {error}") from error
        if self.collection is not None:
            self.collection.upsert(ids, {self.modality: codes})
            return {"kept": kept.tobytes(), "words": b"", "ids": b""}
        named = (
            b"" if isinstance(ids, range) or block.group is None else json.dumps(list(ids)).encode()
        )
        return {"kept": kept.tobytes(), "words": codes.words.tobytes(), "ids": named}


class _Actor:
    """A worker of Ray Data: numbers of blocks come, and what became of them goes, in batches of one."""

    def __init__(self, encoder: _Encoder) -> None:
        self._encoder = encoder

    def __call__(self, batch: dict[str, NDArray[Any]]) -> dict[str, list[Any]]:
        number = int(batch["id"][0])
        try:
            part = self._encoder(number) | {"error": "", "kind": ""}
        except CrossbitError as error:  # to be told, not to be tried again
            part = {
                "kept": b"",
                "words": b"",
                "ids": b"",
                "error": str(error),
                "kind": type(error).__name__,
            }
        return {"id": [number], **{name: [value] for name, value in part.items()}}

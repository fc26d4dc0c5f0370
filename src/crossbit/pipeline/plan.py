"""What learning from a table will do: modalities, features, supervision, and about how long."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path

import numpy as np

from crossbit._progress import format_seconds
from crossbit._validation import check_known
from crossbit.data.tables import open_table
from crossbit.errors import DataError
from crossbit.hashers.auto import AutoHash
from crossbit.hashers.base import Hasher
from crossbit.pipeline.columns import (
    KINDS,
    Columns,
    ModalityColumns,
    build_table,
    choose_columns,
    read_rows,
)
from crossbit.pipeline.extractors import (
    DEFAULT_EXTRACTORS,
    cache_folder,
    extraction_seconds,
    required_libraries,
)
from crossbit.pipeline.table import ItemTable

_SUPERVISION = {
    "labels": "labels",
    "aligned": "inputs of the same row",
    "neighbors": "neighbors in the features",
}


@dataclass(frozen=True, eq=False)
class TablePlan:
    """What `learn_table` would do with a table.

    Args:
        table: The items.
        modalities: The modalities and their columns.
        extractors: Modality → name of its extractor.
        supervision: ``"labels"``, ``"aligned"`` or ``"neighbors"``.
        hasher: The method.
        workers: Number of processes.
        cache: Folder for feature rows and converted networks.
        query_encoders: Modality of vectors → the encoder that made them.
    """

    table: ItemTable
    modalities: tuple[ModalityColumns, ...]
    extractors: Mapping[str, str]
    supervision: str
    hasher: Hasher
    workers: int
    cache: Path
    query_encoders: Mapping[str, str] = field(default_factory=dict)

    def libraries(self) -> list[str]:
        """Return the optional libraries that the extractors need."""
        return [
            library
            for modality in self.modalities
            if modality.name not in self.table.vectors
            for library in required_libraries(
                modality.kind, self.extractors[modality.name], cache=self.cache
            )
        ]

    def counts(self) -> dict[str, tuple[int, int]]:
        """Return modality → number of its inputs, and of the rows without any."""
        counts = {}
        for name in self.extractors:
            if name in self.table.vectors:
                absent = int(np.isnan(self.table.vectors[name]).all(axis=1).sum())
                counts[name] = (len(self.table.ids) - absent, absent)
            else:
                inputs = self.table.inputs[name]
                counts[name] = (sum(map(len, inputs)), sum(not each for each in inputs))
        return counts

    def seconds(self) -> float:
        """Return about the time in seconds that extraction takes if nothing is in the cache."""
        counts = self.counts()
        total = sum(
            counts[modality.name][0]
            * extraction_seconds(modality.kind, self.extractors[modality.name])
            for modality in self.modalities
            if modality.name not in self.table.vectors
        )
        return total / self.workers

    def summary(self) -> str:
        """Return the plan, one line per modality."""
        lines = [f"{len(self.table.ids):,} rows"]
        counts = self.counts()
        width = max(len(name) for name in counts)
        for modality in self.modalities:
            n, absent = counts[modality.name]
            guessed = " (guessed)" if modality.guessed else ""
            columns = _shorten(modality.columns)
            gaps = f", {absent:,} row{'s' * (absent > 1)} without" if absent else ""
            features = self.extractors[modality.name]
            lines.append(
                f"  {modality.name:{width}}  {modality.kind} from {columns}{guessed}: {n:,} inputs"
                f"{gaps}; features: {self.query_encoders.get(modality.name, features)}"
            )
        if self.table.missing:
            lines.append(
                f"  {len(self.table.missing):,} named files do not exist, such as:"
                f" {self.table.missing[0]}"
            )
        lines.append(
            f"supervision: {_SUPERVISION[self.supervision]}; method: {self.hasher.name()},"
            f" {self.hasher.n_bits} bits"
        )
        if self.supervision == "neighbors" and len(self.modalities) > 1:
            lines.append("  no row has two modalities, so each will find only itself")
        seconds = format_seconds(self.seconds())
        processes = f"{self.workers} process{'es' * (self.workers > 1)}"
        lines.append(f"features take about {seconds} the first time, with {processes}")
        return "\n".join(lines)


def _shorten(columns: tuple[str, ...]) -> str:
    if len(columns) > 4:
        return f"{columns[0]} … {columns[-1]} ({len(columns)} columns)"
    return ", ".join(columns)


def plan_table(
    table: object,
    *,
    labels: str | None = None,
    id: str | None = None,
    folder: str | PathLike[str] | None = None,
    extractors: Mapping[str, str] | None = None,
    hasher: Hasher | None = None,
    seed: int = 0,
    workers: int = 1,
    cache: str | PathLike[str] | None = None,
    query_encoders: Mapping[str, str] | None = None,
    **columns: Columns | None,
) -> TablePlan:
    """Read a table and decide what `learn_table` does with it, without extracting anything.

    Args:
        table: The table.
        labels: Column with the labels.
        id: Column with the ids.
        folder: Folder that paths are relative to.
        extractors: Modality or kind → name of its extractor.
        hasher: The method; None chooses one.
        seed: Seed of the method.
        workers: Number of processes.
        cache: Folder for feature rows and converted networks.
        query_encoders: Modality of vectors → the encoder that made them.
        **columns: Kind of input → its columns, as in `learn_table`.

    Raises:
        DataError: The table or an option is not usable.
    """
    for kind in columns:
        check_known(kind, KINDS, "kind of input")
    rows = read_rows(open_table(table, folder=folder))
    modalities = choose_columns(rows, columns)
    given = dict(extractors or {})
    for name in given:
        check_known(name, [*KINDS, *(modality.name for modality in modalities)])
    names = {
        modality.name: given.get(
            modality.name, given.get(modality.kind, DEFAULT_EXTRACTORS[modality.kind])
        )
        for modality in modalities
    }
    for modality in modalities:
        extraction_seconds(modality.kind, names[modality.name])  # refuses an unknown name
    joined = [name for name, extractor in names.items() if extractor.partition(":")[0] == "tags"]
    items = build_table(rows, modalities, labels=labels, id_column=id, joined=joined)
    encoders = dict(query_encoders or {})
    for name in encoders:
        check_known(name, items.vectors, "modality of vectors")
    supervision = "labels" if labels is not None else _unlabeled(items)
    plan = TablePlan(
        table=items,
        modalities=modalities,
        extractors=names,
        supervision=supervision,
        hasher=hasher or AutoHash(n_bits=128, seed=seed),
        workers=workers,
        cache=Path(cache) if cache else cache_folder(),
        query_encoders=encoders,
    )
    counts = plan.counts()
    for modality in modalities:
        if not counts[modality.name][0]:
            raise DataError(
                f"{rows.table.name}: there is no input of {modality.name!r}: every cell of"
                f" {_shorten(modality.columns)} is empty or names a file that does not exist"
            )
    if supervision == "neighbors" and len(modalities) > 1 and hasher is None:
        raise DataError(
            f"{rows.table.name}: no row has two modalities and there are no labels, so nothing"
            f" relates {' to '.join(modality.name for modality in modalities)}; name a column of"
            " labels, or learn from one modality at a time"
        )
    return plan


def _unlabeled(table: ItemTable) -> str:
    """Supervision without labels: neighbors if no row has two modalities."""
    present = np.zeros(len(table.ids), np.int64)
    for inputs in table.inputs.values():
        present += [len(per_item) > 0 for per_item in inputs]
    for rows in table.vectors.values():
        present += ~np.isnan(rows).all(axis=1)
    return "aligned" if (present > 1).any() else "neighbors"

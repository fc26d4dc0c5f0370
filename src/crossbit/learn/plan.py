"""What learning from a table will do: modalities, features, supervision, and about how long."""

from collections.abc import Collection as Names
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import Any, TypedDict, Unpack

import numpy as np
from numpy.typing import NDArray

from crossbit._progress import format_seconds
from crossbit._validation import check_bits, check_installed, check_integer, check_known
from crossbit.collection.payloads import check_ids, payloads_to_json
from crossbit.collection.values import IMAGE_FIELD
from crossbit.data.labels import number_words
from crossbit.data.tables import open_table
from crossbit.errors import DataError
from crossbit.hashers.auto import AutoHash
from crossbit.hashers.base import HASHERS, Hasher
from crossbit.learn.columns import (
    KINDS,
    Columns,
    ItemTable,
    ModalityColumns,
    TableColumns,
    TableRows,
    build_items,
    choose_columns,
    id_column,
    read_rows,
)
from crossbit.learn.extractors import (
    DEFAULT_EXTRACTORS,
    cache_folder,
    extraction_seconds,
    required_libraries,
)
from crossbit.learn.files import CAPTIONS, open_pictures

Ints = NDArray[np.int64]
_MIN_ITEMS = 10  # items to split into training and test
_SUPERVISION = {
    "labels": "labels",
    "aligned": "inputs of the same row",
    "neighbors": "neighbors in the features",
}


class PlanOptions(TypedDict, total=False):
    """Options of `plan_table` and `learn_table`.

    Several columns of one kind, such as ``"title,notes"``, are joined to one modality; a mapping,
    such as ``text={"title": "name", "body": "description"}``, makes several. Without any column,
    all modalities are guessed.

    Attributes:
        image: Columns with paths of images.
        text: Columns with texts.
        audio: Columns with paths of audio clips.
        signal: Columns with paths of series.
        mesh: Columns with paths of meshes.
        vector: Columns of numbers (``"emb_0:emb_511"``, ``"emb_*"``), of lists of numbers, or of
            paths of vectors; or a ``.npy`` file with one row per row of the table.
        labels: Column with a label or a list of labels. Without one, a thing's modalities are
            learned to find each other; if no thing has two, neighbors in the features are learned.
        id: Column with the ids; default: ``id`` if it exists, else row numbers from 0.
        folder: Folder that paths are relative to; default: that of the file, or the current one.
        captions: Of a folder of pictures: table of captions, as
            `crossbit.data.tables.read_captions` reads it.
        extractors: Modality or kind → name of its extractor in `EXTRACTORS`; default: the first of
            its kind.
        query_encoders: Modality of vectors → the encoder that made them, such as
            ``"text:minilm"``, so that raw inputs search them.
        hasher: The method; default: `AutoHash` of 128 bits.
        test_size: Fraction of the items to evaluate on; they are not trained on. Default: 0.1.
        test_names: Ids of the items to evaluate on, instead of a random fraction.
        seed: Seed of the method, of the random test items and of vocabularies. Default: 0.
        workers: Number of processes that extract features. Default: 1.
        cache: Folder for feature rows and converted networks; default: `cache_folder`.
    """

    image: Columns | None
    text: Columns | None
    audio: Columns | None
    signal: Columns | None
    mesh: Columns | None
    vector: Columns | None
    labels: str | None
    id: str | None
    folder: str | PathLike[str] | None
    captions: str | PathLike[str] | None
    extractors: Mapping[str, str] | None
    query_encoders: Mapping[str, str] | None
    hasher: Hasher | None
    test_size: float
    test_names: Names[Any] | None
    seed: int
    workers: int
    cache: str | PathLike[str] | None


@dataclass(frozen=True, eq=False, kw_only=True)
class TablePlan:
    """What `learn_table` would do with a table.

    Args:
        items: The items of the table.
        columns: What its columns mean.
        extractors: Modality → name of its extractor.
        query_encoders: Modality of vectors → the encoder that made them.
        supervision: ``"labels"``, ``"aligned"`` or ``"neighbors"``.
        hasher: The method.
        test_size: Fraction of the items to evaluate on.
        test_names: Ids of the items to evaluate on, instead of a random fraction.
        seed: Seed of the random test items and of vocabularies.
        workers: Number of processes.
        cache: Folder for feature rows and converted networks.
    """

    items: ItemTable
    columns: TableColumns
    extractors: Mapping[str, str]
    supervision: str
    hasher: Hasher
    query_encoders: Mapping[str, str] = field(default_factory=dict)
    test_size: float = 0.1
    test_names: Names[Any] | None = None
    seed: int = 0
    workers: int = 1
    cache: Path = field(default_factory=cache_folder)

    @property
    def modalities(self) -> tuple[ModalityColumns, ...]:
        """The modalities and their columns."""
        return self.columns.modalities

    @property
    def extracted(self) -> dict[str, str]:
        """Modality → name of its extractor, without vectors, which the table itself holds."""
        return {name: self.extractors[name] for name in self.items.inputs}

    def check_installed(self) -> None:
        """Refuse to begin without the libraries that the method and the extractors need.

        Raises:
            MissingExtraError: One of them is not installed.
        """
        libraries = [*self.hasher.libraries_for(self.supervision)]
        for name, extractor in self.extracted.items():
            libraries += required_libraries(self.items.kinds[name], extractor, cache=self.cache)
        check_installed(*libraries)

    def counts(self) -> dict[str, tuple[int, int]]:
        """Return modality → number of its inputs, and of the rows without any."""
        counts = self.items.counts().items()
        return {name: (int(per.sum()), int((per == 0).sum())) for name, per in counts}

    def seconds(self) -> float:
        """Return about the time in seconds that extraction takes if nothing is in the cache."""
        counts = self.counts()
        kinds = self.items.kinds
        each = {name: extraction_seconds(kinds[name], x) for name, x in self.extracted.items()}
        return sum(counts[name][0] * each[name] for name in each) / self.workers

    def summary(self) -> str:
        """Return the plan, one line per modality."""
        lines = [f"{len(self.items.ids):,} rows"]
        counts = self.counts()
        width = max(len(name) for name in counts)
        for modality in self.modalities:
            n, absent = counts[modality.name]
            guessed = " (guessed)" if modality.guessed else ""
            gaps = f", {absent:,} row{'s' * (absent > 1)} without" if absent else ""
            features = self.extractors[modality.name]
            lines.append(
                f"  {modality.name:{width}}  {modality.kind} from {_shorten(modality.columns)}"
                f"{guessed}: {n:,} inputs{gaps};"
                f" features: {self.query_encoders.get(modality.name, features)}"
            )
        if missing := self.items.missing:
            lines.append(f"  {len(missing):,} named files do not exist, such as: {missing[0]}")
        lines.append(
            f"supervision: {_SUPERVISION[self.supervision]}; method: {self.hasher.name()},"
            f" {self.hasher.n_bits} bits"
        )
        if self.supervision == "neighbors" and len(self.modalities) > 1:
            lines.append("  no row has two modalities, so each will find only itself")
        processes = f"{self.workers} process{'es' * (self.workers > 1)}"
        lines.append(
            f"features take about {format_seconds(self.seconds())} the first time, with {processes}"
        )
        return "\n".join(lines)


def _shorten(columns: tuple[str, ...]) -> str:
    if len(columns) > 4:
        return f"{columns[0]} … {columns[-1]} ({len(columns)} columns)"
    return ", ".join(columns)


def plan_table(table: object, **options: Unpack[PlanOptions]) -> TablePlan:
    """Read a table and decide what `learn_table` does with it, without extracting anything.

    Args:
        table: The table, as `learn_table` takes it.
        **options: See `PlanOptions`.

    Raises:
        DataError: The table or an option is not usable, or there are too few rows to learn from.
    """
    for name in options:
        check_known(name, PlanOptions.__annotations__, "option")
    seed = check_integer(options.get("seed", 0), "seed")
    rows, defaults = _read(table, options)
    given: dict[str, Any] = {kind: options.get(kind) for kind in KINDS}
    modalities = choose_columns(rows, given if any(given.values()) else defaults)
    names = _extractor_names(modalities, options.get("extractors") or {})
    columns = TableColumns(
        modalities=tuple(
            replace(each, joined=each.columns != (CAPTIONS,) and _takes_tags(names[each.name]))
            for each in modalities
        ),
        id=id_column(rows, options.get("id")),
        labels=options.get("labels"),
        folder=None if options.get("folder") is None else str(rows.table.folder.resolve()),
    )
    items = build_items(rows, columns)
    encoders = options.get("query_encoders") or {}
    for name in encoders:
        check_known(name, items.vectors, "modality of vectors")
    plan = TablePlan(
        items=items,
        columns=columns,
        extractors=names,
        query_encoders=encoders,
        supervision="labels" if columns.labels is not None else _unlabeled(items),
        hasher=options.get("hasher") or AutoHash(n_bits=128, seed=seed),
        test_size=options.get("test_size", 0.1),
        test_names=options.get("test_names"),
        seed=seed,
        workers=options.get("workers", 1),
        cache=Path(options.get("cache") or cache_folder()),
    )
    _check(plan, rows.table.name)
    return plan


def _read(table: object, options: PlanOptions) -> tuple[TableRows, dict[str, Columns]]:
    """Read the rows; return them and, of a folder of pictures, the columns of its modalities."""
    captions = options.get("captions")
    if isinstance(table, str | PathLike) and Path(table).is_dir():
        pictures, missing = open_pictures(Path(table), captions)
        columns: dict[str, Columns] = {"image": IMAGE_FIELD}
        if captions is not None:
            columns["text"] = CAPTIONS
        return replace(read_rows(pictures), missing=missing), columns
    if captions is not None:
        raise DataError(f"captions describe a folder of pictures, but {table} is not a folder")
    return read_rows(open_table(table, folder=options.get("folder"))), {}


def _extractor_names(
    modalities: tuple[ModalityColumns, ...], given: Mapping[str, str]
) -> dict[str, str]:
    """Return modality → name of its extractor, by the modality, else by its kind."""
    for name in given:
        check_known(name, [*KINDS, *(modality.name for modality in modalities)])
    names = {}
    for each in modalities:
        default = given.get(each.kind, DEFAULT_EXTRACTORS[each.kind])
        names[each.name] = given.get(each.name, default)
        extraction_seconds(each.kind, names[each.name])  # refuses an unknown name
    return names


def _takes_tags(extractor: str) -> bool:
    """Whether an extractor takes all tags of an item as one input; captions are sentences."""
    return extractor.partition(":")[0] == "tags"


def _unlabeled(items: ItemTable) -> str:
    """Supervision without labels: neighbors if no row has two modalities."""
    present = sum((counts > 0).astype(np.int64) for counts in items.counts().values())
    return "aligned" if np.any(present > 1) else "neighbors"


def _check(plan: TablePlan, name: str) -> None:
    """Refuse what cannot be learned from, before features are extracted for hours."""
    check_bits(plan.hasher.n_bits)
    if not 0 < plan.test_size < 1:
        raise DataError(f"test_size must be between 0 and 1 (exclusive), got {plan.test_size!r}")
    payloads_to_json(plan.items.payloads, check_ids(plan.items.ids))
    counts = plan.counts()
    for modality in plan.modalities:
        if not counts[modality.name][0]:
            raise DataError(
                f"{name}: there is no input of {modality.name!r}: every cell of"
                f" {_shorten(modality.columns)} is empty or names a file that does not exist"
            )
    several = plan.supervision == "neighbors" and len(plan.modalities) > 1
    if several and isinstance(plan.hasher, AutoHash):
        raise DataError(
            f"{name}: no row has two modalities and there are no labels, so nothing relates"
            f" {' to '.join(modality.name for modality in plan.modalities)}; name a column of"
            " labels, or learn from one modality at a time"
        )
    _check_supervision(plan.hasher, plan.supervision)
    present = {name: counts > 0 for name, counts in plan.items.counts().items()}
    try:
        learnable_items(present, class_labels(plan.items.labels), plan.supervision)
    except DataError as error:
        missing = plan.items.missing
        hint = f"; {len(missing)} not found: {missing[0]}" if missing else ""
        raise DataError(f"{name}: {error}{hint}") from error


def _check_supervision(hasher: Hasher, supervision: str) -> None:
    accepted = {supervision} | ({"pairs"} if supervision == "aligned" else set())
    if not hasher.supervision or accepted & hasher.supervision:
        return
    found = {
        "labels": "the table gives labels",
        "aligned": "the table has no column of labels",
        "neighbors": "the table has neither labels nor rows with two modalities",
    }
    usable = sorted(name for name, kind in HASHERS.items() if accepted & kind.supervision)
    raise DataError(
        f"{hasher.name()} needs {', '.join(sorted(hasher.supervision))}, but {found[supervision]};"
        f" use one of {usable}"
    )


def class_labels(labels: Sequence[Any] | None) -> NDArray[Any] | None:
    """Return labels as numbers of classes, −1 unknown, or as a boolean matrix."""
    return None if labels is None else np.asarray(number_words(labels)[1][0])


def learnable_items(
    present: Mapping[str, NDArray[np.bool_]], labels: NDArray[Any] | None, supervision: str
) -> Ints:
    """Return the positions of the items that can be learned from.

    Args:
        present: Modality → which items have it.
        labels: Their labels, as `class_labels` returns them.
        supervision: What is learned from.

    Raises:
        DataError: There are too few of them.
    """
    usable: NDArray[np.bool_]
    if supervision == "neighbors":
        name = min(present, key=lambda name: int(present[name].sum()))
        what, usable = f"rows with {name!r}", present[name]
    elif labels is not None:
        what = "rows with a label"
        known = labels.any(axis=1) if labels.ndim == 2 else labels >= 0
        usable = np.asarray(known, np.bool_)
    else:
        what = "rows with two modalities or more"
        usable = np.array(list(present.values())).sum(axis=0) >= 2
    if (count := int(usable.sum())) < _MIN_ITEMS:
        raise DataError(f"expected at least {_MIN_ITEMS} {what}, got {count}")
    return np.arange(len(usable)) if supervision == "neighbors" else np.flatnonzero(usable)

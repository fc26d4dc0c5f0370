"""From a table of things to a searchable collection: features, training, evaluation, encoding."""

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import groupby, permutations
from os import PathLike
from pathlib import Path
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from crossbit._io.files import write_json
from crossbit._io.folders import new_folder
from crossbit._progress import OnStep, Progress, Stages, Step, batches
from crossbit.codes import Codes
from crossbit.collection.collection import Collection
from crossbit.collection.encoder import encode_items
from crossbit.collection.values import REPORT_FILE
from crossbit.data.pairs import Pairs
from crossbit.errors import DataError
from crossbit.evaluation.evaluate import evaluate_codes
from crossbit.evaluation.stages import item_stages
from crossbit.learn.plan import (
    Ints,
    PlanOptions,
    TablePlan,
    class_labels,
    learnable_items,
    plan_table,
)
from crossbit.learn.rows import TableFeatures, extract_features
from crossbit.metrics import weak
from crossbit.metrics.evaluate import Report
from crossbit.model.hashmodel import HashModel

TABLE_FACTS = "table"
"""Entry of a model card: `TableColumns` of the table that the collection was learned from."""

MEDIA = "media"
"""Entry of a model card: the folder that files in the payload are relative to."""

_BATCH = 1000  # items per write
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class LearnResult:
    """A learned collection and its quality.

    Args:
        collection: Folder of the collection; the model is in ``model/1`` below it.
        model: The model.
        reports: Direction, such as ``"text → image"``, → quality on the test items.
        items: Number of items in the collection.
        rows: Modality → number of its feature rows.
        test_items: Number of items that were not trained on.
        skipped: One line per input that could not be used.
        seconds: Step → its duration.
    """

    collection: Path
    model: HashModel
    reports: dict[str, Report]
    items: int
    rows: dict[str, int]
    test_items: int
    skipped: list[str]
    seconds: dict[str, float]


def learn_table(
    table: object,
    out: str | PathLike[str],
    *,
    progress: Progress = lambda title: nullcontext(),
    on_note: Callable[[str], None] | None = None,
    verbose: bool = False,
    **options: Unpack[PlanOptions],
) -> LearnResult:
    """Build a collection from a table with one row per thing and columns of any kinds.

    A cell holds an input: a text, the path of a file, or a list of them. An empty cell means that
    the thing does not have this modality. Other columns become the payload.

    Args:
        table: Path of a CSV, TSV, JSON lines or parquet file, a pandas or polars frame, or a folder
            of pictures, whose captions the option ``captions`` names.
        out: Folder of the collection. It must not exist; it appears when it is complete.
        progress: Opens progress bars, one per stage; their titles are numbered.
        on_note: Called with the plan; by default it is logged.
        verbose: Show notes and progress on stderr every few seconds, as `Hasher.fit` does.
        **options: See `PlanOptions`.

    Raises:
        DataError: The table or an option is not usable, or there are too few rows to learn from.
        MissingExtraError: A library that an extractor or the method needs is not installed.

    Example:
        ``learn_table("things.csv", "shop", image="photo", text="title")``
    """
    check_target(Path(out))
    plan = plan_table(table, **options)
    return learn_planned(plan, out, progress=progress, on_note=on_note, verbose=verbose)


def learn_planned(
    plan: TablePlan,
    out: str | PathLike[str],
    *,
    progress: Progress = lambda title: nullcontext(),
    on_note: Callable[[str], None] | None = None,
    verbose: bool = False,
) -> LearnResult:
    """Do what a plan says; see `learn_table` for the arguments and errors."""
    target = Path(out)
    check_target(target)
    plan.check_installed()
    titles = ["preparing features", *(f"extracting {name}" for name in plan.extracted)]
    titles += ["training", "evaluating", "writing the collection"]
    stages = Stages(dict.fromkeys(titles, ""), _LOG, progress, on_note, verbose=verbose)
    stages.note(plan.summary())
    features = extract_features(plan, stages)
    labels = class_labels(
        None if plan.items.labels is None else [plan.items.labels[n] for n in features.items]
    )
    train, test = _split(plan, features, labels)
    with stages("training") as on_step:
        model = _fit(plan, features, train, labels, on_step)
    recipes = {name: extractor.recipe() for name, extractor in features.extractors.items()}
    facts = {MEDIA: str(plan.items.folder.resolve()), TABLE_FACTS: plan.columns.to_dict()}
    model = replace(model, recipes=recipes, card={**model.card, **facts})
    with stages("evaluating"):
        model = _calibrate(model, features, test)
        reports, content = _evaluate(plan, model, features, test, labels)
    content |= {"learned from": len(train), "held out": len(test)}
    with stages("writing the collection") as on_step, new_folder(target) as folder:
        _write(folder, model, plan, features, test, on_step)
        write_json(folder / REPORT_FILE, content)
    return LearnResult(
        collection=target,
        model=model,
        reports=reports,
        items=len(features.items),
        rows={name: len(rows) for name, rows in features.rows.items()},
        test_items=len(test),
        skipped=[*plan.items.missing, *features.skipped],
        seconds=stages.seconds,
    )


def check_target(target: Path) -> None:
    """Refuse a folder that exists or cannot be written, before features are extracted for hours."""
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise DataError(f"{target} exists; choose another folder for the collection or delete it")
    parent = next(folder for folder in target.absolute().parents if folder.exists())
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        raise DataError(
            f"{target}: cannot write into {parent}; choose another folder for the collection"
        )


def _split(
    plan: TablePlan, features: TableFeatures, labels: NDArray[Any] | None
) -> tuple[Ints, Ints]:
    """Split the items that can be learned from into training and test items."""
    usable = learnable_items(features.present(), labels, plan.supervision)
    random = np.random.default_rng([plan.seed, 3])
    if plan.test_names is not None:
        names = set(plan.test_names)
        is_test = [plan.items.ids[features.items[position]] in names for position in usable]
        test = usable[np.array(is_test, bool)]
        if not 0 < len(test) < len(usable) - 1:
            raise DataError(
                f"{len(test)} of {len(usable)} items are among the {len(names)} test names; name at"
                " least one of them, and leave some to train on"
            )
    elif plan.supervision == "neighbors":
        # Neighbors are searched within a modality: each needs three, a query and two others.
        owners = [np.unique(rows) for rows in features.owners.values()]
        test = np.unique(np.concatenate([_draw(own, plan.test_size, 3, random) for own in owners]))
    else:
        test = _draw(usable, plan.test_size, 1, random)
    return np.setdiff1d(usable, test), test


def _draw(items: Ints, share: float, least: int, random: np.random.Generator) -> Ints:
    """Draw a share of the items, or the least number, and leave at least two."""
    n = min(max(round(share * len(items)), least), len(items) - 2)
    return np.sort(random.permutation(items)[:n])


def _fit(
    plan: TablePlan,
    features: TableFeatures,
    train: Ints,
    labels: NDArray[Any] | None,
    on_step: OnStep | None,
) -> HashModel:
    """Train on labels, else on rows that belong to the same item, else on neighbors.

    With labels every row is trained on with the label of its item. With aligned rows, a modality
    with one row of every item is paired with all rows of the others; if there is none, an item is
    represented by the mean of its rows.
    """
    part = features.part(train)
    views = {name: rows for name, (rows, _) in part.items()}
    if plan.supervision == "neighbors":
        return plan.hasher.fit(views, aligned=False, neighbors="cosine", on_step=on_step)
    owners = {name: items for name, (_, items) in part.items()}
    if labels is not None:
        row_labels = {name: labels[items] for name, items in owners.items()}
        return plan.hasher.fit(views, labels=row_labels, on_step=on_step)
    single = next((name for name in views if np.array_equal(owners[name], train)), None)
    several = any(len(np.unique(rows)) < len(rows) for rows in owners.values())
    if single is None or not several or "pairs" not in plan.hasher.supervision:
        return plan.hasher.fit(_mean_views(views, owners, train), aligned=True, on_step=on_step)
    pairs = []
    for name in (name for name in views if name != single):
        own = owners[name]
        index = np.stack([np.searchsorted(train, own), np.arange(len(own))], axis=1)
        pairs.append(Pairs(single, name, index, np.ones(len(index), np.bool_)))
    return plan.hasher.fit(views, pairs=pairs, on_step=on_step)


def _mean_views(
    views: Mapping[str, NDArray[Any]], owners: Mapping[str, Ints], train: Ints
) -> dict[str, NDArray[Any]]:
    """One row per item and modality: the mean of its rows, NaN if there is none."""
    means = {}
    for name, rows in views.items():
        position = np.searchsorted(train, owners[name])
        total = np.zeros((len(train), rows.shape[1]))
        np.add.at(total, position, rows)
        counts = np.bincount(position, minlength=len(train))[:, None]
        with np.errstate(invalid="ignore"):
            means[name] = (total / counts).astype(np.float32)  # 0 / 0 is NaN: absent
    return means


def _calibrate(model: HashModel, features: TableFeatures, test: Ints) -> HashModel:
    """Return the model with the distances beyond which matches are weak.

    A direction is left out if fewer than `weak.MIN_QUERIES` rows of test items have an item of the
    other modality to find.
    """
    items = {}
    for name, (rows, owners) in features.part(test).items():
        present, counts = np.unique(owners, return_counts=True)
        items[name] = present, encode_items(model, name, rows, counts)[0]
    found = {}
    for query, target in permutations(features.rows, 2):
        present, codes = items[target]
        rows, _ = features.part(present)[query]
        if len(rows) >= weak.MIN_QUERIES:
            found[query, target] = weak.threshold(model.encode(query, rows), codes)
    return weak.with_thresholds(model, found) if found else model


def _evaluate(
    plan: TablePlan,
    model: HashModel,
    features: TableFeatures,
    test: Ints,
    labels: NDArray[Any] | None,
) -> tuple[dict[str, Report], dict[str, Any]]:
    """Return the quality on the test items, and the content of the report file."""
    part = features.part(test)
    row_labels = None
    if labels is not None:
        row_labels = {name: labels[owners] for name, (_, owners) in part.items()}
    by_neighbors = plan.supervision == "neighbors"
    reports, content = evaluate_codes(
        {name: (model.encode(name, rows), owners) for name, (rows, owners) in part.items()},
        labels=row_labels,
        features={name: rows for name, (rows, _) in part.items()} if by_neighbors else None,
    )
    stages = [] if by_neighbors else item_stages(model, part, labels=row_labels)
    return reports, {**content, "stages": [stage.to_dict() for stage in stages]}


def _write(
    folder: Path,
    model: HashModel,
    plan: TablePlan,
    features: TableFeatures,
    test: Ints,
    on_step: OnStep | None,
) -> None:
    """Write all items into a collection, one transaction per batch."""
    n = len(features.items)
    present = features.present()
    is_test = np.isin(np.arange(n), test).tolist()

    with Collection.create(folder, model) as collection:
        # Codes cannot be missing within a call, so a batch holds items with the same modalities.
        for names, run in groupby(range(n), lambda row: [m for m in present if present[m][row]]):
            for positions in batches(run, _BATCH):
                numbers = features.items[positions]
                payloads = [
                    {**plan.items.payloads[number], "held_out": is_test[position]}
                    for position, number in zip(positions, numbers, strict=True)
                ]
                views = {name: _codes(model, features, name, positions) for name in names}
                collection.upsert([plan.items.ids[number] for number in numbers], views, payloads)
                if on_step is not None:
                    on_step(Step(positions[-1] + 1, n))


def _codes(
    model: HashModel, features: TableFeatures, modality: str, positions: Sequence[int]
) -> Codes:
    """Codes of consecutive items that all have the modality."""
    owners = features.owners[modality]
    first, last = np.searchsorted(owners, [positions[0], positions[-1] + 1])
    counts = np.unique(owners[first:last], return_counts=True)[1]
    return encode_items(model, modality, features.rows[modality][first:last], counts)[0]

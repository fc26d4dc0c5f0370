"""From raw items to a searchable collection: features, training, evaluation, encoding."""

import logging
import os
from collections.abc import Callable, Mapping
from collections.abc import Collection as Names
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import Any

from crossbit._io.files import write_json
from crossbit._io.folders import new_folder
from crossbit._progress import Progress, Stages
from crossbit._validation import check_bits, check_installed, check_integer
from crossbit.collection.payloads import check_ids, payloads_to_json
from crossbit.collection.types import REPORT_FILE
from crossbit.errors import DataError
from crossbit.evaluation.evaluate import evaluate_codes
from crossbit.evaluation.stages import item_stages
from crossbit.hashers.auto import AutoHash
from crossbit.hashers.base import HASHERS, Hasher
from crossbit.metrics.evaluate import Report
from crossbit.model.hashmodel import HashModel
from crossbit.pipeline.columns import Columns
from crossbit.pipeline.extractors import DEFAULT_EXTRACTORS, cache_folder, required_libraries
from crossbit.pipeline.plan import TablePlan, plan_table
from crossbit.pipeline.rows import (
    FeatureExtraction,
    calibrate_model,
    check_captioned,
    class_labels,
    fit_model,
    split_items,
    write_items,
)
from crossbit.pipeline.table import ItemTable

_CAPTIONED = {kind: DEFAULT_EXTRACTORS[kind] for kind in ("image", "text")}
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


def learn(
    images: str | PathLike[str],
    captions: str | PathLike[str],
    out: str | PathLike[str],
    *,
    extractors: Mapping[str, str] | None = None,
    hasher: Hasher | None = None,
    test_size: float = 0.1,
    test_names: Names[str] | None = None,
    seed: int = 0,
    workers: int = 1,
    cache: str | PathLike[str] | None = None,
    progress: Progress = lambda title: nullcontext(),
    on_note: Callable[[str], None] | None = None,
    verbose: bool = False,
) -> LearnResult:
    """Build a collection in which texts find images and images find texts.

    Args:
        images: Folder of images, with subfolders.
        captions: Captions of the images; see `crossbit.data.tables.read_captions`.
        out: Folder of the collection. It must not exist; it appears when it is complete.
        extractors: Modality → name of its extractor in `EXTRACTORS`; default: EfficientNet for
            ``"image"`` and MiniLM for ``"text"``.
        hasher: The method; default: `AutoHash` of 128 bits.
        test_size: Fraction of the captioned images to evaluate on; they are not trained on.
        test_names: Names of the images to evaluate on, instead of a random fraction.
        seed: Seed of the random test items and of vocabularies.
        workers: Number of processes that extract features.
        cache: Folder for feature rows and converted networks; default: `cache_folder`.
        progress: Opens progress bars, one per stage; their titles are numbered, as in the plan.
        on_note: Called with the plan before anything is read, then with the numbers of images and
            captions; by default they are logged.
        verbose: Show notes and progress on stderr every few seconds, as `Hasher.fit` does.

    Raises:
        DataError: An input or option is not usable, or there are too few captioned images.
        MissingExtraError: A library that an extractor or the method needs is not installed.
    """
    target = Path(out)
    hasher = hasher or AutoHash(n_bits=128, seed=seed)
    _check_options(target, hasher, test_size, seed)
    cached = Path(cache) if cache else cache_folder()
    names = {**_CAPTIONED, **(extractors or {})}
    plan = {
        "matching captions": f"images of {images} with captions of {captions}",
        **_stage_plan(names, workers, cached, hasher, target),
        "evaluating": f"{test_size:.0%} of the images" if test_names is None else "test names",
        "writing the collection": str(target),
    }
    stages = Stages(plan, _LOG, progress, on_note, verbose=verbose)
    libraries = [
        library
        for modality in _CAPTIONED
        for library in required_libraries(modality, names[modality], cache=cached)
    ]
    check_installed(*hasher.libraries_for("pairs"), *libraries)
    stages.note(stages.summary())
    with stages("matching captions"):
        table = ItemTable.from_captioned_images(images, captions)
        check_captioned(table)  # fail before hours of extraction
        payloads_to_json(table.payloads, check_ids(table.ids))
    stages.note(table.summary())
    run = _Run(stages, workers, cached, hasher, test_size, test_names, seed)
    return run(table, names, target)


def learn_table(
    table: object,
    out: str | PathLike[str],
    *,
    image: Columns | None = None,
    text: Columns | None = None,
    audio: Columns | None = None,
    signal: Columns | None = None,
    mesh: Columns | None = None,
    vector: Columns | None = None,
    labels: str | None = None,
    id: str | None = None,
    folder: str | PathLike[str] | None = None,
    extractors: Mapping[str, str] | None = None,
    query_encoders: Mapping[str, str] | None = None,
    hasher: Hasher | None = None,
    test_size: float = 0.1,
    test_names: Names[Any] | None = None,
    seed: int = 0,
    workers: int = 1,
    cache: str | PathLike[str] | None = None,
    progress: Progress = lambda title: nullcontext(),
    on_note: Callable[[str], None] | None = None,
    verbose: bool = False,
) -> LearnResult:
    """Build a collection from a table with one row per thing and columns of any kinds.

    A cell holds an input: a text, the path of a file, or a list of them. An empty cell means that
    the thing does not have this modality. Several columns of one argument are joined to one
    modality; a mapping, such as ``text={"title": "name", "body": "description"}``, makes several.
    Other columns become the payload. Without any modality, all of them are guessed.

    Args:
        table: Path of a CSV, TSV, JSON lines or parquet file, or a pandas or polars frame.
        out: Folder of the collection. It must not exist; it appears when it is complete.
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
        folder: Folder that paths are relative to; default: that of the table.
        extractors: Modality or kind → name of its extractor in `EXTRACTORS`.
        query_encoders: Modality of vectors → kind and name of the pretrained extractor that made
            them, such as ``{"caption": "text:minilm"}``: texts then search these vectors.
        hasher: The method; default: `AutoHash` of 128 bits.
        test_size: Fraction of the things to evaluate on; they are not trained on.
        test_names: Ids of the things to evaluate on, instead of a random fraction.
        seed: Seed of the random test items and of vocabularies.
        workers: Number of processes that extract features.
        cache: Folder for feature rows and converted networks; default: `cache_folder`.
        progress: Opens progress bars, one per stage.
        on_note: Called with the plan; by default it is logged.
        verbose: Show notes and progress on stderr every few seconds, as `Hasher.fit` does.

    Raises:
        DataError: The table or an option is not usable, or there are too few rows to learn from.
        MissingExtraError: A library that an extractor or the method needs is not installed.
    """
    plan = plan_table(
        table,
        image=image,
        text=text,
        audio=audio,
        signal=signal,
        mesh=mesh,
        vector=vector,
        labels=labels,
        id=id,
        folder=folder,
        extractors=extractors,
        hasher=hasher,
        seed=seed,
        workers=workers,
        cache=cache,
        query_encoders=query_encoders,
    )
    return learn_planned(
        plan,
        out,
        test_size=test_size,
        test_names=test_names,
        seed=seed,
        progress=progress,
        on_note=on_note,
        verbose=verbose,
    )


def learn_planned(
    plan: TablePlan,
    out: str | PathLike[str],
    *,
    test_size: float = 0.1,
    test_names: Names[Any] | None = None,
    seed: int = 0,
    progress: Progress = lambda title: nullcontext(),
    on_note: Callable[[str], None] | None = None,
    verbose: bool = False,
) -> LearnResult:
    """Do what a plan says; see `learn_table` for the arguments and errors."""
    target = Path(out)
    _check_options(target, plan.hasher, test_size, seed, plan.supervision)
    check_installed(*plan.hasher.libraries_for(plan.supervision), *plan.libraries())
    inputs = plan.table.inputs  # without vectors, which the table itself holds
    stage_plan = {
        **_stage_plan(
            {name: extractor for name, extractor in plan.extractors.items() if name in inputs},
            plan.workers,
            plan.cache,
            plan.hasher,
            target,
        ),
        "evaluating": f"{test_size:.0%} of the rows" if test_names is None else "test names",
        "writing the collection": str(target),
    }
    stages = Stages(stage_plan, _LOG, progress, on_note, verbose=verbose)
    stages.note(plan.summary())
    payloads_to_json(plan.table.payloads, check_ids(plan.table.ids))
    run = _Run(
        stages,
        plan.workers,
        plan.cache,
        plan.hasher,
        test_size,
        test_names,
        seed,
        plan.query_encoders,
    )
    return run(plan.table, plan.extractors, target, plan.supervision)


def _stage_plan(
    names: Mapping[str, str], workers: int, cache: Path, hasher: Hasher, target: Path
) -> dict[str, str]:
    """Stages from the features to the training."""
    processes = f"{workers} process{'es' * (workers > 1)}, rows cached in {cache}"
    return {
        "preparing features": ", ".join(f"{kind}: {name}" for kind, name in names.items()),
        **{f"extracting {modality}": processes for modality in names},
        "training": f"{hasher.name()}, {hasher.n_bits} bits",
    }


@dataclass(frozen=True)
class _Run:
    """The stages of learning after the table is known."""

    stages: Stages
    workers: int
    cache: Path
    hasher: Hasher
    test_size: float
    test_names: Names[Any] | None
    seed: int
    query_encoders: Mapping[str, str] = field(default_factory=dict)

    def __call__(
        self, table: ItemTable, names: Mapping[str, str], target: Path, supervision: str = "aligned"
    ) -> LearnResult:
        """Extract, train, evaluate and write the collection."""
        stages = self.stages
        extraction = FeatureExtraction(table, self.workers, self.cache, stages, self.query_encoders)
        features = extraction.run(names, self.seed)
        train, test = split_items(
            table, features, supervision, self.test_size, self.test_names, self.seed
        )
        labels = class_labels(table, features)
        with stages("training") as on_step:
            model = fit_model(self.hasher, features, supervision, train, labels, on_step)
        recipes = {name: extractor.recipe() for name, extractor in features.extractors.items()}
        card = {**model.card, "media": str(table.folder.resolve())}
        model = replace(model, recipes=recipes, card=card)
        with stages("evaluating"):
            model = calibrate_model(model, features, test)
            row_labels = None if labels is None else features.row_labels(labels, test)
            by_neighbors = supervision == "neighbors"
            part = features.part(test)
            reports, content = evaluate_codes(
                {name: features.encode(model, name, test) for name in features.rows},
                labels=row_labels,
                features={name: rows for name, (rows, _) in part.items()} if by_neighbors else None,
            )
            measured = [] if by_neighbors else item_stages(model, part, labels=row_labels)
        content["stages"] = [stage.to_dict() for stage in measured]
        content |= {"learned from": len(train), "held out": len(test)}
        with stages("writing the collection") as on_step, new_folder(target) as folder:
            write_items(folder, model, table, features, test, on_step)
            write_json(folder / REPORT_FILE, content)
        return LearnResult(
            collection=target,
            model=model,
            reports=reports,
            items=len(features.items),
            rows={name: len(rows) for name, rows in features.rows.items()},
            test_items=len(test),
            skipped=[*table.missing, *features.skipped],
            seconds=stages.seconds,
        )


def _check_options(
    target: Path, hasher: Hasher, test_size: float, seed: int, supervision: str = "pairs"
) -> None:
    """Validate options before features are extracted for hours."""
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise DataError(f"{target} exists; choose another folder for the collection or delete it")
    check_integer(seed, "seed")
    check_bits(hasher.n_bits)
    parent = next(folder for folder in target.absolute().parents if folder.exists())
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        raise DataError(
            f"{target}: cannot write into {parent}; choose another folder for the collection"
        )
    if not 0 < test_size < 1:
        raise DataError(f"test_size must be between 0 and 1 (exclusive), got {test_size!r}")
    accepted = {supervision} | ({"pairs"} if supervision == "aligned" else set())
    if hasher.supervision and not accepted & hasher.supervision:
        given = {
            "pairs": "captions give pairs",
            "labels": "the table gives labels",
            "neighbors": "the table has neither labels nor rows with two modalities",
        }.get(supervision, "the table has no column of labels")
        usable = sorted(name for name, h in HASHERS.items() if accepted & h.supervision)
        raise DataError(
            f"{hasher.name()} needs {', '.join(sorted(hasher.supervision))}, but {given}; use one"
            f" of {usable}"
        )

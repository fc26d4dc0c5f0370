"""From raw items to a searchable collection: features, training, evaluation, encoding."""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Collection as Names
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import groupby
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbit._io.files import write_json
from crossbit._io.folders import replace_folder
from crossbit._progress import OnStep, batches
from crossbit._validation import check_integer, check_known
from crossbit.codes import Codes
from crossbit.collection.collection import Collection
from crossbit.collection.payloads import check_ids, payloads_to_json
from crossbit.collection.types import REPORT_FILE
from crossbit.data.pairs import Pairs
from crossbit.errors import DataError
from crossbit.evaluation.evaluate import evaluate_codes
from crossbit.features import extract
from crossbit.features.extractor import Extractor, RawInput
from crossbit.hashers.base import HASHERS, Hasher
from crossbit.hashers.rankedcca import RankedCCA
from crossbit.metrics.evaluate import Report
from crossbit.model.hashmodel import HashModel
from crossbit.pipeline.extractors import cache_folder, make_extractor
from crossbit.pipeline.table import ItemTable

Ints = NDArray[np.int64]
Progress = Callable[[str], AbstractContextManager[OnStep | None]]
"""Opens a progress bar with a title, and yields its callback."""

DEFAULT_EXTRACTORS = {"image": "efficientnet", "text": "minilm"}
_BATCH = 1000  # items per write
_MIN_ITEMS = 10  # items that have all modalities


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
) -> LearnResult:
    """Build a collection in which texts find images and images find texts.

    Args:
        images: Folder of images, with subfolders.
        captions: Captions of the images; see `crossbit.data.captions.read_captions`.
        out: Folder of the collection. It must not exist; it appears when it is complete.
        extractors: Modality → name of its extractor in `EXTRACTORS`; default: EfficientNet for
            ``"image"`` and MiniLM for ``"text"``.
        hasher: The method; default: `RankedCCA` of 128 bits.
        test_size: Fraction of the captioned images to evaluate on; they are not trained on.
        test_names: Names of the images to evaluate on, instead of a random fraction.
        seed: Seed of the random test items and of vocabularies.
        workers: Number of processes that extract features.
        cache: Folder for feature rows and converted networks; default: `cache_folder`.
        progress: Opens progress bars.

    Raises:
        DataError: An input or option is not usable, or there are too few captioned images.
    """
    target = Path(out)
    hasher = hasher or RankedCCA(n_bits=128, seed=seed)
    _check_options(target, hasher, test_size, seed)
    table = ItemTable.from_captioned_images(images, captions)
    payloads_to_json(table.payloads, check_ids(table.ids))  # fail before hours of extraction
    work = _FeatureExtraction(table, workers, Path(cache) if cache else cache_folder(), progress)
    features = work.run({**DEFAULT_EXTRACTORS, **(extractors or {})}, seed)
    train, test = _split(table, features, test_size, test_names, seed)
    with work.timed("training") as on_step:
        model = _fit(hasher, features, train, on_step)
    recipes = {name: extractor.recipe() for name, extractor in features.extractors.items()}
    card = {**model.card, "media": str(table.folder.resolve())}
    model = replace(model, recipes=recipes, card=card)
    with work.timed("evaluating"):
        reports, content = evaluate_codes(
            {name: features.encode(model, name, test) for name in features.rows}
        )
    content |= {"learned from": len(train), "held out": len(test)}
    with (
        work.timed("writing the collection"),
        replace_folder(target, REPORT_FILE, "crossbit.report/1") as folder,
    ):
        _write_items(folder, model, table, features, test)
        write_json(folder / REPORT_FILE, content)
    return LearnResult(
        collection=target,
        model=model,
        reports=reports,
        items=len(features.items),
        rows={name: len(rows) for name, rows in features.rows.items()},
        test_items=len(test),
        skipped=[*(f"{name}: is not in {images}" for name in table.missing), *features.skipped],
        seconds=work.seconds,
    )


def pool_codes(
    model: HashModel, modality: str, rows: NDArray[Any], owners: Ints, n_items: int
) -> Codes:
    """Return one code per item from one or more feature rows: the sign of the mean output.

    Args:
        model: The model.
        modality: Modality of the rows.
        rows: Feature rows, such as those of several captions per image.
        owners: The item, 0 to ``n_items`` − 1, that each row belongs to.
        n_items: Number of codes; the code of an item without rows has no meaning.
    """
    if np.array_equal(owners, np.arange(n_items)):
        return model.encode(modality, rows)
    # The sum has the sign of the mean; 0 gives bit 1, as in `encode`.
    total = np.zeros((n_items, model.n_bits))
    np.add.at(total, owners, model.scores(modality, rows))
    return Codes.pack(total >= 0)


def _check_options(target: Path, hasher: Hasher, test_size: float, seed: int) -> None:
    """Validate options before features are extracted for hours."""
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise DataError(f"{target} exists; choose another folder for the collection or delete it")
    check_integer(seed, "seed")
    parent = next(folder for folder in target.absolute().parents if folder.exists())
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        raise DataError(
            f"{target}: cannot write into {parent}; choose another folder for the collection"
        )
    if not 0 < test_size < 1:
        raise DataError(f"test_size must be between 0 and 1 (exclusive), got {test_size!r}")
    if hasher.supervision and "pairs" not in hasher.supervision:
        usable = sorted(name for name, h in HASHERS.items() if "pairs" in h.supervision)
        raise DataError(
            f"{hasher.name()} needs {', '.join(sorted(hasher.supervision))}, but captions give"
            f" pairs; use one of {usable}"
        )


@dataclass(frozen=True, eq=False)
class _TableFeatures:
    """Feature rows of all modalities.

    Args:
        items: Number in the table of each usable item.
        rows: Modality → feature rows; the primary modality has one row per item.
        owners: Modality → position in ``items`` of the item that each row belongs to.
        extractors: Modality → its extractor.
        skipped: One line per unusable input.
    """

    items: Ints
    rows: dict[str, NDArray[Any]]
    owners: dict[str, Ints]
    extractors: dict[str, Extractor]
    skipped: list[str]

    def rows_of(self, modality: str, positions: Ints) -> Ints:
        """Return the row numbers of a modality that belong to these items."""
        return np.flatnonzero(np.isin(self.owners[modality], positions))

    def encode(self, model: HashModel, modality: str, positions: Ints) -> tuple[Codes, Ints]:
        """Encode all rows of these items; return the codes and the item of each."""
        numbers = self.rows_of(modality, positions)
        codes = model.encode(modality, self.rows[modality][numbers])
        return codes, self.owners[modality][numbers]


@dataclass
class _FeatureExtraction:
    """Extracts the features of a table and measures the time of each step."""

    table: ItemTable
    workers: int
    cache: Path
    progress: Progress
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def timed(self, title: str) -> Iterator[OnStep | None]:
        """Show a progress bar for a step and record its duration."""
        start = time.perf_counter()
        with self.progress(title) as on_step:
            yield on_step
        self.seconds[title] = time.perf_counter() - start

    def run(self, names: Mapping[str, str], seed: int) -> _TableFeatures:
        """Extract all modalities with extractors of these names.

        An item whose primary input is unusable is left out, with its inputs of other modalities.
        """
        inputs = self.table.inputs
        for modality in names:
            check_known(modality, inputs)
        with self.timed("preparing features"):
            extractors = {
                modality: make_extractor(
                    self.table.accepts[modality],
                    names[modality],
                    [raw for per_item in inputs[modality] for raw in per_item],
                    cache=self.cache,
                    seed=seed,
                )
                for modality in inputs
            }
        features = _TableFeatures(np.arange(len(self.table.ids)), {}, {}, extractors, [])
        for modality in inputs:
            features = self._extract(features, modality, primary=not features.rows)
        return features

    def _extract(self, features: _TableFeatures, modality: str, *, primary: bool) -> _TableFeatures:
        """Add the rows of a modality; the primary one decides which items are kept."""
        inputs: list[RawInput] = []
        positions: list[int] = []
        for position, number in enumerate(features.items):
            for raw in self.table.inputs[modality][number]:
                inputs.append(raw)
                positions.append(position)
        with self.timed(f"extracting {modality}") as on_step:
            extraction = extract(
                features.extractors[modality],
                inputs,
                workers=self.workers,
                cache=self.cache / "rows",
                on_step=on_step,
            )
        owners = np.array(positions, np.int64)[extraction.positions]
        items = features.items
        if primary:
            items = items[owners]
            owners = np.arange(len(items))
        return replace(
            features,
            items=items,
            rows={**features.rows, modality: extraction.rows},
            owners={**features.owners, modality: owners},
            skipped=[*features.skipped, *extraction.skipped],
        )


def _split(
    table: ItemTable,
    features: _TableFeatures,
    test_size: float,
    test_names: Names[str] | None,
    seed: int,
) -> tuple[Ints, Ints]:
    """Split the items that have all modalities into training and test items."""
    complete = np.arange(len(features.items))
    for owners in features.owners.values():
        complete = np.intersect1d(complete, owners)
    if len(complete) < _MIN_ITEMS:
        raise DataError(f"expected at least {_MIN_ITEMS} images with captions, got {len(complete)}")
    if test_names is None:
        n = min(max(round(test_size * len(complete)), 1), len(complete) - 2)
        test = np.sort(np.random.default_rng([seed, 3]).permutation(complete)[:n])
    else:
        names = set(test_names)
        is_test = [table.ids[features.items[position]] in names for position in complete]
        test = complete[np.array(is_test, bool)]
        if not 0 < len(test) < len(complete) - 1:
            raise DataError(
                f"{len(test)} of {len(complete)} captioned images are among the {len(names)} test"
                " names; name at least one of them, and leave some to train on"
            )
    return np.setdiff1d(complete, test), test


def _fit(
    hasher: Hasher, features: _TableFeatures, train: Ints, on_step: OnStep | None
) -> HashModel:
    """Train on pairs of the primary modality with each other one."""
    numbers = {modality: features.rows_of(modality, train) for modality in features.rows}
    views = {modality: features.rows[modality][rows] for modality, rows in numbers.items()}
    primary, *others = views
    pairs = []
    for modality in others:
        owners = features.owners[modality][numbers[modality]]
        index = np.stack([np.searchsorted(train, owners), np.arange(len(owners))], axis=1)
        pairs.append(Pairs(primary, modality, index, np.ones(len(index), np.bool_)))
    return hasher.fit(views, pairs=pairs, on_step=on_step)


def _write_items(
    folder: Path, model: HashModel, table: ItemTable, features: _TableFeatures, test: Ints
) -> None:
    """Write all items into a collection, one transaction per batch."""
    n = len(features.items)
    codes = {
        modality: pool_codes(model, modality, rows, features.owners[modality], n)
        for modality, rows in features.rows.items()
    }
    owned = {modality: set(owners.tolist()) for modality, owners in features.owners.items()}
    is_test = set(test.tolist())

    def modalities(position: int) -> Sequence[str]:
        return [modality for modality in owned if position in owned[modality]]

    with Collection.create(folder, model) as collection:
        # Codes cannot be missing within a call, so a batch holds items with the same modalities.
        for names, run in groupby(range(n), modalities):
            for positions in batches(run, _BATCH):
                numbers = features.items[positions]
                payloads = [
                    {**table.payloads[number], "held_out": position in is_test}
                    for position, number in zip(positions, numbers, strict=True)
                ]
                views = {modality: codes[modality][np.array(positions)] for modality in names}
                collection.upsert([table.ids[number] for number in numbers], views, payloads)

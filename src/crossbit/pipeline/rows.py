"""Feature rows of a table's items: extraction, the split, training and calibration."""

from collections.abc import Collection as Names
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, permutations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbit._progress import OnStep, Stages, Step, batches
from crossbit._validation import check_known
from crossbit.codes import Codes
from crossbit.collection.collection import Collection
from crossbit.data.labels import number_words
from crossbit.data.pairs import Pairs
from crossbit.errors import DataError
from crossbit.features import Vector, extract
from crossbit.features.extractor import Extractor, RawInput
from crossbit.hashers.base import Hasher
from crossbit.metrics import weak
from crossbit.model.hashmodel import HashModel
from crossbit.pipeline.extractors import make_extractor
from crossbit.pipeline.table import ItemTable

Ints = NDArray[np.int64]
_BATCH = 1000  # items per write
_MIN_ITEMS = 10  # items to split into training and test


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


@dataclass(frozen=True, eq=False)
class TableFeatures:
    """Feature rows of all modalities.

    Args:
        items: Number in the table of each usable item.
        rows: Modality → feature rows; a primary modality has one row per item.
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

    def part(self, positions: Ints) -> dict[str, tuple[NDArray[Any], Ints]]:
        """Return all rows of these items and the item of each, by modality."""
        numbers = {name: self.rows_of(name, positions) for name in self.rows}
        return {name: (self.rows[name][n], self.owners[name][n]) for name, n in numbers.items()}

    def encode(self, model: HashModel, modality: str, positions: Ints) -> tuple[Codes, Ints]:
        """Encode all rows of these items; return the codes and the item of each."""
        numbers = self.rows_of(modality, positions)
        codes = model.encode(modality, self.rows[modality][numbers])
        return codes, self.owners[modality][numbers]

    def presence(self) -> NDArray[np.bool_]:
        """Return which items have which modalities, shape (modalities, items)."""
        present = np.zeros((len(self.rows), len(self.items)), np.bool_)
        for row, owners in zip(present, self.owners.values(), strict=True):
            row[owners] = True
        return present

    def row_labels(self, labels: NDArray[Any], positions: Ints) -> dict[str, NDArray[Any]]:
        """Return the labels of all rows of these items, by modality."""
        numbers = {name: self.rows_of(name, positions) for name in self.rows}
        return {name: labels[self.owners[name][rows]] for name, rows in numbers.items()}


@dataclass
class FeatureExtraction:
    """Extracts the features of a table."""

    table: ItemTable
    workers: int
    cache: Path
    stages: Stages
    query_encoders: Mapping[str, str] = field(default_factory=dict)

    def run(self, names: Mapping[str, str], seed: int) -> TableFeatures:
        """Extract all modalities with extractors of these names.

        An item whose primary input is unusable is left out, with its inputs of other modalities;
        without a primary modality, an item without any usable input.
        """
        inputs = self.table.inputs
        vectors = self.table.vectors
        for modality in names:
            check_known(modality, self.table.accepts)
        with self.stages("preparing features"):
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
        features = TableFeatures(np.arange(len(self.table.ids)), {}, {}, extractors, [])
        for modality in self.table.accepts:
            if modality in vectors:
                features = self._add_vectors(features, modality, vectors[modality])
            else:
                features = self._extract(features, modality)
        if self.table.primary:
            return features
        used = np.flatnonzero(features.presence().any(axis=0))
        owners = {name: np.searchsorted(used, rows) for name, rows in features.owners.items()}
        return replace(features, items=features.items[used], owners=owners)

    def _extract(self, features: TableFeatures, modality: str) -> TableFeatures:
        """Add the rows of a modality; the primary one, which is first, decides on the items."""
        inputs: list[RawInput] = []
        positions: list[int] = []
        for position, number in enumerate(features.items):
            for raw in self.table.inputs[modality][number]:
                inputs.append(raw)
                positions.append(position)
        with self.stages(f"extracting {modality}") as on_step:
            extraction = extract(
                features.extractors[modality],
                inputs,
                workers=self.workers,
                cache=self.cache / "rows",
                on_step=on_step,
            )
        if not len(extraction.rows) and not self.table.primary:
            reason = next(iter(extraction.skipped), "every cell is empty, or its file is missing")
            raise DataError(f"there is no usable input of {modality!r} ({reason})")
        owners = np.array(positions, np.int64)[extraction.positions]
        items = features.items
        if modality == self.table.primary:
            items = items[owners]
            owners = np.arange(len(items))
        return replace(
            features,
            items=items,
            rows={**features.rows, modality: extraction.rows},
            owners={**features.owners, modality: owners},
            skipped=[*features.skipped, *extraction.skipped],
        )

    def _add_vectors(
        self, features: TableFeatures, modality: str, rows: NDArray[Any]
    ) -> TableFeatures:
        """Add rows that the table holds itself; a row that is all NaN is absent."""
        present = np.flatnonzero(~np.isnan(rows).all(axis=1))
        extractor: Extractor = Vector(rows.shape[1])
        if modality in self.query_encoders:
            name = self.query_encoders[modality]
            extractor = _query_encoder(name, rows.shape[1], self.cache)
        return replace(
            features,
            rows={**features.rows, modality: rows[present]},
            owners={**features.owners, modality: present},
            extractors={**features.extractors, modality: extractor},
        )


def _query_encoder(name: str, width: int, cache: Path) -> Extractor:
    """Build the extractor that made rows of this width, named such as ``"text:minilm"``."""
    kind, _, extractor_name = name.partition(":")
    try:
        extractor = make_extractor(kind, extractor_name, [], cache=cache)
    except (DataError, IndexError) as error:  # a vocabulary of no inputs
        raise DataError(
            f"{name!r} cannot be a query encoder, which must be pretrained ({error})"
        ) from error
    if extractor.width != width:
        raise DataError(
            f"{name!r} makes rows of {extractor.width} numbers, but the vectors have {width}; name"
            " the encoder that made them"
        )
    return extractor


def class_labels(table: ItemTable, features: TableFeatures) -> NDArray[Any] | None:
    """Return the labels of the usable items: classes, −1 unknown, or a boolean matrix."""
    if table.labels is None:
        return None
    values = [table.labels[number] for number in features.items]
    _, (labels,) = number_words(values)
    return np.asarray(labels)


def split_items(
    table: ItemTable,
    features: TableFeatures,
    supervision: str,
    test_size: float,
    test_names: Names[str] | None,
    seed: int,
) -> tuple[Ints, Ints]:
    """Split the items that can be learned from into training and test items."""
    complete = _complete_items(table, features, supervision)
    random = np.random.default_rng([seed, 3])
    if test_names is None and supervision == "neighbors":
        # Neighbors are searched within a modality: each needs three, a query and two others.
        parts = [_draw(np.unique(rows), test_size, 3, random) for rows in features.owners.values()]
        test = np.unique(np.concatenate(parts))
    elif test_names is None:
        test = _draw(complete, test_size, 1, random)
    else:
        names = set(test_names)
        is_test = [table.ids[features.items[position]] in names for position in complete]
        test = complete[np.array(is_test, bool)]
        if not 0 < len(test) < len(complete) - 1:
            raise DataError(
                f"{len(test)} of {len(complete)} {'captioned images' if table.primary else 'items'}"
                f" are among the {len(names)} test names; name at least one of them, and leave some"
                " to train on"
            )
    return np.setdiff1d(complete, test), test


def _draw(items: Ints, share: float, least: int, random: np.random.Generator) -> Ints:
    """Draw a share of the items, or the least number, and leave at least two."""
    n = min(max(round(share * len(items)), least), len(items) - 2)
    return np.sort(random.permutation(items)[:n])


def check_captioned(table: ItemTable) -> None:
    """Reject a table with too few captioned images before features are extracted.

    Raises:
        DataError: There are too few of them; the message names a caption without an image.
    """
    count = sum(bool(captions) for captions in table.inputs["text"])
    if count >= _MIN_ITEMS:
        return
    hint = f"; {len(table.missing)} not found: {table.missing[0]}" if table.missing else ""
    raise DataError(f"expected at least {_MIN_ITEMS} images with captions, got {count}{hint}")


def _complete_items(table: ItemTable, features: TableFeatures, supervision: str) -> Ints:
    """Positions of the items that can be learned from.

    Raises:
        DataError: There are too few of them.
    """
    present = features.presence()
    labels = class_labels(table, features)
    if table.primary:
        what = "images with captions"
        complete = np.flatnonzero(present.all(axis=0))
    elif supervision == "neighbors":
        name, rows = min(features.owners.items(), key=lambda entry: len(np.unique(entry[1])))
        what = f"rows with {name!r}"
        complete = np.unique(rows)
    elif labels is not None:
        what = "rows with a label"
        complete = np.flatnonzero(labels.any(axis=1) if labels.ndim == 2 else labels >= 0)
    else:
        what = "rows with two modalities or more"
        complete = np.flatnonzero(present.sum(axis=0) >= 2)
    if len(complete) < _MIN_ITEMS:
        raise DataError(f"expected at least {_MIN_ITEMS} {what}, got {len(complete)}")
    return np.arange(len(features.items)) if supervision == "neighbors" else complete


def fit_model(
    hasher: Hasher,
    features: TableFeatures,
    supervision: str,
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
    if supervision == "neighbors":
        return hasher.fit(views, aligned=False, neighbors="cosine", on_step=on_step)
    if labels is not None:
        return hasher.fit(views, labels=features.row_labels(labels, train), on_step=on_step)
    owners = {name: items for name, (_, items) in part.items()}
    primary = next((name for name in views if np.array_equal(owners[name], train)), None)
    several = any(len(np.unique(rows)) < len(rows) for rows in owners.values())
    if primary is None or not several or "pairs" not in hasher.supervision:
        return hasher.fit(_mean_views(views, owners, train), aligned=True, on_step=on_step)
    others = [name for name in views if name != primary]
    pairs = []
    for modality in others:
        own = owners[modality]
        index = np.stack([np.searchsorted(train, own), np.arange(len(own))], axis=1)
        pairs.append(Pairs(primary, modality, index, np.ones(len(index), np.bool_)))
    return hasher.fit(views, pairs=pairs, on_step=on_step)


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


def calibrate_model(model: HashModel, features: TableFeatures, test: Ints) -> HashModel:
    """Return the model with the distances beyond which matches are weak.

    A direction is left out if fewer than `weak.MIN_QUERIES` rows of test items have an item of the
    other modality to find.
    """
    items = {}
    for modality, rows in features.rows.items():
        numbers = features.rows_of(modality, test)
        owners, places = np.unique(features.owners[modality][numbers], return_inverse=True)
        codes = pool_codes(model, modality, rows[numbers], places, len(owners))
        items[modality] = owners, codes
    found = {}
    for query, target in permutations(features.rows, 2):
        owners, codes = items[target]
        if len(features.rows_of(query, owners)) >= weak.MIN_QUERIES:
            queries, _ = features.encode(model, query, owners)
            found[query, target] = weak.threshold(queries, codes)
    return weak.with_thresholds(model, found) if found else model


def write_items(
    folder: Path,
    model: HashModel,
    table: ItemTable,
    features: TableFeatures,
    test: Ints,
    on_step: OnStep | None,
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
                if on_step is not None:
                    on_step(Step(positions[-1] + 1, n))

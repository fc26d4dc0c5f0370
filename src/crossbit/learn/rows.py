"""Feature rows of items, and their extraction."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbit._progress import Stages
from crossbit.errors import DataError
from crossbit.features import Vector, extract
from crossbit.features.extractor import Extractor
from crossbit.learn.extractors import make_extractor
from crossbit.learn.plan import Ints, TablePlan


@dataclass(frozen=True, eq=False)
class TableFeatures:
    """Feature rows of all modalities.

    Args:
        items: Number in the table of each usable item.
        rows: Modality → feature rows.
        owners: Modality → position in ``items`` of the item that each row belongs to, ascending.
        extractors: Modality → its extractor.
        skipped: One line per unusable input.
    """

    items: Ints
    rows: Mapping[str, NDArray[Any]]
    owners: Mapping[str, Ints]
    extractors: Mapping[str, Extractor]
    skipped: list[str]

    def present(self) -> dict[str, NDArray[np.bool_]]:
        """Return modality → which items have it."""
        n = len(self.items)
        return {name: np.bincount(own, minlength=n) > 0 for name, own in self.owners.items()}

    def part(self, positions: Ints) -> dict[str, tuple[NDArray[Any], Ints]]:
        """Return all rows of these items and the item of each, by modality."""
        belong = {name: np.isin(own, positions) for name, own in self.owners.items()}
        return {name: (self.rows[name][of], self.owners[name][of]) for name, of in belong.items()}


def extract_features(plan: TablePlan, stages: Stages) -> TableFeatures:
    """Extract the features of all modalities; an item without any usable input is left out.

    Raises:
        DataError: A modality has no usable input.
    """
    items = plan.items
    inputs = {
        name: [raw for per_item in per_modality for raw in per_item]
        for name, per_modality in items.inputs.items()
    }
    with stages("preparing features"):
        extractors = {
            name: make_extractor(
                items.kinds[name], extractor, inputs[name], cache=plan.cache, seed=plan.seed
            )
            for name, extractor in plan.extracted.items()
        }
    rows: dict[str, NDArray[Any]] = {}
    owners: dict[str, Ints] = {}
    skipped: list[str] = []
    for name in items.kinds:
        if name in items.vectors:
            vectors = items.vectors[name]
            extractors[name] = _vector_extractor(plan, name, vectors.shape[1])
            owners[name] = np.flatnonzero(~np.isnan(vectors).all(axis=1))
            rows[name] = vectors[owners[name]]
            continue
        with stages(f"extracting {name}") as on_step:
            extraction = extract(
                extractors[name],
                inputs[name],
                workers=plan.workers,
                cache=plan.cache / "rows",
                on_step=on_step,
            )
        if not len(extraction.rows):
            reason = next(iter(extraction.skipped), "every cell is empty, or its file is missing")
            raise DataError(f"there is no usable input of {name!r} ({reason})")
        counts = [len(per_item) for per_item in items.inputs[name]]
        owners[name] = np.repeat(np.arange(len(counts)), counts)[extraction.positions]
        rows[name] = extraction.rows
        skipped += extraction.skipped
    features = TableFeatures(np.arange(len(items.ids)), rows, owners, extractors, skipped)
    used = np.flatnonzero(np.any(list(features.present().values()), axis=0))
    moved = {name: np.searchsorted(used, numbers) for name, numbers in owners.items()}
    return replace(features, items=used, owners=moved)


def _vector_extractor(plan: TablePlan, modality: str, width: int) -> Extractor:
    """Return the extractor of vectors, or the one that made them, such as ``"text:minilm"``."""
    if modality not in plan.query_encoders:
        return Vector(width)
    name = plan.query_encoders[modality]
    kind, _, extractor_name = name.partition(":")
    try:
        extractor = make_extractor(kind, extractor_name, [], cache=plan.cache)
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

"""Views of things, and what is known about them: the input of learning, checked once."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crossbit._validation import known, modality_name, numbers
from crossbit.data.labels import check_labels, forget
from crossbit.data.pairs import Pairs, listed
from crossbit.errors import DataError

Views = Mapping[str, ArrayLike]
"""Modality → rows of features, shape (n, d), or (n, …) for a user's own network."""

LabelsArgument = ArrayLike | Mapping[str, ArrayLike]
"""One array for row-aligned views, or one a modality."""

_LARGEST = np.float32(
    1e18
)  # whose square float32 still holds; as a float32, for float16 cannot hold it
_BLOCK = 1 << 16  # rows looked at a time, so that a memory-mapped view is never copied whole


@dataclass(frozen=True)
class TrainingSet:
    """Everything a hasher may learn from, in one checked form.

    Attributes:
        views: Modality → array of rows. A row that is all NaN is absent from its view.
        present: Modality → which rows are there.
        labels: Modality → labels of its rows, or nothing when there are none: classes
            (n,) with −1 for unknown, or a boolean matrix (n, classes) with an all-false row for unknown.
        pairs: Explicit pairs of rows, within and across modalities.
        aligned: Whether row i of every view is the same thing.
        rows: Whether learning is asked to use that alignment as supervision.
    """

    views: dict[str, NDArray[Any]]
    present: dict[str, NDArray[np.bool_]]
    labels: dict[str, NDArray[Any]]
    pairs: tuple[Pairs, ...]
    aligned: bool
    rows: bool

    @property
    def modalities(self) -> list[str]:
        """The names of the views, in the order given."""
        return list(self.views)

    def together(self, left: str, right: str) -> NDArray[np.int64]:
        """Row numbers at which both views of an aligned set are present."""
        return np.flatnonzero(self.present[left] & self.present[right])

    def labels_present(self) -> dict[str, NDArray[Any]]:
        """The labels, unknown where a row is absent from its view: what `pairs_from_labels` may draw from."""
        return {name: forget(labels, ~self.present[name]) for name, labels in self.labels.items()}

    def memberships(self) -> dict[str, NDArray[np.bool_]]:
        """Which classes each row of each modality has, boolean (n, classes); none where it is unknown or absent.

        The columns are the classes that occur in any modality, in the order of their numbers.

        Raises:
            DataError: A modality has no labels.
        """
        if without := [name for name in self.views if name not in self.labels]:
            raise DataError(f"every modality needs labels here, and {without} have none")
        labels = self.labels_present()
        if next(iter(labels.values())).ndim == 2:
            return labels
        classes = np.unique(np.concatenate(list(labels.values())))
        return {name: some[:, None] == classes[classes >= 0] for name, some in labels.items()}


def training_set(
    views: Views,
    *,
    labels: LabelsArgument | None = None,
    pairs: Pairs | Sequence[Pairs] | None = None,
    rows: bool | None = None,
) -> TrainingSet:
    """Check views and their supervision, and say with a `DataError` what cannot be used.

    Args:
        views: Modality → rows of features.
        labels: One array when the views are row-aligned, or modality → array.
        pairs: Similar and dissimilar pairs of row numbers.
        rows: Row i of every view is the same thing. By default this is so when neither
            labels nor pairs say otherwise.
    """
    arrays = _check_views(views)
    present = {name: present_rows(name, array) for name, array in arrays.items()}
    given = listed(pairs)
    for some in given:
        _check_pairs(some, arrays, present)
    learn_rows = (labels is None and not given) if rows is None else rows
    aligned = learn_rows or (labels is not None and not isinstance(labels, Mapping))
    if aligned:
        _check_aligned(arrays)
    by_modality = _labels_by_modality(labels, arrays)
    return TrainingSet(arrays, present, by_modality, given, aligned, learn_rows)


def _check_views(views: Views) -> dict[str, NDArray[Any]]:
    given: object = views  # callers without a type checker pass arrays and lists
    if not isinstance(given, Mapping) or not given:
        raise DataError(
            f"views map modalities to arrays, such as {{'image': X, 'text': Y}}; got {type(views).__name__}"
        )
    arrays = {
        modality_name(name): numbers(value, f"view {name!r}") for name, value in views.items()
    }
    for name, array in arrays.items():
        if 0 in array.shape:
            raise DataError(
                f"view {name!r}: there is nothing to learn from an array of shape {array.shape}"
            )
    return arrays


def present_rows(name: str, array: NDArray[Any]) -> NDArray[np.bool_]:
    """Which rows of a view are there; a partly missing or infinite row is a `DataError`."""
    present = np.ones(len(array), np.bool_)
    for rows in _blocks(len(array)):
        present[rows] = present_in_block(name, np.asarray(array[rows]), rows.start)
    if not present.any():
        raise DataError(f"view {name!r}: every row is absent (all NaN)")
    return present


def present_in_block(name: str, block: NDArray[Any], first: int) -> NDArray[np.bool_]:
    """Which rows of a stretch that begins at row ``first`` are there; the same check, a block at a time."""
    if block.dtype.kind != "f":
        return np.ones(len(block), np.bool_)
    flat = block.reshape(len(block), math.prod(block.shape[1:]))
    present: NDArray[np.bool_] = ~np.isnan(flat).all(axis=1)
    bad = present & ~(np.abs(flat) <= _LARGEST).all(axis=1)
    if bad.any():
        raise DataError(
            f"view {name!r}: row {first + int(bad.argmax())} contains NaN or infinity beside numbers,"
            f" or a number beyond ±{_LARGEST:.0e}; a row that is absent is NaN in every column"
        )
    return present


def count_absent(array: NDArray[Any]) -> int:
    """How many rows of a view are all NaN."""
    if array.dtype.kind != "f" or 0 in array.shape:
        return 0
    count = 0
    for rows in _blocks(len(array)):
        block = np.asarray(array[rows]).reshape(rows.stop - rows.start, -1)
        suspects = block[np.isnan(block[:, 0])]
        count += int(np.isnan(suspects).all(axis=1).sum())
    return count


def _blocks(n: int) -> Iterator[slice]:
    for start in range(0, n, _BLOCK):
        yield slice(start, min(start + _BLOCK, n))


def _check_pairs(
    pairs: Pairs, arrays: Mapping[str, NDArray[Any]], present: Mapping[str, NDArray[np.bool_]]
) -> None:
    for column, name in enumerate((pairs.left, pairs.right)):
        rows = pairs.index[:, column]
        known(name, arrays)
        if len(rows) and rows.max() >= len(arrays[name]):
            raise DataError(
                f"pairs {pairs.key!r}: row {rows.max()} of {name!r} is out of range,"
                f" the view has {len(arrays[name])} rows"
            )
        absent = ~present[name][rows]
        if absent.any():
            raise DataError(
                f"pairs {pairs.key!r}: row {rows[absent.argmax()]} of {name!r} is absent (all NaN)"
            )


def _check_aligned(arrays: Mapping[str, NDArray[Any]]) -> None:
    sizes = {name: len(array) for name, array in arrays.items()}
    if len(set(sizes.values())) > 1:
        raise DataError(
            f"rows that belong together need views of one length, got {sizes};"
            " for unpaired views pass labels as {modality: array}, or pairs"
        )


def _labels_by_modality(
    labels: LabelsArgument | None, arrays: Mapping[str, NDArray[Any]]
) -> dict[str, NDArray[Any]]:
    if labels is None:
        return {}
    given = labels if isinstance(labels, Mapping) else dict.fromkeys(arrays, labels)
    for name in given:
        known(name, arrays)
    checked = {
        name: check_labels(value, len(arrays[name]), f"labels of {name!r}")
        for name, value in given.items()
    }
    if len({labels.shape[1:] for labels in checked.values()}) > 1:
        shapes = {name: labels.shape for name, labels in checked.items()}
        raise DataError(
            f"labels of all modalities name the same classes in one form, got shapes {shapes}"
        )
    return checked

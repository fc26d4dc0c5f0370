"""Training set: views and their supervision, validated once before a hasher is fit."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crossbit._validation import check_known, check_modality, check_rows, present_rows
from crossbit.data.labels import LabelsArgument, check_labels, number_words
from crossbit.data.neighbors import (
    Neighbors,
    NeighborsArgument,
    find_neighbors,
    metrics_by_modality,
)
from crossbit.data.pairs import Pairs, pairs_from_labels
from crossbit.errors import DataError, RowError

Views = Mapping[str, ArrayLike]
"""Modality → rows of features, shape (n, d), or (n, …) for a custom network."""

# Its square still fits float32. Itself a float32, because float16 cannot represent it.
_LARGEST = np.float32(1e18)
_BLOCK = 1 << 16  # rows per block, so that a memory-mapped view is never copied whole
_Ints = NDArray[np.int64]


@dataclass(frozen=True)
class TrainingSet:
    """Validated input of a hasher.

    Attributes:
        views: Modality → array of rows. A row that is all NaN is absent from its view.
        present: Modality → boolean mask of the rows that are present.
        labels: Modality → labels of its rows, empty without labels: classes (n,) with −1 for
            unknown, or a boolean matrix (n, classes) where an all-false row is unknown.
        pairs: Explicit pairs of rows, within and across modalities.
        aligned: Whether row i of every view is the same item.
        aligned_supervision: Whether the hasher should learn from that alignment.
        neighbors: Modality → nearest and far rows of its anchors, empty without neighbors.
        posteriors: Modality → class posteriors of its rows, shape (n, classes), each by classifiers
            that did not see the row; empty unless the views were made from them.
    """

    views: dict[str, NDArray[Any]]
    present: dict[str, NDArray[np.bool_]]
    labels: dict[str, NDArray[Any]]
    pairs: tuple[Pairs, ...]
    aligned: bool
    aligned_supervision: bool
    neighbors: dict[str, Neighbors] = field(default_factory=dict)
    posteriors: dict[str, NDArray[np.float32]] = field(default_factory=dict)

    @property
    def modalities(self) -> list[str]:
        """Names of the views, in the order given."""
        return list(self.views)

    @property
    def n_values(self) -> int:
        """Number of values of all views."""
        return sum(view.size for view in self.views.values())

    def present_rows(self, name: str) -> NDArray[np.float64]:
        """Return the rows of a view that are present, in double precision."""
        return np.asarray(self.views[name][self.present[name]], np.float64)

    def paired_rows(self, left: str, right: str) -> _Ints:
        """Return the row numbers at which both views of an aligned set are present."""
        return np.flatnonzero(self.present[left] & self.present[right])

    def take(self, rows: Mapping[str, _Ints]) -> "TrainingSet":
        """Return some rows of every view, and the pairs between them; neighbors are left out.

        Args:
            rows: Modality → row numbers in increasing order; the same for all if the set is
                aligned.
        """
        return replace(
            self,
            views={name: view[rows[name]] for name, view in self.views.items()},
            present={name: mask[rows[name]] for name, mask in self.present.items()},
            labels={name: labels[rows[name]] for name, labels in self.labels.items()},
            pairs=tuple(pairs.take(rows) for pairs in self.pairs),
            neighbors={},
            posteriors={name: P[rows[name]] for name, P in self.posteriors.items()},
        )

    def labels_present(self) -> dict[str, NDArray[Any]]:
        """Return the labels, set to unknown where the row is absent from its view."""
        known = dict(self.labels)
        for name, labels in self.labels.items():
            if not self.present[name].all():
                known[name] = labels.copy()
                known[name][~self.present[name]] = False if labels.ndim == 2 else -1
        return known

    def one_hot(self) -> dict[str, NDArray[np.bool_]]:
        """Return the classes of each row per modality, boolean (n, classes).

        Rows that are unknown or absent are all false. Columns are the classes that occur in any
        modality, in the order of the class numbers.

        Raises:
            DataError: A modality has no labels.
        """
        if missing := [name for name in self.views if name not in self.labels]:
            raise DataError(f"every modality needs labels, {missing} have none")
        labels = self.labels_present()
        if next(iter(labels.values())).ndim == 2:
            return labels
        classes = np.unique(np.concatenate(list(labels.values())))
        return {name: array[:, None] == classes[classes >= 0] for name, array in labels.items()}

    def cross_pairs(
        self, left: str, right: str, *, n_similar: int, n_dissimilar: int, seed: int
    ) -> Pairs:
        """Return similar and dissimilar pairs across two modalities from the best supervision.

        1. Explicit pairs across the two modalities, all of them. If none is dissimilar, random
           other pairs serve as dissimilar ones.
        2. Otherwise pairs drawn from the labels, spread over the classes; all that exist if there
           are fewer than requested.
        3. Otherwise aligned rows are similar, and random other pairs dissimilar.

        Args:
            left: Modality of the first row of each pair.
            right: Modality of the second row, different from ``left``.
            n_similar: Maximum number of similar pairs to draw; explicit pairs are all used.
            n_dissimilar: Maximum number of dissimilar pairs to draw.
            seed: The same seed gives the same pairs.

        Raises:
            DataError: Nothing links the two modalities, or one kind of pairs is missing.

        Example:
            >>> views = {"image": np.ones((5, 3)), "text": np.ones((5, 2))}
            >>> data = training_set(views, labels=[0, 0, 1, 1, 1])
            >>> data.cross_pairs("image", "text", n_similar=100, n_dissimilar=6, seed=0)
            Pairs(image-text: 13 similar, 6 dissimilar)
        """
        for count in (n_similar, n_dissimilar):
            if count < 1:
                raise DataError(
                    "training needs at least one similar and one dissimilar pair,"
                    f" got a number of {count}"
                )
        rng = np.random.default_rng(seed)
        explicit = self._explicit_pairs(left, right)
        if len(explicit) and not explicit.similar.all():
            pairs = explicit
        elif len(explicit):
            pairs = _join(explicit, self._other_pairs(explicit, n_dissimilar, rng))
        elif left in self.labels and right in self.labels:
            label_seed = int(rng.integers(1 << 62))
            pairs = self._label_pairs(left, right, n_similar, n_dissimilar, label_seed)
        elif self.aligned:
            pairs = self._aligned_pairs(left, right, n_similar, n_dissimilar, rng)
        else:
            raise DataError(
                f"nothing links {left!r} to {right!r}; pass pairs {left}-{right}, labels of both,"
                " or aligned views"
            )
        if pairs.similar.all() or not pairs.similar.any():
            missing = "dissimilar" if len(pairs) and pairs.similar.all() else "similar"
            raise DataError(
                f"there are no {missing} pairs of {left!r} and {right!r}; training needs both kinds"
            )
        return pairs

    def _explicit_pairs(self, left: str, right: str) -> Pairs:
        """Explicit pairs of the two modalities, given in either order."""
        matching = [pairs for pairs in self.pairs if {pairs.left, pairs.right} == {left, right}]
        index = [pairs.index if pairs.left == left else pairs.index[:, ::-1] for pairs in matching]
        similar = [pairs.similar for pairs in matching]
        return Pairs(
            left,
            right,
            np.concatenate([np.empty((0, 2), np.int64), *index]),
            np.concatenate([np.empty(0, np.bool_), *similar]),
        )

    def _label_pairs(
        self, left: str, right: str, n_similar: int, n_dissimilar: int, seed: int
    ) -> Pairs:
        drawn = pairs_from_labels(
            self.labels_present(),
            left,
            right,
            n_similar=n_similar,
            n_dissimilar=n_dissimilar,
            seed=seed,
            duplicates=True,
        )
        # A pair occurs twice only if fewer exist than requested: then all of them are there.
        keys = drawn.index @ np.array([len(self.views[right]), 1])
        first = np.sort(np.unique(keys, return_index=True)[1])
        return Pairs(left, right, drawn.index[first], drawn.similar[first])

    def _aligned_pairs(
        self, left: str, right: str, n_similar: int, n_dissimilar: int, rng: np.random.Generator
    ) -> Pairs:
        rows = self.paired_rows(left, right)
        similar = Pairs(left, right, np.stack([rows, rows], axis=1), np.ones(len(rows), np.bool_))
        chosen = np.sort(rng.permutation(len(rows))[:n_similar])
        others = self._other_pairs(similar, n_dissimilar, rng)
        return _join(Pairs(left, right, similar.index[chosen], similar.similar[chosen]), others)

    def _other_pairs(self, similar: Pairs, n: int, rng: np.random.Generator) -> _Ints:
        """At most ``n`` distinct random pairs of present rows that are not among ``similar``."""
        rows = {name: np.flatnonzero(self.present[name]) for name in (similar.left, similar.right)}
        excluded = similar.take(rows).index @ np.array([len(rows[similar.right]), 1])
        total = len(rows[similar.left]) * len(rows[similar.right])
        # Draw as many more as may turn out to be similar.
        keys = rng.choice(total, min(total, n + len(excluded)), replace=False)
        keys = keys[~np.isin(keys, excluded)][:n]
        left, right = np.divmod(keys, len(rows[similar.right]))
        return np.stack([rows[similar.left][left], rows[similar.right][right]], axis=1)


def _join(similar: Pairs, dissimilar: _Ints) -> Pairs:
    index = np.concatenate([similar.index, dissimilar])
    return Pairs(similar.left, similar.right, index, np.arange(len(index)) < len(similar))


def training_set(
    views: Views,
    *,
    labels: LabelsArgument | None = None,
    pairs: Pairs | Sequence[Pairs] | None = None,
    aligned: bool | None = None,
    neighbors: NeighborsArgument | None = None,
) -> TrainingSet:
    """Validate views and their supervision.

    Args:
        views: Modality → rows of features.
        labels: One array for aligned views, or modality → array.
        pairs: Similar and dissimilar pairs of row numbers.
        aligned: Row i of every view is the same item. By default true if neither labels nor pairs
            are given.
        neighbors: Metric whose nearest rows are similar, for all modalities or by modality.

    Raises:
        DataError: A view, label or pair cannot be used; the message says which and why.
    """
    arrays = _check_views(views)
    present = {name: check_view(name, array) for name, array in arrays.items()}
    if empty := [name for name, mask in present.items() if not mask.any()]:
        raise DataError(f"view {empty[0]!r}: every row is absent (all NaN)")
    explicit = Pairs.as_tuple(pairs)
    for each in explicit:
        _check_pairs(each, arrays, present)
    aligned_supervision = (labels is None and not explicit) if aligned is None else aligned
    same_rows = aligned_supervision or (labels is not None and not isinstance(labels, Mapping))
    if same_rows:
        _check_lengths(arrays)
    by_modality = _labels_by_modality(labels, arrays)
    found = {
        name: find_neighbors(name, arrays[name], present[name], metric)
        for name, metric in metrics_by_modality(neighbors, arrays).items()
    }
    return TrainingSet(
        arrays, present, by_modality, explicit, same_rows, aligned_supervision, found
    )


def _check_views(views: Views) -> dict[str, NDArray[Any]]:
    value: object = views  # callers without a type checker pass arrays and lists
    if not isinstance(value, Mapping) or not value:
        raise DataError(
            "views must map modalities to arrays, such as {'image': X, 'text': Y};"
            f" got {type(views).__name__}"
        )
    arrays = {
        check_modality(name): check_rows(array, f"view {name!r}") for name, array in views.items()
    }
    for name, array in arrays.items():
        if 0 in array.shape:
            raise DataError(f"view {name!r}: an array of shape {array.shape} is empty")
    return arrays


def check_view(name: str, rows: NDArray[Any], *, first: int = 0) -> NDArray[np.bool_]:
    """Return which rows of a view are present; reject partly missing, infinite and huge rows.

    Args:
        name: Modality, for error messages.
        rows: The whole view, or a block of it.
        first: Row number of the block's first row, for error messages.
    """
    present = np.ones(len(rows), np.bool_)
    if rows.dtype.kind != "f":
        return present
    for start in range(0, len(rows), _BLOCK):
        block = np.asarray(rows[start : start + _BLOCK])
        block_present = present_rows(block)
        values = np.abs(block.reshape(len(block), math.prod(block.shape[1:])))
        if (bad := block_present & ~(values <= _LARGEST).all(axis=1)).any():
            raise RowError(
                name,
                first + start + int(bad.argmax()),
                f"contains NaN or infinity beside numbers, or a number beyond ±{_LARGEST:.0e};"
                " remove or impute it; an absent row is NaN in every column",
            )
        present[start : start + _BLOCK] = block_present
    return present


def _check_pairs(
    pairs: Pairs, arrays: Mapping[str, NDArray[Any]], present: Mapping[str, NDArray[np.bool_]]
) -> None:
    for column, name in enumerate((pairs.left, pairs.right)):
        rows = pairs.index[:, column]
        check_known(name, arrays)
        if len(rows) and rows.max() >= len(arrays[name]):
            raise DataError(
                f"pairs {pairs.key!r}: row {rows.max()} (counted from 0) of {name!r} is out of"
                f" range, the view has {len(arrays[name])} rows"
            )
        absent = ~present[name][rows]
        if absent.any():
            raise DataError(
                f"pairs {pairs.key!r}: row {rows[absent.argmax()]} (counted from 0) of {name!r}"
                " is absent (all NaN)"
            )


def _check_lengths(arrays: Mapping[str, NDArray[Any]]) -> None:
    sizes = {name: len(array) for name, array in arrays.items()}
    if len(set(sizes.values())) > 1:
        raise DataError(
            f"aligned views must have the same number of rows, got {sizes};"
            " for unpaired views pass labels as {modality: array}, or pairs"
        )


def _labels_by_modality(
    labels: LabelsArgument | None, arrays: Mapping[str, NDArray[Any]]
) -> dict[str, NDArray[Any]]:
    """Return the labels of each modality; words are numbered."""
    if labels is None:
        return {}
    by_modality = dict(labels) if isinstance(labels, Mapping) else dict.fromkeys(arrays, labels)
    for name in by_modality:
        check_known(name, arrays)
    _, numbered = number_words(*by_modality.values())
    by_modality = dict(zip(by_modality, numbered, strict=True))
    checked = {
        name: check_labels(value, len(arrays[name]), f"labels of {name!r}")
        for name, value in by_modality.items()
    }
    if len({array.shape[1:] for array in checked.values()}) > 1:
        shapes = {name: array.shape for name, array in checked.items()}
        raise DataError(
            f"labels of all modalities must use the same form and classes, got shapes {shapes}"
        )
    return checked

"""A data set: views of items with labels, pairs, splits and payload, in memory or on disk."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crossbit._frames import columns_of, to_frame
from crossbit._validation import (
    check_array,
    check_known,
    check_modality,
    check_rows,
    present_rows,
)
from crossbit.data import storage
from crossbit.data.labels import (
    check_labels,
    class_names,
    class_sizes,
    describe_labels,
    number_words,
)
from crossbit.data.pairs import Pairs
from crossbit.errors import DataError, FormatError

Labels = NDArray[Any] | Mapping[str, NDArray[Any]]
"""Labels of aligned views, or ``{modality: labels}``."""

Rows = NDArray[np.int64] | Mapping[str, NDArray[np.int64]]
"""Row numbers of aligned views, or ``{modality: row numbers}``."""

Payload = Sequence[Mapping[str, Any]] | Mapping[str, Sequence[Mapping[str, Any]]]
"""One JSON object per row of aligned views, or ``{modality: objects}``."""

_RESERVED = {"labels", "pairs", "splits", "payload", "dataset"}  # file names in the folder


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Dataset:
    """Views of items with their labels or pairs, their splits, payload and provenance.

    Views are *aligned* when row i of each view is the same item. Views of different lengths, or
    with labels per modality, are *unpaired*: then labels, payload and splits are given per
    modality.

    Args:
        views: Modality → rows of features, shape (n, d) or (n, …). A row that is all NaN is absent.
        labels: Classes (n,) with −1 for unknown, words, or zeros and ones (n, classes); or
            ``{modality: labels}``.
        pairs: Similar and dissimilar pairs of rows.
        splits: Split name → its row numbers, or a boolean mask of all rows; or
            ``{modality: row numbers}``.
        payload: One JSON object per row: captions, titles, addresses; or ``{modality: objects}``.
        name: Name of the data set.
        source: Citation or address of the source.
        license: License or terms of use.
        classes: Class names, in the order of the class numbers.

    Example:
        >>> X, Y = np.zeros((4, 3)), np.ones((4, 2))
        >>> splits = {"train": [0, 2], "test": [1, 3]}
        >>> data = Dataset(views={"image": X, "text": Y}, labels=[0, 0, 1, 1], splits=splits)
        >>> data
        Dataset(4 rows; image 3, text 2; 2 classes; train 2, test 2)
        >>> data.part("test").labels
        array([0, 1])
    """

    views: Mapping[str, NDArray[Any]]
    labels: Labels | None = None
    pairs: Sequence[Pairs] = ()
    splits: Mapping[str, Rows] = field(default_factory=dict)
    payload: Payload | None = None
    name: str = ""
    source: str = ""
    license: str = ""
    classes: Sequence[str] = ()

    def __post_init__(self) -> None:
        """Validate every field and store it in its canonical form."""
        views = {
            _check_view_name(name): check_rows(value, f"view {name!r}")
            for name, value in self.views.items()
        }
        if not views or len({name.lower() for name in views}) < len(views):
            raise DataError(
                "a data set needs at least one view, and view names must differ in more than case;"
                f" got {sorted(views)}"
            )
        self._set("views", views)
        self._number_words()
        self._set("labels", self._check(self.labels, "labels", check_labels))
        self._set("pairs", Pairs.as_tuple(self.pairs))
        self._set(
            "splits",
            {name: self._check_rows(rows, f"split {name!r}") for name, rows in self.splits.items()},
        )
        self._set("payload", self._check(self.payload, "payload", _check_payload))
        self._set("classes", tuple(map(str, self.classes)))
        self._check_classes()
        for pairs in self.pairs:
            for modality, rows in zip((pairs.left, pairs.right), pairs.index.T, strict=True):
                n = len(views[check_known(modality, views)])
                _check_range(rows, n, f"pairs {pairs.key!r} of {modality!r}")

    def _number_words(self) -> None:
        """Replace labels that are words by class numbers, and keep the words as class names."""
        several = isinstance(self.labels, Mapping)
        given = list(self.labels.values()) if isinstance(self.labels, Mapping) else [self.labels]
        names, numbered = number_words(*given)
        if names and self.labels is not None:
            if self.classes and list(self.classes) != names:
                raise DataError(
                    f"classes: the labels are the words {names[:5]}, so leave classes out"
                )
            self._set(
                "labels", dict(zip(self.labels, numbered, strict=True)) if several else numbered[0]
            )
            self._set("classes", names)

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def _check(self, value: Any, what: str, check: Any) -> Any:  # noqa: ANN401
        """Validate a value that belongs to the aligned views, or one value per modality."""
        if value is None:
            return None
        if isinstance(value, Mapping):
            return {
                m: check(part, len(self.views[check_known(m, self.views)]), f"{what} of {m!r}")
                for m, part in value.items()
            }
        if not self.aligned:
            raise DataError(
                f"{what}: the views are unpaired, pass {{modality: …}} for {self.modalities}"
            )
        return check(value, len(next(iter(self.views.values()))), what)

    def _check_rows(self, rows: Rows, what: str) -> Rows:
        if self.aligned and isinstance(rows, Mapping):
            raise DataError(f"{what}: the views are aligned, pass one list of row numbers")
        if not self.aligned and not isinstance(rows, Mapping):
            raise DataError(
                f"{what}: the views are unpaired, pass {{modality: row numbers}}"
                f" for {self.modalities}"
            )
        checked: Rows = self._check(rows, what, _check_row_numbers)
        return checked

    def _check_classes(self) -> None:
        largest = max(
            (_largest_class(labels) for labels in self.labels_by_modality().values()), default=-1
        )
        if self.classes and largest >= len(self.classes):
            raise DataError(
                f"the largest class is {largest}, but classes names only {len(self.classes)} of"
                f" them (0 to {len(self.classes) - 1}); add the missing names"
            )

    @property
    def aligned(self) -> bool:
        """Whether row i of every view is the same item."""
        return (
            not isinstance(self.labels, Mapping)
            and len({len(view) for view in self.views.values()}) == 1
        )

    @property
    def modalities(self) -> list[str]:
        """Names of the views."""
        return list(self.views)

    @property
    def n_classes(self) -> int:
        """Number of different classes in the labels, 0 without labels."""
        labels = list(self.labels_by_modality().values())
        if any(array.ndim == 2 for array in labels):
            return max(int(array.shape[1]) for array in labels if array.ndim == 2)
        return len(class_sizes(np.concatenate(labels))) if labels else 0

    def labels_by_modality(self) -> dict[str, NDArray[Any]]:
        """Return modality → labels of its rows; empty without labels."""
        if self.labels is None:
            return {}
        return (
            dict(self.labels)
            if isinstance(self.labels, Mapping)
            else dict.fromkeys(self.views, self.labels)
        )

    def __len__(self) -> int:
        """Number of rows if aligned, else the sum over the views."""
        sizes = [len(view) for view in self.views.values()]
        return sizes[0] if self.aligned else sum(sizes)

    def take(self, rows: ArrayLike | Mapping[str, ArrayLike]) -> Self:
        """Return a subset of rows with its labels, payload and the pairs inside it, renumbered."""
        checked = self._check_rows(rows, "rows")  # type: ignore[arg-type]
        by_modality = (
            checked if isinstance(checked, Mapping) else dict.fromkeys(self.views, checked)
        )
        if missing := self.views.keys() - by_modality.keys():
            raise DataError(
                f"rows: no rows given for {sorted(missing)}; pass an empty list for an empty view"
            )
        return self._replace_validated(
            views={m: _take(view, by_modality[m]) for m, view in self.views.items()},
            labels=_take_each(self.labels, by_modality),
            pairs=tuple(pairs.take(by_modality) for pairs in self.pairs),
            payload=_take_each(self.payload, by_modality),
            splits={},
        )

    def _replace_validated(self, **changes: object) -> Self:
        """Copy with changed fields, without `__post_init__`: subsets of valid rows are valid."""
        copy = object.__new__(type(self))
        for each in fields(self):
            copy._set(each.name, changes.get(each.name, getattr(self, each.name)))
        return copy

    def part(self, split: str) -> Self:
        """Return the rows of a split, such as ``"train"``, as a data set."""
        return self.take(self.splits[check_known(split, self.splits, "split")])

    def fit_arguments(self, split: str | None = "train") -> dict[str, Any]:
        """Return the arguments of `Hasher.fit` for one split, or (``None``) for all rows.

        Example: ``hasher.fit(**data.fit_arguments("train"))``
        """
        part = self if split is None else self.part(split)
        return {"views": part.views, "labels": part.labels, "pairs": part.pairs or None}

    def save(self, path: str | PathLike[str]) -> None:
        """Write the data set to a folder atomically; an existing data set there is replaced."""
        storage.save(Path(path), self, self.views)

    @classmethod
    def load(cls, path: str | PathLike[str], *, verify: bool = True) -> Self:
        """Load a data set folder, its views memory-mapped.

        Args:
            path: Folder that `save` or ``crossbit data convert`` wrote.
            verify: Compare every file with its SHA-256, which reads it once. Sizes are always
                compared.

        Raises:
            DataError: There is no data set at this path.
            FormatError: A file is truncated, modified, missing, or of an unknown version.
        """
        parts = storage.load(Path(path), verify=verify)
        try:
            return cls(**parts)
        except DataError as error:
            raise FormatError(f"{path}: its files are inconsistent ({error})") from error

    def describe(self) -> dict[str, Any]:
        """Return sizes, labels, pairs, splits, source and license as plain JSON.

        For each view, ``absent`` is the number of rows that are all NaN, which reads the view once.
        For labels, ``counts`` is the number of rows per class, in the order of the class numbers.
        """
        return {
            "name": self.name,
            "rows": len(self),
            "aligned": self.aligned,
            "views": {
                m: {
                    "shape": list(view.shape),
                    "dtype": str(view.dtype),
                    "absent": int((~present_rows(view)).sum()),
                }
                for m, view in self.views.items()
            },
            "labels": {
                m: describe_labels(labels) for m, labels in self.labels_by_modality().items()
            },
            "classes": list(self.classes),
            "pairs": [
                {
                    "between": pairs.key,
                    "similar": int(pairs.similar.sum()),
                    "dissimilar": int((~pairs.similar).sum()),
                }
                for pairs in self.pairs
            ],
            "splits": {split: _size(rows) for split, rows in self.splits.items()},
            "payload": self.payload is not None,
            "source": self.source,
            "license": self.license,
        }

    def to_frame(self, library: str = "pandas") -> Any:  # noqa: ANN401 - a frame
        """Return one row per item: a column of lists per view, labels, splits, and the payload.

        `convert` reads the same columns from a parquet file.

        Args:
            library: ``"pandas"`` or ``"polars"``.
        """
        if not self.aligned:
            raise DataError("to_frame needs aligned views; convert the views one by one")
        columns: dict[str, Any] = {
            m: [
                row.tolist() if is_present else None
                for row, is_present in zip(view, present_rows(view), strict=True)
            ]
            for m, view in self.views.items()
        }
        if self.labels is not None:
            columns["label"] = class_names(np.asarray(self.labels), self.classes)
        for split, rows in self.splits.items():
            for row in np.asarray(rows).tolist():
                columns.setdefault("split", [None] * len(self))[row] = split
        payload: Any = self.payload or ()
        return to_frame(columns_of(payload) | columns, library)

    def __repr__(self) -> str:
        """Such as ``Dataset(wiki: 2866 rows; image 128, text 10; 10 classes; train 2173)``."""
        parts = [f"{self.name}: {len(self)} rows" if self.name else f"{len(self)} rows"]
        parts.append(
            ", ".join(f"{m} {'×'.join(map(str, view.shape[1:]))}" for m, view in self.views.items())
        )
        if self.labels is not None:
            parts.append(f"{self.n_classes} classes")
        parts += [repr(pairs)[6:-1] for pairs in self.pairs]
        if self.splits:
            parts.append(", ".join(f"{split} {_size(rows)}" for split, rows in self.splits.items()))
        return f"Dataset({'; '.join(parts)})"


def _check_view_name(name: object) -> str:
    if check_modality(name) in _RESERVED:
        raise DataError(f"{name!r} is the name of another file of a data set; rename the modality")
    return str(name)


def _check_range(rows: NDArray[Any], n: int, what: str) -> None:
    if len(rows) and not (rows.min() >= 0 and rows.max() < n):
        raise DataError(
            f"{what}: row numbers must be between 0 and {n - 1}, got {rows.min()} … {rows.max()}"
        )


def _check_row_numbers(rows: ArrayLike, n: int, what: str) -> NDArray[np.int64]:
    array = check_array(rows, what)
    if array.size == 0:
        return np.empty(0, np.int64)
    if array.dtype == np.bool_ and array.shape == (n,):
        return np.flatnonzero(array)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise DataError(
            f"{what}: expected row numbers of shape (rows,) or a mask of shape ({n},),"
            f" got {array.dtype} {array.shape}"
        )
    _check_range(array, n, what)
    if len(np.unique(array)) < len(array):
        raise DataError(f"{what}: a row number occurs more than once")
    return array.astype(np.int64)


def _check_payload(
    payload: Sequence[Mapping[str, Any]], n: int, what: str
) -> tuple[Mapping[str, Any], ...]:
    if len(payload) != n or not all(isinstance(value, Mapping) for value in payload):
        raise DataError(
            f"{what}: expected one JSON object for each of {n} rows, got {len(payload)} values"
        )
    return tuple(payload)


def _take(array: NDArray[Any], rows: NDArray[np.int64]) -> NDArray[Any]:
    """Select rows; a contiguous run stays a view of a memory-mapped file."""
    if len(rows) and rows[-1] - rows[0] == len(rows) - 1 and (np.diff(rows) == 1).all():
        return array[rows[0] : rows[-1] + 1]
    return array[rows]


def _take_each(value: Any, rows: Mapping[str, NDArray[np.int64]]) -> Any:  # noqa: ANN401
    """Select rows of labels or payload, of the aligned views or per modality."""
    if value is None:
        return None
    if isinstance(value, Mapping):
        return {m: _take_each(part, {m: rows[m]}) for m, part in value.items()}
    chosen = next(iter(rows.values()))
    if isinstance(value, np.ndarray):
        return _take(value, chosen)
    return tuple(value[row] for row in chosen)


def _largest_class(labels: NDArray[Any]) -> int:
    return labels.shape[1] - 1 if labels.ndim == 2 else int(labels.max(initial=-1))


def _size(rows: Rows) -> int:
    return sum(map(len, rows.values())) if isinstance(rows, Mapping) else len(rows)

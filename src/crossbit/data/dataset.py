"""A data set: views of things with what is known about them, in memory or in a folder."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crossbit._validation import known, modality_name, numbers, plain_array
from crossbit.data import storage
from crossbit.data.labels import check_labels, class_sizes, is_known
from crossbit.data.pairs import Pairs, listed
from crossbit.data.views import count_absent
from crossbit.errors import DataError, FormatError

Labels = NDArray[Any] | Mapping[str, NDArray[Any]]
"""Labels of aligned views, or of each modality by itself."""

Rows = NDArray[np.int64] | Mapping[str, NDArray[np.int64]]
"""Row numbers of aligned views, or of each modality by itself."""

Payload = Sequence[Mapping[str, Any]] | Mapping[str, Sequence[Mapping[str, Any]]]
"""One JSON object a row, of aligned views or of each modality by itself."""

_RESERVED = {"labels", "pairs", "splits", "payload", "dataset"}


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Dataset:
    """Views of things, their labels or pairs, the parts they are split into, and where they come from.

    Views are *aligned* when row i of each is the same thing. Views of different lengths, or with labels of their
    own, are *unpaired*: then labels, payload and the row numbers of splits are given per modality.

    Args:
        views: Modality → rows of features, shape (n, d) or (n, …). A row that is all NaN is absent.
        labels: Classes (n,) with −1 for unknown, or zeros and ones (n, classes); or ``{modality: labels}``.
        pairs: Similar and dissimilar pairs of rows.
        splits: Name of a part → its row numbers, or a boolean mask of all rows; or ``{modality: row numbers}``.
        payload: One JSON object a row: captions, titles, addresses; or ``{modality: objects}``.
        name: What the set is called.
        source: Where it comes from.
        license: Under which terms.
        classes: Names of the classes, in the order of their numbers.

    Example:
        >>> X, Y = np.zeros((4, 3)), np.ones((4, 2))
        >>> data = Dataset(views={"image": X, "text": Y}, labels=[0, 0, 1, 1], splits={"train": [0, 2], "test": [1, 3]})
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
        """Check every part once, and keep it in one form."""
        views = {
            _view_name(name): numbers(value, f"view {name!r}") for name, value in self.views.items()
        }
        if not views or len({name.lower() for name in views}) < len(views):
            raise DataError(
                f"a data set has views whose names differ in more than case, got {sorted(views)}"
            )
        self._set("views", views)
        self._set("labels", self._check_labels())
        self._set("pairs", listed(self.pairs))
        self._set(
            "splits",
            {part: self._check_rows(rows, f"split {part!r}") for part, rows in self.splits.items()},
        )
        self._set("payload", self._each(self.payload, "payload", _check_payload))
        self._set("classes", tuple(map(str, self.classes)))
        self._check_classes()
        for some in self.pairs:
            for modality, rows in zip((some.left, some.right), some.index.T, strict=True):
                _in_range(
                    rows, len(views[known(modality, views)]), f"pairs {some.key!r} of {modality!r}"
                )

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def _each(self, value: Any, what: str, check: Any) -> Any:  # noqa: ANN401 - labels, rows or payload alike
        """Check a value of the aligned views, or one of each modality by itself."""
        if value is None:
            return None
        if isinstance(value, Mapping):
            return {
                m: check(some, len(self.views[known(m, self.views)]), f"{what} of {m!r}")
                for m, some in value.items()
            }
        if not self.aligned:
            raise DataError(
                f"{what}: the views are unpaired, so give {{modality: …}}; modalities: {self.modalities}"
            )
        return check(value, len(next(iter(self.views.values()))), what)

    def _check_labels(self) -> Labels | None:
        checked: Labels | None = self._each(self.labels, "labels", check_labels)
        return checked

    def _check_rows(self, rows: Rows, what: str) -> Rows:
        if self.aligned == isinstance(rows, Mapping):
            form = (
                "row numbers"
                if self.aligned
                else f"{{modality: row numbers}} for {self.modalities}"
            )
            raise DataError(
                f"{what}: these views are {'aligned' if self.aligned else 'unpaired'}, so give {form}"
            )
        checked: Rows = self._each(rows, what, _check_rows)
        return checked

    def _check_classes(self) -> None:
        largest = max(
            (_largest_class(labels) for labels in self.labels_by_modality().values()), default=-1
        )
        if self.classes and largest >= len(self.classes):
            raise DataError(
                f"the labels go up to class {largest}, and the {len(self.classes)} names are those of classes"
                f" 0 to {len(self.classes) - 1}"
            )

    @property
    def aligned(self) -> bool:
        """Whether row i of every view is the same thing."""
        return (
            not isinstance(self.labels, Mapping)
            and len({len(view) for view in self.views.values()}) == 1
        )

    @property
    def modalities(self) -> list[str]:
        """The names of the views."""
        return list(self.views)

    @property
    def n_classes(self) -> int:
        """How many different classes the labels name, 0 when there are no labels."""
        labels = list(self.labels_by_modality().values())
        if any(some.ndim == 2 for some in labels):
            return max(int(some.shape[1]) for some in labels if some.ndim == 2)
        return len(class_sizes(np.concatenate(labels))) if labels else 0

    def labels_by_modality(self) -> dict[str, NDArray[Any]]:
        """Modality → labels of its rows; empty when there are none."""
        if self.labels is None:
            return {}
        return (
            dict(self.labels)
            if isinstance(self.labels, Mapping)
            else dict.fromkeys(self.views, self.labels)
        )

    def __len__(self) -> int:
        """How many things there are: rows when aligned, else the rows of all views together."""
        sizes = [len(view) for view in self.views.values()]
        return sizes[0] if self.aligned else sum(sizes)

    def take(self, rows: ArrayLike | Mapping[str, ArrayLike]) -> Self:
        """Some of the rows, with their labels and payloads, and the pairs that lie among them, renumbered."""
        chosen = self._check_rows(rows, "rows")  # type: ignore[arg-type]
        by_modality = chosen if isinstance(chosen, Mapping) else dict.fromkeys(self.views, chosen)
        if absent := self.views.keys() - by_modality.keys():
            raise DataError(
                f"rows: none are named for {sorted(absent)}; pass an empty list to leave a view empty"
            )
        return replace(
            self,
            views={m: _pick(view, by_modality[m]) for m, view in self.views.items()},
            labels=_pick_each(self.labels, by_modality),
            pairs=tuple(some.among(by_modality) for some in self.pairs),
            payload=_pick_each(self.payload, by_modality),
            splits={},
        )

    def part(self, split: str) -> Self:
        """The rows of a split, such as ``"train"``, as a data set of their own."""
        return self.take(self.splits[known(split, self.splits, "split")])

    def fit_arguments(self, split: str | None = "train") -> dict[str, Any]:
        """What `Hasher.fit` takes, of one part or (``None``) of all: ``hasher.fit(**data.fit_arguments("train"))``."""
        part = self if split is None else self.part(split)
        return {"views": part.views, "labels": part.labels, "pairs": part.pairs or None}

    def save(self, folder: str | PathLike[str]) -> None:
        """Write the data set to a folder, whole or not at all; only another data set gives way."""
        storage.write(
            Path(folder),
            views=self.views,
            labels=self.labels,
            pairs=self.pairs,
            splits=self.splits,
            payload=self.payload,
            about={
                "name": self.name,
                "source": self.source,
                "license": self.license,
                "classes": list(self.classes),
            },
        )

    @classmethod
    def open(cls, folder: str | PathLike[str], *, verify: bool = True) -> Self:
        """Open a folder, its views memory-mapped.

        Args:
            folder: Where `save` or ``crossbit data convert`` wrote it.
            verify: Compare every file with its SHA-256, which reads it once. Sizes are always compared.

        Raises:
            DataError: There is no data set there.
            FormatError: A file is truncated, altered, missing, or of a version we do not know.
        """
        parts = storage.read(Path(folder), verify=verify)
        try:
            return cls(**parts)
        except DataError as error:
            raise FormatError(f"{folder}: its files do not agree ({error})") from error

    def describe(self) -> dict[str, Any]:
        """The facts for a table, as plain JSON: sizes, labels, pairs, splits, source and license.

        Of each view, ``absent`` is how many of its rows are all NaN, which reads it once. Of labels, ``counts`` are
        the rows of each class that occurs, in the order of their numbers.
        """
        return {
            "name": self.name,
            "rows": len(self),
            "aligned": self.aligned,
            "views": {
                m: {
                    "shape": list(view.shape),
                    "dtype": str(view.dtype),
                    "absent": count_absent(view),
                }
                for m, view in self.views.items()
            },
            "labels": {
                m: _describe_labels(labels) for m, labels in self.labels_by_modality().items()
            },
            "classes": list(self.classes),
            "pairs": [
                {
                    "between": p.key,
                    "similar": int(p.similar.sum()),
                    "dissimilar": int((~p.similar).sum()),
                }
                for p in self.pairs
            ],
            "splits": {split: _size(rows) for split, rows in self.splits.items()},
            "payload": self.payload is not None,
            "source": self.source,
            "license": self.license,
        }

    def __repr__(self) -> str:
        """Such as ``Dataset(wiki: 2866 rows; image 128, text 10; 10 classes; train 2173, test 693)``."""
        parts = [f"{self.name}: {len(self)} rows" if self.name else f"{len(self)} rows"]
        parts.append(
            ", ".join(f"{m} {'×'.join(map(str, view.shape[1:]))}" for m, view in self.views.items())
        )
        if self.labels is not None:
            parts.append(f"{self.n_classes} classes")
        parts += [repr(some)[6:-1] for some in self.pairs]
        if self.splits:
            parts.append(", ".join(f"{split} {_size(rows)}" for split, rows in self.splits.items()))
        return f"Dataset({'; '.join(parts)})"


def _view_name(name: object) -> str:
    if modality_name(name) in _RESERVED:
        raise DataError(
            f"{name!r} names another file of a data set; call the modality something else"
        )
    return str(name)


def _in_range(rows: NDArray[Any], n: int, what: str) -> None:
    if len(rows) and not (rows.min() >= 0 and rows.max() < n):
        raise DataError(
            f"{what}: row numbers go from 0 to {n - 1}, got {rows.min()} … {rows.max()}"
        )


def _check_rows(rows: ArrayLike, n: int, what: str) -> NDArray[np.int64]:
    array = plain_array(rows, what)
    if array.size == 0:
        return np.empty(0, np.int64)
    if array.dtype == np.bool_ and array.shape == (n,):
        return np.flatnonzero(array)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise DataError(
            f"{what}: expected row numbers of shape (rows,), or a mask of shape ({n},), got {array.dtype} {array.shape}"
        )
    _in_range(array, n, what)
    if len(np.unique(array)) < len(array):
        raise DataError(f"{what}: a row is named more than once")
    return array.astype(np.int64)


def _check_payload(
    payload: Sequence[Mapping[str, Any]], n: int, what: str
) -> tuple[Mapping[str, Any], ...]:
    if len(payload) != n or not all(isinstance(some, Mapping) for some in payload):
        raise DataError(
            f"{what}: expected one JSON object for each of {n} rows, got {len(payload)} things"
        )
    return tuple(payload)


def _pick(array: NDArray[Any], rows: NDArray[np.int64]) -> NDArray[Any]:
    """Some rows; a contiguous run stays a window on a memory-mapped file."""
    if len(rows) and rows[-1] - rows[0] == len(rows) - 1 and (np.diff(rows) == 1).all():
        return array[rows[0] : rows[-1] + 1]
    return array[rows]


def _pick_each(value: Any, rows: Mapping[str, NDArray[np.int64]]) -> Any:  # noqa: ANN401 - labels or payload alike
    """Some rows of a value of aligned views, or of each modality by itself."""
    if value is None:
        return None
    if isinstance(value, Mapping):
        return {m: _pick_each(some, {m: rows[m]}) for m, some in value.items()}
    chosen = next(iter(rows.values()))
    return _pick(value, chosen) if isinstance(value, np.ndarray) else [value[row] for row in chosen]


def _largest_class(labels: NDArray[Any]) -> int:
    return labels.shape[1] - 1 if labels.ndim == 2 else int(labels.max(initial=-1))


def _describe_labels(labels: NDArray[Any]) -> dict[str, Any]:
    unknown = int((~is_known(labels)).sum())
    return {"several": labels.ndim == 2, "unknown": unknown, "counts": class_sizes(labels).tolist()}


def _size(rows: Rows) -> int:
    return sum(map(len, rows.values())) if isinstance(rows, Mapping) else len(rows)

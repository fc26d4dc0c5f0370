"""Codes of labels: what a model gives to rows whose classes are known."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crossbit.data.labels import RowLabels, check_labels, is_known, words_of
from crossbit.errors import DataError
from crossbit.model.layers import Layer, Rows


@dataclass(frozen=True, eq=False)
class LabelEncoder:
    """Layers from the classes of a row to the bits that all modalities share.

    Args:
        layers: From class membership, zeros and ones (n, classes), to one column per bit.
        classes: The class number of each membership column, in increasing order.
        n_columns: Columns of a label matrix where rows may have several classes; None where every
            row has one class.
        names: The word of each class number, if the model was trained on words.
    """

    layers: Sequence[Layer]
    classes: NDArray[np.int64]
    n_columns: int | None = None
    names: Sequence[str] = ()

    def membership(self, labels: RowLabels, n: int) -> tuple[NDArray[np.int64], Rows]:
        """Return the rows whose classes are known, and their class membership.

        Args:
            labels: In the form of the training labels: classes, −1 for unknown, or words, None for
                unknown; a matrix of zeros and ones, or lists of words.
            n: Expected number of rows.

        Raises:
            DataError: The labels have another form, or name a class that was not in training.
        """
        array = check_labels(self._numbered(labels), n, "labels")
        if (array.ndim == 2) != (self.n_columns is not None) or (
            array.ndim == 2 and array.shape[1] != self.n_columns
        ):
            expected = (
                "one class per row, shape (n,)"
                if self.n_columns is None
                else f"zeros and ones of shape (n, {self.n_columns})"
            )
            raise DataError(f"labels: the model was trained on {expected}; got shape {array.shape}")
        occurring = np.flatnonzero(array.any(axis=0)) if array.ndim == 2 else np.unique(array)
        unseen = np.setdiff1d(occurring[occurring >= 0], self.classes)
        if len(unseen):
            raise DataError(
                f"labels: the class {self._name(int(unseen[0]))} was not in the training labels;"
                " mark such rows as unknown, then their codes are made from their features"
            )
        rows = np.flatnonzero(is_known(array))
        known = array[rows]
        member = known[:, self.classes] if known.ndim == 2 else known[:, None] == self.classes
        return rows, member.astype(np.float32)

    def _numbered(self, labels: RowLabels) -> ArrayLike:
        """Replace words by the class numbers of the training set."""
        words = words_of(labels)
        if words is None or not self.names:
            return cast("ArrayLike", labels)  # words are refused later
        number = {name: k for k, name in enumerate(self.names)}
        flat = [word for value in words for word in (value if isinstance(value, list) else [value])]
        unseen = [word for word in flat if word is not None and word not in number]
        if unseen:
            raise DataError(
                f"labels: the class {unseen[0]!r} was not in the training labels;"
                " mark such rows as unknown, then their codes are made from their features"
            )
        if not any(isinstance(value, list) for value in words):
            return [-1 if word is None else number[word] for word in words]
        matrix = np.zeros((len(words), len(self.names)), np.bool_)
        for row, value in enumerate(words):
            matrix[row, [number[word] for word in value]] = True
        return matrix

    def _name(self, number: int) -> str:
        return repr(self.names[number]) if number < len(self.names) else str(number)

    def facts(self) -> dict[str, Any]:
        """Return all but the layers as plain values, for JSON and for the fingerprint."""
        return {
            "classes": self.classes.tolist(),
            "n_columns": self.n_columns,
            "names": list(self.names),
        }

    def __eq__(self, other: object) -> bool:
        """Whether both have the same layers and classes."""
        if not isinstance(other, LabelEncoder):
            return NotImplemented
        return list(self.layers) == list(other.layers) and self.facts() == other.facts()

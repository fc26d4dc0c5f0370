"""Items: the rows of all modalities joined by item, with their labels and features."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from crossbit.data.training_set import TrainingSet
from crossbit.errors import DataError
from crossbit.linalg.pca import Matrix
from crossbit.model.hashmodel import HashModel
from crossbit.model.layers import Affine, Layer

Ints: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class ItemView:
    """What one modality knows of the items.

    Args:
        rows: The item of each row that is present.
        features: The features of those rows, centered, shape (rows, d).
        mean: What was subtracted to center them.
    """

    rows: Ints
    features: Matrix
    mean: Matrix

    def at_items(self, values: Matrix, n: int) -> Matrix:
        """Values of the rows at their items; items without this modality get zeros."""
        placed = np.zeros((n, values.shape[1]))
        placed[self.rows] = values
        return placed

    def ridge(self, targets: Matrix, decay: float) -> Matrix:
        """Weights that predict the targets of all items from the features, by ridge regression."""
        return factor(self.features, targets[self.rows], decay)

    def encoder(self, weights: Matrix) -> list[Layer]:
        """Layers from rows to centered features times ``weights``."""
        return [Affine(weights, -self.mean @ weights)]


@dataclass(frozen=True, eq=False)
class Items:
    """Training data as items, each of them present in one modality or more.

    Rows of aligned views are one item. Rows of unaligned views are one item each.

    Args:
        labels: Class membership, zeros and ones, shape (n, classes); no columns without labels.
        views: Modality → its features of the items.
    """

    labels: Matrix
    views: dict[str, ItemView]

    def __len__(self) -> int:
        return len(self.labels)

    @classmethod
    def labeled(cls, data: TrainingSet) -> "Items":
        """Return the rows whose labels are known as items."""
        one_hot = data.one_hot()
        masks = {name: np.asarray(member.any(axis=1)) for name, member in one_hot.items()}
        if data.aligned:
            membership = np.logical_or.reduce(list(one_hot.values()))
            known = membership.any(axis=1)
            number = np.cumsum(known) - 1
            rows = {name: number[mask] for name, mask in masks.items()}
            labels = membership[known].astype(np.float64)
        else:
            present = [member[masks[name]] for name, member in one_hot.items()]
            ends = np.cumsum([0, *(len(member) for member in present)])
            rows = {name: np.arange(ends[i], ends[i + 1]) for i, name in enumerate(one_hot)}
            labels = np.concatenate(present).astype(np.float64)
        if not len(labels):
            raise DataError("no row has a known label; at least two classes are needed")
        return cls(labels, _centered(data, rows, masks))

    @classmethod
    def aligned(cls, data: TrainingSet) -> "Items":
        """Return the rows of aligned views as items."""
        rows = {name: np.flatnonzero(present) for name, present in data.present.items()}
        n = len(next(iter(data.views.values())))
        return cls(np.zeros((n, 0)), _centered(data, rows, data.present))

    def patterns(self) -> list[tuple[list[str], Ints]]:
        """Return the combinations of modalities that occur, each with the items that have it."""
        present = np.zeros((len(self), len(self.views)), np.bool_)
        for column, view in enumerate(self.views.values()):
            present[view.rows, column] = True
        combinations, which = np.unique(present, axis=0, return_inverse=True)
        names = np.array(list(self.views))
        return [
            (names[has].tolist(), np.flatnonzero(which.ravel() == number))
            for number, has in enumerate(combinations)
        ]

    def model(self, weights: Mapping[str, Matrix], n_bits: int) -> HashModel:
        """Return the model whose bits are the signs of features times ``weights``."""
        encoders = {name: view.encoder(weights[name]) for name, view in self.views.items()}
        return HashModel(encoders, n_bits)


def _centered(
    data: TrainingSet, rows: Mapping[str, Ints], masks: Mapping[str, NDArray[np.bool_]]
) -> dict[str, ItemView]:
    views = {}
    for name, view in data.views.items():
        F = np.asarray(view[masks[name]], np.float64)
        mean = F.mean(axis=0)
        views[name] = ItemView(rows[name], F - mean, mean)
    return views


def factor(A: Matrix, B: Matrix, decay: float) -> Matrix:
    """The matrix X that minimizes ‖B − A X‖² + decay ‖X‖²."""
    return np.asarray(np.linalg.solve(A.T @ A + decay * np.eye(A.shape[1]), A.T @ B))


def signs(values: Matrix) -> Matrix:
    """+1 where a value is at least 0, −1 elsewhere."""
    return np.where(values >= 0, 1.0, -1.0)


def unit_rows(labels: Matrix) -> Matrix:
    """Rows scaled to unit length; products of two rows are then the cosines of their labels."""
    return np.asarray(labels / np.linalg.norm(labels, axis=1, keepdims=True))

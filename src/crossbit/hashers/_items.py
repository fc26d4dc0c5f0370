"""Items: the rows of all modalities joined by item, with their labels and features."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crossbit.data.training_set import TrainingSet
from crossbit.errors import DataError
from crossbit.linalg import Ints, Matrix
from crossbit.model.hashmodel import HashModel
from crossbit.model.layers import Affine


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
        known = {name: np.asarray(member.any(axis=1)) for name, member in one_hot.items()}
        if data.aligned:
            labels = np.logical_or.reduce(list(one_hot.values()))
            first = dict.fromkeys(one_hot, 0)
        else:
            labels = np.concatenate(list(one_hot.values()))
            ends = np.cumsum([len(member) for member in one_hot.values()])
            first = dict(zip(one_hot, [0, *ends], strict=False))
        used = labels.any(axis=1)
        if not used.any():
            raise DataError("no row has a known label; at least two classes are needed")
        number = np.cumsum(used) - 1
        rows = {name: number[first[name] + np.flatnonzero(mask)] for name, mask in known.items()}
        return cls(labels[used].astype(np.float64), _item_views(data, rows, known))

    @classmethod
    def aligned(cls, data: TrainingSet) -> "Items":
        """Return the rows of aligned views as items."""
        rows = {name: np.flatnonzero(present) for name, present in data.present.items()}
        n = len(next(iter(data.views.values())))
        return cls(np.zeros((n, 0)), _item_views(data, rows, data.present))

    def ridge(self, targets: Matrix, decay: float) -> dict[str, Matrix]:
        """Modality → weights that predict the targets from its features, by ridge regression."""
        return {
            name: factor(view.features, targets[view.rows], decay)
            for name, view in self.views.items()
        }

    def latent(
        self,
        V: Matrix,
        weights: Mapping[str, Matrix],
        *,
        regression_weight: float,
        decay: float,
        feature_weight: float = 1.0,
        system: Matrix | float = 0.0,
        target: Matrix | float = 0.0,
    ) -> Matrix:
        r"""Return the $V$ that is best for all other factors of a matrix factorization.

        It minimizes $\sum_a \frac\lambda m \|\Phi_a - V U_a\|^2 + \mu \sum_a \|V - \Phi_a W_a\|^2
        + \gamma \|V\|^2$ over $m$ modalities and the terms $V A V^\top - 2 V T^\top$ of a method;
        $U_a$ are the best for the given $V$.

        Args:
            V: The latent representation before, shape (n, r).
            weights: Modality → $W_a$.
            regression_weight: $\mu$.
            decay: $\gamma$, also for $U_a$.
            feature_weight: $\lambda$.
            system: $A$, shape (r, r).
            target: $T$, shape (n, r).
        """
        share = feature_weight / len(self.views)
        identity = np.eye(V.shape[1])
        total = np.zeros_like(V) + target
        systems = {}
        for name, view in self.views.items():
            U = factor(V[view.rows], view.features, decay / share)
            pull = share * U.T + regression_weight * weights[name]
            total += view.at_items(view.features @ pull, len(self))
            systems[name] = share * (U @ U.T) + regression_weight * identity
        latent = np.zeros_like(V)
        for names, rows in self.patterns():
            own = system + decay * identity + sum(systems[name] for name in names)
            latent[rows] = np.linalg.solve(own, total[rows].T).T
        return latent

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
        encoders = {
            name: [Affine(weights[name], -view.mean @ weights[name])]
            for name, view in self.views.items()
        }
        return HashModel(encoders, n_bits)


def _item_views(
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


def unit_rows(labels: Matrix) -> Matrix:
    """Rows scaled to unit length; products of two rows are then the cosines of their labels."""
    return np.asarray(labels / np.linalg.norm(labels, axis=1, keepdims=True))

"""Layers that join several estimates: parallel chains of layers, and forests of decision trees."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from crossbit._validation import check_integer
from crossbit.errors import DataError
from crossbit.model.layers import LAYERS, Layer, Rows

_BLOCK = 256  # rows that walk down the trees together
_MIN_POSTERIOR = 1e-3


@dataclass(frozen=True, eq=False)
class Parallel(Layer):
    """Several chains of layers on the same rows; their outputs stand side by side.

    Args:
        branches: The chains.
    """

    branches: tuple[tuple[Layer, ...], ...]

    def __post_init__(self) -> None:
        """Reject an empty list, and chains whose width is not known."""
        object.__setattr__(self, "branches", tuple(tuple(branch) for branch in self.branches))
        if not self.branches or None in map(_output_width, self.branches):
            raise DataError("parallel: every branch needs a layer with a known number of columns")

    def __call__(self, X: Rows) -> Rows:
        """Run every chain and join the columns."""
        outputs = []
        for branch in self.branches:
            rows = X
            for layer in branch:
                rows = layer(rows)
            outputs.append(rows)
        return np.concatenate(outputs, axis=1)

    def widths(self) -> tuple[int | None, int]:
        """Columns that the first chain with a fixed width expects, and those of all outputs."""
        inputs = (layer.widths()[0] for branch in self.branches for layer in branch)
        return (
            next((width for width in inputs if width is not None), None),
            sum(_output_width(branch) or 0 for branch in self.branches),
        )

    def work(self) -> int:
        """The work of all chains."""
        return sum(layer.work() for branch in self.branches for layer in branch)

    def weights(self) -> dict[str, NDArray[Any]]:
        """The arrays of all layers, such as ``"0.2.weight"``."""
        return {
            f"{name}.{key}": value
            for name, layer in self._layers()
            for key, value in layer.weights().items()
        }

    def blobs(self) -> dict[str, bytes]:
        """The separate files of all layers, such as ``"1.0.model"``."""
        return {
            f"{name}.{key}": value
            for name, layer in self._layers()
            for key, value in layer.blobs().items()
        }

    def settings(self) -> dict[str, Any]:
        """Kind and settings of the layers of every chain."""
        return {
            "branches": [
                [{"kind": layer.kind, "settings": layer.settings()} for layer in branch]
                for branch in self.branches
            ]
        }

    def _layers(self) -> list[tuple[str, Layer]]:
        return [
            (f"{i}.{j}", layer)
            for i, branch in enumerate(self.branches)
            for j, layer in enumerate(branch)
        ]

    @classmethod
    def restore(cls, settings: Mapping[str, Any], values: Mapping[str, Any]) -> Self:
        """Rebuild the chains from `settings` and from the arrays and files of their layers."""
        branches = []
        for i, branch in enumerate(settings["branches"]):
            layers = []
            for j, entry in enumerate(branch):
                prefix = f"{i}.{j}."
                own = {
                    key.removeprefix(prefix): value
                    for key, value in values.items()
                    if key.startswith(prefix)
                }
                layers.append(LAYERS[entry["kind"]].restore(entry["settings"], own))
            branches.append(tuple(layers))
        return cls(tuple(branches))


def _output_width(branch: Sequence[Layer]) -> int | None:
    """Columns of the output of a chain; None if that depends on the input."""
    return next((w for layer in reversed(branch) if (w := layer.widths()[1]) is not None), None)


@dataclass(frozen=True, eq=False)
class Forest(Layer):
    r"""Mean class posteriors of decision trees, as scores: $\log p$, or $\log p / (1 - p)$.

    Node $i$ leads to node ``child[i]`` if the value of its column is below the threshold and to the
    next one otherwise; a leaf leads to itself. The first nodes are the roots.

    Args:
        column: Column that each node compares.
        threshold: What it is compared with; infinity at a leaf.
        child: Node for smaller values.
        leaf: Row of ``values`` that belongs to a leaf.
        values: Share of each class among the training rows of a leaf, shape (leaves, classes).
        prior: Share of each class among all training rows; it counts as one more tree.
        n_trees: Number of trees.
        n_columns: Number of columns of a row.
        multi_label: Whether a row may have several classes.
    """

    column: NDArray[Any]
    threshold: NDArray[Any]
    child: NDArray[Any]
    leaf: NDArray[Any]
    values: NDArray[Any]
    prior: NDArray[Any]
    n_trees: int
    n_columns: int
    multi_label: bool

    def __post_init__(self) -> None:
        """Reject arrays that do not describe trees."""
        nodes = (self.column, self.threshold, self.child, self.leaf)
        n_nodes = len(self.column)
        check_integer(self.n_trees, "forest: n_trees", least=1)
        check_integer(self.n_columns, "forest: n_columns", least=1)
        own = np.arange(n_nodes)
        inner = self.child != own
        if (
            n_nodes == 0
            or any(array.shape != (n_nodes,) for array in nodes)
            or self.n_trees > n_nodes
            or any(array.dtype.kind != "i" for array in (self.column, self.child, self.leaf))
            or self.values.ndim != 2
            or self.prior.shape != self.values.shape[1:]
            or min(self.column.min(), self.leaf.min()) < 0
            or self.column.max() >= self.n_columns
            or self.leaf.max() >= len(self.values)
            # Children come after their parents, so that every walk ends.
            or (self.child < own).any()
            or (self.child[inner] + 1 >= n_nodes).any()
            or not np.isinf(self.threshold[~inner]).all()
            or not (np.isfinite(self.values).all() and np.isfinite(self.prior).all())
        ):
            raise DataError("forest: the arrays do not describe decision trees")

    def __call__(self, X: Rows) -> Rows:
        """Walk down all trees, one block of rows at a time."""
        out = np.empty((len(X), self.values.shape[1]), np.float32)
        for start in range(0, len(X), _BLOCK):
            block = X[start : start + _BLOCK]
            node = np.tile(np.arange(self.n_trees), (len(block), 1))
            rows = np.arange(len(block))[:, None]
            while True:
                right = block[rows, self.column[node]] >= self.threshold[node]
                below = self.child[node] + right
                if np.array_equal(below, node):
                    break
                node = below
            out[start : start + _BLOCK] = self._values[self.leaf[node]].sum(axis=1)
        return self._to_scores(out)

    def _to_scores(self, sums: Rows) -> Rows:
        p = np.clip((sums + self.prior) / (self.n_trees + 1), _MIN_POSTERIOR, 1 - _MIN_POSTERIOR)
        scores: Rows = np.log(p / (1 - p) if self.multi_label else p).astype(np.float32)
        return scores

    @cached_property
    def _values(self) -> Rows:
        return np.asarray(self.values, np.float32)

    def widths(self) -> tuple[int, int]:
        """From the columns of a row to one column per class."""
        return self.n_columns, int(self.values.shape[1])

    def work(self) -> int:
        """About as much as adding up the leaves."""
        return self.n_trees * (int(self.values.shape[1]) + 64)

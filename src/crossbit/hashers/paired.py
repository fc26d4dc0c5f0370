"""Two modalities, linked by pairs: what the methods of pairs and thresholds share."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbit.data import TrainingSet
from crossbit.data.supervision import cross_pairs
from crossbit.errors import DataError
from crossbit.hashers.thresholds import Floats, Ints, best_cuts
from crossbit.model import Affine, HashModel

_LEAST = 1e-6  # a correlation below this is rounding, not knowledge


@dataclass(frozen=True)
class Bit:
    """One bit of both modalities: two directions, two cuts, and the weighted correlation they reach."""

    p: Floats
    q: Floats
    left: float
    right: float
    correlation: float


@dataclass(frozen=True, eq=False)
class PairedRows:
    """The rows of two modalities that take part in pairs, centered on the means of all training rows.

    Attributes:
        names: The two modalities.
        means: Their means.
        X: Rows of the first that take part in some pair.
        Y: Rows of the second.
        index: The pairs, by the numbers of those rows.
        signs: +1 for similar pairs, −1 for dissimilar ones.
    """

    names: tuple[str, str]
    means: tuple[Floats, Floats]
    X: NDArray[Any]
    Y: NDArray[Any]
    index: Ints
    signs: Floats

    @classmethod
    def of(cls, data: TrainingSet, *, n_similar: int, n_dissimilar: int, seed: int) -> "PairedRows":
        """Draw pairs from whatever is known, and take the rows they are about."""
        left, right = data.modalities
        pairs = cross_pairs(
            data, left, right, n_similar=n_similar, n_dissimilar=n_dissimilar, seed=seed
        )
        taken = [np.unique(pairs.index[:, side], return_inverse=True) for side in (0, 1)]
        means = (_mean(data, left), _mean(data, right))
        X = _centered(data.views[left], taken[0][0], means[0])
        Y = _centered(data.views[right], taken[1][0], means[1])
        index = np.stack([places for _, places in taken], axis=1)
        return cls((left, right), means, X, Y, index, np.where(pairs.similar, 1.0, -1.0))

    def even_weights(self, alpha: float = 1.0) -> Floats:
        """Weights that sum to one: those of dissimilar pairs together α times those of similar ones."""
        similar = self.signs > 0
        n_similar = int(similar.sum())
        weights = np.where(similar, 1 / n_similar, alpha / (len(similar) - n_similar))
        return weights / (1 + alpha)

    def covariance(self, signed: Floats) -> Floats:
        r"""$C = \sum_k \omega_k\, x_i y_j^\top$ for signed weights $\omega$ of the pairs."""
        C = self._products.covariance(signed)
        return C if self._products.first_is_wide else C.T

    @cached_property
    def _products(self) -> "_Products":
        wide = self.X.shape[1] >= self.Y.shape[1]
        first, second = (0, 1) if wide else (1, 0)
        order = np.argsort(self.index[:, first], kind="stable")
        ordered = self.index[order]
        starts = np.flatnonzero(np.diff(ordered[:, first], prepend=-1))
        rows = (self.X, self.Y)
        return _Products(rows[first], rows[second], order, starts, ordered[:, second], wide)

    def bit(self, p: Floats, q: Floats, signed: Floats) -> Bit | None:
        """The best thresholds on two directions, or nothing when even they tell nothing."""
        cuts = best_cuts(_project(self.X, p), _project(self.Y, q), self.index, signed)
        if cuts is None or cuts.correlation <= _LEAST:
            return None
        return Bit(p, q, cuts.left, cuts.right, cuts.correlation)

    def agreement(self, bit: Bit) -> Floats:
        """+1 for pairs whose two rows have the same bit, −1 for the others."""
        ones = _project(self.X, bit.p) >= bit.left, _project(self.Y, bit.q) >= bit.right
        return np.where(ones[0][self.index[:, 0]] == ones[1][self.index[:, 1]], 1.0, -1.0)

    def model(self, bits: list[Bit]) -> HashModel:
        """The bits as one affine layer a modality."""
        P, Q = np.stack([bit.p for bit in bits], axis=1), np.stack([bit.q for bit in bits], axis=1)
        cuts = np.array([bit.left for bit in bits]), np.array([bit.right for bit in bits])
        encoders = {
            name: [Affine(W, -mean @ W - cut)]
            for name, W, mean, cut in zip(self.names, (P, Q), self.means, cuts, strict=True)
        }
        return HashModel(encoders, len(bits))

    def nothing_to_learn(self, method: str) -> DataError:
        """Why no bit could be found at all."""
        return DataError(
            f"{method}: no direction of {self.names[0]!r} and {self.names[1]!r} tells similar pairs from dissimilar"
            " ones; look whether the features vary and the pairs name the rows they mean"
        )


@dataclass(frozen=True)
class _Products:
    """Pairs in the order of their rows of the wider modality, so that a weighted sum over pairs is quick.

    Row r of the wider modality takes part in the pairs from ``starts[r]`` on. The rows of the narrower one that are
    paired with it are weighted and added up; one matrix product does the rest.
    """

    wide: NDArray[Any]
    narrow: NDArray[Any]
    order: Ints
    starts: Ints
    partners: Ints
    first_is_wide: bool

    def covariance(self, signed: Floats) -> Floats:
        weights = signed[self.order].astype(self.narrow.dtype, copy=False)
        sums = np.empty((len(self.wide), self.narrow.shape[1]), self.narrow.dtype)
        edges = [*self.starts.tolist(), len(weights)]
        # A product for each row of the wider side: the gathered rows never leave the cache.
        for row, (begin, end) in enumerate(pairwise(edges)):
            np.dot(weights[begin:end], self.narrow[self.partners[begin:end]], out=sums[row])
        return (self.wide.T @ sums).astype(np.float64, copy=False)


def singular_pairs(C: Floats) -> Iterator[tuple[Floats, Floats]]:
    """Left and right singular vectors of a matrix, the largest singular value first, down to rounding."""
    if C.shape[0] > C.shape[1]:
        yield from ((p, q) for q, p in singular_pairs(C.T))
        return
    values, vectors = np.linalg.eigh(C @ C.T)
    for k in range(len(values) - 1, -1, -1):
        q = vectors[:, k] @ C
        length = float(np.linalg.norm(q))
        if length <= 1e-6 * np.sqrt(max(values[-1], 0)) or length == 0:
            return
        yield vectors[:, k], q / length


def _project(X: NDArray[Any], p: Floats) -> Floats:
    """Projections of rows, rounded so that equal rows are equal whatever their place."""
    u: Floats = (X @ p.astype(X.dtype)).astype(np.float32).astype(np.float64)
    return u


def _mean(data: TrainingSet, name: str) -> Floats:
    mean: Floats = np.mean(
        data.views[name], axis=0, dtype=np.float64, where=data.present[name][:, None]
    )
    return mean


def _centered(view: NDArray[Any], rows: Ints, mean: Floats) -> NDArray[Any]:
    """Rows less their mean; float32 stays float32, which halves the memory and the time."""
    dtype = np.float32 if view.dtype == np.float32 else np.float64
    X: NDArray[Any] = np.asarray(
        view[rows], dtype, order="C"
    )  # a copy: the rows are picked by number
    np.subtract(X, mean.astype(dtype), out=X)
    return X

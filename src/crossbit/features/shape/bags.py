"""Surfaces to rows: bags of geometric words, and of pairs of words that are near each other."""

from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from crossbit._validation import check_integer, check_matrix
from crossbit.errors import DataError
from crossbit.features.extractor import Extractor, RawInput, Rows
from crossbit.features.kmeans import k_means, nearest
from crossbit.features.shape.mesh import read_mesh
from crossbit.features.shape.spectrum import (
    Heat,
    Spectrum,
    heat_kernel_signature,
    scale_invariant_signature,
    spectrum,
)


@dataclass(frozen=True, eq=False, kw_only=True)
class _Heated(Extractor):
    """What describers of surfaces have in common: how heat spreads on a mesh, and when one looks at it.

    Args:
        first: The smallest time, in squared units of the mesh.
        last: The largest time.
        times: How many, spaced evenly in their logarithm.
        invariant: Signatures that do not depend on size, in place of those at the times; ``times`` is how many
            frequencies they keep.
        n_pairs: Eigenpairs.
        patches: Points of nearly the same signature share one, at most so many; a power of two.
    """

    accepts = "mesh"

    first: float = 1024.0
    last: float = 4096.0
    times: int = 6
    invariant: bool = False
    n_pairs: int = 100
    patches: int = 512

    def __post_init__(self) -> None:
        """Refuse numbers that mean nothing."""
        for name in ("times", "n_pairs", "patches"):
            check_integer(getattr(self, name), name, least=1)
        if self.patches & (self.patches - 1):
            raise DataError(f"patches is a power of two, got {self.patches}")
        if not 0 < self.first <= self.last < float("inf"):
            raise DataError(
                f"times go from first to last, both above 0, got {self.first} and {self.last}"
            )

    def heat(self, thing: RawInput) -> Heat:
        """The heat of a mesh: the path of a file, or its bytes."""
        pairs = spectrum(read_mesh(thing), self.n_pairs)
        return Heat.of(pairs, self._signatures(pairs), patches=self.patches)

    def _signatures(self, pairs: Spectrum) -> NDArray[np.float64]:
        if self.invariant:
            return scale_invariant_signature(pairs, self.times)
        return heat_kernel_signature(pairs, np.geomspace(self.first, self.last, self.times))

    def settings(self) -> dict[str, Any]:
        """How heat is looked at: the fields that all describers of surfaces share."""
        return {f.name: getattr(self, f.name) for f in fields(_Heated)}


@dataclass(frozen=True, eq=False, kw_only=True)
class HeatKernelExtractor(_Heated, kind="shape-heat"):
    """All that bags of features need of a surface, before there is a vocabulary: the slow part, done once.

    A row is a `Heat`, flattened; `unflat` is the way back. Vocabularies are then learned, and bags counted, in
    milliseconds. The other fields are as in `BagOfGeometry`.

    Args:
        n_values: Eigenpairs whose integrals are kept; heat that has spread for 1024 units needs few.
    """

    n_values: int = 64

    @property
    def width(self) -> int:
        """Eigenvalues, then for each patch its area, signature and integrals."""
        return self.n_values + self.patches * (1 + self.times + self.n_values)

    def extract_one(self, thing: RawInput) -> Rows:
        """Solve for the eigenpairs of a mesh."""
        return self.heat(thing).flat(self.patches, self.n_values)

    def unflat(self, row: Rows) -> Heat:
        """The heat that a row tells of."""
        return Heat.unflat(row, self.patches, self.n_values)


@dataclass(frozen=True, eq=False, kw_only=True)
class _Bag(_Heated):
    """A describer with a vocabulary of signatures.

    Args:
        words: The vocabulary, shape (k, times).
        softness: $σ$: how far a signature may be from a word and still count for it.
    """

    words: NDArray[Any]
    softness: float

    def __post_init__(self) -> None:
        """Check the vocabulary."""
        super().__post_init__()
        object.__setattr__(
            self,
            "words",
            np.ascontiguousarray(check_matrix(self.words, "words", width=self.times), float),
        )
        if not 0 < self.softness < float("inf"):
            raise DataError(f"softness is a distance above 0, got {self.softness}")

    @classmethod
    def fit(cls, heats: Iterable[Heat], *, size: int, seed: int = 0, **settings: Any) -> Self:  # noqa: ANN401
        """Learn a vocabulary by k-means; the softness is twice the median radius of its clusters.

        Args:
            heats: Surfaces to learn from, as `HeatOfShape` gives them.
            size: Words.
            seed: Of k-means.
            settings: Fields that say how heat is looked at, the same as those of the ``heats``.
        """
        points = np.concatenate([heat.signatures for heat in heats]).astype(np.float32)
        scale = float(points.std()) or 1.0  # k-means in single precision, signatures may be tiny
        words = k_means(points / scale, size, seed=seed)
        own, squares = nearest(points / scale, words)
        radii = [np.sqrt(squares[own == number]).mean() for number in np.unique(own)]
        return cls(
            words=words.astype(float) * scale,
            softness=2 * scale * float(np.median(radii)),
            **settings,
        )

    def extract_one(self, thing: RawInput) -> Rows:
        """Describe a mesh."""
        return self.bag(self.heat(thing))

    @abstractmethod
    def bag(self, heat: Heat) -> Rows:
        """Describe a surface whose heat is known."""

    def shares(self, heat: Heat) -> NDArray[np.float64]:
        r"""How far each patch counts for each word, $\theta_i \propto e^{-\|h - c_i\|^2 / 2\sigma^2}$, summing to 1."""
        squares = np.square(heat.signatures[:, None] - self.words).sum(axis=2)
        weights = np.exp(-(squares - squares.min(axis=1, keepdims=True)) / (2 * self.softness**2))
        return np.asarray(weights / weights.sum(axis=1, keepdims=True))


@dataclass(frozen=True, eq=False, kw_only=True)
class BagOfGeometry(_Bag, kind="shape-bag"):
    r"""How much of a surface looks like each word of a vocabulary of heat kernel signatures; shares sum to one.

    $$ f_i = \frac{1}{\sum_x a(x)} \sum_x a(x)\,\theta_i(h(x)), \qquad
       \theta_i(h) = \frac{e^{-\|h - c_i\|^2/2\sigma^2}}{\sum_j e^{-\|h - c_j\|^2/2\sigma^2}} $$

    Neither moving nor bending a surface changes it. Times are in squared units of the mesh, so size matters, unless
    signatures are ``invariant``.

    Args:
        words: The vocabulary $c$, shape (k, times).
        softness: $σ$.
        first: The smallest time of the signatures.
        last: The largest time.
        times: How many, spaced evenly in their logarithm.
        invariant: Signatures that do not depend on size, in place of those at the times.
        n_pairs: Eigenpairs.
        patches: Points of nearly the same signature share one, at most so many; a power of two.

    References:
        A. M. Bronstein, M. M. Bronstein, L. J. Guibas, M. Ovsjanikov. "Shape Google: geometric words and expressions
        for invariant shape retrieval." ACM TOG 2011.
    """

    @property
    def width(self) -> int:
        """One column a word."""
        return len(self.words)

    def bag(self, heat: Heat) -> Rows:
        """Shares of the area."""
        return np.asarray(heat.areas @ self.shares(heat) / heat.areas.sum(), np.float32)


@dataclass(frozen=True, eq=False, kw_only=True)
class SpatialBag(_Bag, kind="shape-spatial-bag"):
    r"""How much of a surface looks like each *pair* of words that are near each other; the k² shares sum to one.

    $$ F_{ij} = \frac{1}{\sum_x a(x)} \sum_{x, y} a(x)\,a(y)\,\theta_i(h(x))\,\theta_j(h(y))\,K_t(x, y)
       = \frac{(G e^{-\Lambda t} G^\top)_{ij}}{\sum_x a(x)}, \qquad G = (\Theta \circ a)^\top \Phi $$

    The heat kernel $K_t$ says what is near; through its eigenpairs no matrix of points by points is ever made. The rows
    of $F$ sum to the `BagOfGeometry` of the same vocabulary, and as $t \to \infty$ it becomes $f f^\top$.

    The other fields, and where it comes from, are as in `BagOfGeometry`.

    Args:
        nearness: $t$, in squared units of the mesh.
    """

    nearness: float = 1024.0

    @property
    def width(self) -> int:
        """Pairs of words."""
        return len(self.words) ** 2

    def bag(self, heat: Heat) -> Rows:
        """Shares of pairs of points, by the heat that passes between them."""
        G = self.shares(heat).T @ heat.integrals
        F = (G * np.exp(-heat.values * self.nearness)) @ G.T / heat.areas.sum()
        return np.asarray(F.ravel(), np.float32)

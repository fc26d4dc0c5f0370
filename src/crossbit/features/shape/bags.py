"""Shape features: bags of heat kernel signatures, and of pairs of nearby signatures."""

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
from crossbit.features.shape.mesh import Mesh
from crossbit.features.shape.spectrum import (
    HeatPatches,
    Spectrum,
    compute_spectrum,
    heat_kernel_signature,
    scale_invariant_signature,
)


@dataclass(frozen=True, eq=False, kw_only=True)
class _HeatKernelBase(Extractor):
    """Base class of shape extractors: which heat kernel signatures describe a mesh.

    Args:
        first: Smallest time, in squared units of the mesh.
        last: Largest time.
        times: Number of times, spaced evenly in their logarithm.
        invariant: Use scale-invariant signatures instead of those at the times; ``times`` is then
            the number of frequencies.
        n_pairs: Number of eigenpairs.
        patches: Largest number of patches, a power of two; points with similar signatures share a
            patch.
    """

    accepts = "mesh"

    first: float = 1024.0
    last: float = 4096.0
    times: int = 6
    invariant: bool = False
    n_pairs: int = 100
    patches: int = 512

    def __post_init__(self) -> None:
        """Validate the numbers."""
        for name in ("times", "n_pairs", "patches"):
            check_integer(getattr(self, name), name, least=1)
        if self.patches & (self.patches - 1):
            raise DataError(f"patches must be a power of two, got {self.patches}")
        if not 0 < self.first <= self.last < float("inf"):
            raise DataError(f"expected 0 < first <= last, got {self.first} and {self.last}")

    def heat_patches(self, raw: RawInput) -> HeatPatches:
        """Compute the patches of a mesh, given by the path or the content of a file."""
        spectrum = compute_spectrum(Mesh.read(raw), self.n_pairs)
        signatures = self._signatures(spectrum)
        return HeatPatches.from_spectrum(spectrum, signatures, patches=self.patches)

    def _signatures(self, spectrum: Spectrum) -> NDArray[np.float64]:
        if self.invariant:
            return scale_invariant_signature(spectrum, self.times)
        return heat_kernel_signature(spectrum, np.geomspace(self.first, self.last, self.times))

    def signature_settings(self) -> dict[str, Any]:
        """Return the fields that all shape extractors share, by name."""
        return {f.name: getattr(self, f.name) for f in fields(_HeatKernelBase)}


@dataclass(frozen=True, eq=False, kw_only=True)
class HeatKernelExtractor(_HeatKernelBase, kind="shape-heat"):
    """Everything that bags of features need from a mesh before a vocabulary exists.

    Solving for eigenpairs is the slow part. A row stores its result as flattened `HeatPatches`;
    `from_row` restores them, and learning a vocabulary or computing bags then takes milliseconds.
    The other fields are those of `BagOfGeometry`.

    Args:
        n_values: Number of eigenpairs whose integrals are kept; the default suffices for heat that
            has diffused for 1024 units.
    """

    n_values: int = 64

    @property
    def width(self) -> int:
        """Eigenvalues, then the area, signature and integrals of each patch."""
        return self.n_values + self.patches * (1 + self.times + self.n_values)

    def extract_one(self, raw: RawInput) -> Rows:
        """Compute the eigenpairs of a mesh."""
        return self.heat_patches(raw).to_row(self.patches, self.n_values)

    def from_row(self, row: Rows) -> HeatPatches:
        """Restore the patches that a row stores."""
        return HeatPatches.from_row(row, self.patches, self.n_values)


@dataclass(frozen=True, eq=False, kw_only=True)
class _Bag(_HeatKernelBase):
    """Base class of extractors with a vocabulary of signatures.

    Args:
        words: The vocabulary, shape (k, times).
        softness: $σ$ of the soft assignment of signatures to words.
    """

    words: NDArray[Any]
    softness: float

    def __post_init__(self) -> None:
        """Validate the vocabulary."""
        super().__post_init__()
        words = check_matrix(self.words, "words", width=self.times)
        object.__setattr__(self, "words", np.ascontiguousarray(words, float))
        if not 0 < self.softness < float("inf"):
            raise DataError(f"softness must be positive and finite, got {self.softness}")

    @classmethod
    def fit(
        cls,
        surfaces: Iterable[HeatPatches],
        *,
        size: int,
        seed: int = 0,
        **settings: Any,  # noqa: ANN401 - fields of several types
    ) -> Self:
        """Learn a vocabulary by k-means; the softness is twice the median radius of its clusters.

        Args:
            surfaces: Training surfaces, as `HeatKernelExtractor` stores them.
            size: Number of words.
            seed: Seed of k-means.
            settings: Other fields; those of the signatures must equal the ones of ``surfaces``.
        """
        points = np.concatenate([surface.signatures for surface in surfaces]).astype(np.float32)
        # Signatures can be tiny, and k-means works in single precision.
        scale = float(points.std()) or 1.0
        words = k_means(points / scale, size, seed=seed)
        labels, squares = nearest(points / scale, words)
        radii = [np.sqrt(squares[labels == label]).mean() for label in np.unique(labels)]
        return cls(
            words=words.astype(float) * scale,
            softness=2 * scale * float(np.median(radii)),
            **settings,
        )

    def extract_one(self, raw: RawInput) -> Rows:
        """Compute the bag of a mesh."""
        return self.bag(self.heat_patches(raw))

    @abstractmethod
    def bag(self, patches: HeatPatches) -> Rows:
        """Compute the bag of a surface whose patches are known."""

    def assignments(self, patches: HeatPatches) -> NDArray[np.float64]:
        r"""Soft assignment $\theta_i \propto e^{-\|h - c_i\|^2 / 2\sigma^2}$; rows sum to 1."""
        squares = np.square(patches.signatures[:, None] - self.words).sum(axis=2)
        weights = np.exp(-(squares - squares.min(axis=1, keepdims=True)) / (2 * self.softness**2))
        return np.asarray(weights / weights.sum(axis=1, keepdims=True))


@dataclass(frozen=True, eq=False, kw_only=True)
class BagOfGeometry(_Bag, kind="shape-bag"):
    r"""Bag of geometric words: the share of a surface's area assigned to each word; sums to one.

    $$ f_i = \frac{1}{\sum_x a(x)} \sum_x a(x)\,\theta_i(h(x)), \qquad
       \theta_i(h) = \frac{e^{-\|h - c_i\|^2/2\sigma^2}}{\sum_j e^{-\|h - c_j\|^2/2\sigma^2}} $$

    The words $c_i$ are heat kernel signatures. The bag is invariant to rigid motion and bending.
    Times are in squared units of the mesh, so it depends on size unless ``invariant`` is set.

    Args:
        words: The vocabulary $c$, shape (k, times).
        softness: $σ$.
        first: Smallest time of the signatures.
        last: Largest time.
        times: Number of times, spaced evenly in their logarithm.
        invariant: Use scale-invariant signatures instead of those at the times.
        n_pairs: Number of eigenpairs.
        patches: Largest number of patches, a power of two; points with similar signatures share a
            patch.

    References:
        A. M. Bronstein, M. M. Bronstein, L. J. Guibas, M. Ovsjanikov. "Shape Google: geometric
        words and expressions for invariant shape retrieval." ACM TOG 2011.
    """

    @property
    def width(self) -> int:
        """One column per word."""
        return len(self.words)

    def bag(self, patches: HeatPatches) -> Rows:
        """Compute the shares of the area."""
        return np.asarray(
            patches.areas @ self.assignments(patches) / patches.areas.sum(), np.float32
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class SpatialBag(_Bag, kind="shape-spatial-bag"):
    r"""Spatially sensitive bag: the share of each *pair* of nearby words; the k² shares sum to one.

    $$ F_{ij}
       = \frac{1}{\sum_x a(x)} \sum_{x, y} a(x)\,a(y)\,\theta_i(h(x))\,\theta_j(h(y))\,K_t(x, y)
       = \frac{(G e^{-\Lambda t} G^\top)_{ij}}{\sum_x a(x)},
       \qquad G = (\Theta \circ a)^\top \Phi $$

    The heat kernel $K_t$ weights pairs by their distance; its eigenpairs avoid the matrix of all
    pairs of points. The rows of $F$ sum to the `BagOfGeometry` of the same vocabulary, and $F$
    tends to $f f^\top$ as $t \to \infty$.

    The other fields and the reference are those of `BagOfGeometry`.

    Args:
        nearness: $t$, in squared units of the mesh.
    """

    nearness: float = 1024.0

    @property
    def width(self) -> int:
        """One column per pair of words."""
        return len(self.words) ** 2

    def bag(self, patches: HeatPatches) -> Rows:
        """Compute the shares of pairs of points, weighted by the heat kernel."""
        G = self.assignments(patches).T @ patches.integrals
        F = (G * np.exp(-patches.values * self.nearness)) @ G.T / patches.areas.sum()
        return np.asarray(F.ravel(), np.float32)

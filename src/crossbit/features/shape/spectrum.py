"""Laplace–Beltrami spectra of surfaces and heat kernel signatures; both invariant to bending."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from crossbit._validation import check_integer
from crossbit.errors import DataError, MissingExtraError
from crossbit.features.shape.mesh import Mesh

_Floats = NDArray[np.float64]

_SHIFT = 1e-6  # of the mean diagonal, because the Laplacian itself is singular
_OCTAVES = np.arange(1, 25 + 1 / 32, 1 / 16)  # t = 2^τ of the scale-invariant signature


@dataclass(frozen=True, eq=False)
class Spectrum:
    r"""The smallest eigenpairs of the Laplace–Beltrami operator.

    $$ L\phi = \lambda A\phi, \qquad \Phi^\top A \Phi = I $$

    Attributes:
        areas: The diagonal of $A$, shape (n,); it sums to the area of the surface.
        values: $0 \le \lambda_0 \le \lambda_1 \le \dots$, shape (k,).
        vectors: $\Phi$, shape (n, k).
    """

    areas: _Floats
    values: _Floats
    vectors: _Floats


def compute_spectrum(mesh: Mesh, n_pairs: int = 100) -> Spectrum:
    r"""Compute the smallest eigenpairs of a mesh, or all of them if it has fewer vertices.

    The Laplacian is that of the tufted intrinsic Delaunay triangulation, which also handles holes,
    slivers and nonmanifold edges. It depends on edge lengths only, so bending without stretching
    does not change it.

    Args:
        mesh: The surface.
        n_pairs: Number of eigenpairs; $e^{-\lambda t}$ of the first omitted one bounds the error of
            the heat kernel.

    Raises:
        DataError: The mesh is too degenerate for a Laplacian.
        MissingExtraError: robust-laplacian or SciPy is not installed.

    References:
        N. Sharp, K. Crane. "A Laplacian for nonmanifold triangle meshes." SGP 2020.
    """
    check_integer(n_pairs, "the number of eigenpairs", least=1)
    try:
        from robust_laplacian import mesh_laplacian
        from scipy import sparse
    except ImportError as error:
        raise MissingExtraError("robust-laplacian", "shape") from error
    stiffness, mass = mesh_laplacian(mesh.vertices, mesh.faces)
    areas: _Floats = mass.diagonal()
    if not (np.isfinite(stiffness.data).all() and (areas > 0).all()):
        raise DataError("the triangles are too degenerate for a Laplacian; repair the mesh first")
    scale = sparse.diags_array(1 / np.sqrt(areas))
    values, vectors = _smallest((scale @ stiffness @ scale).tocsc(), np.sqrt(areas), n_pairs)
    return Spectrum(areas, np.maximum(values, 0.0), vectors / np.sqrt(areas)[:, None])


def _smallest(A: Any, start: _Floats, n: int) -> tuple[_Floats, _Floats]:  # noqa: ANN401 - sparse
    """Smallest eigenpairs of a symmetric sparse matrix, ascending."""
    from scipy import sparse
    from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh, splu

    if 2 * n >= len(start):
        values, vectors = np.linalg.eigh(A.toarray())
        return values[:n], vectors[:, :n]
    shift = _SHIFT * float(A.diagonal().mean())
    shifted = (A + shift * sparse.eye_array(len(start))).tocsc()
    try:
        factors = splu(
            shifted,
            permc_spec="MMD_AT_PLUS_A",
            diag_pivot_thresh=0.0,
            options={"SymmetricMode": True},
        )
        inverse = LinearOperator(A.shape, factors.solve, dtype=np.float64)
        # A fixed start keeps results reproducible. The constant vector is an eigenvector, hence
        # orthogonal to all others, so it is perturbed.
        perturbed = start * (1 + 0.1 * np.sin(np.arange(len(start))))
        values, vectors = eigsh(A, n, sigma=-shift, OPinv=inverse, v0=perturbed)
    except (RuntimeError, ArpackError) as error:
        raise DataError(
            f"the eigenpairs cannot be computed ({error}); repair the mesh first"
        ) from error
    order = np.argsort(values)
    return values[order], vectors[:, order]


def heat_kernel_signature(spectrum: Spectrum, times: NDArray[np.float64]) -> _Floats:
    r"""Heat kernel signature $h(x, t) = \sum_k e^{-\lambda_k t} \phi_k(x)^2$, shape (n, times).

    Args:
        spectrum: Eigenpairs of the surface.
        times: $t$, in squared units of the mesh; heat spreads over about $2\sqrt t$ in that time.

    References:
        J. Sun, M. Ovsjanikov, L. Guibas. "A concise and provably informative multi-scale signature
        based on heat diffusion." SGP 2009.
    """
    return np.square(spectrum.vectors) @ np.exp(-np.outer(spectrum.values, times))


def scale_invariant_signature(spectrum: Spectrum, n: int = 6) -> _Floats:
    r"""Scale-invariant heat kernel signature, shape (number of points, ``n``).

    Scaling a surface by $s$ shifts $\log h(x, 2^\tau)$ along $\tau$ and adds a constant. The
    derivative in $\tau$ removes the constant, the modulus of the Fourier transform the shift.

    Args:
        spectrum: Eigenpairs of the surface.
        n: Number of frequencies; the lowest ones are kept.

    References:
        M. M. Bronstein, I. Kokkinos. "Scale-invariant heat kernel signatures for non-rigid shape
        recognition." CVPR 2010.
    """
    heat = heat_kernel_signature(spectrum, 2.0**_OCTAVES)
    slope = np.diff(np.log(np.maximum(heat, np.finfo(float).tiny)), axis=1)
    return np.asarray(np.abs(np.fft.rfft(slope, axis=1))[:, :n])


@dataclass(frozen=True, eq=False)
class HeatPatches:
    r"""A surface as patches of points with similar signatures: the input of bags of features.

    Bags depend on a point $x$ only through its signature $h(x)$, and on the heat kernel only
    through $\sum_x a(x)\,\theta(h(x))\,\phi_k(x)$. Points with similar signatures therefore share a
    patch, and only sums over patches are kept. Areas and eigenvector integrals are preserved, so
    the sums of bags are exact.

    Attributes:
        areas: $\sum a(x)$ of each patch, shape (p,).
        signatures: Area-weighted mean of $h(x)$, shape (p, d).
        integrals: $\sum a(x)\,\phi_k(x)$ of each patch, shape (p, k).
        values: $\lambda_k$, shape (k,).
    """

    areas: _Floats
    signatures: _Floats
    integrals: _Floats
    values: _Floats

    @classmethod
    def from_spectrum(
        cls, spectrum: Spectrum, signatures: _Floats, *, patches: int | None = None
    ) -> Self:
        """Group the points of a surface into patches.

        Args:
            spectrum: Eigenpairs of the surface.
            signatures: One row per vertex.
            patches: Largest number of patches; None makes every vertex a patch.
        """
        n = len(spectrum.areas)
        if patches is None or n <= patches:
            patch = np.arange(n)
        else:
            patch = _group_by_signature(signatures, patches)
        weights = spectrum.areas[:, None]
        areas = _sums(weights, patch)
        return cls(
            areas[:, 0],
            _sums(weights * signatures, patch) / areas,
            _sums(weights * spectrum.vectors, patch),
            spectrum.values,
        )

    def to_row(self, patches: int, n_values: int) -> NDArray[np.float32]:
        """Flatten to one row whose width depends only on the arguments; missing values are 0."""
        p = len(self.areas)
        d = self.signatures.shape[1]
        k = min(len(self.values), n_values)
        table = np.zeros((patches, 1 + d + n_values), np.float32)
        table[:p, 0] = self.areas
        table[:p, 1 : 1 + d] = self.signatures
        table[:p, 1 + d : 1 + d + k] = self.integrals[:, :k]
        values = np.zeros(n_values, np.float32)
        values[:k] = self.values[:k]
        return np.concatenate([values, table.ravel()])

    @classmethod
    def from_row(cls, row: NDArray[np.float32], patches: int, n_values: int) -> Self:
        """Invert `to_row`."""
        values = row[:n_values].astype(np.float64)
        table = row[n_values:].reshape(patches, -1).astype(np.float64)
        table = table[table[:, 0] > 0]
        d = table.shape[1] - 1 - n_values
        return cls(table[:, 0], table[:, 1 : 1 + d], table[:, 1 + d :], values)


def _sums(rows: _Floats, patch: NDArray[np.int64]) -> _Floats:
    order = np.argsort(patch, kind="stable")
    starts = np.flatnonzero(np.r_[True, np.diff(patch[order]) > 0])
    return np.asarray(np.add.reduceat(rows[order], starts, axis=0))


def _group_by_signature(signatures: _Floats, patches: int) -> NDArray[np.int64]:
    """Patch number of each point: split at the median of the widest coordinate, recursively."""
    patch = np.zeros(len(signatures), np.int64)
    scaled = signatures / np.maximum(signatures.std(axis=0), 1e-300)
    for _ in range(patches.bit_length() - 1):
        half = np.zeros(len(signatures), np.int64)
        for number in range(patch.max() + 1):
            points = np.flatnonzero(patch == number)
            widest = np.ptp(scaled[points], axis=0).argmax()
            order = np.argsort(scaled[points, widest], kind="stable")
            half[points[order[len(points) // 2 :]]] = 1
        patch = 2 * patch + half
    return patch

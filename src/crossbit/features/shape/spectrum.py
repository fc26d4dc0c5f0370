"""Laplace–Beltrami eigenpairs of a surface: its vibrations, which bending does not change."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from crossbit._validation import check_integer
from crossbit.errors import DataError, MissingExtraError
from crossbit.features.shape.mesh import Mesh

_SHIFT = 1e-6  # of the mean diagonal: the Laplacian alone has no inverse

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Spectrum:
    r"""The smallest eigenpairs of the Laplace–Beltrami operator, $L\phi = \lambda A\phi$, $\Phi^\top A \Phi = I$.

    Attributes:
        areas: The diagonal of $A$, shape (n,); they sum to the area of the surface.
        values: $0 \le \lambda_0 \le \lambda_1 \le \dots$, shape (k,).
        vectors: $\Phi$, shape (n, k).
    """

    areas: Floats
    values: Floats
    vectors: Floats


def spectrum(mesh: Mesh, n_pairs: int = 100) -> Spectrum:
    r"""The smallest eigenpairs of a mesh, all of them where it has fewer vertices.

    The Laplacian is that of the tufted intrinsic Delaunay triangulation, which also serves meshes with holes, slivers
    and edges of more than two triangles. It depends on lengths of edges alone: bending without stretching
    changes nothing.

    Args:
        mesh: The surface.
        n_pairs: How many; $e^{-\lambda t}$ of the first that is left out is what they are short of.

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
    areas: Floats = mass.diagonal()
    if not (np.isfinite(stiffness.data).all() and (areas > 0).all()):
        raise DataError("its triangles are too degenerate for a Laplacian; repair the mesh first")
    scale = sparse.diags_array(1 / np.sqrt(areas))
    values, vectors = _smallest((scale @ stiffness @ scale).tocsc(), np.sqrt(areas), n_pairs)
    return Spectrum(areas, np.maximum(values, 0.0), vectors / np.sqrt(areas)[:, None])


def _smallest(A: Any, start: Floats, n: int) -> tuple[Floats, Floats]:  # noqa: ANN401 - a sparse matrix
    """The smallest eigenpairs of a symmetric matrix, ascending."""
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
        # A start that is orthogonal to nothing, and the same in every run: the constant, slightly uneven.
        uneven = start * (1 + 0.1 * np.sin(np.arange(len(start))))
        values, vectors = eigsh(A, n, sigma=-shift, OPinv=inverse, v0=uneven)
    except (RuntimeError, ArpackError) as error:
        raise DataError(
            f"its eigenpairs cannot be found ({error}); repair the mesh first"
        ) from error
    order = np.argsort(values)
    return values[order], vectors[:, order]


Floats = NDArray[np.float64]

_OCTAVES = np.arange(1, 25 + 1 / 32, 1 / 16)  # t = 2^τ of the scale-invariant signature


def heat_kernel_signature(spectrum: Spectrum, times: NDArray[np.float64]) -> Floats:
    r"""How much heat stays at a point, $h(x, t) = \sum_k e^{-\lambda_k t} \phi_k(x)^2$, shape (n, times).

    Args:
        spectrum: Eigenpairs of the surface.
        times: $t$, in squared units of the mesh; heat has spread about $2\sqrt t$ by then.

    References:
        J. Sun, M. Ovsjanikov, L. Guibas. "A concise and provably informative multi-scale signature based on heat
        diffusion." SGP 2009.
    """
    return np.square(spectrum.vectors) @ np.exp(-np.outer(spectrum.values, times))


def scale_invariant_signature(spectrum: Spectrum, n: int = 6) -> Floats:
    r"""The heat kernel signature without the size of the surface, shape (n points, ``n``).

    Scaling by $s$ shifts $\log h(x, 2^\tau)$ along $\tau$ and adds a constant. The derivative in $\tau$ removes the
    constant, the modulus of the Fourier transform the shift; its ``n`` lowest frequencies are kept.

    Args:
        spectrum: Eigenpairs of the surface.
        n: Frequencies.

    References:
        M. M. Bronstein, I. Kokkinos. "Scale-invariant heat kernel signatures for non-rigid shape recognition."
        CVPR 2010.
    """
    heat = heat_kernel_signature(spectrum, 2.0**_OCTAVES)
    slope = np.diff(np.log(np.maximum(heat, np.finfo(float).tiny)), axis=1)
    return np.asarray(np.abs(np.fft.rfft(slope, axis=1))[:, :n])


@dataclass(frozen=True, eq=False)
class Heat:
    r"""A surface as its bags of features see it: patches of points with one signature each.

    Bags depend on a point $x$ through its signature $h(x)$ alone, and on the heat kernel between words through
    $\sum_x a(x)\,\theta(h(x))\,\phi_k(x)$. So points of nearly the same signature may share one, and only
    sums over them are kept. The area and the integrals of eigenvectors stay what they were, so sums of bags are exact.

    Attributes:
        areas: $\sum a(x)$ of each patch, shape (p,).
        signatures: Mean of $h(x)$ by area, shape (p, d).
        integrals: $\sum a(x)\,\phi_k(x)$ of each patch, shape (p, k).
        values: $\lambda_k$, shape (k,).
    """

    areas: Floats
    signatures: Floats
    integrals: Floats
    values: Floats

    @classmethod
    def of(cls, spectrum: Spectrum, signatures: Floats, *, patches: int | None = None) -> Self:
        """Heat of a surface.

        Args:
            spectrum: Its eigenpairs.
            signatures: One for each vertex.
            patches: At most so many; nothing: every vertex is one.
        """
        n = len(spectrum.areas)
        patch = np.arange(n) if patches is None or n <= patches else _alike(signatures, patches)
        areas = _sums(spectrum.areas[:, None], patch)
        means = _sums(spectrum.areas[:, None] * signatures, patch) / areas
        return cls(
            areas[:, 0],
            means,
            _sums(spectrum.areas[:, None] * spectrum.vectors, patch),
            spectrum.values,
        )

    def flat(self, patches: int, n_values: int) -> NDArray[np.float32]:
        """As one row of a width that only depends on the arguments and the signature; what is not there is 0."""
        p, d, k = len(self.areas), self.signatures.shape[1], min(len(self.values), n_values)
        table = np.zeros((patches, 1 + d + n_values), np.float32)
        table[:p, 0], table[:p, 1 : 1 + d], table[:p, 1 + d : 1 + d + k] = (
            self.areas,
            self.signatures,
            self.integrals[:, :k],
        )
        values = np.zeros(n_values, np.float32)
        values[:k] = self.values[:k]
        return np.concatenate([values, table.ravel()])

    @classmethod
    def unflat(cls, row: NDArray[np.float32], patches: int, n_values: int) -> Self:
        """The inverse of `flat`."""
        values, table = (
            row[:n_values].astype(np.float64),
            row[n_values:].reshape(patches, -1).astype(np.float64),
        )
        table = table[table[:, 0] > 0]
        d = table.shape[1] - 1 - n_values
        return cls(table[:, 0], table[:, 1 : 1 + d], table[:, 1 + d :], values)


def _sums(rows: Floats, patch: NDArray[np.int64]) -> Floats:
    order = np.argsort(patch, kind="stable")
    starts = np.flatnonzero(np.r_[True, np.diff(patch[order]) > 0])
    return np.asarray(np.add.reduceat(rows[order], starts, axis=0))


def _alike(signatures: Floats, patches: int) -> NDArray[np.int64]:
    """Number of the patch of each point: halved again and again where signatures differ most."""
    patch = np.zeros(len(signatures), np.int64)
    scaled = signatures / np.maximum(signatures.std(axis=0), 1e-300)
    for _ in range(patches.bit_length() - 1):
        halves = np.zeros(len(signatures), np.int64)
        for number in range(patch.max() + 1):
            points = np.flatnonzero(patch == number)
            widest = np.ptp(scaled[points], axis=0).argmax()
            halves[
                points[np.argsort(scaled[points, widest], kind="stable")[len(points) // 2 :]]
            ] = 1
        patch = 2 * patch + halves
    return patch

"""Laplace–Beltrami eigenpairs of a surface: its vibrations, which bending does not change."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbit._validation import whole_number
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
    whole_number(n_pairs, "the number of eigenpairs", least=1)
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

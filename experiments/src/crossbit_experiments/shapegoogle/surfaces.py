"""What is done to surfaces by transformations and distractors alike: scaling, cutting, distances, fewer points."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbit.errors import MissingExtraError
from crossbit.features.shape import Mesh, clean

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

VERTICES = 2500  # heat that has spread as long as our signatures look sees no smaller detail, and is found quickly


def scaled(mesh: Mesh, factor: float) -> Mesh:
    """The mesh, so many times as large."""
    return Mesh(mesh.vertices * factor, mesh.faces)


def without(mesh: Mesh, removed: NDArray[np.bool_]) -> Mesh:
    """The largest connected piece that is left when the triangles around some vertices are taken away."""
    kept = clean(mesh.vertices, mesh.faces[~removed[mesh.faces].any(axis=1)])
    _, piece = _graph("connected_components")(_lengths(kept), directed=False)
    largest = np.bincount(piece, kept.vertex_areas()).argmax()
    return clean(kept.vertices, kept.faces[piece[kept.faces[:, 0]] == largest])


def distances(mesh: Mesh, sources: Ints) -> Floats:
    """From some vertices to all others along edges, shape (sources, n)."""
    return np.asarray(_graph("dijkstra")(_lengths(mesh), directed=False, indices=sources))


def coarsen(mesh: Mesh, n: int, *, seed: int, rounds: int = 3) -> Mesh:
    """The mesh with ``n`` of its vertices, spread evenly: the dual of their Voronoi cells.

    Args:
        mesh: The surface.
        n: Vertices to keep.
        seed: Of those to begin with.
        rounds: How often a cell moves to its middle.
    """
    lengths = _lengths(mesh)
    areas = mesh.vertex_areas()
    chosen = np.random.default_rng(seed).choice(len(areas), n, replace=False, p=areas / areas.sum())
    for _ in range(rounds):
        cell = _cells(lengths, chosen)
        sums = np.stack([np.bincount(cell, areas * axis, n) for axis in mesh.vertices.T], axis=1)
        middle = sums / np.bincount(cell, areas, n)[:, None]
        away = np.linalg.norm(mesh.vertices - middle[cell], axis=1)
        order = np.lexsort((away, cell))
        chosen = order[np.r_[True, np.diff(cell[order]) > 0]]
    return clean(mesh.vertices[chosen], _cells(lengths, chosen)[mesh.faces])


def _cells(lengths: Any, centers: Ints) -> Ints:  # noqa: ANN401 - a sparse matrix
    """For each vertex the number of the center that is nearest along edges."""
    _, _, nearest = _graph("dijkstra")(
        lengths, directed=False, indices=centers, min_only=True, return_predecessors=True
    )
    number = np.full(lengths.shape[0], -1)
    number[centers] = np.arange(len(centers))
    return np.asarray(np.where(nearest >= 0, number[nearest], 0), np.int64)


def _lengths(mesh: Mesh) -> Any:  # noqa: ANN401 - a sparse matrix
    """Lengths of edges, as a graph."""
    try:
        from scipy.sparse import csr_array
    except ImportError as error:
        raise MissingExtraError("scipy", "shape") from error
    a, b = mesh.edges().T
    length = np.maximum(np.linalg.norm(mesh.vertices[a] - mesh.vertices[b], axis=1), 1e-12)
    n = len(mesh.vertices)
    return csr_array((np.r_[length, length], (np.r_[a, b], np.r_[b, a])), shape=(n, n))


def _graph(name: str) -> Any:  # noqa: ANN401 - a function of SciPy
    from scipy.sparse import csgraph

    return getattr(csgraph, name)

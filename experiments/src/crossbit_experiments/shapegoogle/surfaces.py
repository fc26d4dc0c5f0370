"""What is done to surfaces by transformations and distractors alike: scaling, cutting, distances, fewer points."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbit.errors import MissingExtraError
from crossbit.features.shape import Mesh, clean_mesh

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

VERTICES = 2500  # heat that has spread as long as our signatures look sees no smaller detail, and is found quickly


def scaled(mesh: Mesh, factor: float) -> Mesh:
    """The mesh, so many times as large."""
    return Mesh(mesh.vertices * factor, mesh.faces)


def without(mesh: Mesh, removed: NDArray[np.bool_]) -> Mesh:
    """The largest connected piece that is left when the triangles around some vertices are taken away."""
    kept = clean_mesh(mesh.vertices, mesh.faces[~removed[mesh.faces].any(axis=1)])
    _, piece = _graph("connected_components")(_lengths(kept), directed=False)
    largest = np.bincount(piece, kept.vertex_areas()).argmax()
    return clean_mesh(kept.vertices, kept.faces[piece[kept.faces[:, 0]] == largest])


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
    return clean_mesh(mesh.vertices[chosen], _cells(lengths, chosen)[mesh.faces])


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


_CORNERS = np.array([[i, j, k] for i in (0, 1) for j in (0, 1) for k in (0, 1)])
_EDGES = [
    (a, b)
    for a in range(8)
    for b in range(a + 1, 8)
    if np.abs(_CORNERS[a] - _CORNERS[b]).sum() == 1
]


def ball(rounds: int = 5) -> Mesh:
    """A unit sphere: an octahedron, its triangles cut into four again and again, blown up."""
    vertices = np.concatenate([np.eye(3), -np.eye(3)])
    faces = np.array(
        [[0, 1, 2], [1, 3, 2], [3, 4, 2], [4, 0, 2], [1, 0, 5], [3, 1, 5], [4, 3, 5], [0, 4, 5]]
    )
    for _ in range(rounds):
        a, b, c = faces.T
        sides = np.sort(
            np.concatenate([np.stack(pair, axis=1) for pair in ((a, b), (b, c), (c, a))]), axis=1
        )
        edges, number = np.unique(sides, axis=0, return_inverse=True)
        ab, bc, ca = (len(vertices) + number).reshape(3, -1)
        vertices = np.concatenate([vertices, vertices[edges].mean(axis=1)])
        faces = np.concatenate(
            [np.stack(f, axis=1) for f in ((a, ab, ca), (ab, b, bc), (ca, bc, c), (ab, bc, ca))]
        )
    return clean_mesh(vertices / np.linalg.norm(vertices, axis=1, keepdims=True), faces)


def grid(rows: int, columns: int, *, closed: tuple[bool, bool] = (True, True)) -> Ints:
    """Triangles of a grid of vertices, numbered row by row; a closed side is glued to the opposite one."""
    i, j = np.mgrid[0 : rows - (not closed[0]), 0 : columns - (not closed[1])].reshape(2, -1)
    down, right = (i + 1) % rows, (j + 1) % columns
    a, b, c, d = (u * columns + v for u, v in ((i, j), (down, j), (down, right), (i, right)))
    return np.concatenate([np.stack([a, b, c], axis=1), np.stack([a, c, d], axis=1)]).astype(
        np.int64
    )


def tube(curve: Floats, radius: Floats, around: int = 24) -> Mesh:
    """A tube around a closed curve, with a radius at each of its points."""
    tangent = np.roll(curve, -1, axis=0) - np.roll(curve, 1, axis=0)
    tangent /= np.linalg.norm(tangent, axis=1, keepdims=True)
    normal = _carried(tangent)
    side = np.cross(tangent, normal)
    angle = np.linspace(0, 2 * np.pi, around, endpoint=False)
    ring = (
        np.cos(angle)[None, :, None] * normal[:, None]
        + np.sin(angle)[None, :, None] * side[:, None]
    )
    vertices = curve[:, None] + radius[:, None, None] * ring
    return clean_mesh(vertices.reshape(-1, 3), grid(len(curve), around))


def _carried(tangent: Floats) -> Floats:
    """A normal carried along a closed curve, its twist spread so that it meets itself."""
    normal = np.empty_like(tangent)
    normal[0] = np.cross(tangent[0], np.eye(3)[np.abs(tangent[0]).argmin()])
    for k in range(1, len(tangent)):
        normal[k] = normal[k - 1] - (normal[k - 1] @ tangent[k]) * tangent[k]
        normal[k] /= np.linalg.norm(normal[k])
    normal[0] /= np.linalg.norm(normal[0])
    side = np.cross(tangent, normal)
    end = normal[-1] - (normal[-1] @ tangent[0]) * tangent[0]
    twist = np.arctan2(end @ side[0], end @ normal[0]) * np.arange(len(tangent)) / len(tangent)
    return np.asarray(np.cos(twist)[:, None] * normal - np.sin(twist)[:, None] * side)


def inside(field: Callable[[Floats], Floats], low: Floats, high: Floats, cells: int = 56) -> Mesh:
    """The surface on which a function of space is 0, as quads between the cells of a grid that it passes.

    Each such cell has a vertex, the mean of the places where the surface cuts its edges; each cut edge of the grid
    joins the four cells around it.

    Args:
        field: Points (n, 3) → values, negative inside.
        low: Corner of the box, outside.
        high: The opposite corner.
        cells: Along the longest side.
    """
    step = float((high - low).max()) / cells
    shape = np.ceil((high - low) / step).astype(int) + 1
    points = low + step * np.stack(np.meshgrid(*map(np.arange, shape), indexing="ij"), axis=-1)
    values = field(points.reshape(-1, 3)).reshape(shape)
    inner = tuple(shape - 1)
    corner = [values[i : i + inner[0], j : j + inner[1], k : k + inner[2]] for i, j, k in _CORNERS]
    sums, cuts = np.zeros((*inner, 3)), np.zeros(inner)
    for a, b in _EDGES:
        cut = (corner[a] < 0) != (corner[b] < 0)
        gap = np.where(cut, corner[a] - corner[b], 1.0)
        place = _CORNERS[a] + np.where(cut, corner[a] / gap, 0.0)[..., None] * (
            _CORNERS[b] - _CORNERS[a]
        )
        sums += np.where(cut[..., None], place, 0.0)
        cuts += cut
    passed = cuts > 0
    number = np.cumsum(passed.ravel()).reshape(inner) - 1
    vertices = low + step * (np.argwhere(passed) + sums[passed] / cuts[passed][:, None])
    return clean_mesh(vertices, np.concatenate([_quads(values, number, axis) for axis in range(3)]))


def _quads(values: Floats, number: Ints, axis: int) -> Ints:
    """Two triangles for each edge of the grid along an axis that the surface cuts."""
    moved, cells = np.moveaxis(values, axis, 0), np.moveaxis(number, axis, 0)
    cut = (moved[:-1, 1:-1, 1:-1] < 0) != (moved[1:, 1:-1, 1:-1] < 0)
    x, y, z = np.nonzero(cut)
    a, b, c, d = cells[x, y, z], cells[x, y + 1, z], cells[x, y + 1, z + 1], cells[x, y, z + 1]
    outward = (moved[:-1, 1:-1, 1:-1] < 0)[cut] == (axis != 1)
    first = np.where(outward[:, None], np.stack([a, b, c], axis=1), np.stack([a, c, b], axis=1))
    second = np.where(outward[:, None], np.stack([a, c, d], axis=1), np.stack([a, d, c], axis=1))
    return np.concatenate([first, second])

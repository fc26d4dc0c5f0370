"""Operations on surfaces (scaling, cutting, distances, coarsening), and surfaces from formulas."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbit.errors import MissingExtraError
from crossbit.features.shape import Mesh

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# Heat diffused for as long as our signatures measure resolves no smaller detail.
VERTICES = 2500

_CORNERS = np.array([[i, j, k] for i in (0, 1) for j in (0, 1) for k in (0, 1)])
_EDGES = [
    (a, b)
    for a in range(8)
    for b in range(a + 1, 8)
    if np.abs(_CORNERS[a] - _CORNERS[b]).sum() == 1
]


def scaled(mesh: Mesh, factor: float) -> Mesh:
    """Return the mesh with its coordinates multiplied by a factor."""
    return Mesh(mesh.vertices * factor, mesh.faces)


def without(mesh: Mesh, removed: NDArray[np.bool_]) -> Mesh:
    """Remove vertices with their triangles and return the largest connected piece."""
    rest = Mesh.clean(mesh.vertices, mesh.faces[~removed[mesh.faces].any(axis=1)])
    _, piece = _csgraph("connected_components")(_edge_graph(rest), directed=False)
    largest = np.bincount(piece, rest.vertex_areas()).argmax()
    return Mesh.clean(rest.vertices, rest.faces[piece[rest.faces[:, 0]] == largest])


def distances(mesh: Mesh, sources: Ints) -> Floats:
    """Shortest paths along edges from some vertices to all, shape (sources, n)."""
    return np.asarray(_csgraph("dijkstra")(_edge_graph(mesh), directed=False, indices=sources))


def coarsen(mesh: Mesh, n: int, *, seed: int, rounds: int = 3) -> Mesh:
    """Reduce a mesh to ``n`` evenly spread vertices: the dual of their Voronoi cells.

    Args:
        mesh: The surface.
        n: Number of vertices to keep.
        seed: Seed of the initial vertices.
        rounds: Rounds of Lloyd's algorithm.
    """
    graph = _edge_graph(mesh)
    areas = mesh.vertex_areas()
    random = np.random.default_rng(seed)
    chosen = random.choice(len(areas), n, replace=False, p=areas / areas.sum())
    for _ in range(rounds):
        cell = _voronoi_cells(graph, chosen)
        sums = np.stack([np.bincount(cell, areas * axis, n) for axis in mesh.vertices.T], axis=1)
        center = sums / np.bincount(cell, areas, n)[:, None]
        away = np.linalg.norm(mesh.vertices - center[cell], axis=1)
        # The vertex nearest to the centroid of its cell becomes the next center.
        order = np.lexsort((away, cell))
        chosen = order[np.r_[True, np.diff(cell[order]) > 0]]
    return Mesh.clean(mesh.vertices[chosen], _voronoi_cells(graph, chosen)[mesh.faces])


def _voronoi_cells(graph: Any, centers: Ints) -> Ints:  # noqa: ANN401 - a sparse matrix
    """For each vertex the number of the center that is nearest along edges."""
    _, _, nearest = _csgraph("dijkstra")(
        graph, directed=False, indices=centers, min_only=True, return_predecessors=True
    )
    number = np.full(graph.shape[0], -1)
    number[centers] = np.arange(len(centers))
    return np.asarray(np.where(nearest >= 0, number[nearest], 0), np.int64)


def _edge_graph(mesh: Mesh) -> Any:  # noqa: ANN401 - a sparse matrix
    """Sparse symmetric matrix of edge lengths."""
    try:
        from scipy.sparse import csr_array
    except ImportError as error:
        raise MissingExtraError("scipy") from error
    a, b = mesh.edges().T
    # A sparse matrix drops zeros, so degenerate edges get a tiny length.
    length = np.maximum(np.linalg.norm(mesh.vertices[a] - mesh.vertices[b], axis=1), 1e-12)
    n = len(mesh.vertices)
    return csr_array((np.r_[length, length], (np.r_[a, b], np.r_[b, a])), shape=(n, n))


def _csgraph(name: str) -> Any:  # noqa: ANN401 - a function of SciPy
    from scipy.sparse import csgraph

    return getattr(csgraph, name)


def ball(rounds: int = 5) -> Mesh:
    """A unit sphere: an octahedron with its triangles subdivided and projected."""
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
    return Mesh.clean(vertices / np.linalg.norm(vertices, axis=1, keepdims=True), faces)


def grid_faces(rows: int, columns: int, *, closed: tuple[bool, bool] = (True, True)) -> Ints:
    """Triangles of a grid of vertices numbered row by row; a closed side joins the opposite one."""
    i, j = np.mgrid[0 : rows - (not closed[0]), 0 : columns - (not closed[1])].reshape(2, -1)
    down = (i + 1) % rows
    right = (j + 1) % columns
    a, b, c, d = (u * columns + v for u, v in ((i, j), (down, j), (down, right), (i, right)))
    triangles = np.concatenate([np.stack([a, b, c], axis=1), np.stack([a, c, d], axis=1)])
    return triangles.astype(np.int64)


def tube(curve: Floats, radius: Floats, around: int = 24) -> Mesh:
    """A tube around a closed curve, with a radius at each point of the curve."""
    tangent = np.roll(curve, -1, axis=0) - np.roll(curve, 1, axis=0)
    tangent /= np.linalg.norm(tangent, axis=1, keepdims=True)
    normal = _parallel_normals(tangent)
    side = np.cross(tangent, normal)
    angle = np.linspace(0, 2 * np.pi, around, endpoint=False)
    ring = (
        np.cos(angle)[None, :, None] * normal[:, None]
        + np.sin(angle)[None, :, None] * side[:, None]
    )
    vertices = curve[:, None] + radius[:, None, None] * ring
    return Mesh.clean(vertices.reshape(-1, 3), grid_faces(len(curve), around))


def _parallel_normals(tangent: Floats) -> Floats:
    """Transport a normal along a closed curve and spread its twist so that the ends meet."""
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


def isosurface(
    field: Callable[[Floats], Floats], low: Floats, high: Floats, cells: int = 56
) -> Mesh:
    """The surface on which a function of space is 0, by surface nets.

    Each grid cell that the surface crosses has one vertex, the mean of the points where the surface
    crosses its edges; each crossed edge of the grid joins the four cells around it.

    Args:
        field: Points (n, 3) → values, negative inside.
        low: A corner of the bounding box, outside the surface.
        high: The opposite corner.
        cells: Number of cells along the longest side.
    """
    step = float((high - low).max()) / cells
    shape = np.ceil((high - low) / step).astype(int) + 1
    points = low + step * np.stack(np.meshgrid(*map(np.arange, shape), indexing="ij"), axis=-1)
    values = field(points.reshape(-1, 3)).reshape(shape)
    inner = tuple(shape - 1)
    corner = [values[i : i + inner[0], j : j + inner[1], k : k + inner[2]] for i, j, k in _CORNERS]
    sums = np.zeros((*inner, 3))
    crossings = np.zeros(inner)
    for a, b in _EDGES:
        crossed = (corner[a] < 0) != (corner[b] < 0)
        gap = np.where(crossed, corner[a] - corner[b], 1.0)
        along = np.where(crossed, corner[a] / gap, 0.0)[..., None]
        point = _CORNERS[a] + along * (_CORNERS[b] - _CORNERS[a])
        sums += np.where(crossed[..., None], point, 0.0)
        crossings += crossed
    on_surface = crossings > 0
    number = np.cumsum(on_surface.ravel()).reshape(inner) - 1
    means = sums[on_surface] / crossings[on_surface][:, None]
    vertices = low + step * (np.argwhere(on_surface) + means)
    faces = np.concatenate([_quads(values, number, axis) for axis in range(3)])
    return Mesh.clean(vertices, faces)


def _quads(values: Floats, number: Ints, axis: int) -> Ints:
    """Two triangles for each grid edge along an axis that the surface crosses."""
    moved = np.moveaxis(values, axis, 0)
    cells = np.moveaxis(number, axis, 0)
    crossed = (moved[:-1, 1:-1, 1:-1] < 0) != (moved[1:, 1:-1, 1:-1] < 0)
    x, y, z = np.nonzero(crossed)
    a = cells[x, y, z]
    b = cells[x, y + 1, z]
    c = cells[x, y + 1, z + 1]
    d = cells[x, y, z + 1]
    outward = ((moved[:-1, 1:-1, 1:-1] < 0)[crossed] == (axis != 1))[:, None]
    first = np.where(outward, np.stack([a, b, c], axis=1), np.stack([a, c, b], axis=1))
    second = np.where(outward, np.stack([a, c, d], axis=1), np.stack([a, d, c], axis=1))
    return np.concatenate([first, second])

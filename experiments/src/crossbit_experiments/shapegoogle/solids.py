"""Surfaces made of formulas: balls, rings, tubes, and whatever a function of space is negative inside of."""

from collections.abc import Callable

import numpy as np

from crossbit.features.shape import Mesh, clean
from crossbit_experiments.shapegoogle.surfaces import Floats, Ints

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
    return clean(vertices / np.linalg.norm(vertices, axis=1, keepdims=True), faces)


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
    return clean(vertices.reshape(-1, 3), grid(len(curve), around))


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
    return clean(vertices, np.concatenate([_quads(values, number, axis) for axis in range(3)]))


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

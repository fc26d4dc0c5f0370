"""Surfaces whose vibrations are known."""

import numpy as np

from crossbit.features.shape import Mesh, clean


def sphere(rounds: int = 4, radius: float = 1.0) -> Mesh:
    """An octahedron, each triangle cut into four again and again, blown up to a sphere."""
    vertices = np.concatenate([np.eye(3), -np.eye(3)])
    faces = np.array([[0, 1, 2], [1, 3, 2], [3, 4, 2], [4, 0, 2], [1, 0, 5], [3, 1, 5], [4, 3, 5], [0, 4, 5]])
    for _ in range(rounds):
        a, b, c = (faces[:, k] for k in range(3))
        sides = np.sort(np.concatenate([np.stack(pair, axis=1) for pair in ((a, b), (b, c), (c, a))]), axis=1)
        edges, number = np.unique(sides, axis=0, return_inverse=True)
        ab, bc, ca = (len(vertices) + number).reshape(3, -1)
        vertices = np.concatenate([vertices, vertices[edges].mean(axis=1)])
        faces = np.concatenate([np.stack(f, axis=1) for f in ((a, ab, ca), (ab, b, bc), (ca, bc, c), (ab, bc, ca))])
    return clean(radius * vertices / np.linalg.norm(vertices, axis=1, keepdims=True), faces)


def grid(rows: int, columns: int, *, closed: bool) -> "np.ndarray[tuple[int, int], np.dtype[np.int64]]":
    """Triangles of a grid of rows × columns vertices, its sides glued where it is closed."""
    i, j = np.mgrid[0 : rows - (not closed), 0 : columns - (not closed)].reshape(2, -1)
    down, right = (i + 1) % rows, (j + 1) % columns
    a, b, c, d = (u * columns + v for u, v in ((i, j), (down, j), (down, right), (i, right)))
    return np.concatenate([np.stack([a, b, c], axis=1), np.stack([a, c, d], axis=1)])


def flat_torus(n: int, width: float, height: float) -> Mesh:
    """A flat torus, folded flat: layers lie on each other, but lengths of edges are those of the torus."""
    fold = np.abs(np.arange(n) - n / 2) / n  # goes to and fro once around
    x, y = np.meshgrid(width * fold, height * fold, indexing="ij")
    vertices = np.stack([x.ravel(), y.ravel(), np.zeros(n * n)], axis=1)
    return Mesh(vertices, grid(n, n, closed=True).astype(np.int64))


def sheet(n: int = 20, bend: float = 0.0) -> Mesh:
    """A sheet of 2 × 1; ``bend`` folds it along its middle by that angle, which stretches nothing."""
    x, y = np.meshgrid(np.linspace(-1, 1, 2 * n + 1), np.linspace(0, 1, n + 1), indexing="ij")
    right = np.maximum(x, 0)
    vertices = np.stack([np.where(x < 0, x, right * np.cos(bend)), y, right * np.sin(bend)], axis=-1).reshape(-1, 3)
    return clean(vertices, grid(2 * n + 1, n + 1, closed=False))

"""Surfaces whose Laplace–Beltrami spectra are known."""

import numpy as np

from crossbit.features.shape import Mesh
from crossbit_experiments.shapegoogle.surfaces import ball, grid_faces, scaled


def sphere(rounds: int = 4, radius: float = 1.0) -> Mesh:
    """Return a sphere."""
    return scaled(ball(rounds), radius)


def flat_torus(n: int, width: float, height: float) -> Mesh:
    """Return a flat torus, folded so that layers coincide but edge lengths are preserved."""
    fold = np.abs(np.arange(n) - n / 2) / n  # back and forth once around
    x, y = np.meshgrid(width * fold, height * fold, indexing="ij")
    vertices = np.stack([x.ravel(), y.ravel(), np.zeros(n * n)], axis=1)
    return Mesh(vertices, grid_faces(n, n))


def sheet(n: int = 20, bend: float = 0.0) -> Mesh:
    """Return a sheet of 2 × 1, folded along its middle by the angle ``bend``."""
    x, y = np.meshgrid(np.linspace(-1, 1, 2 * n + 1), np.linspace(0, 1, n + 1), indexing="ij")
    right = np.maximum(x, 0)
    vertices = np.stack(
        [np.where(x < 0, x, right * np.cos(bend)), y, right * np.sin(bend)], axis=-1
    ).reshape(-1, 3)
    return Mesh.clean(vertices, grid_faces(2 * n + 1, n + 1, closed=(False, False)))

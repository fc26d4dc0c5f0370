"""Surfaces whose vibrations are known."""

import numpy as np

from crossbit.features.shape import Mesh, clean_mesh
from crossbit_experiments.shapegoogle.surfaces import ball, grid, scaled


def sphere(rounds: int = 4, radius: float = 1.0) -> Mesh:
    """A sphere of a radius."""
    return scaled(ball(rounds), radius)


def flat_torus(n: int, width: float, height: float) -> Mesh:
    """A flat torus, folded flat: layers lie on each other, but lengths of edges are those of the torus."""
    fold = np.abs(np.arange(n) - n / 2) / n  # goes to and fro once around
    x, y = np.meshgrid(width * fold, height * fold, indexing="ij")
    vertices = np.stack([x.ravel(), y.ravel(), np.zeros(n * n)], axis=1)
    return Mesh(vertices, grid(n, n))


def sheet(n: int = 20, bend: float = 0.0) -> Mesh:
    """A sheet of 2 × 1; ``bend`` folds it along its middle by that angle, which stretches nothing."""
    x, y = np.meshgrid(np.linspace(-1, 1, 2 * n + 1), np.linspace(0, 1, n + 1), indexing="ij")
    right = np.maximum(x, 0)
    vertices = np.stack(
        [np.where(x < 0, x, right * np.cos(bend)), y, right * np.sin(bend)], axis=-1
    ).reshape(-1, 3)
    return clean_mesh(vertices, grid(2 * n + 1, n + 1, closed=(False, False)))

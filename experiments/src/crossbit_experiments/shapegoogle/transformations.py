"""Nine transformations of a surface, of any strength.

`MAGNITUDES` defines what a strength of 1 means for each kind. The unit of length is the square root
of the surface area, so that lengths are comparable for a cat and a horse.
"""

from collections.abc import Callable

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from crossbit.features.shape import Mesh
from crossbit_experiments.shapegoogle.surfaces import Floats, coarsen, distances, scaled, without

Transformation = Callable[[Mesh, float, Generator], Mesh]

MAGNITUDES = {
    "noise": 0.006,  # standard deviation of the displacement along normals
    "shot noise": 0.02,  # share of the vertices displaced, by up to a tenth of the unit
    "holes": 0.06,  # share of the area removed, in five holes
    "micro-holes": 0.03,  # share of the vertices removed
    "scale": 0.10,  # relative growth or shrinkage of the shape
    "local scale": 0.5,  # relative growth or shrinkage of three regions
    "sampling": 0.85,  # share of the vertices removed by coarsening
    "topology": 0.08,  # radius of up to three patches glued where the surface is near itself
    "partiality": 0.12,  # share of the area cut off by a plane
}
"""Kind → effect of a strength of 1."""


def transform(mesh: Mesh, kind: str, strength: float, seed: int | list[int]) -> Mesh:
    """Transform a surface.

    Args:
        mesh: The surface.
        kind: One of `MAGNITUDES`.
        strength: Multiple of the magnitude.
        seed: Seed of positions and directions.
    """
    return _KINDS[kind](mesh, strength * MAGNITUDES[kind], np.random.default_rng(seed))


def _unit(mesh: Mesh) -> float:
    return float(mesh.area**0.5)


def _displace(mesh: Mesh, by: Floats) -> Mesh:
    return Mesh(mesh.vertices + by[:, None] * mesh.vertex_normals(), mesh.faces)


def _noise(mesh: Mesh, deviation: float, random: Generator) -> Mesh:
    return _displace(mesh, deviation * _unit(mesh) * random.normal(size=len(mesh.vertices)))


def _shot_noise(mesh: Mesh, share: float, random: Generator) -> Mesh:
    displaced = random.random(len(mesh.vertices)) < share
    return _displace(
        mesh, displaced * 0.1 * _unit(mesh) * random.uniform(-1, 1, len(mesh.vertices))
    )


def _holes(mesh: Mesh, share: float, random: Generator) -> Mesh:
    removed = np.zeros(len(mesh.vertices), np.bool_)
    for away in distances(mesh, random.choice(len(removed), 5, replace=False)):
        removed |= _lowest(mesh, away, share / 5)
    return without(mesh, removed)


def _lowest(mesh: Mesh, height: Floats, share: float) -> NDArray[np.bool_]:
    """Select the vertices with the smallest heights that make up a share of the area."""
    areas = mesh.vertex_areas()
    order = np.argsort(height, kind="stable")
    count = int(np.searchsorted(np.cumsum(areas[order]), share * areas.sum()))
    lowest = np.zeros(len(height), np.bool_)
    lowest[order[: max(1, count)]] = True
    return lowest


def _micro_holes(mesh: Mesh, share: float, random: Generator) -> Mesh:
    return without(mesh, random.random(len(mesh.vertices)) < share)


def _scale(mesh: Mesh, share: float, random: Generator) -> Mesh:
    return scaled(mesh, (1 + share) ** random.choice([-1, 1]))


def _local_scale(mesh: Mesh, share: float, random: Generator) -> Mesh:
    vertices = mesh.vertices.copy()
    for away in distances(mesh, random.choice(len(vertices), 3, replace=False)):
        far = away / (0.25 * _unit(mesh))
        weight = np.where(np.isfinite(far), np.exp(-np.square(np.minimum(far, 40))), 0.0)[:, None]
        middle = (weight * mesh.vertices).sum(axis=0) / weight.sum()
        vertices += weight * (vertices - middle) * ((1 + share) ** random.choice([-1, 1]) - 1)
    return Mesh(vertices, mesh.faces)


def _sampling(mesh: Mesh, share: float, random: Generator) -> Mesh:
    return coarsen(
        mesh, max(200, round((1 - share) * len(mesh.vertices))), seed=int(random.integers(1 << 31))
    )


def _topology(mesh: Mesh, radius: float, random: Generator) -> Mesh:
    """Glue patches to parts that are near in space but far along the surface, if there are any."""
    unit = _unit(mesh)
    vertices = mesh.vertices
    centers = random.choice(len(vertices), 60, replace=False)
    along = distances(mesh, centers)
    across = np.linalg.norm(vertices[centers, None] - vertices, axis=2)
    gaps = np.where(along > 0.5 * unit, across, np.inf)
    # Gluing merges vertices, which changes the topology of the surface.
    new = np.arange(len(vertices))
    for center in np.argsort(gaps.min(axis=1), kind="stable")[:3]:
        if gaps[center].min() < 0.05 * unit:
            patch = np.flatnonzero(along[center] <= radius * unit)
            far = np.flatnonzero(along[center] > 0.5 * unit)
            apart = np.linalg.norm(vertices[patch, None] - vertices[far], axis=2)
            new[patch] = new[far[apart.argmin(axis=1)]]
    return Mesh.clean(vertices, new[mesh.faces])


def _partiality(mesh: Mesh, share: float, random: Generator) -> Mesh:
    """Cut off a part with a plane and keep the largest piece."""
    direction = random.normal(size=3)
    height = mesh.vertices @ (direction / np.linalg.norm(direction))
    return without(mesh, _lowest(mesh, height, share))


_KINDS: dict[str, Transformation] = {
    "noise": _noise,
    "shot noise": _shot_noise,
    "holes": _holes,
    "micro-holes": _micro_holes,
    "scale": _scale,
    "local scale": _local_scale,
    "sampling": _sampling,
    "topology": _topology,
    "partiality": _partiality,
}

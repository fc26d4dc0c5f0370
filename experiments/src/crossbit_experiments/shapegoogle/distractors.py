"""Distractors: shapes of twelve families of formulas, in the sizes of the classes."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.random import Generator

from crossbit.features.shape import Mesh
from crossbit_experiments.shapegoogle.surfaces import (
    VERTICES,
    Floats,
    ball,
    coarsen,
    isosurface,
    scaled,
    tube,
)

_Limb = tuple[Floats, Floats, float, float]
"""Start, end, and the thickness at each."""


def distractor(family: str, seed: int | list[int], areas: Sequence[float]) -> Mesh:
    """Generate a shape of a family, about as large as one of the classes.

    Args:
        family: One of `FAMILIES`.
        seed: Seed of form and size.
        areas: Areas of the classes; one is drawn and varied by a fifth.
    """
    random = np.random.default_rng(seed)
    mesh = FAMILIES[family](random)
    mesh = coarsen(mesh, VERTICES, seed=0) if len(mesh.vertices) > VERTICES else mesh
    area = float(random.choice(np.asarray(areas))) * np.exp(0.2 * random.normal())
    return scaled(mesh, (area / mesh.area) ** 0.5)


def _ellipsoid(random: Generator) -> Mesh:
    mesh = ball()
    return Mesh(mesh.vertices * np.exp(random.normal(0, 0.6, 3)), mesh.faces)


def _superquadric(random: Generator) -> Mesh:
    mesh = ball()
    power = np.exp(random.uniform(-1.0, 0.5, 3))
    points = np.sign(mesh.vertices) * np.abs(mesh.vertices) ** power
    return Mesh(points * np.exp(random.normal(0, 0.4, 3)), mesh.faces)


def _wavy_ball(random: Generator) -> Mesh:
    mesh = ball()
    waves = random.normal(0, random.uniform(1.5, 5), (3, 8))
    height = np.sin(mesh.vertices @ waves + random.uniform(0, 6, 8)).mean(axis=1, keepdims=True)
    return Mesh(mesh.vertices * np.exp(random.uniform(0.3, 1.2) * height), mesh.faces)


def _spiky_ball(random: Generator) -> Mesh:
    mesh = ball()
    spikes = random.normal(size=(int(random.integers(4, 14)), 3))
    spikes /= np.linalg.norm(spikes, axis=1, keepdims=True)
    near = np.exp(random.uniform(10, 40) * (mesh.vertices @ spikes.T - 1))
    grown = 1 + near @ random.uniform(0.5, 2.0, len(spikes))
    return Mesh(mesh.vertices * grown[:, None], mesh.faces)


def _ring(random: Generator) -> Mesh:
    angle = np.linspace(0, 2 * np.pi, 160, endpoint=False)
    lobes = int(random.integers(0, 6))
    curve = np.stack([np.cos(angle), random.uniform(0.5, 1) * np.sin(angle), 0 * angle], axis=1)
    return tube(curve, random.uniform(0.1, 0.35) * (1 + 0.3 * np.sin(lobes * angle)))


def _knot(random: Generator) -> Mesh:
    angle = np.linspace(0, 2 * np.pi, 220, endpoint=False)
    waves = [random.normal(size=(3, 2)) / (k + 1) for k in range(4)]
    curve = np.zeros((220, 3))
    for k, wave in enumerate(waves, start=1):
        curve += np.outer(np.cos(k * angle), wave[:, 0]) + np.outer(np.sin(k * angle), wave[:, 1])
    return tube(curve, np.full(220, random.uniform(0.08, 0.25)))


def _vase(random: Generator) -> Mesh:
    mesh = ball()
    profile = np.polynomial.Polynomial(np.r_[1.0, random.normal(0, 0.6, 5)])
    wide = 0.25 + np.abs(profile(mesh.vertices[:, 2]))
    stretched = mesh.vertices * np.array([1, 1, random.uniform(1, 4)])
    return Mesh(stretched * np.stack([wide, wide, np.ones_like(wide)], axis=1), mesh.faces)


def _twisted_bar(random: Generator) -> Mesh:
    mesh = ball()
    box = (
        np.sign(mesh.vertices)
        * np.abs(mesh.vertices) ** 0.35
        * [1, random.uniform(0.2, 0.8), random.uniform(2, 6)]
    )
    turn = random.uniform(0, 1.2) * box[:, 2]
    x = box[:, 0]
    y = box[:, 1]
    bent = np.stack(
        [np.cos(turn) * x - np.sin(turn) * y, np.sin(turn) * x + np.cos(turn) * y, box[:, 2]],
        axis=1,
    )
    return Mesh(bent, mesh.faces)


def _blobs(random: Generator) -> Mesh:
    centers = np.cumsum(random.normal(0, 0.6, (int(random.integers(3, 10)), 3)), axis=0)
    thick = random.uniform(0.25, 0.8, 20)
    return _blend_limbs(
        [(a, b, r, r) for a, b, r in zip(centers[:-1], centers[1:], thick, strict=False)]
    )


def _quadruped(random: Generator) -> Mesh:
    long = random.uniform(1.2, 2.6)
    high = random.uniform(0.7, 2.0)
    wide = random.uniform(0.2, 0.5)
    thick = random.uniform(0.25, 0.55)
    leg = random.uniform(0.08, 0.22)
    body = (
        np.array([0.0, 0, high]),
        np.array([long, 0, high]),
        thick,
        thick * random.uniform(0.7, 1.3),
    )
    limbs: list[_Limb] = [body]
    for x in (0.0, long):
        for y in (-wide, wide):
            knee = np.array([x + random.normal(0, 0.2), y, high / 2])
            foot = np.array([x + random.normal(0, 0.35), y, 0.0])
            limbs += [(np.array([x, y, high]), knee, 1.4 * leg, leg), (knee, foot, leg, leg)]
    neck = np.array([long + random.uniform(0.2, 0.8), 0, high + random.uniform(0.0, 1.2)])
    nose = neck + np.array([random.uniform(0.2, 0.7), 0, -0.1])
    limbs += [(body[1], neck, thick * 0.6, thick * 0.5), (neck, nose, 0.3, 0.15)]
    tail = np.array([-random.uniform(0.2, 1.6), 0, high + random.normal(0, 0.5)])
    return _blend_limbs([*limbs, (body[0], tail, 0.14, 0.08)])


def _biped(random: Generator) -> Mesh:
    high = random.uniform(0.8, 1.6)
    wide = random.uniform(0.25, 0.6)
    arm = random.uniform(0.09, 0.2)
    hips = np.array([0.0, 0, high])
    chest = np.array([0.0, 0, high + random.uniform(0.6, 1.3)])
    head = chest + np.array([0, 0, random.uniform(0.4, 0.7)])
    limbs: list[_Limb] = [
        (hips, chest, random.uniform(0.22, 0.5), random.uniform(0.25, 0.5)),
        (chest, head, 0.15, 0.28),
    ]
    for side in (-wide, wide):
        shoulder = chest + np.array([side, 0, 0])
        hip = hips + np.array([side / 2, 0, 0])
        elbow = shoulder + random.normal([side, 0, -0.4], 0.3)
        knee = hip + random.normal([0, 0, -high / 2], 0.15)
        limbs += [(chest, shoulder, 1.3 * arm, 1.2 * arm), (shoulder, elbow, 1.1 * arm, arm)]
        limbs += [(elbow, elbow + random.normal([side / 2, 0.2, -0.3], 0.3), arm, 0.8 * arm)]
        foot = knee + random.normal([0, 0, -high / 2], 0.1)
        limbs += [(hip, knee, 1.6 * arm, 1.2 * arm), (knee, foot, 1.2 * arm, arm)]
    return _blend_limbs(limbs)


def _tree(random: Generator) -> Mesh:
    ends = [np.zeros(3)]
    limbs: list[_Limb] = []
    for _ in range(int(random.integers(5, 12))):
        start = ends[int(random.integers(len(ends)))]
        ends.append(start + random.normal(0, 0.7, 3) + np.array([0, 0, 0.4]))
        limbs.append((start, ends[-1], *random.uniform(0.1, 0.3, 2)))
    return _blend_limbs(limbs)


def _blend_limbs(limbs: Sequence[_Limb], blend: float = 0.12) -> Mesh:
    """Blend limbs smoothly into one surface."""
    ends = np.array([[a, b] for a, b, _, _ in limbs]).reshape(-1, 3)
    thick = max(max(r, s) for _, _, r, s in limbs) + 3 * blend

    def field(points: Floats) -> Floats:
        near = np.zeros(len(points))
        for a, b, r, s in limbs:
            along = b - a
            share = np.clip((points - a) @ along / max(float(along @ along), 1e-9), 0, 1)
            gap = np.linalg.norm(points - a - share[:, None] * along, axis=1) - (
                r + share * (s - r)
            )
            near += np.exp(-np.clip(gap, -20 * blend, 20 * blend) / blend)
        return np.asarray(-blend * np.log(near))

    return isosurface(field, ends.min(axis=0) - thick, ends.max(axis=0) + thick)


FAMILIES: dict[str, Callable[[Generator], Mesh]] = {
    "ellipsoid": _ellipsoid,
    "superquadric": _superquadric,
    "wavy ball": _wavy_ball,
    "spiky ball": _spiky_ball,
    "ring": _ring,
    "knot": _knot,
    "vase": _vase,
    "twisted bar": _twisted_bar,
    "blobs": _blobs,
    "quadruped": _quadruped,
    "biped": _biped,
    "tree": _tree,
}
"""Family → generator of its shapes."""

"""The shapes of the data set: 583 transformed shapes of twelve classes, and 456 distractors."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from crossbit.errors import DataError
from crossbit.features.shape import Mesh
from crossbit_experiments.shapegoogle.distractors import FAMILIES, distractor
from crossbit_experiments.shapegoogle.surfaces import VERTICES, coarsen, scaled
from crossbit_experiments.shapegoogle.transformations import MAGNITUDES, transform

CLASSES = (
    *("cat", "centaur", "david", "dog", "horse", "michael"),
    *("victoria", "wolf", "gorilla", "person", "lion", "camel"),
)
ISOMETRY = "isometry"
N_SHAPES = 583  # as in the paper
N_DISTRACTORS = 456  # as in the paper
_STEPS = (1, 2, 3, 4, 5)
# Area of a class that TOSCA lacks, in TOSCA's units: that of its animals of the same size.
_AREA = 20_000.0
MIN_POSES = 5
"""A class with fewer poses is no class of the held-out reading: its shapes are distractors."""
_MERGED = {"man": "person", "woman": "person"}


@dataclass(frozen=True)
class Pose:
    """A mesh of a class in some pose.

    Attributes:
        label: Its class.
        path: Its file.
        factor: Factor of its coordinates; the same for all poses of one source.
    """

    label: str
    path: Path
    factor: float = 1.0

    def read(self) -> Mesh:
        """Read the mesh in TOSCA's units, with at most 2,500 vertices."""
        return _read(self)


@lru_cache(maxsize=32)
def _read(pose: Pose) -> Mesh:
    mesh = scaled(Mesh.read(pose.path), pose.factor)
    return coarsen(mesh, VERTICES, seed=0) if len(mesh.vertices) > VERTICES else mesh


def find_poses(folder: Path) -> dict[str, list[Pose]]:
    """Find the poses of each class, those of TOSCA first.

    TOSCA's sizes are kept, because heat kernel signatures depend on size. Meshes of the other
    source have their own units: they are scaled to TOSCA's size of the class, or to that of its
    animals.

    Args:
        folder: Folder with ``tosca`` and ``sumner``.

    Raises:
        DataError: A class has no mesh.
    """
    by_class: dict[str, list[Pose]] = {name: [] for name in CLASSES}
    for path in sorted(folder.glob("tosca/*.off*")):
        if (name := _class_of(path)) in by_class:
            by_class[name].append(Pose(name, path))
    for name, poses in by_class.items():
        paths = sorted(folder.glob(f"sumner/{name}-*.off*"))
        if paths:
            areas = [Mesh.read(pose.path).area for pose in poses]
            area = sum(areas) / len(areas) if areas else _AREA
            reference = next((path for path in paths if "reference" in path.name), paths[0])
            factor = (area / Mesh.read(reference).area) ** 0.5
            poses += [Pose(name, path, factor) for path in paths]
    if missing := [name for name, poses in by_class.items() if not poses]:
        raise DataError(
            f"{folder}: no meshes of {missing}; expected tosca/*.off.gz and sumner/*.off.gz"
            " (see docs/reproduce.md)"
        )
    return by_class


def count_poses(folder: Path) -> dict[str, int]:
    """Class → number of its poses, from the names of the files in ``tosca`` and ``sumner``."""
    counts = dict.fromkeys(CLASSES, 0)
    for path in folder.glob("tosca/*.off*"):
        if (name := _class_of(path)) in counts:
            counts[name] += 1
    for name in CLASSES:
        counts[name] += len(list(folder.glob(f"sumner/{name}-*.off*")))
    return counts


def _class_of(path: Path) -> str:
    name = re.sub(r"\d.*", "", re.sub(r"^\d_", "", path.name)).strip("_-")
    return _MERGED.get(name, name)


@dataclass(frozen=True)
class Shape:
    """One shape of the data set.

    Attributes:
        name: Unique name.
        label: Its class; None for a distractor.
        kind: Its transformation, or the family of a distractor.
        step: Strength of the transformation from 1 to 5; otherwise a number.
        pose: Number of the pose of its class, modulo the number of poses.
    """

    name: str
    label: str | None
    kind: str
    step: int
    pose: int = 0

    def in_train(self, n_poses: Mapping[str, int]) -> bool:
        """Whether it is in the training half: every other pose of a class, every other distractor.

        Args:
            n_poses: Class → number of its poses.
        """
        if self.label is None:
            return self.step % 2 == 0
        return self.pose % n_poses[self.label] % 2 == 0

    @property
    def transformed(self) -> bool:
        """Whether it depends on the strength of the transformations."""
        return self.label is not None and self.kind != ISOMETRY

    def make(self, poses: Mapping[str, Sequence[Pose]], strength: float) -> Mesh:
        """Make the mesh.

        Args:
            poses: Class → its poses.
            strength: Strength of step 5, a multiple of `MAGNITUDES`.
        """
        seed = list(self.name.encode())
        if self.label is None:
            areas = _class_areas(tuple(tuple(of_class) for of_class in poses.values()))
            return distractor(self.kind, seed, areas)
        own_poses = poses[self.label]
        mesh = own_poses[self.pose % len(own_poses)].read()
        if self.kind == ISOMETRY:
            return mesh
        return transform(mesh, self.kind, strength * self.step / len(_STEPS), seed)


@lru_cache(maxsize=1)
def _class_areas(poses: tuple[tuple[Pose, ...], ...]) -> tuple[float, ...]:
    """Area of the first pose of each class."""
    return tuple(float(np.round(of_class[0].read().area)) for of_class in poses)


def list_shapes() -> list[Shape]:
    """List all shapes: poses and five strengths of every transformation per class; distractors."""
    n_transformed = len(CLASSES) * len(MAGNITUDES) * len(_STEPS)
    shapes = []
    for number, label in enumerate(CLASSES):
        n_poses = len(range(number, N_SHAPES - n_transformed, len(CLASSES)))
        shapes += [
            Shape(f"{label}-{ISOMETRY}-{k + 1}", label, ISOMETRY, k + 1, k) for k in range(n_poses)
        ]
        cells = [(kind, step) for kind in MAGNITUDES for step in _STEPS]
        shapes += [
            Shape(f"{label}-{kind.replace(' ', '-')}-{step}", label, kind, step, pose)
            for pose, (kind, step) in enumerate(cells)
        ]
    per_family = N_DISTRACTORS // len(FAMILIES)
    families = [(family, k + 1) for k in range(per_family) for family in FAMILIES]
    return shapes + [
        Shape(f"{family.replace(' ', '-')}-{k}", None, family, k) for family, k in families
    ]

"""Meshes of people and animals in many poses, twelve classes, in one system of units."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from crossbit.errors import DataError
from crossbit.features.shape import Mesh, read_mesh
from crossbit_experiments.shapegoogle.distractors import FAMILIES, distractor
from crossbit_experiments.shapegoogle.surfaces import VERTICES, coarsen, scaled
from crossbit_experiments.shapegoogle.transformations import MAGNITUDES, transform

CLASSES = (
    *("cat", "centaur", "david", "dog", "horse", "michael"),
    *("victoria", "wolf", "gorilla", "person", "lion", "camel"),
)
AREA = 20_000.0  # of a class that TOSCA does not have, in its units: that of its own animals of this size
_JOINED = {"man": "person", "woman": "person"}


@dataclass(frozen=True)
class Pose:
    """A mesh of a class in some pose.

    Attributes:
        label: Its class.
        path: Where it is read from.
        factor: What its coordinates are multiplied by; one constant for all poses that come from one source.
    """

    label: str
    path: Path
    factor: float = 1.0

    def read(self) -> Mesh:
        """The mesh in TOSCA's units, of at most 2,500 vertices."""
        return _read(self)


@lru_cache(maxsize=32)
def _read(pose: Pose) -> Mesh:
    mesh = scaled(read_mesh(pose.path), pose.factor)
    return coarsen(mesh, VERTICES, seed=0) if len(mesh.vertices) > VERTICES else mesh


def find_poses(folder: Path) -> dict[str, list[Pose]]:
    """Class → its poses, those of TOSCA first.

    Sizes of TOSCA are kept, as heat kernel signatures see them. The other meshes have units of their own: those of a
    class that TOSCA has are brought to its size, others to that of its animals.

    Args:
        folder: Holds ``tosca`` and ``sumner``.

    Raises:
        DataError: A class has no mesh.
    """
    found: dict[str, list[Pose]] = {name: [] for name in CLASSES}
    for path in sorted(folder.glob("tosca/*.off*")):
        if (name := _class(path)) in found:
            found[name].append(Pose(name, path))
    for name, poses in found.items():
        paths = sorted(folder.glob(f"sumner/{name}-*.off*"))
        if paths:
            wanted = (
                sum(read_mesh(pose.path).area for pose in poses) / len(poses) if poses else AREA
            )
            rest = next((path for path in paths if "reference" in path.name), paths[0])
            factor = (wanted / read_mesh(rest).area) ** 0.5
            poses += [Pose(name, path, factor) for path in paths]
    if missing := [name for name, poses in found.items() if not poses]:
        raise DataError(
            f"{folder}: no meshes of {missing}; expected tosca/*.off.gz and sumner/*.off.gz (see docs/reproduce.md)"
        )
    return found


def _class(path: Path) -> str:
    name = re.sub(r"\d.*", "", re.sub(r"^\d_", "", path.name)).strip("_-")
    return _JOINED.get(name, name)


SHAPES, DISTRACTORS = 583, 456  # as in the paper
STEPS = (1, 2, 3, 4, 5)
ISOMETRY = "isometry"
KINDS = (ISOMETRY, *MAGNITUDES)


@dataclass(frozen=True)
class Item:
    """One shape of the data set.

    Attributes:
        name: Unlike any other's.
        label: Its class; nothing for a distractor.
        kind: Its transformation, or the family of a distractor.
        step: How strong the transformation is, of 5; else a number.
        place: Which pose of its class is taken, counted in order and around.
    """

    name: str
    label: str | None
    kind: str
    step: int
    place: int = 0

    @property
    def trains(self) -> bool:
        """Whether it is in the half to learn from: every other one, in each class, kind, step and family."""
        number = 0 if self.label is None else CLASSES.index(self.label) + KINDS.index(self.kind)
        return (number + self.step) % 2 == 0

    @property
    def transformed(self) -> bool:
        """Whether it depends on how strong transformations are."""
        return self.label is not None and self.kind != ISOMETRY

    def make(self, poses: Mapping[str, Sequence[Pose]], strength: float) -> Mesh:
        """The mesh.

        Args:
            poses: Class → its poses.
            strength: What step 5 is; 1 is what `MAGNITUDES` say.
        """
        seed = list(self.name.encode())
        if self.label is None:
            return distractor(
                self.kind, seed, _areas(tuple(tuple(some) for some in poses.values()))
            )
        mesh = poses[self.label][self.place % len(poses[self.label])].read()
        return (
            mesh
            if self.kind == ISOMETRY
            else transform(mesh, self.kind, strength * self.step / len(STEPS), seed)
        )


def plan() -> list[Item]:
    """All shapes: for each class some poses and every transformation at five strengths, then the distractors."""
    transformed = len(CLASSES) * len(MAGNITUDES) * len(STEPS)
    items = []
    for number, label in enumerate(CLASSES):
        n_poses = len(range(number, SHAPES - transformed, len(CLASSES)))
        items += [
            Item(f"{label}-{ISOMETRY}-{k + 1}", label, ISOMETRY, k + 1, k) for k in range(n_poses)
        ]
        cells = [(kind, step) for kind in MAGNITUDES for step in STEPS]
        items += [
            Item(f"{label}-{kind.replace(' ', '-')}-{step}", label, kind, step, place)
            for place, (kind, step) in enumerate(cells)
        ]
    families = [(family, k + 1) for k in range(DISTRACTORS // len(FAMILIES)) for family in FAMILIES]
    return items + [
        Item(f"{family.replace(' ', '-')}-{k}", None, family, k) for family, k in families
    ]


@lru_cache(maxsize=1)
def _areas(poses: tuple[tuple[Pose, ...], ...]) -> tuple[float, ...]:
    """Area of the first pose of each class."""
    return tuple(float(np.round(some[0].read().area)) for some in poses)

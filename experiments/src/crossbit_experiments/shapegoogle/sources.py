"""Meshes of people and animals in many poses, twelve classes, in one system of units."""

import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from crossbit.errors import DataError
from crossbit.features.shape import Mesh, read_mesh
from crossbit_experiments.shapegoogle.surfaces import VERTICES, coarsen, scaled

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

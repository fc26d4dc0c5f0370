"""Small meshes in place of TOSCA and those of Sumner and Popović."""

from pathlib import Path

import numpy as np

from crossbit.features.shape import Mesh
from crossbit_experiments.shapegoogle.distractors import FAMILIES, distractor
from crossbit_experiments.shapegoogle.shapes import CLASSES
from crossbit_experiments.shapegoogle.surfaces import coarsen


def small_sources(folder: Path) -> Path:
    """Write two small poses of every class where `find_poses` expects them."""
    for number, label in enumerate(CLASSES):
        home = folder / ("sumner" if label in ("lion", "camel") else "tosca")
        home.mkdir(parents=True, exist_ok=True)
        mesh = coarsen(distractor(list(FAMILIES)[number], number, [2e4]), 400, seed=0)
        for pose in range(2):
            turned = Mesh(np.roll(mesh.vertices, pose, axis=1), mesh.faces)
            name = (
                f"{label}-{'reference' if pose == 0 else '01'}"
                if home.name == "sumner"
                else f"{label}{pose}"
            )
            (home / f"{name}.off").write_bytes(turned.to_ply())
    (folder / "tosca" / "8_man_01.off").write_bytes(mesh.to_ply())
    (folder / "tosca" / "person0.off").unlink()
    return folder

"""Which shapes there are: 583 of twelve classes, transformed, and 456 distractors."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from crossbit.features.shape import Mesh
from crossbit_experiments.shapegoogle.distractors import FAMILIES, distractor
from crossbit_experiments.shapegoogle.sources import CLASSES, Pose
from crossbit_experiments.shapegoogle.transformations import MAGNITUDES, transform

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

"""From the plan to rows: meshes written once, their heat once, bags for any vocabulary in seconds."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from crossbit._io.files import replacing
from crossbit._progress import OnStep, Step
from crossbit.data import Dataset
from crossbit.features import extract
from crossbit.features.shape import BagOfGeometry, Heat, HeatOfShape, SpatialBag, ply
from crossbit_experiments.shapegoogle.plan import Item
from crossbit_experiments.shapegoogle.sources import CLASSES, find_poses

DESCRIBER = HeatOfShape(n_pairs=64, patches=256)
Views = dict[str, NDArray[np.float32]]

WORDS, SPATIAL_WORDS = 32, 8  # as in the paper
VERSION = 1  # of what makes meshes: others are made when it changes


@dataclass(frozen=True, eq=False)
class Shapes:
    """Shapes and their heat.

    Attributes:
        items: What they are.
        heats: What bags are counted from.
        skipped: A line for each shape that could not be described.
    """

    items: Sequence[Item]
    heats: Sequence[Heat]
    skipped: Sequence[str]

    def take(self, keep: Sequence[bool]) -> "Shapes":
        """Some of them."""
        rows = np.flatnonzero(keep).tolist()
        return Shapes([self.items[k] for k in rows], [self.heats[k] for k in rows], self.skipped)


def describe(
    items: Sequence[Item],
    data: Path,
    cache: Path,
    *,
    strength: float,
    workers: int = 1,
    on_step: OnStep | None = None,
) -> Shapes:
    """Make the meshes that are not there yet, and solve for the heat of those that are new.

    Args:
        items: The shapes.
        data: Folder of the source meshes.
        cache: Folder that keeps meshes and heat.
        strength: Of the transformations.
        workers: Processes that solve.
        on_step: Told how many shapes are done.
    """
    paths = write_meshes(items, data, cache, strength=strength, on_step=on_step)
    found = extract(DESCRIBER, paths, workers=workers, cache=cache / "heat", on_step=on_step)
    heats = [DESCRIBER.unflat(row) for row in found.rows]
    return Shapes([items[k] for k in found.kept], heats, found.skipped)


def write_meshes(
    items: Sequence[Item],
    data: Path,
    cache: Path,
    *,
    strength: float,
    on_step: OnStep | None = None,
) -> list[Path]:
    """Write each mesh that is not there yet; what the strength does not touch is shared by all strengths."""
    folder = cache / f"meshes-{VERSION}"
    folder.mkdir(parents=True, exist_ok=True)
    poses = None
    names = [f"{item.name}-x{strength:g}" if item.transformed else item.name for item in items]
    paths = [folder / f"{name}.ply" for name in names]
    for number, (item, path) in enumerate(zip(items, paths, strict=True), start=1):
        if not path.exists():
            poses = poses or find_poses(data)
            with replacing(path) as file:
                file.write(ply(item.make(poses, strength)))
            if on_step is not None:
                on_step(Step(number, len(items)))
    return paths


def bags(shapes: Shapes, teachers: Sequence[bool], *, seed: int = 0) -> Views:
    """Both descriptors of all shapes, rows of unit length.

    Args:
        shapes: The shapes.
        teachers: Which of them the vocabularies are learned from.
        seed: Of k-means.
    """
    heats = [heat for heat, teaches in zip(shapes.heats, teachers, strict=True) if teaches]
    settings = DESCRIBER.settings()
    describers = {
        "bof": BagOfGeometry.fit(heats, size=WORDS, seed=seed, **settings),
        "ssbof": SpatialBag.fit(heats, size=SPATIAL_WORDS, seed=seed, **settings),
    }
    found = {}
    for name, describer in describers.items():
        rows = np.stack([describer.bag(heat) for heat in shapes.heats])
        found[name] = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return found


def as_printed(shapes: Shapes) -> Dataset:
    """All shapes teach, and the same are searched for: transductive, as the paper seems to have done."""
    classed = np.array([item.label is not None for item in shapes.items])
    views, every = bags(shapes, [True] * len(classed)), np.arange(len(classed))
    return _data(
        shapes, views, {"train": every, "query": np.flatnonzero(classed), "database": every}
    )


def held_out(shapes: Shapes) -> Dataset:
    """One half teaches, distractors too; the other half asks, and is searched for among distractors not seen before."""
    trains = np.array([item.trains for item in shapes.items])
    classed = np.array([item.label is not None for item in shapes.items])
    views = bags(shapes, list(trains))
    asked, searched = np.flatnonzero(classed & ~trains), np.flatnonzero(~trains)
    return _data(
        shapes, views, {"train": np.flatnonzero(trains), "query": asked, "database": searched}
    )


def _data(shapes: Shapes, views: Views, splits: dict[str, NDArray[np.int64]]) -> Dataset:
    labels = [-1 if item.label is None else CLASSES.index(item.label) for item in shapes.items]
    payload = [{"name": item.name, "kind": item.kind, "step": item.step} for item in shapes.items]
    return Dataset(
        views=views,
        labels=np.array(labels),
        splits=splits,
        payload=payload,
        name="ShapeGoogle, reconstructed",
        source="meshes of TOSCA (Bronstein et al. 2008) and of Sumner and Popović (2004), transformed; formulas",
        classes=CLASSES,
    )

"""From the plan to rows: meshes written once, their heat once, bags for any vocabulary in seconds."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbit._io.files import atomic_write
from crossbit._progress import OnStep, Step
from crossbit.data import Dataset
from crossbit.evaluation.protocol import PROTOCOLS
from crossbit.features import extract
from crossbit.features.shape import BagOfGeometry, Heat, HeatKernelExtractor, SpatialBag, to_ply
from crossbit_experiments.shapegoogle.methods import RAW, raw_descriptors
from crossbit_experiments.shapegoogle.shapes import CLASSES, Item, find_poses, plan

DESCRIBER = HeatKernelExtractor(n_pairs=64, patches=256)
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
            with atomic_write(path) as file:
                file.write(to_ply(item.make(poses, strength)))
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


CANDIDATES = (0.05, 0.1, 0.3)
STRENGTH = 0.05
"""What `choose` found nearest; never touched after anything was hashed."""


def try_strengths(
    data: Path,
    cache: Path,
    *,
    candidates: Sequence[float],
    workers: int = 1,
    on_step: OnStep | None = None,
) -> list[dict[str, Any]]:
    """What the descriptors reach at each strength, with and without distractors, and how far that is from the paper.

    Args:
        data: Folder of the source meshes.
        cache: Folder that keeps meshes and their heat.
        candidates: Strengths to try.
        workers: Processes.
        on_step: Told how many shapes are done.
    """
    found = []
    for strength in candidates:
        shapes = describe(plan(), data, cache, strength=strength, workers=workers, on_step=on_step)
        found.append({"strength": strength, **measure(shapes)})
    return found


def choose(tried: Sequence[dict[str, Any]]) -> float:
    """The strength that comes nearest to the paper's values."""
    return float(min(tried, key=lambda one: one["gap"])["strength"])


def measure(shapes: Shapes) -> dict[str, Any]:
    """Unhashed mAP (%) of both descriptors among distractors and without them, and the sum of the gaps to the paper."""
    protocol, data = PROTOCOLS["shapegoogle/as-printed"], as_printed(shapes)
    found: dict[str, Any] = {"gap": 0.0}
    for base in ("database", "query"):
        evaluation = raw_descriptors(data, protocol=replace(protocol, base=base))
        for (name, _), report in evaluation.reports.items():
            key = f"{name}-{name}" + ("" if base == "database" else ", no distractors")
            found[key] = 100 * report["mAP"].value
    found["gap"] = sum(abs(found[way] - printed) for way, printed in RAW.items())
    return found

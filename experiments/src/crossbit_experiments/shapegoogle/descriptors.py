"""Descriptors of the shapes, and the calibration of the transformations.

Meshes are written once and their heat kernels are computed once; bags of features for another
vocabulary then take seconds.

The strength of the transformations is calibrated on the unhashed descriptors, before any hashing:
the paper prints what its descriptors reach with distractors in the base, and the strength at which
ours come nearest makes the task about as hard. No trained method influences the choice.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbit._io.files import atomic_write
from crossbit._progress import OnStep, Step
from crossbit.data import Dataset
from crossbit.features import extract
from crossbit.features.shape import BagOfGeometry, HeatKernelExtractor, HeatPatches, SpatialBag
from crossbit_experiments.shapegoogle.methods import RAW, evaluate_descriptors, protocol_for
from crossbit_experiments.shapegoogle.shapes import (
    CLASSES,
    MIN_POSES,
    Shape,
    count_poses,
    find_poses,
    list_shapes,
)

CANDIDATES = (0.05, 0.1, 0.3)
STRENGTH = 0.05
"""Calibrated strength; not changed after anything was hashed."""

_EXTRACTOR = HeatKernelExtractor(n_pairs=64, patches=256)
_WORDS = 32  # as in the paper
_SPATIAL_WORDS = 8  # as in the paper
_MESH_VERSION = 1  # increase it when the meshes change, so that cached ones are not used


@dataclass(frozen=True, eq=False)
class ShapeHeat:
    """Shapes and their heat kernel signatures.

    Attributes:
        shapes: The shapes.
        heat: Signatures of each shape, from which bags are counted.
        skipped: One line for each shape that could not be processed.
        n_poses: Class → number of its poses.
    """

    shapes: Sequence[Shape]
    heat: Sequence[HeatPatches]
    skipped: Sequence[str]
    n_poses: Mapping[str, int]

    @property
    def in_train(self) -> NDArray[np.bool_]:
        """Which shapes are in the training half of the held-out reading."""
        return np.array([shape.in_train(self.n_poses) for shape in self.shapes])

    def too_few_poses(self) -> list[str]:
        """Classes that are distractors in the held-out reading."""
        return [name for name, count in self.n_poses.items() if count < MIN_POSES]


def compute_heat(
    shapes: Sequence[Shape],
    data: Path,
    cache: Path,
    *,
    strength: float,
    workers: int = 1,
    on_step: OnStep | None = None,
) -> ShapeHeat:
    """Write missing meshes and compute missing heat kernel signatures.

    Args:
        shapes: The shapes.
        data: Folder of the source meshes.
        cache: Folder of generated meshes and signatures.
        strength: Strength of the transformations.
        workers: Number of processes.
        on_step: Progress callback, called after every shape.
    """
    paths = write_meshes(shapes, data, cache, strength=strength, on_step=on_step)
    extraction = extract(_EXTRACTOR, paths, workers=workers, cache=cache / "heat", on_step=on_step)
    heat = [_EXTRACTOR.from_row(row) for row in extraction.rows]
    kept = [shapes[k] for k in extraction.positions]
    return ShapeHeat(kept, heat, extraction.skipped, count_poses(data))


def write_meshes(
    shapes: Sequence[Shape],
    data: Path,
    cache: Path,
    *,
    strength: float,
    on_step: OnStep | None = None,
) -> list[Path]:
    """Write missing meshes; untransformed ones are shared by all strengths."""
    folder = cache / f"meshes-{_MESH_VERSION}"
    folder.mkdir(parents=True, exist_ok=True)
    poses = None
    names = [f"{shape.name}-x{strength:g}" if shape.transformed else shape.name for shape in shapes]
    paths = [folder / f"{name}.ply" for name in names]
    for number, (shape, path) in enumerate(zip(shapes, paths, strict=True), start=1):
        if not path.exists():
            poses = poses or find_poses(data)
            with atomic_write(path) as file:
                file.write(shape.make(poses, strength).to_ply())
            if on_step is not None:
                on_step(Step(number, len(shapes)))
    return paths


def _bags(
    heat: ShapeHeat, in_vocabulary: Sequence[bool], *, seed: int = 0
) -> dict[str, NDArray[np.float32]]:
    """Both descriptors of all shapes, rows of unit length; vocabularies from some of the shapes."""
    sample = [each for each, used in zip(heat.heat, in_vocabulary, strict=True) if used]
    settings = _EXTRACTOR.signature_settings()
    extractors = {
        "bof": BagOfGeometry.fit(sample, size=_WORDS, seed=seed, **settings),
        "ssbof": SpatialBag.fit(sample, size=_SPATIAL_WORDS, seed=seed, **settings),
    }
    views = {}
    for name, extractor in extractors.items():
        rows = np.stack([extractor.bag(each) for each in heat.heat])
        views[name] = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return views


def as_printed(heat: ShapeHeat) -> Dataset:
    """Train on all shapes and search the same: transductive, as the paper seems to have done."""
    labels = _labels(heat, ())
    every = np.arange(len(labels))
    splits = {"train": every, "query": np.flatnonzero(labels >= 0), "database": every}
    return _dataset(heat, _bags(heat, [True] * len(labels)), labels, splits)


def held_out(heat: ShapeHeat) -> Dataset:
    """Train on every other pose of each class and search the shapes of the other poses.

    No pose of a class is on both sides. Every other distractor trains. Classes with too few poses
    are distractors, also split by pose.
    """
    in_train = heat.in_train
    labels = _labels(heat, heat.too_few_poses())
    splits = {
        "train": np.flatnonzero(in_train),
        "query": np.flatnonzero((labels >= 0) & ~in_train),
        "database": np.flatnonzero(~in_train),
    }
    return _dataset(heat, _bags(heat, in_train.tolist()), labels, splits)


def pose_counts(heat: ShapeHeat) -> list[dict[str, Any]]:
    """Poses and shapes of each class on both sides of the held-out reading."""
    rows = []
    for name, count in heat.n_poses.items():
        own = [shape for shape in heat.shapes if shape.label == name]
        sides = {
            side: [shape for shape in own if shape.in_train(heat.n_poses) == (side == "train")]
            for side in ("train", "test")
        }
        poses = {side: {s.pose % count for s in shapes} for side, shapes in sides.items()}
        rows.append(
            {
                "class": name,
                "poses": count,
                "role": "distractor" if count < MIN_POSES else "class",
                **{f"{side} poses": len(found) for side, found in poses.items()},
                **{f"{side} shapes": len(shapes) for side, shapes in sides.items()},
            }
        )
    return rows


def _labels(heat: ShapeHeat, without: Sequence[str]) -> NDArray[np.int64]:
    """Class numbers; −1 for distractors and for shapes of some classes."""
    return np.array(
        [
            -1 if shape.label is None or shape.label in without else CLASSES.index(shape.label)
            for shape in heat.shapes
        ]
    )


def _dataset(
    heat: ShapeHeat,
    views: dict[str, NDArray[np.float32]],
    labels: NDArray[np.int64],
    splits: dict[str, NDArray[np.int64]],
) -> Dataset:
    payload = [
        {"name": shape.name, "kind": shape.kind, "step": shape.step} for shape in heat.shapes
    ]
    return Dataset(
        views=views,
        labels=labels,
        splits=splits,
        payload=payload,
        name="ShapeGoogle, reconstructed",
        source="transformed meshes of TOSCA (Bronstein et al. 2008) and of Sumner and Popović"
        " (2004); formulas",
        classes=CLASSES,
    )


def calibrate(
    data: Path, cache: Path, *, workers: int = 1, on_step: OnStep | None = None
) -> list[dict[str, Any]]:
    """Return mAP of the unhashed descriptors at each of `CANDIDATES` and its gap to the paper.

    Args:
        data: Folder of the source meshes.
        cache: Folder of generated meshes and signatures.
        workers: Number of processes.
        on_step: Progress callback, called after every shape.
    """
    trials = []
    for strength in CANDIDATES:
        heat = compute_heat(
            list_shapes(), data, cache, strength=strength, workers=workers, on_step=on_step
        )
        trials.append({"strength": strength, **_measure_descriptors(heat)})
    return trials


def _measure_descriptors(heat: ShapeHeat) -> dict[str, Any]:
    """Unhashed mAP (%) with and without distractors, and the total gap to the paper's values."""
    protocol = protocol_for("as-printed")
    data = as_printed(heat)
    scores: dict[str, Any] = {"gap": 0.0}
    for base in ("database", "query"):
        evaluation, _ = evaluate_descriptors(data, protocol=replace(protocol, base=base))
        for (name, _), report in evaluation.reports.items():
            key = f"{name}-{name}" + ("" if base == "database" else ", no distractors")
            scores[key] = 100 * report["mAP"].value
    scores["gap"] = sum(abs(scores[direction] - printed) for direction, printed in RAW.items())
    return scores

"""How strong transformations are: chosen by the descriptors alone, before anything is hashed.

The paper prints what its descriptors reach unhashed, distractors in the base. The strength at which ours come nearest
to that makes the task about as hard as it was. Nothing that learns has a say in it.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from crossbit._progress import OnStep
from crossbit.evaluation.protocol import PROTOCOLS
from crossbit_experiments.shapegoogle.described import Shapes, as_printed, describe
from crossbit_experiments.shapegoogle.plan import plan
from crossbit_experiments.shapegoogle.rows import RAW, raw_descriptors

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

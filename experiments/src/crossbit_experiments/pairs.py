"""Few pairs across modalities: what losses within a modality are worth then."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbit.data import Dataset, Pairs, pairs_from_labels
from crossbit.evaluation.results import read_result
from crossbit_experiments.methods import Row, result_file
from crossbit_experiments.seed_stats import average, standard_error


def share_of_pairs(
    train: Dataset, seed: int, *, n_pairs: tuple[int, int], share: float = 1.0, within: bool = True
) -> Mapping[str, Any]:
    """What a method is told: pairs drawn from the classes of the rows, each kind at most as many as there are.

    Args:
        train: Two aligned views with classes.
        seed: Of the draw.
        n_pairs: Similar and dissimilar ones, of each two modalities and within each.
        share: Of the pairs across modalities, so many are told.
        within: Whether pairs within the modalities are told, all of them.
    """
    (a, b), labels = train.modalities, np.asarray(train.labels)
    wanted = [(a, b, share), *([(a, a, 1.0), (b, b, 1.0)] if within else [])]
    pairs: list[Pairs] = []
    for number, (left, right, part) in enumerate(wanted):
        existing = _existing(labels, within=left == right)
        similar, not_ = (
            round(part * min(n, most)) for n, most in zip(n_pairs, existing, strict=True)
        )
        drawn = pairs_from_labels(
            labels, left, right, n_similar=similar, n_dissimilar=not_, seed=seed + 1000 * number
        )
        pairs.append(drawn)
    return {"views": train.views, "pairs": pairs, "rows": False}


def _existing(labels: NDArray[Any], *, within: bool) -> tuple[int, int]:
    """How many similar and dissimilar pairs there are: unordered ones of different rows within, all across."""
    sizes = np.unique(labels, return_counts=True)[1]
    alike, all_ = int(np.square(sizes).sum()), len(labels) ** 2
    return ((alike - len(labels)) // 2, (all_ - alike) // 2) if within else (alike, all_ - alike)


def differences(
    rows: Mapping[float, tuple[Row, Row]],
    folder: Path,
    directions: Sequence[str],
    *,
    n_bits: int,
    seeds: Sequence[int],
) -> list[dict[str, Any]]:
    """For each share of the pairs: the two methods seed by seed, and their paired difference with its error.

    Args:
        rows: Share of the pairs → MM-NN and CM-NN.
        folder: Where their results are; shares that are not finished are left out.
        directions: Whose mean counts.
        n_bits: Length of the codes.
        seeds: Seeds, the same for both.
    """
    found = []
    for share, pair in rows.items():
        paths = [[result_file(folder, row, n_bits, seed) for seed in seeds] for row in pair]
        if not all(path.exists() for some in paths for path in some):
            continue
        within, across = (
            np.array([average(read_result(path), directions) for path in some]) for some in paths
        )
        gain = within - across
        scores = {"mmnn": within.tolist(), "cmnn": across.tolist()}
        found.append(
            {
                "share": share,
                **scores,
                "difference": float(gain.mean()),
                "error": standard_error(gain),
            }
        )
    return found

"""Training pairs drawn from labels, and the comparison of methods with few cross-modal pairs."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbit.data import Dataset, Pairs, pairs_from_labels
from crossbit.evaluation.results import read_result
from crossbit_experiments.methods import Method, result_file
from crossbit_experiments.seed_stats import mean_score, standard_error
from crossbit_experiments.tables import Table, difference_cell


def draw_pairs(
    train: Dataset,
    seed: int,
    *,
    n_pairs: tuple[int, int],
    share: float = 1.0,
    across: bool = True,
    within: bool = True,
    inverted: bool = False,
) -> Mapping[str, Any]:
    """Draw pairs from the classes of the rows and return the `fit` arguments.

    Args:
        train: Two aligned views with classes.
        seed: Random seed.
        n_pairs: Similar and dissimilar pairs for each loss, at most as many as exist.
        share: Share of the pairs across modalities to keep.
        across: Draw pairs across the modalities.
        within: Draw pairs within each modality.
        inverted: Exchange similar and dissimilar pairs.
    """
    first, second = train.modalities
    labels = np.asarray(train.labels)
    wanted = [(first, second, share)] * across
    wanted += [(first, first, 1.0), (second, second, 1.0)] * within
    pairs: list[Pairs] = []
    for number, (left, right, fraction) in enumerate(wanted):
        similar, dissimilar = (
            round(fraction * min(n, available))
            for n, available in zip(n_pairs, _count(labels, within=left == right), strict=True)
        )
        # A separate seed for each loss keeps its pairs the same when another loss is left out.
        drawn = pairs_from_labels(
            labels,
            left,
            right,
            n_similar=similar,
            n_dissimilar=dissimilar,
            seed=seed + 1000 * number,
        )
        pairs.append(Pairs(left, right, drawn.index, ~drawn.similar) if inverted else drawn)
    return {"views": train.views, "pairs": pairs, "aligned": False}


def _count(labels: NDArray[Any], *, within: bool) -> tuple[int, int]:
    """Number of similar and dissimilar pairs: unordered within a modality, ordered across."""
    sizes = np.unique(labels, return_counts=True)[1]
    similar = int(np.square(sizes).sum())
    total = len(labels) ** 2
    if within:
        return (similar - len(labels)) // 2, (total - similar) // 2
    return similar, total - similar


def paired_differences(
    methods: Mapping[float, tuple[Method, Method]],
    folder: Path,
    directions: Sequence[str],
    *,
    n_bits: int,
    seeds: Sequence[int],
) -> list[dict[str, Any]]:
    """Compare MM-NN and CM-NN seed by seed for each share of the cross-modal pairs.

    Args:
        methods: Share of the pairs → MM-NN and CM-NN.
        folder: Folder of the results; shares with missing results are left out.
        directions: Directions to average over.
        n_bits: Length of the codes.
        seeds: Seeds, the same for both methods.

    Returns:
        One row per share: the scores of both methods, their mean difference and its standard error.
    """
    rows = []
    for share, both in methods.items():
        paths = [[result_file(folder, method, n_bits, seed) for seed in seeds] for method in both]
        if not all(path.exists() for method_paths in paths for path in method_paths):
            continue
        mmnn, cmnn = (
            np.array([mean_score(read_result(path), directions) for path in method_paths])
            for method_paths in paths
        )
        rows.append(
            {
                "share": share,
                "mmnn": mmnn.tolist(),
                "cmnn": cmnn.tolist(),
                "difference": float((mmnn - cmnn).mean()),
                "error": standard_error(mmnn - cmnn),
            }
        )
    return rows


def few_pairs_table(lines: Sequence[Sequence[str]]) -> Table:
    """Table of MM-NN and CM-NN by share of the cross-modal pairs."""
    return Table(["pairs across", "MM-NN", "CM-NN", "difference ± error"], lines)


def few_pairs_line(row: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Line of `few_pairs_table` for one row of `paired_differences`."""
    means = [f"{sum(row[name]) / len(row[name]):.2f}" for name in ("mmnn", "cmnn")]
    return [f"{prefix}{row['share']:.0%}", *means, difference_cell(row)]

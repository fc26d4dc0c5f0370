"""Few pairs across modalities: what losses within a modality are worth then."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from crossbit.experiments.results import read_result
from crossbit.experiments.table import Row, result_file


def differences(
    rows: Mapping[float, tuple[Row, Row]], folder: Path, directions: Sequence[str], *, n_bits: int, seeds: Sequence[int]
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
        within, across = (np.array([_average(path, directions) for path in some]) for some in paths)
        gain = within - across
        error = float(gain.std(ddof=1) / np.sqrt(len(gain))) if len(gain) > 1 else 0.0
        scores = {"mmnn": within.tolist(), "cmnn": across.tolist()}
        found.append({"share": share, **scores, "difference": float(gain.mean()), "error": error})
    return found


def _average(path: Path, directions: Sequence[str]) -> float:
    result = read_result(path)
    return float(np.mean([100 * result["directions"][way]["results"][0]["value"] for way in directions]))

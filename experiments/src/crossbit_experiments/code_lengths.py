"""Scores by code length: trained at each length, and the first bits of the longest codes."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from crossbit_experiments.bootstrap import mean_and_deviation
from crossbit_experiments.methods import Method, query_values, stored_runs
from crossbit_experiments.runs import RunStore

LENGTHS = (4, 8, 16, 32, 64, 128)


def scores_by_length(
    store: RunStore,
    methods: Sequence[Method],
    directions: Sequence[str],
    *,
    lengths: Sequence[int] = LENGTHS,
    prefix: str = "",
) -> dict[str, dict[str, Any]]:
    """Mean and deviation over seeds of the average mAP (%) for each stored code length.

    Returns:
        Method → its title, ``"retrained"`` at each length and ``"cropped"`` from the longest codes:
        length → mean and deviation.
    """
    scores: dict[str, dict[str, Any]] = {}
    for method in methods:
        by_length = {n: stored_runs(store, method, n, prefix) for n in lengths}
        by_length = {n: runs for n, runs in by_length.items() if runs}
        if len(by_length) < 2:
            continue
        retrained = {
            str(n): mean_and_deviation([run.mean_score(directions) for run in runs])
            for n, runs in by_length.items()
        }
        longest = by_length[max(by_length)]
        cropped = {
            str(n): mean_and_deviation(
                np.nanmean(query_values(longest, directions, n), axis=1).tolist()
            )
            for n in by_length
        }
        scores[method.key] = {"title": method.title, "retrained": retrained, "cropped": cropped}
    return scores

"""Retrieval quality on test items, in every direction between modalities."""

from collections.abc import Mapping
from itertools import permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbit.codes import Codes
from crossbit.metrics.average import AveragePrecision
from crossbit.metrics.curve import precision_recall_curve
from crossbit.metrics.evaluate import Report, evaluate_ranking, mean_average_precision
from crossbit.metrics.measures import Success
from crossbit.metrics.ranking import rank_codes
from crossbit.metrics.relevance import same_class

_MEASURES = (AveragePrecision(), Success(at=1), Success(at=5), Success(at=10))
_CODE_LENGTHS = (8, 16, 32, 64, 128, 256, 512, 1024)

OwnedCodes = Mapping[str, tuple[Codes, NDArray[np.int64]]]
"""Modality → codes, and the number of the item that each code belongs to."""


def measure(codes: OwnedCodes, *, threads: int = 1) -> tuple[dict[str, Report], dict[str, Any]]:
    """Search each modality with each other one; codes of the same item are relevant.

    Args:
        codes: Codes of test items, the primary modality first.
        threads: Number of threads.

    Returns:
        Direction, such as ``"text → image"``, → report; and the content of the report file: the
        reports with precision-recall curves, and mAP of truncated codes.
    """
    reports = {}
    directions = {}
    lengths = []
    # Reversed: queries of the other modalities against the primary one come first.
    for left, right in permutations(reversed(list(codes)), 2):
        direction = f"{left} → {right}"
        queries, query_items = codes[left]
        base, base_items = codes[right]
        relevant = same_class(query_items, base_items)
        ranking = rank_codes(queries, base, relevant, threads=threads)
        report = evaluate_ranking(ranking, measures=_MEASURES)
        curve = precision_recall_curve(ranking, points=np.linspace(0.05, 1, 20).tolist())
        reports[direction] = report
        directions[direction] = {**report.to_dict(), "curve": curve.to_dict()}
        for n_bits in sorted({*(n for n in _CODE_LENGTHS if n < queries.n_bits), queries.n_bits}):
            truncated = queries.truncate(n_bits), base.truncate(n_bits)
            lengths.append(
                {
                    "n_bits": n_bits,
                    "direction": direction,
                    "name": "mAP of the first bits",
                    "value": mean_average_precision(*truncated, relevant),
                }
            )
    return reports, {"directions": directions, "bits": lengths}

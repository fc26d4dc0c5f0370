"""How well held-out pictures and captions find each other."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbit.codes import Codes
from crossbit.metrics import (
    AveragePrecision,
    Report,
    Success,
    evaluate_ranking,
    mean_average_precision,
    precision_recall_curve,
    rank_codes,
    same_class,
)

MEASURES = (AveragePrecision(), Success(at=1), Success(at=5), Success(at=10))
_LENGTHS = (8, 16, 32, 64, 128, 256, 512, 1024)

About = Mapping[str, tuple[Codes, NDArray[np.int64]]]
"""Modality → codes, and the number of the picture that each is about."""


def measure(codes: About, *, threads: int = 1) -> tuple[dict[str, Report], dict[str, Any]]:
    """Search each modality with the other; relevant is what is about the same picture.

    Args:
        codes: Codes of held-out things.
        threads: How many threads count.

    Returns:
        Direction, such as ``"text → image"``, → report; and what ``report.json`` holds, for the page.
    """
    reports, told, lengths = {}, {}, []
    for left, right in (("text", "image"), ("image", "text")):
        (queries, asked), (base, found) = codes[left], codes[right]
        direction, relevant = f"{left} → {right}", same_class(asked, found)
        ranking = rank_codes(queries, base, relevant, threads=threads)
        reports[direction] = evaluate_ranking(ranking, measures=MEASURES)
        curve = precision_recall_curve(ranking, points=np.linspace(0.05, 1, 20).tolist())
        told[direction] = {**reports[direction].to_dict(), "curve": curve.to_dict()}
        for n_bits in sorted({*(n for n in _LENGTHS if n < queries.n_bits), queries.n_bits}):
            value = mean_average_precision(queries.first(n_bits), base.first(n_bits), relevant)
            row = {
                "n_bits": n_bits,
                "direction": direction,
                "name": "mAP of the first bits",
                "value": value,
            }
            lengths.append(row)
    return reports, {"directions": told, "bits": lengths}

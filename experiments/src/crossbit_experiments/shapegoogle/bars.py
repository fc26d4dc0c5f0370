"""What the reconstruction was to reach on held-out shapes, what it reached, and whether that suffices."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from crossbit_experiments.shapegoogle.rows import ACROSS

_NOT_LESS = (
    ("MM-NN L2", "MM-NN L1"),
    ("CM-NN L2", "CM-NN L1"),
    ("MM-NN L1", "CM-NN L1"),
    ("MM-NN L2", "CM-NN L2"),
)
_TWELVE = (", learned at 12", ", first 12 of 16")
_FAR = 10.0  # points that are far


def bars(tables: Mapping[str, Any], scarce: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every bar: what it says, the value, how much it takes, and whether it is reached.

    Args:
        tables: Of the held-out reading, as `study.tables` gives them.
        scarce: Of the same, as `study.scarce` gives it; nothing while its runs are not there.
    """
    sixteen, twelve = (_across(tables[f"held-out {bits}"]) for bits in (16, 12))
    learned, cropped = (
        {title.removesuffix(way): value for title, value in twelve.items() if title.endswith(way)}
        for way in _TWELVE
    )
    told = []
    sixteen |= _across(tables.get("held-out validated", []))
    for title in ("MM-NN L2", "MM-NN L2, validated"):
        if title in sixteen:
            told.append((f"{title}, at 16 bits", sixteen[title], 98.0))
    if len(learned) == 5:
        told += [
            (f"{a} less {b} at 12 bits, learned so", learned[a] - learned[b], 0.0)
            for a, b in _NOT_LESS
        ]
        if cropped.keys() == learned.keys():
            told += [
                (f"{a} less {b} at the first 12 of 16", cropped[a] - cropped[b], 0.0)
                for a, b in _NOT_LESS
            ]
        worst = min(value for title, value in learned.items() if title != "CM-SSH")
        told.append(("the worst network less CM-SSH at 12 bits", worst - learned["CM-SSH"], _FAR))
    if scarce:
        least = 2 * scarce["error"]
        told.append(
            (
                "what CM-NN loses more than MM-NN with a tenth of the pairs",
                scarce["difference"],
                least,
            )
        )
    return [
        {"bar": bar, "value": value, "least": least, "reached": value >= least}
        for bar, value, least in told
    ]


def _across(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Title → mean of both directions across modalities."""
    found = {row["title"]: row["mean"] for row in rows}
    return {
        t: float(np.mean([mean[way] for way in ACROSS]))
        for t, mean in found.items()
        if ACROSS[0] in mean
    }

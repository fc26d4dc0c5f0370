"""Codes that a result file keeps beside it: any metric can be computed again from them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbit._io.files import read_arrays
from crossbit._progress import OnStep, Step
from crossbit.codes import Codes
from crossbit.data import Dataset
from crossbit.evaluation.evaluate import own_places
from crossbit.evaluation.protocol import Protocol
from crossbit.evaluation.results import CODES, SUFFIX
from crossbit.metrics import (
    AveragePrecision,
    Exclude,
    Ranking,
    from_labels,
    mean_over_queries,
    rank_codes,
)
from crossbit_experiments.methods import Row, result_file, run_rows, summarize
from crossbit_experiments.seed_stats import spread


@dataclass(frozen=True)
class Kept:
    """The codes of a run.

    Attributes:
        n_bits: Their length.
        arrays: Words of codes (``query.image``) and the rows they belong to (``query_rows.image``).
    """

    n_bits: int
    arrays: dict[str, NDArray[Any]]

    @classmethod
    def of(cls, result: Path) -> "Kept":
        """The codes beside a result file."""
        file = read_arrays(result.with_name(result.name + SUFFIX), CODES)
        return cls(int(file.meta["n_bits"]), file.arrays)

    def ranking(
        self, way: str, data: Dataset, *, n_bits: int | None = None, own_row: bool = True
    ) -> Ranking:
        """Base codes ranked by their distance to the queries.

        Args:
            way: Such as ``"image-text"``.
            data: Says of what class rows are.
            n_bits: Only the first so many bits.
            own_row: Whether the query's own row counts across modalities; within one it never does.
        """
        left, right = way.split("-")
        asked, base = self._codes("query", left, n_bits), self._codes("base", right, n_bits)
        rows = self.arrays[f"query_rows.{left}"], self.arrays[f"base_rows.{right}"]
        labels = data.labels_by_modality()
        exclude: Exclude = None if own_row and left != right else own_places(*rows)
        return rank_codes(
            asked, base, from_labels(labels[left][rows[0]], labels[right][rows[1]]), exclude=exclude
        )

    def _codes(self, side: str, name: str, n_bits: int | None) -> Codes:
        codes = Codes(self.arrays[f"{side}.{name}"], self.n_bits)
        return codes if n_bits is None else codes.truncate(n_bits)


LENGTHS = (4, 8, 16, 32, 64, 128)


def run_lengths(
    rows: Sequence[Row],
    data: Dataset,
    folder: Path,
    *,
    seeds: Sequence[int],
    lengths: Sequence[int] = (),
    protocol: Protocol | None = None,
    on_step: OnStep | None = None,
) -> None:
    """Run every row at every length, `LENGTHS` unless told; what is there already is not run again."""
    lengths = lengths or LENGTHS
    for number, n_bits in enumerate(lengths):
        run_rows(rows, data, folder, n_bits=n_bits, seeds=seeds, protocol=protocol)
        if on_step is not None:
            on_step(Step(number + 1, len(lengths)))


def by_length(
    rows: Sequence[Row],
    data: Dataset,
    folder: Path,
    directions: Sequence[str],
    *,
    seeds: Sequence[int],
    lengths: Sequence[int] = (),
    own_row: bool = True,
) -> dict[str, dict[str, dict[str, list[float]]]]:
    """Row → ``"retrained"`` or ``"cropped"`` → length → mean and deviation over seeds of the average mAP (%)."""
    lengths = lengths or LENGTHS
    found: dict[str, dict[str, dict[str, list[float]]]] = {}
    for row in rows:
        retrained = {}
        for n_bits in lengths:
            for one in summarize([row], folder, directions, n_bits=n_bits, seeds=seeds):
                retrained[str(n_bits)] = [one.mean["average"], one.deviation["average"]]
        longest = [result_file(folder, row, lengths[-1], seed) for seed in seeds]
        crops: dict[str, list[float]] = {}
        if all(path.exists() for path in longest):
            crops = {
                str(n): spread(crop(longest, data, directions, n, own_row=own_row)) for n in lengths
            }
        found[row.key] = {"retrained": retrained, "cropped": crops}
    return found


def crop(
    results: Sequence[Path],
    data: Dataset,
    directions: Sequence[str],
    n_bits: int,
    *,
    own_row: bool = True,
) -> list[float]:
    """Average mAP (%) of the first bits of the codes that each result keeps."""
    found = []
    for path in results:
        kept = Kept.of(path)
        rankings = [kept.ranking(way, data, n_bits=n_bits, own_row=own_row) for way in directions]
        found.append(
            float(
                np.mean(
                    [100 * mean_over_queries(one.measure(AveragePrecision())) for one in rankings]
                )
            )
        )
    return found

"""Codes stored beside result files: recompute any metric, also for truncated codes."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from crossbit._io.files import ArrayFile
from crossbit._progress import OnStep, Step
from crossbit.codes import Codes
from crossbit.data import Dataset
from crossbit.evaluation.evaluate import Protocol, self_matches
from crossbit.evaluation.results import CODES_FORMAT, CODES_SUFFIX
from crossbit.metrics import (
    AveragePrecision,
    Exclude,
    Ranking,
    from_labels,
    mean_over_queries,
    rank_codes,
)
from crossbit.metrics.relevance import Relevance
from crossbit_experiments.methods import Method, result_file, run_methods, summarize
from crossbit_experiments.seed_stats import mean_and_deviation

LENGTHS = (4, 8, 16, 32, 64, 128)

_Side = Literal["query", "base"]


@dataclass(frozen=True)
class StoredCodes:
    """The codes of one run.

    Attributes:
        n_bits: Length of the codes.
        arrays: Packed codes (``query.image``) and the rows they belong to (``query_rows.image``).
    """

    n_bits: int
    arrays: dict[str, NDArray[Any]]

    @classmethod
    def load(cls, result: Path) -> Self:
        """Load the codes stored beside a result file."""
        file = ArrayFile.read(result.with_name(result.name + CODES_SUFFIX), CODES_FORMAT)
        return cls(int(file.meta["n_bits"]), file.arrays)

    def codes(self, side: _Side, modality: str, n_bits: int | None = None) -> Codes:
        """Return the codes of the queries or the base, optionally truncated."""
        codes = Codes(self.arrays[f"{side}.{modality}"], self.n_bits)
        return codes if n_bits is None else codes.truncate(n_bits)

    def rows(self, side: _Side, modality: str) -> NDArray[np.int64]:
        """Rows of the data set that the codes belong to."""
        return self.arrays[f"{side}_rows.{modality}"]

    def relevance(self, direction: str, data: Dataset) -> Relevance:
        """Which base items share a label with each query."""
        left, right = direction.split("-")
        labels = data.labels_by_modality()
        return from_labels(
            labels[left][self.rows("query", left)], labels[right][self.rows("base", right)]
        )

    def ranking(
        self,
        direction: str,
        data: Dataset,
        *,
        n_bits: int | None = None,
        include_self: bool = True,
    ) -> Ranking:
        """Rank the base by Hamming distance to the queries.

        Args:
            direction: Such as ``"image-text"``.
            data: The data set with the labels.
            n_bits: Truncate the codes to this many bits.
            include_self: Keep the query's own row across modalities; within one it is never kept.
        """
        left, right = direction.split("-")
        exclude: Exclude = None
        # Within a modality the query itself would always be its own nearest neighbor.
        if not include_self or left == right:
            exclude = self_matches(self.rows("query", left), self.rows("base", right))
        return rank_codes(
            self.codes("query", left, n_bits),
            self.codes("base", right, n_bits),
            self.relevance(direction, data),
            exclude=exclude,
        )


def run_lengths(
    methods: Sequence[Method],
    data: Dataset,
    folder: Path,
    *,
    seeds: Sequence[int],
    on_step: OnStep | None = None,
    protocol: Protocol | None = None,
) -> None:
    """Run every method at each of `LENGTHS` and skip results that exist."""
    for number, n_bits in enumerate(LENGTHS, start=1):
        run_methods(methods, data, folder, n_bits=n_bits, seeds=seeds, protocol=protocol)
        if on_step is not None:
            on_step(Step(number, len(LENGTHS)))


def scores_by_length(
    methods: Sequence[Method],
    data: Dataset,
    folder: Path,
    directions: Sequence[str],
    *,
    seeds: Sequence[int],
    lengths: Sequence[int] = (),
    include_self: bool = True,
) -> dict[str, dict[str, dict[str, list[float]]]]:
    """Mean and deviation over seeds of the average mAP (%) for each code length.

    Returns:
        Method → ``"retrained"`` at each length or ``"cropped"`` from the longest codes → length →
        mean and deviation.
    """
    lengths = lengths or LENGTHS
    scores: dict[str, dict[str, dict[str, list[float]]]] = {}
    for method in methods:
        retrained = {}
        for n_bits in lengths:
            for summary in summarize([method], folder, directions, n_bits=n_bits, seeds=seeds):
                retrained[str(n_bits)] = [summary.mean["average"], summary.deviation["average"]]
        longest = [result_file(folder, method, lengths[-1], seed) for seed in seeds]
        # Truncation needs no training: it reads the codes stored with the longest length.
        cropped: dict[str, list[float]] = {}
        if all(path.exists() for path in longest):
            for n in lengths:
                values = truncated_scores(longest, data, directions, n, include_self=include_self)
                cropped[str(n)] = mean_and_deviation(values)
        scores[method.key] = {"retrained": retrained, "cropped": cropped}
    return scores


def truncated_scores(
    results: Sequence[Path],
    data: Dataset,
    directions: Sequence[str],
    n_bits: int,
    *,
    include_self: bool = True,
) -> list[float]:
    """Average mAP (%) of the first bits of the codes that each result stores."""
    scores = []
    for path in results:
        codes = StoredCodes.load(path)
        values = [
            mean_over_queries(
                codes.ranking(direction, data, n_bits=n_bits, include_self=include_self).measure(
                    AveragePrecision()
                )
            )
            for direction in directions
        ]
        scores.append(float(np.mean([100 * value for value in values])))
    return scores

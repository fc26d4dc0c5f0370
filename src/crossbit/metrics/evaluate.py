"""Evaluate a ranking: several measures in one pass, with intervals, tie bounds and chance level."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from crossbit._frames import columns_of, to_frame
from crossbit.codes import Codes
from crossbit.errors import DataError
from crossbit.metrics.average import AveragePrecision, Divisor
from crossbit.metrics.measures import (
    NDCG,
    Measure,
    Precision,
    PrecisionWithin,
    Recall,
    RecallWithin,
)
from crossbit.metrics.ranking import Exclude, Ranking, rank_codes
from crossbit.metrics.relevance import Relevance
from crossbit.metrics.tie_counts import Floats, TieCounts, Ties

Empty = Literal["skip", "zero"]
"""Queries without any relevant item: left out of the mean, or counted as 0."""

_DRAWS = 1 << 22  # resampled queries held in memory at a time


@dataclass(frozen=True)
class MeasureResult:
    """One measure of a report.

    Attributes:
        name: Name of the measure, such as ``mAP@10``.
        value: Mean over the queries.
        definition: Full definition of the number.
        low: Lower end of the bootstrap interval over queries.
        high: Upper end of that interval.
        worst: Value with all ties in the worst order; None where the order does not matter.
        best: Value with all ties in the best order; None where the order does not matter.
        chance: Expected value of a random ranking; None for a Hamming radius.
    """

    name: str
    value: float
    definition: str
    low: float
    high: float
    worst: float | None = None
    best: float | None = None
    chance: float | None = None


@dataclass(frozen=True)
class Report:
    """Results of an evaluation; ``report["mAP"]`` is the result of one measure.

    Attributes:
        results: One result per measure.
        n_queries: Number of queries.
        n_base: Number of base items.
        n_bits: Length of the codes; None for a real-valued ranking.
        n_without_relevant: Number of queries without any relevant item.
        empty: Whether those were left out (``"skip"``) or counted as 0 (``"zero"``).
        relevance: Definition of relevance.
        exclusion: Which items were excluded as self-matches.
        interval: How the intervals were computed.
    """

    results: tuple[MeasureResult, ...]
    n_queries: int
    n_base: int
    n_bits: int | None
    n_without_relevant: int
    empty: Empty
    relevance: str
    exclusion: str
    interval: str

    def __getitem__(self, name: str) -> MeasureResult:
        """Return the result of the measure with this name."""
        for result in self.results:
            if result.name == name:
                return result
        names = [result.name for result in self.results]
        raise DataError(f"the report has no measure {name!r}; it has {names}")

    def __iter__(self) -> Iterator[MeasureResult]:
        """Iterate over the results in the order of the measures."""
        return iter(self.results)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON; `from_dict` reads them."""
        return asdict(self) | {"results": [asdict(result) for result in self.results]}

    def to_json(self) -> str:
        """Return the report as JSON text."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False, allow_nan=False)

    def to_frame(self, library: str = "pandas") -> Any:  # noqa: ANN401 - a frame
        """Return one row per measure: name, value, interval, tie bounds, chance and definition.

        Args:
            library: ``"pandas"`` or ``"polars"``.
        """
        return to_frame(columns_of([asdict(result) for result in self.results]), library)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "Report":
        """Return a report from the values that `to_dict` returned."""
        results = tuple(MeasureResult(**result) for result in values["results"])
        return cls(**values | {"results": results})


def mean_average_precision(
    queries: Codes,
    base: Codes,
    relevant: Relevance | ArrayLike,
    *,
    at: int | None = None,
    divisor: Divisor = "retrieved",
    ties: Ties = "expected",
    exclude: Exclude = None,
    empty: Empty = "skip",
    threads: int = 1,
) -> float:
    """Return the mean average precision of base codes ranked by Hamming distance.

    See `AveragePrecision` for the definition.

    Args:
        queries: Codes of the queries.
        base: Codes of the base items, of the same length.
        relevant: A `Relevance`, such as `same_class`, or an explicit matrix (queries, base).
        at: Cut-off rank; None: the whole ranking.
        divisor: Divisor of average precision at a cut-off.
        ties: Order of items at the same distance; by default the expectation over all orders.
        exclude: ``"same-row"`` excludes base row i for query i; an array gives one base row per
            query (−1: none).
        empty: Leave out queries without relevant items, or count them as 0.
        threads: Number of threads; the result does not depend on it.

    Example:
        >>> from crossbit.metrics import same_class
        >>> base = Codes.pack([[0, 0], [0, 0], [0, 1], [1, 1]])
        >>> round(mean_average_precision(base[:1], base, same_class([7], [7, 8, 7, 8])), 4)
        0.7083
    """
    ranking = rank_codes(queries, base, relevant, exclude=exclude, threads=threads)
    values = ranking.measure(AveragePrecision(at=at, divisor=divisor, ties=ties))
    return mean_over_queries(values, empty=empty)


def standard_measures(
    *,
    at: Sequence[int] = (10, 100),
    radii: Sequence[int] = (2,),
    divisor: Divisor = "retrieved",
    ties: Ties = "expected",
) -> tuple[Measure, ...]:
    """Return mAP, then mAP, precision, recall and nDCG at cut-offs, then those within radii.

    Args:
        at: Cut-offs.
        radii: Hamming radii; empty for a real-valued ranking.
        divisor: Divisor of average precision at a cut-off.
        ties: Order of items at the same distance.
    """
    measures: list[Measure] = [AveragePrecision(ties=ties)]
    for k in at:
        measures += [
            AveragePrecision(at=k, divisor=divisor, ties=ties),
            Precision(at=k, ties=ties),
            Recall(at=k, ties=ties),
            NDCG(at=k, ties=ties),
        ]
    for radius in radii:
        measures += [PrecisionWithin(radius=radius), RecallWithin(radius=radius)]
    return tuple(measures)


def evaluate(
    queries: Codes,
    base: Codes,
    relevant: Relevance | ArrayLike,
    *,
    measures: Sequence[Measure] | None = None,
    exclude: Exclude = None,
    empty: Empty = "skip",
    confidence: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
    threads: int = 1,
) -> Report:
    """Evaluate base codes ranked by Hamming distance to each query.

    Args:
        queries: Codes of the queries.
        base: Codes of the base items, of the same length.
        relevant: A `Relevance`, such as `same_class`, or an explicit matrix (queries, base).
        measures: What to measure; None: `standard_measures`.
        exclude: ``"same-row"`` excludes base row i for query i; an array gives one base row per
            query (−1: none).
        empty: Leave out queries without relevant items, or count them as 0.
        confidence: Coverage of the bootstrap intervals.
        resamples: Number of bootstrap resamples.
        seed: Seed of the bootstrap.
        threads: Number of threads; the result does not depend on it.
    """
    ranking = rank_codes(queries, base, relevant, exclude=exclude, threads=threads)
    return evaluate_ranking(
        ranking,
        measures=measures,
        empty=empty,
        confidence=confidence,
        resamples=resamples,
        seed=seed,
    )


def evaluate_ranking(
    ranking: Ranking,
    *,
    measures: Sequence[Measure] | None = None,
    empty: Empty = "skip",
    confidence: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
) -> Report:
    """Evaluate any ranking: of codes, scores or real-valued vectors. Arguments as in `evaluate`."""
    if measures is None:
        measures = standard_measures(radii=() if ranking.n_bits is None else (2,))
    if not measures:
        raise DataError("expected at least one measure; omit measures for the standard ones")
    for measure in measures:
        ranking.check(measure)
    values = _values(ranking, measures)
    n_without = int(np.isnan(values[:, 0, 0]).sum())
    values = _counted(values, empty)
    interval = bootstrap_interval(
        values[:, :, 0], confidence=confidence, resamples=resamples, seed=seed
    )
    return Report(
        _results(measures, values, interval, _scope(ranking, n_without, empty)),
        ranking.n_queries,
        ranking.n_base,
        ranking.n_bits,
        n_without,
        empty,
        ranking.relevance.definition,
        ranking.exclusion,
        f"{confidence:.0%} percentile bootstrap over queries, {resamples} resamples, seed {seed}",
    )


def _values(ranking: Ranking, measures: Sequence[Measure]) -> Floats:
    """Return value, worst, best and chance per query and measure, shape (queries, measures, 4)."""

    def with_bounds(counts: TieCounts) -> Floats:
        return np.stack([_with_bounds(measure, counts) for measure in measures], axis=1)

    values = np.concatenate(ranking.map(with_bounds))
    stable = [i for i, measure in enumerate(measures) if measure.ties == "stable"]
    if stable:

        def in_row_order(counts: TieCounts) -> Floats:
            return np.stack([measures[i].of(counts) for i in stable], axis=1)

        values[:, stable, 0] = np.concatenate(ranking.map(in_row_order, stable=True))
    return values


def _with_bounds(measure: Measure, counts: TieCounts) -> Floats:
    """Return value, worst, best and chance per query, shape (queries, 4)."""
    value = measure.of(counts)
    if measure.by_distance:
        return np.stack([value] * 4, axis=1)
    bounds: list[Ties] = ["worst", "best"]
    worst, best = (
        replace(measure, ties=ties).of(counts) if counts.tied else value for ties in bounds
    )
    # A random ranking is one large tie.
    chance = replace(measure, ties="expected").of(counts.pooled())
    return np.stack([value, worst, best, chance], axis=1)


def _results(
    measures: Sequence[Measure], values: Floats, interval: tuple[Floats, Floats], scope: str
) -> tuple[MeasureResult, ...]:
    low, high = interval
    # Queries last and contiguous, so that the means round exactly as those of a single measure.
    means = np.ascontiguousarray(np.moveaxis(values, 0, -1)).mean(axis=-1)
    results = []
    for i, measure in enumerate(measures):
        value, worst, best, chance = means[i].tolist()
        definition = f"mean over {len(values)} queries of: {measure.definition}; {scope}"
        result = MeasureResult(measure.name, value, definition, float(low[i]), float(high[i]))
        if not measure.by_distance:
            result = replace(result, worst=worst, best=best, chance=chance)
        results.append(result)
    return tuple(results)


def _scope(ranking: Ranking, n_without: int, empty: Empty) -> str:
    """Return the part of the definition that all numbers of a report share."""
    treatment = "left out" if empty == "skip" else "counted as 0"
    return (
        f"relevant are {ranking.relevance.definition};"
        f" {n_without} of {ranking.n_queries} queries without relevant items {treatment};"
        f" {ranking.exclusion}; {ranking.n_base} base items"
    )


def mean_over_queries(values: ArrayLike, *, empty: Empty = "skip") -> float:
    """Return the mean of a measure over the queries.

    Queries without relevant items (NaN) are left out, or counted as 0.

    Example:
        >>> mean_over_queries([1.0, 0.5, float("nan")])
        0.75
        >>> mean_over_queries([1.0, 0.5, float("nan")], empty="zero")
        0.5
    """
    return float(_counted(np.asarray(values, np.float64), empty).mean())


def _counted(values: Floats, empty: Empty) -> Floats:
    """Return the rows that enter a mean: without NaN rows, or with 0 in their place."""
    if empty not in ("skip", "zero"):
        raise DataError(f"empty must be 'skip' or 'zero', got {empty!r}")
    if empty == "zero":
        return np.nan_to_num(values)
    has_relevant = ~np.isnan(values.reshape(len(values), -1)[:, 0])
    if not has_relevant.any():
        raise DataError(
            f"none of {len(values)} queries has a relevant item;"
            " check the labels, or use empty='zero'"
        )
    return values[has_relevant]


def bootstrap_interval(
    values: ArrayLike, *, confidence: float = 0.95, resamples: int = 1000, seed: int = 0
) -> tuple[Floats, Floats]:
    """Return the percentile bootstrap interval of a mean over queries.

    It measures how much the mean depends on the choice of queries, not on training seeds.

    Args:
        values: One value per query, shape (q,), or several measures of the same queries, shape
            (q, m), which are resampled together.
        confidence: Coverage of the interval.
        resamples: Number of resamples.
        seed: Seed of the resampling.

    Returns:
        Lower and upper ends, of shape () or (m,).
    """
    array = np.asarray(values, np.float64)
    if not 0 < confidence < 1:
        raise DataError(f"confidence must be between 0 and 1 (exclusive), got {confidence!r}")
    if resamples < 1 or not len(array):
        raise DataError(
            "a bootstrap needs at least one value and one resample,"
            f" got {len(array)} and {resamples}"
        )
    means = _resampled_means(array.reshape(len(array), -1), resamples, seed)
    low, high = np.quantile(means, [(1 - confidence) / 2, (1 + confidence) / 2], axis=0)
    return low.reshape(array.shape[1:]), high.reshape(array.shape[1:])


def _resampled_means(values: Floats, resamples: int, seed: int) -> Floats:
    """Return means of resampled rows, shape (resamples, measures)."""
    n = len(values)
    draws = _kept_draws if n * resamples <= _DRAWS else _draws
    return np.concatenate([times @ values / n for times in draws(n, resamples, seed)])


@lru_cache(maxsize=4)
def _kept_draws(n: int, resamples: int, seed: int) -> tuple[Floats, ...]:
    """Keep the draws: many means are resampled alike, and drawing takes most of the time."""
    return tuple(_draws(n, resamples, seed))


def _draws(n: int, resamples: int, seed: int) -> Iterator[Floats]:
    """Yield how often each row is drawn, for blocks of resamples: faster than gathering rows."""
    random = np.random.default_rng(seed)
    step = max(1, _DRAWS // n)
    for start in range(0, resamples, step):
        rows = min(step, resamples - start)
        drawn = random.integers(n, size=(rows, n)) + np.arange(rows)[:, None] * n
        times = np.bincount(drawn.ravel(), minlength=rows * n).reshape(rows, n)
        yield times.astype(np.float64)

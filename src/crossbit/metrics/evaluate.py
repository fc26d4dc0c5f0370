"""Evaluate: the usual measures in one pass, each with its definition, its interval, its bounds and its chance level."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from crossbit.codes import Codes
from crossbit.errors import DataError
from crossbit.metrics.average import AveragePrecision, Divisor
from crossbit.metrics.means import Empty, bootstrap_interval, counted, mean_over_queries
from crossbit.metrics.measure import Measure
from crossbit.metrics.measures import NDCG, Precision, PrecisionWithin, Recall, RecallWithin
from crossbit.metrics.rank import rank_codes
from crossbit.metrics.ranking import Exclude, Ranking
from crossbit.metrics.relevance import Relevance
from crossbit.metrics.report import Report, Result
from crossbit.metrics.tally import Floats, Tally, Ties


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
    """Mean average precision of base codes ranked by Hamming distance to each query; see `AveragePrecision`.

    Args:
        queries: Codes of the queries.
        base: Codes of the base items, of the same length.
        relevant: What is relevant to what: `same_class` and the like, or an explicit matrix (queries, base).
        at: Only the first so many places; nothing for the whole ranking.
        divisor: What average precision at a cut-off is divided by.
        ties: How items at one distance are ordered: the expectation over all orders unless you ask otherwise.
        exclude: ``"same-row"`` leaves base row i out for query i; an array names a base row (−1: none) for each query.
        empty: Queries without relevant items are left out, or counted as 0.
        threads: How many threads count; the answer does not depend on it.

    Example:
        >>> from crossbit.metrics import same_class
        >>> base = Codes.pack([[0, 0], [0, 0], [0, 1], [1, 1]])
        >>> round(mean_average_precision(base[:1], base, same_class([7], [7, 8, 7, 8])), 4)
        0.7083
    """
    ranking = rank_codes(queries, base, relevant, exclude=exclude, threads=threads)
    return mean_over_queries(
        ranking.measure(AveragePrecision(at=at, divisor=divisor, ties=ties)), empty=empty
    )


def standard_measures(
    *,
    at: Sequence[int] = (10, 100),
    radii: Sequence[int] = (2,),
    divisor: Divisor = "retrieved",
    ties: Ties = "expected",
) -> tuple[Measure, ...]:
    """Mean average precision of the whole ranking; with precision, recall and nDCG at cut-offs; within Hamming radii.

    Args:
        at: Cut-offs.
        radii: Hamming radii; give none for a ranking by real numbers.
        divisor: What average precision at a cut-off is divided by.
        ties: How items at one distance are ordered.
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
    """Measure how well base codes, ranked by Hamming distance to each query, put relevant items first.

    Args:
        queries: Codes of the queries.
        base: Codes of the base items, of the same length.
        relevant: What is relevant to what: `same_class` and the like, or an explicit matrix (queries, base).
        measures: What to measure; `standard_measures` unless you say.
        exclude: ``"same-row"`` leaves base row i out for query i; an array names a base row (−1: none) for each query.
        empty: Queries without relevant items are left out of every mean, or counted as 0.
        confidence: Share of the bootstrap draws inside each interval.
        resamples: How many draws of queries.
        seed: Of these draws.
        threads: How many threads count; the answer does not depend on it.
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
    """The same as `evaluate` for any ranking: of codes, of scores, or of real-valued vectors."""
    if measures is None:
        measures = standard_measures(radii=() if ranking.n_bits is None else (2,))
    if not measures:
        raise DataError(
            "nothing to measure: give at least one measure, or none at all for the usual ones"
        )
    for measure in measures:
        ranking.check(measure)
    values = _values(ranking, measures)
    n_without = int(np.isnan(values[:, 0, 0]).sum())
    values = counted(values, empty)
    return Report(
        _results(measures, values, _about(ranking, n_without, empty), confidence, resamples, seed),
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
    """Value, worst, best and chance of each measure for each query, shape (queries, measures, 4)."""

    def around(tally: Tally) -> Floats:
        return np.stack([_around(measure, tally) for measure in measures], axis=1)

    values = np.concatenate(ranking.map(around))
    stable = [i for i, measure in enumerate(measures) if measure.ties == "stable"]
    if stable:

        def in_order(tally: Tally) -> Floats:
            return np.stack([measures[i].of(tally) for i in stable], axis=1)

        values[:, stable, 0] = np.concatenate(ranking.map(in_order, stable=True))
    return values


def _around(measure: Measure, tally: Tally) -> Floats:
    """Value, worst, best and chance for each query of a tally, shape (queries, 4)."""
    value = measure.of(tally)
    if measure.by_distance:
        return np.stack([value] * 4, axis=1)
    bounds: list[Ties] = ["worst", "best"]
    worst, best = (
        replace(measure, ties=ties).of(tally) if tally.tied else value for ties in bounds
    )
    # A ranking at random is one large tie.
    chance = replace(measure, ties="expected").of(tally.pooled())
    return np.stack([value, worst, best, chance], axis=1)


def _results(
    measures: Sequence[Measure],
    values: Floats,
    about: str,
    confidence: float,
    resamples: int,
    seed: int,
) -> tuple[Result, ...]:
    low, high = bootstrap_interval(
        values[:, :, 0], confidence=confidence, resamples=resamples, seed=seed
    )
    # Queries last and contiguous: the means then round exactly as that of a single measure does.
    means = np.ascontiguousarray(np.moveaxis(values, 0, -1)).mean(axis=-1)
    results = []
    for i, measure in enumerate(measures):
        value, worst, best, chance = means[i].tolist()
        definition = f"mean over {len(values)} queries of: {measure.definition}; {about}"
        result = Result(measure.name, value, definition, float(low[i]), float(high[i]))
        results.append(
            result
            if measure.by_distance
            else replace(result, worst=worst, best=best, chance=chance)
        )
    return tuple(results)


def _about(ranking: Ranking, n_without: int, empty: Empty) -> str:
    """What holds for every number of a report, in words."""
    fate = "left out" if empty == "skip" else "counted as 0"
    return (
        f"relevant are {ranking.relevance.definition}; {n_without} of {ranking.n_queries} queries without"
        f" relevant items {fate}; {ranking.exclusion}; {ranking.n_base} base items"
    )

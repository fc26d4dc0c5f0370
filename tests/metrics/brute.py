"""Definitions of the measures as loops over lists, to test the closed forms."""

import math
from collections.abc import Iterator, Sequence
from itertools import groupby, permutations, product

import numpy as np

from crossbit.codes import Codes
from crossbit.metrics import NDCG, AveragePrecision, Measure, Precision, Recall, Success

MAX_DISTANCE = 4


def codes_at(distances: Sequence[int]) -> tuple[Codes, Codes]:
    """Return a query of zeros, and base codes at these distances from it."""
    base = np.arange(MAX_DISTANCE) < np.asarray(distances)[:, None]
    return Codes.pack(np.zeros((1, MAX_DISTANCE), np.bool_)), Codes.pack(base)


def tie_orders(distances: Sequence[int], gains: Sequence[float]) -> Iterator[list[float]]:
    """Yield every distinct ranking that the distances allow, as gains; all are equally likely."""
    pairs = sorted(zip(distances, gains, strict=True), key=lambda pair: pair[0])
    groups = [[gain for _, gain in group] for _, group in groupby(pairs, key=lambda pair: pair[0])]
    for ordered_groups in product(*(sorted(set(permutations(group))) for group in groups)):
        yield [gain for group in ordered_groups for gain in group]


def value(measure: Measure, ranking: Sequence[float]) -> float:
    """Return a measure of one ranking without ties, given by the gains of its items."""
    if not any(ranking):
        return math.nan
    match measure:
        case AveragePrecision():
            return _average_precision(ranking, measure.at or len(ranking), measure.divisor)
        case Precision():
            return sum(gain > 0 for gain in ranking[: measure.at]) / measure.at
        case Recall():
            return sum(gain > 0 for gain in ranking[: measure.at]) / sum(
                gain > 0 for gain in ranking
            )
        case Success():
            return float(any(gain > 0 for gain in ranking[: measure.at]))
        case NDCG():
            at = measure.at or len(ranking)
            return _dcg(ranking[:at]) / _dcg(sorted(ranking, reverse=True)[:at])
    raise TypeError(measure)


def _average_precision(ranking: Sequence[float], at: int, divisor: str) -> float:
    hits = 0
    total = 0.0
    for place, gain in enumerate(ranking[:at], start=1):
        if gain > 0:
            hits += 1
            total += hits / place
    relevant = sum(gain > 0 for gain in ranking)
    divisors = {"retrieved": hits, "reachable": min(relevant, at), "all": relevant}
    return total / divisors[divisor] if divisors[divisor] else 0.0


def _dcg(gains: Sequence[float]) -> float:
    return sum(gain / math.log2(place + 1) for place, gain in enumerate(gains, start=1))

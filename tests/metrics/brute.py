"""The definitions as loops over lists: what the closed forms are held against."""

import math
from collections.abc import Iterator, Sequence
from itertools import groupby, permutations, product

import numpy as np

from crossbit.codes import Codes
from crossbit.metrics import NDCG, AveragePrecision, Measure, Precision, Recall, Success

MAX_DISTANCE = 4


def codes_at(distances: Sequence[int]) -> tuple[Codes, Codes]:
    """A query of zeros, and base codes at these distances from it."""
    base = np.arange(MAX_DISTANCE) < np.asarray(distances)[:, None]
    return Codes.pack(np.zeros((1, MAX_DISTANCE), np.bool_)), Codes.pack(base)


def tie_orders(distances: Sequence[int], gains: Sequence[float]) -> Iterator[list[float]]:
    """Every ranking that the distances allow, as gains; all are equally likely, since equal gains swap unseen."""
    pairs = sorted(zip(distances, gains, strict=True), key=lambda pair: pair[0])
    groups = [[gain for _, gain in group] for _, group in groupby(pairs, key=lambda pair: pair[0])]
    for chosen in product(*(sorted(set(permutations(group))) for group in groups)):
        yield [gain for group in chosen for gain in group]


def value(measure: Measure, ranking: Sequence[float]) -> float:
    """A measure of one ranking without ties, told as the gains of its items."""
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
    found, total = 0, 0.0
    for place, gain in enumerate(ranking[:at], start=1):
        if gain > 0:
            found += 1
            total += found / place
    relevant = sum(gain > 0 for gain in ranking)
    whole = {"retrieved": found, "reachable": min(relevant, at), "all": relevant}[divisor]
    return total / whole if whole else 0.0


def _dcg(gains: Sequence[float]) -> float:
    return sum(gain / math.log2(place + 1) for place, gain in enumerate(gains, start=1))
